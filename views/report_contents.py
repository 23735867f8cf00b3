"""Everything that a report shows, loaded before any of it is written: windows, load tests, and what can't be shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from views import compare_runs, compare_sides, compare_windows, data, loadtest_data, picture, report_scrub
from views.compare_sides import Side
from views.compare_windows import EngineWindow
from views.loadtest_data import Run
from views.palette import Series
from views.report_document import BadReportError, ReportDocument, checked
from views.report_scrub import Scrub

Row = Mapping[str, Any]
_ESCAPED = re.compile(r"\\([^\w\s])")  # sentences about links come escaped for Markdown


@dataclass(frozen=True, slots=True)
class Contents:
    """What a report shows. `problems` are sentences about what it should have shown and can't."""

    document: ReportDocument
    made: datetime  # aware, UTC
    hosts: tuple[str, ...]
    sides: tuple[Side, ...]
    colours: tuple[Series, ...]  # of the sides
    runs: tuple[Run, ...]
    run_series: Mapping[str, Series]  # of the endpoints of the runs, by `loadtest_data.owner`
    devices: Mapping[str, str]  # names by device_id
    startups: tuple[Row, ...]
    problems: tuple[str, ...]
    scrub: Scrub


def load(document: ReportDocument, now: datetime) -> Contents:
    """
    Load what a document names. Raises `StoreError`, and `BadReportError` when nothing of it is there any more.
    """
    checked(document)
    windows, told = compare_windows.read(document.windows, (), now)
    problems = [_ESCAPED.sub(r"\1", text) for text in told]
    sides: list[Side] = []
    for window in windows:
        try:
            side = compare_sides.of_engine(window) if isinstance(window, EngineWindow) else compare_runs.of_run(window)
        except LookupError as error:
            problems.append(str(error.args[0]))
            continue
        sides.append(side)
    rows = {str(row["run_id"]): row for row in loadtest_data.runs()}
    there = [rows[run_id] for run_id in document.runs if run_id in rows]
    problems += [f"The load test {run_id} was deleted since." for run_id in document.runs if run_id not in rows]
    runs = [loadtest_data.load(row, place) for place, row in enumerate(there)]
    if not sides and not runs:
        raise BadReportError(f"Nothing of this report can be shown. {' '.join(problems)}".strip())
    known = picture.known_engines()
    hosts = tuple(dict.fromkeys(str(row["host"]) for row in [*data.records("overview", at=None), *there]))
    return Contents(
        document=document,
        made=now.astimezone(UTC),
        hosts=hosts,
        sides=tuple(sides),
        colours=_colours(sides, known),
        runs=tuple(runs),
        run_series=loadtest_data.series_of(runs),
        devices={
            str(row["device_id"]): f"GPU {row['index']} {row['name']}" for row in data.records("devices")
        },
        startups=tuple(data.records("startups")),
        problems=tuple(problems),
        scrub=_scrub(hosts, runs) if document.scrub else report_scrub.nothing,
    )  # fmt: skip


def _colours(sides: list[Side], known: Mapping[str, Series]) -> tuple[Series, ...]:
    from views import compare_charts  # Altair is needed for charts only

    return compare_charts.colours(sides, {engine_id: series.place for engine_id, series in known.items()})


def _scrub(hosts: Iterable[str], runs: Iterable[Run]) -> Scrub:
    """What hides every host, address and folder that the store tells of."""
    told: list[Row] = [*data.records("overview", at=None), *data.records("epochs")]
    for run in runs:
        told += [run.row, *run.stages, *run.judgements]
    return report_scrub.scrubber(hosts, told)
