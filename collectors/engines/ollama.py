"""
Ollama: recognising it and sampling it.

`/api/version` and `/api/ps` change nothing and are cheap. Ollama has no metrics: its throughput stands only in
its answers to those who ask for tokens. Since 0.30 every GGUF model runs in a `llama-server` child on a free
port of loopback; where such a child can be seen, what it tells is read from it and counts for Ollama. A child
is read as any llama-server is, so that nothing wakes or loads a model.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePath
from typing import Any, ClassVar

from collectors.engines.answers import (
    after_error,
    after_status,
    all_absent,
    count_of,
    declared_absences,
    json_object,
    nothing_read,
    text_of,
)
from collectors.engines.base import (
    Absence,
    Child,
    Endpoint,
    EngineReading,
    Http,
    Identity,
    Offered,
    Reading,
    Response,
    StandsAlone,
)
from collectors.engines.llamacpp import LlamaCpp
from collectors.http_errors import HttpError
from store.model import COUNTERS, QUANTITIES, EngineState, Offer

_CHILD = LlamaCpp()
_SWITCH = "LLAMA_ARG_ENDPOINT_METRICS=1"
_SINCE = "from 0.30 on, where its child can be seen"
_CONDITION = f"{_SINCE}, with {_SWITCH}"
_SOURCE = "llama-server child"
_REMEDY = (
    f"Start `ollama serve` with {_SWITCH} in its environment, which its children inherit "
    "(derived from Ollama's source; Ollama does not document it)."
)
_NO_CHILD = Absence(
    Offer.UNKNOWN,
    "Ollama has no metrics of its own, and no llama-server child of it can be reached from here.",
    "Run the collector where Ollama runs, as a user who can see its processes. Before 0.30 it has no such children.",
)
_OTHER_CHILDREN = Absence(
    Offer.UNKNOWN, "The llama-server children that can be seen are not (yet) those of the models that are loaded."
)
_NOT_LOADED = Absence(Offer.UNKNOWN, "No model is loaded.", "The next request loads one.")
_RESPONSES = "Ollama tells times only in its answers to those who ask for tokens; a load test measures them."
# Quantities that may be added up over the models that are loaded.
_ADDED = (*COUNTERS, "requests_running", "requests_waiting", "kv_capacity_tokens")


class Ollama(StandsAlone):
    """The adapter of `ollama serve`."""

    kind: ClassVar[str] = "ollama"
    title: ClassVar[str] = "Ollama"
    usual_ports: ClassVar[tuple[int, ...]] = (11434,)
    start_hint: ClassVar[str] = f"{_SWITCH} ollama serve"
    offers: ClassVar[Mapping[str, Offered | Absence]] = {
        quantity: Absence(Offer.NOT_OFFERED, _RESPONSES if "histogram" in offer.reason else offer.reason)
        if isinstance(offer, Absence)
        else Offered(
            f"{_SOURCE}: {offer.source}", _SINCE if "/slots" in f"{offer.source} {offer.condition}" else _CONDITION
        )
        for quantity, offer in LlamaCpp.offers.items()
    }

    def looks_like(self, arguments: tuple[str, ...], process_name: str) -> bool:
        """`ollama serve` or one of its runners; not the client (`ollama run`)."""
        name = PurePath(arguments[0]).name if arguments else process_name
        return name in ("ollama", "ollama.exe") and arguments[1:2] in (("serve",), ("start",), ("runner",))

    def identify(self, endpoint: Endpoint, http: Http) -> Identity | None:
        """
        Recognise Ollama by `/api/version` and `/api/ps` together.

        Raises `HttpError` when the endpoint doesn't answer.
        """
        answer = http.get(endpoint, "/api/version")
        version = text_of((json_object(answer) or {}).get("version"), 100) if answer.status == 200 else None
        if version is None:
            return None
        models = _models(http.get(endpoint, "/api/ps"))
        if models is None:
            return None
        return Identity(
            kind=self.kind,
            state=EngineState.READY,
            detail=_detail(models),
            version=version,
            model_id=", ".join(sorted(filter(None, (text_of(model.get("name")) for model in models)))) or None,
            quantization=_common(_details(model).get("quantization_level") for model in models),
            max_context_tokens=count_of(models[0].get("context_length")) if len(models) == 1 else None,
            facts={"models": [_facts(model) for model in sorted(models, key=lambda m: str(m.get("name")))]},
            models_come_and_go=True,
        )

    def sample(self, endpoint: Endpoint, http: Http, *, histograms: bool) -> EngineReading:
        """Read `/api/ps`, and the children that can be seen."""
        try:
            answer = http.get(endpoint, "/api/ps")
        except HttpError as error:
            return after_error(endpoint, error, self.title)
        if answer.status != 200:
            return after_status(answer, "/api/ps", self.title)
        models = _models(answer)
        if models is None:
            return nothing_read(EngineState.UNREACHABLE, "GET /api/ps is not answered by Ollama.")
        if not models:
            return EngineReading(
                state=EngineState.READY, detail=_detail(models), absences=_absences(all_for(_NOT_LOADED))
            )
        children = [child for child in endpoint.children if child.url is not None]
        told = [_CHILD.sample(_at(endpoint, child), http, histograms=histograms) for child in children]
        if len(told) == len(models):
            reading = _together(told)
        else:
            reading = EngineReading(EngineState.READY, absences=all_for(_OTHER_CHILDREN if told else _NO_CHILD))
        return EngineReading(
            state=EngineState.READY,
            detail=_detail(models),
            readings=reading.readings,
            absences=_absences(reading.absences),
            restart_marker=" ".join(sorted(f"{c.pid}@{c.process_start:.2f}" for c in children)) or None,
            marker_change="counts anew: a model was loaded or unloaded",
            memory=_memory(models),
        )


def all_for(absence: Absence) -> dict[str, Absence]:
    """Every canonical quantity missing for this reason."""
    return all_absent(absence.offer, absence.reason, absence.remedy)


def _absences(absences: Mapping[str, Absence]) -> dict[str, Absence]:
    """The absences in Ollama's words: what is never told, and how to switch the children's metrics on."""
    never = declared_absences(Ollama.offers)
    named = {
        quantity: replace(absence, reason=f"Its llama-server child: {absence.reason}", remedy=_REMEDY)
        if absence.offer is Offer.DISABLED
        else absence
        for quantity, absence in absences.items()
    }
    return named | {quantity: absence for quantity, absence in never.items() if quantity in absences}


def _at(endpoint: Endpoint, child: Child) -> Endpoint:
    """The child's own address. The environment is the parent's: a child inherits it. Keys are not sent on."""
    return Endpoint(
        url=child.url or "",
        found_by=endpoint.found_by,
        pid=child.pid,
        process_start=child.process_start,
        arguments=child.arguments,
        process_environment=endpoint.process_environment,
    )


def _together(told: Sequence[EngineReading]) -> EngineReading:
    """
    What all children tell: counts and capacities added, the used share weighted by capacity.

    A quantity that one of them does not tell is not told: the sum over the others would be a wrong number.
    """
    readings: dict[str, Reading] = {}
    absences: dict[str, Absence] = {}
    over = f" (sum over {len(told)} models)" if len(told) > 1 else ""
    for quantity in (quantity.name for quantity in QUANTITIES):
        parts = [reading.readings[quantity] for reading in told if quantity in reading.readings]
        missing = next((r.absences[quantity] for r in told if quantity in r.absences), None)
        if missing is not None or len(parts) < len(told):
            absences[quantity] = missing or Absence(Offer.UNKNOWN, "A child does not tell it.")
        elif quantity in _ADDED:
            values = [part.value for part in parts]
            total = None if None in values else sum(value for value in values if value is not None)
            readings[quantity] = Reading(total, f"{_SOURCE}: {parts[0].source}{over}")
        else:
            readings[quantity] = Reading(_mean_used(told), f"{_SOURCE}: {parts[0].source}{over}")
    return EngineReading(EngineState.READY, readings=readings, absences=absences)


def _mean_used(told: Sequence[EngineReading]) -> float | None:
    used = [reading.readings["kv_used_fraction"].value for reading in told]
    if len(told) == 1:
        return used[0]
    held = [r.readings["kv_capacity_tokens"].value if "kv_capacity_tokens" in r.readings else None for r in told]
    pairs = [(share, pool) for share, pool in zip(used, held, strict=True) if share is not None and pool]
    return sum(share * pool for share, pool in pairs) / sum(p for _, p in pairs) if len(pairs) == len(told) else None


def _models(answer: Response) -> list[dict[str, Any]] | None:
    """The loaded models of an `/api/ps` answer; None when it is none."""
    document = json_object(answer) if answer.status == 200 else None
    if document is None or "models" not in document:
        return None
    models = document["models"] or []
    return [model for model in models if isinstance(model, dict)] if isinstance(models, list) else None


def _details(model: Mapping[str, Any]) -> Mapping[str, Any]:
    details = model.get("details")
    return details if isinstance(details, dict) else {}


def _facts(model: Mapping[str, Any]) -> dict[str, Any]:
    """Allow-listed facts of one loaded model; sizes in bytes as Ollama tells them."""
    facts = {
        "name": text_of(model.get("name")),
        "digest": text_of(model.get("digest"), 100),
        "family": text_of(_details(model).get("family"), 100),
        "parameters": text_of(_details(model).get("parameter_size"), 100),
        "quantization": text_of(_details(model).get("quantization_level"), 100),
        "context_tokens": count_of(model.get("context_length")),
        "size_bytes": count_of(model.get("size")),
        "size_vram_bytes": _on_gpu(model),
    }
    return {name: value for name, value in facts.items() if value is not None}


def _on_gpu(model: Mapping[str, Any]) -> int | None:
    """Bytes on GPUs; 0 where the field is left out, as versions before July 2024 did with a 0 (issue 4840)."""
    value = model.get("size_vram", 0)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _memory(models: Sequence[Mapping[str, Any]]) -> dict[str, Reading]:
    """What Ollama says its models hold, in bytes: estimated before 0.30, from the child's log since."""
    sizes, on_gpu = [count_of(model.get("size")) for model in models], [_on_gpu(model) for model in models]
    found = {}
    if None not in sizes:
        found["models"] = Reading(float(sum(size or 0 for size in sizes)), "/api/ps size")
    if None not in on_gpu:
        found["models_on_gpu"] = Reading(float(sum(size or 0 for size in on_gpu)), "/api/ps size_vram")
    return found


def _common(values: Any) -> str | None:
    """The value that all have in common, or all of them."""
    found = sorted({text for value in values if (text := text_of(value, 100))})
    return ", ".join(found) or None


def _detail(models: Sequence[Mapping[str, Any]]) -> str | None:
    """Until when each model stays loaded."""
    if not models:
        return "No model is loaded; the next request loads one."
    stays = []
    for model in models:
        name, until = text_of(model.get("name"), 100) or "a model", _time(model.get("expires_at"))
        if until is not None:
            never = until.year > 2200 or until.year < 2000  # keep-alive -1 is a time 292 years ahead
            stays.append(f"{name} stays loaded" if never else f"{name} stays loaded until {until:%H:%M:%S} UTC")
    return "; ".join(stays) + "." if stays else None


def _time(value: Any) -> datetime | None:
    """A time as Go writes it, which is with up to nine digits of a second."""
    if not isinstance(value, str):
        return None
    try:
        parsed = datetime.fromisoformat(re.sub(r"\.(\d{6})\d*", r".\1", value))
    except ValueError:
        return None
    return parsed.astimezone(UTC) if parsed.tzinfo else None
