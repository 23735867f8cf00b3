"""One stage: warm up, look whether the engine is idle, measure, read its counters."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import perf_counter

from loadtest.caller import Caller
from loadtest.counted import EngineCounters, difference
from loadtest.counters import SETTLE_SECONDS, CounterReader
from loadtest.driver import Driver, constant, poisson
from loadtest.facts import StageFacts
from loadtest.meter import Meter
from loadtest.prompts import Prompt, Prompts
from loadtest.spec import Spec
from loadtest.statistics import summarise
from loadtest.timing import RequestTiming, Window
from loadtest.warmup import WarmedUp, warm_up

_MOST_WARMUP_USERS_OF_A_RATE = 32
_SETTLE_SECONDS_OF_A_STOP = 1.0


@dataclass(frozen=True, slots=True)
class Planned:
    """One stage of a run. `endpoint` is its index in the spec."""

    stage_id: int
    endpoint: int
    level: float
    repeat: int

    @property
    def work(self) -> str:
        """Names the work that every endpoint gets at this level and repeat."""
        return f"{self.level:g}/{self.repeat}"


@dataclass(frozen=True, slots=True)
class Measured:
    """A stage that ran, with its warm-up."""

    facts: StageFacts
    warmed_up: WarmedUp
    began: datetime
    ended: datetime


class Stage:
    """
    Runs one stage. `driver` is that of the measured part once it has begun.

    Raises `OSError` when there is no connection.
    """

    def __init__(
        self, plan: Planned, spec: Spec, caller: Caller, prompts: Prompts, counters: CounterReader, stop: asyncio.Event
    ) -> None:
        self._plan, self._spec, self._caller = plan, spec, caller
        self._prompts, self._counters, self._stop = prompts, counters, stop
        self.driver: Driver | None = None
        self.warm_up_done = self.warm_up_failed = 0

    async def run(self, most_requests: int, ceiling: float | None, *, known: bool) -> Measured | None:
        """
        Measure it. `known` says that this endpoint was at this level before. None: stopped before it began.

        `most_requests` are left of the run's limit; `ceiling` is the client's, in chunks per second.
        """
        warmed_up = await self._warm_up(known=known)
        before = await self._read_counters()
        if self._stop.is_set():
            return None
        planned = self._spec.stage_requests(self._plan.level)
        self.driver = driver = Driver(
            self._caller,
            self._prompt,
            self._stop,
            most_requests=most_requests if planned is None else min(planned, most_requests),
            seconds=self._spec.duration_seconds,
            failed_fraction=self._spec.limits.failed_fraction,
        )
        pieces = self._caller.pool.pieces
        async with Meter() as meter:
            window = await self._drive(driver)
        ended = datetime.now(UTC)
        began = ended - timedelta(seconds=perf_counter() - driver.origin)
        after = await self._read_counters()
        client = meter.figures(
            driver.lateness_seconds,
            self._caller.pool.most_open,
            self._caller.pool.pieces - pieces,
            ceiling,
            driver.held_back,
        )
        facts = StageFacts(
            stage_id=self._plan.stage_id,
            label=self._caller.endpoint.name,
            mode=self._spec.mode,
            level=self._plan.level,
            requests=driver.timings,
            window=window,
            summary=summarise(driver.timings, window, self._spec.slo),
            client=client,
            input=self._spec.input,
            output=self._spec.output,
            before=before,
            after=after,
            counted=difference(before, after),
            warmed_up=warmed_up.stable,
            cut_short="the run was stopped" if self._stop.is_set() else driver.ended_by,
        )
        return Measured(facts, warmed_up, began, ended)

    def _prompt(self, number: int) -> Prompt:
        return self._prompts.make(str(self._plan.stage_id), self._plan.work, number, self._caller.tokens)

    async def _drive(self, driver: Driver) -> Window | None:
        spec, level = self._spec, self._plan.level
        if spec.mode == "closed":
            return await driver.closed(int(level))
        due = constant(level) if spec.mode == "constant" else poisson(level, f"{spec.seed}/{self._plan.work}")
        return await driver.open(due, spec.max_in_flight)

    async def _warm_up(self, *, known: bool) -> WarmedUp:
        spec, plan = self._spec, self._plan
        users = int(plan.level)
        if spec.mode != "closed":
            users = max(1, min(round(plan.level), spec.max_in_flight, _MOST_WARMUP_USERS_OF_A_RATE))

        def step(done: int, failed: int) -> None:
            self.warm_up_done, self.warm_up_failed = done, failed

        def make(number: int) -> Prompt:
            return self._prompts.make(f"{plan.stage_id}/warm-up", f"{plan.work}/warm-up", number, self._caller.tokens)

        done = await warm_up(
            self._caller, make, self._stop, spec.warmup,
            users=users, output_tokens=spec.output.tokens, known=known, step=step,
        )  # fmt: skip
        self._correct_lengths(done.timings)
        return done

    def _correct_lengths(self, timings: tuple[RequestTiming, ...]) -> None:
        """Take what the server counted in warm-up prompts for a better number of tokens a word."""
        told = [
            (timing.input_tokens, timing.asked_input_tokens)
            for timing in timings
            if timing.input_tokens is not None and timing.asked_input_tokens is not None
        ]
        self._caller.correct_tokens(sum(read for read, _ in told), sum(asked for _, asked in told), len(told))

    async def _read_counters(self) -> EngineCounters:
        settle = _SETTLE_SECONDS_OF_A_STOP if self._stop.is_set() else SETTLE_SECONDS
        return await asyncio.get_running_loop().run_in_executor(None, self._counters.read, settle)
