"""Looks for engines on a schedule and keeps the set of sampled engines equal to what runs."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from collectors.attribution import EngineRoot
from collectors.discovery import candidates
from collectors.engine_source import EngineSource
from collectors.engines.base import Adapter, Http, Reading
from collectors.probing import Miss, Prober
from collectors.processes import ProcessTable
from collectors.registry import Registry, epoch_event
from collectors.scheduler import Outcome, Scheduler
from settings import Settings
from store.model import EngineSample, EngineState, Row, SourceState

GRACE_PASSES = 2  # passes that an engine known from before may take to be found again


class DiscoverySource:
    """Every pass: candidates -> probes -> registry -> one `EngineSource` for each engine that was found."""

    kind = "discovery"
    source_id = "discovery"
    found_by = "processes, listening sockets, usual ports and configuration of this host"

    def __init__(
        self,
        settings: Settings,
        adapters: Sequence[Adapter],
        registry: Registry,
        scheduler: Scheduler,
        http: Http,
        processes: ProcessTable,
        believed_running: Collection[str] = (),
    ) -> None:
        """`believed_running`: engines whose last stored state was not "stopped"; those not found again are."""
        self.interval_seconds = settings.collector.discovery_interval_seconds
        self._settings = settings
        self._adapters = adapters
        self._registry = registry
        self._scheduler = scheduler
        self._http = http
        self._processes = processes
        self._prober = Prober(identity_seconds=settings.collector.identity_interval_seconds)
        self._sources: dict[str, EngineSource] = {}
        self._lock = threading.Lock()
        self._believed = set(believed_running)
        self._passes = 0

    def roots(self) -> list[EngineRoot]:
        """The engines that run now, with the root of their process tree where it can be seen."""
        with self._lock:
            sources = list(self._sources.values())
        return [
            EngineRoot(s.attached.engine.engine_id, s.attached.epoch.epoch_id, s.attached.endpoint.pid)
            for s in sources
            if not s.ended
        ]

    def environments(self) -> dict[str, Mapping[str, str]]:
        """The allow-listed environment of each engine that runs now, by engine_id; empty where it can't be read."""
        with self._lock:
            sources = list(self._sources.values())
        return {s.attached.engine.engine_id: s.attached.endpoint.process_environment for s in sources if not s.ended}

    def told_memory(self) -> dict[str, Mapping[str, Reading]]:
        """What each engine that runs now said of its own memory in its newest reading, by engine_id."""
        with self._lock:
            sources = list(self._sources.values())
        return {s.attached.engine.engine_id: s.told_memory for s in sources if not s.ended}

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        """Look once; new engines are sampled from now on."""
        snapshot = self._processes.snapshot(sockets=True)
        endpoints = candidates(self._settings, self._adapters, snapshot)
        found = self._prober.find(endpoints, self._adapters, self._http)
        seen: set[str] = set()
        for item in found:
            attached, rows = self._registry.attach(item.endpoint, item.adapter, item.identity, ts)
            engine_id = attached.engine.engine_id
            seen.add(engine_id)
            source = self._sources.get(engine_id)
            if source is None or source.ended:
                source = EngineSource(attached, self._registry, self._http, self._settings.collector)
                with self._lock:
                    self._sources[engine_id] = source
            source.reattach(attached, rows)
            self._scheduler.add(source)
        for engine_id, source in self._sources.items():
            source.listed = engine_id in seen
        rows = self._lost_while_away(seen, ts, monotonic_seconds)
        misses = self._prober.misses()
        return Outcome(rows=rows, state=SourceState.OK, detail=_detail(len(endpoints), len(found), misses))

    def close(self) -> None:
        """Start no further probes."""
        self._prober.close()

    def _lost_while_away(self, seen: Collection[str], ts: datetime, monotonic_seconds: float) -> list[Row]:
        """Engines that ran when the last collector ended and are not there any more."""
        self._believed -= set(seen)
        self._passes += 1
        if self._passes < GRACE_PASSES or not self._believed:
            return []
        rows: list[Row] = []
        labels = {engine.engine_id: engine.label for engine in self._registry.engines()}
        for engine_id in sorted(self._believed):
            epoch = self._registry.epoch_of(engine_id)
            if epoch is None:
                continue
            detail = "It ended while no collector ran. Start the engine again and it will be found."
            rows += [
                EngineSample(
                    ts=ts,
                    monotonic_seconds=monotonic_seconds,
                    host=epoch.host,
                    engine_id=engine_id,
                    epoch_id=epoch.epoch_id,
                    state=EngineState.STOPPED,
                    detail=detail,
                ),
                epoch_event(epoch, ts, "stopped", f"{labels[engine_id]} stopped: it ended while no collector ran"),
            ]
        self._believed.clear()
        return rows


def _detail(asked: int, found: int, misses: Sequence[Miss]) -> str:
    text = f"{found} engine(s) at {asked} candidate address(es)"
    if misses:
        text += "; not identified: " + "; ".join(f"{miss.endpoint.url} ({miss.detail})" for miss in misses[:5])
        if len(misses) > 5:
            text += f"; and {len(misses) - 5} more"
    return text
