"""
What the crosshair tells of a step, worked out by Vega itself: the transforms of its layer over a few rows, as text.

Expected figures are means, least and greatest values of the rows below, by hand.
"""

from __future__ import annotations

import re
from typing import Any

import altair as alt
import pytest
import vl_convert

from views.crosshair import crosshair
from views.palette import Series
from views.panels import Panel, Scene, Stroke

ENGINE = Series("s0", "vllm-8000", "vLLM", 0)


def told(panel: Panel, scene: Scene, rows: list[dict[str, Any]]) -> list[str]:
    """The readout of each step, in the order of time."""
    layer = crosshair(panel, (ENGINE,), scene, alt.Chart(alt.NamedData(panel.dataset)), last=True)[0]
    spec = {
        "data": {"values": rows},
        "transform": layer.to_dict(validate=False)["transform"],
        "mark": "text",
        "encoding": {"text": {"field": "t0"}, "y": {"field": "at", "type": "ordinal"}},
    }
    return re.findall(r">([^<>]*tok/s[^<>]*|[^<>]* ms[^<>]*|not known)<", vl_convert.vegalite_to_svg(spec))


def test_lines_of_several_repeats_are_told_by_their_mean_with_the_least_and_the_greatest():
    panel = Panel("generation", "Generation throughput", "tok/s", "lines", "engine", "gen")
    scene = Scene((), 2.0, spread=True, elapsed=True)
    rows = [
        {"ts": 0, "s": "s0", "r": 1, "gen": 500, "gen_lo": 490, "gen_hi": 510},
        {"ts": 500, "s": "s0", "r": 2, "gen": 700, "gen_lo": 650, "gen_hi": 720},
        {"ts": 1900, "s": "s0", "r": 3, "gen": None, "gen_lo": None, "gen_hi": None},
        {"ts": 2000, "s": "s0", "r": 1, "gen": 510, "gen_lo": 510, "gen_hi": 510},
        {"ts": 4000, "s": "s0", "r": 1, "gen": None, "gen_lo": None, "gen_hi": None},
    ]
    # (500 + 700) / 2; a step without any value is not there, and never 0.
    assert told(panel, scene, rows) == ["600 tok/s (490 to 720)", "510 tok/s"]


@pytest.mark.parametrize("order", [1, -1])
def test_of_several_percentiles_in_a_step_the_newest_is_told(order):
    panel = Panel(
        "latency", "ITL", "ms", "strokes", "latency", "p50", quantity="itl_seconds",
        strokes=(Stroke("p50", "p50"),), bands=False,
    )  # fmt: skip
    rows = [
        {"ts": 0, "s": "s0", "q": "itl_seconds", "p50": 10, "p50_lo": 5, "p50_hi": 20},
        {"ts": 20_000, "s": "s0", "q": "itl_seconds", "p50": 40, "p50_lo": 25, "p50_hi": 50},
    ]
    assert told(panel, Scene((), 60.0, spread=True), rows[::order]) == ["40 ms (in bucket 25 to 50)"]
