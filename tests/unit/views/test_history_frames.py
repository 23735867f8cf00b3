"""Data sets and specification of the History page. Expected values are worked out by hand in each test."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import altair as alt
import pyarrow as pa
import pytest

from views import history_charts, history_frames
from views.palette import assign
from views.urlstate import Window

START = datetime(2026, 12, 1, tzinfo=UTC)
WINDOW = Window(START, START + timedelta(hours=24), live=False)
ENGINES = assign(["a", "b"], {"a": "A on vLLM"})
GPUS = tuple((f"d{n}", f"GPU {n}") for n in range(8))


def event(hours: float, engine_id: str | None, text: str) -> dict[str, object]:
    ts = START + timedelta(hours=hours)
    return {"ts": ts, "engine_id": engine_id, "kind": "started", "text": text, "details": None}


def test_latencies_come_in_the_unit_of_their_chart():
    table = pa.table(
        {
            "ts": pa.array([START, START, START], pa.timestamp("us", "UTC")),
            "engine_id": ["a", "a", "stranger"],
            "quantity": ["ttft_seconds", "itl_seconds", "ttft_seconds"],
            "p95_seconds": [0.9, 0.022, 1.0],
            "p95_low_seconds": [0.75, 0.01, 1.0],
            "p95_high_seconds": [1.0, None, 1.0],
        }
    )
    frame = history_frames.latency_frame(table, ENGINES, ["p95"])
    assert frame["s"].tolist() == ["s0", "s0"]
    assert frame["p95"].tolist() == pytest.approx([0.9, 22.0])
    assert frame["p95_lo"].tolist() == pytest.approx([0.75, 10.0])
    assert math.isnan(frame["p95_hi"][1])  # the last bucket has no upper bound


def test_events_that_are_too_near_to_tell_apart_become_one_mark():
    # A day in 240 steps: 6 minutes each.
    events = [event(1.0, "a", "one"), event(1.01, "a", "two"), event(1.01, "b", "other"), event(5, "a", "three")]
    frame = history_frames.mark_frame(events, WINDOW, {"a": "s0", "b": "s1"})
    assert list(zip(frame["row"], frame["text"], strict=True)) == [("s0", "one; two"), ("s1", "other"), ("s0", "three")]


def test_many_events_at_once_are_counted_and_not_all_told():
    events = [event(1.0, "a", f"event {n}") for n in range(9)]
    (text,) = history_frames.mark_frame(events, WINDOW, {"a": "s0"})["text"]
    assert text.startswith("event 0; event 1; event 2; event 3; and 5 more")


def test_rules_over_the_charts_are_left_out_where_they_would_hide_them():
    few = history_frames.rule_frame([event(n, "a", "x") for n in range(20)], WINDOW, {"a": "s0"})
    assert len(few) == 20
    many = history_frames.rule_frame([event(n * 0.2, "a", "x") for n in range(100)], WINDOW, {"a": "s0"})
    assert many["text"].tolist() == [""]  # one that is not drawn


def test_events_of_the_host_stand_in_its_row():
    frame = history_frames.mark_frame([event(1, None, "Collector started")], WINDOW, {"a": "s0"})
    assert frame["row"].tolist() == ["host"]


@pytest.mark.parametrize("devices", [(), GPUS[:1], GPUS])
@pytest.mark.parametrize("engines", [(), tuple(ENGINES.values())])
def test_the_specification_is_valid_vega_lite(engines, devices):
    """Judged by the JSON schema that Altair ships."""
    panels = history_charts.panels_of(
        history_charts.GROUPS, devices, tuple(history_charts.LATENCIES), ("p50", "p99"), engines=bool(engines)
    )
    rows = (*((series.key, series.label) for series in engines), ("host", "host and collector"))
    spec = history_charts.history_spec(panels, rows, engines, engines, engines, devices, 60.0)
    alt.VConcatChart.from_dict(json.loads(json.dumps(spec)), validate=True)
    hover, brush, *_ = spec["params"]
    assert hover["views"] == brush["views"]
    assert len(brush["views"]) == len(panels)


def test_more_devices_than_dash_patterns_become_a_heat_map():
    def shapes(devices):
        found = history_charts.panels_of((history_charts.GPU_LOAD,), devices, (), (), engines=False)
        return {panel.shape for panel in found}

    assert shapes(GPUS[:4]) == {"devices"}
    assert shapes(GPUS[:5]) == {"heat"}
