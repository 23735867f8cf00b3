"""
Charts of a report as drawings that need nothing but a browser: Vega-Lite to SVG, with the colours of the light theme.

vl-convert runs Vega itself, without a browser; no address may be fetched meanwhile.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
import streamlit as st

from views.report_scrub import Scrub

WIDTH_PIXELS = 840  # of the drawing area: with its axis it fills a report
HALF_PIXELS = 380
_FONT = "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif"


def svg(
    spec: Mapping[str, Any], datasets: Mapping[str, pa.Table], words: str, scrub: Scrub, *, half: bool = False
) -> str:
    """A specification with its data as an SVG element; `words` tell what it shows to those who don't see it."""
    import vl_convert  # 70 MB of memory: only a process that makes a report pays for them

    whole = {**_sized(spec, HALF_PIXELS if half else WIDTH_PIXELS)}
    whole["datasets"] = {name: _records(table) for name, table in datasets.items()}
    colours = st.get_option("theme.light.chartCategoricalColors") or []
    text = st.get_option("theme.light.textColor")
    config = {
        "range": {"category": list(colours)},
        "font": _FONT,
        "background": None,
        "axis": {"labelColor": text, "titleColor": text, "titleFontWeight": "normal"},
        "title": {"color": text},
    }
    hidden = scrub(json.dumps(whole, ensure_ascii=False))
    drawn: str = vl_convert.vegalite_to_svg(hidden, config=config, allowed_base_urls=[])
    label = scrub(words).replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    return drawn.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1)


def _sized(spec: Mapping[str, Any], width: int) -> dict[str, Any]:
    """The specification with a width in pixels: on a page it takes the width that there is."""
    sized = dict(spec)
    if "vconcat" in sized:
        sized["vconcat"] = [{**panel, "width": width} for panel in sized["vconcat"]]
    else:
        sized["width"] = width
    sized.pop("autosize", None)
    return sized


def _records(table: pa.Table) -> list[dict[str, Any]]:
    """Rows as plain values: a time is milliseconds, what is not known is null."""
    frame = table.to_pandas()
    for name in frame.columns:
        if pd.api.types.is_datetime64_any_dtype(frame[name]):
            frame[name] = frame[name].astype("int64") / 1e6
    rows: list[dict[str, Any]] = frame.to_dict("records")
    return [{key: _plain(value) for key, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if value is None or value is pd.NaT:
        return None
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
