"""KV cache that stays empty: contiguous reservation against paging, for the request lengths of the page's controls."""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import Any

import altair as alt
import pandas as pd

from calculator.waste import Waste, exponential_lengths, kv_waste, uniform_lengths
from views import formatting
from views.memory_inputs import Load
from views.palette import NEUTRAL

BLOCK_TOKENS = 16  # vLLM's --block-size on GPUs


def waste_of(load: Load, block_tokens: int = BLOCK_TOKENS) -> Waste:
    """
    The waste for requests of these lengths, each with the whole context reserved for it.

    A mean longer than the context counts as the context. Raises `CalculatorError`.
    """
    mean = min(load.mean_tokens, load.context_tokens)
    match load.lengths:
        case "uniform":  # from twice the mean less the longest, so that the mean is right
            lengths = uniform_lengths(max(1, 2 * mean - load.context_tokens), min(load.context_tokens, 2 * mean - 1))
        case "all alike":
            lengths = {mean: 1.0}
        case _:
            lengths = exponential_lengths(mean, load.context_tokens)
    return kv_waste(lengths, load.context_tokens, block_tokens)


def waste_rows(found: Waste) -> pd.DataFrame:
    """The two ways as shares of what each reserves, in percent: `way part start end tip`."""
    rows = []
    for way, reserved, empty in (
        ("contiguous reservation", found.contiguous_tokens, found.contiguous_fraction),
        (f"paging, blocks of {BLOCK_TOKENS}", found.paged_tokens, found.paged_fraction),
    ):
        used = 100 * (1 - empty)
        rows.append((way, "holds tokens", 0.0, used, f"{formatting.count(found.used_tokens)} tokens a request"))
        tip = f"{formatting.count(reserved - found.used_tokens)} of {formatting.count(reserved)} tokens stay empty"
        rows.append((way, "stays empty", used, 100.0, tip))
    return pd.DataFrame(rows, columns=["way", "part", "start", "end", "tip"])


def sentence(found: Waste, load: Load) -> str:
    """The result as HTML, with where the rule is from."""
    cut = " (longer ones are cut at the context)" if load.lengths == "exponential" else ""
    return (
        f'<p class="er-note">A request holds {formatting.count(found.used_tokens)} tokens on average{cut}. '
        f"<b>{found.contiguous_fraction * 100:.1f} %</b> of a contiguous reservation stays empty (a llama.cpp slot "
        "of <code>-np</code>, and engines before vLLM), and "
        f"<b>{found.paged_fraction * 100:.1f} %</b> of the blocks with paging (vLLM): "
        f"{formatting.number(found.gain)} times as many requests in the same memory. "
        f"{escape(SOURCE)}</p>"
    )


SOURCE = (
    "Computed for these lengths by the rule of Kwon et al., SOSP 2023 (arXiv 2309.06180): reserved whole length "
    "against whole blocks, at the end of a request."
)


@lru_cache(maxsize=1)
def waste_spec() -> dict[str, Any]:
    """Two bars of 100 %; data set `waste`."""
    bars = (
        alt.Chart(alt.NamedData("waste"))
        .mark_bar(height={"band": 0.7}, color=NEUTRAL)
        .encode(
            y=alt.Y("way:N", title=None, sort=None, axis=alt.Axis(labelLimit=170)),
            x=alt.X("start:Q", title="% of the reserved cache", scale=alt.Scale(domain=[0, 100])),
            x2="end:Q",
            opacity=alt.Opacity(
                "part:N",
                scale=alt.Scale(domain=["holds tokens", "stays empty"], range=[0.95, 0.3]),
                legend=alt.Legend(title=None, orient="top", symbolType="square", symbolFillColor=NEUTRAL),
            ),
            tooltip=[alt.Tooltip("way:N"), alt.Tooltip("part:N"), alt.Tooltip("tip:N", title="tokens")],
        )
        .properties(height=alt.Step(26))
    )
    spec: dict[str, Any] = bars.configure_view(strokeOpacity=0).configure_axis(labelFontSize=11, grid=False).to_dict()
    spec.pop("$schema", None)
    return spec
