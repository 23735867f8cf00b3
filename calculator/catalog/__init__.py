"""
Well-known models, by name: configurations as their publishers have them, one file a family.

An entry holds the fields of ``config.json`` that decide sizes, where they are from, and the published number of
parameters, against which a test checks the shapes.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from calculator.hf_config import model_from_config
from calculator.model import CalculatorError, Model

FOLDER = Path(__file__).parent
# What a name adds to the same shapes: the tuning, the file format, a quantisation.
_SUFFIXES = re.compile(
    r"[-_.](?:instruct|it|chat|hf|bf16|fp8|fp8[-_]dynamic|awq|gptq|gguf|nvfp4|mxfp4|int4|int8|4bit|8bit|w4a16|w8a8|mlx"
    r"|thinking|base|2507|dynamic|quantized|q\d\w*|iq\d\w*|ud|unsloth|v\d(?:\.\d)?)$"
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the catalogue."""

    name: str
    repo: str
    family: str
    source: str
    config: Mapping[str, object]
    parameters_published: int
    parameters_source: str
    parameters_include_mtp: bool


@cache
def entries() -> tuple[Entry, ...]:
    """Give all entries, by family and as listed in its file."""
    out = []
    for path in sorted(FOLDER.glob("*.json")):
        for row in json.loads(path.read_text())["models"]:
            out.append(
                Entry(
                    name=row["name"],
                    repo=row["repo"],
                    family=path.stem,
                    source=row["source"],
                    config=row["config"],
                    parameters_published=row["parameters_published"],
                    parameters_source=row["parameters_source"],
                    parameters_include_mtp=row.get("parameters_include_mtp", False),
                )
            )
    return tuple(out)


def names() -> tuple[str, ...]:
    """Give the names of all entries."""
    return tuple(entry.name for entry in entries())


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.rpartition("/")[2].lower())


def _stem(name: str) -> str:
    """Give the name without its owner and without what leaves the shapes alone."""
    base = name.rpartition("/")[2].lower().removesuffix(".gguf")
    while (shorter := _SUFFIXES.sub("", base)) != base:
        base = shorter
    return re.sub(r"[^a-z0-9]", "", base).removeprefix("meta")


@cache
def _index() -> tuple[dict[str, Entry], dict[str, list[Entry]]]:
    exact = {_key(entry.name): entry for entry in entries()}
    stems: dict[str, list[Entry]] = {}
    for entry in entries():
        stems.setdefault(_stem(entry.name), []).append(entry)
    return exact, stems


def find(name: str) -> Entry:
    """
    Find an entry by repository id, by its last part, or by that without tuning, format and quantisation.

    :raises CalculatorError: nothing, or more than one model, goes by this name; the message names the nearest
    """
    exact, stems = _index()
    if found := exact.get(_key(name)):
        return found
    same = stems.get(_stem(name), [])
    if len(same) == 1:
        return same[0]
    if same:
        raise CalculatorError(f"{name!r} may be {' or '.join(entry.name for entry in same)}; give the full name")
    near = difflib.get_close_matches(_key(name), exact, n=3, cutoff=0.6)
    hint = f"; nearest are {', '.join(exact[key].name for key in near)}" if near else ""
    raise CalculatorError(f"{name!r} is not in the catalogue of {len(exact)} models{hint}")


@cache
def load(name: str) -> Model:
    """
    Give the facts of a model of the catalogue; see `find` for what a name may be.

    :raises CalculatorError: no such entry
    """
    entry = find(name)
    return model_from_config(entry.config, name=entry.name, source=entry.source, path=f"catalogue entry {entry.name}")
