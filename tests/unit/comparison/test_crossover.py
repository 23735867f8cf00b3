"""
Where two curves cross. With three repeats a side and a spread of s, a mean is known to within about 2.5 s (Student's t
at 2 to 4 degrees of freedom), so figures that are 20 % apart with a spread of 1 % are decided and figures that are
1 % apart with a spread of 5 % are not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from comparison.crossover import crossover, ratio_at
from comparison.curves import Curve, Measure, curve_of


def curve(label: str, means: Mapping[float, float], spread: float = 0.01, repeats: int = 3) -> Curve:
    """Repeats at mean x (1 - spread), mean, mean x (1 + spread), as many of them as there are repeats."""
    steps = (0.0, -spread, spread, -spread / 2, spread / 2)[:repeats]
    return Curve(label, {load: [mean * (1 + step) for step in steps] for load, mean in means.items()})


LLAMA = {1: 100.0, 2: 180.0, 4: 250.0, 8: 260.0}
VLLM = {1: 70.0, 2: 140.0, 4: 300.0, 8: 560.0}


def test_a_crossing_is_a_range_between_two_measured_loads() -> None:
    # 140 / 180 is below 1 and 300 / 250 above it: 22 % behind at 2, 20 % ahead at 4. llama.cpp's lead at 2 is 180/140.
    found = crossover(curve("llama.cpp", LLAMA), curve("vLLM", VLLM))
    assert found.kind == "crosses"
    crossing = found.crossings[0]
    assert (crossing.after, crossing.by, crossing.to) == (2, 4, "second")
    # ln(140/180) = -0.2513, ln(300/250) = 0.1823: the line meets 0 at 2 * 2 ** (0.2513 / 0.4336) = 2.989.
    assert crossing.line == pytest.approx(2.989, abs=0.001)
    assert found.sentence.startswith("vLLM overtakes llama.cpp between 2 and 4 users: at 2 llama.cpp is ahead by 29 %")
    assert "about 3; nothing between the measured loads was run." in found.sentence
    assert "3 repeats" in found.sentence


def test_neighbouring_loads_leave_no_range() -> None:
    found = crossover(curve("a", {2: 100, 3: 100}), curve("b", {2: 80, 3: 130}))
    assert found.sentence.startswith("b overtakes a at 3 users: at 2 a is ahead by 25 %")
    assert "line" not in found.sentence


def test_a_load_that_is_not_decided_widens_the_range() -> None:
    # At 2 the means are 1 % apart: the change lies somewhere above 1 and by 4 at the latest.
    found = crossover(curve("a", {1: 100, 2: 100, 4: 100}), curve("b", {1: 70, 2: 101, 4: 140}))
    assert (found.crossings[0].after, found.crossings[0].by) == (1, 4)
    assert [level.ahead for level in found.levels] == ["first", "open", "second"]
    assert "At 2 nothing is decided: the repeats scatter more than the two differ." in found.sentence


def test_one_side_ahead_everywhere_is_a_floor() -> None:
    found = crossover(curve("a", {1: 100, 32: 400}), curve("b", {1: 70, 32: 300}))
    assert found.kind == "first ahead"
    assert found.crossings == ()
    assert "ahead at every measured load from 1 to 32 users, by 33 % to 43 %" in found.sentence
    assert "If b overtakes it at all, it does so above 32." in found.sentence


def test_what_follows_the_last_decided_load_is_open() -> None:
    found = crossover(curve("a", {1: 100, 2: 100, 4: 100}), curve("b", {1: 70, 2: 80, 4: 100.5}))
    assert found.kind == "first ahead"
    assert "At 4 nothing is decided" in found.sentence
    assert "so whether b overtakes above 2 is open" in found.sentence


def test_several_crossings_are_all_said() -> None:
    found = crossover(curve("a", {1: 100, 2: 100, 4: 100}), curve("b", {1: 50, 2: 150, 4: 50}))
    assert found.kind == "crosses several times"
    assert [(each.after, each.by, each.to) for each in found.crossings] == [(1, 2, "second"), (2, 4, "first")]
    assert found.sentence.startswith("They cross 2 times. b overtakes a at 2 users")


def test_scatter_decides_nothing() -> None:
    found = crossover(curve("a", {1: 100, 4: 100}, spread=0.3), curve("b", {1: 110, 4: 90}, spread=0.3))
    assert found.kind == "undecided"
    assert "not decided: the repeats scatter more than the two differ" in found.sentence


def test_one_repeat_is_no_proof_but_its_figures_are_told() -> None:
    found = crossover(curve("llama.cpp", LLAMA, repeats=1), curve("vLLM", VLLM, repeats=1))
    assert found.kind == "undecided"
    assert found.crossings == ()
    assert "By the figures alone vLLM is ahead from 4 users on. Measure at least 3 repeats." in found.sentence


def test_less_latency_is_better() -> None:
    fast, slow = {1: 0.1, 8: 0.9}, {1: 0.2, 8: 0.5}
    found = crossover(curve("a", fast), curve("b", slow), Measure("TTFT", better="lower"))
    assert [level.ahead for level in found.levels] == ["first", "second"]
    assert found.crossings[0].to == "second"


def test_untrusted_stages_and_loads_of_one_side_are_left_out_and_said() -> None:
    rows = [
        {"stage_id": n, "concurrency": users, "tps": tps}
        for n, (users, tps) in enumerate([(1, 100.0), (1, 101.0), (2, 150.0), (2, 900.0), (None, 5.0)])
    ]
    mine = curve_of("a", rows, {3}, lambda row: row["tps"])
    assert mine.values == {1: [100.0, 101.0], 2: [150.0]}
    assert mine.left_out == ("a at 2: 1 of 2 repeats failed their checks",)
    found = crossover(mine, curve("b", {1: 300, 4: 300}))
    assert [level.load for level in found.levels] == [1]
    assert found.left_out == (
        "a at 2: 1 of 2 repeats failed their checks",
        "2 users: only a has figures there",
        "4 users: only b has figures there",
    )


def test_a_figure_that_is_not_measurable_is_no_figure() -> None:
    found = crossover(Curve("a", {1: [None, None], 2: [5.0]}), Curve("b", {1: [3.0]}))
    assert found.kind == "not comparable"
    assert "no load in common" in found.sentence


def test_the_ratio_at_a_load_is_measured_there_or_that_of_its_neighbours() -> None:
    first, second = curve("llama.cpp", LLAMA), curve("vLLM", VLLM)
    at_4 = ratio_at(first, second, 4)
    assert at_4.measured.ratio.estimate == pytest.approx(300 / 250)
    assert "At 4 users vLLM has 1.20 times the output tokens per second of llama.cpp (1." in at_4.sentence
    at_6 = ratio_at(first, second, 6)
    assert at_6.measured is None
    assert (at_6.below.load, at_6.above.load) == (4, 8)
    assert at_6.sentence.startswith("6 users were not measured. At 4 vLLM has 1.20 times")
    beyond = ratio_at(first, second, 64)
    assert "64 users were not measured, nor anything above it: at 8 vLLM has 2.15 times" in beyond.sentence


def test_the_range_holds_the_true_crossing() -> None:
    # Two curves that cross at 5.5 users, measured three times with a scatter of 5 %: the statement may be wider or
    # say that less is decided, but a range without the truth may come from chance in a few of a hundred only.
    levels = (1, 2, 4, 8, 16, 32)
    chance = np.random.default_rng(11)

    def measured(mean: float) -> list[float]:
        return [float(value) for value in mean * (1 + 0.05 * chance.standard_normal(3))]

    wrong = ranges = 0
    for _ in range(100):
        one = Curve("a", {users: measured(100 * users**0.5) for users in levels})
        other = Curve("b", {users: measured(100 * users**0.5 * (users / 5.5) ** 0.4) for users in levels})
        for crossing in crossover(one, other).crossings:
            ranges += 1
            wrong += not (crossing.after <= 5.5 <= crossing.by and crossing.to == "second")
    assert ranges >= 90
    assert wrong <= 5
