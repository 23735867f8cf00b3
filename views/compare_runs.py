"""A load test as a window of the Compare page: all repeats of one level against one endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from comparison.configurations import Configuration, of_epoch, of_stage
from comparison.intervals import repeats
from comparison.windows import Figure, missing
from views import compare_absences, compare_events, compare_series, data, formatting, loadtest_data, timeline
from views.compare_events import Stretch
from views.compare_sides import Side
from views.compare_windows import RunWindow, level_of

Row = Mapping[str, Any]
LATENCIES = ("ttft", "tpot", "e2e")
STATISTICS = ("mean", "p50", "p95", "p99")
DELETED = "It was deleted, or it belongs to another host."


def of_run(chosen: RunWindow) -> Side:
    """Load it. Raises `StoreError`, and `LookupError` with a sentence where there is no such run, endpoint or level."""
    row = next((row for row in loadtest_data.runs() if row["run_id"] == chosen.run_id), None)
    if row is None:
        raise LookupError(f"There is no load test “{chosen.run_id}”. {DELETED}")
    run = loadtest_data.load(row, 0)
    of_label = [stage for stage in run.stages if stage["label"] == chosen.label]
    stages = [stage for stage in of_label if level_of(stage) == chosen.level]
    if not stages:
        there: dict[str, dict[str, None]] = {}
        for stage in of_label or run.stages:
            there.setdefault(stage["label"], {})[level_of(stage)] = None
        has = "; ".join(f"“{label}” at {', '.join(levels)}" for label, levels in there.items())
        raise LookupError(
            f"The load test “{run.name}” has no stage of “{chosen.label}” at {chosen.level}. It has {has or 'none'}."
        )
    ids = {stage["stage_id"] for stage in stages}
    resources = [one for one in run.resources if one["stage_id"] in ids]
    figures = {**_measured(stages), **_used(stages, resources)}
    warning = None
    if not run.trusted:
        reasons = " ".join(str(one["text"]) for one in run.judgements if one["severity"] == "failed")
        warning = f"The load test “{run.name}” is not trusted, and its figures are not compared. {reasons}"
        figures = {key: replace(figure, flag="not trusted", caution=warning) for key, figure in figures.items()}
    notes = [f"Load test “{run.name}”, {chosen.level} {_level_words(stages)}, {repeats([0.0] * len(stages)).basis}."]
    lines, stretches, line_notes = _lines(stages)
    begun = min(stage["ts"] for stage in stages)
    return Side(
        chosen=chosen,
        title=chosen.label,
        engine_id=stages[0]["engine_id"],
        when=f"load test, {chosen.level} {_level_words(stages)}, {formatting.clock(begun)}",
        configuration=_configuration(stages[-1], resources),
        figures=figures,
        notes=tuple(notes),
        warning=warning,
        lines=lines,
        line_notes=tuple(line_notes),
        stretches=tuple(stretches),
        spread=_spread(chosen.run_id, sorted(ids)),
        concurrency=stages[0]["concurrency"],
    )


def _level_words(stages: Sequence[Row]) -> str:
    return "at once" if stages[0]["mode"] == "closed" else "offered, in requests"


def _over_repeats(values: Sequence[float | None], source: str, absent: str, word: str = "not measurable") -> Figure:
    """The mean over repeats and how sure it is; a repeat without the figure is left out."""
    sample = repeats(values)
    if sample.mean is None:
        return missing(word, absent)
    return Figure(sample.mean, f"{source}, mean of {sample.basis}", sample=sample)


def _measured(stages: Sequence[Row]) -> dict[str, Figure]:
    """What the client measured."""
    window = "in the steady window, measured by the client"
    figures = {
        "generation": _over_repeats(
            [loadtest_data.throughput_of(stage) for stage in stages], window, "No stage has a steady window."
        ),
        "requests": _over_repeats(
            [stage["requests_per_second"] for stage in stages], window, "No stage has a steady window."
        ),
        "user_speed": _over_repeats(
            [stage["user_tokens_per_second"] for stage in stages],
            "measured by the client",
            "Replies of one chunk have no time per token.",
        ),
    }
    for name in LATENCIES:
        for statistic in STATISTICS:
            figures[f"{name}_{statistic}"] = _over_repeats(
                [stage[f"{name}_{statistic}_seconds"] for stage in stages],
                f"{statistic} of the requests of each repeat, measured by the client",
                "The client could not measure it, or the imported file does not tell it.",
            )
    asked = sum(stage["requests"] or 0 for stage in stages)
    failed = [stage["failed"] for stage in stages if stage["failed"] is not None]
    if asked and failed:
        figures["failed"] = Figure(sum(failed) / asked, f"{sum(failed)} of {asked} requests")
    return figures


def _used(stages: Sequence[Row], resources: Sequence[Row]) -> dict[str, Figure]:
    """What the engine and its devices used meanwhile, as the collector sampled it."""
    host = [row for row in resources if row["device_id"] is None]
    devices = [row for row in resources if row["device_id"] is not None]
    absent = "No collector sampled it during these stages."

    def summed(column: str) -> list[float | None]:
        """A column summed over the devices of each stage; None where one of them is not known."""
        found: list[float | None] = []
        for stage in stages:
            values = [row[column] for row in devices if row["stage_id"] == stage["stage_id"]]
            found.append(sum(values) if values and None not in values else None)
        return found

    def mean(column: str) -> list[float | None]:
        """A column's mean over the devices of each stage."""
        counts = [sum(row["stage_id"] == stage["stage_id"] for row in devices) for stage in stages]
        return [
            total / count if total is not None and count else None
            for total, count in zip(summed(column), counts, strict=True)
        ]

    method = compare_absences.method_words(next((row["memory_method"] for row in devices), None))
    resident = compare_absences.method_words(next((row["memory_method"] for row in host), None))
    whole = "of its GPUs as a whole, during each stage"
    peaks = [value for value in summed("memory_peak_bytes") if value is not None]
    host_peaks = [row["memory_peak_bytes"] for row in host if row["memory_peak_bytes"] is not None]
    none = absent, "not sampled"
    return {
        "device_memory": _over_repeats(summed("memory_mean_bytes"), method, *none),
        "device_memory_peak": Figure(max(peaks), method) if peaks else missing("not sampled", absent),
        "host_memory": _over_repeats([row["memory_mean_bytes"] for row in host], resident, *none),
        "host_memory_peak": Figure(max(host_peaks), resident) if host_peaks else missing("not sampled", absent),
        "cpu": _over_repeats([row["cpu_cores_mean"] for row in host], "CPU time of the engine's processes", *none),
        "utilisation": _over_repeats(mean("utilisation_mean_fraction"), whole, *none),
        "power": _over_repeats(summed("power_mean_watts"), whole, *none),
        "energy": _over_repeats(summed("energy_joules"), whole, *none),
        "joules_per_token": _over_repeats(summed("joules_per_output_token"), whole, *none),
    }


def _configuration(stage: Row, resources: Sequence[Row]) -> Configuration:
    """That of the engine's life during the stage, where the collector knows it."""
    name = str(stage["label"])
    lives = data.records("epochs", engine_id=stage["engine_id"]) if stage["engine_id"] else []
    life = next((row for row in lives if row["epoch_id"] == stage["epoch_id"]), None)
    if life is None:
        return of_stage(name, stage)
    held = {str(row["device_id"]) for row in resources if row["device_id"] is not None}
    devices = [row for row in data.records("devices") if str(row["device_id"]) in held]
    drivers = sorted({str(row["driver_version"]) for row in devices if row["driver_version"]})
    names = [str(row["name"]) for row in devices] if resources else None
    return of_epoch(name, life, names, ", ".join(drivers) or None)


def _lines(stages: Sequence[Row]) -> tuple[dict[str, pd.DataFrame], list[Stretch], list[str]]:
    """What the collector sampled during each repeat, over elapsed time from its beginning, and what to know of it."""
    if not stages[0]["engine_id"]:
        return {}, [], ["Its endpoint is no engine that the collector knows: there are no lines of it."]
    made: list[dict[str, pd.DataFrame]] = []
    stretches: list[Stretch] = []
    unseen: list[str] = []
    levels: set[str] = set()
    for stage in stages:
        span, engine_id = {"start": stage["ts"], "end": stage["ended"]}, str(stage["engine_id"])
        repeat = int(stage["repeat"]) + 1
        (summary,) = data.records("window_summary", **span, engine_id=engine_id)
        if not summary["samples"]:
            unseen.append(str(repeat))
            continue
        devices = summary["device_ids"] or []
        series = compare_series.load(span, engine_id, devices)
        levels.add(timeline.level_of(series.engine))
        made.append(compare_series.lines(stage["ts"], series, repeat if len(stages) > 1 else 0))
        words = f"repeat {repeat}" if len(stages) > 1 else ""
        stretches.append(compare_events.of_repeat(stage["ts"], stage["ended"], engine_id, devices, words))
    if not made:
        return {}, [], ["The collector did not sample its engine meanwhile: there are no lines of it."]
    notes: list[str] = []
    if len(made) > 1:
        notes.append(
            f"A thin line for each of {len(made)} repeats, from its own beginning; pointing at them tells their mean "
            "with the lowest and highest."
        )
    if unseen:
        notes.append(f"Repeat {', '.join(unseen)} was not sampled by the collector and has no line.")
    if coarse := sorted(levels - {"raw"}):
        notes.append(
            f"Its lines are made of rows by the {coarse[0]}, which hold what was before and after a repeat too."
        )
    joined = {name: pd.concat([each[name] for each in made], ignore_index=True) for name in made[0]}
    return joined, stretches, notes


def _spread(run_id: str, stage_ids: Sequence[int]) -> dict[str, pd.DataFrame]:
    """How the latencies of the requests were distributed, over all repeats."""
    tables = [loadtest_data.requests(run_id, stage_id) for stage_id in stage_ids]
    found: dict[str, pd.DataFrame] = {}
    for name in LATENCIES:
        values = [
            value
            for table in tables
            for value, status in zip(
                table.column(f"{name}_seconds").to_pylist(), table.column("status").to_pylist(), strict=True
            )
            if value is not None and status == "ok"
        ]
        if values:
            found[name] = compare_series.distribution(values)
    return found
