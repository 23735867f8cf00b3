"""
Reading options from an engine's command line.

Forms, as both engines' parsers take them: `--name value`, `--name=value`, `-n value`, underscores
for dashes in long names, bare switches. The last occurrence counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

_OPTION = re.compile(r"--?[A-Za-z]")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG]?)\Z")
# vLLM's human-readable integers: lower case is decimal, upper case binary (vllm/utils/argparse_utils.py).
_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}


class Options:
    """The options of one command line."""

    def __init__(self, arguments: tuple[str, ...]) -> None:
        self._values: dict[str, str | None] = {}
        for index, word in enumerate(arguments):
            if not _OPTION.match(word):
                continue
            name, equals, value = word.partition("=")
            following = arguments[index + 1] if index + 1 < len(arguments) else None
            if equals:
                self._values[_plain(name)] = value
            elif following is not None and not _OPTION.match(following):
                self._values[_plain(name)] = following
            else:
                self._values[_plain(name)] = None

    def has(self, *names: str) -> bool:
        """Whether one of the names is there, with or without a value."""
        return any(name in self._values for name in names)

    def text(self, *names: str) -> str | None:
        """The value of the first of these names that is there with one."""
        return next((self._values[name] for name in names if self._values.get(name) is not None), None)

    def integer(self, *names: str) -> int | None:
        """The value as an integer, `8k` and `8K` included; None when it is absent or something else."""
        text = self.text(*names)
        match = _SIZE.match(text) if text else None
        if match:
            return int(float(match[1]) * _FACTORS[match[2]])
        return int(text) if text and re.fullmatch(r"-\d+", text) else None


def _plain(name: str) -> str:
    return name.replace("_", "-") if name.startswith("--") else name


@lru_cache(maxsize=256)
def options_of(arguments: tuple[str, ...]) -> Options:
    """The options of `arguments`, parsed once."""
    return Options(arguments)


def fact_values(options: Options, names: Mapping[str, tuple[str, ...]]) -> dict[str, str | int | bool]:
    """The options among `names` (fact name -> option names) that are set: numbers as such, switches as True."""
    facts: dict[str, str | int | bool] = {}
    for fact, aliases in names.items():
        if not options.has(*aliases):
            continue
        text, number = options.text(*aliases), options.integer(*aliases)
        facts[fact] = number if number is not None else text if text is not None else True
    return facts
