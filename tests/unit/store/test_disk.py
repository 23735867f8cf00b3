"""
The query `disk`: sizes as the system tells them, growth from what was measured, and what happens on a full disk.

Expected values: os.statvfs, the rows that the tests write, and hand calculations shown beside them.
"""

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from settings import Settings, StoreSettings
from store import disk as disk_module
from store.local import LocalStore
from store.model import DiskSample, HostSample
from store.writer import MAX_QUEUED_ROWS, Writer, kept_for
from tests.support.rows import HOST, host_sample


def _asked(writer: Writer, **thresholds: Any) -> dict[str, Any]:
    (row,) = LocalStore(writer, StoreSettings(**thresholds)).query("disk").to_pylist()
    return row


def _sizes(now: datetime, hours_ago: float, file_bytes: int) -> DiskSample:
    return DiskSample(now - timedelta(hours=hours_ago), HOST, file_bytes, 1000, 500, None, None)


def _sampled(now: datetime, seconds_ago: float) -> HostSample:
    sampled = host_sample(0, cpu_fraction=0.5)
    return HostSample(
        **{name: getattr(sampled, name) for name in sampled.__slots__} | {"ts": now - timedelta(seconds=seconds_ago)}
    )


def test_sizes_are_those_of_the_file_system(writer: Writer, settings: Settings) -> None:
    row = _asked(writer)
    system = os.statvfs(settings.data)
    assert row["folder"] == str(settings.data)
    assert row["file_bytes"] == settings.store_path.stat().st_size
    assert row["total_bytes"] == system.f_blocks * system.f_frsize
    assert row["free_bytes"] == pytest.approx(system.f_bavail * system.f_frsize, rel=0.05)
    assert (row["archive_on"], row["archive_files"], row["archive_bytes"], row["archive_problems"]) == (False, 0, 0, [])


def test_growth_is_the_slope_of_the_measured_sizes(writer: Writer) -> None:
    # 1 MB an hour for twelve hours: 24 MB a day.
    now = datetime.now(UTC)
    writer.put([_sizes(now, hours, 100_000_000 - 1_000_000 * hours) for hours in range(13)])
    writer.flush()
    row = _asked(writer)
    assert row["growth_bytes_per_day"] == pytest.approx(24_000_000)
    assert row["growth_over_seconds"] == pytest.approx(12 * 3600)
    assert row["days_until_full"] == pytest.approx(row["free_bytes"] / 24_000_000)


@pytest.mark.parametrize(("hours", "step"), [((0.0, 0.5), 1_000_000), ((0, 1, 2), 0), ((0, 1, 2), -5_000_000)])
def test_no_day_is_told_where_nothing_grows_or_too_little_was_seen(
    writer: Writer, hours: tuple[float, ...], step: int
) -> None:
    now = datetime.now(UTC)
    writer.put([_sizes(now, ago, 100_000_000 - int(step * ago)) for ago in hours])
    writer.flush()
    row = _asked(writer)
    assert row["days_until_full"] is None
    assert (row["growth_bytes_per_day"] is None) == (max(hours) < 1)


def test_memory_bridges_as_long_as_the_present_rate_of_rows_allows(writer: Writer) -> None:
    # 301 rows over 300 s, all of one table.
    now = datetime.now(UTC)
    writer.put([_sampled(now, seconds) for seconds in range(301)])
    writer.flush()
    row = _asked(writer)
    assert row["memory_rows"] == MAX_QUEUED_ROWS
    assert row["rows_per_second"] == pytest.approx(301 / 300)
    assert row["memory_seconds"] == pytest.approx(MAX_QUEUED_ROWS / (301 / 300))
    assert "for about 55 h (200,000 rows at 1 a second)" in row["detail"]


def test_without_samples_no_time_is_promised(writer: Writer) -> None:
    row = _asked(writer)
    assert (row["rows_per_second"], row["memory_seconds"]) == (None, None)
    assert "for the next 200,000 rows" in row["detail"]


@pytest.mark.parametrize(
    ("rate", "waiting", "told"),
    [
        (100.0, 0, "for about 33 min (200,000 rows at 100 a second)"),  # 2000 s
        (10.0, 0, "for about 6 h (200,000 rows at 10 a second)"),  # 20,000 s
        (100.0, 195_000, "for about 50 s (5,000 rows at 100 a second)"),
        (100.0, 300_000, "for about 0 s (0 rows at 100 a second)"),
        (None, 50_000, "for the next 150,000 rows"),
    ],
)
def test_the_time_that_is_left_in_words(rate: float | None, waiting: int, told: str) -> None:
    assert kept_for(rate, waiting) == told


def test_little_room_and_a_near_end_are_told_before_the_disk_is_full(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _asked(writer, low_free_bytes=0)["state"] == "ok"
    low = _asked(writer, low_free_bytes=10**18)
    assert low["state"] == "low"
    assert "nearly full" in low["detail"]
    assert "Free some disk space" in low["detail"]
    now = datetime.now(UTC)
    writer.put([_sizes(now, hours, int(10**18 - 10**16 * hours)) for hours in range(3)])
    writer.flush()
    soon = _asked(writer, low_free_bytes=0)
    assert soon["state"] == "low"
    assert "at the present growth it is full in 0.0 days" in soon["detail"]
    assert _asked(writer, low_free_bytes=0, low_days=0)["state"] == "ok"
    monkeypatch.setattr(disk_module, "FULL_BYTES", 10**18)
    full = _asked(writer)
    assert full["state"] == "full"
    assert "then the oldest rows are dropped and counted" in full["detail"]


def test_thresholds_are_checked() -> None:
    for wrong in ({"low_free_bytes": -1}, {"low_days": -1}):
        with pytest.raises(ValueError, match="greater than or equal to 0"):
            StoreSettings(**wrong)


def test_tables_are_listed_with_rows_and_the_blocks_they_lie_in(writer: Writer) -> None:
    cursor = writer.cursor()
    cursor.execute(
        "INSERT INTO host_sample SELECT TIMESTAMPTZ '2026-01-01 00:00:00Z' + to_seconds(i), 'h', random(), 8, "
        "random(), 1, 1, 1, 0, 0 FROM range(400_000) AS r(i)"
    ).fetchall()
    cursor.execute("CHECKPOINT").fetchall()
    cursor.close()
    rows = LocalStore(writer, StoreSettings()).query("disk_tables").to_pylist()
    assert rows[0]["table_name"] == "host_sample"
    assert rows[0]["rows"] == 400_000
    # Two columns of random doubles hardly compress: 6 of 8 bytes at least, and all together no more than the file.
    assert 400_000 * 2 * 6 <= rows[0]["bytes_estimate"] <= writer.path.stat().st_size
    assert {row["table_name"] for row in rows} >= {"engine", "archive_file", "engine_minute", "loadtest_run"}
