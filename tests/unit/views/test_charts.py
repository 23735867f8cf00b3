"""
The live page's chart specification.

Its validity is judged by the Vega-Lite JSON schema that Altair ships, not by our own code; contrast
ratios by the WCAG 2.2 formula (success criterion 1.4.11: at least 3:1 for graphics).
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import altair as alt
import pytest

from views import charts
from views.palette import DASHES, NEUTRAL, assign

ROOT = Path(__file__).parents[3]
ENGINES = tuple(assign(["vllm-8000", "llama.cpp-8080"], {"vllm-8000": 'Say "Qwen" \\ on vLLM'}).values())
DEVICES = (("d0", "GPU 0, NVIDIA H100"), ("d1", "GPU 1, NVIDIA H100"))


@pytest.mark.parametrize("devices", [(), DEVICES[:1], DEVICES])
@pytest.mark.parametrize("engines", [(), ENGINES[:1], ENGINES])
def test_the_specification_is_valid_vega_lite(engines, devices):
    spec = json.loads(json.dumps(charts.live_spec(engines, ENGINES, devices, 2.0)))
    alt.VConcatChart.from_dict(spec, validate=True)


def test_one_specification_serves_every_refresh():
    assert charts.live_spec(ENGINES, ENGINES, DEVICES, 2.0) is charts.live_spec(
        tuple(ENGINES), tuple(ENGINES), tuple(DEVICES), 2.0
    )


def test_every_chart_names_its_unit_and_the_last_one_the_time_zone():
    spec = charts.live_spec(ENGINES, ENGINES, DEVICES, 2.0)
    panels = charts.panels_of(ENGINES, DEVICES)
    assert len(spec["vconcat"]) == len(panels)
    for panel, chart in zip(panels, spec["vconcat"], strict=True):
        titles = {layer["encoding"]["y"].get("title") for layer in chart["layer"] if "y" in layer["encoding"]}
        assert panel.unit in titles
        assert chart["title"]
    axis = spec["vconcat"][-1]["layer"][0]["encoding"]["x"]["axis"]
    assert "UTC" in axis["title"]


def test_the_crosshair_is_one_for_all_charts():
    spec = charts.live_spec(ENGINES, ENGINES, DEVICES, 2.0)
    (hover,) = spec["params"]
    names = {layer.get("name") for chart in spec["vconcat"] for layer in chart["layer"]}
    assert len(hover["views"]) == len(spec["vconcat"])
    assert set(hover["views"]) <= names


def test_an_engine_keeps_its_colour_and_dash_when_others_are_hidden():
    """The place in the domain decides the colour, so a hidden engine must not move the others."""
    every = assign(["a", "b", "c"], {})
    only = (every["c"],)
    assert every["c"].place == 2
    spec = charts.live_spec(only, tuple(every.values()), (), 2.0)
    scales = [
        layer["encoding"]["color"]["scale"]["domain"]
        for layer in spec["vconcat"][0]["layer"]
        if "color" in layer["encoding"]
    ]
    assert scales
    assert all(domain.index("s2") == 2 for domain in scales)


def test_alternative_text_tells_what_is_there():
    panels = charts.ENGINE_PANELS + charts.HOST_PANELS
    text = charts.alt_text(panels, ENGINES, 5)
    assert "llama.cpp-8080" in text
    assert "5 minutes" in text
    assert "tok/s" in text


@pytest.mark.parametrize("mode", ["light", "dark"])
def test_colours_can_be_seen_on_their_backgrounds(mode):
    """At least 3:1, https://www.w3.org/TR/WCAG22/#non-text-contrast, on the page and on cards of a grey ground."""
    theme = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text())["theme"][mode]
    colours = theme["chartCategoricalColors"]
    assert len(set(colours)) == len(colours) == len(set(DASHES))
    for ground in ("backgroundColor", "secondaryBackgroundColor"):
        for colour in [*colours, NEUTRAL]:
            assert _contrast(colour, theme[ground]) >= 3.0, (colour, ground)


def _contrast(first: str, second: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio"""
    lighter, darker = sorted((_luminance(first), _luminance(second)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    """https://www.w3.org/TR/WCAG22/#dfn-relative-luminance"""
    shares = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
