"""Whatever the counters do, an increase is never negative and the increases sum to what was counted."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from settings import StoreSettings
from store.writer import Writer
from tests.support.rows import sample

STEPS = st.lists(
    st.tuples(
        st.integers(0, 500),  # tokens generated until the next sample
        st.sampled_from(["count", "count", "count", "count", "restart", "silent"]),
        st.floats(0.1, 2.0),  # seconds until the next sample; under a minute in all
        st.sampled_from([0.0, 0.0, 0.0, 3600.0, -3600.0]),  # how far the wall clock is off
    ),
    max_size=30,
)
NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Writer]:
    opened = Writer(Path(tmp_path_factory.mktemp("store")) / "telemetry.duckdb", StoreSettings())
    yield opened
    opened.close()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_increases_are_what_was_counted_between_two_samples(
    writer: Writer, steps: list[tuple[int, str, float, float]]
) -> None:
    epoch_id = f"epoch {next(NUMBERS)}"
    counter, second, before = 1000.0, 0.0, None
    samples, expected = [], []
    for tokens, what, wait, clock_offset in steps:
        second += wait
        counter = float(tokens) if what == "restart" else counter + tokens
        if what == "silent":
            samples.append(sample(second, epoch_id, state="busy", clock_offset=clock_offset))
            continue
        samples.append(sample(second, epoch_id, generation_tokens_total=counter, clock_offset=clock_offset))
        if before is not None:
            seconds, count = before
            expected.append((counter - count if counter >= count else None, second - seconds))
        before = second, counter
    writer.put(samples)
    writer.flush()
    cursor = writer.cursor()
    found = cursor.execute(
        "SELECT r.increase, r.window_seconds, r.per_second FROM engine_rate AS r JOIN engine_sample AS s "
        "ON r.epoch_id = s.epoch_id AND r.ts = s.ts "
        "WHERE r.epoch_id = ? AND r.quantity = 'generation_tokens' ORDER BY s.monotonic_seconds",
        [epoch_id],
    ).fetchall()
    cursor.close()
    assert [increase for increase, _, _ in found] == [increase for increase, _ in expected]
    assert [window for _, window, _ in found] == pytest.approx([window for _, window in expected])
    assert all(rate is None or rate >= 0 for _, _, rate in found)
