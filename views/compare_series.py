"""
The series of one engine in a window of the Compare page: how sure their means are, their lines over elapsed time,
and how their values are distributed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from comparison.intervals import Sample, blocks, quotient
from views import data, timeline

POINTS = 400
GIB = float(2**30)
NEARLY_ALL = 0.999


@dataclass(frozen=True, slots=True)
class EngineSeries:
    """The series of one engine in a window, each with its step in seconds."""

    engine: pa.Table
    host_memory: pa.Table
    device_memory: pa.Table
    devices: pa.Table
    latency: pa.Table


def load(span: Mapping[str, datetime], engine_id: str, device_ids: Sequence[str]) -> EngineSeries:
    """All series of an engine and of the devices that it held memory on. Raises `StoreError`."""

    def mine(name: str, column: str, values: Sequence[str]) -> pa.Table:
        table = data.query(name, **span, points=POINTS)
        return table.filter(pc.is_in(table.column(column).cast(pa.string()), pa.array(values, pa.string())))

    return EngineSeries(
        engine=mine("engine_series", "engine_id", [engine_id]),
        host_memory=mine("engine_memory_series", "engine_id", [engine_id]),
        device_memory=mine("device_memory_series", "engine_id", [engine_id]),
        devices=mine("device_series", "device_id", device_ids),
        latency=data.query("latency_series", **span, points=POINTS, engine_id=engine_id),
    )


def sampled(table: pa.Table, column: str, mean: float | None, *, only_working: bool = False) -> Sample | None:
    """How sure a mean is, from the series that it is the mean of; None without a mean."""
    if mean is None:
        return None
    values = pd.Series(table.column(column).to_pylist(), dtype="float64")
    if only_working:
        values = values.where(pd.Series(table.column("requests_running").to_pylist(), dtype="float64") > 0)
    return blocks(values.tolist(), step_seconds(table), mean)


def mean_latency(series: EngineSeries, quantity: str) -> Sample:
    """How sure the mean of a latency is, from its means over time, each weighing as much as its observations."""
    rows = [row for row in series.latency.to_pylist() if row["quantity"] == quantity]
    counts = [row["count"] for row in rows]
    seconds = [
        0.0 if row["count"] == 0 else row["mean_seconds"] * row["count"] if row["mean_seconds"] is not None else None
        for row in rows
    ]
    return quotient(seconds, counts, step_seconds(series.latency))


def step_seconds(table: pa.Table) -> float:
    """Distance of two rows of a series: its buckets, or the usual one of its samples."""
    told = timeline.bucket_seconds(table)
    if told > 0 or table.num_rows < 2:
        return told or 1.0
    stamps = pd.Series(table.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()).diff()
    return float(stamps[stamps > 0].median() / 1e6) if (stamps > 0).any() else 1.0


def summed(table: pa.Table, column: str) -> pd.DataFrame:
    """A column summed over the devices of each time; NaN where one of them is not known."""
    frame = table.select(["ts", "device_id", column]).to_pandas()
    wide = frame.pivot_table(index="ts", columns="device_id", values=column, aggfunc="mean", dropna=False)
    total: pd.DataFrame = wide.sum(axis=1, min_count=max(1, wide.shape[1])).rename(column).reset_index()
    return total


def lines(start: datetime, series: EngineSeries, repeat: int = 0) -> dict[str, pd.DataFrame]:
    """The lines of the overlay, by data set, over elapsed time; `repeat` from 1 where there are several, else 0."""
    start = start.astimezone(UTC)
    engine = {"ts": _elapsed(series.engine, start)}
    for source, target, scale in (
        ("generation_tokens_per_second", "gen", 1.0),
        ("prompt_tokens_per_second", "prompt", 1.0),
        ("requests_running", "run", 1.0),
        ("requests_waiting", "wait", 1.0),
        ("kv_used_fraction", "kv", 100.0),
    ):
        for end, short in (("", ""), ("_min", "_lo"), ("_max", "_hi")):
            engine[target + short] = _column(series.engine, source + end, scale)
    host = {"ts": _elapsed(series.host_memory, start), "host": _column(series.host_memory, "memory_bytes", 1 / GIB)}
    for end, short in (("_min", "_lo"), ("_max", "_hi")):
        host["host" + short] = _column(series.host_memory, "memory_bytes" + end, 1 / GIB)
    memory, power = summed(series.device_memory, "memory_bytes"), summed(series.devices, "power_watts")
    made = {
        "engine": pd.DataFrame(engine),
        "host": pd.DataFrame(host),
        "memory": _one_line(memory, "memory_bytes", "gpu", start, 1 / GIB),
        "power": _one_line(power, "power_watts", "power", start, 1.0),
    }
    return {name: frame.assign(r=float(repeat)) for name, frame in made.items()}


def _one_line(frame: pd.DataFrame, source: str, target: str, start: datetime, scale: float) -> pd.DataFrame:
    values = frame[source] * scale
    elapsed = (pd.to_datetime(frame["ts"], utc=True) - pd.Timestamp(start)).dt.total_seconds() * 1000
    return pd.DataFrame({"ts": elapsed, target: values, f"{target}_lo": values, f"{target}_hi": values})


def _elapsed(table: pa.Table, start: datetime) -> pd.Series[float]:
    stamps = table.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return pd.Series(stamps / 1000.0 - start.timestamp() * 1000, dtype="float64")


def _column(table: pa.Table, name: str, scale: float) -> pd.Series[float]:
    return pd.Series(table.column(name).cast(pa.float64()).to_numpy() * scale, dtype="float64")


def spread(series: EngineSeries) -> dict[str, pd.DataFrame]:
    """How the generation rate was distributed over the time with a request running."""
    rates = pd.Series(series.engine.column("generation_tokens_per_second").to_pylist(), dtype="float64")
    running = pd.Series(series.engine.column("requests_running").to_pylist(), dtype="float64")
    return {"generation": distribution(rates[running > 0].dropna().tolist())}


def distribution(values: Sequence[float]) -> pd.DataFrame:
    """The empirical distribution function of values: share of them at or below each, rising to 1."""
    ordered = sorted(values)
    count = len(ordered)
    shares = [(place + 1) / count for place in range(count)]
    return pd.DataFrame({"value": ordered, "share": shares, "bounds": 0.0})


def from_buckets(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """
    The distribution function of a histogram (rows of one quantity of the query `latency_buckets`).

    It is known at the bounds only, and drawn up to the one that 99.9 % lie below: the last bounds are far away.
    """
    total = max(row["cumulative_count"] for row in rows)
    finite = [row for row in rows if math.isfinite(row["le"])]
    tail = next((n for n, row in enumerate(finite) if row["cumulative_count"] >= NEARLY_ALL * total), len(finite) - 1)
    there = finite[: tail + 1]
    values = [0.0, *(row["le"] for row in there)]
    shares = [0.0, *(row["cumulative_count"] / total for row in there)]
    return pd.DataFrame({"value": values, "share": shares, "bounds": 1.0})
