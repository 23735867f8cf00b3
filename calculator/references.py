"""
What a person or an engine names as a model: a file, a folder, or a name; and which files may be read at all.

The command line reads what its user may read. A web page reads only below the folders that are configured and
the very files that running engines name; symbolic links are followed first, so that none leads out.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from calculator.model import CalculatorError

MAX_REFERENCE_CHARACTERS = 4096
READ_FROM_FOLDERS = ("*.json", "*.safetensors")
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf\Z")


@dataclass(frozen=True, slots=True)
class Allowed:
    """Where model files may lie: below `roots`, or exactly one of `files` (files or folders that engines name)."""

    roots: tuple[Path, ...] = ()
    files: frozenset[Path] = field(default_factory=frozenset)

    @classmethod
    def of(cls, roots: Iterable[Path], files: Iterable[Path | str] = ()) -> Allowed:
        """With all symbolic links followed; what does not exist is left out."""
        return cls(
            tuple(root.expanduser().resolve() for root in roots if root.expanduser().is_dir()),
            frozenset(Path(file).resolve() for file in files if _exists(Path(file))),
        )

    def check(self, path: Path) -> Path:
        """`path` with its links followed. Raises `CalculatorError` when it lies nowhere that is allowed."""
        real = _real(path)
        if real in self.files:
            if _is_folder(real):
                _stays(real, (*self.roots, real, *_blobs(real)))
            return real
        if not any(real.is_relative_to(root) for root in self.roots):
            raise CalculatorError(
                f"{path} is in none of the configured model folders: add its folder to model_folders in "
                "engine-room.toml"
            )
        if _is_folder(real):
            _stays(real, self.roots)
        else:
            for part in parts_of(_expanded(path)):
                if not any(_real(part).is_relative_to(root) for root in self.roots):
                    raise CalculatorError(f"{part} is a link that leads out of the model folders")
        return real


def parts_of(path: Path) -> list[Path]:
    """The other files of a split GGUF file, as far as they are there; none for a file that is whole."""
    match = _PART.match(path.name)
    return sorted(path.parent.glob(f"{glob.escape(match[1])}-[0-9]*-of-{match[3]}.gguf")) if match else []


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:  # ~somebody: no such user
        return path


def _real(path: Path) -> Path:
    """With links followed. Raises `CalculatorError` for links that lead in a circle."""
    try:
        return _expanded(path).resolve()
    except (OSError, RuntimeError) as error:
        raise CalculatorError(f"{path} can't be followed to a file: {error}") from error


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def _blobs(folder: Path) -> Collection[Path]:
    """Where a Hugging Face cache keeps what `models--x/snapshots/revision` links to."""
    if folder.parent.name == "snapshots":
        return (folder.parent.parent / "blobs",)
    return ()


def _stays(folder: Path, inside: Collection[Path]) -> None:
    """Refuse a folder with a link that leads out of `inside`."""
    for pattern in READ_FROM_FOLDERS:
        for entry in folder.glob(pattern):
            real = entry.resolve()
            if not any(real.is_relative_to(root) for root in inside):
                raise CalculatorError(f"{entry} is a link that leads out of the model folders")


def as_path(reference: str, allowed: Allowed | None = None) -> Path | None:
    """
    The file or folder that `reference` names; None where it is a name and not a path.

    With `allowed` only what looks like a path is one, and what lies outside is refused in the same words whether or
    not it exists. Raises `CalculatorError` for that, for a path that does not exist, and for unusable text.
    """
    if not reference.strip() or len(reference) > MAX_REFERENCE_CHARACTERS or "\0" in reference:
        raise CalculatorError("no model is named: give a GGUF file, a folder with config.json, or a catalogue name")
    path = _expanded(Path(reference))
    looks_like_path = reference.startswith(("/", "./", "../", "~")) or reference.lower().endswith(
        (".gguf", ".json", ".safetensors")
    )
    if allowed is not None:
        if not looks_like_path:
            return None
        allowed.check(path)
    if _exists(path):
        return path
    if looks_like_path:
        raise CalculatorError(f"{reference} does not exist, or may not be read by this user")
    return None
