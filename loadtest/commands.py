"""
The commands of load tests: what a page or the command line asks of the collector, checked and handed on.

What each takes and answers is listed in `store.protocol`.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from loadtest import endpoints, import_process
from loadtest.endpoints import Known
from loadtest.ingest import Run
from loadtest.manager import FLUSH_AFTER_ROWS, Manager, RowSink
from loadtest.spec import Spec
from settings import Settings
from store.edits import MAX_NAME_CHARACTERS, UNFINISHED, checked_name
from store.loadtest_rows import LoadtestRun
from store.model import EngineState, Event, Row
from store.protocol import Command, RefusedError, Sink, Store, UnknownQueryError

MOST_RUNS = 100_000
_NOT_THERE = {
    EngineState.STOPPED: "start it first",
    EngineState.UNREACHABLE: "start it first",
    EngineState.LOADING: "wait until it is ready",
}
_RUN_ID = re.compile(r"[0-9A-Za-z._-]{1,64}\Z")


class LoadtestCommands:
    """
    The commands over one manager. Thread-safe.

    `known` lists what may be loaded. Runs that were not over when the last collector ended are interrupted at once.
    """

    def __init__(
        self, settings: Settings, sink: RowSink, reads: Store, manager: Manager, known: Callable[[], Sequence[Known]]
    ) -> None:
        self._settings, self._sink, self._reads, self._manager, self._known = settings, sink, reads, manager, known
        _interrupt_left_over(reads, sink, settings.host)

    @property
    def commands(self) -> Mapping[str, Command]:
        """The commands by name."""
        return {
            "loadtest_start": self._start,
            "loadtest_begin": self._begin,
            "loadtest_records": self._records,
            "loadtest_status": self._status,
            "loadtest_stop": lambda given: _told(self._manager.stop(str(given.get("run_id")))),
            "loadtest_import": self._import,
        }

    def close(self) -> None:
        """Stop all runs, keep what they measured, and take no others."""
        self._manager.close()

    def _start(self, given: dict[str, Any]) -> dict[str, Any]:
        known = self._known()
        spec = endpoints.from_page(given.get("spec"), known, self._settings.prompt_folders)
        matched = endpoints.match(spec, known)
        self._refuse_stopped(matched)
        run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
        return _told(self._manager.add(run_id, _name(given, spec), spec, matched))

    def _begin(self, given: dict[str, Any]) -> dict[str, Any]:
        run_id = given.get("run_id")
        if not isinstance(run_id, str) or not _RUN_ID.match(run_id):
            raise UnknownQueryError("run_id must be given, as up to 64 letters, digits, '.', '_' and '-'")
        spec = endpoints.checked(given.get("spec"))
        if self._is_stored(run_id):
            raise RefusedError(f"there is a load test {run_id} already")
        return _told(self._manager.follow(run_id, _name(given, spec), spec, endpoints.match(spec, self._known())))

    def _records(self, given: dict[str, Any]) -> dict[str, Any]:
        lines = given.get("lines")
        if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
            raise UnknownQueryError("lines must be a list of text")
        run, stop = self._manager.take(str(given.get("run_id")), lines)
        return {**_told(run), "stop": stop}

    def _status(self, given: dict[str, Any]) -> dict[str, Any]:
        run_id = given.get("run_id")
        return {"runs": [run.status() for run in self._manager.runs() if run_id is None or run.run_id == run_id]}

    def _import(self, given: dict[str, Any]) -> dict[str, Any]:
        name = checked_name(given) if given.get("name") else None
        with import_process.read(given.get("files"), self._settings.host) as (run_ids, notes, rows):
            if any(self._is_stored(run_id) for run_id in run_ids) or len(set(run_ids)) < len(run_ids):
                raise RefusedError("one of the files was imported a moment ago or is given twice: none was imported")
            batch: list[Row] = []
            for row in rows:
                if name is not None and isinstance(row, LoadtestRun):
                    row = replace(row, name=name if len(run_ids) == 1 else f"{name}: {row.name}")
                batch.append(row)
                if len(batch) >= FLUSH_AFTER_ROWS:
                    self._sink.put(batch)
                    self._sink.flush()
                    batch = []
            self._sink.put(batch)
            self._sink.flush()
        return {"run_ids": run_ids, "notes": notes}

    def _refuse_stopped(self, matched: Sequence[Known | None]) -> None:
        states = {row["engine_id"]: row["state"] for row in self._reads.query("overview").to_pylist()}
        for known in matched:
            state = states.get(known.engine.engine_id) if known is not None and known.engine is not None else None
            if known is not None and state in _NOT_THERE:
                raise RefusedError(f"{known.label} is {state}; {_NOT_THERE[state]}, then start the load test")

    def _is_stored(self, run_id: str) -> bool:
        return run_id in self._reads.query("loadtest_runs", {"limit": MOST_RUNS})["run_id"].to_pylist()


def _name(given: Mapping[str, Any], spec: Spec) -> str:
    if given.get("name"):
        return checked_name(given)
    return " and ".join(endpoint.name for endpoint in spec.endpoints)[:MAX_NAME_CHARACTERS]


def _told(run: Run) -> dict[str, Any]:
    waits_for = run.waits_for.run_id if run.waits_for else None
    return {"run_id": run.run_id, "state": run.state, "waits_for": waits_for, "detail": run.detail}


def _interrupt_left_over(reads: Store, sink: Sink, host: str) -> None:
    """Runs that were not over when the last collector ended are over now."""
    now = datetime.now(UTC)
    for row in reads.query("loadtest_runs", {"limit": MOST_RUNS}).to_pylist():
        if row["state"] not in UNFINISHED or row["host"] != host:
            continue
        stages = reads.query("loadtest_stages", {"run_id": row["run_id"]}).to_pylist()
        ended = max((stage["ended"] for stage in stages), default=None)
        detail = "the collector ended while it waited"
        if row["state"] == "running":
            detail = f"the collector ended while it ran; of its stages {len(stages)} had ended, and they are whole"
        sink.put([LoadtestRun(**{**row, "ts": now, "state": "interrupted", "ended": ended, "detail": detail})])
        if row["began"] is None:
            continue
        text, details = f"Load test {row['name']!r} was interrupted", json.dumps({"run_id": row["run_id"]})
        for engine_id in sorted({stage["engine_id"] for stage in stages if stage["engine_id"]}):
            sink.put([Event(now, host, engine_id, None, None, "loadtest_ended", text, details)])
