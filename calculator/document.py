"""A plan as one JSON document, and as rows for a table: the form in which it leaves the program."""

from __future__ import annotations

from typing import Any

from calculator.model import DevicePlan, Interval, MemoryPlan

PARTS = ("weights", "kv", "state", "compute", "overhead")
PART_TITLES = {
    "weights": "Weights",
    "kv": "KV cache",
    "state": "Recurrent state",
    "compute": "Compute buffers and activations",
    "overhead": "Context and graphs outside the buffers",
    "total": "Total",
}


def part_of(place: DevicePlan, part: str) -> Interval:
    """One of `PARTS`, or ``total``, of a device or the host, in bytes."""
    match part:
        case "weights":
            return Interval.exactly(place.weights_bytes)
        case "kv":
            return Interval.exactly(place.kv_bytes)
        case "state":
            return Interval.exactly(place.state_bytes)
        case "compute":
            return place.compute_bytes
        case "overhead":
            return place.overhead_bytes
        case "total":
            return place.total_bytes
    raise KeyError(part)


def document(plan: MemoryPlan) -> dict[str, Any]:
    """The plan with every size in bytes; `fits` is ``yes``, ``no``, ``maybe`` or null where no capacity is stated."""
    places = (*plan.devices, plan.host)
    return {
        "engine": plan.engine,
        "engine_version": plan.engine_version,
        "model": plan.model,
        "devices": [_place(device) for device in plan.devices],
        "host": _place(plan.host),
        "totals": {
            "weights_bytes": sum(place.weights_bytes for place in places),
            "kv_bytes": sum(place.kv_bytes for place in places),
            "state_bytes": sum(place.state_bytes for place in places),
            "output_bytes": plan.output_bytes,
        },
        "kv_capacity_tokens": plan.kv_capacity_tokens,
        "max_concurrency": plan.max_concurrency,
        "context_cells": plan.context_cells,
        "notes": [{"rule": note.rule, "text": note.text, "source": note.source} for note in plan.notes],
        "remedies": list(plan.remedies),
    }


def _place(place: DevicePlan) -> dict[str, Any]:
    return {
        "name": place.name,
        "capacity_bytes": place.capacity_bytes,
        "weights_bytes": place.weights_bytes,
        "kv_bytes": place.kv_bytes,
        "state_bytes": place.state_bytes,
        "compute_bytes": _interval(place.compute_bytes),
        "overhead_bytes": _interval(place.overhead_bytes),
        "total_bytes": _interval(place.total_bytes),
        "fits": place.fits,
    }


def _interval(interval: Interval) -> dict[str, int]:
    return {"low": interval.low, "high": interval.high}


def rows(plan: MemoryPlan) -> list[dict[str, Any]]:
    """One row for each part of each place, with both bounds in bytes: what a CSV of the plan holds."""
    found = []
    for place in (*plan.devices, plan.host):
        for part in (*PARTS, "total"):
            bounds = part_of(place, part)
            found.append(
                {
                    "engine": plan.engine,
                    "engine_version": plan.engine_version,
                    "model": plan.model,
                    "place": place.name,
                    "capacity_bytes": place.capacity_bytes,
                    "part": part,
                    "low_bytes": bounds.low,
                    "high_bytes": bounds.high,
                    "fits": place.fits if part == "total" else None,
                }
            )
    return found
