"""
Which flags an engine has at all, so that a misspelt one is named instead of being passed over.

The lists are the engines' own: ``llama-server --help`` of b11434 and ``vllm serve --help=all`` of 0.32.0, and some
flags of earlier versions.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from calculator.model import CalculatorError

_FILE = Path(__file__).with_name("engine_flags.json")
_FLAG = re.compile(r"--?[A-Za-z]")


@dataclass(frozen=True, slots=True)
class Known:
    """The flags of one engine and the version they were listed by."""

    engine: str
    version: str
    flags: frozenset[str]


@cache
def known(engine: str) -> Known:
    """The flags of "vllm" or "llama.cpp". Raises `CalculatorError` for an engine without a list."""
    lists = json.loads(_FILE.read_text(encoding="utf-8"))
    if engine not in lists:
        raise CalculatorError(f"engine {engine!r} is not known; one of {', '.join(lists)}")
    entry = lists[engine]
    return Known(engine, entry["version"], frozenset(" ".join([*entry["flags"], entry["earlier"]]).split()))


def unknown_flags(engine: str, arguments: Sequence[str]) -> list[str]:
    """The words that look like flags and are none of the engine's; values that begin with a dash are not."""
    flags = known(engine).flags
    return [word.partition("=")[0] for word in arguments if _FLAG.match(word) and not _is_known(word, engine, flags)]


def _is_known(word: str, engine: str, flags: frozenset[str]) -> bool:
    name = word.partition("=")[0]
    if name in flags or (name.startswith("--") and name.replace("_", "-") in flags):
        return True
    # vLLM takes the fields of a nested configuration after a dot: --compilation-config.mode 3, -O3
    return engine == "vllm" and (name.partition(".")[0] in flags or re.fullmatch(r"-O\d?", name) is not None)


def refuse_unknown(engine: str, arguments: Sequence[str]) -> None:
    """Raise `CalculatorError` that names each flag the engine does not have, with the nearest that it has."""
    wrong = unknown_flags(engine, arguments)
    if not wrong:
        return
    flags = sorted(known(engine).flags)
    texts = []
    for word in dict.fromkeys(wrong):
        near = difflib.get_close_matches(word, flags, n=1, cutoff=0.7)
        texts.append(f"{word} (did you mean {near[0]}?)" if near else word)
    raise CalculatorError(f"{engine} {known(engine).version} has no flag {', '.join(texts)}")
