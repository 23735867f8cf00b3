"""One engine, sampled on a schedule: from the adapter's reading to rows for the store."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import fields, replace
from datetime import datetime

import psutil

from collectors.discovery import CONFIGURED
from collectors.engines.base import Absence, Endpoint, EngineReading, Histogram, Http, Reading
from collectors.registry import Attached, Registry, epoch_event
from collectors.scheduler import Outcome
from collectors.stillness import Stillness
from settings import CollectorSettings
from store.model import (
    COUNTERS,
    GAUGES,
    EngineSample,
    EngineState,
    Epoch,
    LatencyBucket,
    Offer,
    QuantityOffer,
    Row,
)

HISTOGRAM_HEARTBEAT_SECONDS = 60.0  # an unchanged histogram is written again after this long
BUSY_PAUSE_SECONDS = 5.0  # an engine that did not answer in time is left alone for this long
_COLUMNS = frozenset(field.name for field in fields(EngineSample))


class EngineSource:
    """Samples one engine: `engine_sample`, `latency_bucket`, `quantity_offer`, epochs and events."""

    kind = "engine"

    def __init__(self, attached: Attached, registry: Registry, http: Http, settings: CollectorSettings) -> None:
        self._attached = attached
        self._registry = registry
        self._http = http
        self._settings = settings
        self._lock = threading.Lock()
        self._rows: list[Row] = []  # rows of a new attachment, written with the next sample
        self.listed = True  # discovery still lists its address
        self.ended = False  # it has stopped; a source that ended is not used again
        self.told_memory: Mapping[str, Reading] = {}  # what the newest reading said of the engine's own memory
        self._state: str | None = None
        self._stillness = Stillness()
        self._histograms_due = 0.0
        self._ready_epoch: str | None = None  # the epoch that has answered well at least once
        self._counts: dict[str, tuple[float, float]] = {}  # quantity -> (count written, when)
        self._offers: dict[str, tuple[str, str | None, str | None, str | None]] = {}
        self._offers_epoch: str | None = None

    @property
    def source_id(self) -> str:
        """`engine:vllm-8000`."""
        return f"engine:{self._attached.engine.engine_id}"

    @property
    def interval_seconds(self) -> float:
        """Seconds between samples."""
        return self._settings.engine_interval_seconds

    @property
    def found_by(self) -> str | None:
        """How discovery found it."""
        return self._attached.engine.found_by

    @property
    def attached(self) -> Attached:
        """The engine and the epoch that are sampled now."""
        return self._attached

    def reattach(self, attached: Attached, rows: list[Row]) -> None:
        """Discovery has looked again: another process, or the same one with more facts."""
        with self._lock:
            self._attached = attached
            self._rows += rows

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        """Read the engine once and say what to store."""
        with self._lock:
            attached, rows = self._attached, self._rows
            self._rows = []
        alive = _alive(attached.endpoint)
        endpoint = attached.endpoint if alive else replace(attached.endpoint, pid=None)
        due = monotonic_seconds >= self._histograms_due
        reading = attached.adapter.sample(endpoint, self._http, histograms=due)
        reading = self._interpret(reading, attached, alive)
        if counts_live(reading) and (remark := self._stillness.remark(reading, monotonic_seconds)):
            reading = replace(reading, detail=" ".join(text for text in (reading.detail, remark) if text))
        observed, more = self._registry.observe(attached, reading, ts)
        if observed is not attached:
            with self._lock:
                if self._attached is attached:
                    self._attached = observed
        if due and reading.histograms:
            self._histograms_due = monotonic_seconds + self._settings.histogram_interval_seconds
        if reading.state != EngineState.BUSY:
            self.told_memory = reading.memory
        if reading.state == EngineState.READY:
            self._ready_epoch = observed.epoch.epoch_id
        rows = [
            *rows,
            *more,
            *self._state_events(reading, observed, ts),
            engine_sample(reading, observed.epoch, ts, monotonic_seconds),
            *self._bucket_rows(reading, observed.epoch, ts, monotonic_seconds),
            *self._offer_rows(reading, observed.epoch, ts),
        ]
        self.ended = reading.state == EngineState.STOPPED
        return Outcome(
            rows=rows,
            state=reading.state,
            detail=reading.detail,
            next_in_seconds=max(BUSY_PAUSE_SECONDS, self.interval_seconds)
            if reading.state == EngineState.BUSY
            else None,
            finished=self.ended,
        )

    def _interpret(self, reading: EngineReading, attached: Attached, alive: bool | None) -> EngineReading:
        """Turn "does not answer" into what it means, knowing the process and its past."""
        down = reading.state in (EngineState.UNREACHABLE, EngineState.LOADING) and not reading.readings
        if down and alive is False:
            text = f"Process {attached.endpoint.pid} has ended. Start the engine again and it will be found."
            return EngineReading(state=EngineState.STOPPED, detail=text)
        if down and not self.listed and attached.endpoint.found_by != CONFIGURED:
            text = f"Nothing listens at {attached.endpoint.url} any more. Start the engine again and it will be found."
            return EngineReading(state=EngineState.STOPPED, detail=text)
        if reading.state == EngineState.LOADING and self._ready_epoch == attached.epoch.epoch_id:
            text = (
                f"Process {attached.endpoint.pid} lives but refuses connections after having served before: "
                "it is shutting down or its server has failed. Look at its log."
            )
            return replace(reading, state=EngineState.UNREACHABLE, detail=text)
        return reading

    def _state_events(self, reading: EngineReading, attached: Attached, ts: datetime) -> list[Row]:
        before, self._state = self._state, str(reading.state)
        if before is None or before == self._state:
            return []
        label = attached.engine.label
        texts = {
            EngineState.STOPPED: ("stopped", f"{label} stopped: {reading.detail}"),
            EngineState.UNREACHABLE: ("unreachable", f"{label} does not answer: {reading.detail}"),
            EngineState.READY: ("ready", f"{label} is ready (was {before.replace('_', ' ')})"),
            EngineState.SLEEPING: ("sleeping", f"{label} sleeps: {reading.detail}"),
        }
        kind, text = texts.get(reading.state, (None, ""))
        if kind is None or (kind == "ready" and before == EngineState.BUSY):
            return []
        return [epoch_event(attached.epoch, ts, kind, text)]

    def _bucket_rows(self, reading: EngineReading, epoch: Epoch, ts: datetime, monotonic_seconds: float) -> list[Row]:
        rows: list[Row] = []
        for quantity, histogram in reading.histograms.items():
            count = histogram.buckets[-1][1] if histogram.buckets else 0.0
            key = f"{epoch.epoch_id} {quantity}"
            written = self._counts.get(key)
            fresh = written is not None and monotonic_seconds - written[1] < HISTOGRAM_HEARTBEAT_SECONDS
            if written is not None and written[0] == count and fresh:
                continue
            self._counts[key] = (count, monotonic_seconds)
            rows += bucket_rows(quantity, histogram, epoch, ts, monotonic_seconds)
        return rows

    def _offer_rows(self, reading: EngineReading, epoch: Epoch, ts: datetime) -> list[Row]:
        if self._offers_epoch != epoch.epoch_id:
            self._offers, self._offers_epoch = {}, epoch.epoch_id
        rows: list[Row] = []
        for quantity, offer in offers_of(reading).items():
            if self._offers.get(quantity) == offer:
                continue
            self._offers[quantity] = offer
            rows.append(QuantityOffer(ts, epoch.host, epoch.engine_id, epoch.epoch_id, quantity, *offer))
        return rows


def counts_live(reading: EngineReading) -> bool:
    """Whether the engine's token counters move while requests run, and not only when they end."""
    generated = reading.readings.get("generation_tokens_total")
    return "generation_live_tokens_total" in reading.readings or (
        generated is not None and generated.source.startswith("vllm:")
    )


def _alive(endpoint: Endpoint) -> bool | None:
    """Whether the process that discovery saw still lives; None when none was seen."""
    if endpoint.pid is None:
        return None
    try:
        started = psutil.Process(endpoint.pid).create_time()
    except psutil.Error:
        return False
    return endpoint.process_start is None or abs(started - endpoint.process_start) < 1.0


def engine_sample(reading: EngineReading, epoch: Epoch, ts: datetime, monotonic_seconds: float) -> EngineSample:
    """The row of one reading: raw counters and gauges, None where the engine gave nothing."""
    values = {
        name: reading.readings[name].value
        for name in (*COUNTERS, *GAUGES)
        if name in reading.readings and name in _COLUMNS
    }
    return EngineSample(
        ts=ts,
        monotonic_seconds=round(monotonic_seconds, 6),
        host=epoch.host,
        engine_id=epoch.engine_id,
        epoch_id=epoch.epoch_id,
        state=str(reading.state),
        detail=reading.detail,
        **values,
    )


def bucket_rows(
    quantity: str, histogram: Histogram, epoch: Epoch, ts: datetime, monotonic_seconds: float
) -> list[LatencyBucket]:
    """One row a bucket."""
    return [
        LatencyBucket(
            ts=ts,
            monotonic_seconds=round(monotonic_seconds, 6),
            host=epoch.host,
            engine_id=epoch.engine_id,
            epoch_id=epoch.epoch_id,
            quantity=quantity,
            le=le,
            cumulative_count=count,
            sum_seconds=histogram.sum_seconds,
        )
        for le, count in histogram.buckets
    ]


def offers_of(reading: EngineReading) -> dict[str, tuple[str, str | None, str | None, str | None]]:
    """(offer, source, reason, remedy) of every quantity that the reading speaks of."""
    found: dict[str, tuple[str, str | None, str | None, str | None]] = {}
    for name, absence in reading.absences.items():
        found[name] = _absent(absence)
    for name, value in reading.readings.items():
        found[name] = (Offer.OFFERED, value.source, None, None)
    for name, histogram in reading.histograms.items():
        found[name] = (Offer.OFFERED, histogram.source, None, None)
    return found


def _absent(absence: Absence) -> tuple[str, str | None, str | None, str | None]:
    return (absence.offer, None, absence.reason, absence.remedy)
