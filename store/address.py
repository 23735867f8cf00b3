"""Where the collector of a data folder answers: a small JSON file in its run folder."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from store.protocol import StoreError

FILE_NAME = "collector.json"
FAILURE = "failure.txt"


@dataclass(frozen=True, slots=True)
class Address:
    """A running collector. Either `socket` (path of a Unix socket), or `port` on 127.0.0.1 with `token_file`."""

    pid: int
    version: str
    started: datetime
    started_by: str
    socket: str | None = None
    port: int | None = None
    token_file: str | None = None


@cache
def version() -> str:
    """Version of Engine Room, from its pyproject.toml."""
    project = Path(__file__).resolve().parent.parent / "pyproject.toml"
    return str(tomllib.loads(project.read_text(encoding="utf-8"))["project"]["version"])


def write_private(path: Path, text: str) -> None:
    """Replace a file that only this user may read (mode 0600), at once. Raises `OSError`."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as handle:
        handle.write(text)
    fresh.replace(path)


def write(run_folder: Path, address: Address) -> None:
    """Tell where the collector of this folder answers."""
    content = asdict(address) | {"started": address.started.isoformat()}
    write_private(run_folder / FILE_NAME, json.dumps(content, indent=1) + "\n")


def read(run_folder: Path) -> Address | None:
    """The collector that last said where it answers; None when none did. It need not be alive."""
    path = run_folder / FILE_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Address(**(content | {"started": datetime.fromisoformat(content["started"])}))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} cannot be read ({error}): restart the collector, which writes it anew") from error


def remove(run_folder: Path) -> None:
    """Forget the address, at the collector's end."""
    (run_folder / FILE_NAME).unlink(missing_ok=True)


def write_failure(run_folder: Path, message: str | None) -> None:
    """Leave why a collector could not start for those who look for it; None clears it. Raises `OSError`."""
    if message is None:
        (run_folder / FAILURE).unlink(missing_ok=True)
        return
    run_folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(run_folder / FAILURE, message)


def read_failure(run_folder: Path) -> str | None:
    """Why the last collector could not start; None when it could, or when that can't be read."""
    try:
        return (run_folder / FAILURE).read_text(encoding="utf-8").strip() or None
    except OSError:
        return None
