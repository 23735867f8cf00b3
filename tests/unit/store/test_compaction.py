"""Compaction moves rows and changes none, whatever comes in meanwhile."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from settings import StoreSettings
from store import compaction
from store.maintenance import Maintenance
from store.rollup import floor
from store.writer import Writer
from tests.support.rows import HOST, at, device, device_sample, engine, epoch, held, histogram, sample
from tests.support.wait import until

DAY, STEP = 86_400, 8 * 3600
SETTINGS = StoreSettings(raw_days=30, detail_days=30)
GPUS = ("GPU-a", "GPU-b")


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    opened = Writer(tmp_path / "telemetry.duckdb", SETTINGS, host=HOST)
    opened.put([device(name) for name in GPUS])
    opened.put([engine(), epoch()])
    yield opened
    opened.close()


def rows(writer: Writer, table: str) -> Counter[str]:
    cursor = writer.cursor()
    found = cursor.execute(f"SELECT * FROM {table}").fetchall()
    cursor.close()
    return Counter(map(repr, found))


def value(writer: Writer, sql: str) -> Any:
    cursor = writer.cursor()
    ((found,),) = cursor.execute(sql).fetchall()
    cursor.close()
    return found


def maintain(writer: Writer, seconds: float) -> None:
    """Rounds as of `seconds` after T0, until all that is due was compacted."""
    for _ in range(7):
        Maintenance(writer, SETTINGS).once(at(seconds))


def fill(writer: Writer, days: float, step: int = STEP) -> None:
    """Samples of all kinds, three each time, as a collector writes them; energy 2 J/s and 3 J/s."""
    for start in range(0, int(days * DAY), int(step)):
        for seconds in (start, start + 10, start + 20):
            writer.put(
                [
                    *(
                        device_sample(seconds, name, energy_joules_total=1000.0 + rate * seconds)
                        for rate, name in enumerate(GPUS, 2)
                    ),
                    sample(seconds, generation_tokens_total=float(seconds)),
                    *histogram(seconds, {0.1: seconds, float("inf"): 2 * seconds}),
                    held(seconds, 1000, device_id=GPUS[0]),
                ]
            )
    writer.flush()


def test_every_row_of_a_compacted_time_is_there_once_and_sorted(writer: Writer) -> None:
    fill(writer, 2)
    before = {table: rows(writer, table) for table in compaction.KEYS if not table.endswith("_minute")}
    maintain(writer, 2 * DAY)
    assert {table: rows(writer, table) for table in before} == before
    # two hours are left as they are, and the rest of six
    cursor = writer.cursor()
    until_ = cursor.execute("SELECT until FROM compacted WHERE table_name = 'device_sample'").fetchall()[0][0]
    order = cursor.execute(
        "SELECT device_id FROM device_sample WHERE ts >= $since AND ts <= $since + INTERVAL 20 SECOND ORDER BY rowid",
        {"since": at(DAY)},
    ).fetchall()
    cursor.close()
    assert at(DAY) < until_ <= at(2 * DAY - 2 * 3600)
    assert [name for (name,) in order] == [GPUS[0]] * 3 + [GPUS[1]] * 3


def test_nothing_is_compacted_twice_or_too_early(writer: Writer) -> None:
    fill(writer, 2)
    maintain(writer, 2 * DAY)
    state = rows(writer, "compacted"), value(writer, "SELECT max(rowid) FROM engine_sample")
    maintain(writer, 2 * DAY + 60)
    assert (rows(writer, "compacted"), value(writer, "SELECT max(rowid) FROM engine_sample")) == state
    assert value(writer, "SELECT max(until) FROM compacted") <= at(2 * DAY - 2 * 3600)


def energy(writer: Writer, begin: float, end: float) -> float:
    cursor = writer.cursor()
    ((joules,),) = cursor.execute(
        "SELECT sum(energy_joules_increase) FROM device_rollup($a, $b, 60, $a - INTERVAL 120 SECOND, $b)",
        {"a": at(begin), "b": at(end)},
    ).fetchall()
    cursor.close()
    return float(joules or 0)


def test_energy_goes_on_over_the_edge_of_what_is_compacted(writer: Writer) -> None:
    """Expected: two devices of 2 W and 3 W, from the first sample to the last: 5 J/s x the seconds between them."""
    fill(writer, 2)
    maintain(writer, 2 * DAY)
    last = 2 * DAY - STEP + 20
    assert energy(writer, 0, last + 1) == pytest.approx(5 * last)


def test_a_late_sample_of_a_compacted_time_stays_behind_what_was_written_before_it(writer: Writer) -> None:
    """
    The clock shows the first day again for one sample. Expected: its 40 J since the last one before it, 60 J of the
    sample after it, and 5 J/s for all that came before.
    """
    fill(writer, 2)
    maintain(writer, 2 * DAY)
    last = 2 * DAY - STEP + 20
    joules = 1000.0 + 2 * last
    writer.put([device_sample(1800, GPUS[0], energy_joules_total=joules + 40)])
    writer.flush()
    writer.put([device_sample(last + 50, GPUS[0], energy_joules_total=joules + 100)])
    writer.flush()
    assert energy(writer, 0, last + 60) == pytest.approx(5 * last + 100)
    Maintenance(writer, SETTINGS).once(at(2 * DAY + 7200))
    minute = "SELECT energy_joules_increase FROM device_minute WHERE device_id = 'GPU-a' AND first_ts = last_ts AND "
    assert value(writer, f"{minute} last_ts = TIMESTAMPTZ '{at(1800)}'") == 40


def test_a_time_whose_order_would_be_lost_stays_as_it_is(writer: Writer) -> None:
    """A clock that was set back over midnight: 2 samples of the day after were written before the last of the day."""
    midnight = (at(2 * DAY).replace(hour=0, minute=0, second=0, microsecond=0) - at(0)).total_seconds()
    joules = iter(range(0, 600, 100))
    for seconds in (midnight - 100, midnight + 10, midnight + 20, midnight - 50, midnight + 30, midnight + 40):
        writer.put([device_sample(seconds, GPUS[0], energy_joules_total=float(next(joules)))])
        writer.flush()
    fill_until = midnight + 3 * DAY
    writer.put([device_sample(fill_until, GPUS[0], energy_joules_total=600.0)])
    writer.flush()
    maintain(writer, fill_until)
    assert value(writer, "SELECT count(*) FROM compacted WHERE table_name = 'device_sample'") == 0
    # six increases of 100 J, the last one at the end
    assert energy(writer, midnight - 200, midnight + 100) == pytest.approx(500)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 2**32), st.lists(st.floats(0, 2 * DAY), max_size=4))
def test_late_rows_are_kept_whenever_they_come(
    tmp_path_factory: pytest.TempPathFactory, seed: int, late: list[float]
) -> None:
    """Rows for any time come between the rounds; what was written is what is read."""
    chance = random.Random(seed)
    writer = Writer(tmp_path_factory.mktemp("late") / "telemetry.duckdb", SETTINGS, host=HOST)
    try:
        fill(writer, 2)
        expected = {table: rows(writer, table) for table in ("engine_sample", "device_sample", "process_memory")}
        for place, seconds in enumerate(late):
            Maintenance(writer, SETTINGS).once(at(2 * DAY + place))
            name = chance.choice(GPUS)
            writer.put([device_sample(seconds, name, energy_joules_total=float(place)), sample(seconds)])
            writer.flush()
            for table in ("engine_sample", "device_sample"):
                new = rows(writer, table) - expected[table]
                assert new.total() == 1
                expected[table] += new
        maintain(writer, 2 * DAY + 100)
        assert {table: rows(writer, table) for table in expected} == expected
    finally:
        writer.close()


COMPACT_AND_DIE = """
import os, sys
from datetime import datetime
from pathlib import Path
import duckdb
from store import compaction
connection = duckdb.connect(sys.argv[1])
connection.execute("SET TimeZone = 'UTC'")
connection.begin()
print(compaction.compact(connection, "device_sample", datetime.fromisoformat(sys.argv[2])), flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_crash_before_the_commit_changes_nothing(writer: Writer, python: Any) -> None:
    fill(writer, 2)
    before = rows(writer, "device_sample")
    writer.close()
    process = python(COMPACT_AND_DIE, writer.path, floor(at(DAY), timedelta(hours=6)).isoformat())
    until(lambda: process.poll() is not None)
    assert process.communicate()[0].strip() == "6"  # three rows of two devices
    connection = duckdb.connect(str(writer.path))
    connection.execute("SET TimeZone = 'UTC'")
    assert Counter(map(repr, connection.execute("SELECT * FROM device_sample").fetchall())) == before
    assert connection.execute("SELECT count(*) FROM compacted").fetchall() == [(0,)]
    connection.close()
