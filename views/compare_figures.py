"""The figures of one engine in a window of the Compare page, from the query answers: value, source, how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from comparison.intervals import Sample, blocks
from comparison.windows import Figure
from views import compare_absences, compare_series, formatting
from views.compare_series import EngineSeries
from views.compare_windows import length_words

Row = Mapping[str, Any]
LATENCIES = {"ttft": "ttft_seconds", "tpot": "tpot_seconds", "itl": "itl_seconds", "e2e": "e2e_seconds"}
PERCENTILES = ("p50", "p95", "p99")
GAUGES = {"running": "requests_running", "waiting": "requests_waiting", "kv_used": "kv_used_fraction"}
ENERGY = {"counter": "the driver's energy counter", "power_integral": "mean power x time"}


def _mean(summary: Row, column: str, source: str, sample: Sample | None = None) -> Figure:
    return Figure(summary[column], source, sample=sample)


def rates(summary: Row, series: EngineSeries) -> dict[str, Figure]:
    """Throughput over the window, over the time with a request running, prompts and requests."""
    rate, working = summary["generation_tokens_per_second"], summary["working_generation_tokens_per_second"]
    live = ", live while requests run" if summary["generation_source"] == "live" else ""
    counter = f"the engine's token counter{live}"
    covered = length_words(summary["covered_seconds"]) if summary["covered_seconds"] else "no time"
    column = "generation_tokens_per_second"
    prompt = "prompt_tokens_per_second"
    return {
        "generation": Figure(
            rate,
            f"{formatting.count(summary['generation_tokens'])} tokens over {covered}; {counter}",
            sample=compare_series.sampled(series.engine, column, rate),
        ),
        "generation_working": Figure(
            working,
            f"over the {length_words(summary['working_seconds'] or 0)} with a request running; {counter}",
            sample=compare_series.sampled(series.engine, column, working, only_working=True),
        ),
        "prompt": _mean(summary, prompt, "the engine's counter of prompt tokens computed",
                        compare_series.sampled(series.engine, prompt, summary[prompt])),
        "requests": _mean(summary, "requests_per_second",
                          f"{formatting.count(summary['requests_finished'])} requests; the engine's counter"),
    }  # fmt: skip


def latencies(summary: Row, latency: Mapping[str, Row], series: EngineSeries) -> dict[str, Figure]:
    """Means and percentiles of the engine's own histograms; a percentile carries the bucket that it lies in."""
    figures: dict[str, Figure] = {}
    for key, quantity in LATENCIES.items():
        row = latency.get(quantity)
        count = row["count"] if row else 0
        over = f"the engine's histogram, {formatting.count(count)} observations"
        mean = row["mean_seconds"] if row else None
        sample = replace(compare_series.mean_latency(series, quantity), mean=mean) if mean is not None else None
        figures[f"{key}_mean"] = Figure(mean, f"sum over count of {over}", sample=sample)
        for name in PERCENTILES:
            low, high = (row[f"{name}_low_seconds"], row[f"{name}_high_seconds"]) if row else (None, None)
            figures[f"{key}_{name}"] = Figure(
                row[f"{name}_seconds"] if row else None, f"{formatting.bucket(low, high)}; {over}", low=low, high=high
            )
    if figures["itl_mean"].value is None and summary["mean_seconds_per_token"] is not None:
        figures["itl_mean"] = Figure(
            summary["mean_seconds_per_token"], "generation time over generated tokens, the engine's own totals"
        )
    return figures


def load(summary: Row, series: EngineSeries) -> dict[str, Figure]:
    """Requests running and waiting, the KV cache in use, prefix cache hits and preemptions."""
    figures: dict[str, Figure] = {}
    for key, column in GAUGES.items():
        mean = summary[f"{column}_mean"]
        sample = compare_series.sampled(series.engine, column, mean)
        figures[key] = Figure(mean, "the engine's gauge, mean over samples", sample=sample)
        figures[f"{key}_max"] = _mean(summary, f"{column}_max", "the engine's gauge, the greatest sample")
    return {
        **figures,
        "prefix_hits": _mean(summary, "prefix_cache_hit_fraction", "hits over queries, the engine's counters"),
        "preemptions": _mean(summary, "preemptions", "the engine's counter"),
    }


def memory(summary: Row, parts: Sequence[Row], series: EngineSeries) -> dict[str, Figure]:
    """Memory held on GPUs and in the host, mean and peak; weights and reserved cache of the newest life."""
    figures: dict[str, Figure] = {}
    for key, place, table in (
        ("device_memory", "device_memory", series.device_memory),
        ("host_memory", "host_memory", series.host_memory),
    ):
        mean, method = summary[f"{place}_mean_bytes"], summary[f"{place}_method"]
        source = compare_absences.method_words(method)
        values = compare_series.summed(table, "memory_bytes")["memory_bytes"] if place == "device_memory" else None
        column = values.tolist() if values is not None else table.column("memory_bytes").to_pylist()
        sample = blocks(column, compare_series.step_seconds(table), mean) if mean is not None else None
        figures[key] = Figure(mean, source, sample=sample)
        figures[f"{key}_peak"] = Figure(summary[f"{place}_peak_bytes"], source)
    for part in ("weights", "kv_reserved"):
        rows = [row for row in parts if row["part"] == part and row["memory_bytes"] is not None]
        told = [str(row["source"]) for row in parts if row["part"] == part]
        figures[part] = Figure(
            sum(row["memory_bytes"] for row in rows) if rows else None, "; ".join(dict.fromkeys(told))
        )
    return figures


def power(summary: Row, series: EngineSeries, used: Sequence[Row], labels: Mapping[str, str]) -> dict[str, Figure]:
    """CPU of the engine; utilisation, power and energy of the whole GPUs that it held memory on."""
    names = " and ".join(f"GPU {row['index']}" for row in used)
    others = [labels.get(str(other), str(other)) for other in summary["sharing_engine_ids"] or ()]
    shared = f"{names} was shared with {', '.join(others)}, which was not idle: its part can't be told."
    whole = f"of {names} as a whole" if names else ""
    watts, use = summary["power_watts_mean"], summary["utilisation_fraction_mean"]
    method = ENERGY.get(str(summary["energy_method"]), "")
    power = compare_series.summed(series.devices, "power_watts")["power_watts"].tolist()
    step = compare_series.step_seconds(series.devices)
    sample = blocks(power, step, watts) if watts is not None else None
    used_mean = series.devices.select(["ts", "utilisation_fraction"]).to_pandas().groupby("ts")["utilisation_fraction"]
    use_sample = blocks(used_mean.mean().tolist(), step, use) if use is not None else None
    figures = {
        "utilisation": Figure(use, f"{whole}, the driver's figure", sample=use_sample),
        "power": Figure(watts, f"{whole}, the driver's figure", sample=sample),
        "energy": Figure(summary["energy_joules"], f"{whole}; {method}"),
        "joules_per_token": Figure(summary["joules_per_output_token"], f"{whole}, idle time included; {method}"),
    }
    if others:
        figures = {key: replace(figure, flag="shared", caution=shared) for key, figure in figures.items()}
    return {"cpu": _mean(summary, "cpu_cores_mean", "CPU time of the engine's processes"), **figures}
