"""
What Prometheus needs for a sample: `python -m benchmarks.prometheus FOLDER`, on what `benchmarks.peers` filled.

The last four hours of the month, as benchmarks/peers.py exports them, become a block by promtool (Debian's package
prometheus); its bytes by sample times the samples of the whole time are what Prometheus would need. Four hours are
scaled to the whole because promtool takes an hour for a month; a block of many hours spends less on its index.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.peers import exported
from settings import StoreSettings
from store.database import open_read_only

SPAN = timedelta(hours=4)


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
    """Print bytes by sample, and exit 1 when our file is larger than Prometheus's for the same samples."""
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
    days = (end - start) / timedelta(days=1)
    whole = size * ((end - start) / SPAN)
    ours = (folder / "telemetry.duckdb").stat().st_size
    print(f"Prometheus: {samples:,} samples of {SPAN} in {size / 1e6:.1f} MB, {size / samples:.2f} bytes each")
    print(f"{days:.1f} days: {whole / 1e6:.0f} MB (scaled), ours {ours / 1e6:.0f} MB: {whole / ours:.2f}x ours")
    return int(ours > whole)


if __name__ == "__main__":
    sys.exit(main())
