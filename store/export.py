"""
Tables and views as CSV, streamed.

UTF-8, LF, header of plain column names (units are in the names), text in double quotes, NULL as an
unquoted empty cell. Times are ISO 8601 in UTC with microseconds and Z. Numbers are the shortest
text that reads back as the same number; infinity is `inf`.

Text is exported as it is stored: a cell that begins with = + - or @ is not altered, because an
export has to read back as what was measured. Engine names and messages come from the engines, so
open an export of engines that you do not trust in a program that does not run formulas.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime

import duckdb
import pyarrow as pa
import pyarrow.csv

from store.model import ROW_TYPES
from store.protocol import UnknownQueryError

BATCH_ROWS = 20_000
_BEGINNING = datetime(1900, 1, 1, tzinfo=UTC)
_END = datetime(9999, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Exportable:
    """Where the rows of an export come from, and which columns its filters apply to."""

    source: str  # a table, a view or a macro over ($start, $end)
    time: str | None
    engine: str | None  # expression to compare with an engine_id, or None when rows are not about engines
    order: str = ""


def _of_row_type(name: str, columns: tuple[str, ...]) -> Exportable:
    engine = "engine_id" if "engine_id" in columns else None
    if name == "source_health":
        engine = "CASE WHEN starts_with(source_id, 'engine:') THEN source_id[8:] END"
    return Exportable(name, "ts" if "ts" in columns else "first_seen", engine)


EXPORTABLE: Mapping[str, Exportable] = {
    **{row.table: _of_row_type(row.table, tuple(field.name for field in fields(row))) for row in ROW_TYPES},
    "engine_rate": Exportable(
        "engine_rate_between($start, $end)", "ts", "engine_id", "ORDER BY engine_id, quantity, epoch_id, ts"
    ),
    "engine_latest": Exportable("engine_latest", "first_seen", "engine_id"),
    "epoch_latest": Exportable("epoch_latest", "first_seen", "engine_id"),
    "device_latest": Exportable("device_latest", "first_seen", None),
}


def csv_chunks(
    cursor: duckdb.DuckDBPyConnection, table: str, start: datetime | None, end: datetime | None, engine: str | None
) -> Iterator[bytes]:
    """
    Stream a table or view: first the header, then batches of rows.

    `start` and `end` are inclusive and compare with `ts` (`first_seen` in tables of facts); `engine`
    is an engine_id or a label. Raises `UnknownQueryError` before the first chunk.
    """
    wanted = EXPORTABLE.get(table)
    if wanted is None:
        raise UnknownQueryError(f"there is no table {table!r} to export; there are {', '.join(EXPORTABLE)}")
    values: dict[str, datetime | str] = {"start": start or _BEGINNING, "end": end or _END}
    conditions = [f"{wanted.time} >= $start AND {wanted.time} <= $end"]
    if engine is not None:
        values["engine"] = _engine_id(cursor, table, wanted, engine)
        conditions.append(f"{wanted.engine} = $engine")
    # S608: names and expressions are the constants above; what a reader gives is bound as a parameter.
    described = cursor.sql(
        f"SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = '{table}' "  # noqa: S608
        "AND schema_name = 'main' ORDER BY column_index"
    ).fetchall()
    columns = ", ".join(
        f'strftime("{name}", \'%Y-%m-%dT%H:%M:%S.%fZ\') AS "{name}"'
        if kind == "TIMESTAMP WITH TIME ZONE"
        else f'"{name}"'
        for name, kind in described
    )
    relation = cursor.sql(
        f"SELECT {columns} FROM {wanted.source} WHERE {' AND '.join(conditions)} {wanted.order}",  # noqa: S608
        params=values,
    )
    yield (",".join(name for name, _ in described) + "\n").encode()
    with relation.to_arrow_reader(BATCH_ROWS) as reader:
        for batch in reader:
            yield _csv(batch)


def _csv(batch: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    pyarrow.csv.write_csv(batch, sink, pyarrow.csv.WriteOptions(include_header=False))
    return sink.getvalue()


def _engine_id(cursor: duckdb.DuckDBPyConnection, table: str, wanted: Exportable, engine: str) -> str:
    if wanted.engine is None:
        raise UnknownQueryError(f"rows of {table} are not about engines: leave the engine out")
    known = cursor.sql("SELECT engine_id, label FROM engine_latest ORDER BY engine_id").fetchall()
    for engine_id, label in known:
        if engine in (engine_id, label):
            return str(engine_id)
    names = ", ".join(f"{engine_id} ({label})" for engine_id, label in known) or "none yet"
    raise UnknownQueryError(f"there is no engine {engine!r}; there are {names}")
