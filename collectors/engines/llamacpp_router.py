"""
llama.cpp's router: one server at the front, a child `llama-server` for every model that is loaded.

A GET that names a model loads it unless it says `autoload=false`, so every query here does, and a model is
named only when `/models` says that it is loaded (tools/server/server-models.cpp). That query does not keep a
sleeping child asleep: what may be asked of one is decided as for any llama-server that sleeps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from collectors.engines.answers import all_absent, json_object, nothing_read, text_of
from collectors.engines.base import Child, Endpoint, EngineReading, Http, Response
from collectors.engines.commandline import options_of
from collectors.redaction import redact_arguments
from store.model import EngineState, Offer

RUNNING = ("loaded", "sleeping")  # states in which the model has a child that answers
_COMPUTES_NOTHING = "A router computes nothing itself; each model that it has loaded is an engine of its own."


@dataclass(frozen=True, slots=True)
class RouterModel:
    """One model that the router knows."""

    model_id: str
    status: str  # unloaded, loading, loaded, sleeping, downloading; "failed" when the last load failed
    arguments: tuple[str, ...]  # redacted command line of its child
    card: dict[str, Any]

    @property
    def port(self) -> int | None:
        """The port of its child on loopback; None while it is not loaded."""
        return options_of(self.arguments).integer("--port") or None


def query(endpoint: Endpoint) -> str:
    """What is added to a path so that it reaches the endpoint's model; empty when it has none."""
    return "" if endpoint.model is None else f"?model={quote(endpoint.model, safe='')}&autoload=false"


def list_models(endpoint: Endpoint, http: Http) -> list[RouterModel] | Response:
    """What `/models` lists; the answer itself when it lists nothing. Raises `HttpError`."""
    answer = http.get(endpoint, "/models")
    data = (json_object(answer) or {}).get("data") if answer.status == 200 else None
    if not isinstance(data, list):
        return answer
    return [model for card in data if isinstance(card, dict) and (model := _model(card)) is not None]


def status_of(models: Sequence[RouterModel], model_id: str | None) -> str | None:
    """The status of one model; None when the router does not list it."""
    return next((model.status for model in models if model.model_id == model_id), None)


def statuses(models: Sequence[RouterModel]) -> dict[str, str]:
    """Model -> status, as facts of the router."""
    return {model.model_id: model.status for model in models[:200]}


def describe_models(models: Sequence[RouterModel]) -> str:
    """How many models are loaded, and those that are in any other state worth telling."""
    running = sum(model.status in RUNNING for model in models)
    text = f"A llama.cpp router with {running} of {len(models)} models loaded; each is an engine of its own."
    for status in ("loading", "downloading", "failed"):
        names = [model.model_id for model in models if model.status == status]
        if names:
            text += f" {status.capitalize()}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}."
    return text


def router_reading(listed: list[RouterModel] | Response) -> EngineReading:
    """The sample of the router itself."""
    detail = describe_models(listed) if isinstance(listed, list) else "A llama.cpp router whose models can't be listed."
    absences = all_absent(Offer.NOT_OFFERED, _COMPUTES_NOTHING)
    return EngineReading(EngineState.READY, detail=detail, absences=absences)


def not_loaded(status: str | None) -> EngineReading:
    """The sample of a model that its router has not loaded (any more)."""
    if status in ("loading", "downloading"):
        return nothing_read(EngineState.LOADING, f"The router says that the model is {status}.")
    if status == "failed":
        return nothing_read(EngineState.STOPPED, "The router could not load the model. Look at the router's log.")
    if status is None:
        return nothing_read(EngineState.STOPPED, "The router does not list the model any more.")
    return nothing_read(EngineState.STOPPED, "The router has unloaded the model; the next request for it loads it.")


def endpoint_of(router: Endpoint, model: RouterModel) -> Endpoint:
    """The endpoint of one loaded model, with its child as the process where that can be seen."""
    child = next((child for child in router.children if _runs(child, model)), None)
    return replace(
        router,
        found_by=f"loaded by the llama.cpp router at {router.url}",
        name=None,
        pid=child.pid if child else None,
        process_start=child.process_start if child else None,
        arguments=child.arguments if child else model.arguments,
        model=model.model_id,
        children=(),
    )


def _runs(child: Child, model: RouterModel) -> bool:
    """Whether the child runs this model: on its port where one is told, else under its name."""
    options = options_of(child.arguments)
    if model.port is not None:
        return options.integer("--port") == model.port
    return options.text("--alias", "-a") == model.model_id


def _model(card: dict[str, Any]) -> RouterModel | None:
    model_id, status = text_of(card.get("id")), card.get("status")
    if model_id is None or not isinstance(status, dict):
        return None
    value = text_of(status.get("value"), 100) or "unknown"
    arguments = status.get("args")
    words = [word for word in arguments if isinstance(word, str)] if isinstance(arguments, list) else []
    return RouterModel(
        model_id=model_id,
        status="failed" if status.get("failed") is True and value == "unloaded" else value,
        arguments=redact_arguments(words),
        card=card,
    )
