"""Command line of the store: `python -m store export TABLE` and `python -m store snapshot PATH`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from pydantic import ValidationError

import settings
from store import snapshot
from store.client import StoreClient
from store.database import open_read_only
from store.export import EXPORTABLE, SERIES
from store.local import start_export
from store.parameters import parse_time
from store.protocol import Export, ExportRequest, StoreError, StoreUnavailableError, UnknownQueryError
from store.reads import Reader


def _time(text: str) -> datetime:
    try:
        return parse_time(text, "the time")
    except UnknownQueryError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m store", description="Read the telemetry that was collected.")
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser(
        "export",
        help="write a table, or the series of a chart, as CSV",
        description="Write a table, a view or the series of a chart as CSV: units in the column names, times in "
        "ISO 8601 UTC, full precision. Text is written as it was stored, formulas included.",
        epilog=f"tables: {', '.join(EXPORTABLE)}; series: {', '.join(SERIES)}",
    )
    export.add_argument("table", metavar="TABLE")
    export.add_argument("--from", dest="start", type=_time, metavar="T", help="first time, e.g. 2026-12-01T08:00:00Z")
    export.add_argument("--to", dest="end", type=_time, metavar="T", help="last time, inclusive")
    export.add_argument("--engine", metavar="NAME", help="engine_id or label of one engine")
    export.add_argument("--run", metavar="ID", help="run_id of one load test")
    export.add_argument("--points", type=int, metavar="N", help="most rows of each line of a series (default 400)")
    export.add_argument("-o", "--output", type=Path, metavar="FILE", help="file to write instead of standard output")
    snapshot = commands.add_parser(
        "snapshot",
        help="copy the store into a new file while collecting goes on",
        description="Write a consistent copy of the store as it is now to PATH, a DuckDB file that any DuckDB of the "
        "same version opens. Sampling goes on meanwhile. A file that is there already is never overwritten. Archived "
        "days are not in it: copy the folder archive beside it.",
    )
    snapshot.add_argument("path", type=Path, metavar="PATH", help="file to write, e.g. copy.duckdb")
    return parser


def _chunks(given: argparse.Namespace, configured: settings.Settings) -> Iterator[bytes]:
    """The rows, from the collector or, while none runs, from the file itself."""
    try:
        export = StoreClient(configured).export_csv(
            given.table, given.start, given.end, given.engine, run=given.run, points=given.points
        )
        yield from _told(export)
    except StoreUnavailableError:
        with open_read_only(configured.store_path, configured.store) as connection:
            reader = Reader(configured.store_path, configured.store, connection.cursor)
            wanted = ExportRequest(given.table, given.start, given.end, given.engine, given.run, given.points)
            yield from _told(start_export(reader, wanted))


def _told(export: Export) -> Export:
    for note in export.notes:
        print(f"store: {note}", file=sys.stderr)
    return export


def _snapshot(target: Path, configured: settings.Settings) -> None:
    """Copy the store, from the collector or, while none runs, from the file itself."""
    try:
        size = snapshot.write(StoreClient(configured).snapshot(), target)
    except StoreUnavailableError:
        with open_read_only(configured.store_path, configured.store):  # keeps a collector from starting meanwhile
            size = snapshot.write(snapshot.stored(configured.store_path), target)
    print(f"{target}: {size:,} bytes")


def _copy(chunks: Iterator[bytes], sink: BinaryIO) -> None:
    for chunk in chunks:
        sink.write(chunk)
    sink.flush()


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status: 0 done, 1 failed, 2 wrong usage."""
    given = _parser().parse_args(arguments)
    try:
        if given.command == "snapshot":
            _snapshot(given.path, settings.load())
            return 0
        chunks = _chunks(given, settings.load())
        if given.output is None:
            _copy(chunks, sys.stdout.buffer)
            return 0
        part = given.output.with_name(given.output.name + ".part")
        try:
            with part.open("wb") as sink:
                _copy(chunks, sink)
            part.replace(given.output)
        finally:
            part.unlink(missing_ok=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader has seen enough
        return 0
    except (StoreError, OSError, ValidationError) as error:
        print(f"store: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
