"""
The engine's own counters before and after a stage, to hold the client's account against it.

Reads only, through the collector's adapters: what may be asked of an engine is their allow-list. An endpoint that is no
known engine, or one whose engine keeps no counters, has none, and the reason is kept.

An engine may count a request's tokens only when it ends (llama.cpp, SGLang, TGI). So counters are read when the engine
is idle: nothing runs and two readings in a row are the same. One that somebody else keeps busy never gets there; its
reading says so (`settled`). vLLM's gauges keep their last values after requests were aborted (vllm#29928), so an engine
none of whose counters moved the whole time is idle as well, whatever its gauges say.
"""

from __future__ import annotations

import time

from collectors.engines.base import Endpoint, EngineReading
from collectors.http import HttpClient, HttpError
from collectors.probe import Probed, probe
from loadtest.counted import EngineCounters
from settings import Settings, Target
from store.model import COUNTERS, EngineState

SETTLE_SECONDS = 5.0  # how long an engine may take to become idle after its last answer
_PAUSE_SECONDS = 0.2


class CounterReader:
    """Reads the counters of one endpoint. Blocks for up to `SETTLE_SECONDS`: call it outside an event loop."""

    def __init__(self, url: str, settings: Settings, model: str | None = None, api_key_env: str | None = None) -> None:
        """`model` chooses one of several behind a llama.cpp router. Raises `ValueError` for a URL that is none."""
        self._target = Target(url=url, api_key_env=api_key_env)
        self._settings = settings
        self._model = model

    def read(self, settle_seconds: float = SETTLE_SECONDS) -> EngineCounters:
        """Who answers and what it has counted, once it is idle, or busy still after `settle_seconds`."""
        try:
            found = probe(self._target, self._settings)
            if isinstance(found, str):
                return EngineCounters(absent=f"No known engine answers: {found}.")
            with HttpClient(self._settings.collector) as http:
                endpoint = self._endpoint_of_model(found, http)
                reading, settled = _settle(found, endpoint, http, settle_seconds)
        except HttpError as failed:
            return EngineCounters(absent=f"The counters could not be read: {failed}.")
        return _counters(found, endpoint, reading, settled, self._model)

    def _endpoint_of_model(self, found: Probed, http: HttpClient) -> Endpoint:
        for endpoint, identity in found.adapter.expand(found.endpoint, found.identity, http):
            if self._model in (None, endpoint.model, identity.model_id):
                return endpoint
        return found.endpoint


def _settle(found: Probed, endpoint: Endpoint, http: HttpClient, settle_seconds: float) -> tuple[EngineReading, bool]:
    """The first reading that is like the one before it while nothing runs, else the last one in time."""
    end = time.monotonic() + settle_seconds
    last = found.adapter.sample(endpoint, http, histograms=False)
    moved = False
    while time.monotonic() < end:
        time.sleep(_PAUSE_SECONDS)
        reading = found.adapter.sample(endpoint, http, histograms=False)
        same = _values(reading) == _values(last)
        if same and _idle(reading):
            return reading, True
        last, moved = reading, moved or not same
    return last, not moved and last.state == EngineState.READY


def _idle(reading: EngineReading) -> bool:
    running = reading.readings.get("requests_running")
    waiting = reading.readings.get("requests_waiting")
    return not (running and running.value) and not (waiting and waiting.value)


def _values(reading: EngineReading) -> dict[str, float]:
    return {name: told.value for name, told in reading.readings.items() if name in COUNTERS and told.value is not None}


def _counters(
    found: Probed, endpoint: Endpoint, reading: EngineReading, settled: bool, model: str | None
) -> EngineCounters:
    identity, values = found.identity, _values(reading)
    running, waiting = reading.readings.get("requests_running"), reading.readings.get("requests_waiting")
    return EngineCounters(
        kind=identity.kind,
        version=identity.version,
        model_id=model if endpoint.model is not None and model is not None else identity.model_id,
        arguments=endpoint.arguments,
        pid=endpoint.pid,
        process_start=endpoint.process_start,
        restart_marker=reading.restart_marker,
        state=str(reading.state),
        values=values,
        sources={name: reading.readings[name].source for name in values},
        running=None if running is None else running.value,
        waiting=None if waiting is None else waiting.value,
        settled=settled,
        absent=None if values else _why_none(reading),
    )


def _why_none(reading: EngineReading) -> str:
    if reading.state != EngineState.READY:
        return f"The engine told no counters, its state was {reading.state}. {reading.detail or ''}".strip()
    absence = reading.absences.get("generation_tokens_total")
    if absence is None:
        return "The engine told no counters."
    return f"{absence.reason} {absence.remedy or ''}".strip()
