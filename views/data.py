"""
The store as the pages see it: named queries through the collector, each asked once a second for all viewers.

Answers are Arrow tables, which nobody can change, so that viewers share one object. Errors are not cached.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import streamlit as st

import settings
from store.client import StoreClient
from store.protocol import Parameter
from views.urlstate import Window

Records = list[dict[str, Any]]
LATENCY_WINDOW_SECONDS = 60
# A little more than 150, so that 5 minutes of samples every 2 s are shown as they are, and not in buckets.
MOST_POINTS, FEWEST_POINTS, POINTS_BUDGET = 160, 40, 640


@st.cache_resource(show_spinner=False)
def _client(data_folder: str) -> StoreClient:
    """One client a data folder and process; `data_folder` is only the key of the cache."""
    return StoreClient(settings.load())


def client() -> StoreClient:
    """The client of this process's collector."""
    return _client(str(settings.load().data))


@st.cache_resource(ttl=1, max_entries=256, show_spinner=False)
def _query(data_folder: str, name: str, parameters: tuple[tuple[str, Parameter], ...]) -> pa.Table:
    return _client(data_folder).query(name, dict(parameters))


def query(name: str, **parameters: Parameter) -> pa.Table:
    """Answer a named query of `store.protocol`, at most a second old. Raises `StoreError`."""
    return _query(str(settings.load().data), name, tuple(sorted(parameters.items())))


def records(name: str, **parameters: Parameter) -> Records:
    """The rows of a named query as dictionaries; NULL is None. Raises `StoreError`."""
    rows: Records = query(name, **parameters).to_pylist()
    return rows


def command(name: str, /, **parameters: Any) -> dict[str, Any]:
    """
    Have the collector change something (`store.protocol` lists what). Raises `StoreError`.

    Whoever offers it asks `access` at the moment of the click. The next queries see what has changed.
    """
    answer = client().command(name, parameters)
    _query.clear()
    return answer


@st.cache_resource(ttl=1, show_spinner=False)
def _health(data_folder: str) -> Mapping[str, Any]:
    return _client(data_folder).health()


def health() -> Mapping[str, Any]:
    """What the collector says of itself (`looked_for`, writer state ...). Raises `StoreError`."""
    return _health(str(settings.load().data))


def points_for(series: int) -> int:
    """How many points each of `series` lines may have, so that one refresh stays small on the wire."""
    return max(FEWEST_POINTS, min(MOST_POINTS, POINTS_BUDGET // max(1, series)))


def coarsest_points(engines: int, devices: int) -> int:
    """The fewest points of any line on a page with so many engines and devices: the step of its crosshair."""
    return min(points_for(engines), points_for(2 * devices))


@dataclass(frozen=True, slots=True)
class LiveData:
    """Everything one tick of the Live page shows, loaded before anything is drawn."""

    window: Window
    engines: Records  # overview, one row an engine, sorted by engine_id
    latency: Mapping[tuple[str, str], Mapping[str, Any]]  # (engine_id, quantity)
    offers: Mapping[tuple[str, str], Mapping[str, Any]]  # (engine_id, quantity)
    parts: Mapping[str, Records]  # engine_id: what its memory is made of
    startups: Mapping[str, Mapping[str, Any]]  # epoch_id: how long that life took to start
    devices: Records
    sources: Records
    events: Records
    engine_series: pa.Table
    device_series: pa.Table
    device_memory_series: pa.Table
    host_series: pa.Table
    host_memory_series: pa.Table


def load_live(window: Window) -> LiveData:
    """All queries of the Live page. Raises `StoreError`; a page shows it as its own state."""
    span: dict[str, datetime] = {"start": window.start, "end": window.end}
    at = None if window.live else window.end
    engines = sorted(records("overview", at=at), key=lambda row: str(row["engine_id"]))
    # the parts as of the samples that the cards show, so that one card never tells of two moments
    sampled = at or max((row["state_ts"] for row in engines if row["state_ts"] is not None), default=None)
    devices = sorted(records("devices"), key=lambda row: int(row["index"]))
    recent = max(
        window.start, datetime.fromtimestamp(window.end.timestamp() - LATENCY_WINDOW_SECONDS, window.end.tzinfo)
    )
    return LiveData(
        window=window,
        engines=engines,
        latency=_by_quantity(records("latency", start=recent, end=window.end)),
        offers=_by_quantity(records("quantities")),
        parts=_by_engine(records("memory_parts", at=sampled)),
        startups={str(row["epoch_id"]): row for row in records("startups")},
        devices=devices,
        sources=records("sources"),
        events=records("events", **span, limit=200),
        engine_series=query("engine_series", **span, points=points_for(len(engines))),
        device_series=query("device_series", **span, points=points_for(2 * len(devices))),
        device_memory_series=query("device_memory_series", **span, points=points_for(2 * len(devices))),
        host_series=query("host_series", **span, points=MOST_POINTS),
        host_memory_series=query("host_memory_series", **span, points=points_for(len(engines))),
    )


def _by_quantity(rows: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], Mapping[str, Any]]:
    return {(str(row["engine_id"]), str(row["quantity"])): row for row in rows}


def _by_engine(rows: Sequence[dict[str, Any]]) -> dict[str, Records]:
    found: dict[str, Records] = {}
    for row in rows:
        found.setdefault(str(row["engine_id"]), []).append(row)
    return found
