"""
`python -m store snapshot`: a consistent copy, opened with plain DuckDB, whatever goes on meanwhile.

Expected values are the rows that the tests themselves write: rounds of 50 samples whose counter is the round's number.
"""

import itertools
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest

from settings import Settings, StoreSettings
from store import checkpoints, snapshot
from store.client import StoreClient
from store.database import wal_bytes
from store.protocol import StoreError, StoreUnavailableError
from store.writer import Writer
from tests.support.rows import engine, epoch, sample
from tests.support.wait import until

ROOT = Path(__file__).resolve().parents[3]

# A store of some megabytes that is served and written to: tells each round that has been committed.
SERVE_AND_WRITE = """
import random
from datetime import UTC, datetime
from settings import load
from store import address
from store.server import serve
from store.writer import Writer
from tests.support.rows import engine, epoch, sample
settings = load()
writer = Writer(settings.store_path, settings.store, host="host-a")
chance = random.Random(7)
writer.put([engine(), epoch()])
writer.put([sample(-1 - i, "earlier", prompt_tokens_total=chance.random()) for i in range(100_000)])
writer.flush()
server = serve(writer, settings, dict)
address.write(settings.run_folder, server.address(started=datetime.now(UTC), started_by="test"))
round = 0
while True:
    writer.put([sample(round + i / 100, generation_tokens_total=round) for i in range(50)])
    writer.flush()
    print(round, flush=True)
    round += 1
"""


def _command(settings: Settings, target: Path, before: str = "pass") -> subprocess.CompletedProcess[str]:
    code = f"import sys; from store.__main__ import main; {before}; sys.exit(main(['snapshot', sys.argv[1]]))"
    return subprocess.run(
        [sys.executable, "-c", code, str(target)],
        cwd=ROOT,
        env={"ENGINE_ROOM_DATA": str(settings.data), "PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _rounds(path: Path) -> dict[int, int]:
    """Round: rows, as plain DuckDB with nothing of ours sees them."""
    with duckdb.connect(str(path), read_only=True) as plain:
        found = plain.sql(
            "SELECT generation_tokens_total::INT, count(*) FROM engine_sample WHERE epoch_id <> 'earlier' GROUP BY 1"
        ).fetchall()
    return dict(found)


def test_a_copy_while_rows_are_written_holds_every_row_that_was_told_before(
    settings: Settings, tmp_path: Path, python: Any
) -> None:
    collector = python(SERVE_AND_WRITE, data=settings.data)
    for copy in range(3):
        told = int(collector.stdout.readline())
        target = tmp_path / f"copy-{copy}.duckdb"
        done = _command(settings, target)
        assert done.returncode == 0, done.stderr
        found = _rounds(target)
        assert sorted(found) == list(range(len(found))), "rounds without a hole"
        assert set(found.values()) == {50}, "a round is there as a whole or not at all"
        assert len(found) > told
        assert done.stdout == f"{target}: {target.stat().st_size:,} bytes\n"
        assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "copy-0.duckdb",
        "copy-1.duckdb",
        "copy-2.duckdb",
        "data",
    ]
    assert collector.poll() is None


def test_the_copy_has_tables_views_and_comments_of_the_store(settings: Settings, tmp_path: Path) -> None:
    with_views = (
        "SELECT table_name, column_name, data_type, comment FROM duckdb_columns() WHERE NOT internal ORDER BY ALL"
    )
    writer = Writer(settings.store_path, settings.store)
    writer.put([engine(), epoch(), *(sample(second, generation_tokens_total=2.0 * second) for second in range(10))])
    target = tmp_path / "copy.duckdb"
    snapshot.write(snapshot.live(writer), target)
    described = writer.cursor().sql(with_views).fetchall()
    writer.close()
    with duckdb.connect(str(target), read_only=True) as plain:
        assert plain.sql(with_views).fetchall() == described
        # Two tokens a second in each of nine pairs.
        rates = plain.sql("SELECT sum(increase), max(per_second) FROM engine_rate WHERE quantity = 'generation_tokens'")
        assert rates.fetchall() == [(18.0, 2.0)]


def test_commits_go_on_and_checkpoints_wait_while_a_copy_is_made(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_WAL_BYTES", 1)
    monkeypatch.setattr(checkpoints, "QUIET_COMMIT_SECONDS", 60.0)
    writer = Writer(settings.store_path, StoreSettings())
    writer.put([sample(0, generation_tokens_total=0) for _ in range(50)])
    chunks = snapshot.live(writer)
    first = next(chunks)
    for round_number in (1, 2, 3):
        writer.put([sample(round_number, generation_tokens_total=round_number)])
        writer.flush()
    assert wal_bytes(settings.store_path) > 0
    snapshot.write(itertools.chain([first], chunks), tmp_path / "copy.duckdb")
    assert _rounds(tmp_path / "copy.duckdb") == {0: 50}
    writer.put([sample(4, generation_tokens_total=4)])
    until(lambda: wal_bytes(settings.store_path) == 0, what="the checkpoint that had been put off")
    writer.close()


def test_a_collector_that_is_killed_during_a_copy_leaves_nothing_half(
    settings: Settings, tmp_path: Path, python: Any
) -> None:
    collector = python(SERVE_AND_WRITE, data=settings.data)
    told = int(collector.stdout.readline())
    chunks = StoreClient(settings).snapshot()

    def cut_off() -> Iterator[bytes]:
        yield next(chunks)
        collector.kill()
        collector.wait(20)
        yield from chunks

    with pytest.raises(StoreUnavailableError, match="went away before its answer was complete"):
        snapshot.write(cut_off(), tmp_path / "copy.duckdb")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
    # The log of the killed collector is still beside the file: the copy without a collector has it folded in.
    assert wal_bytes(settings.store_path) > 0
    done = _command(settings, tmp_path / "copy.duckdb")
    assert done.returncode == 0, done.stderr
    assert set(range(told + 1)) <= set(_rounds(tmp_path / "copy.duckdb"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy.duckdb", "data"]


def _filled(settings: Settings) -> None:
    writer = Writer(settings.store_path, settings.store)
    writer.put([sample(second, generation_tokens_total=0) for second in range(50)])
    writer.close()


def test_a_file_that_is_there_is_left_as_it_is(settings: Settings, tmp_path: Path) -> None:
    _filled(settings)
    target = tmp_path / "precious.duckdb"
    target.write_text("precious")
    done = _command(settings, target)
    assert done.returncode == 1
    assert "is there already" in done.stderr
    assert target.read_text() == "precious"
    assert _command(settings, settings.store_path).returncode == 1
    assert _rounds(settings.store_path) == {0: 50}


@pytest.mark.parametrize(
    ("name", "before", "told"),
    [
        ("no/such/folder/copy.duckdb", "pass", "No such file or directory"),
        # The limit on the size of a file stands for a full disk, as in test_durability.py.
        (
            "copy.duckdb",
            "import resource, signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
            "resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))",
            "File too large",
        ),
    ],
)
def test_a_copy_that_cannot_be_written_says_so_and_leaves_nothing(
    settings: Settings, tmp_path: Path, name: str, before: str, told: str
) -> None:
    _filled(settings)
    done = _command(settings, tmp_path / name, before)
    assert done.returncode == 1
    assert told in done.stderr
    assert "has room for it" in done.stderr
    assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_closed_is_named(settings: Settings, tmp_path: Path) -> None:
    _filled(settings)
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    done = _command(settings, closed / "copy.duckdb")
    assert "Permission denied" in done.stderr


def test_without_a_store_it_says_what_to_start(settings: Settings, tmp_path: Path) -> None:
    done = _command(settings, tmp_path / "copy.duckdb")
    assert done.returncode == 1
    assert "start a collector" in done.stderr


def test_a_store_that_was_checkpointed_meanwhile_is_not_passed_off_as_a_copy(
    settings: Settings, tmp_path: Path
) -> None:
    _filled(settings)
    chunks = snapshot.stored(settings.store_path)
    first = next(chunks)
    _filled(settings)
    with pytest.raises(StoreError, match="rearranged"):
        snapshot.write(itertools.chain([first], chunks), tmp_path / "copy.duckdb")
    assert [path.name for path in tmp_path.iterdir()] == ["data"]
