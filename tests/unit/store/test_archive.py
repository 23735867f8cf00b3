"""
The daily Parquet archive: a row is in the store or in a file, and what reads it sees no difference.

Expected values are what the same queries answered before the rows left the store.
"""

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from settings import Settings, StoreSettings
from store import archive
from store.local import LocalStore
from store.maintenance import Maintenance
from store.protocol import StoreError
from store.writer import Writer
from tests.support.rows import HOST, T0, at, device, device_sample, engine, epoch, held, histogram, host_sample, sample

DAY = 86_400.0
FIRST, SECOND = date(2026, 11, 30), date(2026, 12, 1)  # T0 is noon of the first


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data=tmp_path / "data", host=HOST, store=StoreSettings(archive=True))


@pytest.fixture
def writer(settings: Settings) -> Iterator[Writer]:
    opened = Writer(settings.store_path, settings.store)
    opened.put([engine(), epoch()])
    # Three days, an hour between samples: 3 tokens a second. The second day begins at half a day after T0.
    opened.put([sample(3600.0 * hour, generation_tokens_total=3 * 3600.0 * hour) for hour in range(72)])
    opened.put([sample(DAY + i / 7, generation_tokens_total=3 * DAY + i) for i in range(1, 500)])
    opened.put([device_sample(60.0 * minute, memory_used_bytes=minute) for minute in range(3000)])
    for second in range(0, 7200, 60):
        opened.put(histogram(second, {0.1: second / 2, math.inf: second}, sum_seconds=second / 3))
    opened.flush()
    yield opened
    opened.close()


def _retire(writer: Writer, table: str, day: date) -> int:
    """What retention does: keep a day, then delete it, in one transaction."""
    cursor = writer.cursor()
    begin = datetime(day.year, day.month, day.day, tzinfo=UTC)
    cursor.begin()
    kept = archive.keep(cursor, writer.path, table, day)
    cursor.execute(
        f"DELETE FROM {table} WHERE ts >= $a AND ts < $b", {"a": begin, "b": begin + timedelta(days=1)}
    ).fetchall()
    cursor.commit()
    cursor.close()
    return kept


def _count(writer: Writer, table: str) -> int:
    cursor = writer.cursor()
    (count,) = cursor.execute(f"SELECT count(*) FROM {table}").fetchall()[0]
    cursor.close()
    return int(count)


def _exported(writer: Writer, settings: Settings, table: str, **given: Any) -> tuple[list[str], tuple[str, ...]]:
    export = LocalStore(writer, settings.store).export_csv(table, **given)
    header, *rows = b"".join(export).decode().splitlines()
    return [header, *sorted(rows)], export.notes


@pytest.mark.parametrize("table", ["engine_sample", "device_sample", "latency_bucket", "engine_rate"])
def test_an_export_of_archived_and_stored_rows_is_what_it_was_before(
    writer: Writer, settings: Settings, table: str
) -> None:
    # A range inside one archived day, one over its end, and everything.
    spans: list[dict[str, Any]] = [
        {"start": at(600), "end": at(7200)},
        {"start": at(DAY / 3), "end": at(DAY + 20)},
        {"engine": "vllm-8000"} if table != "device_sample" else {},
    ]
    before = [_exported(writer, settings, table, **span) for span in spans]
    stored = table if table != "engine_rate" else "engine_sample"
    rows = _count(writer, stored)
    kept = sum(_retire(writer, stored, day) for day in (FIRST, SECOND))
    assert 0 < kept == rows - _count(writer, stored)
    assert [_exported(writer, settings, table, **span) for span in spans] == before
    assert [len(lines) > 1 for lines, _ in before] == [True, table != "latency_bucket", True]


SERIES = ("engine_series", "engine_memory_series", "device_series", "device_memory_series", "host_series",
          "host_memory_series", "latency_series")  # fmt: skip


@pytest.fixture
def aged(settings: Settings) -> Iterator[Writer]:
    """Half an hour of samples of every kind, and what the charts show of ten minutes of it."""
    opened = Writer(settings.store_path, settings.store)
    opened.put([engine(), epoch(), device()])
    for second in range(0, 1800, 2):
        opened.put([sample(second, generation_tokens_total=3 * second + second % 7, requests_running=second % 5)])
        opened.put([device_sample(second, memory_used_bytes=10_000 + second), host_sample(second, **HOST_MEMORY)])
        opened.put([held(second, 9_000), held(second, 500, device_id=None, method="rss")])
    for second in range(0, 1800, 10):
        opened.put(histogram(second, {0.1: second / 2, math.inf: second}, sum_seconds=second / 3))
    opened.flush()
    yield opened
    opened.close()


HOST_MEMORY = {"memory_total_bytes": 4000, "memory_available_bytes": 3000, "memory_used_bytes": 900}


def _charts(writer: Writer, settings: Settings) -> dict[str, tuple[dict[bytes, bytes], list[dict[str, Any]]]]:
    store = LocalStore(writer, settings.store)
    found = {}
    for name in SERIES:
        table = store.query(name, {"start": at(600), "end": at(1200), "points": 400})
        found[name] = (dict(table.schema.metadata), table.to_pylist())
    return found


def test_a_chart_of_an_archived_hour_shows_its_samples_again(aged: Writer, settings: Settings) -> None:
    before = _charts(aged, settings)
    assert {told[b"level"] for told, _ in before.values()} == {b"raw"}
    assert len(before["engine_series"][1]) == 301
    Maintenance(aged, settings.store).once(T0 + timedelta(days=9))
    assert [_count(aged, table) for table in ("engine_sample", "latency_bucket", "host_sample")] == [0, 0, 0]
    assert _charts(aged, settings) == before


def test_where_the_archive_began_in_the_middle_of_a_day_minutes_stand_in(aged: Writer, settings: Settings) -> None:
    maintenance = Maintenance(aged, settings.store)
    maintenance.once(T0 + timedelta(days=1))
    cursor = aged.cursor()
    cursor.execute("DELETE FROM engine_sample WHERE ts < $until", {"until": at(900)}).fetchall()
    cursor.close()
    maintenance.once(T0 + timedelta(days=9))
    told, rows = _charts(aged, settings)["engine_series"]
    assert (told[b"level"], b"notes" in told) == (b"minute", False)
    assert [row["ts"] for row in rows] == [at(60.0 * minute) for minute in range(10, 21)]


def test_where_an_archived_file_is_damaged_minutes_stand_in_and_it_is_named(aged: Writer, settings: Settings) -> None:
    Maintenance(aged, settings.store).once(T0 + timedelta(days=9))
    (aged.path.parent / "archive" / "engine_sample" / "2026-11-30.parquet").write_bytes(b"PAR1")
    told, rows = _charts(aged, settings)["engine_series"]
    assert told[b"level"] == b"minute"
    assert b"archive/engine_sample/2026-11-30.parquet is damaged" in told[b"notes"]
    # The tokens of ten minutes and of the minute that the range ends in; samples lie 2 s apart.
    assert [row["ts"] for row in rows] == [at(60.0 * minute) for minute in range(10, 21)]
    assert sum(row["generation_tokens_per_second"] for row in rows) / len(rows) == pytest.approx(3, rel=0.01)
    csv = LocalStore(aged, settings.store).export_csv("engine_series", at(600), at(1200), points=400)
    assert csv.notes == (told[b"notes"].decode(),)


def test_a_plain_reader_of_parquet_finds_the_rows_by_table_and_day(writer: Writer) -> None:
    kept = _retire(writer, "device_sample", FIRST)
    path = writer.path.parent / "archive" / "device_sample" / "2026-11-30.parquet"
    # Noon to midnight, a sample a minute.
    assert kept == 720
    found = duckdb.sql(f"SELECT count(*), min(memory_used_bytes), max(memory_used_bytes) FROM '{path}'").fetchall()
    assert found == [(720, 0, 719)]
    assert [entry.name for entry in path.parent.iterdir()] == ["2026-11-30.parquet"]


def test_a_crash_between_the_file_and_the_deletion_doubles_nothing(writer: Writer, settings: Settings) -> None:
    before = _exported(writer, settings, "device_sample")
    cursor = writer.cursor()
    cursor.begin()
    archive.keep(cursor, writer.path, "device_sample", FIRST)
    cursor.rollback()
    assert (writer.path.parent / "archive" / "device_sample" / "2026-11-30.parquet").exists()
    assert _exported(writer, settings, "device_sample") == before
    assert _retire(writer, "device_sample", FIRST) == 720
    assert _exported(writer, settings, "device_sample") == before


def test_rows_of_an_archived_day_that_come_later_go_to_a_second_file(writer: Writer, settings: Settings) -> None:
    before, _ = _exported(writer, settings, "device_sample")
    _retire(writer, "device_sample", FIRST)
    writer.put([device_sample(0.5, memory_used_bytes=7)])
    writer.flush()
    late, _ = _exported(writer, settings, "device_sample")
    assert len(late) == len(before) + 1
    assert set(before) < set(late)
    assert _retire(writer, "device_sample", FIRST) == 1
    assert _exported(writer, settings, "device_sample") == (late, ())


def test_a_day_without_rows_makes_no_file(writer: Writer) -> None:
    assert _retire(writer, "device_sample", date(2026, 1, 1)) == 0
    assert not (writer.path.parent / "archive").exists()


@pytest.mark.parametrize("harm", ["damaged", "cut off", "missing"])
def test_a_file_that_cannot_be_read_is_named_and_the_rest_answers(
    writer: Writer, settings: Settings, harm: str
) -> None:
    before, _ = _exported(writer, settings, "device_sample")
    for day in (FIRST, SECOND):
        _retire(writer, "device_sample", day)
    path = writer.path.parent / "archive" / "device_sample" / "2026-11-30.parquet"
    content = bytearray(path.read_bytes())
    if harm == "damaged":
        content[len(content) // 2] ^= 0xFF
        path.write_bytes(content)
    elif harm == "cut off":
        path.write_bytes(content[:1000])
    else:
        path.unlink()
    rows, notes = _exported(writer, settings, "device_sample")
    assert rows == [before[0], *(line for line in before[1:] if line >= '"2026-12-01')]
    (note,) = notes
    assert "archive/device_sample/2026-11-30.parquet" in note
    assert "720 rows of device_sample" in note
    _, notes = _exported(writer, settings, "device_sample", start=T0 + timedelta(days=2))
    assert notes == (), "a range that needs no archived file does not mention it"
    (disk,) = LocalStore(writer, settings.store).query("disk").to_pylist()
    assert disk["archive_problems"] == [note]


def test_a_file_that_cannot_be_written_keeps_the_rows_in_the_store(writer: Writer) -> None:
    (writer.path.parent / "archive").write_text("in the way")
    cursor = writer.cursor()
    cursor.begin()
    with pytest.raises(StoreError, match="Raw rows stay in the store"):
        archive.keep(cursor, writer.path, "device_sample", FIRST)
    cursor.rollback()
    cursor.close()
    assert _count(writer, "device_sample") == 3000
    assert _count(writer, "archive_file") == 0


def test_a_column_that_came_after_a_day_was_archived_is_empty_in_it(writer: Writer, settings: Settings) -> None:
    _retire(writer, "device_sample", FIRST)
    cursor = writer.cursor()
    cursor.execute("ALTER TABLE device_sample ADD COLUMN fan_fraction DOUBLE").fetchall()
    cursor.close()
    rows, notes = _exported(writer, settings, "device_sample")
    assert rows[0].endswith(",fan_fraction")
    assert len(rows) == 3001
    assert notes == ()
