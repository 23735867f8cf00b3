"""Rollups conserve what was counted, whatever the clock, the engine, the disk or the power did."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from settings import StoreSettings
from store.maintenance import Maintenance
from store.model import Event
from store.writer import Writer
from tests.support.rows import HOST, T0, at, device, device_sample, engine, epoch, held, histogram, host_sample, sample

NUMBERS = itertools.count()
DAY = 86_400


class Kept:
    """A store with its maintenance; times are seconds after T0."""

    def __init__(self, path: Path, settings: StoreSettings | None = None) -> None:
        self.settings = settings or StoreSettings()
        self.writer = Writer(path, self.settings, host=HOST)
        self.maintenance = Maintenance(self.writer, self.settings)

    def put(self, *rows: Any) -> None:
        self.writer.put(rows)
        self.writer.flush()

    def maintain(self, seconds: float) -> None:
        self.maintenance.once(at(seconds))

    def value(self, sql: str, *values: Any) -> Any:
        cursor = self.writer.cursor()
        found = cursor.execute(sql, list(values)).fetchall()[0]
        cursor.close()
        return found[0] if len(found) == 1 else found


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    kept = Kept(tmp_path_factory.mktemp("store") / "telemetry.duckdb")
    yield kept
    kept.writer.close()


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    opened = Kept(tmp_path / "telemetry.duckdb")
    yield opened
    opened.writer.close()


STEPS = st.lists(
    st.tuples(
        st.integers(0, 500),  # tokens generated until the next sample
        st.sampled_from(["count", "count", "count", "restart", "silent", "maintain", "maintain early"]),
        st.floats(0.5, 55.0),  # seconds until the next sample
        st.sampled_from([0.0, 0.0, 0.0, 0.0, 3600.0, -3600.0]),  # the clock is set by so much
    ),
    min_size=2,
    max_size=40,
)


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_nothing_is_lost_or_counted_twice(shared: Kept, steps: list[tuple[int, str, float, float]]) -> None:
    """
    Expected: the tokens between two consecutive readings, except where the counter fell, and except where the clock
    was set between readings more than a minute apart (0002_rates.sql: the true predecessor may be another one).
    """
    epoch_id = f"epoch {next(NUMBERS)}"
    begin = next(NUMBERS) * 400_000.0
    counter, second, clock, before = 1000.0, begin, 0.0, None
    tokens = seconds = samples = 0.0
    rates: list[float] = []
    for gained, what, wait, jump in steps:
        second += wait
        clock += jump
        counter = float(gained) if what == "restart" else counter + gained
        if what.startswith("maintain"):
            # Early: before the samples of these minutes have come, as when the disk was full.
            shared.maintain(second + clock + (600 if what == "maintain early" else 0))
        samples += 1
        if what == "silent":
            shared.put(sample(second, epoch_id, state="busy", clock_offset=clock))
            continue
        shared.put(sample(second, epoch_id, generation_tokens_total=counter, clock_offset=clock))
        doubtful = before is not None and clock != before[2] and second - before[0] > 60
        if before is not None and counter >= before[1] and not doubtful:
            tokens += counter - before[1]
            seconds += second - before[0]
            rates.append((counter - before[1]) / (second - before[0]))
        before = second, counter, clock
    shared.maintain(begin + 200_000)
    for level in ("minute", "hour"):
        found = shared.value(
            "SELECT sum(generation_tokens_increase), sum(generation_tokens_window_seconds), sum(samples), "
            "min(generation_tokens_per_second_min), max(generation_tokens_per_second_max) "
            f"FROM engine_{level} WHERE epoch_id = ?",
            epoch_id,
        )
        assert (found[0] or 0, found[2]) == (tokens, samples), level
        assert (found[1] or 0) == pytest.approx(seconds), level
        if rates:
            assert found[3:] == pytest.approx((min(rates), max(rates))), level


@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.booleans(), st.booleans()), min_size=1, max_size=25))
def test_observations_are_conserved_bound_by_bound(shared: Kept, steps: list[tuple[int, int, bool, bool]]) -> None:
    """Expected: what was observed since the first snapshot, of each life of the process."""
    epoch_id, begin = f"histogram {next(NUMBERS)}", next(NUMBERS) * 400_000.0
    quick = slow = 100.0
    expected = [0.0, 0.0]
    for number, (more_quick, more_slow, restarted, maintained) in enumerate(steps):
        second = begin + number * 10 + (50 if number > 5 else 0)
        if restarted and number:
            quick, slow = 0.0, 0.0
        else:
            quick, slow = quick + more_quick, slow + more_slow
            if number:
                expected = [expected[0] + more_quick, expected[1] + more_quick + more_slow]
        shared.put(*histogram(second, {0.5: quick, math.inf: quick + slow}, quick + slow, epoch_id=epoch_id))
        if maintained:
            shared.maintain(second + 100)
    shared.maintain(begin + 7300)
    for level in ("minute", "hour"):
        found = shared.value(
            "SELECT sum(observations_increase[1]), sum(observations_increase[2]), sum(seconds_increase), "
            f"any_value(bounds) FROM latency_{level} WHERE epoch_id = ?",
            epoch_id,
        )
        assert [found[0], found[1], found[2]] == [*expected, expected[1]], level
        assert found[3] == "[0.5, inf]"


def test_a_process_that_was_seen_from_its_start_counts_from_zero(kept: Kept) -> None:
    kept.put(engine(), epoch(started=0), *histogram(30, {1.0: 4, math.inf: 7}, 9.0))
    kept.put(epoch("old", started=-9000, first_seen=at(0)), *histogram(30, {math.inf: 70}, 9.0, epoch_id="old"))
    kept.maintain(200)
    assert kept.value("SELECT sum(observations_increase[-1]) FROM latency_minute WHERE epoch_id <> 'old'") == 7
    assert kept.value("SELECT sum(observations_increase[-1]) FROM latency_minute WHERE epoch_id = 'old'") == 0


def test_a_busy_stretch_of_an_hour_sums_to_the_settled_total(kept: Kept) -> None:
    """llama.cpp: the live counter moves, the settled one at the end of a request; rolled up minute by minute."""
    kept.put(engine(), epoch())
    kept.put(sample(0, generation_tokens_total=100, generation_live_tokens_total=90, requests_running=0))
    for second in range(10, 3600, 10):
        kept.writer.put(
            [sample(second, generation_tokens_total=100, generation_live_tokens_total=90 + second, requests_running=1)]
        )
        if second % 300 == 0:
            kept.maintain(second)
    kept.put(sample(3600, generation_tokens_total=3777, generation_live_tokens_total=3680, requests_running=0))
    kept.maintain(3700)
    total, working = kept.value(
        "SELECT sum(generation_tokens_increase), sum(generation_tokens_working_seconds) FROM engine_minute"
    )
    assert total == 3777 - 100
    assert working == pytest.approx(3600)


def test_energy_is_conserved_over_a_reload_of_the_driver_and_a_clock_that_is_set_back(kept: Kept) -> None:
    kept.put(device())
    for second, joules in ((0, 1000.0), (50, 1300.0), (100, 20.0), (150, 25.0)):
        kept.put(device_sample(second, energy_joules_total=joules))
        kept.maintain(second + 90)
    kept.put(device_sample(-3500, energy_joules_total=65.0))  # 50 s later, by a clock that was set back an hour
    kept.maintain(7300)
    assert kept.value("SELECT sum(energy_joules_increase) FROM device_hour") == 300 + 5 + 40


def test_gauges_keep_their_extremes_and_their_sums(kept: Kept) -> None:
    kept.put(engine(), epoch())
    values = [(second, float(second % 7)) for second in range(0, 7200, 2)]
    kept.put(*(sample(second, requests_running=value) for second, value in values), sample(7200, state="busy"))
    kept.maintain(11_000)
    for level in ("minute", "hour"):
        assert kept.value(
            "SELECT sum(requests_running_sum), sum(requests_running_count), min(requests_running_min), "
            f"max(requests_running_max), arg_max(state, last_ts), sum(samples), sum(ready_samples) FROM engine_{level}"
        ) == (sum(value for _, value in values), 3600, 0, 6, "busy", 3601, 3600)


def test_a_crash_in_the_middle_leaves_a_step_to_be_made_again(tmp_path: Path, python: Any) -> None:
    path = tmp_path / "telemetry.duckdb"
    first = Kept(path)
    first.put(engine(), epoch(), *(sample(s, generation_tokens_total=2.0 * s) for s in range(0, 7200, 10)))
    first.writer.close()
    crash = (
        "import os, sys; from datetime import datetime; from pathlib import Path; from settings import StoreSettings; "
        "from store import rollup; from store.writer import Writer; w = Writer(Path(sys.argv[1]), StoreSettings());\n"
        "with w.transaction() as c:\n"
        " rollup.roll_minutes(c, datetime.fromisoformat(sys.argv[2]))\n"
        " os._exit(7)\n"
    )
    assert python(crash, path, at(7300).isoformat()).wait(60) == 7
    again = Kept(path)
    assert again.value("SELECT count(*) FROM engine_minute") == 0
    for _ in range(2):
        again.maintain(7300)
        assert again.value("SELECT sum(generation_tokens_increase), sum(samples) FROM engine_hour") == (14_380, 720)
    again.writer.close()


def test_samples_are_deleted_by_the_hour_after_they_were_rolled_up(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "telemetry.duckdb", StoreSettings(raw_days=2, detail_days=2, minute_days=3))
    noon = range(0, 6 * DAY, DAY)  # T0 is at noon; one sample of everything each day
    kept.put(engine(), epoch(), device(), Event(T0, HOST, None, None, None, "started", "it started"))
    for second in noon:
        kept.put(
            sample(second),
            device_sample(second),
            host_sample(second),
            held(second, 10),
            *histogram(second, {math.inf: 1}),
        )
    kept.maintain(5 * DAY)
    # As of noon of day 5, samples of noon of days 0, 1 and 2 are more than two days old.
    for table in ("engine_sample", "device_sample", "host_sample", "process_memory", "latency_bucket"):
        assert kept.value(f"SELECT count(*), min(ts) FROM {table}") == (3, at(3 * DAY)), table
    assert kept.value("SELECT count(*) FROM engine_minute") == 3  # days 2, 3 and 4; day 5 has only begun
    assert kept.value("SELECT count(*) FROM engine_hour") == 5
    assert kept.value("SELECT raw_from, minute_from FROM rollup_state") == (at(2 * DAY + 3600), at(DAY + 3600))
    assert kept.value("SELECT count(*) FROM event") == 1
    kept.writer.close()


def test_nothing_is_deleted_as_of_a_time_that_cannot_be_relied_on(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "telemetry.duckdb", StoreSettings(raw_days=2, detail_days=2, minute_days=3))
    kept.put(engine(), epoch(), sample(0), host_sample(0))
    kept.maintenance.once(at(10 * DAY), delete=False)
    assert kept.value("SELECT count(*) FROM engine_sample") == 1
    assert kept.value("SELECT count(*) FROM engine_minute") == 1
    kept.maintain(10 * DAY)
    assert kept.value("SELECT count(*) FROM engine_sample") == 0
    kept.writer.close()


def test_a_sample_for_a_time_that_was_deleted_is_added_to_what_is_left(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "telemetry.duckdb", StoreSettings(raw_days=2, detail_days=2, minute_days=3))
    kept.put(
        engine(), epoch(), *(sample(second, generation_tokens_total=10.0 * second) for second in range(0, 100, 10))
    )
    kept.maintain(9 * DAY)
    kept.put(sample(20, "late", generation_tokens_total=5), sample(30, "late", generation_tokens_total=12))
    kept.maintain(9 * DAY + 60)
    assert kept.value("SELECT sum(samples), sum(generation_tokens_increase) FROM engine_hour") == (12, 900 + 7)
    assert kept.value("SELECT count(*) FROM engine_sample") == 0
    kept.writer.close()


def test_late_minutes_survive_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "telemetry.duckdb"
    kept = Kept(path)
    kept.put(engine(), epoch(), sample(0, requests_running=1))
    kept.maintain(7300)
    kept.put(sample(10, requests_running=3))
    kept.writer.close()
    again = Kept(path)
    again.put(sample(20, requests_running=5))
    again.maintain(7301)
    assert again.value("SELECT requests_running_sum, samples FROM engine_hour") == (9, 3)
    again.writer.close()


def test_archived_days_are_kept_before_they_are_deleted(tmp_path: Path) -> None:
    kept = Kept(tmp_path / "telemetry.duckdb", StoreSettings(raw_days=2, detail_days=2, archive=True))
    kept.put(engine(), epoch(), sample(0), sample(10))
    kept.maintain(4 * DAY)
    assert kept.value("SELECT count(*) FROM engine_sample") == 0
    assert kept.value("SELECT row_count, day FROM archive_file") == (2, T0.date())
    kept.writer.close()


@pytest.mark.parametrize("wrong", [{"raw_days": 1}, {"raw_days": 100}, {"detail_days": 8}, {"minute_days": 3}])
def test_finer_rows_must_not_outlive_coarser_ones(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match=r"greater than or equal to 2|must not fall"):
        StoreSettings(**wrong)
