"""Command lines side by side: which options one side has and the other has not."""

from __future__ import annotations

import re
from collections.abc import Sequence

_OPTION = re.compile(r"--?[A-Za-z]")
# What names an instance and changes nothing about its speed or memory; the model has a row of its own.
_NOT_COMPARED = frozenset({
    "-m", "--model", "--model-path", "--model-id", "-hf", "--hf-repo", "--host", "--port", "-a", "--alias",
    "--served-model-name", "--api-key", "--api-key-file", "--log-file", "--metrics", "--slots", "--enable-metrics",
})  # fmt: skip


def listed(words: Sequence[str]) -> tuple[str, ...]:
    """
    The options of a redacted command line, sorted, each with its value; program, model, address and keys left out.

    `--name=value` and `--name value` are the same, and so are `_` and `-` in long names.
    """
    options: list[str] = []
    for place, word in enumerate(words):
        if not _OPTION.match(word):
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-") if name.startswith("--") else name
        following = words[place + 1] if place + 1 < len(words) else "-x"
        if not equals and not _OPTION.match(following):
            value = following
        if name not in _NOT_COMPARED:
            options.append(f"{name} {value}".strip())
    return tuple(sorted(options))


def only_there(words: Sequence[str], others: Sequence[Sequence[str]]) -> str:
    """The options of `words` that not all `others` (lists of options) have, as one text."""
    return " ".join(option for option in listed(words) if not all(option in other for other in others))


def value_of(words: Sequence[str], *names: str) -> str | None:
    """The value of the first of these options that is there; empty for one without a value."""
    for option in listed(words):
        name, _, value = option.partition(" ")
        if name in names:
            return value
    return None
