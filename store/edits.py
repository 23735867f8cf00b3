"""
What a person changes in the store: saved reports, and load tests that are deleted.

Everything else is only ever appended. An edit runs between two transactions of the writer, so that no row of a
deleted run that was still queued comes back after it.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import duckdb

from store.loadtest_rows import (
    LoadtestJudgement,
    LoadtestRequest,
    LoadtestResource,
    LoadtestRun,
    LoadtestStage,
    Report,
)
from store.model import Row
from store.protocol import Command, RefusedError, UnknownQueryError
from store.writer import Writer

MAX_NAME_CHARACTERS = 200
MAX_DOCUMENT_CHARACTERS = 1_000_000
UNFINISHED = ("waiting", "running")
_OF_A_RUN: tuple[type[Row], ...] = (
    LoadtestRequest, LoadtestStage, LoadtestJudgement, LoadtestResource, LoadtestRun,
)  # fmt: skip


def commands(writer: Writer, host: str) -> Mapping[str, Command]:
    """The store's own commands by name, see `store.protocol`. `host` is written into new rows."""
    return {
        "report_save": lambda given: save_report(writer, host, given),
        "report_delete": lambda given: {"deleted": delete_report(writer, text(given, "report_id"))},
        "loadtest_delete": lambda given: {"deleted": delete_run(writer, text(given, "run_id"))},
    }


def text(given: Mapping[str, Any], name: str) -> str:
    """A required parameter of a command that is text. Raises `UnknownQueryError`."""
    value = given.get(name)
    if not isinstance(value, str) or not value.strip():
        raise UnknownQueryError(f"{name} must be given, as text")
    return value


def checked_name(given: Mapping[str, Any]) -> str:
    """The `name` that a person gave, without blanks around it. Raises `UnknownQueryError` when it is too long."""
    name = text(given, "name").strip()
    if len(name) > MAX_NAME_CHARACTERS:
        raise UnknownQueryError(f"the name has {len(name)} characters; give it a name of at most {MAX_NAME_CHARACTERS}")
    return name


def save_report(writer: Writer, host: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Write a report, a new one or a new version of `report_id`; returns when it is stored."""
    name, document = checked_name(given), given.get("document")
    if not isinstance(document, dict):
        raise UnknownQueryError("document must be a JSON object")
    content = json.dumps(document, ensure_ascii=False)
    if len(content) > MAX_DOCUMENT_CHARACTERS:
        raise UnknownQueryError("the report is too large; leave out some of its windows or runs")
    now = datetime.now(UTC)
    known = given.get("report_id")
    report_id = text(given, "report_id") if known is not None else f"{now:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"

    def there(connection: duckdb.DuckDBPyConnection) -> bool:
        return _any(connection, Report, "report_id", report_id)

    if known is not None and not writer.edit(there):
        raise RefusedError("this report was deleted meanwhile; save it as a new one")
    writer.put([Report(now, host, report_id, name, content)])
    writer.flush()
    return {"report_id": report_id}


def delete_report(writer: Writer, report_id: str) -> bool:
    """Delete all versions of a report. False when there was none (any more)."""
    return writer.edit(lambda connection: _delete(connection, (Report,), "report_id", report_id))


def delete_run(writer: Writer, run_id: str) -> bool:
    """
    Delete all rows of a load test. False when there were none (any more).

    Raises `RefusedError` for one that waits or runs: its rows are still to come.
    """

    def change(connection: duckdb.DuckDBPyConnection) -> bool:
        rows = connection.execute(
            "SELECT state, name FROM loadtest_run WHERE run_id = $run_id ORDER BY rowid DESC LIMIT 1",
            {"run_id": run_id},
        ).fetchall()
        if rows and rows[0][0] in UNFINISHED:
            verb = "waits" if rows[0][0] == "waiting" else "runs"
            raise RefusedError(f"load test {rows[0][1]!r} still {verb}; stop it first, then delete it")
        return _delete(connection, _OF_A_RUN, "run_id", run_id)

    return writer.edit(change)


def _any(connection: duckdb.DuckDBPyConnection, row: type[Row], key: str, value: str) -> bool:
    # S608: table and key are constants of this module.
    found = connection.execute(f"SELECT 1 FROM {row.table} WHERE {key} = $value LIMIT 1", {"value": value})  # noqa: S608
    return bool(found.fetchall())


def _delete(connection: duckdb.DuckDBPyConnection, rows: tuple[type[Row], ...], key: str, value: str) -> bool:
    deleted = 0
    for row in rows:
        counted = connection.execute(f"DELETE FROM {row.table} WHERE {key} = $value", {"value": value})  # noqa: S608
        deleted += int(counted.fetchall()[0][0])
    return deleted > 0
