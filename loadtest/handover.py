"""Telling a running collector what a run of the command line measures, so that it stands beside all others."""

from __future__ import annotations

import time
from collections.abc import Callable

from loadtest.ingest import ENDED
from loadtest.spec import Spec
from settings import Settings
from store.client import StoreClient
from store.loadtest_rows import LoadtestJudgement
from store.protocol import RefusedError, StoreBusyError, StoreError, StoreUnavailableError

_EVERY_SECONDS, _MOST_LINES = 1.0, 500
_JUDGED_WITHIN_SECONDS = 75.0  # the collector itself waits a minute for the samples of the last stages
_PAUSE_SECONDS = 0.3


class Handover:
    """
    Hands lines to the collector that answers, if one does; `follows` says whether it does.

    Begins by announcing the run. Raises `RefusedError` when one of its engines is under another load test.
    """

    def __init__(self, settings: Settings, run_id: str, name: str, spec: Spec, warn: Callable[[str], None]) -> None:
        self._client = StoreClient(settings)
        self._run_id, self._warn = run_id, warn
        self._lines: list[str] = []
        self._sent = time.monotonic()
        self.follows = False
        self.stop_asked = False
        try:
            self._client.command(
                "loadtest_begin", {"spec": spec.model_dump(mode="json"), "name": name, "run_id": run_id}
            )
            self.follows = True
        except (StoreUnavailableError, RefusedError) as error:
            if isinstance(error, RefusedError):
                raise
        except StoreError as error:
            self._give_up(error)

    def add(self, line: str) -> None:
        """Hand over one line, with others."""
        if not self.follows:
            return
        self._lines.append(line)
        if len(self._lines) >= _MOST_LINES or time.monotonic() - self._sent >= _EVERY_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Hand over what there is."""
        if not self.follows or not self._lines:
            return
        try:
            answer = self._client.command("loadtest_records", {"run_id": self._run_id, "lines": self._lines})
            self.stop_asked = bool(answer.get("stop"))
        except StoreError as error:
            self._give_up(error)
        self._lines, self._sent = [], time.monotonic()

    def judgements(self, given_up: Callable[[], bool]) -> list[LoadtestJudgement]:
        """
        All that stands for or against the run in the store, once the collector has ended it.

        Raises `StoreError` where that can't be had in time, or `given_up` says that nobody waits any longer.
        """
        deadline = time.monotonic() + _JUDGED_WITHIN_SECONDS
        while not self._is_over():
            if given_up():
                raise StoreBusyError("nobody waited for the collector to judge it")
            if time.monotonic() > deadline:
                raise StoreBusyError(f"the collector has not judged it within {_JUDGED_WITHIN_SECONDS:g} s")
            time.sleep(_PAUSE_SECONDS)
        rows = self._client.query("loadtest_judgements", {"run_id": self._run_id}).to_pylist()
        return [LoadtestJudgement(**row) for row in rows]

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def _is_over(self) -> bool:
        """Whether its last row is stored, which is written after all others of it."""
        rows = self._client.query("loadtest_runs").to_pylist()
        return any(row["run_id"] == self._run_id and row["state"] in ENDED for row in rows)

    def _give_up(self, error: StoreError) -> None:
        self.follows = False
        self._warn(f"the collector does not follow this run: {error}")
