"""
A whole run: which stages in which order, and what is said of them while they go on.

Of two endpoints the order is A B B A: what drifts meanwhile (heat, clocks, others' load) meets both alike. Each repeat
goes through all levels, so that the repeats of one level are far apart.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import UTC, datetime
from time import perf_counter

from loadtest import meter, rows
from loadtest.caller import Caller, EndpointError
from loadtest.counters import CounterReader
from loadtest.facts import StageFacts
from loadtest.judgement import judge_run, judge_stage
from loadtest.pool import Pool
from loadtest.preparation import Identified, prepare
from loadtest.prompts import Prompts
from loadtest.records import Progress, Record, RunBegan, RunEnded, StageBegan
from loadtest.spec import Spec, SpecError
from loadtest.stage import Measured, Planned, Stage
from loadtest.timing import ClientFigures, Judgement
from settings import Settings

_PROGRESS_SECONDS = 1.0
_WATCH_SECONDS = 0.25


def plan(spec: Spec) -> Iterator[Planned]:
    """All stages in their order."""
    order = list(range(len(spec.endpoints)))
    levels = spec.swept_levels
    if not spec.interleave:
        slots = [(e, level, r) for e in order for r in range(spec.repeats) for level in levels]
    else:
        slots = [
            (endpoint, level, repeat)
            for repeat in range(spec.repeats)
            for index, level in enumerate(levels)
            for endpoint in (order if (repeat + index) % 2 == 0 else order[::-1])
        ]
    for stage_id, (endpoint, level, repeat) in enumerate(slots):
        yield Planned(stage_id, endpoint, level, repeat)


class Sweep:
    """Runs a spec and says what happens through `say`. `stop` ends it early; what was measured stays valid."""

    def __init__(self, spec: Spec, settings: Settings, say: Callable[[Record], None]) -> None:
        seed = spec.seed if spec.seed is not None else int.from_bytes(os.urandom(6), "big")
        self._spec = spec.model_copy(update={"seed": seed, "levels": spec.swept_levels})
        self._seed = seed
        self._level_1_added = self._spec.levels != tuple(sorted(spec.levels))
        self._settings = settings
        self._say = say
        self._stop = asyncio.Event()
        self._stopped_by: str | None = None
        self._plan = list(plan(self._spec))
        self._stage: Stage | None = None
        self._planned: Planned | None = None
        self._facts: list[StageFacts] = []
        self._client: list[ClientFigures] = []
        self._judged: list[Judgement] = []  # in stages
        self._said: list[Judgement] = []
        self._requests_left = spec.limits.requests
        self._met: set[tuple[int, float]] = set()  # endpoints at levels that they were at
        self._began = perf_counter()
        self._work_done = 0.0

    def stop(self, why: str) -> None:
        """End the run as soon as the requests under way are cut off."""
        self._stopped_by = self._stopped_by or why
        self._stop.set()

    async def run(self) -> None:
        """All of it. Every failure is said in the last record."""
        self._say(RunBegan(datetime.now(UTC), self._seed, len(self._plan), self._spec.model_dump(mode="json")))
        meter.raise_connection_limit()
        timer = asyncio.get_running_loop().call_later(
            self._spec.limits.seconds, self.stop, f"the limit of {self._spec.limits.seconds:g} s was reached"
        )
        state, detail = "finished", None
        try:
            await self._stages()
        except (EndpointError, SpecError) as failed:
            state, detail = "failed", str(failed)
        if self._stopped_by is not None:
            state, detail = "stopped", self._stopped_by
        timer.cancel()
        for judgement in judge_run(self._facts, self._judged, self._spec.mode):
            self._tell(judgement)
        client = meter.whole(self._client)
        self._say(RunEnded(datetime.now(UTC), state, detail, None if client is None else asdict(client)))

    async def _stages(self) -> None:
        prompts = Prompts(self._spec.input, self._spec.output.tokens, self._seed, os.urandom(32))
        callers = [Caller(endpoint, self._spec.limits) for endpoint in self._spec.endpoints]
        watch = asyncio.create_task(self._watch([caller.pool for caller in callers]))
        try:
            if self._level_1_added:
                self._note("level_1_added", "Level 1 was added: without it nothing tells what a single user gets.")
            self._check_connections()
            ceiling = await meter.ceiling_chunks_per_second()
            identified = [
                await prepare(
                    caller, self._spec, prompts, self._settings, lambda text: self._note("not_as_asked", text)
                )
                for caller in callers
            ]
            for planned in self._plan:
                if self._stop.is_set():
                    return
                if self._requests_left <= 0:
                    self.stop(f"the limit of {self._spec.limits.requests:,} requests was reached")
                    return
                caller = callers[planned.endpoint]
                await self._one(planned, caller, identified[planned.endpoint], prompts, ceiling)
        finally:
            watch.cancel()
            with suppress(asyncio.CancelledError):
                await watch
            for caller in callers:
                caller.pool.close()

    async def _watch(self, pools: Sequence[Pool]) -> None:
        """End requests that receive nothing any more, and all of them on a stop."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WATCH_SECONDS):
                    await self._stop.wait()
            for pool in pools:
                if self._stop.is_set():
                    pool.cancel_all()
                pool.give_up_stalled()
            if self._stop.is_set():
                await asyncio.sleep(_WATCH_SECONDS)

    def _check_connections(self) -> None:
        """A limit of the client would queue requests unseen."""
        most, limit = self._spec.most_in_flight, meter.connection_limit()
        if limit is not None and most > limit:
            raise SpecError(
                f"up to {most} requests in flight need as many connections, and this process may open {limit}: "
                "ask for less, or raise the limit of open files (ulimit -n)"
            )

    async def _one(
        self, planned: Planned, caller: Caller, identified: Identified, prompts: Prompts, ceiling: float
    ) -> None:
        endpoint = caller.endpoint
        self._say(
            StageBegan(
                datetime.now(UTC), planned.stage_id, planned.endpoint, endpoint.name, planned.level, planned.repeat,
                self._spec.stage_requests(planned.level),
            )
        )  # fmt: skip
        counters = CounterReader(endpoint.url, self._settings, endpoint.model, endpoint.api_key_env)
        self._stage = stage = Stage(planned, self._spec, caller, prompts, counters, self._stop)
        self._planned = planned
        where = (planned.endpoint, planned.level)
        progress = asyncio.create_task(self._progress())
        try:
            measured = await stage.run(self._requests_left, ceiling, known=where in self._met)
        except OSError as error:
            raise EndpointError(f"{endpoint.name} does not answer any more: {error.strerror or error}") from error
        finally:
            progress.cancel()
            with suppress(asyncio.CancelledError):
                await progress
            self._stage = None
        if measured is not None:
            self._met.add(where)
            self._work_done += self._work(planned)
            self._requests_left -= len(measured.facts.requests)
            self._report(planned, caller, identified, measured)

    def _report(self, planned: Planned, caller: Caller, identified: Identified, measured: Measured) -> None:
        facts = measured.facts
        for timing in facts.requests:
            self._say(rows.request_row(timing, facts.stage_id, measured.began, facts.window))
        warmed_up = measured.warmed_up
        details = {
            "warm_up": {
                "batches": warmed_up.batches,
                "requests": warmed_up.requests,
                "seconds": warmed_up.seconds,
                "output_tokens_per_second": warmed_up.rates_tokens_per_second,
                "stable": warmed_up.stable,
            },
            "asked_of_server": sorted(caller.dialect.features),
        }
        self._say(
            rows.stage_row(
                facts, self._spec, caller.endpoint, identified,
                repeat=planned.repeat, model=caller.model, began=measured.began, ended=measured.ended, details=details,
            )
        )  # fmt: skip
        for judgement in judge_stage(facts):
            self._judged.append(judgement)
            if judgement.severity != "ok":
                self._tell(judgement)
        self._client.append(facts.client)
        self._facts.append(replace(facts, requests=()))  # what a run is judged by needs no requests

    # What is said

    def _note(self, code: str, text: str) -> None:
        self._tell(Judgement(code, "note", text))

    def _tell(self, judgement: Judgement) -> None:
        """Say a judgement, once."""
        if judgement not in self._said:
            self._said.append(judgement)
            self._say(rows.judgement_row(judgement, datetime.now(UTC)))

    async def _progress(self) -> None:
        while True:
            await asyncio.sleep(_PROGRESS_SECONDS)
            stage, planned = self._stage, self._planned
            if stage is None or planned is None:
                continue
            driver = stage.driver
            done = stage.warm_up_done if driver is None else len(driver.timings)
            rate = None
            if driver is not None and driver.output_tokens:
                rate = driver.output_tokens / (perf_counter() - driver.origin)
            self._say(
                Progress(
                    datetime.now(UTC),
                    planned.stage_id,
                    "warm-up" if driver is None else "measuring",
                    done,
                    None if driver is None else self._spec.stage_requests(planned.level),
                    stage.warm_up_failed if driver is None else driver.failed,
                    0 if driver is None else driver.in_flight,
                    rate,
                    self._seconds_left(planned, done if driver is not None else 0),
                )
            )

    def _work(self, planned: Planned) -> float:
        """How long a stage takes, in units of its own: rounds of requests that one user sends, or seconds."""
        if self._spec.duration_seconds is not None and self._spec.requests is None:
            return self._spec.duration_seconds
        requests = self._spec.stage_requests(planned.level) or 1
        return requests / planned.level

    def _seconds_left(self, planned: Planned, done: int) -> float | None:
        """From the pace so far: an estimate, low while the levels rise."""
        requests = self._spec.stage_requests(planned.level)
        worked = self._work_done + (min(1.0, done / requests) * self._work(planned) if requests else 0.0)
        total = sum(self._work(each) for each in self._plan)
        return None if worked <= 0 else (total - worked) * (perf_counter() - self._began) / worked
