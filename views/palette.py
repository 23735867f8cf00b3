"""
One colour and one dash pattern for each engine, everywhere.

Colours come from the theme (`chartCategoricalColors` in `.streamlit/config.toml`): charts name only the
order of the engines, and the page's own HTML uses the style classes made here from the same lists.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

DASHES: tuple[tuple[int, ...], ...] = (
    (1, 0),
    (7, 3),
    (2, 2),
    (9, 3, 2, 3),
    (4, 2),
    (1, 3),
    (12, 4),
    (6, 2, 1, 2, 1, 2),
)
NEUTRAL = "#7d8794"  # 3.6:1 on #FFFFFF, 5.2:1 on #0E1117


@dataclass(frozen=True, slots=True)
class Series:
    """How an engine is drawn: its short key in chart data, its name, and its place in the order of all engines."""

    key: str
    engine_id: str
    label: str
    place: int

    @property
    def css_class(self) -> str:
        """The style class that carries the engine's colour."""
        return f"er-c{self.place % len(DASHES)}"

    @property
    def dash(self) -> tuple[int, ...]:
        """Dash pattern of the engine's lines, in pixels on and off."""
        return dash_of(self.place)


def key_of(place: int) -> str:
    """The key of the engine at a place, short because every row of chart data carries it."""
    return f"s{place}"


def dash_of(place: int) -> tuple[int, ...]:
    """The dash pattern of the engine at a place."""
    return DASHES[place % len(DASHES)]


def assign(engine_ids: Sequence[str], labels: dict[str, str]) -> dict[str, Series]:
    """
    A `Series` for each engine. `engine_ids` are all engines ever seen, in the order in which they were first
    seen: a new engine takes the next colour and changes none. The label defaults to the id.
    """
    return {
        engine_id: Series(key_of(place), engine_id, labels.get(engine_id, engine_id), place)
        for place, engine_id in enumerate(dict.fromkeys(engine_ids))
    }


def mask(svg_body: str, width: int, height: int) -> str:
    """CSS that cuts a coloured box to the shape of a drawing: how the page's own HTML draws in theme colours."""
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" preserveAspectRatio="none">'
        f'<g fill="none" stroke="#000">{svg_body}</g></svg>'
    )
    url = f"url(data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
    return f"-webkit-mask-image:{url};mask-image:{url}"


def swatch(series: Series) -> str:
    """A short piece of the engine's line, in its colour and dash, as HTML."""
    dash = " ".join(str(length) for length in series.dash)
    line = f'<path stroke-width="4" stroke-dasharray="{dash}" d="M0 3H28"/>'
    return f'<span class="er-swatch {series.css_class}" style="{mask(line, 28, 6)}" aria-hidden="true"></span>'


def limit_swatch() -> str:
    """A short piece of the dashed line that marks an installed capacity, as HTML."""
    line = '<path stroke-width="3" stroke-dasharray="4 3" d="M0 3H28"/>'
    return f'<span class="er-swatch er-neutral" style="{mask(line, 28, 6)}" aria-hidden="true"></span>'


def style_classes() -> str:
    """CSS of the classes `er-c0` ... for both themes, from the theme's own colour lists."""
    light = _colours("theme.light.chartCategoricalColors")
    dark = _colours("theme.dark.chartCategoricalColors")
    return "\n".join(
        f".er-c{place} {{ --er-colour: light-dark({light[place % len(light)]}, {dark[place % len(dark)]}); }}"
        for place in range(len(DASHES))
    )


def _colours(option: str) -> list[str]:
    return [str(colour) for colour in st.get_option(option) or [NEUTRAL]]
