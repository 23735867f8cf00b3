"""
Result files of other tools read in a child process: `python -m loadtest.import_process`.

Reading a large file holds Python's interpreter lock for seconds and takes several times its size in memory. In a
process of its own that delays no sample of the collector.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, cast, get_type_hints

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


@contextmanager
def read(files: object, host: str) -> Iterator[tuple[list[str], list[str], Iterator[Row]]]:
    """
    Run ids, notes and rows of result files, each `{name, text}`. Rows are read as they are taken, those of runs last.

    Raises `UnknownQueryError` where no files are given, and `RefusedError` in the words of the importer for the first
    one that can't be imported; then none is.
    """
    if not isinstance(files, list) or not files or not all(_is_file(file) for file in files):
        raise UnknownQueryError("files must be a list of files, each with its name and text")
    if len(files) > MOST_FILES:
        raise UnknownQueryError(f"{len(files)} files were given; import at most {MOST_FILES} at once")
    child = subprocess.Popen(
        [sys.executable, "-m", "loadtest.import_process"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    limit = threading.Timer(MOST_SECONDS, child.kill)
    limit.daemon = True
    limit.start()
    stdin, stdout = cast("IO[bytes]", child.stdin), cast("IO[bytes]", child.stdout)
    try:
        with contextlib.suppress(BrokenPipeError), stdin:
            stdin.write(orjson.dumps({"host": host, "files": files}))
        said = orjson.loads(stdout.readline() or b"{}")
        if "wrong" in said:
            raise RefusedError(said["wrong"])
        if "run_ids" not in said:
            raise RefusedError(
                f"the files could not be read within {MOST_SECONDS:g} s and the memory that there is; import fewer or "
                "smaller ones"
            )
        yield said["run_ids"], said["notes"], (_row(*orjson.loads(line)) for line in stdout)
    finally:
        limit.cancel()
        child.kill()
        stdout.close()
        child.wait()


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
    """What the child says: ids and notes, or what is wrong; then rows as `[table, [values]]`, those of runs last."""
    from loadtest.importers import ImportFailedError, load  # numpy and all: only the child needs it

    try:
        imported = [load(file["name"], file["text"], datetime.now(UTC), given["host"]) for file in given["files"]]
    except ImportFailedError as wrong:
        yield orjson.dumps({"wrong": str(wrong)})
        return
    run_ids, notes = [each.run_id for each in imported], [note for each in imported for note in each.notes]
    yield orjson.dumps({"run_ids": run_ids, "notes": notes})
    rows = [row for each in imported for row in each.rows]
    for row in sorted(rows, key=lambda row: isinstance(row, LoadtestRun)):
        yield orjson.dumps([row.table, list(asdict(row).values())])


if __name__ == "__main__":
    for line in _lines(orjson.loads(sys.stdin.buffer.read())):
        sys.stdout.buffer.write(line + b"\n")
