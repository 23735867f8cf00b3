"""
How fast the past is told: `python -m benchmarks.history [FOLDER]`.

On a month of eight engines and eight GPUs (FOLDER as `benchmarks.month` made it; made anew without one): the query
of every history chart over ranges from an hour to the month, cold (the store freshly opened) and warm, in wall
and CPU time. Then a collector samples into that store while eight people move about in its history, and the
lateness of its samples is read from the store.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from benchmarks import month
from settings import Settings, StoreSettings
from store import queries
from store.client import StoreClient
from store.database import open_read_only
from store.protocol import Parameter, StoreBusyError, StoreUnavailableError
from views.history_data import points_for

ROOT = Path(__file__).parents[1]
COLD_BUDGET_SECONDS, WARM_BUDGET_SECONDS, LATE_BUDGET_SECONDS = 0.3, 0.05, 0.1
RANGES = {"1 h": 1, "6 h": 6, "1 day": 24, "7 days": 168, "30 days": 720}
# The query of each chart and what is asked of it; the page asks once for all its charts of latencies, with the points
# that it has for eight engines and eight GPUs.
CHARTS: dict[str, tuple[str, dict[str, Parameter]]] = {
    **{name: (name, {}) for name in queries.QUERIES if name.endswith("_series") and name != "latency_series"},
    "latency_series, TTFT": ("latency_series", {"quantity": "ttft_seconds"}),
    "latency_series, all five": ("latency_series", {"points": points_for(8, 8)}),
}
PEOPLE = 8
PEOPLE_SECONDS = 60.0


def ask(path: Path, name: str, hours: float, end: datetime, warm: int) -> tuple[float, float, float, int, str]:
    """Seconds of the first answer of a freshly opened store, then the best wall and CPU time; rows and level."""
    connection = open_read_only(path, StoreSettings())
    query, wanted = CHARTS[name]
    given = {"start": end - timedelta(hours=hours), "end": end, **wanted}
    walls, cpus = [], []
    for _ in range(1 + warm):
        wall, cpu = time.perf_counter(), time.process_time()
        answer = queries.run(connection.cursor(), path, query, given)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    connection.close()
    level = answer.schema.metadata[b"level"].decode()
    return walls[0], min(walls[1:]), min(cpus[1:]), answer.num_rows, level


def charts(path: Path, end: datetime) -> None:
    """Every chart over every range."""
    print(f"{'chart':<26}{'range':>8}{'level':>8}{'rows':>7}{'cold':>9}{'warm':>9}{'CPU':>9}")
    worst = [0.0, 0.0]
    for label, hours in RANGES.items():
        for name in CHARTS:
            cold, warm, cpu, rows, level = ask(path, name, hours, end, 5)
            figures = "".join(f"{seconds * 1e3:>6.0f} ms" for seconds in (cold, warm, cpu))
            print(f"{name:<26}{label:>8}{level:>8}{rows:>7}{figures}", flush=True)
            worst = [max(worst[0], cold), max(worst[1], warm)]
    print(f"slowest: cold {worst[0] * 1e3:.0f} ms (budget {COLD_BUDGET_SECONDS * 1e3:.0f}), ", end="")
    print(f"warm {worst[1] * 1e3:.0f} ms (budget {WARM_BUDGET_SECONDS * 1e3:.0f})")


@contextmanager
def collector(folder: Path) -> Iterator[StoreClient]:
    """A collector that samples this host into the month."""
    environment = {**os.environ, "ENGINE_ROOM_DATA": str(folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "collectors", "run"], cwd=ROOT, env=environment, stderr=subprocess.DEVNULL
    )
    client = StoreClient(Settings(data=folder))
    deadline = time.monotonic() + 60
    try:
        while True:
            try:
                client.health()
                break
            except StoreUnavailableError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
        yield client
    finally:
        process.terminate()
        process.wait(30)


def move_about(
    folder: Path, end: datetime, person: int, until: float, answers: list[float], refused: list[int]
) -> None:
    """One person: another range every second, all charts of it."""
    client, turn = StoreClient(Settings(data=folder)), person
    hours = list(RANGES.values())
    while time.monotonic() < until:
        for query, given in CHARTS.values():
            began = time.monotonic()
            try:
                span = {"start": end - timedelta(hours=hours[turn % len(hours)]), "end": end - timedelta(seconds=turn)}
                client.query(query, {**span, **given})
            except StoreBusyError:
                refused.append(1)
            else:
                answers.append(time.monotonic() - began)
        turn += 1
        time.sleep(1.0)


def people(folder: Path, end: datetime) -> None:
    """Eight people while a collector samples; how late its samples were without and with them."""
    with collector(folder) as client:
        time.sleep(20)
        between = datetime.now(UTC)
        answers: list[float] = []
        refused: list[int] = []
        until = time.monotonic() + PEOPLE_SECONDS
        threads = [
            threading.Thread(target=move_about, args=(folder, end, person, until, answers, refused))
            for person in range(PEOPLE)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        after = datetime.now(UTC)
        time.sleep(2)
        rows = b"".join(client.export_csv("source_health", between - timedelta(seconds=15), after, None))
    table = csv.read_csv(pa.BufferReader(rows))
    times = pc.cast(table["ts"], pa.timestamp("us", "UTC"))
    print(f"{PEOPLE} people for {PEOPLE_SECONDS:.0f} s: {len(answers)} answers, {len(refused)} told that it is busy")
    print(f"  median answer {sorted(answers)[len(answers) // 2] * 1e3:.0f} ms")
    for label, chosen in (("without", pc.less(times, between)), ("with", pc.greater_equal(times, between))):
        late = table.filter(chosen)["lateness_seconds"]
        worst, median = pc.max(late).as_py(), pc.quantile(late)[0].as_py()
        print(f"  samples {label:<8} worst {worst * 1e3:6.1f} ms late, median {median * 1e3:.1f} ms")
    print(f"  budget {LATE_BUDGET_SECONDS * 1e3:.0f} ms")


@contextmanager
def copied_month() -> Iterator[tuple[Path, datetime]]:
    """A copy of the month that the command line names, or one made anew: its folder, and when it ends."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if len(sys.argv) > 1:
            shutil.copy(Path(sys.argv[1]) / "telemetry.duckdb", folder / "telemetry.duckdb")
        else:
            for step, seconds in month.make(folder).items():
                print(f"{step:<12}{seconds:8.1f} s")
        with open_read_only(folder / "telemetry.duckdb", StoreSettings()) as connection:
            end = connection.execute("SELECT max(ts) FROM host_sample").fetchall()[0][0].astimezone(UTC)
        yield folder, end


def main() -> None:
    """Measure and print."""
    with copied_month() as (folder, end):
        path = folder / "telemetry.duckdb"
        print(f"file        {path.stat().st_size / 1e6:8.0f} MB    budget 400 MB")
        charts(path, end)
        people(folder, end)


if __name__ == "__main__":
    main()
