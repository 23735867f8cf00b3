"""`python -m loadtest run`: the same worker as the collector's, watched from a terminal."""

from __future__ import annotations

import secrets
import signal
from collections.abc import Sequence
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


@dataclass(slots=True)
class Outcome:
    """What a run said. `stored`: whether the collector has it."""

    run_id: str
    stages: list[LoadtestStage] = field(default_factory=list)
    judgements: list[LoadtestJudgement] = field(default_factory=list)
    ended: RunEnded | None = None
    problem: str | None = None  # how the worker ended, where not well
    stored: bool = False

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

    Ctrl-C stops it and keeps what was measured; a second one ends it at once. Raises `RefusedError` when an engine is
    under another load test that the collector knows of, and `OSError` when no process can be started.
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
        handover.close()
        outcome.stored = handover.follows
    finally:
        signal.signal(signal.SIGINT, previous)
        worker.kill()
        ticker.end()
    return outcome


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
