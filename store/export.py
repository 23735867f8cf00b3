"""
Tables, views and series of charts as CSV, streamed.

UTF-8, LF, header of plain column names (units are in the names), text in double quotes, NULL as an
unquoted empty cell. Times are ISO 8601 in UTC with microseconds and Z. Numbers are the shortest
text that reads back as the same number; infinity is `inf`.

Text is exported as it is stored: a cell that begins with = + - or @ is not altered, because an
export has to read back as what was measured. Engine names and messages come from the engines, so
open an export of engines that you do not trust in a program that does not run formulas.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from store import queries
from store.archive import uncovered
from store.model import ROW_TYPES
from store.protocol import ExportRequest, UnknownQueryError

BATCH_ROWS = 20_000
_BEGINNING = datetime(1900, 1, 1, tzinfo=UTC)
_END = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Exportable:
    """Where the rows of an export come from, and which columns its filters apply to."""

    source: str  # a table, a view or a macro over ($start, $end)
    time: str
    engine: str | None  # expression to compare with an engine_id, or None when rows are not about engines
    order: str = ""
    run: bool = False  # whether rows are of a load test


def _of_row_type(name: str, columns: tuple[str, ...]) -> Exportable:
    engine = "engine_id" if "engine_id" in columns else None
    if name == "source_health":
        engine = "CASE WHEN starts_with(source_id, 'engine:') THEN source_id[8:] END"
    return Exportable(name, "ts" if "ts" in columns else "first_seen", engine, run="run_id" in columns)


ROLLUPS: Mapping[str, str | None] = {
    "engine": "engine_id", "latency": "engine_id", "device": None, "host": None, "process_memory": "engine_id",
}  # fmt: skip


EXPORTABLE: Mapping[str, Exportable] = {
    **{row.table: _of_row_type(row.table, tuple(field.name for field in fields(row))) for row in ROW_TYPES},
    "engine_rate": Exportable(
        "engine_rate_between($start, $end)", "ts", "engine_id", "ORDER BY engine_id, quantity, epoch_id, ts"
    ),
    "engine_latest": Exportable("engine_latest", "first_seen", "engine_id"),
    "epoch_latest": Exportable("epoch_latest", "first_seen", "engine_id"),
    "device_latest": Exportable("device_latest", "first_seen", None),
    "engine_hours": Exportable("engine_hours", "hour", "engine_id", "ORDER BY hour, engine_id"),
    "latency_hours": Exportable("latency_hours", "hour", "engine_id", "ORDER BY hour, engine_id, quantity, le"),
    "device_hours": Exportable("device_hours", "hour", None, 'ORDER BY hour, "index"'),
    **{
        f"{family}_{width}": Exportable(f"{family}_{width}", "ts", engine)
        for family, engine in ROLLUPS.items()
        for width in ("minute", "hour")
    },
}
# What a chart shows: the rows of the named query, whose `points` decide how fine they are.
SERIES: tuple[str, ...] = tuple(name for name, query in queries.QUERIES.items() if query.series is not None)


def csv_chunks(cursor: duckdb.DuckDBPyConnection, path: Path, wanted: ExportRequest) -> Iterator[bytes]:
    """
    Stream a table, view or series: first what had to be left out as JSON, then the header, then batches of rows.

    Archived rows are among the others. Raises `UnknownQueryError` before the first chunk.
    """
    if wanted.table in SERIES:
        answer = _series(cursor, path, wanted)
        notes = (answer.schema.metadata or {}).get(b"notes")
        relation = cursor.from_arrow(answer)
        described = list(zip(relation.columns, map(str, relation.types), strict=True))
        yield from _written([notes.decode()] if notes else [], relation.project(_columns(described)))
        return
    start, end = wanted.start or _BEGINNING, wanted.end or _END
    with uncovered(cursor, path, start, end) as missing:
        yield from _written(missing, _table(cursor, wanted, start, end))


def _written(notes: Sequence[str], rows: duckdb.DuckDBPyRelation) -> Iterator[bytes]:
    yield json.dumps(notes).encode()
    yield (",".join(rows.columns) + "\n").encode()
    with rows.to_arrow_reader(BATCH_ROWS) as reader:
        for batch in reader:
            yield _csv(batch)


def _table(
    cursor: duckdb.DuckDBPyConnection, wanted: ExportRequest, start: datetime, end: datetime
) -> duckdb.DuckDBPyRelation:
    table = EXPORTABLE.get(wanted.table)
    if table is None:
        known = ", ".join((*EXPORTABLE, *SERIES))
        raise UnknownQueryError(f"there is no table {wanted.table!r} to export; there are {known}")
    if wanted.points is not None:
        raise UnknownQueryError(f"points are for series of charts ({', '.join(SERIES)}), not for {wanted.table}")
    values: dict[str, datetime | str] = {"start": start, "end": end}
    conditions = [f"{table.time} >= $start AND {table.time} <= $end"]
    if wanted.engine is not None:
        if table.engine is None:
            raise UnknownQueryError(f"rows of {wanted.table} are not about engines: leave the engine out")
        values["engine"] = _engine_id(cursor, wanted.engine)
        conditions.append(f"{table.engine} = $engine")
    if wanted.run is not None:
        if not table.run:
            raise UnknownQueryError(f"rows of {wanted.table} are not of load tests: leave the run out")
        values["run"] = wanted.run
        conditions.append("run_id = $run")
    # S608: names and expressions are the constants above; what a reader gives is bound as a parameter.
    described = cursor.sql(
        f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{wanted.table}' "  # noqa: S608
        "AND schema_name = 'main' AND database_name = current_database() ORDER BY column_index"
    ).fetchall()
    return cursor.sql(
        f"SELECT {_columns(described)} FROM {table.source} WHERE {' AND '.join(conditions)} {table.order}",  # noqa: S608
        params=values,
    )


def _series(cursor: duckdb.DuckDBPyConnection, path: Path, wanted: ExportRequest) -> pa.Table:
    """The rows that the named query gives, those of gaps included."""
    if wanted.run is not None:
        raise UnknownQueryError(f"rows of {wanted.table} are not of load tests: leave the run out")
    given = {"start": wanted.start or _BEGINNING, "end": wanted.end or datetime.now(UTC), "points": wanted.points}
    answer = queries.run(cursor, path, wanted.table, given)
    if wanted.engine is not None:
        if "engine_id" not in answer.column_names:
            raise UnknownQueryError(f"rows of {wanted.table} are not about engines: leave the engine out")
        answer = answer.filter(pc.field("engine_id") == _engine_id(cursor, wanted.engine))
    return answer


def _columns(described: Sequence[tuple[str, str]]) -> str:
    """What to select so that times are text of one form, and lists are text at all."""
    return ", ".join(
        f'strftime("{name}", \'%Y-%m-%dT%H:%M:%S.%fZ\') AS "{name}"'
        if kind == "TIMESTAMP WITH TIME ZONE"
        else f'"{name}"::VARCHAR AS "{name}"'
        if kind.endswith("[]")
        else f'"{name}"'
        for name, kind in described
    )


def _csv(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    pyarrow.csv.write_csv(batch, sink, pyarrow.csv.WriteOptions(include_header=False))
    return sink.getvalue()


def _engine_id(cursor: duckdb.DuckDBPyConnection, engine: str) -> str:
    known = cursor.sql("SELECT engine_id, label FROM engine_latest ORDER BY engine_id").fetchall()
    for engine_id, label in known:
        if engine in (engine_id, label):
            return str(engine_id)
    names = ", ".join(f"{engine_id} ({label})" for engine_id, label in known) or "none yet"
    raise UnknownQueryError(f"there is no engine {engine!r}; there are {names}")
