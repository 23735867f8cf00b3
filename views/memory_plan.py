"""One engine's column on the Memory page: does it fit, what holds the memory, how many users, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape

import pandas as pd
import pyarrow as pa
import streamlit as st

from calculator import llamacpp_settings, vllm, vllm_settings
from calculator.document import PART_TITLES, PARTS, part_of
from calculator.heatmap import Cell, fits_together, heat_map
from calculator.llamacpp import with_mix
from calculator.model import CalculatorError, Fits, MemoryPlan, Model
from calculator.plan import Settings, in_format, plan, settings_of, with_files
from calculator.references import Allowed
from views import formatting, memory_charts
from views.memory_inputs import CONTEXTS, USERS, Load, Machine, context_words

TITLES = {"vllm": "vLLM", "llama.cpp": "llama.cpp"}
_TONES = {Fits.YES: "good", Fits.MAYBE: "warn", Fits.NO: "bad"}


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan with what led to it."""

    plan: MemoryPlan
    model: Model
    settings: Settings
    command: str
    load: Load
    machine: Machine

    @property
    def fits(self) -> Fits:
        """Whether everything fits, the asked-for users included."""
        return fits_together(self.plan, self.load.users)


def answer_vllm(model: Model, name: str, flags: Sequence[str], weights: str, load: Load, machine: Machine) -> Answer:
    """
    The plan of vLLM for these flags; `weights` other than "as published" stands for a checkpoint in that format.

    Raises `CalculatorError`.
    """
    if is_gguf(model):
        raise CalculatorError(
            "vLLM is planned from a Hugging Face configuration, and this is a GGUF file. Choose the model of the "
            "same name from the catalogue, or its folder with config.json."
        )
    if weights != "as published":
        model = in_format(model, weights)
    arguments = ["--max-model-len", str(load.context_tokens), *flags]
    settings = settings_of("vllm", arguments, None, machine.devices)
    made = plan(model, settings, machine.devices, machine.host)
    if not isinstance(settings, vllm_settings.VllmSettings):
        raise CalculatorError("these are not vLLM's settings")
    return Answer(made, model, settings, vllm_settings.command(settings, name), load, machine)


def is_gguf(model: Model) -> bool:
    """Whether the facts are from a GGUF file: its architectures are written small ("qwen3moe")."""
    return not model.architecture[:1].isupper()


def answer_llamacpp(
    model: Model, name: str, flags: Sequence[str], quant: str | None, load: Load, machine: Machine, may_read: Allowed
) -> Answer:
    """
    The plan of llama.cpp: one slot for each user, each with the whole context. Raises `CalculatorError`.

    `quant` is the GGUF quantisation to estimate where no file decides it.
    """
    if quant is not None:
        model = _mixed(f"{model.source}|{model.name}", quant, model)
    arguments = ["-c", str(load.context_tokens * load.users), "-np", str(load.users), *flags]
    settings, draft = with_files(settings_of("llama.cpp", arguments, None, machine.devices), may_read)
    made = plan(model, settings, machine.devices, machine.host, draft=draft)
    if not isinstance(settings, llamacpp_settings.LlamaCppSettings):
        raise CalculatorError("these are not llama.cpp's settings")
    path = name if quant is None else f"{name.rpartition('/')[2]}-{quant}.gguf"
    return Answer(made, model, settings, llamacpp_settings.command(settings, path), load, machine)


@st.cache_resource(max_entries=64, show_spinner=False)
def _mixed(key: str, quant: str, _model: Model) -> Model:
    """The model with the tensors of a quantisation mix; `key` tells models apart."""
    return with_mix(_model, quant)


def cells_of(answer: Answer) -> tuple[Cell, ...]:
    """The heat map of an answer: every pair of a context length and a number of users. Raises `CalculatorError`."""
    contexts = [length for length in CONTEXTS if length <= (answer.model.context_train or CONTEXTS[-1])]
    contexts = contexts or [answer.load.context_tokens]
    settings, devices, host = answer.settings, answer.machine.devices, answer.machine.host
    if isinstance(settings, vllm_settings.VllmSettings):
        longest = replace(settings, max_model_len=max(contexts))
        rows = vllm.heat_map(answer.model, longest, devices, contexts, USERS, host)
        return tuple(
            Cell(length, users, fits)
            for users, row in zip(USERS, rows, strict=True)
            for length, fits in zip(contexts, row, strict=True)
        )
    if not isinstance(settings, llamacpp_settings.LlamaCppSettings):
        raise CalculatorError("there is no heat map for this engine")
    template = settings

    def with_load(context: int, users: int) -> MemoryPlan:
        changed = replace(template, context=context * users, parallel=users)
        return plan(answer.model, changed, devices, host, remedies=False)

    return heat_map(with_load, contexts, USERS)


def draw(title: str, found: Answer, top_gib: float) -> None:
    """What an engine's column shows below its controls. `top_gib`: where the axis of the bars ends."""
    st.html(_headline(found))
    _draw_bars(title, found, top_gib)
    _draw_remedies(found)
    st.code(found.command, language="shell", wrap_lines=True)


def draw_heat_map(title: str, found: Answer) -> None:
    """The heat map of an engine, with the pair that the controls name marked; where it can't be made, why."""
    st.markdown(f"**{title}**")
    try:
        cells = _cells(found)
    except CalculatorError as error:
        st.warning(str(error))
        return
    chosen = pd.DataFrame(
        [{"context": context_words(found.load.context_tokens), "users": formatting.count(found.load.users)}]
    )
    frame = memory_charts.heat_rows(cells)
    if found.load.context_tokens not in {cell.context_tokens for cell in cells}:
        chosen = chosen.iloc[:0]
    contexts = tuple(dict.fromkeys(frame["context"]))
    users = tuple(dict.fromkeys(frame["users"]))
    st.vega_lite_chart(
        None,
        {**memory_charts.heat_spec(contexts, users), "datasets": {"cells": _arrow(frame), "chosen": _arrow(chosen)}},
        key=f"heat-{title}-{len(contexts)}",
        width="stretch",
        alt=memory_charts.heat_alt(cells),
    )


def _cells(found: Answer) -> tuple[Cell, ...]:
    key = f"{found.model.source}|{found.model.quantization}|{found.settings!r}|{found.machine!r}"
    return _kept_cells(key, found)


@st.cache_resource(max_entries=64, show_spinner=False)
def _kept_cells(key: str, _found: Answer) -> tuple[Cell, ...]:
    return cells_of(_found)


def _headline(found: Answer) -> str:
    word = memory_charts.FITS_WORDS[found.fits]
    title = TITLES[found.plan.engine]
    return (
        f'<p class="er-verdict"><b>{escape(title)} {escape(found.plan.engine_version)}</b> '
        f'<span class="er-badge er-{_TONES[found.fits]}">{word}</span> {escape(sentence(found))}</p>'
    )


def sentence(found: Answer) -> str:
    """What the plan means for the users that were asked for."""
    made, load = found.plan, found.load
    parts = _shortages(made)
    if made.kv_capacity_tokens:
        parts.append(f"the KV cache holds {formatting.count(made.kv_capacity_tokens)} tokens")
    if made.max_concurrency:
        many, of = formatting.number(made.max_concurrency, 3), context_words(load.context_tokens)
        parts.append(f"that is {many} requests of {of} at once")
        starts = Fits.NO not in [place.fits for place in (*made.devices, made.host)]
        if starts and made.max_concurrency < load.users:
            parts.append(f"it starts, but of {load.users} such users the others wait")
    return "; ".join(parts)


def _shortages(made: MemoryPlan) -> list[str]:
    """Which places are too small, by how much; devices together where there are several."""
    short = [
        (place, place.total_bytes.high - place.capacity_bytes, place.total_bytes.low > place.capacity_bytes)
        for place in (*made.devices, made.host)
        if place.capacity_bytes is not None and place.total_bytes.high > place.capacity_bytes
    ]
    if len(short) > 2:
        most = formatting.size(max(over for _, over, _ in short))
        surely = all(sure for _, _, sure in short)
        return [f"{len(short)} of {len(made.devices) + 1} places {'are' if surely else 'may be'} short by up to {most}"]
    return [
        f"{place.name} {'is' if sure else 'may be'} short by {formatting.size(over)}" for place, over, sure in short
    ]


def smaller_loads(found: Answer) -> list[str]:
    """Fewer users, or a shorter context, that fit for sure, by planning again; none where all of them fit already."""
    if found.fits == Fits.YES:
        return []
    cells = [cell for cell in _cells(found) if cell.fits == Fits.YES]
    load = found.load
    users = max((c.users for c in cells if c.context_tokens == load.context_tokens), default=None)
    context = max((c.context_tokens for c in cells if c.users == load.users), default=None)
    texts = []
    if users is not None and users < load.users:
        texts.append(f"{users} {'user' if users == 1 else 'users'} with {context_words(load.context_tokens)} each")
    if context is not None and context < load.context_tokens:
        texts.append(f"{load.users} users with {context_words(context)} each")
    return texts


def _draw_bars(title: str, found: Answer, top_gib: float) -> None:
    names = tuple(place.name for place in memory_charts.places_of(found.plan))
    st.vega_lite_chart(
        None,
        {
            **memory_charts.bar_spec(names, top_gib),
            "datasets": {
                "parts": _arrow(memory_charts.bar_rows(found.plan)),
                "limits": _arrow(memory_charts.limit_rows(found.plan)),
            },
        },
        key=f"bars-{title}-{len(names)}",
        width="stretch",
        alt=memory_charts.bar_alt(found.plan),
    )


def _draw_remedies(found: Answer) -> None:
    starts = fits_together(found.plan) == Fits.YES
    for heading, texts in (
        ("Any one of these makes it fit for sure:", [] if starts else [f"`{text}`" for text in found.plan.remedies]),
        (f"For all {found.load.users} users at once, any one of these:", all_users(found)),
        ("Sure to fit with everything else as it is:", smaller_loads(found)),
    ):
        if texts:
            st.markdown("\n".join([f":small[{heading}]", "", *(f"- :small[{text}]" for text in texts)]))


def all_users(found: Answer) -> list[str]:
    """vLLM's own flags that make all users fit, as Markdown, each planned again; none where they fit already."""
    texts: list[str] = []
    settings = found.settings
    if found.fits == Fits.YES:
        return texts
    if isinstance(settings, vllm_settings.VllmSettings) and settings.platform != "cpu":
        ranks = len(found.machine.devices)
        candidates: list[tuple[str, dict[str, object]]] = [
            ("--kv-cache-dtype fp8", {"kv_cache_dtype": "fp8"}),
            ("--quantization fp8", {"quantization": "fp8"}),
            ("--kv-cache-dtype fp8 --quantization fp8", {"kv_cache_dtype": "fp8", "quantization": "fp8"}),
            (f"--tensor-parallel-size {ranks}", {"tensor_parallel_size": ranks}),
        ]
        for flags, changes in candidates:
            changed = vllm_settings.with_changes(settings, **changes)
            if changed != settings and not (found.model.quantization and "quantization" in changes):
                texts += [f"`{flags}`"] if _holds(found, changed) else []
    return texts


def _holds(found: Answer, settings: Settings) -> bool:
    """Whether all users fit with other settings; settings that the engine refuses hold nobody."""
    try:
        made = plan(found.model, settings, found.machine.devices, found.machine.host)
    except CalculatorError:
        return False
    return fits_together(made, found.load.users) == Fits.YES


def top_of(answers: Sequence[Answer]) -> float:
    """Where the axis of all bars ends, in GiB: the same for both engines, so that lengths can be compared."""
    largest = max((memory_charts.axis_end_bytes(found.plan) for found in answers), default=0) / memory_charts.GIB
    return float(f"{max(largest, 0.001) * 1.04:.3g}")


def why_frame(made: MemoryPlan) -> pd.DataFrame:
    """Every part of every place with its bytes: `place part bytes`."""
    rows = []
    for place in memory_charts.places_of(made):
        for part in PARTS:
            bounds = part_of(place, part)
            if bounds.high:
                low, high = formatting.count(bounds.low), formatting.count(bounds.high)
                rows.append((place.name, PART_TITLES[part], low if bounds.exact else f"{low} to {high}"))
    return pd.DataFrame(rows, columns=["place", "part", "bytes"])


def rule_frame(made: MemoryPlan) -> pd.DataFrame:
    """The rules behind the figures: `rule what it says source`."""
    return pd.DataFrame(
        [(note.rule, note.text, note.source) for note in made.notes], columns=["rule", "what it says", "source"]
    )


def _arrow(frame: pd.DataFrame) -> pa.Table:
    return pa.Table.from_pandas(frame, preserve_index=False)
