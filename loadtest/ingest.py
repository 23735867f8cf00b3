"""
From what a worker says to rows of the store, and to what a page shows while the run goes on.

Both runs that the collector started and runs of the command line go through here. The worker's lines know neither the
run's id nor the engines' lives; this adds both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog

from loadtest.endpoints import Known, key_of
from loadtest.records import Progress, Record, RecordError, RunBegan, RunEnded, StageBegan, from_line
from loadtest.spec import Spec
from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestRun, LoadtestStage
from store.model import Epoch, Event
from store.protocol import Sink

_LOG = structlog.get_logger(__name__)
MODES = {"closed": "users", "constant": "requests/s", "poisson": "requests/s, Poisson"}
ENDED = ("finished", "stopped", "failed", "interrupted")


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage that is over, with the life that its engine was in when it began."""

    row: LoadtestStage
    epoch: Epoch | None
    begin: datetime | None  # first measured request sent; None: none was
    end: datetime | None  # last one done


class Run:
    """
    One load test while the collector has to do with it.

    Lines are taken by one thread; any thread may ask. `stage_ended` is called for each stage whose engine is known.
    """

    def __init__(
        self,
        run_id: str,
        name: str,
        spec: Spec,
        known: Sequence[Known | None],
        *,
        host: str,
        started_by: str,
        sink: Sink,
        epoch_of: Callable[[str], Epoch | None],
        stage_ended: Callable[[Run, Stage], None],
    ) -> None:
        self.run_id, self.name, self.spec, self.known = run_id, name, spec, tuple(known)
        self.keys = frozenset(key_of(endpoint, k) for endpoint, k in zip(spec.endpoints, known, strict=True))
        self.state = "waiting"
        self.detail: str | None = None
        self.waits_for: Run | None = None
        self._host, self._started_by, self._sink = host, started_by, sink
        self._epoch_of, self._stage_ended = epoch_of, stage_ended
        self._asked: dict[str, Any] = spec.model_dump(mode="json")
        self._stages: int | None = None
        self._began: datetime | None = None
        self._ended: datetime | None = None
        self._client: dict[str, Any] | None = None
        self._stage: StageBegan | None = None
        self._stage_epoch: Epoch | None = None
        self._span: tuple[datetime, datetime] | None = None  # of the requests of the stage that have been told
        self._progress: Progress | None = None
        self._against: set[tuple[int | None, str]] = set()  # stage and code of judgements of severity failed
        self.end_told: RunEnded | None = None
        self.lines_not_understood = 0

    @property
    def ended(self) -> bool:
        """Whether it is over: no row of it will follow."""
        return self.state in ENDED

    @property
    def has_begun(self) -> bool:
        """Whether a request was sent."""
        return self._began is not None

    # ---- what moves it on --------------------------------------------------------------------

    def wait_for(self, other: Run) -> None:
        """It waits until `other` has ended."""
        if self.waits_for is not other:
            self.waits_for, self.detail = other, f"waits for load test {other.name!r}, which uses the same engine"
            self._write()

    def begin(self) -> None:
        """Its worker is started."""
        self.state, self.detail, self.waits_for = "running", None, None
        self._write()

    def take(self, line: str | bytes) -> None:
        """Take one line of its worker. One that is not understood is counted and logged."""
        try:
            record = from_line(line, self._host, self.run_id)
        except RecordError as wrong:
            self.lines_not_understood += 1
            _LOG.warning("loadtest_line", run_id=self.run_id, problem=str(wrong))
            return
        self._take(record)

    def _take(self, record: Record) -> None:
        if isinstance(record, RunBegan):
            self._asked, self._stages = dict(record.spec), record.stages
        elif isinstance(record, StageBegan):
            self._begin_stage(record)
        elif isinstance(record, Progress):
            self._progress = record
        elif isinstance(record, LoadtestStage):
            self._end_stage(record)
        elif isinstance(record, LoadtestRequest):
            self._widen(record)
            self._sink.put([record])
        elif isinstance(record, LoadtestJudgement):
            self.judge(record)
        else:
            self.end_told = record

    def judge(self, judgement: LoadtestJudgement) -> None:
        """Store what was found against or for the run; once, where its worker and the collector both saw it."""
        if (judgement.stage_id, judgement.code) in self._against:
            return
        if judgement.severity == "failed":
            self._against.add((judgement.stage_id, judgement.code))
        self._sink.put([judgement])

    def end(self, state: str, detail: str | None, *, judged: bool) -> None:
        """It is over, and everything else about it has been told. `judged`: by the worker, as a whole."""
        told = self.end_told
        self._client = dict(told.client) if told and told.client else None
        self._ended = told.ts if told else datetime.now(UTC)
        self.state, self.detail, self.waits_for, self._progress = state, detail, None, None
        whole = judged and self.has_begun and state in ("finished", "stopped")
        trusted = False if self._against else (True if whole else None)
        self._sink.put([self._row(trusted)])
        if self.has_begun:
            words = {"finished": "has finished", "stopped": "was stopped", "failed": "failed"}
            self._tell("loadtest_ended", f"Load test {self.name!r} {words.get(state, 'was interrupted')}", self._ended)

    # ---- what others ask ---------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """What a page shows meanwhile; None: not known (yet)."""
        stage, progress = self._stage, self._progress
        return {
            "run_id": self.run_id,
            "name": self.name,
            "state": self.state,
            "detail": self.detail,
            "waits_for": self.waits_for.run_id if self.waits_for else None,
            "began": self._began.isoformat() if self._began else None,
            "ended": self._ended.isoformat() if self._ended else None,
            "labels": [endpoint.name for endpoint in self.spec.endpoints],
            "mode": self.spec.mode,
            "stage": stage.stage_id if stage else None,
            "stages": self._stages,
            "label": stage.label if stage else None,
            "level": stage.level if stage else None,
            "repeat": stage.repeat if stage else None,
            "planned": progress.planned if progress else (stage.planned if stage else None),
            "phase": progress.phase if progress else None,
            "done": progress.done if progress else None,
            "failed": progress.failed if progress else None,
            "in_flight": progress.in_flight if progress else None,
            "rate_tokens_per_second": progress.output_tokens_per_second if progress else None,
            "seconds_left": progress.seconds_left if progress else None,
        }

    # ---- inside ------------------------------------------------------------------------------

    def _begin_stage(self, record: StageBegan) -> None:
        first = self._began is None
        known = self.known[record.endpoint] if 0 <= record.endpoint < len(self.known) else None
        self._stage, self._progress, self._span = record, None, None
        self._stage_epoch = self._epoch_of(known.engine.engine_id) if known and known.engine else None
        if first:
            self._began = record.ts
            self._write()
            levels = ", ".join(f"{level:g}" for level in self.spec.swept_levels)
            self._tell("loadtest_began", f"Load test {self.name!r} began: {levels} {MODES[self.spec.mode]}", record.ts)

    def _end_stage(self, row: LoadtestStage) -> None:
        begun = self._stage
        index = begun.endpoint if begun is not None and begun.stage_id == row.stage_id else -1
        known = self.known[index] if 0 <= index < len(self.known) else None
        epoch = self._stage_epoch if known is not None else None
        if known is not None and known.engine is not None:
            row = replace(
                row,
                engine=row.engine or known.engine.kind,
                engine_id=known.engine.engine_id,
                epoch_id=epoch.epoch_id if epoch else row.epoch_id,
                engine_version=row.engine_version or (epoch.version if epoch else None),
                model_id=row.model_id or (epoch.model_id if epoch else None),
            )
        self._sink.put([row])
        if known is not None and known.engine is not None:
            begin, end = self._span or (None, None)
            self._stage_ended(self, Stage(row, epoch, begin, end))

    def _widen(self, request: LoadtestRequest) -> None:
        """Times of a stage are on its own clock; a request's `ts` ties them to the wall clock."""
        if request.sent_seconds is None or request.done_seconds is None:
            return
        done = request.ts + timedelta(seconds=request.done_seconds - request.sent_seconds)
        begin, end = self._span or (request.ts, done)
        self._span = (min(begin, request.ts), max(end, done))

    def _tell(self, kind: str, text: str, ts: datetime) -> None:
        """An event for each engine that the run is about, so that their charts mark it."""
        details = json.dumps({"run_id": self.run_id})
        for known in self.known:
            if known is not None and known.engine is not None:
                epoch = self._epoch_of(known.engine.engine_id)
                epoch_id = epoch.epoch_id if epoch else None
                self._sink.put([Event(ts, self._host, known.engine.engine_id, epoch_id, None, kind, text, details)])

    def _write(self) -> None:
        self._sink.put([self._row(None)])

    def _row(self, trusted: bool | None) -> LoadtestRun:
        return LoadtestRun(
            ts=datetime.now(UTC),
            host=self._host,
            run_id=self.run_id,
            name=self.name,
            state=self.state,
            source="engine-room",
            started_by=self._started_by,
            began=self._began,
            ended=self._ended,
            spec=json.dumps(self._asked),
            client=json.dumps(self._client) if self._client else None,
            detail=self.detail,
            trusted=trusted,
        )
