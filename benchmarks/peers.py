"""
The same month in VictoriaMetrics: `python -m benchmarks.peers --fill FOLDER`, then `--compare FOLDER`.

Needs Debian's package victoria-metrics; without it, or without a folder (filling takes long), it says so and ends.
A fill that is cut off is compared as far as it came. Each step of `benchmarks/month.py` goes into both stores: ours
with rollups and retention as a collector keeps them, theirs raw for the whole time, as Prometheus would scrape it
from exporters at the same intervals: every number of engine_sample, device_sample, host_sample, process_memory and
every histogram bucket, but neither states nor texts. Then the charts of the History page are asked of both in one
run, over 30, 7 and 1 days with 400 steps: cold (process and page cache fresh), warm (at once again), and theirs also
out of their cache of results, which ours does not have. Theirs are the range queries that a dashboard would make, one
after another: rates by rate(), gauges by avg_, min_ and max_over_time(), percentiles by histogram_quantile() over
rate(). They are drawn from raw samples; 30 days of them are asked only where the fill came so far.
"""

from __future__ import annotations

import argparse
import http.client
import json
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from urllib.parse import urlencode

import duckdb

from benchmarks import month
from settings import Settings, StoreSettings
from store import rollup
from store.database import open_for_writing, open_read_only
from store.protocol import Parameter
from store.reads import Reader
from tests.support.wait import free_port, until

STEPS = 400
RANGES_DAYS = (30, 7, 1)
CHUNK_BYTES = 1 << 20
# A metric of the exporter, by the table that holds its samples: its labels, and its columns.
EXPORTED: Mapping[str, tuple[str, str]] = {
    "engine_sample": ("engine_id", "* EXCLUDE (ts, monotonic_seconds, host, engine_id, epoch_id, state, detail)"),
    "device_sample": ("device_id", "* EXCLUDE (ts, host, device_id, state, detail)"),
    "host_sample": ("host", "* EXCLUDE (ts, host)"),
}
GAUGES = {
    "engine": ("requests_running", "requests_waiting", "kv_used_fraction"),
    "device": ("memory_used_bytes", "utilisation_fraction", "power_watts", "temperature_celsius", "sm_clock_hertz"),
    "host": ("cpu_fraction", "memory_used_bytes", "swap_used_bytes", "load_1m"),
}


def charts(step: int) -> dict[str, list[str]]:
    """Our query of each chart, and what it takes to draw the same from theirs."""

    def over_time(table: str) -> list[str]:
        return [f"{how}_over_time({table}_{name}[{step}s])" for name in GAUGES[table] for how in ("avg", "min", "max")]

    rate = f"[{max(step, 60)}s]"
    return {
        "engine_series": [
            f"rate(engine_generation_tokens_total{rate})",
            f"rate(engine_prompt_tokens_total{rate})",
            *over_time("engine"),
        ],
        "latency_series": [
            f"histogram_quantile({q}, sum by (engine_id, quantity, le) (rate(latency_bucket{rate})))"
            for q in (0.5, 0.95, 0.99)
        ],
        "device_series": over_time("device"),
        "device_memory_series": [
            f"avg_over_time(process_memory_bytes{{device_id!=''}}[{step}s])",
            f"avg_over_time(device_memory_used_bytes[{step}s])",
        ],
        "engine_memory_series": [
            f"{how}_over_time(process_memory_bytes{{device_id=''}}[{step}s])" for how in ("avg", "min", "max")
        ],
        "host_series": over_time("host"),
        "host_memory_series": [
            f"avg_over_time(process_memory_bytes{{device_id=''}}[{step}s])",
            f"avg_over_time(host_memory_available_bytes[{step}s])",
        ],
    }


class Victoria:
    """A VictoriaMetrics process on a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._port = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until it answers."""
        self._port = free_port()
        command = ["victoria-metrics", f"-storageDataPath={self.folder}", f"-httpListenAddr=127.0.0.1:{self._port}"]
        limits = ["-retentionPeriod=10y", "-search.maxPointsPerTimeseries=100000", "-search.maxQueryDuration=10m"]
        self._process = subprocess.Popen([*command, *limits], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until(self._answers, 60, "VictoriaMetrics to answer")

    def stop(self) -> None:
        """End it; it writes what it holds first."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(300)
            self._process = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Between `start` and `stop`."""
        self.start()
        try:
            yield
        finally:
            self.stop()

    def load(self, lines: Path) -> None:
        """Import a file of JSON lines."""
        with lines.open("rb") as source:
            self._ask("POST", "/api/v1/import", iter(lambda: source.read(CHUNK_BYTES), b""))

    def merge(self) -> None:
        """Have all parts merged, as its background merges do in time, and wait for it."""
        self._ask("GET", "/internal/force_flush")
        self._ask("GET", "/internal/force_merge")
        until(lambda: b"vm_active_force_merges 0" in self._ask("GET", "/metrics"), 3600, "the merge")

    def query(self, expression: str, start: datetime, end: datetime, step: int, *, cached: bool = False) -> int:
        """Answer a range query; returns its number of series."""
        asked = {"query": expression, "start": start.timestamp(), "end": end.timestamp(), "step": step}
        asked["nocache"] = int(not cached)
        return len(json.loads(self._ask("GET", f"/api/v1/query_range?{urlencode(asked)}"))["data"]["result"])

    def samples(self) -> int:
        """How many samples it holds, by its own count."""
        text = self._ask("GET", "/metrics").decode()
        return sum(
            int(float(line.rsplit(" ", 1)[1])) for line in text.splitlines() if line.startswith('vm_rows{type="storage')
        )

    def _ask(self, method: str, path: str, body: Iterator[bytes] | None = None) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=3600)
        try:
            connection.request(method, path, body=body, encode_chunked=body is not None,
                               headers={"Transfer-Encoding": "chunked"} if body is not None else {})  # fmt: skip
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"VictoriaMetrics answered {answer.status}: {content[:300]!r}")
        return content

    def _answers(self) -> bool:
        try:
            return self._ask("GET", "/health") == b"OK"
        except OSError:
            return False


def exported(connection: duckdb.DuckDBPyConnection, begin: datetime, end: datetime, target: Path) -> None:
    """Write the samples of [begin, end) as VictoriaMetrics' JSON lines, one line a series."""
    where = f"ts >= TIMESTAMPTZ '{begin.isoformat()}' AND ts < TIMESTAMPTZ '{end.isoformat()}'"
    # From what, by which columns a series, and its name and labels as JSON.
    parts: list[tuple[str, str, str]] = []
    for table, (label, columns) in EXPORTED.items():
        source = (
            f"(UNPIVOT (SELECT ts, {label}, (COLUMNS({columns}))::DOUBLE FROM {table} WHERE {where}) "
            f"ON COLUMNS(* EXCLUDE (ts, {label})) INTO NAME name VALUE value)"
        )
        name = f"{table.removesuffix('_sample')}_"
        parts.append((source, f"{label}, name", f"{{'__name__': '{name}' || name, '{label}': {label}}}"))
    for name in ("memory_bytes", "cpu_cores"):
        source = (
            f"(SELECT ts, engine_id, coalesce(device_id, '') AS device_id, {name}::DOUBLE AS value FROM process_memory "
            f"WHERE {where} AND {name} IS NOT NULL)"
        )
        labels = f"{{'__name__': 'process_{name}', 'engine_id': engine_id, 'device_id': device_id}}"
        parts.append((source, "engine_id, device_id", labels))
    for name, column, only in (("bucket", "cumulative_count", "true"), ("sum", "sum_seconds", "isinf(le)")):
        source = f"(SELECT ts, engine_id, quantity, le, {column} AS value FROM latency_bucket WHERE {where} AND {only})"
        bound = "CASE WHEN isinf(le) THEN '+Inf' ELSE le::VARCHAR END"
        labels = f"{{'__name__': 'latency_{name}', 'engine_id': engine_id, 'quantity': quantity, 'le': {bound}}}"
        parts.append((source, "engine_id, quantity, le", labels))
    with target.open("wb") as whole:
        for source, series, labels in parts:
            values, times = (f"string_agg({what}::VARCHAR, ',')" for what in ("value", "epoch_ms(ts)"))
            line = (
                f"""'{{"metric":' || to_json({labels})::VARCHAR || ',"values":[' || {values} || '],"timestamps":[' """
                f"|| {times} || ']}}'"
            )
            connection.execute(
                f"COPY (SELECT {line} FROM {source} GROUP BY {series}) TO '{target}.part' "
                "(FORMAT csv, HEADER false, DELIMITER '\x01', QUOTE '', ESCAPE '')"
            )
            with Path(f"{target}.part").open("rb") as added:
                shutil.copyfileobj(added, whole, CHUNK_BYTES)
    Path(f"{target}.part").unlink()


def fill(folder: Path, victoria: Victoria, days: int) -> None:
    """Write the month into both stores, step by step, and how far it came into peers.json."""
    end = datetime.now(UTC).replace(microsecond=0)
    start = end - timedelta(days=days)
    connection = open_for_writing(folder / "telemetry.duckdb", StoreSettings(memory_limit="2GB", threads=2))
    spent: dict[str, float] = defaultdict(float)
    month.prepare(connection, start, end)
    begin = start
    while begin < end:
        until_step = min(rollup.floor(begin, month.STEP) + month.STEP, end)
        month.one_step(connection, begin, until_step, spent)
        clock = time.perf_counter()
        lines = folder / "step.jsonl"
        exported(connection, begin, until_step, lines)
        spent["write theirs as text"] += time.perf_counter() - clock
        clock = time.perf_counter()
        victoria.load(lines)
        spent["import theirs"] += time.perf_counter() - clock
        lines.unlink()
        state = {"start": start.isoformat(), "end": until_step.isoformat(), "seconds": spent}
        (folder / "peers.json").write_text(json.dumps(state))
        print(f"  {begin:%Y-%m-%d %H:%M} in both", flush=True)
        begin = until_step
    connection.close()


@contextmanager
def ours(folder: Path) -> Iterator[Reader]:
    """The store as the read API opens it, with the settings that a collector has."""
    settings = Settings(data=folder).store
    with open_read_only(folder / "telemetry.duckdb", settings) as connection:
        yield Reader(folder / "telemetry.duckdb", settings, connection.cursor)


def forget_pages() -> None:
    """Have the system read files from the disk again, where we may."""
    subprocess.run(["sync"], check=True)
    try:
        Path("/proc/sys/vm/drop_caches").write_text("3")
    except OSError:
        print("  the page cache cannot be emptied here: cold means a fresh process only")


def compare(folder: Path, victoria: Victoria) -> int:
    """Compare sizes and ask every chart of both; returns how often ours came off worse."""
    state = json.loads((folder / "peers.json").read_text())
    start, end = datetime.fromisoformat(state["start"]), datetime.fromisoformat(state["end"])
    days = (end - start) / timedelta(days=1)
    with victoria.running():
        samples = victoria.samples()
        clock = time.perf_counter()
        victoria.merge()
        state["seconds"]["merge theirs"] = time.perf_counter() - clock
    for step, seconds in state["seconds"].items():
        print(f"  {step:<22}{seconds:8.1f} s")
    size, theirs = (folder / "telemetry.duckdb").stat().st_size, _bytes(victoria.folder)
    print(
        f"{days:.1f} days: ours {size / 1e6:.0f} MB after retention; theirs {theirs / 1e6:.0f} MB for {samples:,} "
        f"samples, {theirs / samples:.2f} bytes each: {theirs / size:.2f}x ours"
    )
    spans = [min(timedelta(days=wanted), end - start) for wanted in RANGES_DAYS if wanted <= days + 0.5]
    asked = {"theirs": victoria.query, "theirs cached": partial(victoria.query, cached=True)}
    slower_cold, _ = ask_both(folder, end, spans, victoria.running, asked)
    return int(size > theirs) + slower_cold


def ask_both(
    folder: Path,
    end: datetime,
    spans: Sequence[timedelta],
    running: Callable[[], AbstractContextManager[None]],
    theirs: Mapping[str, Callable[[str, datetime, datetime, int], int]],
) -> tuple[int, int]:
    """
    Ask every chart of ours and of theirs over each of the spans before `end`, cold and warm, and print the times.

    `running`: theirs for so long; `theirs`: their ways to answer a range query by name, compared with the first.
    Returns how often ours was slower, cold and warm.
    """
    first, *more = theirs
    heads = ("ours cold", f"{first} cold", "ours warm", f"{first} warm", *more)
    print(f"\n{'chart':<22}{'range':>7}{''.join(f'{head:>15}' for head in heads)}   theirs by ours, cold and warm")
    slower_cold = slower_warm = 0
    for span in spans:
        begin, step = end - span, max(1, int(span.total_seconds() / STEPS))
        label = f"{span.days} d" if span.days else f"{span.seconds // 3600} h"
        for name, expressions in charts(step).items():
            given: dict[str, Parameter] = {"start": begin, "end": end, "points": STEPS}
            forget_pages()
            with ours(folder) as reader:
                our = timed(lambda r=reader, n=name, g=given: r.query(n, g))
            forget_pages()
            with running():
                their, *others = (
                    timed(lambda q=query, x=expressions, b=begin, s=step: [q(wanted, b, end, s) for wanted in x])
                    for query in theirs.values()
                )
            slower_cold += our[0] > their[0]
            slower_warm += our[1] > their[1]
            figures = (our[0], their[0], our[1], their[1], *(warm for _, warm in others))
            print(
                f"{name:<22}{label:>7}{''.join(f'{figure:>12.1f} ms' for figure in figures)}"
                f"   {their[0] / our[0]:.1f}x, {their[1] / our[1]:.1f}x",
                flush=True,
            )
    return slower_cold, slower_warm


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of the first run, and of the quickest of three that follow."""
    taken = []
    for _ in range(4):
        began = time.perf_counter()
        work()
        taken.append((time.perf_counter() - began) * 1000)
    return taken[0], min(taken[1:])


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(arguments: Sequence[str] | None = None) -> int:
    """Fill both stores, or compare what was filled; exit 1 when ours is larger or slower."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers")
    parser.add_argument("--fill", type=Path, metavar="FOLDER", help="write the month into both stores, in a new folder")
    parser.add_argument("--compare", type=Path, metavar="FOLDER", help="measure what was filled")
    parser.add_argument("--days", type=int, default=month.DAYS)
    given = parser.parse_args(arguments)
    folder = given.fill or given.compare
    if shutil.which("victoria-metrics") is None:
        print("skipped: victoria-metrics is not installed (Debian package victoria-metrics)")
        return 0
    if folder is None:
        print(
            "skipped: filling both stores takes long; python -m benchmarks.peers --fill FOLDER, then --compare FOLDER"
        )
        return 0
    victoria = Victoria(folder / "victoria")
    try:
        if given.fill:
            given.fill.mkdir(parents=True)
            victoria.start()
            fill(folder, victoria, given.days)
            return 0
        return int(compare(folder, victoria) > 0)
    finally:
        victoria.stop()


if __name__ == "__main__":
    sys.exit(main())
