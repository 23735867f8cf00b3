"""
One card an engine, as HTML: name, state, the figures of now, and for each figure that is missing the reason.

All text from outside is escaped. Colours are style classes (`views.palette`), so that a card follows the theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from html import escape
from typing import Any

from store.model import QUANTITIES, EngineState, Offer
from views import formatting, memory_bar
from views.data import LiveData
from views.palette import Series, mask, swatch
from views.states import look
from views.tips import tip

Row = Mapping[str, Any]
TITLES = {"vllm": "vLLM", "llama.cpp": "llama.cpp", "sglang": "SGLang", "tgi": "TGI", "ollama": "Ollama"}
QUANTITY_TITLES = {quantity.name: quantity.title for quantity in QUANTITIES}
GONE = frozenset({EngineState.STOPPED, EngineState.UNREACHABLE})
ANSWERING = frozenset({EngineState.READY, EngineState.BUSY, EngineState.METRICS_DISABLED})
LONG_GONE = timedelta(hours=24)
METHODS = {
    "nvml_process": "the driver's own figure for the engine's processes (NVML)",
    "device_delta": "estimated: growth of the device's memory since the engine started",
    "rss": "resident set of the engine's process tree; pages shared with others count in full",
    "unified": "unified memory: the GPU and the host share it, the pool is the host's memory",
    "fdinfo": "the driver's own figure for the engine's processes (/proc/PID/fdinfo)",
}
RATE_SOURCES = {
    "settled": "from the engine's token counter",
    "live": "from the live counter; settled when requests end",
    "reconciled": "live counter, corrected by the total when the requests ended",
}


def title_of(kind: str) -> str:
    """The name of a kind of engine as its makers write it."""
    return TITLES.get(kind, kind)


def is_long_gone(row: Row, now: datetime) -> bool:
    """Whether an engine stopped so long ago that its card goes out of the way."""
    since = row.get("state_since")
    return row.get("state") in GONE and since is not None and now - since > LONG_GONE


def card(row: Row, series: Series, data: LiveData, sparks: Mapping[str, Sequence[float | None]]) -> str:
    """The card of one engine (`row` of the overview); `sparks` are its recent rates by column name."""
    state = row.get("state")
    shown = look(state)
    classes = f"er-card {series.css_class}" + (" er-gone" if state in GONE else "")
    body = "" if state in GONE else _figures(row, data, sparks)
    return (
        f'<section class="{classes}" aria-label="{escape(series.label, quote=True)}">'
        f"<header>{swatch(series)}<h3>{escape(series.label)}</h3>"
        f'<span class="er-badge er-{shown.tone}">{escape(shown.word)}</span></header>'
        f'<p class="er-facts">{_facts(row)}{_startup(row, data)}</p>{_sentence(row, data)}{body}</section>'
    )


def _facts(row: Row) -> str:
    version, model = row.get("version"), row.get("model_id")
    context, slots = row.get("max_context_tokens"), row.get("slots")
    parts = [
        f"{title_of(row['kind'])} {version or ''}".strip(),
        model or ("router" if _is_router(row) else "model not known"),
        row.get("quantization"),
        f"context {formatting.count(context)}" if context else None,
        f"{formatting.count(slots)} slots" if slots else None,
    ]
    return " \N{MIDDLE DOT} ".join(escape(str(part)) for part in parts if part)


def _startup(row: Row, data: LiveData) -> str:
    """How long this life took to be ready; nothing where nobody saw it begin."""
    told = data.startups.get(str(row.get("epoch_id")))
    if told is None or told["ready_seconds"] is None:
        return ""
    why = "from the start of its process to the first sample that found it ready"
    first = told["first_token_seconds"]
    if first is not None:
        why += f"; first token served after {formatting.duration(first)}"
    why += f". Up to {formatting.duration(told['resolution_seconds'])} less: samples are that far apart"
    text = f"ready in {formatting.duration(told['ready_seconds'])}"
    return f" \N{MIDDLE DOT} {tip(text, why)}"


def _sentence(row: Row, data: LiveData) -> str:
    state, detail, since = row.get("state"), row.get("detail"), row.get("state_since")
    now = data.window.end
    if state == EngineState.STOPPED:
        text = f"stopped {formatting.clock(since, now)}, was {row.get('model_id') or 'a model that is not known'}"
        text += f". {detail}" if detail else ""
    elif state == EngineState.READY and not detail:
        return ""
    else:
        text = str(detail or look(state).meaning)
        if since is not None and state != EngineState.READY:
            text += f" (since {formatting.clock(since, now)})"
    return f'<p class="er-sentence">{escape(text)}</p>'


def _figures(row: Row, data: LiveData, sparks: Mapping[str, Sequence[float | None]]) -> str:
    generation_from = RATE_SOURCES.get(str(row.get("generation_source")), "from the engine's token counter")
    rates = "".join(
        f'<div class="er-rate"><span class="er-label">{label}</span>{_rate(row, data, column, quantity, source)}'
        f"{_sparkline(sparks.get(column, ()))}</div>"
        for label, column, quantity, source in (
            ("generation", "generation_tokens_per_second", "generation_tokens_total", generation_from),
            (
                "prompt",
                "prompt_tokens_per_second",
                "prompt_tokens_total",
                "prompt tokens computed, cache hits not in it",
            ),
        )
    )
    cells = [
        ("running", _plain(row, data, "requests_running", formatting.count)),
        ("waiting", _plain(row, data, "requests_waiting", formatting.count)),
        ("TTFT", _latency(row, data, "ttft_seconds")),
        ("ITL", _latency(row, data, "itl_seconds")),
        ("KV in use", _kv(row, data)),
        ("GPU memory", _memory(row, "device_memory_bytes", "device_memory_method", data)),
        ("host memory", _memory(row, "host_memory_bytes", "host_memory_method", data)),
        ("CPU", _cpu(row)),
    ]
    if row.get("state") not in ANSWERING or _is_router(row):  # the sentence says why; what is known all the same stays
        cells = [cell for cell in cells if "<b>" in cell[1]]
        rates = ""
    listed = "".join(f"<dt>{label}</dt><dd>{value}</dd>" for label, value in cells)
    made_of = memory_bar.bars(data.parts.get(str(row["engine_id"]), ()), str(row["kind"]))
    return (f'<div class="er-rates">{rates}</div>' if rates else "") + f"<dl>{listed}</dl>{made_of}"


def absent(row: Row, data: LiveData, quantity: str) -> str:
    """Why a quantity has no value now: what the engine does not offer, has switched off, or has not told yet."""
    offer = data.offers.get((str(row["engine_id"]), quantity))
    engine = title_of(row["kind"])
    if row.get("state") == EngineState.BUSY:
        return tip("no figure", look(row.get("state")).meaning)
    if offer is None:
        return tip("not known yet", "no sample has told whether the engine offers it")
    reason = " ".join(str(offer[key]) for key in ("reason", "remedy") if offer.get(key))
    match offer["offer"]:
        case Offer.NOT_OFFERED:
            return tip(f"not offered by {engine}", reason or "the engine has no such metric")
        case Offer.DISABLED:
            return tip("disabled", reason or "switched off in the engine's configuration")
        case Offer.OFFERED:
            return tip("no figure now", f"read from {offer.get('source') or 'the engine'}, which had no value just now")
        case _:
            return tip("not known yet", reason or "no sample has told whether the engine offers it")


def _rate(row: Row, data: LiveData, column: str, quantity: str, source: str) -> str:
    value = row.get(column)
    if not formatting.known(value):
        return f'<span class="er-none">{absent(row, data, quantity)}</span>'
    exact = f"{formatting.number(value, 5)} tokens/s, mean of the last 10 s; {source}"
    return f'<span class="er-big">{tip(formatting.rate(value), exact)}<small> tok/s</small></span>'


def _plain(row: Row, data: LiveData, column: str, text: Any) -> str:
    value = row.get(column)
    return f"<b>{escape(text(value))}</b>" if formatting.known(value) else absent(row, data, column)


def _latency(row: Row, data: LiveData, quantity: str) -> str:
    found = data.latency.get((str(row["engine_id"]), quantity))
    if found is not None and formatting.known(found.get("p50_seconds")):
        over = f"last minute, {formatting.count(found['count'])} observations"
        shown = (
            f"{name} <b>"
            + tip(
                formatting.duration(found[f"{name}_seconds"]),
                f"{formatting.bucket(found[f'{name}_low_seconds'], found[f'{name}_high_seconds'])}; {over}",
            )
            + "</b>"
            for name in ("p50", "p95")
        )
        return " &ensp;".join(shown)
    offer = data.offers.get((str(row["engine_id"]), quantity))
    if offer is not None and offer["offer"] == Offer.OFFERED:
        return tip("none in the last minute", f"{QUANTITY_TITLES[quantity]} is offered; no request was observed")
    mean = row.get("mean_itl_seconds")
    if quantity == "itl_seconds" and formatting.known(mean):
        why = "mean of the last minute from the engine's own totals; percentiles are not offered by "
        return f"mean <b>{tip(formatting.duration(mean), why + title_of(row['kind']))}</b>"
    seconds = data.offers.get((str(row["engine_id"]), "generation_seconds_total"))
    if quantity == "itl_seconds" and seconds is not None and seconds["offer"] == Offer.OFFERED:
        engine = title_of(row["kind"])
        return tip("no token in the last minute", f"{engine} offers a mean only, and only while it generates")
    return absent(row, data, quantity)


def _kv(row: Row, data: LiveData) -> str:
    used, capacity = row.get("kv_used_fraction"), row.get("kv_capacity_tokens")
    if used is None or not formatting.known(used):
        return absent(row, data, "kv_used_fraction")
    source = str((data.offers.get((str(row["engine_id"]), "kv_used_fraction")) or {}).get("source") or "")
    estimated = " (estimated)" if "estimate" in source.lower() else ""
    of = f" of {formatting.tokens(capacity)} tokens" if formatting.known(capacity) else " of a capacity not known"
    width = min(100.0, max(0.0, used * 100))
    bar = f'<span class="er-bar"><i style="width:{width:.1f}%"></i></span>'
    text = tip(
        f"{formatting.fraction(used)}{of}", f"read from {source}" if source else "share held by running requests"
    )
    return f"{bar}<b>{text}</b>{estimated}"


def _memory(row: Row, column: str, method_column: str, data: LiveData) -> str:
    value, method = row.get(column), row.get(method_column)
    if value is None or not formatting.known(value):
        if column == "device_memory_bytes" and not data.devices:
            return tip("no GPU seen", no_gpu_reason(data))
        if method is not None:
            return tip("not known", no_gpu_reason(data) if "device" in column else "the platform keeps it secret")
        if "device" in column and all(device.get("memory_total_bytes") is None for device in data.devices):
            return tip("shared with the host", "unified memory: the GPU has none of its own, see the host memory")
        listed = any(other.get(method_column) in ("nvml_process", "fdinfo") for other in data.engines)
        if "device" in column and listed and row.get("process_count"):
            return tip("none", "the driver lists the processes that hold memory, and none of this engine is among them")
        return tip("not known", "no process of this engine was seen there; see Sources")
    why = "; ".join(METHODS.get(part, f"method {part}") for part in str(method).split("+"))
    unknown = memory_bar.why_not(data.parts.get(str(row["engine_id"]), ()))
    why += f". What it is made of is not known: {unknown}" if unknown else ""
    return f"<b>{tip(formatting.size(value), f'{formatting.count(value)} bytes; {why}')}</b>"


def _is_router(row: Row) -> bool:
    """Whether the row is a router: its models are engines of their own, with cards of their own."""
    return '"role": "router"' in str(row.get("facts") or "")


def _cpu(row: Row) -> str:
    cores, processes = row.get("cpu_cores"), row.get("process_count")
    if not formatting.known(cores):
        return tip("not known", "the engine's processes can't be seen from here")
    over = f"CPU seconds per second over {formatting.count(processes)} processes"
    return f"<b>{tip(f'{formatting.cores(cores)} cores', over)}</b>"


def no_gpu_reason(data: LiveData) -> str:
    """Why no GPU is shown, in the words of the device sources."""
    told = [str(row["detail"]) for row in data.sources if row["kind"] == "device" and row.get("detail")]
    return " ".join(told) or "No device source has reported yet."


def _sparkline(values: Sequence[float | None]) -> str:
    """A small line of recent values, as the mask of a coloured box; gaps stay gaps. Zero is the bottom."""
    known = [value for value in values if formatting.known(value)]
    if len(known) < 2:
        return '<span class="er-spark"></span>'
    top = max(*(value for value in known if value is not None), 1e-9)
    path, pen = [], "M"
    for place, value in enumerate(values):
        if value is None or not formatting.known(value):
            pen = "M"
            continue
        path.append(f"{pen}{place * 100 / max(1, len(values) - 1):.1f} {23 - value / top * 21:.1f}")
        pen = "L"
    line = f'<path stroke-width="1.5" vector-effect="non-scaling-stroke" d="{"".join(path)}"/>'
    return f'<span class="er-spark" style="{mask(line, 100, 24)}" aria-hidden="true"></span>'
