"""`python -m loadtest run`: the same worker as the collector's, watched from a terminal."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import FrameType

from loadtest.display import Ticker
from loadtest.handover import Handover
from loadtest.records import Progress, RecordError, RunBegan, RunEnded, StageBegan, from_line
from loadtest.spec import Spec
from loadtest.worker_process import Worker
from settings import Settings
from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestStage
from store.protocol import StoreError


@dataclass(slots=True)
class Outcome:
    """
    What a run said, and the collector of it. `stored`: whether the collector has it.

    `not_judged`: why what else was at work meanwhile is not known, or not of every stage; None: it is.
    """

    run_id: str
    stages: list[LoadtestStage] = field(default_factory=list)
    judgements: list[LoadtestJudgement] = field(default_factory=list)
    ended: RunEnded | None = None
    problem: str | None = None  # how the worker ended, where not well
    stored: bool = False
    not_judged: str | None = "no collector followed the run"

    @property
    def failed(self) -> str | None:
        """Why the run failed, or None."""
        if self.ended is None:
            return self.problem or "the load generator ended without a word"
        return self.ended.detail or "it failed" if self.ended.state == "failed" else None

    @property
    def trusted(self) -> bool:
        """Whether no judgement of severity 'failed' stands against it."""
        return all(judgement.severity != "failed" for judgement in self.judgements)


def run(spec: Spec, name: str, settings: Settings, hidden_variables: Sequence[str] = ()) -> Outcome:
    """
    Carry out a spec in a child process, with progress on standard error.

    Ctrl-C stops it and keeps what was measured; a second one ends it at once, and one after its end the wait for the
    collector. Raises `RefusedError` when an engine is under another load test that the collector knows of, and
    `OSError` when no process can be started.
    """
    run_id = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"
    outcome = Outcome(run_id)
    ticker = Ticker(spec)
    handover = Handover(settings, run_id, name, spec, ticker.say)
    if handover.follows:
        ticker.say(f"load test {run_id}; the collector follows it")
    else:
        ticker.say(f"load test {run_id}; no collector follows it, so it is not stored")
    worker = Worker(spec, hidden_variables)
    stops = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        nonlocal stops
        stops += 1
        if stops > 1:
            worker.kill()
        else:
            worker.stop()

    previous = signal.signal(signal.SIGINT, stop)
    try:
        for line in worker.lines():
            text = line.decode("utf-8", "replace").rstrip("\n")
            handover.add(text)
            if handover.stop_asked and not stops:
                stops = 1
                worker.stop()
            _take(text, settings.host, outcome, ticker)
        outcome.problem = worker.wait()
        handover.flush()
        outcome.stored = handover.follows
        if outcome.stored:
            before = stops
            _add_judged(outcome, handover, ticker, lambda: stops > before)
    finally:
        signal.signal(signal.SIGINT, previous)
        worker.kill()
        handover.close()
        ticker.end()
    return outcome


def _add_judged(outcome: Outcome, handover: Handover, ticker: Ticker, given_up: Callable[[], bool]) -> None:
    """Add what only the collector can tell: who else was at work, and whether the engine restarted."""
    ticker.line("waiting for the collector's samples of what else was at work")
    try:
        found = handover.judgements(given_up)
    except StoreError as error:
        outcome.not_judged = str(error)
        return
    known = {(own.stage_id, own.code, own.text) for own in outcome.judgements}
    outcome.judgements += [row for row in found if (row.stage_id, row.code, row.text) not in known]
    looked_at = {row.stage_id for row in found if row.code == "host_busy"}
    left = sum(stage.stage_id not in looked_at for stage in outcome.stages)
    outcome.not_judged = (
        f"of {left} of {len(outcome.stages)} stages, since the collector does not know their engine as one of this "
        "host, or has too few samples of so short a stage"
        if left
        else None
    )


def _take(line: str, host: str, outcome: Outcome, ticker: Ticker) -> None:
    try:
        record = from_line(line, host, outcome.run_id)
    except RecordError as error:
        ticker.say(f"loadtest: {error}")
        return
    match record:
        case RunBegan():
            ticker.began(record)
        case StageBegan():
            ticker.stage(record)
        case Progress():
            ticker.progress(record)
        case LoadtestStage():
            outcome.stages.append(record)
        case LoadtestJudgement():
            outcome.judgements.append(record)
            if record.severity == "failed":
                ticker.say(f"{record.severity}: {record.text}")
        case RunEnded():
            outcome.ended = record
        case LoadtestRequest():
            pass
