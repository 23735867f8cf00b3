"""The rows behind the charts as CSV buttons, the same on every page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import streamlit as st

from views import frames

Keep = Mapping[str, frozenset[str]]  # the values of a column whose rows are shown
_ENGINE = ("ts", "engine_id", "label")


@dataclass(frozen=True, slots=True)
class Download:
    """A button: its name, the query whose answer is written and which of its columns, named with their units."""

    name: str
    table: str
    columns: tuple[str, ...]


def _spread(*names: str) -> tuple[str, ...]:
    return tuple(f"{name}{end}" for name in names for end in ("", "_min", "_max"))


GENERATION = Download(
    "Generation", "engine_series", (*_ENGINE, *_spread("generation_tokens_per_second"), "generation_source")
)
PROMPT = Download("Prompt", "engine_series", (*_ENGINE, *_spread("prompt_tokens_per_second")))
REQUESTS = Download("Requests", "engine_series", (*_ENGINE, *_spread("requests_running", "requests_waiting")))
KV = Download("KV cache", "engine_series", (*_ENGINE, *_spread("kv_used_fraction"), "state"))
LATENCY = Download(
    "Latencies",
    "latency_series",
    (
        *_ENGINE, "quantity", "count", "mean_seconds",
        *(f"{name}{end}_seconds" for name in ("p50", "p95", "p99") for end in ("", "_low", "_high")),
    ),
)  # fmt: skip
GPU_MEMORY = Download(
    "GPU memory", "device_memory_series", ("ts", "device_id", "part", "engine_id", "method", "memory_bytes")
)
GPU_LOAD = Download(
    "GPU use and power",
    "device_series",
    ("ts", "device_id", "name", *_spread("utilisation_fraction", "power_watts", "temperature_celsius")),
)
HOST_MEMORY = Download(
    "Host memory", "host_memory_series", ("ts", "host", "part", "engine_id", "method", "memory_bytes")
)
HOST = Download(
    "Host", "host_series", ("ts", "host", "memory_total_bytes", *_spread("memory_used_bytes", "cpu_fraction"))
)
EVENTS = Download("Events", "events", ("ts", "kind", "engine_id", "label", "device_id", "text", "details"))


def draw(downloads: Sequence[Download], look: Callable[[str], tuple[pa.Table, Keep]]) -> None:
    """
    One CSV button each. `look` gives the answer to a query and which of its rows are shown.

    It is asked when a button is pressed, so drawing the buttons costs nothing.
    """
    with st.container(horizontal=True, gap="small", vertical_alignment="center"):
        st.markdown(":small[Data of each chart as CSV:]", width="content")
        for download in downloads:
            st.download_button(
                download.name,
                data=_later(download, look),
                file_name=f"engine-room_{download.name.lower().replace(' ', '-')}.csv",
                mime="text/csv",
                key=f"csv-{download.name}",
                on_click="ignore",
                type="tertiary",
                icon=":material/download:",
            )


def _later(download: Download, look: Callable[[str], tuple[pa.Table, Keep]]) -> Callable[[], bytes]:
    def make() -> bytes:
        rows, keep = look(download.table)
        return frames.csv_bytes(rows, download.columns, keep)

    return make
