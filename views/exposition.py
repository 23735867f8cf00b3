"""
Our normalised values as Prometheus metrics: what `/metrics` answers.

Only values that are known are there; a missing series means "not known", never 0. The names carry base
units; the help texts name the unit, the window and the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from store.protocol import StoreError
from views import data
from views.formatting import known

Row = Mapping[str, Any]
ENGINE_LABELS = ("engine", "kind", "model", "host")
DEVICE_LABELS = ("device", "index", "name", "host")

# (column of the overview, name, help)
ENGINE_VALUES = (
    (
        "generation_tokens_per_second",
        "generation_tokens_per_second",
        "Output tokens per second over the last 10 s, from the engine's counters",
    ),
    (
        "prompt_tokens_per_second",
        "prompt_tokens_per_second",
        "Computed prompt tokens per second over the last 10 s, from the engine's counters",
    ),
    ("requests_running", "requests_running", "Requests that the engine computes now, as the engine tells"),
    ("requests_waiting", "requests_waiting", "Requests accepted but not yet started, as the engine tells"),
    ("kv_used_fraction", "kv_used_ratio", "Share 0..1 of the KV cache held by running requests"),
    ("kv_capacity_tokens", "kv_capacity_tokens", "Tokens that the KV cache can hold"),
    (
        "prefix_cache_hit_fraction",
        "prefix_cache_hit_ratio",
        "Share 0..1 of prompt tokens found in the prefix cache, last 60 s",
    ),
    (
        "mean_itl_seconds",
        "itl_mean_seconds",
        "Mean inter-token latency in seconds, last 60 s, from the engine's totals",
    ),
    (
        "device_memory_bytes",
        "device_memory_bytes",
        "GPU memory of the engine's processes in bytes; see Sources for the method",
    ),
    ("host_memory_bytes", "host_memory_bytes", "Host memory of the engine's process tree in bytes"),
    ("cpu_cores", "cpu_cores", "CPU seconds per second used by the engine's process tree"),
)
DEVICE_VALUES = (
    ("memory_total_bytes", "gpu_memory_total_bytes", "Installed GPU memory in bytes, from the driver"),
    ("memory_used_bytes", "gpu_memory_used_bytes", "GPU memory in use in bytes, the driver's reserve included"),
    ("utilisation_fraction", "gpu_utilisation_ratio", "Share 0..1 of time in which a kernel ran, from the driver"),
    ("power_watts", "gpu_power_watts", "Power draw in watts, from the driver"),
    ("temperature_celsius", "gpu_temperature_celsius", "GPU temperature in degrees Celsius, from the driver"),
)
HOST_VALUES = (
    ("cpu_fraction", "host_cpu_ratio", "Share 0..1 of all cores that was busy"),
    ("memory_total_bytes", "host_memory_total_bytes", "Installed host memory in bytes"),
    ("memory_used_bytes", "host_memory_used_bytes", "Host memory in use in bytes"),
)
PART_HELP = (
    "What an engine's memory is made of, in bytes: its own figures, or computed from its model's facts (derived); "
    "kv_in_use lies within kv_reserved"
)
QUANTILES = (("p50_seconds", "0.5"), ("p95_seconds", "0.95"), ("p99_seconds", "0.99"))


class StoreCollector(Collector):
    """Reads the newest values through the collector when it is scraped."""

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: which metrics there are depends on what is known."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All known values, and whether the collector answered at all."""
        up = GaugeMetricFamily("engineroom_up", "1 when the collector answered this scrape, else 0")
        try:
            metrics = [*_engines(), *_devices(), *_hosts(), *_sources()]
        except StoreError:
            up.add_metric([], 0)
            yield up
            return
        up.add_metric([], 1)
        yield up
        yield from metrics


def registry() -> CollectorRegistry:
    """A registry that holds only Engine Room's own metrics."""
    made = CollectorRegistry(auto_describe=False)
    made.register(StoreCollector())
    return made


def _engines() -> Iterator[Metric]:
    rows = data.records("overview", at=None)
    labels = {
        row["engine_id"]: [str(row.get(key) or "") for key in ("engine_id", "kind", "model_id", "host")] for row in rows
    }
    state = GaugeMetricFamily(
        "engineroom_engine_state", "1 for the state that was observed last", labels=[*ENGINE_LABELS, "state"]
    )
    for row in rows:
        if row.get("state"):
            state.add_metric([*labels[row["engine_id"]], row["state"]], 1)
    yield state
    for column, name, text in ENGINE_VALUES:
        yield _family(name, text, ENGINE_LABELS, ((labels[row["engine_id"]], row.get(column)) for row in rows))
    parts = (
        ([*labels[row["engine_id"]], str(row["part"]), str(row["place"] or ""), str(bool(row["derived"])).lower()],
         row.get("memory_bytes"))
        for row in data.records("memory_parts", at=None)
        if row["engine_id"] in labels
    )  # fmt: skip
    yield _family("memory_part_bytes", PART_HELP, (*ENGINE_LABELS, "part", "place", "derived"), parts)
    end = datetime.now(UTC).replace(microsecond=0)
    latency = data.records("latency", start=end - timedelta(seconds=data.LATENCY_WINDOW_SECONDS), end=end)
    for quantity in sorted({str(row["quantity"]) for row in latency}):
        text = (
            f"{quantity.removesuffix('_seconds')} in seconds over the last 60 s, interpolated in the engine's buckets"
        )
        values = (
            ([*labels[row["engine_id"]], quantile], row.get(column))
            for row in latency
            if row["quantity"] == quantity and row["engine_id"] in labels
            for column, quantile in QUANTILES
        )
        yield _family(quantity, text, (*ENGINE_LABELS, "quantile"), values)


def _devices() -> Iterator[Metric]:
    rows = data.records("devices")
    for column, name, text in DEVICE_VALUES:
        values = (
            ([str(row["device_id"]), str(row["index"]), str(row["name"]), str(row.get("host") or "")], row.get(column))
            for row in rows
        )
        yield _family(name, text, DEVICE_LABELS, values)


def _hosts() -> Iterator[Metric]:
    end = datetime.now(UTC).replace(microsecond=0)
    rows = data.records("host_series", start=end - timedelta(seconds=15), end=end, points=100)
    newest = {str(row["host"]): row for row in rows if row.get("memory_total_bytes") is not None}
    for column, name, text in HOST_VALUES:
        yield _family(name, text, ("host",), (([host], row.get(column)) for host, row in newest.items()))


def _sources() -> Iterator[Metric]:
    rows = data.records("sources")
    for column, name, text in (
        ("duration_seconds", "source_duration_seconds", "Duration of the last sampling in seconds"),
        ("lateness_max_10m_seconds", "source_lateness_max_seconds", "Longest delay of a sampling in the last 10 min"),
        ("errors_10m", "source_errors", "Failed samplings in the last 10 min"),
    ):
        yield _family(
            name, text, ("source", "kind"), (([row["source_id"], row["kind"]], row.get(column)) for row in rows)
        )


def _family(
    name: str, text: str, labels: tuple[str, ...], values: Iterable[tuple[list[str], float | None]]
) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"engineroom_{name}", text, labels=labels)
    for of, value in values:
        if value is not None and known(value):
            family.add_metric(of, value)
    return family
