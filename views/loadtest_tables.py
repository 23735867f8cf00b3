"""Tables of load tests: stages, differences, what the engines used, runs. Units are in the headings; None: none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from comparison import intervals
from views import cards, formatting, loadtest_data, loadtest_words
from views.formatting import MISSING
from views.loadtest_data import Row, Run

# (name, unit, column of the stage, factor): the figures that two sides are compared by
COMPARED = (
    ("output", "tok/s", "", 1.0),
    ("TTFT p50", "ms", "ttft_p50_seconds", 1000.0),
    ("TPOT p50", "ms", "tpot_p50_seconds", 1000.0),
    ("E2E p50", "s", "e2e_p50_seconds", 1.0),
)
Side = tuple[str, str]  # key of a run, owner of a stage


def stage_frame(runs: Sequence[Run]) -> pd.DataFrame:
    """One row a stage in the order in which they ran, newest figures last."""
    rows = [
        ({"run": run.name} if len(runs) > 1 else {})
        | {
            "engine": stage["label"],
            loadtest_words.load_heading(str(stage["mode"])): loadtest_data.level_of(stage),
            "repeat": int(stage["repeat"]) + 1,
            "tok/s, steady": stage["output_tokens_per_second"],
            "tok/s, whole": stage["whole_output_tokens_per_second"],
            "requests/s": stage["requests_per_second"],
            "TTFT p50 (ms)": _scaled(stage["ttft_p50_seconds"], 1000),
            "TTFT p95 (ms)": _scaled(stage["ttft_p95_seconds"], 1000),
            "TTFT p99 (ms)": _scaled(stage["ttft_p99_seconds"], 1000),
            "TPOT p50 (ms)": _scaled(stage["tpot_p50_seconds"], 1000),
            "TPOT p95 (ms)": _scaled(stage["tpot_p95_seconds"], 1000),
            "ICL p95 (ms)": _scaled(stage["icl_p95_seconds"], 1000),
            "E2E p50 (s)": stage["e2e_p50_seconds"],
            "within SLO (%)": _scaled(stage["goodput_fraction"], 100),
            "succeeded": stage["succeeded"],
            "failed": stage["failed"],
            "tokens in": stage["input_tokens"],
            "of them cached": stage["cached_input_tokens"],
            "tokens out": stage["output_tokens"],
            "window (s)": stage["window_seconds"],
            "tokens from": stage["tokens_source"],
        }
        for run in runs
        for stage in run.stages
    ]
    return pd.DataFrame(rows)


def sides(runs: Sequence[Run]) -> dict[str, Side]:
    """What can be compared, by its name: each engine of each trusted run."""
    found: dict[str, Side] = {}
    for run in runs:
        for stage in run.stages:
            name = str(stage["label"]) + (f", {run.name}" if len(runs) > 1 else "")
            side = (run.key, loadtest_data.owner(stage))
            if side not in found.values():
                found[name if name not in found else f"{name} ({run.run_id})"] = side
    return found


def difference_frame(runs: Sequence[Run], baseline: Side, other: Side) -> pd.DataFrame:
    """
    One row a level that both sides have: the mean over repeats of each side (A, B), and B / A with its 95 % interval.

    Where there is no interval the reason stands in its place.
    """
    first, second = _by_level(runs, baseline), _by_level(runs, other)
    rows = []
    for level in sorted(first.keys() & second.keys()):
        row: dict[str, float | str | None] = {"load": level}
        for name, unit, column, factor in COMPARED:
            a, b = (_repeats(stages[level], column, factor) for stages in (first, second))
            row |= {f"{name} A ({unit})": a.mean, f"{name} B ({unit})": b.mean}
            row[f"{name} B / A"] = ratio_words(intervals.ratio(a, b))
        rows.append(row)
    return pd.DataFrame(rows)


def ratio_words(found: intervals.Estimate) -> str:
    """A ratio with its interval, or why there is none."""
    if found.estimate is None:
        return found.reason or MISSING
    return f"{formatting.number(found.estimate)} ({interval_words(found)})"


def interval_words(found: intervals.Estimate) -> str:
    """The bounds of an interval, or why there is none."""
    if not found.has_interval:
        return found.reason or MISSING
    return f"{formatting.number(found.low)} to {formatting.number(found.high)}"


def _by_level(runs: Sequence[Run], side: Side) -> dict[float, list[Row]]:
    found: dict[float, list[Row]] = {}
    for run in runs:
        for stage in run.stages:
            level = loadtest_data.level_of(stage)
            if (run.key, loadtest_data.owner(stage)) == side and level is not None:
                found.setdefault(float(level), []).append(stage)
    return found


def _repeats(stages: Sequence[Row], column: str, factor: float) -> intervals.Sample:
    values = [stage[column] if column else loadtest_data.throughput_of(stage) for stage in stages]
    return intervals.repeats([_scaled(value, factor) for value in values])


def used_frame(run: Run, devices: Mapping[str, str]) -> pd.DataFrame:
    """
    What each engine held and used at each level: the peak over repeats, and means over repeats.

    `devices` names the devices. A host without a GPU has rows of its memory and CPU only.
    """
    stages = {int(stage["stage_id"]): stage for stage in run.stages}
    groups: dict[tuple[str, float, str | None], list[Row]] = {}
    for row in run.resources:
        stage = stages.get(int(row["stage_id"]))
        level = loadtest_data.level_of(stage) if stage is not None else None
        if stage is not None and level is not None:
            groups.setdefault((str(stage["label"]), float(level), row["device_id"]), []).append(row)
    rows = []
    for (label, level, device), found in sorted(groups.items(), key=lambda item: (item[0][:2], item[0][2] or "")):
        peaks = [row["memory_peak_bytes"] for row in found if row["memory_peak_bytes"] is not None]
        methods = dict.fromkeys(str(row["memory_method"]) for row in found if row["memory_method"])
        energy = dict.fromkeys(str(row["energy_method"]) for row in found if row["energy_method"])
        rows.append(
            {
                "engine": label,
                "load": level,
                "where": devices.get(device, device) if device else "host",
                "memory, peak": formatting.size(max(peaks)) if peaks else MISSING,
                "held by others": formatting.size(_mean(found, "others_memory_bytes")) if device else MISSING,
                "CPU cores": _mean(found, "cpu_cores_mean"),
                "use (%)": _scaled(_mean(found, "utilisation_mean_fraction"), 100),
                "power (W)": _mean(found, "power_mean_watts"),
                "J per output token": _mean(found, "joules_per_output_token"),
                "J per request": _mean(found, "joules_per_request"),
                "memory by": "; ".join(cards.METHODS.get(method, method) for method in methods) or MISSING,
                "energy by": "; ".join(ENERGY_METHODS.get(method, method) for method in energy) or "not measurable",
            }
        )
    return pd.DataFrame(rows)


ENERGY_METHODS = {
    "counter": "the device's energy counter",
    "power_integral": "sampled power over time",
}


def _mean(rows: Sequence[Row], column: str) -> float | None:
    return intervals.repeats([row[column] for row in rows]).mean


def startup_frame(rows: Sequence[Row], epochs: frozenset[str]) -> pd.DataFrame:
    """How long the engines of a run took to be ready, for the lives of them that the run met."""
    return pd.DataFrame(
        [
            {
                "engine": row["label"],
                "started (UTC)": f"{row['started']:%Y-%m-%d %H:%M:%S}" if row["started"] else MISSING,
                "ready after (s)": row["ready_seconds"],
                "first token served after (s)": row["first_token_seconds"],
                "known to (s)": row["resolution_seconds"],
                "note": row["note"] or "",
            }
            for row in rows
            if row["epoch_id"] in epochs
        ]
    )


def run_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """The past runs: newest first."""
    return pd.DataFrame(
        [
            {
                "name": row["name"],
                "state": loadtest_words.state_look(str(row["state"])).word,
                "trust": loadtest_words.trust_look(row).word,
                "engines": ", ".join(loadtest_data.endpoint_names(row)) or MISSING,
                "workload": loadtest_words.workload(loadtest_data.as_object(row["spec"])) or MISSING,
                "source": "own" if row["source"] == loadtest_data.OWN else row["source"],
                "began (UTC)": f"{row['began']:%Y-%m-%d %H:%M:%S}" if row["began"] else "not told",
                "started by": row["started_by"],
                "host": row["host"],
            }
            for row in rows
        ]
    )


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor
