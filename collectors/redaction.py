"""
Taking secrets out of command lines, URLs and messages before they are stored, logged or shown.

The rule is by name: an option or variable whose name speaks of a key, token, secret or password
hides its value. Names that only sound like it (`--max-num-batched-tokens`, `--tokenizer`,
`--cache-type-k`) keep theirs, and so does a path to a file of keys. When in doubt a value is
hidden: a secret that leaks is worse than an argument that is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

HIDDEN = "[redacted]"

_SECRET_NAME = re.compile(
    r"\Assl-|key(?!word|board)|token(?!s\b|i[sz])|secret|passw|passphrase|credential|\bpwd\b|\bjwt\b|bearer|cookie"
    r"|authorization|(?:api|access|auth|hf|secret)-?tokens\b|\Ahft\Z"
)
_HARMLESS_NAME = re.compile(
    r"(?:file|path|dir)\Z|\A(?:long-prefill-token-threshold|return-tokens-as-token-ids|return-token-ids)\Z"
)
_FILE_OF_SECRETS = re.compile(r"\Assl-")
# Options after which the engine takes the next word as the secret, whatever it looks like.
_TAKES_NEXT_WORD = re.compile(r"\A(?:api-?keys?|hf-?token|hft|token|.*password)\Z")

_OPTION = re.compile(r"--?[A-Za-z][\w.-]*\Z")
_ASSIGNMENT = re.compile(r"(-{0,2}[A-Za-z_][\w.-]*)=(.*)\Z", re.DOTALL)

_URL_USER = re.compile(r"((?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*+://)[^\s/?#]*@")
_HEADER = re.compile(
    r"(?<![\w-])((?:proxy-)?authorization|cookie|x-(?=[\w-]*?(?:token|key|secret))[\w-]++)(\s*:\s*)[^\r\n\"']+",
    re.IGNORECASE,
)
_BEARER = re.compile(r"\b(Bearer|Basic)(\s+)[^\s\"',;}]+", re.IGNORECASE)
# A name that may be secret. The lookahead and the possessive `++` keep the time linear in the text.
_NAME = (
    r"((?<![\w.-])"
    r"(?=[\w.-]*?(?:key|token|secret|passw|passphrase|credential|pwd|jwt|bearer|cookie|authorization|hft|ssl-))"
    r"[\w.-]++)"
)
_VALUE = r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s\"'&}]+)"
_PAIR = re.compile(_NAME + r"([\"']?\s*[=:]\s*)" + _VALUE, re.IGNORECASE)
_OPTION_AND_VALUE = re.compile(r"(?<![\w-])(?=-)" + _NAME + r"(\s+)(?!-)" + _VALUE, re.IGNORECASE)
_KNOWN_SHAPE = re.compile(r"\b(?:hf_|sk-|sk_|ghp_|github_pat_|glpat-|xox[abp]-|AKIA|eyJ)[A-Za-z0-9_\-.]{8,}")


def redact_arguments(argv: Sequence[str]) -> tuple[str, ...]:
    """
    The command line with secret values replaced by `[redacted]`.

    Knows `--api-key X`, `--api-key=X` and, as vLLM takes several keys after one option,
    `--api-key X Y Z` up to the next option (hidden by one word); `NAME=value` words with a secret
    name; headers, bearer tokens, well-known token shapes and passwords in URLs inside any word.
    """
    result: list[str] = []
    takes_next = hiding = False
    for word in argv:
        assignment = _ASSIGNMENT.match(word)
        if takes_next:
            result.append(HIDDEN)
            takes_next = False
        elif assignment and _is_secret_name(assignment[1]):
            result.append(f"{assignment[1]}={HIDDEN}")
            hiding = assignment[1].startswith("-")
        elif _OPTION.match(word):
            result.append(word)
            hiding = _is_secret_name(word)
            takes_next = hiding and _TAKES_NEXT_WORD.match(_plain(word)) is not None
        elif hiding and not word.startswith("--"):
            if not result[-1].endswith(HIDDEN):
                result.append(HIDDEN)
        else:
            hiding = False
            result.append(redact_text(word))
    return tuple(result)


def redact_url(url: str) -> str:
    """The URL with user, password and the values of secret query parameters hidden."""
    return redact_text(url)


def redact_text(text: str) -> str:
    """Free text, such as an error message or a shell command, with everything hidden that looks like a secret."""
    text = _URL_USER.sub(rf"\1{HIDDEN}@", text)
    text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
    text = _BEARER.sub(rf"\1\2{HIDDEN}", text)
    text = _PAIR.sub(_hide_value, text)
    text = _OPTION_AND_VALUE.sub(_hide_value, text)
    return _KNOWN_SHAPE.sub(HIDDEN, text)


def _hide_value(match: re.Match[str]) -> str:
    if not _is_secret_name(match[1]):
        return match[0]
    return f"{match[1]}{match[2]}{HIDDEN}"


def _plain(name: str) -> str:
    return name.lstrip("-").lower().replace("_", "-").replace(".", "-")


def _is_secret_name(name: str) -> bool:
    plain = _plain(name)
    if _HARMLESS_NAME.search(plain) and not _FILE_OF_SECRETS.match(plain):
        return False
    return _SECRET_NAME.search(plain) is not None
