"""What the adapters share: how a missing, refusing or strange answer becomes a state, and JSON read with care."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from collectors.engines.base import Absence, Endpoint, EngineReading, Offered, Response
from collectors.http_errors import ConnectFailedError, HttpError, TimedOutError
from store.model import QUANTITIES, EngineState, Offer

UNAUTHORISED_REMEDY = (
    "Name the environment variable that holds the engine's API key as api_key_env of its [[target]] "
    "in engine-room.toml."
)
METRICS_TEXT = "text/plain;version=0.0.4"


def all_absent(offer: Offer, reason: str, remedy: str | None = None) -> dict[str, Absence]:
    """Every canonical quantity missing for one reason."""
    return {quantity.name: Absence(offer, reason, remedy) for quantity in QUANTITIES}


def not_found(*names: str, condition: str | None = None) -> Absence:
    """A quantity that this engine is known to tell (`condition`: when), under none of its known `names` here."""
    which = names[0] if len(names) == 1 else f"none of {', '.join(names)}"
    verb = "was expected and is not" if len(names) == 1 else "is"
    when = f" It is told {condition}." if condition else ""
    return Absence(Offer.UNKNOWN, f"{which} {verb} among what this version tells; it may name it otherwise.{when}")


def declared_absences(offers: Mapping[str, Offered | Absence]) -> dict[str, Absence]:
    """What an engine never tells, by its own declaration."""
    return {quantity: offer for quantity, offer in offers.items() if isinstance(offer, Absence)}


def nothing_read(state: EngineState, detail: str, remedy: str | None = None) -> EngineReading:
    """A sample that brought no values: `detail` says what was observed."""
    offer = Offer.DISABLED if state == EngineState.METRICS_DISABLED else Offer.UNKNOWN
    text = f"{detail} {remedy}" if remedy else detail
    return EngineReading(state=state, detail=text, absences=all_absent(offer, _REASONS[state], remedy))


_REASONS = {
    EngineState.READY: "The engine has no metrics of its own.",
    EngineState.LOADING: "The engine is still loading its model.",
    EngineState.BUSY: "The engine did not answer in time.",
    EngineState.SLEEPING: "The model sleeps, and asking would wake it.",
    EngineState.UNAUTHORISED: "The engine wants an API key.",
    EngineState.METRICS_DISABLED: "The engine runs without its metrics.",
    EngineState.UNREACHABLE: "The engine gives no usable answer.",
    EngineState.STOPPED: "The engine has ended.",
}


def after_error(endpoint: Endpoint, error: HttpError, title: str) -> EngineReading:
    """The sample when a GET failed: a refusal by a live process is loading, a timeout is busy, never "down"."""
    state, detail = state_of_error(endpoint, error, title)
    return nothing_read(state, detail)


def state_of_error(endpoint: Endpoint, error: HttpError, title: str) -> tuple[EngineState, str]:
    """State and what was observed, for a person."""
    if isinstance(error, TimedOutError):
        return EngineState.BUSY, f"{title} is connected but gave {error}."
    if isinstance(error, ConnectFailedError) and endpoint.pid is not None:
        if error.refused:
            return (
                EngineState.LOADING,
                f"{title} runs as process {endpoint.pid} but does not accept connections yet.",
            )
        return EngineState.BUSY, f"{title} runs as process {endpoint.pid}, but there is {error}."
    return EngineState.UNREACHABLE, f"{str(error)[:1].upper()}{str(error)[1:]}."


def after_status(response: Response, path: str, title: str) -> EngineReading:
    """The sample when `path` answered with an error status."""
    status = response.status
    if status in (401, 403):
        return nothing_read(
            EngineState.UNAUTHORISED, f"GET {path} answered {status}: an API key is needed.", UNAUTHORISED_REMEDY
        )
    if status == 503:
        message = error_message(response) or "service unavailable"
        return nothing_read(EngineState.LOADING, f"{title} answered 503 to GET {path}: {message[:100]}.")
    what = describe(response)
    return nothing_read(EngineState.UNREACHABLE, f"GET {path} answered {status} with {what} instead of metrics.")


def describe(response: Response) -> str:
    """What kind of body came, without quoting it."""
    kind = response.content_type.partition(";")[0].strip() or "an answer without content type"
    return f"{kind} ({len(response.body):,} bytes)"


def json_object(response: Response) -> dict[str, Any] | None:
    """The body as a JSON object, or None when it is anything else."""
    document = json_document(response)
    return document if isinstance(document, dict) else None


def json_document(response: Response) -> Any:
    """The body as JSON, or None when it is none."""
    try:
        return json.loads(response.body)
    except (ValueError, RecursionError):
        return None


def error_message(response: Response) -> str | None:
    """The message of an OpenAI-style error body."""
    error = (json_object(response) or {}).get("error")
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) else None


def text_of(value: Any, limit: int = 500) -> str | None:
    """`value` when it is a non-empty string, cut to `limit` characters."""
    return value[:limit] if isinstance(value, str) and value else None


def count_of(value: Any) -> int | None:
    """`value` when it is a positive integer."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
