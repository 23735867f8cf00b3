"""kill -9, a damaged log and a full disk: what was committed stays, and what is missing is told."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from settings import StoreSettings
from store.database import wal_path
from store.local import LocalStore
from store.model import SourceState
from store.writer import Writer
from tests.support.rows import T0, at

# Writes 50 samples and 10 device samples a round and tells each round that has been committed.
WRITE_FOREVER = """
import sys
from pathlib import Path
from settings import StoreSettings
from store.writer import Writer
from tests.support.rows import sample, device_sample
writer = Writer(Path(sys.argv[1]), StoreSettings(), host="host-a")
second = float(sys.argv[2])
while True:
    rows = [sample(second + i / 100, generation_tokens_total=second) for i in range(50)]
    writer.put(rows + [device_sample(second + i / 100, memory_used_bytes=1) for i in range(10)])
    writer.flush()
    print(int(second), flush=True)
    second += 1
"""


def _acknowledged_before_kill(process: Any, rounds: int) -> int:
    """Kill the writer as soon as it has told `rounds` rounds; the last round that it told."""
    lines = [process.stdout.readline() for _ in range(rounds)]
    os.kill(process.pid, signal.SIGKILL)
    lines += process.stdout.read().splitlines()  # not communicate(): it misses what readline() has read ahead
    process.wait(20)
    return max(int(line) for line in lines if line.strip())


def _rounds(store: LocalStore) -> dict[int, int]:
    csv = b"".join(store.export_csv("engine_sample", None, None, None)).decode().splitlines()
    tokens = csv[0].split(",").index("generation_tokens_total")
    counts: dict[int, int] = {}
    for line in csv[1:]:
        second = int(float(line.split(",")[tokens]))
        counts[second] = counts.get(second, 0) + 1
    return counts


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path, python: Any) -> None:
    path, first, acknowledged = tmp_path / "telemetry.duckdb", 0, set()
    for kill in range(4):
        process = python(WRITE_FOREVER, path, first)
        last = _acknowledged_before_kill(process, rounds=3 + 5 * kill)
        acknowledged |= set(range(first, last + 1))
        first = last + 2  # a round that was committed but not yet told may exist
    writer = Writer(path, StoreSettings())
    found = _rounds(LocalStore(writer, StoreSettings()))
    events = LocalStore(writer, StoreSettings()).query("events", {"start": T0, "end": at(10**9)}).to_pylist()
    writer.close()
    assert acknowledged <= set(found)
    assert set(found.values()) == {50}, "a round is stored as a whole or not at all"
    assert [event for event in events if event["kind"] == "store_gap"] == []


def test_rows_lost_with_a_damaged_log_are_told_and_the_log_is_kept(tmp_path: Path, python: Any) -> None:
    path = tmp_path / "telemetry.duckdb"
    last = _acknowledged_before_kill(python(WRITE_FOREVER, path, 0), rounds=10)
    wal = wal_path(path)
    damaged = bytearray(wal.read_bytes())
    middle = len(damaged) // 2
    damaged[middle : middle + 64] = b"\xff" * 64
    wal.write_bytes(damaged)
    writer = Writer(path, StoreSettings(), host="host-a")
    writer.flush()
    store = LocalStore(writer, StoreSettings())
    assert last not in _rounds(store)
    events = [e for e in store.query("events", {"start": T0, "end": at(10**9)}).to_pylist() if e["kind"] == "store_gap"]
    writer.close()
    assert len(events) == 1
    assert events[0]["host"] == "host-a"
    kept = list(tmp_path.glob("telemetry.duckdb.wal.kept-*"))
    assert [copy.read_bytes() for copy in kept] == [bytes(damaged)]
    assert str(kept[0]) in events[0]["text"]
    assert json.loads(events[0]["details"])["committed"].startswith("2026-11-30T12:00:")


def test_only_the_two_newest_logs_are_kept(tmp_path: Path, python: Any) -> None:
    path = tmp_path / "telemetry.duckdb"
    for start in (0, 100, 200, 300):
        _acknowledged_before_kill(python(WRITE_FOREVER, path, start), rounds=1)
    Writer(path, StoreSettings()).close()
    assert len(list(tmp_path.glob("telemetry.duckdb.wal.kept-*"))) == 2


def test_an_orderly_stop_leaves_no_gap_to_tell(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.duckdb"
    for _ in range(2):
        writer = Writer(path, StoreSettings())
        (row,) = LocalStore(writer, StoreSettings()).query("status").to_pylist()
        assert row["rows_event"] == 0
        writer.close()


# The limit on the size of a file stands for a full disk: a write beyond it fails with EFBIG.
FULL_DISK = """
import json, resource, signal, sys
from pathlib import Path
from settings import StoreSettings
from store import writer as writer_module
from store.local import LocalStore
from store.writer import Writer
from tests.support.rows import sample
from tests.support.wait import until
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
writer_module.MAX_QUEUED_ROWS = 2000
path = Path(sys.argv[1])
writer = Writer(path, StoreSettings())
writer.put([sample(i, generation_tokens_total=i) for i in range(100)])
writer.flush()
size = path.stat().st_size + writer.statistics().wal_bytes
resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
told = {}
writer.put([sample(i, generation_tokens_total=i) for i in range(100, 1600)])
until(lambda: writer.health()[0] == "error", what="the failed write")
told["full"] = writer.health()
told["full_statistics"] = [writer.statistics().rows_queued, writer.statistics().rows_dropped]
(row,) = LocalStore(writer, StoreSettings()).query("status").to_pylist()
told["readable_meanwhile"] = row["rows_engine_sample"]
writer.put([sample(i, generation_tokens_total=i) for i in range(1600, 2600)])
told["over_statistics"] = [writer.statistics().rows_queued, writer.statistics().rows_dropped]
try:
    writer.flush(timeout_seconds=0.2)
except Exception as error:
    told["flush"] = [type(error).__name__, str(error)]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.flush()
told["after"] = writer.health()
told["after_statistics"] = [writer.statistics().rows_written, writer.statistics().rows_dropped]
writer.close()
print(json.dumps(told))
"""


def test_a_full_disk_loses_nothing_until_the_bound_and_then_the_oldest(tmp_path: Path, python: Any) -> None:
    path = tmp_path / "telemetry.duckdb"
    out, err = python(FULL_DISK, path).communicate(timeout=60)
    assert out, err  # the log comes first, the result is the last line
    told = json.loads(out.splitlines()[-1])
    state, detail = told["full"]
    assert state == SourceState.ERROR
    assert "Free some disk space" in detail
    assert "File too large" in detail
    # 1500 of 2000 rows wait: there is room for 500 more.
    assert "500 rows" in detail
    assert told["full_statistics"] == [1500, 0]
    assert told["readable_meanwhile"] == 100
    # 2500 rows wait, 2000 may: the 500 oldest are dropped and counted.
    assert told["over_statistics"][1] == 500
    assert told["flush"][0] == "StoreError"
    assert told["after_statistics"] == [100 + 2000, 500]
    assert told["after"][0] == SourceState.PARTIAL
    assert "500 rows were dropped" in told["after"][1]
    writer = Writer(path, StoreSettings())
    found = sorted(_rounds(LocalStore(writer, StoreSettings())))
    writer.close()
    assert found == [*range(100), *range(600, 2600)]


# The file may not grow, its log may: the checkpoint fails half-way, and DuckDB then refuses everything else.
FULL_DISK_AT_CHECKPOINT = """
import json, random, resource, signal, sys
from pathlib import Path
from settings import StoreSettings
from store import checkpoints
from store.local import LocalStore
from store.writer import Writer
from tests.support.rows import sample
from tests.support.wait import until
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
checkpoints.CHECKPOINT_WAL_BYTES = 200_000
checkpoints.QUIET_COMMIT_SECONDS = 60
def rows(first, count):
    return [sample(i, generation_tokens_total=random.random()) for i in range(first, first + count)]
path = Path(sys.argv[1])
writer = Writer(path, StoreSettings())
writer.put(rows(0, 20_000))
writer.flush()
until(lambda: writer.statistics().wal_bytes == 0, what="the first checkpoint")
resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 4096, resource.RLIM_INFINITY))
told = {}
writer.put(rows(20_000, 3000))
writer.flush()
until(lambda: writer.health()[0] == "partial", what="the failed checkpoint")
told["full"] = writer.health()
writer.put(rows(23_000, 10))
writer.flush()
(row,) = LocalStore(writer, StoreSettings()).query("status").to_pylist()
told["rows"] = row["rows_engine_sample"]
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
writer.close()
print(json.dumps(told))
"""


def test_a_disk_that_is_full_at_a_checkpoint_loses_nothing(tmp_path: Path, python: Any) -> None:
    path = tmp_path / "telemetry.duckdb"
    out, err = python(FULL_DISK_AT_CHECKPOINT, path).communicate(timeout=60)
    assert out, err
    told = json.loads(out.splitlines()[-1])
    assert told["full"][0] == SourceState.PARTIAL
    assert "Free some disk space" in told["full"][1]
    assert told["rows"] == 23_010
    writer = Writer(path, StoreSettings())
    (row,) = LocalStore(writer, StoreSettings()).query("status").to_pylist()
    writer.close()
    assert (row["rows_engine_sample"], row["rows_event"]) == (23_010, 0)


@pytest.mark.parametrize("content", ["", "{", '{"newest": 5, "closed": false}', "[]"])
def test_a_broken_heartbeat_stops_nothing(tmp_path: Path, content: str) -> None:
    path = tmp_path / "telemetry.duckdb"
    Writer(path, StoreSettings()).close()
    (tmp_path / "telemetry.heartbeat.json").write_text(content)
    writer = Writer(path, StoreSettings())
    assert writer.health() == (SourceState.OK, None)
    writer.close()
