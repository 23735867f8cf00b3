"""
Result files of other tools read in a child process: `python -m loadtest.import_process`.

Reading a large file holds Python's interpreter lock for seconds and takes several times its size in memory. In a
process of its own that delays no sample of the collector.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, get_type_hints

import orjson

from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestRun, LoadtestStage
from store.model import Row
from store.protocol import RefusedError, UnknownQueryError

ROOT = Path(__file__).resolve().parent.parent
MOST_FILES = 100
MOST_SECONDS = 90.0
_KINDS: Mapping[str, type[Row]] = {
    kind.table: kind for kind in (LoadtestRun, LoadtestStage, LoadtestRequest, LoadtestJudgement)
}
_TIMES = {
    table: [name for name, hint in get_type_hints(kind).items() if hint in (datetime, datetime | None)]
    for table, kind in _KINDS.items()
}


def read(files: object, host: str) -> tuple[list[Row], list[str], list[str]]:
    """
    The rows, run ids and notes of result files, each `{name, text}`.

    Raises `UnknownQueryError` where no files are given, and `RefusedError` in the words of the importer for the first
    one that can't be imported; then none is.
    """
    if not isinstance(files, list) or not files or not all(_is_file(file) for file in files):
        raise UnknownQueryError("files must be a list of files, each with its name and text")
    if len(files) > MOST_FILES:
        raise UnknownQueryError(f"{len(files)} files were given; import at most {MOST_FILES} at once")
    try:
        done = subprocess.run(
            [sys.executable, "-m", "loadtest.import_process"],
            cwd=ROOT,
            input=orjson.dumps({"host": host, "files": files}),
            capture_output=True,
            timeout=MOST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as slow:
        raise RefusedError(f"the files were not read within {MOST_SECONDS:g} s; import fewer or smaller ones") from slow
    rows: list[Row] = []
    run_ids: list[str] = []
    notes: list[str] = []
    complete = False
    for line in done.stdout.splitlines():
        said = orjson.loads(line)
        if "wrong" in said:
            raise RefusedError(said["wrong"])
        if "run_id" in said:
            run_ids.append(said["run_id"])
            notes += said["notes"]
            complete = said["last"]
        else:
            rows.append(_row(*said))
    if not complete:
        raise RefusedError("the files could not be read; the largest of them may need more memory than there is")
    return rows, run_ids, notes


def _is_file(file: object) -> bool:
    return isinstance(file, dict) and isinstance(file.get("name"), str) and isinstance(file.get("text"), str)


def _row(table: str, values: Sequence[Any]) -> Row:
    kind = _KINDS[table]
    given = dict(zip((field.name for field in fields(kind)), values, strict=True))
    for name in _TIMES[table]:
        if given[name] is not None:
            given[name] = datetime.fromisoformat(given[name])
    return kind(**given)


def _lines(given: Mapping[str, Any]) -> Iterator[bytes]:
    """What the child says: rows as `[table, [values]]`, and after each file its run and notes."""
    from loadtest.importers import ImportFailedError, load  # numpy and all: only the child needs it

    for number, file in enumerate(given["files"], 1):
        try:
            imported = load(file["name"], file["text"], datetime.now(UTC), given["host"])
        except ImportFailedError as wrong:
            yield orjson.dumps({"wrong": str(wrong)})
            return
        for row in imported.rows:
            yield orjson.dumps([row.table, list(asdict(row).values())])
        last = number == len(given["files"])
        yield orjson.dumps({"run_id": imported.run_id, "notes": imported.notes, "last": last})


if __name__ == "__main__":
    for line in _lines(orjson.loads(sys.stdin.buffer.read())):
        sys.stdout.buffer.write(line + b"\n")
