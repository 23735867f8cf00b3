"""
What the store knows of load tests, loaded before anything is drawn: the list of runs, and all of one run.

Engines keep their colours; an endpoint that the collector does not know takes a place after all that it does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import streamlit as st

import settings
from store.model import EngineState
from views import data, palette, picture
from views.palette import Series

Row = Mapping[str, Any]
MOST_RUNS = 4  # laid over each other; there is a shape for each
ACTIVE = frozenset({"waiting", "running"})
OWN = "engine-room"
CAN_ANSWER = (EngineState.READY, EngineState.BUSY, EngineState.METRICS_DISABLED, EngineState.SLEEPING)
MOST_FILES = 200  # of prompts, that are offered


@dataclass(frozen=True, slots=True)
class Run:
    """One run as it stands: its row, its stages, what it says of itself, and what its engines used."""

    row: Row
    stages: data.Records
    judgements: data.Records
    resources: data.Records
    key: str  # r0, r1 ...: its place among the runs that are shown

    @property
    def run_id(self) -> str:
        """Its id, as in the URL."""
        return str(self.row["run_id"])

    @property
    def name(self) -> str:
        """What a person calls it."""
        return str(self.row["name"])

    @property
    def active(self) -> bool:
        """Whether it still waits or runs."""
        return self.row["state"] in ACTIVE

    @property
    def trusted(self) -> bool:
        """Whether nothing that fails a run stands against it; one that is not judged yet counts as trusted."""
        return self.row["trusted"] is not False

    @property
    def spec(self) -> dict[str, Any]:
        """What was asked for; empty for an imported file."""
        return as_object(self.row["spec"])

    @property
    def mode(self) -> str | None:
        """The load model of its stages: closed | constant | poisson; None without any stage."""
        return str(self.stages[0]["mode"]) if self.stages else None


def as_object(text: str | None) -> dict[str, Any]:
    """A column that holds a JSON object; empty for NULL and for what is none."""
    try:
        content = json.loads(text or "{}")
    except ValueError:
        return {}
    return content if isinstance(content, dict) else {}


def candidates(overview: Sequence[Row]) -> list[Row]:
    """
    What can be loaded: the engines of the query `overview`, and configured endpoints of no kind that is known.

    Such an endpoint has the same columns as far as they are used here; its id is its URL and its `kind` None.
    """
    known = {str(row["url"]) for row in overview}
    nothing = {"kind": None, "state": EngineState.READY, "max_context_tokens": None, "requests_running": None}
    others = [
        {**nothing, "engine_id": target.url, "url": target.url, "label": target.name or urlsplit(target.url).netloc}
        for target in settings.load().target
        if target.url not in known
    ]
    return [*overview, *others]


def prompt_files() -> list[str]:
    """The JSONL files directly in the configured folders, at most `MOST_FILES`."""
    found: list[str] = []
    for folder in settings.load().prompt_folders:
        with suppress(OSError):
            found += [str(path) for path in islice(sorted(folder.expanduser().glob("*.jsonl")), MOST_FILES)]
    return found[:MOST_FILES]


@st.cache_resource(ttl=1, show_spinner=False)
def _statuses(data_folder: str) -> data.Records:
    rows: data.Records = data.client().command("loadtest_status")["runs"]
    return rows


def command(name: str, /, **parameters: Any) -> dict[str, Any]:
    """As `data.command`; what is under way is asked anew after it."""
    answer = data.command(name, **parameters)
    _statuses.clear()
    return answer


def under_way() -> data.Records:
    """Where the runs are that wait or run, as the collector tells; asked once a second for all. Raises `StoreError`."""
    return [row for row in _statuses(str(settings.load().data)) if row["state"] in ACTIVE]


def runs() -> data.Records:
    """All runs, newest first. Raises `StoreError`."""
    return data.records("loadtest_runs")


def load(row: Row, place: int) -> Run:
    """All of one run but its requests. Raises `StoreError`."""
    run_id = str(row["run_id"])
    return Run(
        row,
        data.records("loadtest_stages", run_id=run_id),
        data.records("loadtest_judgements", run_id=run_id),
        data.records("loadtest_resources", run_id=run_id),
        f"r{place}",
    )


def requests(run_id: str, stage_id: int | None = None) -> pa.Table:
    """The requests of a run or of one of its stages. Raises `StoreError`."""
    return data.query("loadtest_requests", run_id=run_id, stage_id=stage_id)


def endpoint_names(row: Row) -> list[str]:
    """
    What the endpoints of a run are called, by what was asked for or, where that is not told, by its stages.

    Raises `StoreError`.
    """
    endpoints = as_object(row["spec"]).get("endpoints")
    if isinstance(endpoints, list):
        return [str(each.get("label") or each.get("url")) for each in endpoints if isinstance(each, dict)]
    return list(_labels(str(settings.load().data), str(row["run_id"])))


@st.cache_resource(ttl=3600, max_entries=512, show_spinner=False)
def _labels(data_folder: str, run_id: str) -> tuple[str, ...]:
    stages = data.records("loadtest_stages", run_id=run_id)
    return tuple(dict.fromkeys(str(stage["label"]) for stage in stages))


def owner(stage: Row) -> str:
    """What decides the colour of a stage: its engine, or its endpoint where the collector knows none."""
    return str(stage["engine_id"] or f"{stage['url']} {stage['label']}")


def series_of(shown: Sequence[Run]) -> dict[str, Series]:
    """The colour of each endpoint of these runs, by `owner`. Raises `StoreError`."""
    known = picture.known_engines()
    labels = {key: series.label for key, series in known.items()}
    found: dict[str, str] = {}
    for run in shown:
        for stage in run.stages:
            found.setdefault(owner(stage), str(stage["label"]))
    every = palette.assign([*known, *found], labels | found)
    return {key: every[key] for key in found}


def level_of(stage: Row) -> float | None:
    """The load of a stage: users of a closed loop, requests per second offered in an open one; None: not told."""
    level: float | None = stage["concurrency" if stage["mode"] == "closed" else "offered_requests_per_second"]
    return level


def throughput_of(stage: Row) -> float | None:
    """
    Output tokens per second in the steady window; of the whole run where a file tells no window.

    A stage of our own without a window has none: it was too short.
    """
    steady: float | None = stage["output_tokens_per_second"]
    whole: float | None = stage["whole_output_tokens_per_second"]
    return whole if steady is None and stage["tokens_source"] == "file" else steady
