"""
A consistent copy of the store while collecting goes on: `python -m store snapshot PATH`.

Between two checkpoints DuckDB changes nothing in the file that the last checkpoint refers to; commits go to the
write-ahead log. So the file and the log, read while checkpoints are put off, are together the store as it was
when reading began, and nobody waits. The log is folded in by the process that makes the copy. The collector
only sends bytes: where they are written is the business of the person who asked.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import duckdb

from store.database import file_bytes, wal_bytes, wal_path
from store.protocol import StoreError
from store.writer import Writer

CHUNK_BYTES = 1 << 20
LIMIT_SECONDS = 3600.0
# DuckDB's main header and its two database headers; every checkpoint writes one of them.
_HEADER_BYTES = 3 * 4096
_MOVED = "the store was rearranged while it was copied; try again"


def live(writer: Writer) -> Iterator[bytes]:
    """The store of a running collector as the bytes that `write` takes; checkpoints are put off meanwhile."""
    writer.flush()
    with writer.checkpoints.put_off():
        yield from stored(writer.path)


def stored(path: Path) -> Iterator[bytes]:
    """
    A file that nobody checkpoints, with its write-ahead log: a line of JSON with both sizes, the log, the file.

    Raises `StoreError` when the file was checkpointed nevertheless, or when the reader takes longer than an hour.
    """
    deadline = time.monotonic() + LIMIT_SECONDS
    header = _header(path)
    sizes = {"wal_bytes": wal_bytes(path), "file_bytes": file_bytes(path)}
    yield json.dumps(sizes).encode() + b"\n"
    for part, size in ((wal_path(path), sizes["wal_bytes"]), (path, sizes["file_bytes"])):
        left = size
        with part.open("rb") if size else contextlib.nullcontext() as source:
            while left and source is not None:
                chunk = source.read(min(left, CHUNK_BYTES))
                if not chunk:
                    raise StoreError(_MOVED)
                left -= len(chunk)
                yield chunk
                if time.monotonic() > deadline:
                    raise StoreError(f"the copy was not done within {LIMIT_SECONDS:g} s; write it to a faster disk")
    if _header(path) != header:
        raise StoreError(_MOVED)


def write(chunks: Iterator[bytes], target: Path) -> int:
    """
    Write what `live` or `stored` gave to `target`, a file that is not there yet. Returns its size in bytes.

    Nothing is left when it fails. Raises `StoreError` with what to do.
    """
    if target.exists():
        raise StoreError(f"{target} is there already and is left as it is; name a new file")
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        _receive(chunks, part)
        _fold(part)
        if target.exists():
            raise StoreError(f"{target} was made by somebody else meanwhile and is left as it is; name a new file")
        part.replace(target)
        return file_bytes(target)
    except (OSError, duckdb.IOException) as error:
        reason = getattr(error, "strerror", None) or error
        raise StoreError(
            f"the snapshot cannot be written to {target} ({reason}). Check that the folder exists, is writable and "
            "has room for it"
        ) from error
    except duckdb.Error as error:
        raise StoreError(f"the copy cannot be opened ({error}); try again") from error
    finally:
        for left in (part, wal_path(part)):
            with contextlib.suppress(OSError):
                left.unlink(missing_ok=True)


def _receive(chunks: Iterator[bytes], part: Path) -> None:
    head = b""
    while b"\n" not in head:
        head += next(chunks, b"\n")
    line, _, rest = head.partition(b"\n")
    try:
        sizes = json.loads(line)
    except ValueError as error:
        raise StoreError("the collector's answer cannot be read: restart it after an update") from error
    with _private(wal_path(part)) as log, _private(part) as file:
        left = [(log, sizes["wal_bytes"]), (file, sizes["file_bytes"])]
        while rest or (rest := next(chunks, b"")):
            while left and left[0][1] == 0:
                left.pop(0)
            if not left:
                raise StoreError("the collector's answer is longer than it said: restart it after an update")
            sink, size = left[0]
            left[0] = (sink, size - sink.write(rest[:size]))
            rest = rest[size:]
        if any(size for _, size in left):
            raise StoreError("the collector went away before the copy was complete; nothing is left of it")
        for sink in (log, file):
            sink.flush()
            os.fsync(sink.fileno())
    if sizes["wal_bytes"] == 0:
        wal_path(part).unlink()


def _fold(part: Path) -> None:
    """Have DuckDB replay the log into the copy, which also proves that it can be opened."""
    with duckdb.connect(str(part), config={"threads": 1, "autoload_known_extensions": False}) as copy:
        copy.execute("CHECKPOINT")


def _private(path: Path) -> BinaryIO:
    """A new file that only this user can read: it holds what the store holds."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def _header(path: Path) -> bytes:
    with path.open("rb") as source:
        return source.read(_HEADER_BYTES)
