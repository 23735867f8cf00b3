"""What the states of engines and sources are called on the pages, and how they look."""

from __future__ import annotations

from dataclasses import dataclass

from store.model import EngineState, SourceState


@dataclass(frozen=True, slots=True)
class Look:
    """A state as people see it: a word, a tone (`good`, `work`, `warn`, `bad`, `off`) and what it means."""

    word: str
    tone: str
    meaning: str


_LOOKS: dict[str, Look] = {
    EngineState.READY: Look("ready", "good", "The engine answers."),
    EngineState.LOADING: Look("loading", "work", "The engine is loading its model; figures follow when it is ready."),
    EngineState.BUSY: Look("busy", "work", "The engine did not answer in time. It may be working; sampling goes on."),
    EngineState.SLEEPING: Look(
        "sleeping", "off", "The engine put its model to sleep; a request wakes it, sampling doesn't."
    ),
    EngineState.UNAUTHORISED: Look(
        "unauthorised", "bad", "The engine wants an API key. Configure the target with api_key_env."
    ),
    EngineState.METRICS_DISABLED: Look(
        "metrics disabled", "warn", "The engine answers but its metrics are switched off."
    ),
    EngineState.UNREACHABLE: Look("unreachable", "bad", "Nothing answers at the engine's address."),
    EngineState.STOPPED: Look("stopped", "off", "The engine's process has ended."),
    SourceState.OK: Look("ok", "good", "Sampled as planned."),
    SourceState.PARTIAL: Look("partial", "warn", "Some of the expected values are missing."),
    SourceState.DRIVER_MISSING: Look("driver missing", "off", "No driver of this kind is installed."),
    SourceState.DRIVER_UNUSABLE: Look("driver unusable", "bad", "The driver is there but refuses to answer."),
    SourceState.DEVICE_LOST: Look("device lost", "bad", "A device that was there no longer answers."),
    SourceState.ERROR: Look("error", "bad", "The last sampling failed."),
}
SYMBOLS = {"good": "\N{BLACK CIRCLE}", "work": "\N{CIRCLE WITH LEFT HALF BLACK}",
           "warn": "\N{BLACK UP-POINTING TRIANGLE}", "bad": "\N{BLACK DIAMOND}", "off": "\N{WHITE CIRCLE}"}  # fmt: skip


def look(state: str | None) -> Look:
    """The look of a state; an unknown one keeps its own name."""
    if state is None:
        return Look("not sampled yet", "off", "No sample has arrived yet.")
    return _LOOKS.get(state, Look(state.replace("_", " "), "warn", ""))


def with_symbol(state: str | None) -> str:
    """Symbol and word, for tables: a state never shows by colour alone."""
    shown = look(state)
    return f"{SYMBOLS[shown.tone]} {shown.word}"
