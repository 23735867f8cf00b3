"""The collector process: the one owner of the DuckDB file, with everything that feeds it and reads it."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import psutil
import structlog

from collectors import fit_params
from collectors.devices import backends
from collectors.discovery_source import DiscoverySource
from collectors.engines import ADAPTERS
from collectors.http import HttpClient
from collectors.lifecycle import lock_of, record_failure
from collectors.machine_sources import DeviceSampling, HostSampling, ProcessSampling, StoreSampling
from collectors.memory_parts import MemoryParts
from collectors.newest import NewestRows
from collectors.processes import ProcessTable
from collectors.registry import Registry
from collectors.scheduler import Scheduler
from collectors.scoring import MemoryScoring
from collectors.startup import StartupWatch, start_error
from settings import Settings
from store import address
from store.local import LocalStore
from store.maintenance import Maintenance
from store.model import EngineState, Event
from store.protocol import Command
from store.server import serve
from store.writer import Writer

log = structlog.get_logger(__name__)


class Extension(Protocol):
    """What takes commands beside the store, and ends before sampling does."""

    @property
    def commands(self) -> Mapping[str, Command]:
        """Its commands by name."""

    def close(self) -> None:
        """End what it runs; nothing comes from it afterwards."""


Extend = Callable[[Settings, Writer, LocalStore, Registry], Extension]


class Collector:
    """
    Everything that one data folder's collector runs. `start`, then `stop`; not restartable.

    `extend` makes what takes further commands (load tests), of which collecting itself knows nothing.
    """

    def __init__(
        self,
        settings: Settings,
        started_by: Literal["person", "server"] = "person",
        extend: Extend | None = None,
    ) -> None:
        self._settings = settings
        self._started_by = started_by
        self._extend = extend
        self._held = ExitStack()  # what was opened, closed in the opposite order

    def start(self) -> None:
        """
        Take the folder, open the file, serve reads and begin to sample.

        Raises `AlreadyRunningError` when another collector owns the folder and `StoreError` when the file
        can't be used; in both cases nothing is left open.
        """
        with ExitStack() as opened:
            self._open(opened)
            self._held = opened.pop_all()
        record_failure(self._settings, None)
        log.info("collecting", data=str(self._settings.data), pid=os.getpid())

    def stop(self) -> None:
        """Stop sampling, store what is queued, close the file and let go of the folder."""
        self._held.close()
        log.info("collector ended")

    def run(self) -> None:
        """`start`, wait for SIGTERM or SIGINT, `stop`."""
        stop_requested = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop_requested.set())
        self.start()
        try:
            stop_requested.wait()
        finally:
            self.stop()

    def _open(self, opened: ExitStack) -> None:
        settings = self._settings
        lock = lock_of(settings)
        lock.acquire()
        opened.callback(lock.release)
        writer = Writer(settings.store_path, settings.store, host=settings.host)
        opened.callback(writer.close)
        started = datetime.now(UTC)
        writer.put([self._event("collector_started", "Collector started", started)])
        opened.callback(lambda: writer.put([self._event("collector_stopped", "Collector stopped", datetime.now(UTC))]))
        reads = LocalStore(writer, settings.store)
        booted = datetime.fromtimestamp(psutil.boot_time(), UTC)
        registry = Registry(settings.host, reads.query("latest_epochs").to_pylist(), booted)
        extension = self._extend(settings, writer, reads, registry) if self._extend else None
        if extension is not None:
            opened.callback(extension.close)
        maintenance = Maintenance(writer, settings.store)
        maintenance.start()
        opened.callback(maintenance.stop)
        server = serve(writer, settings, self._status, extension.commands if extension else None)
        opened.callback(server.stop)
        address.write(settings.run_folder, server.address(started_by=self._started_by, started=started))
        opened.callback(address.remove, settings.run_folder)

        running = [row["engine_id"] for row in reads.query("overview").to_pylist() if _ran(row["state"])]
        http = opened.enter_context(HttpClient(settings.collector))
        known_starts = reads.query("startups").to_pylist()
        watched = StartupWatch(writer, registry.epoch_of, started, known_starts, start_error())
        newest = NewestRows(watched)
        scheduler = Scheduler(newest, settings.host)
        processes = ProcessTable()
        discovery = DiscoverySource(settings, ADAPTERS, registry, scheduler, http, processes, running)
        opened.callback(discovery.close)
        devices = backends()
        for backend in devices:
            opened.callback(backend.close)
        opened.callback(_stop_sampling, scheduler)
        every = settings.collector
        for backend in devices:
            interval = every.device_interval_seconds
            scheduler.add(DeviceSampling(backend, settings.host, interval, processes, discovery.roots))
        for source in (
            HostSampling(settings.host, every.host_interval_seconds),
            ProcessSampling(settings.host, every.engine_interval_seconds, processes, discovery.roots),
            StoreSampling(writer, settings.host),
            MemoryScoring(
                registry,
                newest,
                discovery.environments,
                fit_params.find(settings.llama_fit_params),
                discovery.told_memory,
                MemoryParts(settings.host, reads.query("memory_parts").to_pylist()),
                reads.query("memory_scores").to_pylist(),
            ),
            discovery,
        ):
            scheduler.add(source)
        if extension is not None:
            opened.callback(extension.close)

    def _event(self, kind: str, text: str, ts: datetime) -> Event:
        return Event(
            ts=ts,
            host=self._settings.host,
            engine_id=None,
            epoch_id=None,
            device_id=None,
            kind=kind,
            text=f"{text} (process {os.getpid()})",
        )

    def _status(self) -> dict[str, Any]:
        return {
            "started_by": self._started_by,
            "host": self._settings.host,
            "data": str(self._settings.data),
            "looked_for": [
                {"kind": a.kind, "title": a.title, "ports": list(a.usual_ports), "start_hint": a.start_hint}
                for a in ADAPTERS
            ],
        }


def _ran(state: str | None) -> bool:
    return state is not None and state != EngineState.STOPPED


def _stop_sampling(scheduler: Scheduler) -> None:
    late = scheduler.stop()
    if late:
        log.warning("sources did not end in time", sources=late)
