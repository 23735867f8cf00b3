"""
Which engines there are, and which life (epoch) of each is running.

An engine is a kind at an address and keeps its identity over restarts. An epoch is one life of the
process behind it, with the version, model and arguments it ran with. A new epoch begins when the
process start, the engine's own restart marker or a counter says that the process is another one,
or when what it serves has changed.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from collectors.engines.base import Adapter, Endpoint, EngineReading, Identity
from store.model import COUNTERS, Engine, EngineState, Epoch, Event, Row

SAME_START_SECONDS = 2.0  # two readings of one process's start time agree to within this


@dataclass(frozen=True, slots=True)
class Attached:
    """An engine with the epoch that runs now."""

    engine: Engine
    epoch: Epoch
    endpoint: Endpoint
    adapter: Adapter


@dataclass(slots=True)
class _Life:
    engine: Engine
    epoch: Epoch
    restart_marker: str | None = None
    counters: dict[str, float] = field(default_factory=dict)
    stopped: bool = False  # it was seen to have ended


def engine_id_of(kind: str, url: str, model: str | None = None) -> str:
    """`vllm-8000` for a loopback address, `vllm-10.0.0.7-8000` for any other; `llama.cpp-8080-tiny` for one model."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    host = parts.hostname or ""
    loopback = host in ("localhost", "::1") or host.startswith("127.")
    path = re.sub(r"[^A-Za-z0-9]+", "-", parts.path).strip("-")
    slug = re.sub(r"[^A-Za-z0-9._-]", "-", model.replace("/", "--")) if model else ""
    words = [kind, *([] if loopback else [host.replace(":", "_")]), str(port), *([path] if path else [])]
    words += [slug] if slug else []
    return "-".join(words)


def short_model_name(model_id: str | None) -> str | None:
    """The last part of a path or repository name, without a model file's suffix; each of several, comma-separated."""
    if not model_id:
        return None
    if ", " in model_id:
        return ", ".join(filter(None, map(short_model_name, model_id.split(", "))))
    name = model_id.rstrip("/").replace("\\", "/").rsplit("/", 1)[-1]
    return re.sub(r"\.(gguf|safetensors|bin)$", "", name, flags=re.IGNORECASE)


class Registry:
    """The engines of one host. All methods are thread-safe and return the rows to store."""

    def __init__(self, host: str, known: Iterable[Mapping[str, Any]] = (), booted: datetime | None = None) -> None:
        """
        `known`: the rows of the query `latest_epochs`, so that identities survive the collector.
        `booted`: when this host started. Its monotonic clock began anew then, so an epoch of an earlier boot
        (of an engine elsewhere, which did not restart) is not continued.
        """
        self._host = host
        self._booted = booted
        self._lock = threading.Lock()
        self._lives: dict[str, _Life] = {}
        for row in known:
            engine = Engine(**{column.name: row[column.name] for column in fields(Engine)})
            epoch = Epoch(**{column.name: row[column.name] for column in fields(Epoch)})
            self._lives[engine.engine_id] = _Life(engine, epoch)

    def engines(self) -> list[Engine]:
        """All engines ever seen on this host."""
        with self._lock:
            return [life.engine for life in self._lives.values()]

    def epoch_of(self, engine_id: str) -> Epoch | None:
        """The newest epoch of an engine."""
        with self._lock:
            life = self._lives.get(engine_id)
            return life.epoch if life else None

    def attach(
        self, endpoint: Endpoint, adapter: Adapter, identity: Identity, ts: datetime
    ) -> tuple[Attached, list[Row]]:
        """Say who answers at `endpoint`. Opens an epoch where it is a new life; returns rows to store."""
        engine_id = engine_id_of(identity.kind, endpoint.url, endpoint.model)
        with self._lock:
            life = self._lives.get(engine_id)
            facts = _facts(endpoint, identity)
            if facts["model_id"] is None and endpoint.name is None and life is not None:
                label = life.engine.label  # while it loads it is still known by what it served before
            else:
                router = identity.facts.get("role") == "router"
                title = f"{adapter.title} router" if router else adapter.title
                label = self._label(engine_id, endpoint, title, facts["model_id"])
            engine = Engine(
                host=self._host,
                engine_id=engine_id,
                kind=identity.kind,
                label=label,
                url=endpoint.url,
                found_by=endpoint.found_by,
                first_seen=life.engine.first_seen if life else ts,
            )
            rows: list[Row] = []
            if life is None or engine != life.engine:
                rows.append(engine)
            if life is None:
                epoch = self._open(engine_id, endpoint, facts, ts)
                rows += [epoch, epoch_event(epoch, ts, "started", _started_text(label, epoch))]
                life = self._lives[engine_id] = _Life(engine, epoch)
            elif not _same_process(life.epoch, endpoint):
                rows += self._reopen(life, endpoint, facts, ts, "restarted: its process is another one")
            elif life.stopped and endpoint.process_start is None:
                rows += self._reopen(life, endpoint, facts, ts, "restarted: it had stopped")
            elif self._booted is not None and life.epoch.first_seen < self._booted:
                begun = replace(endpoint, process_start=None)
                rows += self._reopen(life, begun, facts, ts, "restarted: this host has restarted")
            elif _settled(identity) and (changes := _changes(life.epoch, facts)):
                rows += self._reconfigure(life, endpoint, facts, changes, ts)
            life.engine, life.stopped = engine, False
            return Attached(engine, life.epoch, endpoint, adapter), rows

    def observe(self, attached: Attached, reading: EngineReading, ts: datetime) -> tuple[Attached, list[Row]]:
        """
        Compare a sample with the ones before it: a changed restart marker or a counter that went
        back is another life of the process, even where the process itself cannot be seen.
        """
        counters = {
            name: reading.readings[name].value
            for name in _STEADY_COUNTERS
            if name in reading.readings and reading.readings[name].value is not None
        }
        with self._lock:
            life = self._lives[attached.engine.engine_id]
            reason = _restart_reason(life, reading, counters)
            rows: list[Row] = []
            if reason is not None:
                facts = {name: getattr(life.epoch, name) for name in _FACT_NAMES}
                # The process start that is known belongs to the life that ended.
                endpoint = replace(attached.endpoint, process_start=None)
                rows = self._reopen(life, endpoint, facts, ts, reason)
            if reading.restart_marker is not None:
                life.restart_marker = reading.restart_marker
            life.counters |= {name: value for name, value in counters.items() if value is not None}
            life.stopped = reading.state == EngineState.STOPPED
            return replace(attached, epoch=life.epoch, engine=life.engine), rows

    def _open(self, engine_id: str, endpoint: Endpoint, facts: dict[str, Any], ts: datetime) -> Epoch:
        known_start = endpoint.process_start is not None
        started = datetime.fromtimestamp(endpoint.process_start, UTC) if endpoint.process_start is not None else ts
        epoch_id = f"{engine_id}@{started:%Y%m%dT%H%M%S.%f}"[:-3] + "Z"
        return Epoch(
            host=self._host,
            engine_id=engine_id,
            epoch_id=epoch_id,
            started=started,
            started_is_process_start=known_start,
            first_seen=ts,
            pid=endpoint.pid,
            **facts,
        )

    def _reopen(self, life: _Life, endpoint: Endpoint, facts: dict[str, Any], ts: datetime, reason: str) -> list[Row]:
        before = life.epoch
        epoch = self._open(life.engine.engine_id, endpoint, facts, ts)
        life.epoch, life.counters, life.restart_marker = epoch, {}, None
        changes = _changes(before, facts)
        text = f"{life.engine.label} {reason}"
        if changes:
            text += "; " + _changes_text(changes)
        details = {"reason": reason, "changes": changes, "previous_epoch": before.epoch_id}
        return [epoch, epoch_event(epoch, ts, "restarted", text, details)]

    def _reconfigure(
        self, life: _Life, endpoint: Endpoint, facts: dict[str, Any], changes: dict[str, list[Any]], ts: datetime
    ) -> list[Row]:
        before = life.epoch
        filled = all(old is None for old, _ in changes.values())
        if filled:  # the engine has finished loading and now tells what it is: the same life, better known
            life.epoch = replace(before, **facts)
            return [life.epoch]
        epoch = self._open(life.engine.engine_id, replace(endpoint, process_start=None), facts, ts)
        life.epoch, life.counters, life.restart_marker = epoch, {}, None
        text = f"{life.engine.label} serves something else: {_changes_text(changes)}"
        details = {"changes": changes, "previous_epoch": before.epoch_id}
        return [epoch, epoch_event(epoch, ts, "configuration_changed", text, details)]

    def _label(self, engine_id: str, endpoint: Endpoint, title: str, model_id: str | None) -> str:
        base = endpoint.name or " · ".join(x for x in (title, short_model_name(model_id)) if x)
        taken = {life.engine.label for other, life in self._lives.items() if other != engine_id}
        if base not in taken:
            return base
        return f"{base} ({engine_id.split('-', 1)[1]})"


# A live counter may be derived from rounded figures and step back a little without any restart.
_STEADY_COUNTERS = tuple(name for name in COUNTERS if name != "generation_live_tokens_total")
_FACT_NAMES = (
    "version", "model_id", "model_path", "quantization", "max_context_tokens", "slots", "arguments", "facts",
)  # fmt: skip
_COMPARED = ("version", "model_id", "model_path", "quantization", "max_context_tokens", "slots", "arguments")


def _facts(endpoint: Endpoint, identity: Identity) -> dict[str, Any]:
    return {
        "version": identity.version,
        "model_id": identity.model_id,
        "model_path": identity.model_path,
        "quantization": identity.quantization,
        "max_context_tokens": identity.max_context_tokens,
        "slots": identity.slots,
        "arguments": json.dumps(endpoint.arguments) if endpoint.arguments else None,
        "facts": json.dumps(dict(identity.facts), sort_keys=True) if identity.facts else None,
    }


def _settled(identity: Identity) -> bool:
    return identity.state in (EngineState.READY, EngineState.METRICS_DISABLED, EngineState.SLEEPING)


def _same_process(epoch: Epoch, endpoint: Endpoint) -> bool:
    """Whether the process behind `endpoint` may be the one of `epoch`; unknown starts are no evidence."""
    if endpoint.process_start is None:
        return True
    if epoch.started_is_process_start:
        return abs(epoch.started.timestamp() - endpoint.process_start) <= SAME_START_SECONDS
    # The epoch began without a known process start: it can't have begun before its process did.
    return endpoint.process_start <= epoch.started.timestamp() + SAME_START_SECONDS


def _restart_reason(life: _Life, reading: EngineReading, counters: Mapping[str, float | None]) -> str | None:
    marker = reading.restart_marker
    if marker is not None and life.restart_marker is not None and marker != life.restart_marker:
        return reading.marker_change
    for name, value in counters.items():
        before = life.counters.get(name)
        if value is not None and before is not None and value < before:
            return f"restarted: {name} went back from {before:g} to {value:g}"
    return None


def _changes(epoch: Epoch, facts: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What differs, as {name: [before, now]}. A fact that is not known now is not a change."""
    pairs = {name: [getattr(epoch, name), facts.get(name)] for name in _COMPARED}
    return {name: pair for name, pair in pairs.items() if pair[1] is not None and pair[0] != pair[1]}


def _changes_text(changes: Mapping[str, list[Any]]) -> str:
    named = [f"{name.replace('_', ' ')} {old} → {new}" for name, (old, new) in changes.items() if name != "arguments"]
    if "arguments" in changes:
        named.append("arguments changed")
    return ", ".join(named)


def _started_text(label: str, epoch: Epoch) -> str:
    return f"{label} found, version {epoch.version}" if epoch.version else f"{label} found"


def epoch_event(epoch: Epoch, ts: datetime, kind: str, text: str, details: dict[str, Any] | None = None) -> Event:
    """Something that happened to an engine in one of its lives. `details` become JSON."""
    return Event(
        ts=ts,
        host=epoch.host,
        engine_id=epoch.engine_id,
        epoch_id=epoch.epoch_id,
        device_id=None,
        kind=kind,
        text=text,
        details=json.dumps(details) if details else None,
    )
