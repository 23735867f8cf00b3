"""
Host names, network addresses and folders replaced by placeholders that stay the same throughout one report.

`gpu-box-7` becomes `host-1`, `/home/kim/models/Qwen3-8B.gguf` becomes `folder-1/Qwen3-8B.gguf`, and `/home/kim` by
itself `home-1`: what was measured stays readable, where it lies does not. The last part of a path stays, as the name of
a file or model. Loopback addresses, paths of an engine's API, and relative paths stay. What a person typed is searched
for known names only. A host that is called like a common word is hidden in URLs and where its name stands alone.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

_PART = r"(?:[\w.@+=%-]|\\u[0-9a-fA-F]{4})+"  # of a path in running text, whose end a space tells
_USER = r"(?:[A-Za-z_][\w.-]*)"
# At least two parts: a lone "/" between words is no folder.
_FOLDER = re.compile(rf"(?<![\w/.~<])(?:~{_USER}?|/{_PART})(?:/{_PART})*/(?=[\w.@+-])")
_WINDOWS_FOLDER = re.compile(r"(?<!\w)[A-Za-z]:(?:\\[^\\/:*?\"<>|\r\n]+)*\\(?=[^\\\s])")
_HOME = re.compile(rf"(?<![\w/.~<])(?:~{_USER}|/(?:home|Users)/[\w.@+-]*\w)(?=$|[^\w.@+-]|[.](?!\w))")
_PATH = re.compile(rf"(?:--?[\w-]+=)?((?:~{_USER}?)?/[^\r\n\t:,;\"]*)")
_NOT_FOLDERS = frozenset({"v1", "v2", "api", "proc", "sys", "dev"})  # of an engine's API, and of every Linux
_HOMES = frozenset({"/home/", "/Users/"})
_IPV4 = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w]|\.\d)")
_IPV6 = re.compile(r"(?<![\w:.])[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7}(?![\w:])")
_URL = re.compile(r"\b[a-z][a-z0-9+]*://(?:[^\s/@\"']*@)?(\[[0-9A-Fa-f:.]+\]|\w[\w.-]*)", re.IGNORECASE)
_HOST_OPTIONS = frozenset({"--host", "--rpc", "--master-addr", "--dist-init-addr"})
# Of drawings, pages and their English: as the name of a host such a word is hidden only where it can be nothing else.
_COMMON_WORDS = (
    "a area as at aria axis b band bar body box by chart class client color colour config container count d data "
    "datasets datum default desktop device div domain e encoding engine event f false field figure fill filter font "
    "format g gpu group header height home host in inference is label layer left legend line linear list llama load "
    "main mark memory meta mode model name node none normal null of off on ollama open order page path point power "
    "query range rect report right role root row rule run scale scope section server sglang size source span spec "
    "stack style sub svg table test text tgi tick time title to token transform true type unit use user utc v value "
    "values view vllm width window with worker x y z"
)
_COMMON = frozenset(_COMMON_WORDS.split())
_MARKUP = re.compile(r"<style.*?</style>|</?[a-zA-Z][\w-]*|\sclass=\"[^\"]*\"", re.DOTALL)
Scrub = Callable[[str], str]


def nothing(text: str) -> str:
    """The text as it is: for a report that hides nothing."""
    return text


class Scrubber:
    """
    Replaces what it knows. `learn` makes it know more; what it knew keeps its placeholder.

    Text that was replaced once stays as it is when it comes again.
    """

    def __init__(self) -> None:
        self._placeholders: dict[str, str] = {}  # by what is hidden
        self._given: set[str] = set()  # names of hosts: none of them is a placeholder
        self._wholes: dict[str, str] = {}  # names that are hidden where they are the whole text
        self._patterns: dict[str, str] = {}  # by spelling of what is hidden
        self._becomes: dict[str, str] = {}  # by spelling, too
        self._pattern: re.Pattern[str] | None = None

    def copy(self) -> Scrubber:
        """One that knows the same; what it learns is its own, so that one report may be written by two threads."""
        other = Scrubber()
        other._placeholders, other._given = dict(self._placeholders), set(self._given)
        other._wholes = dict(self._wholes)
        other._patterns, other._becomes = dict(self._patterns), dict(self._becomes)
        return other

    def __call__(self, text: str) -> str:
        """The text with placeholders. In a whole HTML page, styles, tags and classes stay."""
        if not self._patterns:
            return text
        if text in self._wholes:
            return self._wholes[text]
        if text.startswith("<!doctype"):
            kept = _MARKUP.findall(text)
            parts = [self._replaced(part) for part in _MARKUP.split(text)]
            return "".join(one for pair in zip(parts, [*kept, ""], strict=True) for one in pair)
        return self._replaced(text)

    def learn(self, value: object) -> None:
        """Know the addresses and folders in a text, in the texts of a row, and in JSON that is one of them."""
        texts = list(_texts(value))
        for before, text in zip(["", *texts], texts, strict=False):
            option, _, given = text.partition("=") if text.startswith("--") else (before, "", text)
            if option in _HOST_OPTIONS:
                self.learn_hosts(re.sub(r":\d+$", "", each.strip()) for each in given.split(","))
            self.learn_hosts(_hosts_in(text))
            for folder in _folders_in(text):
                self._know_folder(folder)

    def learn_hosts(self, names: Iterable[str]) -> None:
        """Know these names of hosts, or addresses; loopback stays."""
        given = [name.strip(".[] ") for name in names]
        self._given.update(given)
        for name in given:
            if not name or name in self._placeholders or _loopback(name):
                continue
            placeholder = self._next("host", name)
            if name.lower() in _COMMON:
                self._wholes |= {name: placeholder, name.lower(): placeholder}
                for told in ("://{}", '"host": "{}"'):
                    self._know(told.format(name), told.format(placeholder), (r"(?<=", r")(?![\w-])"))
                continue
            for spelling in dict.fromkeys((name, name.lower())):
                self._know(spelling, placeholder, _around(name))
            first = name.partition(".")[0]
            if _distinctive(first) and first not in self._placeholders and not _is_address(name):
                self._placeholders[first] = placeholder
                self._know(first, placeholder, _around(first))

    def _know_folder(self, folder: str) -> None:
        """`folder` ends with its slash. It is known without it, too."""
        bare = folder[:-1]
        if bare in self._placeholders or not bare:
            return
        home = _HOME.match(bare)
        if home and home[0] != bare:
            self._know_folder(f"{home[0]}/")
        placeholder = self._next("home" if home and home[0] == bare else "folder", bare)
        self._know(folder, placeholder + "/", (r"(?<![\w.@+~-]", ")"))
        if bare.count(folder[-1]) > 1 or bare.startswith("~"):
            self._know(bare, placeholder, (r"(?<![\w.@+~-]", r")(?![\w@+-]|[./\\]\w)"))

    def _next(self, kind: str, original: str) -> str:
        taken = {*self._placeholders, *self._placeholders.values(), *self._given}
        placeholder = next(name for number in itertools.count(1) if (name := f"{kind}-{number}") not in taken)
        self._placeholders[original] = placeholder
        return placeholder

    def _know(self, original: str, becomes: str, around: tuple[str, str]) -> None:
        for spelling in (original, escape(original, quote=True), json.dumps(original)[1:-1]):
            if spelling not in self._patterns:
                # Looks back after the spelling and not before it: a search then skips to the letters that begin one.
                exact = re.escape(spelling)
                self._patterns[spelling] = f"{exact}{around[0]}{exact}{around[1]}"
                self._becomes[spelling] = becomes
        self._pattern = None

    def _replaced(self, text: str) -> str:
        pattern = self._pattern
        if pattern is None:
            longest_first = sorted(self._patterns, key=len, reverse=True)
            pattern = self._pattern = re.compile("|".join(self._patterns[spelling] for spelling in longest_first))
        return pattern.sub(lambda match: self._becomes[match[0]], text)


def scrubber(hosts: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> Scrubber:
    """
    What replaces everything of this kind that `hosts` and the texts of `rows` name.

    Placeholders are numbered in the order of first appearance.
    """
    made = Scrubber()
    made.learn_hosts(hosts)
    for row in rows:
        made.learn(row)
    return made


def _around(name: str) -> tuple[str, str]:
    """What may not stand before and after a name of a host."""
    if _is_address(name):
        return (r"(?<![\w:.]", r")(?![\w:])") if ":" in name else (r"(?<![\w.]", r")(?!\w|\.\d)")
    if _distinctive(name):
        return r"(?<![^\W_]", r")(?![^\W_])"
    return r"(?<![\w-]", r")(?![\w-])"  # a plain word: in a longer one it means something else


def _distinctive(name: str) -> bool:
    return any(letter.isalpha() for letter in name) and not name.isalpha()


def _texts(value: object) -> Iterable[str]:
    """Every text in a value, in order; of a JSON array or object its texts."""
    if isinstance(value, str):
        if value[:1] in ("{", "["):
            try:
                yield from _texts(json.loads(value))
            except ValueError:
                yield value
        else:
            yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            # as the command line would say it: this one is a name whatever it looks like
            yield "--host" if key == "host" else str(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _hosts_in(text: str) -> Iterable[str]:
    if "://" in text:
        yield from _URL.findall(text)
    if text.count(".") >= 3:
        yield from (found for found in _IPV4.findall(text) if _is_address(found))
    if text.count(":") >= 2:
        yield from (found for found in _IPV6.findall(text) if _is_address(found))


def _folders_in(text: str) -> Iterable[str]:
    if "/" in text:
        whole = _PATH.fullmatch(text.strip())
        folders = [whole[1].rpartition("/")[0] + "/"] if whole and " /" not in text.strip() else []
        for folder in folders + _FOLDER.findall(text):
            first = folder.strip("/").partition("/")[0]
            if first and first not in _NOT_FOLDERS and folder not in _HOMES:
                yield folder
        yield from (f"{home}/" for home in _HOME.findall(text))
    if ":\\" in text:
        yield from _WINDOWS_FOLDER.findall(text)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback or ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False
