"""All that one stage of a load test is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from loadtest.counted import Difference, EngineCounters
from loadtest.spec import InputSpec, OutputSpec
from loadtest.statistics import StageSummary
from loadtest.timing import ClientFigures, RequestTiming, Window


@dataclass(frozen=True, slots=True)
class StageFacts:
    """One stage, measured. `level`: users of a closed loop, requests per second of an open one."""

    stage_id: int
    label: str  # of the endpoint
    mode: str  # closed | constant | poisson
    level: float
    requests: Sequence[RequestTiming]
    window: Window | None
    summary: StageSummary
    client: ClientFigures
    input: InputSpec
    output: OutputSpec
    before: EngineCounters = field(default_factory=EngineCounters)
    after: EngineCounters = field(default_factory=EngineCounters)
    counted: Difference = field(default_factory=lambda: Difference({}, {}, settled=False))
    warmed_up: bool | None = None  # whether warm-up became stable; None: there was none to tell
    cut_short: str | None = None  # why the stage ended before its plan, in a sentence
