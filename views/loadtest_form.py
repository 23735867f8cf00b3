"""
The controls of a new load test and what they mean: one description (`loadtest.spec`), or what is wrong with it.

Every control is in the link, so that a set-up can be handed on. A message stands under the field that it is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import streamlit as st

from loadtest.spec import Spec, SpecError
from views import loadtest_data
from views.loadtest_data import Row

MODES = {"closed": "users (closed loop)", "constant": "constant rate", "poisson": "Poisson rate"}
PROMPTS = {"synthetic": "synthetic words", "text": "shipped text", "file": "JSONL file"}
LENGTHS = {"fixed": "all alike", "uniform": "uniform", "lognormal": "log-normal"}
STAGES = {"usual": "as many as needed", "requests": "a number of requests", "seconds": "a time"}
APIS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
CACHES = ("avoided", "wanted")
DEFAULT_LEVELS = "1, 2, 4, 8, 16, 32"
DEFAULT_RATES = "0.5, 1, 2, 4"
MOST_NAME = 120


@dataclass(frozen=True, slots=True)
class Setup:
    """What the controls say: a description that can be started, or None; and its name."""

    spec: Spec | None
    name: str
    engines: tuple[str, ...]  # engine_ids that were chosen


@dataclass
class _Fields:
    """Values as they are read, and whether one of them can't be used (its message is drawn already)."""

    values: dict[str, Any] = field(default_factory=dict)
    wrong: bool = False

    def refuse(self, message: str) -> None:
        """Say what is wrong under the control drawn last."""
        self.wrong = True
        st.html(f'<p class="er-wrong">{escape(message, quote=False)}</p>')


def ignored_of_link() -> list[str]:
    """The choices of a link that there are not; a control drops such a value silently. Ask before they are drawn."""
    titles = {"mode": MODES, "prompts": PROMPTS, "lengths_in": LENGTHS, "each": STAGES, "api": APIS}
    valid = {key: set(words.values()) for key, words in titles.items()} | {"cache": set(CACHES)}
    given = {name: st.query_params[name] for name in valid if name in st.query_params}
    return [f"{name}={value}" for name, value in given.items() if value not in valid[name]]


def draw(engines: Sequence[Row], labels: Mapping[str, str]) -> Setup:
    """The whole form. `engines` are `loadtest_data.candidates`; `labels` are their names by engine_id."""
    running = [str(row["engine_id"]) for row in engines if row["state"] in loadtest_data.CAN_ANSWER]
    fields = _Fields()
    chosen = _what(running, labels, fields)
    _work(fields)
    name = _target(fields)
    with st.expander("More: API, limits, warm-up, seed", icon=":material/tune:"):
        _more(fields)
    return Setup(_spec(engines, labels, chosen, fields), name, tuple(chosen))


def _what(running: Sequence[str], labels: Mapping[str, str], fields: _Fields) -> list[str]:
    """Which engines, and how much load."""
    with st.container(horizontal=True, vertical_alignment="top", gap="medium"):
        with st.container(width=460):
            chosen = st.multiselect(
                "Engines", running, default=running[:2], key="targets", bind="query-params",
                format_func=lambda engine_id: labels.get(engine_id, engine_id), placeholder="choose running engines",
            )  # fmt: skip
            if not chosen:
                fields.refuse("Choose at least one engine; with two the page tells where one overtakes the other.")
        mode = st.selectbox(
            "Load", list(MODES), format_func=MODES.__getitem__, key="mode", bind="query-params",
            width=190, help="Closed loop: so many users, each of whom sends the next request when the last is "
            "answered. Open loop: requests come at a rate, whether or not the engine keeps up.",
        )  # fmt: skip
        closed = mode == "closed"
        fields.values["mode"] = mode
        with st.container(width=260):
            text = st.text_input(
                "Users at once" if closed else "Requests per second", DEFAULT_LEVELS if closed else DEFAULT_RATES, 200,
                key="levels" if closed else "rates", bind="query-params",
            )  # fmt: skip
            fields.values["levels"] = _levels(text or "", closed, fields)
        fields.values["repeats"] = st.number_input(
            "Repeats", 1, 20, 3, key="repeats", bind="query-params", width=110,
            help="Engines take turns within each repeat (A B, B A). From two repeats on there are intervals.",
        )  # fmt: skip
    return list(chosen)


def _levels(text: str, closed: bool, fields: _Fields) -> list[float]:
    words = text.replace(",", " ").replace(";", " ").split()
    levels: list[float] = []
    for word in words:
        try:
            level = float(word)
        except ValueError:
            fields.refuse(
                f"“{word[:20]}” is no number. Write for example {DEFAULT_LEVELS if closed else DEFAULT_RATES}."
            )
            return []
        if not 0 < level < float("inf") or (closed and level != int(level)):
            what = "whole numbers from 1" if closed else "numbers greater than 0"
            fields.refuse(f"{word[:20]} can't be used: levels are {what}.")
            return []
        levels.append(level)
    if not levels:
        fields.refuse("Give at least one level.")
    elif closed and 1.0 not in levels:
        st.caption("One user is measured as well: it is what the others are compared with.")
    return levels


def _work(fields: _Fields) -> None:
    """What one request is."""
    given: dict[str, Any] = {}
    with st.container(horizontal=True, vertical_alignment="top", gap="medium"):
        kind = st.selectbox(
            "Prompts", list(PROMPTS), format_func=PROMPTS.__getitem__, key="prompts", bind="query-params",
            width=160, help="Prompts are never stored, and each begins with words that no other one begins with.",
        )  # fmt: skip
        given["kind"] = kind
        if kind == "file":
            with st.container(width=330):
                given["path"] = st.selectbox(
                    "JSONL file", loadtest_data.prompt_files(), index=None, key="prompt_file", bind="query-params",
                    placeholder="of a configured folder",
                    help="One object a line with prompt or messages, and optionally output_tokens. Folders are named "
                    "as prompt_folders in engine-room.toml.",
                )  # fmt: skip
                if not given["path"]:
                    fields.refuse(
                        "Choose a file."
                        if loadtest_data.prompt_files()
                        else "There is no *.jsonl file in the prompt_folders of engine-room.toml, or none is named."
                    )
        else:
            lengths = st.selectbox(
                "Lengths", list(LENGTHS), format_func=LENGTHS.__getitem__, key="lengths_in", bind="query-params",
                width=120,
            )  # fmt: skip
            given["distribution"] = lengths
            _lengths(given, str(lengths), fields)
        fields.values["output"] = {
            "tokens": st.number_input(
                "Answer (tokens)", 1, 100_000, 200, key="tokens_out", bind="query-params", width=140,
                help="Every answer is made exactly so long (ignore_eos), and the run verifies it.",
            )
        }  # fmt: skip
        given["cached"] = (
            st.selectbox(
                "Prefix cache", CACHES, key="cache", bind="query-params", width=120,
                help="Avoided: no prompt can be served from a cache. Wanted: nine tenths of each prompt are the same.",
            )
            == "wanted"
        )  # fmt: skip
    fields.values["input"] = given


def _lengths(given: dict[str, Any], lengths: str, fields: _Fields) -> None:
    if lengths == "uniform":
        low = st.number_input(
            "Prompt from (tokens)", 1, 1_000_000, 500, key="tokens_low", bind="query-params", width=150
        )
        with st.container(width=150):
            high = st.number_input("to (tokens)", 1, 1_000_000, 1500, key="tokens_high", bind="query-params")
            if high < low:
                fields.refuse("This is less than the least length.")
        given |= {"tokens_min": low, "tokens_max": high, "tokens": max(1, (low + high) // 2)}
        return
    title = "Prompt (tokens)" if lengths == "fixed" else "Median prompt (tokens)"
    given["tokens"] = st.number_input(title, 1, 1_000_000, 1000, key="tokens_in", bind="query-params", width=160)
    if lengths == "lognormal":
        given["sigma"] = st.number_input("Sigma", 0.05, 3.0, 0.5, 0.05, key="sigma", bind="query-params",
                                         width=110, help="Standard deviation of the logarithm.")  # fmt: skip
        given["tokens_max"] = given["tokens"] * 8


def _target(fields: _Fields) -> str:
    """How much of it, what counts as good, and what the run is called."""
    with st.container(horizontal=True, vertical_alignment="top", gap="medium"):
        how = st.selectbox(
            "Each stage", list(STAGES), format_func=STAGES.__getitem__, key="each", bind="query-params",
            width=200, help="As many as needed: five requests a user and at least eight.",
        )  # fmt: skip
        if how == "requests":
            fields.values["requests"] = st.number_input(
                "Requests", 1, 100_000, 40, key="requests", bind="query-params", width=130
            )
        elif how == "seconds":
            fields.values["duration_seconds"] = float(
                st.number_input("Seconds", 1, 7200, 60, key="seconds", bind="query-params", width=130)
            )
        slo = {
            "ttft_seconds": _seconds("SLO: TTFT (s)", "slo_ttft", 1.0, 1.0),
            "tpot_seconds": _seconds("SLO: TPOT (ms)", "slo_tpot", 50.0, 1000.0),
            "e2e_seconds": _seconds("SLO: E2E (s)", "slo_e2e", None, 1.0),
        }
        fields.values["slo"] = slo
        return (
            st.text_input("Name", "", MOST_NAME, key="test_name", width=300, placeholder="as date and time") or ""
        ).strip()


def _seconds(label: str, key: str, value: float | None, per_second: float) -> float | None:
    given = st.number_input(
        label, 0.001, 1e6, value, key=key, bind="query-params", width=130, format="%g", step=None,
        placeholder="none",
    )  # fmt: skip
    return None if given is None else float(given) / per_second


def _more(fields: _Fields) -> None:
    with st.container(horizontal=True, vertical_alignment="top", gap="medium"):
        fields.values["api"] = st.selectbox(
            "API", list(APIS), format_func=APIS.__getitem__, key="api", bind="query-params", width=210
        )
        minutes = st.number_input(
            "Whole run at most (min)", 1, 1440, 120, key="most_minutes", bind="query-params", width=170
        )
        failed = st.number_input(
            "A stage ends at failures of (%)", 1, 100, 50, key="most_failed", bind="query-params",
            width=200,
        )  # fmt: skip
        batches = st.number_input(
            "Warm-up batches at most", 0, 100, 6, key="warmup", bind="query-params", width=180,
            help="Batches with prompts of their own before each stage, until two successive ones agree within 10 %.",
        )  # fmt: skip
        seed = st.number_input(
            "Seed", 0, 2**53 - 1, None, key="seed", bind="query-params", width=150,
            placeholder="a new one", help="The same seed makes the same prompts: a cache may then serve them.",
        )  # fmt: skip
        if fields.values["mode"] != "closed":
            fields.values["max_in_flight"] = st.number_input(
                "In flight at most", 1, 4096, 512, key="in_flight", bind="query-params", width=140
            )
    fields.values["limits"] = {"seconds": minutes * 60.0, "failed_fraction": failed / 100}
    fields.values["warmup"] = {"most_batches": batches}
    fields.values["seed"] = seed


def _spec(engines: Sequence[Row], labels: Mapping[str, str], chosen: Sequence[str], fields: _Fields) -> Spec | None:
    if fields.wrong:
        return None
    rows = {str(row["engine_id"]): row for row in engines}
    values = dict(fields.values)
    api = values.pop("api")
    endpoints = [
        {
            "url": str(rows[engine_id]["url"]),
            "label": labels.get(engine_id, engine_id),
            "engine_id": engine_id if rows[engine_id]["kind"] else None,
            "api": api,
        }
        for engine_id in chosen
    ]
    try:
        return Spec.from_json({"endpoints": endpoints, **values})
    except SpecError as error:
        st.error(f"**This can't be started.** {error}", icon=":material/error:")
        return None
