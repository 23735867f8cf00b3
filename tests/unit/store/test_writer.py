"""The writer under ordinary use: order, batches, rows that cannot be stored, checkpoints, stopping."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any, cast

import pytest

from settings import StoreSettings
from store import checkpoints
from store.database import open_read_only, wal_path
from store.heartbeat import read_heartbeat
from store.local import LocalStore
from store.model import SourceState
from store.protocol import StoreError, StoreLockedError
from store.writer import Writer
from tests.support.rows import at, device_sample, engine, epoch, host_sample, sample
from tests.support.wait import until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.duckdb"


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    opened = Writer(path, StoreSettings())
    yield opened
    opened.close()


def _count(path: Path, table: str) -> int:
    connection = open_read_only(path, StoreSettings())
    rows = connection.execute(f"SELECT count(*) FROM {table}").fetchall()
    connection.close()
    return int(rows[0][0])


def test_rows_are_committed_without_being_asked_for(writer: Writer) -> None:
    writer.put([engine(), epoch(), sample(0)])
    until(lambda: writer.statistics().rows_written == 3, what="the next second's transaction")
    assert writer.health() == (SourceState.OK, None)


def test_statistics_tell_what_was_done(writer: Writer) -> None:
    assert writer.statistics().commits == 0
    writer.put([sample(0), sample(7)])
    writer.put([host_sample(3)])
    writer.flush()
    told = writer.statistics()
    assert (told.rows_written, told.rows_queued, told.rows_dropped, told.rows_rejected) == (3, 0, 0, 0)
    assert told.newest_ts == at(7)
    assert told.last_commit is not None
    assert told.last_commit.tzinfo is UTC
    assert told.last_commit_seconds is not None
    assert told.wal_bytes > 0


def test_a_row_that_its_table_cannot_hold_does_not_hold_up_the_others(writer: Writer) -> None:
    broken = replace(sample(1), generation_tokens_total=cast("float", "many"))
    nameless = replace(device_sample(1), host=cast("str", None))
    foreign: Any = object()
    writer.put([sample(0), broken, device_sample(0), nameless, foreign, sample(2)])
    writer.flush()
    store = LocalStore(writer, StoreSettings())
    (row,) = store.query("status").to_pylist()
    assert (row["rows_engine_sample"], row["rows_device_sample"]) == (2, 1)
    assert writer.statistics().rows_rejected == 3
    state, detail = writer.health()
    assert state == SourceState.PARTIAL
    assert detail is not None
    assert "3 rows could not be stored" in detail


def test_closing_stores_what_is_queued_and_leaves_one_file(path: Path) -> None:
    writer = Writer(path, StoreSettings())
    writer.put([sample(second) for second in range(100)])
    writer.close()
    writer.close()
    assert _count(path, "engine_sample") == 100
    assert not wal_path(path).exists()
    heartbeat = read_heartbeat(path)
    assert heartbeat is not None
    assert (heartbeat.newest, heartbeat.closed) == (at(99), True)
    with pytest.raises(StoreError, match="closed"):
        writer.cursor()


def test_a_large_log_is_folded_in_by_the_writer_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_WAL_BYTES", 50_000)
    monkeypatch.setattr(checkpoints, "QUIET_COMMIT_SECONDS", 60.0)
    writer = Writer(path, StoreSettings())
    writer.put([sample(second / 10) for second in range(3000)])
    writer.flush()
    until(lambda: writer.statistics().wal_bytes < 50_000, what="the checkpoint")
    writer.close()
    assert _count(path, "engine_sample") == 3000


def test_settings_of_the_connection(writer: Writer) -> None:
    cursor = writer.cursor()
    told = dict(
        cursor.execute(
            "SELECT name, value FROM duckdb_settings() WHERE name IN ('TimeZone', 'lock_configuration', "
            "'autoinstall_known_extensions', 'autoload_known_extensions', 'temp_directory', 'threads')"
        ).fetchall()
    )
    cursor.close()
    assert told == {
        "TimeZone": "UTC",
        "lock_configuration": "true",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "temp_directory": str(writer.path.parent / "spill"),
        "threads": str(StoreSettings().threads),
    }


def test_a_file_that_another_process_holds_is_refused_with_its_pid(path: Path, python: Any) -> None:
    Writer(path, StoreSettings()).close()
    holder = python(
        "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.readline()", path
    )
    assert holder.stdout.readline() == "open\n"
    with pytest.raises(StoreLockedError, match=f"process {holder.pid}"):
        Writer(path, StoreSettings())
    holder.communicate("\n", timeout=20)
    Writer(path, StoreSettings()).close()
