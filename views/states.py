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


# Each meaning is two halves: what was observed, and what the person can do.
_LOOKS: dict[str, Look] = {
    EngineState.READY: Look("ready", "good", "The engine answers with its figures; there is nothing to do."),
    EngineState.LOADING: Look(
        "loading", "work", "The engine is loading its model; figures follow by themselves when it is ready."
    ),
    EngineState.BUSY: Look(
        "busy", "work", "The engine did not answer in time; it may be working, and it is asked again by itself."
    ),
    EngineState.SLEEPING: Look(
        "sleeping", "off", "The engine put its model to sleep; a request wakes it, and sampling never does."
    ),
    EngineState.UNAUTHORISED: Look(
        "unauthorised",
        "bad",
        "The engine wants an API key; name the environment variable that holds it as api_key_env of this target.",
    ),
    EngineState.METRICS_DISABLED: Look(
        "metrics disabled", "warn", "The engine answers but its metrics are switched off; start it with its metrics on."
    ),
    EngineState.UNREACHABLE: Look(
        "unreachable", "bad", "Nothing answers at the engine's address; look whether it runs, and into its log."
    ),
    EngineState.STOPPED: Look(
        "stopped", "off", "The engine's process has ended; start it again and it will be found by itself."
    ),
    SourceState.OK: Look("ok", "good", "Sampled as planned; there is nothing to do."),
    SourceState.PARTIAL: Look(
        "partial", "warn", "Some of the expected values could not be read; the detail names them and why."
    ),
    SourceState.DRIVER_MISSING: Look(
        "driver missing", "off", "No driver of this kind is installed; install it if this host has such a device."
    ),
    SourceState.DRIVER_UNUSABLE: Look(
        "driver unusable", "bad", "The driver is there but refuses to answer; the detail says what to check."
    ),
    SourceState.DEVICE_LOST: Look(
        "device lost",
        "bad",
        "A device that was there no longer answers; look into the kernel log, then reset or reboot.",
    ),
    SourceState.ERROR: Look("error", "bad", "The last sampling failed; it is tried again, and the detail says why."),
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
