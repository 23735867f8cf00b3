"""
The stack of charts of the Live page as one Vega-Lite specification: one time axis, one crosshair.

Specifications are authored with Altair, once for each combination of engines and devices, and kept; a
refresh sends data only (see `views.frames` for the data sets). The time axis spans exactly the data set
`window`, so that the specification stays the same while the window moves.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from views.marks import DEVICE_DASHES, panel_chart, stack
from views.palette import Series
from views.panels import HOST_KEY, Panel, Scene, Stroke

REQUESTS = (Stroke("run", "running"), Stroke("wait", "waiting", (5, 4)))
ENGINE_PANELS = (
    Panel("generation", "Generation throughput", "tok/s", "lines", "engine", "gen"),
    Panel("prompt", "Prompt throughput, computed", "tok/s", "lines", "engine", "prompt"),
    Panel(
        "requests", "Requests: running solid, waiting dashed", "requests", "strokes", "engine", "run", strokes=REQUESTS
    ),
)
HOST_PANELS = (
    Panel("host_memory", "Host memory by holder; engines: resident set", "GiB", "parts", "parts", "hi", HOST_KEY),
    Panel("host_cpu", "Host CPU, all cores", "%", "total", "host", "cpu"),
)


def memory_panels(devices: tuple[tuple[str, str], ...]) -> tuple[Panel, ...]:
    """The memory of each device by its holders."""
    return tuple(
        Panel(f"memory_{key}", f"{name} memory by holder", "GiB", "parts", "parts", "hi", key) for key, name in devices
    )


def device_panels(devices: tuple[tuple[str, str], ...]) -> tuple[Panel, ...]:
    """GPU panels for `(device key, name)` pairs: memory of each device, then utilisation and power of all."""
    if not devices:
        return ()
    return (
        *memory_panels(devices),
        Panel("utilisation", f"GPU utilisation{dash_words(devices)}", "%", "devices", "device", "util"),
        Panel("power", f"GPU power{dash_words(devices)}", "W", "devices", "device", "power"),
    )


def panels_of(engines: tuple[Series, ...], devices: tuple[tuple[str, str], ...]) -> tuple[Panel, ...]:
    """The charts of a stack from top to bottom; none of engines where there is no engine."""
    return (ENGINE_PANELS if engines else ()) + device_panels(devices) + HOST_PANELS


def dash_words(devices: tuple[tuple[str, str], ...]) -> str:
    """Which line is which device; the tooltip tells it too, also when there are more devices than patterns."""
    if len(devices) == 1:
        return ""
    words = (f"{name} {word}" for (_, name), word in zip(devices, DEVICE_DASHES, strict=False))
    return ": " + ", ".join(words)


def alt_text(panels: tuple[Panel, ...], engines: tuple[Series, ...], minutes: float) -> str:
    """What the stack shows, in words, for people who can't see it."""
    names = ", ".join(series.label for series in engines) or "no engine"
    charts = "; ".join(f"{panel.title} in {panel.unit}" for panel in panels)
    return f"{len(panels)} charts over {minutes:g} minutes on one UTC time axis. Engines: {names}. Charts: {charts}."


@lru_cache(maxsize=128)
def live_spec(
    engines: tuple[Series, ...],
    holders: tuple[Series, ...],
    devices: tuple[tuple[str, str], ...],
    grid_seconds: float,
    residents: tuple[Series, ...] = (),
) -> dict[str, Any]:
    """
    The specification of the whole stack, without data.

    Parameters: the engines drawn, in the order of their places; all engines there are, since each may hold
    device memory; `(device key, name)` pairs; the width of one crosshair step in
    seconds (a step shows the mean of the samples in it); the engines that hold host memory.
    """
    panels = panels_of(engines, devices)
    scene = Scene(devices, grid_seconds)
    return stack(
        [
            panel_chart(
                panel,
                engines if panel.shape != "parts" else residents if panel.device == HOST_KEY else holders,
                scene,
                first=n == 0,
                last=n == len(panels) - 1,
            )
            for n, panel in enumerate(panels)
        ]
    )
