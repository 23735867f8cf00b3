"""
Which models the Memory page offers, and reading their facts.

A file is read only from the configured model folders, or when a running engine named that very file; see
`calculator.references`. Facts of a file are kept until the file changes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

import settings
from calculator import catalog
from calculator.model import CalculatorError, Model
from calculator.plan import load_model
from calculator.references import Allowed, as_path

ENGINE_PREFIX = "engine:"
MOST_FILES, DEEPEST = 500, 4
Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Choice:
    """One entry of the model list: what the link carries, what a person reads, and what is loaded."""

    key: str
    title: str
    reference: str
    served: str  # what an engine's own command line would name


def choices(scores: Sequence[Row]) -> dict[str, Choice]:
    """Models of running engines first, then files of the configured folders, then the catalogue; by key."""
    found = [*_of_engines(scores), *_of_folders(settings.load().model_folders), *_of_catalogue()]
    return {choice.key: choice for choice in found}


def _of_engines(scores: Sequence[Row]) -> Iterator[Choice]:
    for engine_id, row in newest_by_engine(scores).items():
        file = str(row["model_file"])
        reference = file if file.startswith("/") else str(row.get("model") or file)  # else the catalogue's name
        title = f"{row.get('label') or engine_id} (on this host)"
        yield Choice(f"{ENGINE_PREFIX}{engine_id}", title, reference, reference)


def newest_by_engine(scores: Sequence[Row]) -> dict[str, Row]:
    """The newest row that names a model file, by engine; `scores` come newest first."""
    found: dict[str, Row] = {}
    for row in scores:
        if row.get("model_file"):
            found.setdefault(str(row["engine_id"]), row)
    return found


def _of_folders(folders: Iterable[Path]) -> Iterator[Choice]:
    seen = 0
    for folder in folders:
        root = folder.expanduser()
        for path in _model_files(root):
            seen += 1
            if seen > MOST_FILES:
                return
            yield Choice(str(path), f"{path.relative_to(root)} (in {root.name})", str(path), str(path))


def _model_files(root: Path) -> Iterator[Path]:
    """GGUF files (the first part of a split one) and folders with a configuration, a few levels deep."""
    for folder, below, files in os.walk(root):
        below.sort()
        path = Path(folder)
        if len(path.relative_to(root).parts) >= DEEPEST:
            below.clear()
        if "config.json" in files:
            yield path
        for name in sorted(files):
            later_part = "-of-" in name and "-00001-of-" not in name
            if name.lower().endswith(".gguf") and not later_part and not name.startswith("mmproj"):
                yield path / name


def _of_catalogue() -> Iterator[Choice]:
    for entry in catalog.entries():
        yield Choice(entry.name, entry.name, entry.name, entry.repo)


def allowed(scores: Sequence[Row]) -> Allowed:
    """Where this page may read model files."""
    named = [str(row["model_file"]) for row in newest_by_engine(scores).values()]
    return Allowed.of(settings.load().model_folders, [name for name in named if name.startswith("/")])


def load(choice: Choice, may_read: Allowed, *, network: bool) -> Model:
    """
    The facts of a choice. Raises `CalculatorError`.

    `network`: a Hugging Face id that is neither in the catalogue nor in the cache may be asked for.
    """
    path = as_path(choice.reference, may_read)
    if path is None:
        return _load(choice.reference, (), None, network)
    real = may_read.check(path)
    state = (real / "config.json" if real.is_dir() else real).stat()
    return _load(choice.reference, (state.st_mtime_ns, state.st_size), may_read, network)


@st.cache_resource(max_entries=64, show_spinner=False)
def _load(reference: str, state: tuple[int, ...], _may_read: Allowed | None, network: bool) -> Model:
    """Kept by the reference and the state of its file; who may read is checked by the caller each time."""
    return load_model(reference, allowed=_may_read, network=network)


def typed(text: str) -> Choice:
    """A choice for what a person typed instead of choosing. Raises `CalculatorError` for nothing."""
    if not text.strip():
        raise CalculatorError("no model is named: choose one, or type a Hugging Face id")
    return Choice(*[text.strip()] * 4)
