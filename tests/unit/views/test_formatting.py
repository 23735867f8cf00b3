"""
Figures as text.

Expected values: IEC 80000-13 (1 GiB = 2**30 bytes), ISO 8601 and plain rounding done by hand.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from views import formatting

WRITERS = [
    formatting.number,
    formatting.rate,
    formatting.count,
    formatting.tokens,
    formatting.size,
    formatting.fraction,
    formatting.cores,
    formatting.duration,
    formatting.age,
]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("unknown", [None, math.nan, math.inf])
def test_not_known_is_never_a_figure(write, unknown):
    assert write(unknown) == formatting.MISSING


@pytest.mark.parametrize("write", WRITERS)
def test_a_real_zero_is_a_zero(write):
    assert write(0.0)[0] == "0"


@pytest.mark.parametrize(
    ("value", "text"),
    [(612.4, "612"), (3120.2, "3,120"), (88.44, "88.4"), (0.25, "0.2"), (99.96, "100"), (7.0, "7.0")],
)
def test_rates(value, text):
    assert formatting.rate(value) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(71.4 * 2**30, "71.4 GiB"), (512, "512 B"), (2**20, "1.0 MiB"), (80 * 2**30, "80.0 GiB"), (3 * 2**40, "3.0 TiB")],
)
def test_sizes_are_binary(size_bytes, text):
    assert formatting.size(size_bytes) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(8192, "8,192"), (218_000, "218k"), (32_768, "33k"), (1_310_720, "1.3M"), (999_700, "1.0M"), (12_000_000, "12M")],
)
def test_token_counts(value, text):
    assert formatting.tokens(value) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0.18, "18 %"), (0.004, "<1 %"), (0.999, ">99 %"), (1.0, "100 %"), (1.07, "107 %")]
)
def test_shares_never_round_to_none_or_all(share, text):
    assert formatting.fraction(share) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0123, "12.3 ms"), (0.21, "210 ms"), (0.9999, "1 s"), (4.25, "4.25 s"), (75.0, "75.0 s")]
)
def test_durations_carry_their_unit(seconds, text):
    assert formatting.duration(seconds) == text


@pytest.mark.parametrize(("value", "text"), [(0.0052, "0.01"), (0.001, "<0.01"), (1.1, "1.10"), (64.0, "64")])
def test_a_little_cpu_is_not_none(value, text):
    assert formatting.cores(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(3.9, "3 s"), (59, "59 s"), (60, "1 min"), (3599, "59 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_ages_round_down(seconds, text):
    assert formatting.age(seconds) == text


def test_a_percentile_is_shown_with_its_bucket():
    assert formatting.bucket(0.25, 0.5) == "in bucket 0.25\N{EN DASH}0.5 s"
    assert formatting.bucket(10.0, None).startswith("above 10 s")
    assert formatting.bucket(10.0, math.inf).startswith("above 10 s")


def test_times_are_utc_and_carry_the_date_on_another_day():
    cet = timezone(timedelta(hours=1))
    moment = datetime(2026, 12, 1, 0, 30, 5, tzinfo=cet)  # 23:30:05 on 30 November in UTC
    assert formatting.clock(moment, datetime(2026, 11, 30, 1, tzinfo=UTC)) == "23:30:05 UTC"
    assert formatting.clock(moment, datetime(2026, 12, 1, 1, tzinfo=UTC)) == "2026-11-30 23:30:05 UTC"


@given(st.floats(min_value=1e-9, max_value=1e15))
def test_a_number_reads_back_within_its_digits(value):
    assert math.isclose(float(formatting.number(value, 4).replace(",", "")), value, rel_tol=5.1e-4)
