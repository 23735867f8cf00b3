"""
Row types of load tests and saved reports: one dataclass a table, as in `store.model`.

Definitions of the measures are those of `loadtest.statistics`. ``None`` means "not measurable" or "not
told"; it is never written as 0. Columns `*_seconds` of a request are on the run's monotonic clock, counted from
the beginning of its stage, so that no clock change bends them; `ts` is the wall clock at that beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar


@dataclass(frozen=True, slots=True)
class LoadtestRun:
    """One load test, or one imported result file. Written again when it moves on: the row written last holds."""

    table: ClassVar[str] = "loadtest_run"
    ts: datetime  # when this row was written
    host: str  # name of the host that the load came from
    run_id: str  # sortable by time and unique, e.g. 20261201T091500Z-4f2a
    name: str  # what a person calls it
    state: str  # waiting | running | finished | stopped | failed | interrupted | imported
    source: str  # engine-room | vllm bench serve | guidellm | aiperf | llama-bench | llama-benchy
    started_by: str  # page | command line | import
    began: datetime | None  # when the first request was sent; None: not yet, or the file does not say
    ended: datetime | None
    spec: str | None  # JSON object: what was asked for (workload, levels, repeats, seed, limits, SLO, endpoints)
    client: str | None  # JSON object: how the load generator itself fared (lag, lateness, CPU, connections)
    detail: str | None  # why it failed or what it waits for, in a sentence
    trusted: bool | None  # whether no judgement of severity 'failed' stands against it; None: not judged yet


@dataclass(frozen=True, slots=True)
class LoadtestStage:
    """One load level against one endpoint, once: what was asked, what came out, in its steady window."""

    table: ClassVar[str] = "loadtest_stage"
    ts: datetime  # its beginning
    ended: datetime
    host: str
    run_id: str
    stage_id: int  # order within the run, from 0
    url: str  # base URL of the endpoint, without user, password or query
    label: str  # what the endpoint is called in charts
    engine: str | None  # kind of the engine: "vllm", "llama.cpp"; None: an endpoint of unknown kind
    engine_id: str | None  # as in `engine`, where a collector knows it
    epoch_id: str | None
    engine_version: str | None
    model_id: str | None
    mode: str  # closed | constant | poisson
    concurrency: int | None  # closed loop: requests in flight; open loop: the limit, or None
    offered_requests_per_second: float | None  # open loop: the rate asked for
    repeat: int  # from 0
    window_begin: datetime | None  # steady window: all users busy, warm-up and tail excluded
    window_end: datetime | None
    window_seconds: float | None
    whole_seconds: float | None  # first request sent to last one done
    requests: int | None  # sent and measured, warm-up left out
    succeeded: int | None
    failed: int | None
    cancelled: int | None  # cut off by the end of the stage or a stop; no failure
    input_tokens: float | None  # sum over succeeded requests
    output_tokens: float | None
    cached_input_tokens: float | None  # of input_tokens, served from a prefix cache; None: not told
    tokens_source: str | None  # usage | timings | tokenize | chunks (a lower bound) | file
    output_tokens_per_second: float | None  # in the steady window
    whole_output_tokens_per_second: float | None  # all output tokens over whole_seconds
    requests_per_second: float | None  # completed in the steady window
    goodput_requests_per_second: float | None  # those that met every stated SLO
    goodput_fraction: float | None
    user_tokens_per_second: float | None  # mean over requests of 1 / TPOT: what one user sees
    tokens_per_chunk: float | None
    ttft_mean_seconds: float | None
    ttft_p50_seconds: float | None
    ttft_p90_seconds: float | None
    ttft_p95_seconds: float | None
    ttft_p99_seconds: float | None
    tpot_mean_seconds: float | None
    tpot_p50_seconds: float | None
    tpot_p90_seconds: float | None
    tpot_p95_seconds: float | None
    tpot_p99_seconds: float | None
    icl_mean_seconds: float | None  # gap between chunks, not tokens
    icl_p50_seconds: float | None
    icl_p90_seconds: float | None
    icl_p95_seconds: float | None
    icl_p99_seconds: float | None
    e2e_mean_seconds: float | None
    e2e_p50_seconds: float | None
    e2e_p90_seconds: float | None
    e2e_p95_seconds: float | None
    e2e_p99_seconds: float | None
    counters: str | None  # JSON object: the engine's own counters before and after, and their difference
    details: str | None  # JSON object: further figures (TTFV, time from schedule, fields of an imported file)


@dataclass(frozen=True, slots=True)
class LoadtestRequest:
    """One request. Its prompt and its answer are never stored."""

    table: ClassVar[str] = "loadtest_request"
    ts: datetime  # wall clock when it was sent
    host: str
    run_id: str
    stage_id: int
    request: int  # order within the stage, from 0
    status: str  # ok | error | cancelled
    error: str | None  # what went wrong, in a sentence; no text of the answer
    finish_reason: str | None
    http_status: int | None
    in_window: bool  # whether it was sent and done inside the steady window
    scheduled_seconds: float | None  # when it was due; closed loop: when its user was free
    sent_seconds: float | None
    headers_seconds: float | None
    first_data_seconds: float | None
    first_token_seconds: float | None  # first non-empty content, reasoning or tool-call delta
    first_visible_seconds: float | None  # first non-empty content
    last_token_seconds: float | None
    done_seconds: float | None
    input_tokens: int | None
    cached_input_tokens: int | None
    output_tokens: int | None
    first_chunk_tokens: int | None
    chunks: int | None  # that carried text
    tokens_source: str | None
    ttft_seconds: float | None
    tpot_seconds: float | None
    e2e_seconds: float | None
    from_schedule_seconds: float | None  # scheduled to last token: what a user who came on time waits
    longest_gap_seconds: float | None


@dataclass(frozen=True, slots=True)
class LoadtestJudgement:
    """What a run says against itself, or in its own favour."""

    table: ClassVar[str] = "loadtest_judgement"
    ts: datetime
    host: str
    run_id: str
    stage_id: int | None  # None: about the run
    code: str  # e.g. client_saturated, output_length, prefix_cache_hits
    severity: str  # ok | note | warning | failed
    text: str


@dataclass(frozen=True, slots=True)
class LoadtestResource:
    """What one engine and its devices used during one stage, from the samples of the collector."""

    table: ClassVar[str] = "loadtest_resource"
    ts: datetime
    host: str
    run_id: str
    stage_id: int
    engine_id: str
    epoch_id: str | None
    device_id: str | None  # None: host memory and CPU of the engine
    memory_method: str | None
    memory_mean_bytes: float | None
    memory_peak_bytes: float | None
    cpu_cores_mean: float | None
    utilisation_mean_fraction: float | None
    power_mean_watts: float | None
    energy_joules: float | None  # of the whole device over the stage
    energy_method: str | None  # counter | power_integral
    others_memory_bytes: float | None  # held on the device by other processes meanwhile
    joules_per_output_token: float | None
    joules_per_request: float | None
    samples: int


@dataclass(frozen=True, slots=True)
class Report:
    """A saved report: a name and what it is made of. Written again when it changes; the row written last holds."""

    table: ClassVar[str] = "report"
    ts: datetime
    host: str
    report_id: str
    name: str
    document: str  # JSON object: windows, runs, sections, scrubbing
