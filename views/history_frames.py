"""
What only the History page draws, as data sets of `views.history_charts`: latencies, states, gaps, event marks.

Times are milliseconds since 1970 (UTC). The other data sets are those of the Live page (`views.frames`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from views import formatting, frames, states, timeline
from views.history_charts import HOST_ROW, LATENCIES
from views.palette import Series
from views.timeline import Segment
from views.urlstate import Window

MARK_STEPS = 240  # events that are nearer to each other than this share of the axis become one mark
MOST_TEXTS = 4
MOST_RULES = 24
STATE_COLUMNS = ["ts", "te", "row", "name", "tone", "what", "when", "why"]


def latency_frame(table: pa.Table, engines: Mapping[str, Series], percentiles: Sequence[str]) -> pd.DataFrame:
    """Percentiles with the bounds of the bucket they lie in, in the units of `LATENCIES`."""
    quantities = table.column("quantity").to_pylist()
    keys = {engine_id: series.key for engine_id, series in engines.items()}
    scale = pd.Series([LATENCIES.get(quantity, ("", "", 1.0))[2] for quantity in quantities], dtype="float64")
    frame: dict[str, Any] = {
        "ts": frames.times(table),
        "s": pd.Categorical([keys.get(value) for value in table.column("engine_id").to_pylist()]),
        "q": pd.Categorical(quantities),
    }
    for name in percentiles:
        for column, end in (("seconds", ""), ("low_seconds", "_lo"), ("high_seconds", "_hi")):
            values = table.column(f"{name}_{column}").cast(pa.float64()).to_pandas()
            frame[name + end] = (values * scale).astype("float32")
    return pd.DataFrame(frame).dropna(subset=["s"]).reset_index(drop=True)


def state_frame(segments: Sequence[Segment], rows: Mapping[str, tuple[str, str]], window: Window) -> pd.DataFrame:
    """
    One row a segment. `rows` gives for an engine_id the row of the chart and the engine's name.

    Each tone has a row, if only one without length: Vega warns of marks without any.
    """
    made = [
        (
            frames.milliseconds(segment.start),
            frames.milliseconds(segment.end),
            *rows[str(segment.engine_id)],
            states.look(segment.state).tone if segment.state else "none",
            states.look(segment.state).word if segment.state else "no data",
            segment.span,
            segment.why,
        )
        for segment in segments
        if segment.engine_id in rows
    ]
    start, row = frames.milliseconds(window.start), next(iter(rows.values()))[0]
    made += [(start, start, row, "", tone, "", "", "") for tone in ("good", "work", "off")]
    return pd.DataFrame(made, columns=STATE_COLUMNS)


def gap_frame(silences: Sequence[Segment], window: Window) -> pd.DataFrame:
    """Shades over all charts. Without any, one that is not drawn (its end is not after its beginning)."""
    start = frames.milliseconds(window.start)
    made = [
        (frames.milliseconds(segment.start), frames.milliseconds(segment.end), segment.span, segment.why)
        for segment in silences
    ]
    return pd.DataFrame(made or [(start, start, "", "")], columns=["ts", "te", "when", "text"])


def mark_frame(
    events: timeline.Events, window: Window, row_of: Mapping[str | None, str], *, by_row: bool = True
) -> pd.DataFrame:
    """
    A mark for each event, or for several that lie too near to each other to be told apart.

    Without any, one that is not drawn (no text).
    """
    width = window.seconds / MARK_STEPS
    groups: dict[tuple[str, int], list[Mapping[str, Any]]] = {}
    for event in sorted(events, key=lambda event: event["ts"]):
        if window.start <= event["ts"] <= window.end:
            row = row_of.get(event["engine_id"], HOST_ROW)
            place = int((event["ts"] - window.start).total_seconds() // width)
            groups.setdefault((row if by_row else "", place), []).append(event)
    made = []
    for (row, _), together in groups.items():
        texts = [timeline.event_text(event) for event in together[:MOST_TEXTS]]
        if len(together) > MOST_TEXTS:
            texts.append(f"and {len(together) - MOST_TEXTS} more: see the table of events")
        when = formatting.clock(together[0]["ts"])
        if len(together) > 1:
            when += f" to {formatting.clock(together[-1]['ts'], together[0]['ts'])}"
        made.append((frames.milliseconds(together[0]["ts"]), row, "; ".join(texts), when))
    first = next(iter(row_of.values()), HOST_ROW)
    nothing = [(frames.milliseconds(window.start), first, "", "")]
    return pd.DataFrame(made or nothing, columns=["ts", "row", "text", "when"])


def rule_frame(events: timeline.Events, window: Window, row_of: Mapping[str | None, str]) -> pd.DataFrame:
    """Event rules over all charts; none where there are so many that they would hide what is drawn."""
    frame = mark_frame(events, window, row_of, by_row=False)
    if len(frame) > MOST_RULES:
        frame = mark_frame([], window, row_of)
    return frame.drop(columns=["row"])
