"""
Host names, network addresses and folders replaced by placeholders that stay the same throughout one report.

`gpu-box-7` becomes `host-1`, `/home/kim/models/Qwen3-8B.gguf` becomes `folder-1/Qwen3-8B.gguf`: what was measured stays
readable, where it lies does not. Names are replaced where they stand as a word of their own. Loopback addresses stay.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any
from urllib.parse import urlsplit

# At least two parts: a lone "/" between words is no folder.
_FOLDER = re.compile(r"(?<![\w/:.~])(?:~|/[\w.@+ -]*[\w.@+-])(?:/[\w.@+-]+)*/(?=[\w.@+-])")
_ADDRESS = re.compile(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])")
_URL = re.compile(r"https?://[^\s\"'<>,]+")
Scrub = Callable[[str], str]


def nothing(text: str) -> str:
    """The text as it is: for a report that hides nothing."""
    return text


def scrubber(hosts: Iterable[str], rows: Iterable[Mapping[str, Any]]) -> Scrub:
    """
    What replaces everything of this kind that `hosts` and the texts of `rows` name.

    Placeholders are numbered in the order of first appearance.
    """
    names, folders = dict.fromkeys(host for host in hosts if host and not _loopback(host)), dict[str, None]()
    for row in rows:
        for text in _texts(row):
            names |= dict.fromkeys(_hosts_in(text))
            folders |= dict.fromkeys(_FOLDER.findall(text))
    wanted = {name: f"host-{number}" for number, name in enumerate(names, 1)}
    wanted |= {folder: f"folder-{number}/" for number, folder in enumerate(folders, 1)}
    if not wanted:
        return nothing
    spellings = {escape(original, quote=True): placeholder for original, placeholder in wanted.items()} | wanted
    longest_first = sorted(spellings, key=len, reverse=True)
    pattern = re.compile("|".join(_whole(original) for original in longest_first))
    return lambda text: pattern.sub(lambda match: spellings[match[0]], text)


def _whole(original: str) -> str:
    """A pattern of a name as a word of its own; a folder ends with its slash."""
    return re.escape(original) if original.endswith("/") else rf"(?<![\w-]){re.escape(original)}(?![\w])"


def _texts(value: Any) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)


def _hosts_in(text: str) -> Iterable[str]:
    for url in _URL.findall(text):
        try:
            host = urlsplit(url).hostname
        except ValueError:
            continue
        if host and not _loopback(host):
            yield host
    for address in _ADDRESS.findall(text):
        if not _loopback(address):
            yield address


def _loopback(name: str) -> bool:
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback or ipaddress.ip_address(name).is_unspecified
    except ValueError:
        return False
