"""
Warm-up: batches of one request a user at the stage's concurrency, with prompts of their own, dropped.

The first requests of an engine are slow: kernels are compiled, graphs captured, memory is claimed, and each new batch
size may begin that anew. So batches go on until two successive ones are alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from loadtest.caller import Caller
from loadtest.driver import Driver
from loadtest.prompts import Prompt
from loadtest.spec import WarmupSpec
from loadtest.timing import RequestTiming


@dataclass(frozen=True, slots=True)
class WarmedUp:
    """How it went. `stable` None: not to be told, because there was no second batch."""

    batches: int
    requests: int
    seconds: float
    rates_tokens_per_second: tuple[float, ...]
    stable: bool | None
    timings: tuple[RequestTiming, ...]  # of the last batch


async def warm_up(
    caller: Caller,
    make: Callable[[int], Prompt],
    stop: asyncio.Event,
    spec: WarmupSpec,
    *,
    users: int,
    output_tokens: int,
    known: bool,
    step: Callable[[int, int], None],
) -> WarmedUp:
    """
    Warm `caller` up for `users` users; `known` says that it was at this level before, so that one batch is enough.

    `step` hears of requests done and failed after each batch. Raises `OSError` when there is no connection.
    """
    began = perf_counter()
    rates: list[float] = []
    sent = failed = 0
    last: tuple[RequestTiming, ...] = ()
    most = min(1, spec.most_batches) if known else spec.most_batches
    while len(rates) < most and not stop.is_set() and perf_counter() - began < spec.most_seconds:
        driver = Driver(
            caller,
            lambda number, first=sent: make(first + number),  # type: ignore[misc]
            stop,
            most_requests=users,
            seconds=spec.most_seconds,
            output_tokens=min(output_tokens, spec.output_tokens),
        )
        await driver.closed(users)
        sent += len(driver.timings)
        failed += driver.failed
        last = tuple(driver.timings)
        done = max((timing.done_seconds or 0.0 for timing in driver.timings), default=0.0)
        rates.append(driver.output_tokens / done if done else 0.0)
        step(sent, failed)
        if _alike(rates, spec.stable_fraction):
            break
    stable = None if known or len(rates) < 2 else _alike(rates, spec.stable_fraction)
    return WarmedUp(len(rates), sent, perf_counter() - began, tuple(rates), stable, last)


def _alike(rates: list[float], fraction: float) -> bool:
    """Whether the last two rates differ by at most `fraction` of the greater; nothing is like nothing."""
    if len(rates) < 2:
        return False
    less, more = sorted(rates[-2:])
    return more > 0 and more - less <= fraction * more
