"""Whether the load generator itself was the bottleneck, and whether an open loop kept its rate. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from loadtest.judgement_words import counted, milliseconds, share
from loadtest.statistics import StageSummary
from loadtest.timing import ClientFigures, Judgement, RequestTiming, Window

# The client has one busy thread, so at 1 it is the bottleneck; from 0.9 on chunks wait for their time stamp.
CPU_WARNING, CPU_FAILED = 0.7, 0.9
# Of the chunk rate that it took in before the run (the rate at which its one thread is full).
CEILING_WARNING, CEILING_FAILED = 0.5, 0.8
# A late event loop stamps chunks late, so its lag is an error of TTFT. A share of the median TTFT, and at least so much
# that timers of an idle loop never reach it (aiperf's pacing document: 1 ms steps).
LAG_WARNING, LAG_FAILED = 0.05, 0.10
LEAST_LAG_WARNING_SECONDS, LEAST_LAG_FAILED_SECONDS = 0.005, 0.020
# A late send leaves a user idle: a share of the median request by which less load was offered than asked for.
LATE_WARNING, LATE_FAILED = 0.05, 0.10
# Time in which requests were due over that in which they left; requests completed over those that came (and what is
# missing must be more than the scatter of a Poisson count, its square root).
RATE_KEPT, RATE_SERVED = 0.95, 0.95


def client_saturated(client: ClientFigures, summary: StageSummary) -> Iterator[Judgement]:
    """One judgement: the worst of CPU, lag, lateness, connections and the measured ceiling, all of them named."""
    failed, warned = [], []

    def rate(what: str, value: float, warning: float, failure: float) -> None:
        if value > failure:
            failed.append(what)
        elif value > warning:
            warned.append(what)

    rate(f"it used {share(client.cpu_fraction)} of a core", client.cpu_fraction, CPU_WARNING, CPU_FAILED)
    if client.chunks_per_second is not None and client.ceiling_chunks_per_second:
        part = client.chunks_per_second / client.ceiling_chunks_per_second
        what = (
            f"it took in {client.chunks_per_second:.0f} chunks/s of the {client.ceiling_chunks_per_second:.0f} it can"
        )
        rate(what, part, CEILING_WARNING, CEILING_FAILED)
    for what, late, whole, shares in (
        ("its event loop woke up", client.lag_p99_seconds, summary.ttft, (LAG_WARNING, LAG_FAILED)),
        ("its requests left", client.lateness_p99_seconds, summary.e2e, (LATE_WARNING, LATE_FAILED)),
    ):
        if late is None:
            continue
        typical = whole.p50_seconds if whole is not None else 0.0
        bounds = (
            max(LEAST_LAG_WARNING_SECONDS, shares[0] * typical),
            max(LEAST_LAG_FAILED_SECONDS, shares[1] * typical),
        )
        rate(f"{what} {milliseconds(late)} late (p99)", late, *bounds)
    if client.connection_limit is not None and client.connections >= client.connection_limit:
        failed.append(f"it had all {client.connection_limit} connections open that the system allows it")
    if failed:
        text = f"The client was a bottleneck: {_and(failed + warned)}. The figures are not the engine's alone."
        yield Judgement("client_saturated", "failed", text)
    elif warned:
        text = f"The client was busy: {_and(warned)}. Latencies may hold a part of its own."
        yield Judgement("client_saturated", "warning", text)
    else:
        yield Judgement("client_saturated", "ok", idle(client.cpu_fraction))


def idle(cpu_fraction: float) -> str:
    """What is said of a client that was no bottleneck."""
    return f"The client was idle enough: at most {share(cpu_fraction)} of a core."


def kept_rate(
    mode: str,
    rate: float,
    requests: Sequence[RequestTiming],
    client: ClientFigures,
    summary: StageSummary,
    window: Window | None,
) -> Iterator[Judgement]:
    """Open loop: whether requests left at the rate asked for, and whether the engine kept up with it."""
    if mode == "closed":
        return
    if client.held_back:
        text = (
            f"{counted(client.held_back, 'request')} were due while as many as allowed were in flight, and left late: "
        )
        text += "the load was less than asked for. Latency from the schedule holds their wait; raise max_in_flight."
        yield Judgement("rate_not_kept", "failed", text)
        return
    due = [request.scheduled_seconds for request in requests if request.scheduled_seconds is not None]
    sent = [request.sent_seconds for request in requests if request.sent_seconds is not None]
    if len(due) > 1 and len(sent) > 1:
        asked, took = max(due) - min(due), max(sent) - min(sent)
        if took > 0 and asked / took < RATE_KEPT:
            text = f"Requests left over {took:.3g} s instead of {asked:.3g} s: the rate asked for was not kept."
            yield Judgement("rate_not_kept", "failed", text)
            return
    came = 0 if window is None else sum(window.begin_seconds <= at <= window.end_seconds for at in due)
    if window is None or summary.requests_per_second is None:
        return
    completed = summary.requests_per_second * window.seconds
    if came - completed > max((1 - RATE_SERVED) * came, math.sqrt(came)):
        text = f"Of {came / window.seconds:.3g} requests per second that came the engine completed "
        text += f"{summary.requests_per_second:.3g}: its queue grew through the stage, so latencies tell how long the "
        text += "stage was and not how fast the engine is."
        yield Judgement("overloaded", "warning", text)
    else:
        yield Judgement("rate_not_kept", "ok", f"Requests left at the rate asked for ({rate:g}/s).")


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
