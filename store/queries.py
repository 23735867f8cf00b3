"""The named queries: their parameters, and the SQL file of the same name that answers each."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa

from settings import StoreSettings
from store import archive, disk, series, windows
from store.database import file_bytes, wal_bytes
from store.heartbeat import TIMED_TABLES
from store.migrations import schema_version
from store.model import ROW_TYPES
from store.parameters import Accepts, Value, check
from store.protocol import Parameter, UnknownQueryError
from store.series import Source

SQL_FOLDER = Path(__file__).parent / "sql"
# See `_answer`.
warnings.filterwarnings("ignore", "Arrow output on a DB-API result makes an extra copy", UserWarning)


@dataclass(frozen=True, slots=True)
class Query:
    """What a named query takes. `series` says which table decides the resolution of a chart."""

    accepts: Mapping[str, Accepts] = field(default_factory=dict)
    series: Source | None = None
    as_of_now: bool = False  # the SQL has $at, the present unless it is given


_RANGE = {"start": Accepts("time", required=True), "end": Accepts("time", required=True)}
_SERIES = {**_RANGE, "points": Accepts("points", 400)}
_ENGINE = {"engine_id": Accepts("text")}
_HOST_MEMORY = "device_id IS NULL AND engine_id IS NOT NULL"
_RUN = {"run_id": Accepts("text", required=True)}

QUERIES: Mapping[str, Query] = {
    "overview": Query(
        {
            "at": Accepts("time"),
            "window_seconds": Accepts("seconds", 60.0),
            "rate_window_seconds": Accepts("seconds", 10.0),
        },
        as_of_now=True,
    ),
    "latency": Query(_RANGE),
    "latency_buckets": Query(_RANGE),
    "engine_series": Query(_SERIES, Source("engine_sample", "engine", "engine_id")),
    "engine_memory_series": Query(
        _SERIES, Source("process_memory", "process_memory", "engine_id", *[_HOST_MEMORY] * 2)
    ),
    "device_series": Query(_SERIES, Source("device_sample", "device", "device_id")),
    "device_memory_series": Query(_SERIES, Source("device_sample", "device", "device_id")),
    "host_series": Query(_SERIES, Source("host_sample", "host", "host")),
    "latency_series": Query(
        {**_SERIES, **_ENGINE, "quantity": Accepts("text")},
        Source("latency_bucket", "latency", "engine_id", "isinf(le)"),
    ),
    "host_memory_series": Query(_SERIES, Source("host_sample", "host", "host")),
    "extent": Query(),
    "devices": Query(as_of_now=True),
    "sources": Query(as_of_now=True),
    "quantities": Query(_ENGINE),
    "events": Query({**_RANGE, **_ENGINE, "limit": Accepts("count", 1000)}),
    "epochs": Query(_ENGINE),
    "latest_epochs": Query(),
    "window_summary": Query({**_RANGE, "engine_id": Accepts("text", required=True)}),
    "memory_scores": Query({**_ENGINE, "limit": Accepts("count", 1000)}),
    "memory_parts": Query({"at": Accepts("time")}, as_of_now=True),
    "startups": Query(_ENGINE),
    "loadtest_runs": Query({"limit": Accepts("count", 200)}),
    "loadtest_stages": Query(_RUN),
    "loadtest_requests": Query({**_RUN, "stage_id": Accepts("index")}),
    "loadtest_judgements": Query(_RUN),
    "loadtest_resources": Query(_RUN),
    "stage_resources": Query({**_RANGE, "engine_id": Accepts("text", required=True)}),
    "stage_others": Query({**_RANGE, "engine_id": Accepts("text", required=True)}),
    "stage_host": Query({**_RANGE, "engine_id": Accepts("text", required=True)}),
    "reports": Query(),
    "report": Query({"report_id": Accepts("text", required=True)}),
    "dictionary": Query(),
    "disk": Query(),
    "disk_tables": Query(),
    "status": Query(),
}


@cache
def _sql(name: str) -> str:
    return (SQL_FOLDER / f"{name}.sql").read_text(encoding="utf-8")


def run(
    cursor: duckdb.DuckDBPyConnection,
    path: Path,
    name: str,
    parameters: Mapping[str, Parameter] | None = None,
    settings: StoreSettings | None = None,
) -> pa.Table:
    """
    Answer one named query of `store.protocol` over `cursor`.

    Raises `UnknownQueryError` for an unknown name or parameter. Series carry `bucket_seconds` (0: raw
    samples), `gap_seconds` and `level` in the metadata of their schema, and `notes` where archived samples could not
    be read, so that coarser rows stand in for them.
    """
    query = QUERIES.get(name)
    if query is None:
        raise UnknownQueryError(f"there is no query {name!r}; there are {', '.join(QUERIES)}")
    values = check(name, query.accepts, parameters or {})
    if name == "status":
        return _status(cursor, path)
    if name == "disk":
        return disk.report(cursor, path, settings or StoreSettings())
    if name == "disk_tables":
        return disk.tables(cursor)
    if query.as_of_now and values.get("at") is None:
        values["at"] = datetime.now(UTC)
    if query.series is None:
        return _table(cursor, name, values)
    start, end, points = values["start"], values["end"], values["points"]
    if not (isinstance(start, datetime) and isinstance(end, datetime) and isinstance(points, int)):
        raise UnknownQueryError(f"query {name!r} needs start, end and points")
    asked = _Range(start, end, points, {key: value for key, value in values.items() if key not in _SERIES})
    kept = series.samples_from(cursor, query.series)
    if kept is None or start >= kept or not series.fine(start, end, points):
        return _drawn(cursor, name, query.series, asked)
    if not archive.covers(cursor, query.series.table, start, min(end, kept)):
        return _drawn(cursor, name, query.series, asked)
    with archive.uncovered(cursor, path, start, end) as notes:
        return _drawn(cursor, name, query.series, asked, archived=not notes, notes=notes)


@dataclass(frozen=True, slots=True)
class _Range:
    start: datetime
    end: datetime
    points: int
    filters: Mapping[str, Value]


def _drawn(
    cursor: duckdb.DuckDBPyConnection,
    name: str,
    source: Source,
    asked: _Range,
    *,
    archived: bool = False,
    notes: Sequence[str] = (),
) -> pa.Table:
    chosen = series.plan(cursor, source, asked.start, asked.end, asked.points, archived=archived)
    text = series.sql(name, chosen)
    told = {
        "bucket_seconds": f"{chosen.bucket_seconds:g}",
        "gap_seconds": f"{chosen.gap_seconds:g}",
        "level": chosen.level,
        **({"notes": " ".join(notes)} if notes else {}),
    }
    return _answer(cursor, text, {**chosen.parameters(text), **asked.filters}).replace_schema_metadata(told)


def _table(cursor: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, Value]) -> pa.Table:
    text, start, end = _sql(name), values.get("start"), values.get("end")
    if "(@" in text and isinstance(start, datetime) and isinstance(end, datetime):
        text = windows.sql(cursor, text, start, end)
    return _answer(cursor, text, {key: value for key, value in values.items() if f"${key}" in text})


def _answer(cursor: duckdb.DuckDBPyConnection, text: str, values: Mapping[str, Value]) -> pa.Table:
    """Run a query. `cursor.sql` would bind it twice, once to describe it, which takes longer than copying the rows."""
    return cursor.execute(text, values).to_arrow_table()


def _status(cursor: duckdb.DuckDBPyConnection, path: Path) -> pa.Table:
    """Size of the store. One row; the tables come from the row types, so that none is forgotten."""
    # S608: table names are those of our own row types.
    counts = ", ".join(f"(SELECT count(*) FROM {row.table}) AS rows_{row.table}" for row in ROW_TYPES)  # noqa: S608
    times = " UNION ALL ".join(f"SELECT min(ts) AS low, max(ts) AS high FROM {table}" for table in TIMED_TABLES)  # noqa: S608
    return _answer(
        cursor,
        "SELECT $schema_version::BIGINT AS schema_version, $file_bytes::BIGINT AS file_bytes, "  # noqa: S608
        f"$wal_bytes::BIGINT AS wal_bytes, max(high) AS newest_ts, min(low) AS oldest_ts, {counts} FROM ({times})",
        {
            "schema_version": schema_version(cursor),
            "file_bytes": file_bytes(path),
            "wal_bytes": wal_bytes(path),
        },
    )
