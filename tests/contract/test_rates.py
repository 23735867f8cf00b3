"""
Rates come from counters of one epoch, over the monotonic clock, and are never negative.

Expected values are worked out by hand from the samples in each test. The sequence of a running
llama.cpp is the one measured in the project's engine reference (llama-server b11434, four parallel
requests of 500 tokens): slot-decodes 269, 533, 893, 1137, 1397 while the settled counter stayed 0,
then both 2000; and a client that went away at 287 tokens, after which the counter had risen by 288.
"""

import csv
import io
from collections.abc import Sequence

import pytest

from store.model import EngineSample
from tests.contract.conftest import Filled
from tests.support.rows import at, engine, epoch, sample

Pair = tuple[float, float | None, float, str]  # seconds after T0, increase, window in seconds, source


def _pairs(filled: Filled, quantity: str = "generation_tokens") -> list[Pair]:
    """The view `engine_rate`, as an export shows it."""
    text = b"".join(filled.store.export_csv("engine_rate", None, None, None)).decode()
    rows = [row for row in csv.DictReader(io.StringIO(text)) if row["quantity"] == quantity]
    return [
        (
            (float(row["ts"][17:-1]) + 60 * int(row["ts"][14:16])),
            float(row["increase"]) if row["increase"] else None,
            float(row["window_seconds"]),
            row["source"],
        )
        for row in sorted(rows, key=lambda row: row["ts"])
    ]


def _fill(filled: Filled, samples: Sequence[EngineSample]) -> None:
    filled.put(engine(), epoch(), *samples)


def test_a_rate_is_the_increase_over_the_elapsed_time(filled: Filled) -> None:
    _fill(
        filled,
        [sample(0, prompt_tokens_total=100), sample(2, prompt_tokens_total=150), sample(6, prompt_tokens_total=150)],
    )
    assert _pairs(filled, "prompt_tokens") == [(2, 50, 2, "settled"), (6, 0, 4, "settled")]
    series = filled.store.query("engine_series", {"start": at(0), "end": at(6)}).to_pylist()
    assert [row["prompt_tokens_per_second"] for row in series] == [None, 25.0, 0.0]
    assert [row["generation_tokens_per_second"] for row in series] == [None, None, None]


def test_a_restart_that_was_noticed_begins_anew(filled: Filled) -> None:
    filled.put(engine(), epoch("e1"), epoch("e2", started=5))
    filled.put(
        sample(0, "e1", generation_tokens_total=1000),
        sample(2, "e1", generation_tokens_total=1100),
        sample(6, "e2", generation_tokens_total=4000),
        sample(8, "e2", generation_tokens_total=4010),
    )
    assert _pairs(filled) == [(2, 100, 2, "settled"), (8, 10, 2, "settled")]


def test_a_restart_that_nobody_noticed_is_no_rate_at_all(filled: Filled) -> None:
    _fill(filled, [sample(s, generation_tokens_total=n) for s, n in ((0, 1000), (2, 1100), (4, 30), (6, 50))])
    assert _pairs(filled) == [(2, 100, 2, "settled"), (4, None, 2, "settled"), (6, 20, 2, "settled")]
    overview = filled.store.query("overview", {"at": at(6)}).to_pylist()[0]
    assert overview["generation_tokens"] == 120
    assert overview["generation_tokens_per_second"] == 120 / 4


def test_samples_without_the_counter_are_passed_over(filled: Filled) -> None:
    _fill(
        filled,
        [
            sample(0, generation_tokens_total=100, prompt_tokens_total=10),
            sample(2, state="busy"),
            sample(4, prompt_tokens_total=30),
            sample(6, generation_tokens_total=160, prompt_tokens_total=40),
        ],
    )
    assert _pairs(filled) == [(6, 60, 6, "settled")]
    assert _pairs(filled, "prompt_tokens") == [(4, 20, 4, "settled"), (6, 10, 2, "settled")]


@pytest.mark.parametrize("jump_seconds", [3600.0, -3600.0])
def test_a_clock_that_is_set_by_an_hour_bends_no_rate(filled: Filled, jump_seconds: float) -> None:
    jumped = [
        sample(s, generation_tokens_total=10.0 * s, clock_offset=jump_seconds if 10 <= s < 20 else 0.0)
        for s in range(0, 30, 2)
    ]
    _fill(filled, jumped)
    pairs = _pairs(filled)
    assert [(increase, window) for _, increase, window, _ in pairs] == [(20, 2)] * 14
    # A range that ends before the clock was set: the sample after the jump back has no predecessor in it.
    for start, end in ((at(0), at(30)), (at(-3600), at(-3570)), (at(3600), at(3630))):
        for row in filled.store.query("engine_series", {"start": start, "end": end}).to_pylist():
            assert row["generation_tokens_per_second"] in (None, 10.0)


def _llamacpp(values: Sequence[tuple[float, float, int]]) -> list[EngineSample]:
    return [
        sample(2.0 * i, generation_tokens_total=settled, generation_live_tokens_total=live, requests_running=running)
        for i, (settled, live, running) in enumerate(values)
    ]


def test_live_counts_are_reconciled_when_requests_end(filled: Filled) -> None:
    live = (269, 533, 893, 1137, 1397)
    _fill(filled, _llamacpp([(0, 0, 0), *((0, n, 4) for n in live), (2000, 2000, 0), (2000, 2000, 0)]))
    pairs = _pairs(filled)
    assert pairs == [
        (2, 269, 2, "live"),
        (4, 264, 2, "live"),
        (6, 360, 2, "live"),
        (8, 244, 2, "live"),
        (10, 260, 2, "live"),
        (12, 603, 2, "reconciled"),
        (14, 0, 2, "settled"),
    ]
    assert sum(increase or 0 for _, increase, _, _ in pairs) == 2000


def test_a_client_that_went_away_is_counted_as_the_engine_counts_it(filled: Filled) -> None:
    _fill(filled, _llamacpp([(2000, 2000, 0), (2000, 2150, 1), (2000, 2287, 1), (2288, 2288, 0)]))
    assert _pairs(filled) == [(2, 150, 2, "live"), (4, 137, 2, "live"), (6, 1, 2, "reconciled")]


def test_an_overshoot_of_the_live_count_is_never_taken_back(filled: Filled) -> None:
    # 105 were told as live, 100 settled: nothing is left to tell, and nothing is negative.
    _fill(filled, _llamacpp([(0, 0, 0), (0, 105, 1), (100, 105, 0)]))
    assert _pairs(filled) == [(2, 105, 2, "live"), (4, 0, 2, "reconciled")]


def test_requests_that_came_and_went_between_two_samples_are_settled(filled: Filled) -> None:
    _fill(filled, _llamacpp([(0, 0, 0), (40, 40, 0), (40, 40, 0)]))
    assert _pairs(filled) == [(2, 40, 2, "settled"), (4, 0, 2, "settled")]


def test_a_busy_stretch_whose_beginning_was_not_seen_is_live_to_its_end(filled: Filled) -> None:
    _fill(filled, _llamacpp([(500, 700, 2), (500, 800, 2), (900, 900, 0)]))
    assert _pairs(filled) == [(2, 100, 2, "live"), (4, 100, 2, "live")]


def test_an_unnoticed_restart_in_a_busy_stretch_is_not_reconciled_over(filled: Filled) -> None:
    _fill(filled, _llamacpp([(500, 500, 0), (500, 700, 1), (0, 20, 1), (60, 60, 0), (60, 60, 0)]))
    assert _pairs(filled) == [
        (2, 200, 2, "live"),
        (4, None, 2, "live"),
        (6, 40, 2, "live"),
        (8, 0, 2, "settled"),
    ]


def test_six_printed_digits_of_the_live_counter_do_not_look_like_a_restart(filled: Filled) -> None:
    # llama.cpp prints 6 digits: at 12 million tokens the product of two printed numbers wavers by some 100.
    _fill(filled, _llamacpp([(12e6, 12e6, 0), (12e6, 12_000_200, 1), (12e6, 12_000_150, 1), (12e6, 12_000_400, 1)]))
    assert _pairs(filled) == [(2, 200, 2, "live"), (4, 0, 2, "live"), (6, 200, 2, "live")]


def test_the_first_pair_of_a_range_has_its_predecessor(filled: Filled) -> None:
    _fill(filled, [sample(s, generation_tokens_total=5.0 * s) for s in (0, 50, 60)])
    series = filled.store.query("engine_series", {"start": at(55), "end": at(70)}).to_pylist()
    assert [(row["ts"], row["generation_tokens_per_second"]) for row in series] == [(at(60), 5.0)]


def test_a_bucket_weighs_each_pair_by_its_time(filled: Filled) -> None:
    # 200 samples, one a second, 11 points: range 199 s / 10 -> buckets of 20 s. Ten tokens a second; in
    # [100, 120) one second brings 240: (19 * 10 + 240) / 20 = 21.5 a second.
    total, samples = 0.0, []
    for second in range(200):
        total += 240 if second == 100 else 10
        samples.append(sample(second, generation_tokens_total=total))
    # Whole multiples of 20 s since 1970: T0 (2026-11-30T12:00Z = 1796040000 s) is one of them.
    _fill(filled, samples)
    table = filled.store.query("engine_series", {"start": at(0), "end": at(199), "points": 11})
    assert table.schema.metadata[b"bucket_seconds"] == b"20"
    rows = table.to_pylist()
    assert len(rows) <= 11
    peak = next(row for row in rows if row["generation_tokens_per_second_max"] == 240)
    assert peak["generation_tokens_per_second"] == pytest.approx(21.5)
    assert peak["generation_tokens_per_second_min"] == 10
    assert peak["samples"] == 20
    assert sum(row["samples"] for row in rows) == 200
    others = [row["generation_tokens_per_second"] for row in rows if row is not peak]
    assert others == pytest.approx([10] * (len(rows) - 1))
