"""
A month of a busy host in a store: `python -m benchmarks.month FOLDER [--days N] [--end T]`.

Eight engines of mixed kinds on eight GPUs at the default intervals, ending now (or at T): load that follows the
day, restarts with other settings, hours without a collector, histograms every 10 s. Rows are made by SQL from
hashes, so that the same end gives the same store, go through the real schema step by step, and are rolled up,
deleted and compacted by the real maintenance: `telemetry.duckdb` in FOLDER is what a collector would have left.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from settings import StoreSettings
from store import compaction, retention, rollup
from store.batch import write
from store.database import open_for_writing
from store.model import Device, Engine, Epoch, Event, QuantityOffer, Row

HOST = "bench-01"
GIB = 2**30
DAYS = 30
STEP = timedelta(hours=6)  # what is written at once: whole days would leave more free blocks than a collector does
SQL = (Path(__file__).parent / "month.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Kind:
    """One engine of the month: what it serves, where, and how fast it is."""

    engine_id: str
    label: str
    model: str
    version: str
    gpus: tuple[int, ...]
    device_gib: float  # held on each GPU
    host_gib: float
    slots: int  # requests that can run at once
    tokens_per_second: float  # of one request alone
    load: float  # share of its slots in use at the busiest hour
    ttft_seconds: float  # median without a queue
    lives_days: float  # days between restarts
    down_seconds: int  # how long a restart takes
    histograms: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The adapter's name."""
        return self.engine_id.rsplit("-", 1)[0]


ALL_OF_VLLM = ("ttft_seconds", "itl_seconds", "tpot_seconds", "e2e_seconds", "queue_seconds")
ENGINES = (
    Kind("vllm-8000", "Qwen3-8B on vLLM", "Qwen/Qwen3-8B", "0.33.0", (0,), 70.1, 6.2, 64, 95, 0.7, 0.06, 8.3, 95,
         ALL_OF_VLLM),
    Kind("vllm-8001", "Qwen3-32B on vLLM", "Qwen/Qwen3-32B", "0.33.0", (1,), 71.4, 7.9, 32, 38, 0.5, 0.15, 11.9, 190,
         ALL_OF_VLLM),
    Kind("vllm-8002", "Llama-3.3-70B on vLLM", "meta-llama/Llama-3.3-70B-Instruct", "0.32.0", (2, 3), 72.8, 9.6, 48,
         31, 0.8, 0.21, 6.7, 320, ALL_OF_VLLM),
    Kind("llama.cpp-8080", "Qwen3-8B Q4_K_M on llama.cpp", "Qwen3-8B-Q4_K_M", "b11434", (4,), 9.7, 1.4, 4, 88, 0.6,
         0.09, 4.9, 12),
    Kind("llama.cpp-8081", "gpt-oss-20b on llama.cpp", "gpt-oss-20b-mxfp4", "b11434", (5,), 14.2, 1.1, 8, 104, 0.4,
         0.12, 9.1, 18),
    Kind("sglang-30000", "Qwen3-8B on SGLang", "Qwen/Qwen3-8B", "0.5.23", (6,), 68.9, 5.1, 64, 99, 0.6, 0.05, 7.7, 110,
         ("ttft_seconds", "itl_seconds", "e2e_seconds", "queue_seconds")),
    Kind("tgi-3000", "Mistral-7B on TGI", "mistralai/Mistral-7B-Instruct-v0.3", "3.3.5", (7,), 61.0, 4.4, 32, 71, 0.3,
         0.08, 14.3, 80, ("e2e_seconds", "queue_seconds", "tpot_seconds")),
    Kind("ollama-11434", "qwen3:4b on Ollama", "qwen3:4b", "0.15.2", (5,), 4.1, 0.9, 4, 120, 0.2, 0.2, 13.1, 6),
)  # fmt: skip
# The grids that vLLM, SGLang and TGI print (tests/fixtures/payloads), as far as they matter here.
BOUNDS = {
    "ttft_seconds": (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80,
                     160, 640, 2560),
    "itl_seconds": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
    "tpot_seconds": (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80),
    "e2e_seconds": (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680),
    "queue_seconds": (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680),
}  # fmt: skip
OUTPUT_TOKENS = 200.0  # of a request, on average
# Hours before the end at which no collector ran, and for how long, in minutes.
GAPS = ((25.2 * 24, 40), (13.4 * 24, 125), (4.2 * 24, 3), (1.3 * 24, 11))


@dataclass(frozen=True, slots=True)
class Life:
    """One life of an engine: it loads from `begin` to `ready` and answers until `end`."""

    engine: Kind
    number: int
    begin: datetime
    ready: datetime
    end: datetime
    slots: int

    @property
    def epoch_id(self) -> str:
        """Name of the epoch."""
        return f"{self.engine.engine_id}@{self.number}"


def lives(start: datetime, end: datetime) -> list[Life]:
    """All lives that touch the month. Every third restart changes the number of slots."""
    found = []
    for place, engine in enumerate(ENGINES):
        begin, number = start - timedelta(days=engine.lives_days * (place + 1) / 9), 1
        while begin < end:
            stop = begin + timedelta(days=engine.lives_days)
            slots = engine.slots * (2 if number % 3 == 0 else 1)
            found.append(Life(engine, number, begin, begin + timedelta(seconds=engine.down_seconds), stop, slots))
            begin, number = stop, number + 1
    return found


def facts(start: datetime, end: datetime) -> list[Row]:
    """What is written when it changes: engines, devices, epochs, offers, events."""
    rows: list[Row] = []
    for number in range(8):
        rows.append(Device(HOST, gpu(number), "nvidia", number, "NVIDIA H100 80GB HBM3", 80 * GIB, "580.95", start))
    for engine in ENGINES:
        url = f"http://127.0.0.1:{engine.engine_id.rsplit('-', 1)[1]}"
        rows.append(Engine(HOST, engine.engine_id, engine.kind, engine.label, url, "process listens", start))
    for hours, minutes in GAPS:
        if (began := end - timedelta(hours=hours)) > start:
            for kind, text, ts in (
                ("collector_stopped", "Collector stopped (process 812)", began),
                ("collector_started", "Collector started (process 977)", began + timedelta(minutes=minutes)),
            ):
                rows.append(Event(ts, HOST, None, None, None, kind, text))
    for life in sorted(lives(start, end), key=lambda life: life.begin):
        rows += life_facts(life, start)
    return rows


def life_facts(life: Life, start: datetime) -> list[Row]:
    """An epoch, what the engine offers in it, and the events of its beginning."""
    engine, seen = life.engine, max(life.begin, start)
    settings = {"llama.cpp": "--parallel", "vllm": "--max-num-seqs", "sglang": "--max-running-requests"}
    arguments = [engine.kind, "--model", engine.model, settings.get(engine.kind, "--max"), str(life.slots)]
    rows: list[Row] = [
        Epoch(HOST, engine.engine_id, life.epoch_id, life.begin, True, seen, 4000 + life.number, engine.version,
              engine.model, engine.model, "Q4_K_M" if engine.kind == "llama.cpp" else "BF16", 32_768, life.slots,
              json.dumps(arguments), None)
    ]  # fmt: skip
    for name in ("generation_tokens_total", "prompt_tokens_total", "requests_running", *engine.histograms):
        rows.append(
            QuantityOffer(
                seen, HOST, engine.engine_id, life.epoch_id, name, "offered", f"{engine.kind}:{name}", None, None
            )
        )
    if life.begin >= start:
        before = f", was {engine.slots}" if life.slots != engine.slots else ""
        text = f"{engine.label} restarted with {life.slots} slots{before}"
        rows.append(Event(life.begin, HOST, engine.engine_id, life.epoch_id, None, "restarted", text))
        rows.append(
            Event(
                life.ready,
                HOST,
                engine.engine_id,
                life.epoch_id,
                None,
                "ready",
                f"{engine.label} is ready (was loading)",
            )
        )
    return rows


def gpu(number: int) -> str:
    """Name of a GPU as NVML would give it."""
    return f"GPU-00000000-0000-0000-0000-00000000000{number}"


def prepare(connection: duckdb.DuckDBPyConnection, start: datetime, end: datetime) -> None:
    """Write the facts, and the temporary tables that `month.sql` reads."""
    write(connection, facts(start, end))
    connection.execute("SET VARIABLE booted = epoch(?::TIMESTAMPTZ) - 10 * 86400", [start])
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE life (place BIGINT, engine_id VARCHAR, kind VARCHAR, epoch_id VARCHAR, "
        '"begin" TIMESTAMPTZ, ready TIMESTAMPTZ, "end" TIMESTAMPTZ, slots DOUBLE, speed DOUBLE, load DOUBLE, '
        "device_bytes BIGINT, host_bytes BIGINT, ttft DOUBLE)"
    )
    for life in lives(start, end):
        e = life.engine
        connection.execute(
            "INSERT INTO life VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [ENGINES.index(e), e.engine_id, e.kind, life.epoch_id, life.begin, life.ready, life.end, life.slots,
             e.tokens_per_second, e.load, int(e.device_gib * GIB), int(e.host_gib * GIB), e.ttft_seconds],
        )  # fmt: skip
    connection.execute("CREATE OR REPLACE TEMP TABLE placed (engine_id VARCHAR, gpu BIGINT, device_id VARCHAR)")
    connection.executemany(
        "INSERT INTO placed VALUES (?, ?, ?)", [(e.engine_id, n, gpu(n)) for e in ENGINES for n in e.gpus]
    )
    connection.execute('CREATE OR REPLACE TEMP TABLE hole ("begin" TIMESTAMPTZ, "end" TIMESTAMPTZ)')
    for hours, minutes in GAPS:
        began = end - timedelta(hours=hours)
        connection.execute("INSERT INTO hole VALUES (?, ?)", [began, began + timedelta(minutes=minutes)])
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE grid (engine_id VARCHAR, quantity VARCHAR, le DOUBLE, typical DOUBLE, "
        "spread DOUBLE)"
    )
    connection.executemany(
        "INSERT INTO grid VALUES (?, ?, ?, ?, ?)",
        [(e.engine_id, quantity, le, typical(e, quantity), 0.5 if quantity != "queue_seconds" else 1.0)
         for e in ENGINES for quantity in e.histograms for le in (*BOUNDS[quantity], float("inf"))],
    )  # fmt: skip


def typical(engine: Kind, quantity: str) -> float:
    """Median of a latency in seconds while the engine is not crowded."""
    itl = 1 / engine.tokens_per_second
    known = {"ttft_seconds": engine.ttft_seconds, "e2e_seconds": engine.ttft_seconds + OUTPUT_TOKENS * itl}
    return known.get(quantity, 0.02 if quantity == "queue_seconds" else itl)


def one_step(connection: duckdb.DuckDBPyConnection, begin: datetime, end: datetime, spent: dict[str, float]) -> None:
    """Samples of [begin, end), rolled up, and what is too old deleted."""
    clock = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal clock
        spent[name] += time.perf_counter() - clock
        clock = time.perf_counter()

    connection.execute("SET VARIABLE day_begin = ?::TIMESTAMPTZ", [begin])
    connection.execute("SET VARIABLE day_end = ?::TIMESTAMPTZ", [end])
    connection.execute("SET VARIABLE host_name = ?", [HOST])
    connection.execute(SQL)
    connection.execute("CHECKPOINT")
    lap("generate")
    for step in (
        lambda: rollup.roll_minutes(connection, end, timedelta(days=1)),
        lambda: rollup.roll_hours(connection),
    ):
        going = True
        while going:
            connection.begin()
            going = step()
            connection.commit()
    lap("roll up")
    for level in retention.levels(StoreSettings()):
        while (due := retention.due(connection, level, end)) is not None:
            retention.begin(connection, level, due)
            for table in level.tables:
                retention.delete(connection, table, due, due + level.step)
    connection.execute("CHECKPOINT")
    lap("delete")
    for table in compaction.KEYS:
        while (due := compaction.due(connection, table, end)) is not None:
            connection.begin()
            compaction.compact(connection, table, due)
            connection.commit()
            connection.execute("CHECKPOINT")
    lap("compact")
    connection.execute("CHECKPOINT")
    lap("checkpoint")


def make(folder: Path, days: int = DAYS, end: datetime | None = None) -> dict[str, float]:
    """Write `folder`/telemetry.duckdb; returns seconds by step. The file must not be there yet."""
    path = folder / "telemetry.duckdb"
    if path.exists():
        raise FileExistsError(f"{path} is there already; give another folder")
    end = (end or datetime.now(UTC)).replace(microsecond=0)
    start = end - timedelta(days=days)
    connection = open_for_writing(path, StoreSettings(memory_limit="2GB", threads=2))
    spent: dict[str, float] = defaultdict(float)
    prepare(connection, start, end)
    begin = start
    while begin < end:
        until = min(rollup.floor(begin, STEP) + STEP, end)
        one_step(connection, begin, until, spent)
        begin = until
    connection.close()
    return dict(spent)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a month and say what it took."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.month", description=__doc__.splitlines()[1] if __doc__ else ""
    )
    parser.add_argument("folder", type=Path, help="data folder to make (ENGINE_ROOM_DATA)")
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--end", type=datetime.fromisoformat, help="end of the month, e.g. 2026-12-01T00:00:00Z")
    given = parser.parse_args(arguments)
    spent = make(given.folder, given.days, given.end)
    path = given.folder / "telemetry.duckdb"
    print(f"{given.days} days of {len(ENGINES)} engines and 8 GPUs in {path}")
    for name, seconds in spent.items():
        print(f"  {name:<12}{seconds:8.1f} s")
    print(f"  {'file':<12}{path.stat().st_size / 1e6:8.0f} MB    budget 400 MB for {DAYS} days")
    return 0


if __name__ == "__main__":
    sys.exit(main())
