"""What the History page asks the store for: only the series of the chosen charts, all with the same points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from store.protocol import Parameter
from views import data
from views.history_charts import GPU_LOAD, GPU_MEMORY, HOST, LATENCY
from views.timerange import Extent
from views.urlstate import Window

# Points a line: many for few lines, and for eight engines on eight GPUs as many as keep a view under 200 kB sent.
MOST_POINTS, FEWEST_POINTS, POINTS_BUDGET = 400, 100, 3200
MOST_EVENTS = 1000


@dataclass(frozen=True, slots=True)
class HistoryData:
    """The answers to the queries of one view; None: not asked, since no chosen chart needs it."""

    window: Window
    now: datetime
    events: pa.Table  # newest first, at most `MOST_EVENTS`
    engine_series: pa.Table
    host_series: pa.Table
    latency_series: pa.Table | None
    device_series: pa.Table | None
    device_memory_series: pa.Table | None
    host_memory_series: pa.Table | None

    def table(self, query: str) -> pa.Table:
        """The answer to a query that was asked."""
        found: pa.Table = getattr(self, query)
        return found

    @property
    def empty(self) -> bool:
        """Whether nothing at all was sampled in the window."""
        rows: int = self.engine_series.num_rows + self.host_series.num_rows
        return rows == 0


def extent() -> Extent:
    """From when to when there is data. Raises `StoreError`."""
    (row,) = data.records("extent")
    return Extent(row["oldest_ts"], row["newest_ts"])


def points_for(engines: int, devices: int) -> int:
    """How many points each line may have on a page with so many engines and devices."""
    return max(FEWEST_POINTS, min(MOST_POINTS, POINTS_BUDGET // max(1, engines + devices)))


def load(window: Window, groups: Sequence[str], engines: int, devices: int) -> HistoryData:
    """Ask for one view; `groups` as in `views.history_charts`. Raises `StoreError`."""
    span: dict[str, Parameter] = {"start": window.start, "end": window.end}
    series = {**span, "points": points_for(engines, devices)}

    def asked(name: str, group: str) -> pa.Table | None:
        return data.query(name, **series) if group in groups else None

    return HistoryData(
        window=window,
        now=datetime.now(UTC),
        events=data.query("events", **span, limit=MOST_EVENTS),
        engine_series=data.query("engine_series", **series),
        host_series=data.query("host_series", **series),
        latency_series=asked("latency_series", LATENCY),
        # also for the names and sizes of the devices whose memory is drawn
        device_series=data.query("device_series", **series) if {GPU_LOAD, GPU_MEMORY} & set(groups) else None,
        device_memory_series=asked("device_memory_series", GPU_MEMORY),
        host_memory_series=asked("host_memory_series", HOST),
    )
