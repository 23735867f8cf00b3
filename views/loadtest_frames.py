"""
Load tests as the data sets of `views.loadtest_charts`: stages as points, levels as curves, requests as bars.

Means over repeats have their interval from `comparison.intervals`. Percentiles are never averaged: a latency's line
runs through the middle one of the repeats' p50, its band ends at the worst repeat's p95.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from comparison import intervals
from views import formatting, loadtest_data
from views.loadtest_charts import BAD, DECODE, PREFILL, USER, WAITS
from views.loadtest_data import Row, Run
from views.palette import Series

# column of the chart -> column of the stage and factor to the unit of the chart
MEANS: Mapping[str, tuple[str, float]] = {
    "tps": ("", 1.0),
    USER: ("user_tokens_per_second", 1.0),
    "good": ("goodput_requests_per_second", 1.0),
}
LATENCIES: Mapping[str, tuple[str, float]] = {"ttft": ("ttft", 1.0), "tpot": ("tpot", 1000.0)}
POINT_COLUMNS = ["x", "s", "r", "run", "label", "ok", "repeat", *MEANS, "joule", *LATENCIES, "ttft_p95", "tpot_p95"]
MOST_BARS = 200  # requests that a timeline draws


def points(runs: Sequence[Run], series: Mapping[str, Series]) -> pd.DataFrame:
    """One row a stage that has a level: its load, whose it is, and its measures in the units of the charts."""
    rows = []
    for run in sorted(runs, key=lambda each: each.trusted):  # what is drawn last lies on top
        joules = _joules(run)
        for stage in run.stages:
            level = loadtest_data.level_of(stage)
            if level is None:
                continue
            mine = series[loadtest_data.owner(stage)]
            rows.append(
                {
                    "x": float(level), "s": mine.key, "r": run.key, "run": run.name, "label": str(stage["label"]),
                    "ok": run.trusted, "repeat": int(stage["repeat"]) + 1,
                    "tps": loadtest_data.throughput_of(stage), "joule": joules.get(int(stage["stage_id"])),
                }
                | {key: stage[column] for key, (column, _) in MEANS.items() if column}
                | {
                    key + end: _scaled(stage[f"{column}_{quantile}_seconds"], factor)
                    for key, (column, factor) in LATENCIES.items()
                    for end, quantile in (("", "p50"), ("_p95", "p95"))
                }
            )  # fmt: skip
    return pd.DataFrame(rows, columns=POINT_COLUMNS)


def curve(stages: pd.DataFrame) -> pd.DataFrame:
    """One row a run, engine and level: lines with their bands, from the rows of `points`."""
    rows = []
    for keys, group in stages.groupby(["r", "s", "x"], sort=False, observed=True):
        first = group.iloc[0]
        row: dict[str, Any] = dict(zip(("r", "s", "x"), keys, strict=True))
        row |= {"run": first["run"], "label": first["label"], "ok": bool(first["ok"]), "n": len(group)}
        row["at"] = f"{row['x']:g}"
        for key in (*MEANS, "joule"):
            found = intervals.mean_interval(intervals.repeats(_known(group[key])))
            low = None if found.low is None else max(0.0, found.low)  # none of these figures is ever less
            row |= {key: found.estimate, f"{key}_lo": low, f"{key}_hi": found.high}
        for key in LATENCIES:
            middle, worst = _known(group[key]), _known(group[f"{key}_p95"])
            row[key] = statistics.median(middle) if middle else None
            row |= {f"{key}_lo": row[key], f"{key}_hi": max(worst) if worst else None}
        rows.append(row)
    columns = ["r", "s", "x", "run", "label", "ok", "n", "at"]
    columns += [key + end for key in (*MEANS, "joule", *LATENCIES) for end in ("", "_lo", "_hi")]
    return pd.DataFrame(rows, columns=columns)


def columns_of(frame: pd.DataFrame, *keys: str) -> pd.DataFrame:
    """
    What the chart of these measures reads of `points` or `curve`, small on the wire.

    Texts are dictionaries and figures have 7 digits, which are more than a chart shows.
    """
    ends = [key + end for key in keys for end in ("", "_lo", "_hi") if key + end in frame]
    told = frame[[name for name in ("x", "s", "r", "run", "label", "ok", "n", "at", "repeat") if name in frame] + ends]
    texts = dict.fromkeys((name for name in ("s", "r", "run", "label", "at") if name in told), "category")
    return told.astype({**texts, **dict.fromkeys(ends, "float32")})


def slo_frame(limit: float | None, unit: str, factor: float) -> pd.DataFrame:
    """The line of an SLO in the unit of its chart; no row where none was stated."""
    rows = [] if limit is None else [(limit * factor, f"grey dashes: SLO {limit * factor:g} {unit}")]
    return pd.DataFrame(rows, columns=["value", "text"])


def _joules(run: Run) -> dict[int, float]:
    """J per output token of each stage, over all its devices; a stage in which a device told none has no figure."""
    found: dict[int, list[float | None]] = {}
    for row in run.resources:
        if row["device_id"] is not None:
            found.setdefault(int(row["stage_id"]), []).append(row["joules_per_output_token"])
    return {
        stage: sum(value for value in values if value is not None)
        for stage, values in found.items()
        if None not in values
    }


def _known(values: Any) -> list[float]:
    return [float(value) for value in values if value is not None and formatting.known(float(value))]


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


def bars(table: pa.Table, key: str) -> pd.DataFrame:
    """
    The requests of one stage as rectangles: waiting to be sent, TTFT, decode; a failed one from sent to its end.

    At most `MOST_BARS` requests; `key` is the engine's. Times are seconds since the stage began.
    """
    rows = []
    for place, request in enumerate(table.slice(0, MOST_BARS).to_pylist()):
        tip = _tip(request)
        spans = _spans(request)
        rows += [
            (place, place + 0.86, start, end, part, key, tip)
            for part, start, end in spans
            if start is not None and end is not None and end > start
        ]
    return pd.DataFrame(rows, columns=["row", "to", "start", "end", "part", "s", "tip"])


def _spans(request: Row) -> list[tuple[str, float | None, float | None]]:
    due, sent, first = request["scheduled_seconds"], request["sent_seconds"], request["first_token_seconds"]
    if request["status"] != "ok":
        return [(WAITS, due, sent), (BAD, sent, request["done_seconds"])]
    return [(WAITS, due, sent), (PREFILL, sent, first), (DECODE, first, request["last_token_seconds"])]


def _tip(request: Row) -> str:
    number = f"request {request['request']}"
    if request["status"] == "error":
        return f"{number}: {request['error'] or 'failed'}"
    if request["status"] == "cancelled":
        return f"{number}: cut off by the end of the stage"
    return (
        f"{number}: TTFT {formatting.duration(request['ttft_seconds'])}, TPOT "
        f"{formatting.duration(request['tpot_seconds'])}, {formatting.count(request['input_tokens'])} in, "
        f"{formatting.count(request['output_tokens'])} out"
    )


def window_frame(stage: Row) -> pd.DataFrame:
    """The steady window of a stage in seconds since its beginning; no row where it has none."""
    begin, end = stage["window_begin"], stage["window_end"]
    if begin is None or end is None:
        return pd.DataFrame([], columns=["start", "end", "text"])
    span = [(moment - stage["ts"]).total_seconds() for moment in (begin, end)]
    text = f"{formatting.duration(stage['window_seconds'])}: all users busy"
    return pd.DataFrame([(*span, text)], columns=["start", "end", "text"])


def datasets(**frames: pd.DataFrame) -> dict[str, pa.Table]:
    """Frames as Arrow tables for `st.vega_lite_chart`, without what pandas notes about itself."""
    return {
        name: pa.Table.from_pandas(frame, preserve_index=False).replace_schema_metadata(None)
        for name, frame in frames.items()
    }
