"""
Query answers as the data sets of the chart specifications in `views.charts`, and as CSV.

Times are milliseconds since 1970 (UTC), memory is in GiB, shares are in percent, rates in tokens per
second; columns are 32-bit floats, whose 7 digits are more than a chart shows. NaN is "not known".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from views import formatting
from views.palette import Series
from views.panels import HOST_KEY
from views.urlstate import Window

GIB = float(2**30)
NOT_STACKED = ("counted twice", "available")
PART_KEYS = {"other processes": "other", "driver and unattributed": "driver", "other used": "other"}


def milliseconds(moment: datetime) -> float:
    """Milliseconds since 1970 of an aware datetime."""
    return moment.timestamp() * 1000


def grid_seconds(window: Window, points: int) -> float:
    """Width of a crosshair step: the whole window in `points` steps, at least 2 s, in whole seconds."""
    return float(max(2, round(window.seconds / max(1, points))))


def times(table: pa.Table) -> pd.Series[float]:
    """Milliseconds since 1970 of each row."""
    stamps = table.column("ts").cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy()
    return pd.Series(stamps / 1000.0, dtype="float64")


def _column(table: pa.Table, name: str, scale: float = 1.0) -> pd.Series[float]:
    values = table.column(name).cast(pa.float64()).to_numpy() * scale
    return pd.Series(values.astype(np.float32))


def _keys(table: pa.Table, name: str, keys: Mapping[str, str]) -> pd.Series[str]:
    return pd.Series(pd.Categorical([keys.get(value) for value in table.column(name).to_pylist()]))


def _spread(frame: dict[str, Any], table: pa.Table, source: str, target: str, scale: float = 1.0) -> None:
    for suffix, end in (("", ""), ("_min", "_lo"), ("_max", "_hi")):
        frame[target + end] = _column(table, source + suffix, scale)


def window_frame(window: Window) -> pd.DataFrame:
    """The two ends of the time axis."""
    return pd.DataFrame({"ts": [milliseconds(window.start), milliseconds(window.end)]})


def engine_frame(table: pa.Table, engines: Mapping[str, Series], *, kv: bool = False) -> pd.DataFrame:
    """Rates and requests, with `kv` the share of the KV cache in percent, of the engines in `engines` only."""
    frame: dict[str, Any] = {
        "ts": times(table),
        "s": _keys(table, "engine_id", {engine_id: series.key for engine_id, series in engines.items()}),
    }
    _spread(frame, table, "generation_tokens_per_second", "gen")
    _spread(frame, table, "prompt_tokens_per_second", "prompt")
    _spread(frame, table, "requests_running", "run")
    _spread(frame, table, "requests_waiting", "wait")
    if kv:
        _spread(frame, table, "kv_used_fraction", "kv", 100.0)
    return _chosen(pd.DataFrame(frame), "s")


def device_frame(table: pa.Table, devices: Mapping[str, str], *, temperature: bool = False) -> pd.DataFrame:
    """
    Utilisation in percent, power in watts, with `temperature` degrees Celsius too.

    Of the devices in `devices` (device_id -> key) only.
    """
    frame: dict[str, Any] = {"ts": times(table), "d": _keys(table, "device_id", devices)}
    _spread(frame, table, "utilisation_fraction", "util", 100.0)
    _spread(frame, table, "power_watts", "power")
    if temperature:
        _spread(frame, table, "temperature_celsius", "temp")
    return _chosen(pd.DataFrame(frame), "d")


def host_frame(table: pa.Table) -> pd.DataFrame:
    """CPU in percent of the host."""
    frame: dict[str, Any] = {"ts": times(table)}
    _spread(frame, table, "cpu_fraction", "cpu", 100.0)
    return pd.DataFrame(frame)


def memory_frame(
    table: pa.Table, engines: Mapping[str, Series], devices: Mapping[str, str], totals_bytes: Mapping[str, int | None],
    window: Window, base: str = "driver",
) -> pd.DataFrame:  # fmt: skip
    """
    Who holds the memory of each device, as the bounds `lo`..`hi` of stacked areas in GiB.

    The order from the bottom is: engines by place, other processes, driver and unattributed; the top of
    the stack is what the device says is used. Rows with `s` = "total" are the installed memory. `base` is the
    part that is there whenever something is known. What is counted twice, and what is free, is not stacked.
    """
    table = table.filter(pc.invert(pc.is_in(table.column("part").cast(pa.string()), pa.array(NOT_STACKED))))
    parts = table.column("part").to_pylist()
    owners = table.column("engine_id").to_pylist()
    keys = [
        engines[owner].key if part == "engine" and owner in engines else PART_KEYS.get(str(part), "other")
        for part, owner in zip(parts, owners, strict=True)
    ]
    order = {series.key: series.place for series in engines.values()} | {"other": 10**6, "driver": 10**6 + 1}
    frame = pd.DataFrame(
        {
            "ts": times(table),
            "d": [devices.get(value) for value in table.column("device_id").to_pylist()],
            "s": keys,
            "size": _column(table, "memory_bytes", 1 / GIB).astype("float64"),
        }
    ).dropna(subset=["d"])
    stacked = _stacked(frame, sorted(set(keys), key=lambda key: order.get(key, 0)), base)
    ends = [milliseconds(window.start), milliseconds(window.end)]
    limits = pd.DataFrame(
        [
            {"ts": end, "d": key, "s": "total", "lo": 0.0, "hi": total / GIB}
            for device_id, key in devices.items()
            if (total := totals_bytes.get(device_id)) is not None
            for end in ends
        ],
        columns=["ts", "d", "s", "lo", "hi"],
    )
    # Each area of each device has a point, if only an invisible one: Vega warns of areas without any.
    there = set(zip(stacked["d"], stacked["s"], strict=True))
    first_engine = min(engines.values(), key=lambda series: series.place).key if engines else "other"
    points = pd.DataFrame(
        [
            {"ts": ends[0], "d": device, "s": key, "lo": 0.0, "hi": 0.0}
            for device in devices.values()
            for key in {first_engine, "other", "driver"}
            if (device, key) not in there
        ],
        columns=["ts", "d", "s", "lo", "hi"],
    )
    both = pd.concat([part for part in (stacked, limits, points) if len(part)] or [points], ignore_index=True)
    return both.astype({"ts": "float64", "d": "category", "s": "category", "lo": "float32", "hi": "float32"})


def part_frame(
    on_host: pa.Table | None,
    host_total_bytes: int | None,
    on_devices: pa.Table | None,
    devices: Mapping[str, str],
    totals_bytes: Mapping[str, int | None],
    engines: Mapping[str, Series],
    window: Window,
) -> pd.DataFrame | None:
    """
    Who holds the memory of the host and of each of `devices` (device_id -> key) as one data set; None where not asked.

    The tables are answers to `host_memory_series` and `device_memory_series`, the totals what is installed.
    """
    made = []
    if on_host is not None:
        table = on_host.rename_columns({"host": "device_id"})
        hosts = {str(name): HOST_KEY for name in pc.unique(table.column("device_id")).to_pylist()}
        made.append(memory_frame(table, engines, hosts, dict.fromkeys(hosts, host_total_bytes), window, base="other"))
    if on_devices is not None and devices:
        made.append(memory_frame(on_devices, engines, devices, totals_bytes, window))
    if not made:
        return None
    kinds = {"d": "category", "s": "category"}
    return pd.concat([frame.astype(dict.fromkeys(kinds, "object")) for frame in made], ignore_index=True).astype(kinds)


def newest(table: pa.Table, column: str) -> Any:
    """The last known value of a column; None where it is never known."""
    values = table.column(column).drop_null()
    return values[-1].as_py() if len(values) else None


def _stacked(frame: pd.DataFrame, order: Sequence[str], base: str) -> pd.DataFrame:
    """
    Bounds of the parts of each device and time, stacked in `order`.

    A holder that is missing from a list of processes holds nothing then (0); where the device itself has
    no sample, nothing is known (NaN, so that the areas break). Every time has a row for the part `base`.
    """
    if frame.empty:
        return pd.DataFrame(columns=["ts", "d", "s", "lo", "hi"])
    wide = frame.pivot_table(index=["d", "ts"], columns="s", values="size", aggfunc="sum", min_count=1, dropna=False)
    at = pd.MultiIndex.from_frame(frame.loc[frame["s"] == base, ["d", "ts"]].drop_duplicates())
    wide = wide.reindex(index=at, columns=[key for key in order if key in wide.columns])
    sizes = wide.fillna(0.0).where(wide[base].notna(), np.nan)
    highs = sizes.cumsum(axis=1)
    long = pd.DataFrame({"hi": highs.stack(), "lo": (highs - sizes).stack()}).reset_index(names=["d", "ts", "s"])
    most = cast("pd.Series[float]", sizes.groupby(level="d").max().stack())
    held = set(most[most > 0].index.to_flat_index())
    held |= {(device, base) for device in at.get_level_values("d")}
    return long[[pair in held for pair in zip(long["d"], long["s"], strict=True)]]


def event_frame(events: Sequence[Mapping[str, Any]], window: Window) -> pd.DataFrame:
    """Events inside the window: time, text, and the time as text. Without any, one that is not drawn (no text)."""
    inside = [event for event in events if window.start <= event["ts"] <= window.end]
    rows = [(milliseconds(event["ts"]), str(event["text"]), formatting.clock(event["ts"])) for event in inside]
    return pd.DataFrame(rows or [(milliseconds(window.start), "", "")], columns=["ts", "text", "when"])


def _chosen(frame: pd.DataFrame, key: str) -> pd.DataFrame:
    return frame.dropna(subset=[key]).reset_index(drop=True)


def csv_bytes(table: pa.Table, columns: Sequence[str], keep: Mapping[str, frozenset[str]]) -> bytes:
    """
    The rows behind a chart as CSV: ISO 8601 UTC times, full precision, units in the header.

    `columns` of the query are written, `ts` as `time_utc`; `keep` limits rows by the values of a column.
    """
    frame = table.select(list(columns)).to_pandas()
    for column, wanted in keep.items():
        frame = frame[frame[column].isin(wanted)]
    times = [field.name for field in table.schema if field.name in frame and pa.types.is_timestamp(field.type)]
    for column in times:
        stamps = pd.to_datetime(frame[column], utc=True)
        frame[column] = [_iso(stamp) if known else None for stamp, known in zip(stamps, stamps.notna(), strict=True)]
    text: str = frame.rename(columns={"ts": "time_utc"}).to_csv(index=False)
    return text.encode()


def _iso(stamp: pd.Timestamp) -> str:
    return stamp.to_pydatetime().astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
