"""
Rows of believable load tests for the pages: two engines, six levels, three repeats, and runs that went wrong.

Everything is a function of the level and the repeat, so that what a page shows can be worked out by hand: each stage is
a closed loop of users over `slots`, in which a request takes `prefill_seconds` to its first token (after its turn in
the queue) and then one token each `tpot_seconds`.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from store.loadtest_rows import (
    LoadtestRequest,
    LoadtestResource,
    LoadtestRun,
    LoadtestStage,
)
from store.model import Row
from tests.support import loadtest_rows
from tests.support.demo import GIB, HOST, LABELS, LLAMA, VLLM
from tests.support.demo_server import served

LEVELS, REPEATS = (1, 2, 4, 8, 16, 32), 3
INPUT_TOKENS, OUTPUT_TOKENS = 1000, 200
GPU_0 = "GPU-00000000-0000-0000-0000-000000000000"
RUN = "20261130T101500Z-4f2a"


@dataclass(frozen=True)
class Engine:
    """How an engine behaves: `slots` requests are served at once, the others wait in its queue."""

    engine_id: str
    kind: str
    version: str
    model: str
    port: int
    slots: int
    prefill_seconds: float
    tpot_alone_seconds: float
    slower_by_user: float  # each further request served at once makes a token this much slower, as a share
    gpu_gib: float
    host_gib: float
    watts: float

    @property
    def label(self) -> str:
        return LABELS.get(self.engine_id, self.model)

    def tpot_seconds(self, users: int) -> float:
        return self.tpot_alone_seconds * (1 + self.slower_by_user * (min(users, self.slots) - 1))


VLLM_ENGINE = Engine(VLLM, "vllm", "0.33.0", "Qwen/Qwen3-8B", 8000, 256, 0.12, 0.013, 0.03, 65.6, 2.9, 540)
LLAMA_ENGINE = Engine(LLAMA, "llama.cpp", "b11434", "Qwen3-8B-Q4_K_M", 8080, 4, 0.35, 0.008, 0.4, 7.7, 1.2, 310)
ENGINES = (VLLM_ENGINE, LLAMA_ENGINE)


def jitter(*parts: object) -> float:
    """A share between -1 and 1 that is always the same for the same parts."""
    return random.Random(repr(parts)).uniform(-1, 1)


def requests_of(engine: Engine, stage_id: int, users: int, repeat: int, begin: datetime, run_id: str) -> list[Row]:
    """The requests of one stage: `users` that send the next request as soon as the last one is answered."""
    planned = max(8, 4 * users)
    free_slots: list[float] = [0.0] * engine.slots
    waiting = [(0.0, user) for user in range(users)]
    heapq.heapify(waiting)
    rows: list[Row] = []
    of_repeat = 1 + 0.025 * jitter(engine.engine_id, users, repeat)
    for number in range(planned):
        sent, user = heapq.heappop(waiting)
        turn = max(sent, heapq.heappop(free_slots))
        spread = of_repeat + 0.04 * jitter(stage_id, number)
        first = turn + engine.prefill_seconds * (1 + 0.15 * min(users, engine.slots)) * spread
        tpot = engine.tpot_seconds(users) * spread
        last = first + tpot * (OUTPUT_TOKENS - 1)
        heapq.heappush(free_slots, last)
        heapq.heappush(waiting, (last + 0.002, user))
        rows.append(
            loadtest_rows.request(
                number,
                stage_id,
                run_id,
                ts=begin + timedelta(seconds=sent),
                host=HOST,
                finish_reason="length",
                http_status=200,
                tokens_source="usage",
                scheduled_seconds=sent,
                sent_seconds=sent,
                headers_seconds=turn + 0.001,
                first_data_seconds=first,
                first_token_seconds=first,
                first_visible_seconds=first,
                last_token_seconds=last,
                done_seconds=last + 0.001,
                input_tokens=INPUT_TOKENS,
                cached_input_tokens=0,
                output_tokens=OUTPUT_TOKENS,
                first_chunk_tokens=1,
                chunks=OUTPUT_TOKENS,
                ttft_seconds=first - sent,
                tpot_seconds=tpot,
                e2e_seconds=last - sent,
                from_schedule_seconds=last - sent,
                longest_gap_seconds=tpot * 2,
            )
        )
    return rows


def summary(engine: Engine, rows: Sequence[LoadtestRequest], users: int, repeat: int) -> LoadtestStage:
    """The stage that these requests make, in the steady window in which all users are busy."""
    begin = rows[0].ts
    done = [row for row in rows if row.status == "ok"]
    end = max((row.done_seconds or 0.0) for row in rows)
    last_by_user = sorted(row.done_seconds or 0.0 for row in done)[-users:]
    window = (0.0, min(last_by_user)) if len(done) > users else (0.0, end)
    seconds = window[1] - window[0]
    tokens = sum(_inside(row, *window) for row in done)
    spreads: dict[str, Any] = {}
    for name in ("ttft", "tpot", "icl", "e2e"):
        column = "tpot_seconds" if name == "icl" else f"{name}_seconds"  # one token a chunk: gaps are times a token
        values = np.array([getattr(row, column) for row in done])
        spreads[f"{name}_mean_seconds"] = float(values.mean())
        spreads |= {f"{name}_p{q}_seconds": float(np.percentile(values, q)) for q in (50, 90, 95, 99)}
    good = [row for row in done if (row.ttft_seconds or 9) <= 1 and (row.tpot_seconds or 9) <= 0.05]
    return loadtest_rows.stage(
        rows[0].stage_id,
        rows[0].run_id,
        ts=begin,
        ended=begin + timedelta(seconds=end),
        host=HOST,
        url=f"http://127.0.0.1:{engine.port}",
        label=engine.label,
        engine=engine.kind,
        engine_id=engine.engine_id,
        epoch_id=f"{engine.engine_id}-1",
        engine_version=engine.version,
        model_id=engine.model,
        concurrency=users,
        repeat=repeat,
        window_begin=begin,
        window_end=begin + timedelta(seconds=window[1]),
        window_seconds=seconds,
        whole_seconds=end,
        requests=len(rows),
        succeeded=len(done),
        failed=len(rows) - len(done),
        cancelled=0,
        input_tokens=float(INPUT_TOKENS * len(done)),
        output_tokens=float(OUTPUT_TOKENS * len(done)),
        cached_input_tokens=0.0,
        tokens_source="usage",
        output_tokens_per_second=tokens / seconds,
        whole_output_tokens_per_second=OUTPUT_TOKENS * len(done) / end,
        requests_per_second=sum((row.done_seconds or 0) <= window[1] for row in done) / seconds,
        goodput_requests_per_second=len(good) / end,
        goodput_fraction=len(good) / len(rows),
        user_tokens_per_second=float(np.mean([1 / (row.tpot_seconds or 1) for row in done])),
        tokens_per_chunk=1.0,
        counters=json.dumps({"generation_tokens": OUTPUT_TOKENS * len(done), "requests": len(done)}),
        **spreads,
    )


def _inside(row: LoadtestRequest, begin: float, end: float) -> float:
    """Tokens of a request that came between `begin` and `end`, one each TPOT after the first."""
    first, tpot = row.first_token_seconds or 0.0, row.tpot_seconds or 1.0
    times = first + tpot * np.arange(OUTPUT_TOKENS)
    return float(((times >= begin) & (times <= end)).sum())


def resources(engine: Engine, made: LoadtestStage) -> Iterator[LoadtestResource]:
    """What the engine held and used in a stage: its GPU and its host memory."""
    seconds = made.whole_seconds or 1.0
    known: dict[str, Any] = {
        "ts": made.ended, "host": HOST, "run_id": made.run_id, "engine_id": engine.engine_id,
        "epoch_id": made.epoch_id, "samples": int(seconds) + 1,
    }  # fmt: skip
    watts, size = engine.watts + 2 * (made.concurrency or 0), engine.gpu_gib * GIB
    yield loadtest_rows.resource(
        made.stage_id, **known,
        device_id=GPU_0, memory_method="nvml_process", memory_mean_bytes=size, memory_peak_bytes=size,
        utilisation_mean_fraction=0.93, power_mean_watts=watts, energy_joules=watts * seconds,
        energy_method="power_integral", others_memory_bytes=0.9 * GIB,
        joules_per_output_token=watts * seconds / (made.output_tokens or 1),
        joules_per_request=watts * seconds / (made.succeeded or 1),
    )  # fmt: skip
    size = engine.host_gib * GIB
    yield loadtest_rows.resource(
        made.stage_id, **known, device_id=None, memory_method="rss", memory_mean_bytes=size, memory_peak_bytes=size,
        cpu_cores_mean=1.1,
    )  # fmt: skip


def spec(engines: Sequence[Engine], levels: Sequence[int] = LEVELS) -> dict[str, Any]:
    """What was asked for, as the page asks it."""
    return {
        "endpoints": [
            {"url": f"http://127.0.0.1:{engine.port}", "label": engine.label, "engine_id": engine.engine_id}
            for engine in engines
        ],
        "mode": "closed",
        "levels": list(levels),
        "repeats": REPEATS,
        "input": {"kind": "synthetic", "distribution": "fixed", "tokens": INPUT_TOKENS, "cached": False},
        "output": {"tokens": OUTPUT_TOKENS, "ignore_eos": True},
        "slo": {"ttft_seconds": 1.0, "tpot_seconds": 0.05, "e2e_seconds": None},
    }


def run(began: datetime, run_id: str = RUN, **values: Any) -> LoadtestRun:
    """A finished run of both engines, unless told otherwise."""
    known: dict[str, Any] = {
        "ts": began, "host": HOST, "run_id": run_id, "name": "Evening sweep", "state": "finished",
        "source": "engine-room", "started_by": "page", "began": began, "ended": None, "spec": json.dumps(spec(ENGINES)),
        "client": json.dumps({"loop_lag_p99_seconds": 0.0012, "cpu_fraction": 0.31}), "detail": None, "trusted": True,
    }  # fmt: skip
    return LoadtestRun(**(known | values))


def judgement(ts: datetime, code: str, severity: str, text: str, stage_id: int | None = None, run_id: str = RUN) -> Row:
    """One judgement of a run or of one of its stages."""
    return replace(loadtest_rows.judgement(code, severity, stage_id, run_id, text), ts=ts, host=HOST)


GOOD = (
    ("client_saturated", "ok", "The client was idle enough: 31 % of one core, event loop at most 1.2 ms late (p99)."),
    ("output_length", "ok", "Every answer had the 200 tokens that were asked for."),
    ("prefix_cache_hits", "ok", "No prompt token came from a prefix cache."),
    ("counters_disagree", "ok", "The engines counted the same tokens as the client (0.0 %)."),
    ("window_short", "note", "The shortest steady window lasts 5 s; with one user few requests fit into it."),
)
BAD = (
    ("client_saturated", "failed", "The client was the bottleneck: 98 % of one core, sends 41 ms late (p99)."),
    ("prefix_cache_hits", "failed", "62 % of the prompt tokens of vLLM came from its prefix cache; none were wanted."),
)


def stages(
    began: datetime,
    run_id: str = RUN,
    engines: Sequence[Engine] = ENGINES,
    levels: Sequence[int] = LEVELS,
    repeats: int = REPEATS,
) -> list[list[Row]]:
    """The rows of each stage (its requests, itself, what it used), engines in turn A B B A, one after another."""
    made: list[list[Row]] = []
    clock = began
    for repeat in range(repeats):
        for users in levels:
            for engine in engines if repeat % 2 == 0 else tuple(reversed(engines)):
                rows = requests_of(engine, len(made), users, repeat, clock, run_id)
                whole = summary(engine, rows, users, repeat)
                rows = [replace(row, in_window=(row.done_seconds or 0) <= (whole.window_seconds or 0)) for row in rows]
                made.append([*rows, whole, *resources(engine, whole)])
                clock = whole.ended + timedelta(seconds=2)
    return made


def finished(
    began: datetime, run_id: str = RUN, judged: Sequence[tuple[str, str, str]] = GOOD, **values: Any
) -> list[Row]:
    """A whole run with its judgements; trusted when none of them is `failed`. `values` are of the run."""
    made = [row for rows in stages(began, run_id) for row in rows]
    ended = max(row.ended for row in made if isinstance(row, LoadtestStage))
    trusted = not any(severity == "failed" for _, severity, _ in judged)
    whole = run(began, run_id, **({"ts": ended, "ended": ended, "trusted": trusted} | values))
    return [*made, *(judgement(ended, *each, run_id=run_id) for each in judged), whole]


def imported(began: datetime, run_id: str = "20261129T080000Z-beef") -> list[Row]:
    """A result file of `vllm bench serve`: one stage, no window, no requests, E2E not in the file."""
    whole = loadtest_rows.stage(
        0, run_id, ts=began, ended=began, host=HOST, engine_id=None, epoch_id=None, url="file",
        label="Qwen3-8B (vllm bench serve)", engine="vllm", model_id="Qwen/Qwen3-8B",
        concurrency=8, repeat=0, whole_seconds=41.2, requests=100, succeeded=100, failed=0, input_tokens=100_000.0,
        output_tokens=20_000.0, tokens_source="file", whole_output_tokens_per_second=485.4,
        ttft_mean_seconds=0.21, ttft_p50_seconds=0.19, ttft_p99_seconds=0.61,
        tpot_mean_seconds=0.0151, tpot_p50_seconds=0.0150, tpot_p99_seconds=0.0188,
    )  # fmt: skip
    lacks = "The file has no steady window: its throughput is of the whole run, ramp and tail included."
    return [
        whole,
        judgement(began, "imported", "note", lacks, run_id=run_id),
        run(
            began, run_id, name="qwen3-8b 8qps.json", state="imported", source="vllm bench serve", started_by="import",
            spec=None, client=None, trusted=None,
        ),
    ]  # fmt: skip


HELD_BACK = "20261201T083000Z-77aa"


def past(now: datetime) -> list[Row]:
    """A list of runs as a host has them after a day: trusted, not trusted, stopped half-way, imported."""
    return [
        *finished(now - timedelta(hours=22)),
        *finished(
            now - timedelta(hours=3), HELD_BACK, judged=[*BAD, *GOOD[1:2]], name="Sweep while the laptop was busy"
        ),
        *stopped(now - timedelta(hours=2)),
        *imported(now - timedelta(hours=26)),
    ]


def stopped(began: datetime, run_id: str = "20261201T093000Z-19c0") -> list[Row]:
    """A run that somebody stopped in its first repeat, after four users."""
    made = [row for rows in stages(began, run_id, levels=LEVELS[:3], repeats=1) for row in rows]
    ended = max(row.ended for row in made if isinstance(row, LoadtestStage))
    text = "Stopped in stage 7 of 36; the stages before it are complete."
    whole = run(began, run_id, name="Short one", state="stopped", ts=ended, ended=ended, trusted=True)
    return [*made, judgement(ended, "stopped", "note", text, run_id=run_id), *_good(ended, run_id), whole]


def _good(ts: datetime, run_id: str) -> list[Row]:
    return [judgement(ts, *each, run_id=run_id) for each in GOOD[:4]]


def going_on(began: datetime, ended_stages: int, run_id: str = "20261201T101500Z-c0de") -> list[Row]:
    """A run under way of which so many stages are over."""
    made = [row for rows in stages(began, run_id)[:ended_stages] for row in rows]
    return [*made, run(began, run_id, name="Morning sweep", state="running", trusted=None)]


def status(rows: Sequence[Row], planned: int = 36) -> dict[str, Any]:
    """What the collector tells of the run that `going_on` made."""
    whole = next(row for row in rows if isinstance(row, LoadtestRun))
    over = [row for row in rows if isinstance(row, LoadtestStage)]
    return {
        "run_id": whole.run_id, "name": whole.name, "state": whole.state, "detail": None, "waits_for": None,
        "began": whole.began.isoformat() if whole.began else None, "labels": [each.label for each in ENGINES],
        "mode": "closed", "stage": len(over), "stages": planned, "label": VLLM_ENGINE.label, "level": 8.0, "repeat": 0,
        "planned": 40, "phase": "measuring", "done": 17, "failed": 0, "in_flight": 8, "rate_tokens_per_second": 471.3,
        "seconds_left": 512.0,
    }  # fmt: skip


def main() -> None:
    """Serve the demo with its past runs, and with one under way (`--running`), until Ctrl-C."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--scenario", default="two")
    parser.add_argument("--running", action="store_true")
    options = parser.parse_args()
    now = datetime.now(UTC)
    rows = going_on(now - timedelta(minutes=4), 9) if options.running else []
    told = [status(rows)] if rows else []
    with served(options.data, options.scenario, commands={"loadtest_status": lambda _: {"runs": told}}) as store:
        store.writer.put([*past(now), *rows])
        store.writer.flush()
        print(f"serving {options.data}", flush=True)
        store.go_on()


if __name__ == "__main__":
    main()
