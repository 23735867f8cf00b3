"""
The same samples in Prometheus: `python -m benchmarks.prometheus FOLDER`, on what `benchmarks.peers` filled.

The last day, as benchmarks/peers.py exports it, becomes a block by promtool (Debian's package prometheus). Its bytes
by sample times the samples of the whole time are what Prometheus would need: a day is scaled to the whole because
promtool takes an hour for a month. Then the charts of the History page are asked of both in one run, over a day, 6 h
and 1 h with 400 steps, as in benchmarks/peers.py. Prometheus has no cache of results.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

from benchmarks.peers import ask_both, exported
from settings import StoreSettings
from store.database import open_read_only
from tests.support.browser import answers
from tests.support.wait import free_port, until

SPAN = timedelta(days=1)
RANGES = (timedelta(days=1), timedelta(hours=6), timedelta(hours=1))


class Prometheus:
    """A Prometheus process on the blocks of a folder, which scrapes nothing."""

    def __init__(self, blocks: Path, configuration: Path) -> None:
        configuration.write_text("scrape_configs: []\n", encoding="utf-8")
        self._port = free_port()
        self._command = [
            "prometheus",
            f"--config.file={configuration}",
            f"--storage.tsdb.path={blocks}",
            "--storage.tsdb.retention.time=10y",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Start it, wait until it answers, and end it again."""
        with subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                until(lambda: answers(f"http://127.0.0.1:{self._port}/-/ready"), 120, "Prometheus to be ready")
                yield
            finally:
                process.terminate()

    def query(self, expression: str, start: datetime, end: datetime, step: int) -> int:
        """Answer a range query; returns its number of series."""
        asked = {"query": expression, "start": start.timestamp(), "end": end.timestamp(), "step": step}
        with urlopen(f"http://127.0.0.1:{self._port}/api/v1/query_range?{urlencode(asked)}", timeout=600) as answer:
            return len(json.load(answer)["data"]["result"])


def open_metrics(lines: Path, target: Path) -> int:
    """JSON lines of `benchmarks.peers` as OpenMetrics text; returns the number of samples."""
    samples = 0
    with lines.open(encoding="utf-8") as source, target.open("w", encoding="utf-8") as sink:
        for line in source:
            series = json.loads(line)
            labels = dict(series["metric"])
            name = labels.pop("__name__")
            told = ",".join(f'{key}="{value}"' for key, value in labels.items())
            for moment, value in sorted(zip(series["timestamps"], series["values"], strict=True)):
                sink.write(f"{name}{{{told}}} {value} {moment / 1000:.3f}\n")
                samples += 1
        sink.write("# EOF\n")
    return samples


def main() -> int:
    """Print sizes and times, and exit 1 when ours is larger than Prometheus's for the same samples, or slower."""
    if shutil.which("promtool") is None:
        print("skipped: promtool is not installed (Debian package prometheus)")
        return 0
    if len(sys.argv) != 2:
        print("skipped: it needs a folder that python -m benchmarks.peers --fill has filled")
        return 0
    folder = Path(sys.argv[1])
    state = json.loads((folder / "peers.json").read_text())
    start, end = datetime.fromisoformat(state["start"]), datetime.fromisoformat(state["end"])
    with tempfile.TemporaryDirectory(prefix="engine-room-prometheus-") as name:
        lines, text, blocks = (Path(name) / part for part in ("lines.jsonl", "samples.om", "blocks"))
        with open_read_only(folder / "telemetry.duckdb", StoreSettings()) as connection:
            exported(connection, end - SPAN, end, lines)
        samples = open_metrics(lines, text)
        command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "--max-block-duration=24h"]
        subprocess.run([*command, str(text), str(blocks)], check=True, stdout=subprocess.DEVNULL)
        size = sum(path.stat().st_size for path in blocks.rglob("*") if path.is_file())
        text.unlink()
        days = (end - start) / timedelta(days=1)
        whole = size * ((end - start) / SPAN)
        size_ours = (folder / "telemetry.duckdb").stat().st_size
        print(f"Prometheus: {samples:,} samples of {SPAN} in {size / 1e6:.1f} MB, {size / samples:.2f} bytes each")
        print(
            f"{days:.1f} days: {whole / 1e6:.0f} MB (scaled), ours {size_ours / 1e6:.0f} MB: {whole / size_ours:.2f}x"
        )
        theirs = Prometheus(blocks, Path(name) / "prometheus.yml")
        slower = ask_both(folder, end, RANGES, theirs.running, {"theirs": theirs.query})
    return int(size_ours > whole or any(slower))


if __name__ == "__main__":
    sys.exit(main())
