"""One look without storing anything: a single endpoint (`probe`) or all that this host runs (`survey`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

from collectors.devices import backends, read_all
from collectors.devices.base import DeviceReading
from collectors.devices.host import HostSource
from collectors.discovery import candidates
from collectors.engines import ADAPTERS
from collectors.engines.base import Adapter, Endpoint, EngineReading, Identity
from collectors.http import HttpClient, HttpError
from collectors.probing import Prober
from collectors.processes import ProcessTable
from collectors.redaction import redact_url
from settings import Settings, Target
from store.model import QUANTITIES, HostSample

_UNITS: Mapping[str, str] = {quantity.name: quantity.unit for quantity in QUANTITIES}


@dataclass(frozen=True, slots=True)
class Probed:
    """An endpoint that was identified, with one sample of it."""

    endpoint: Endpoint
    adapter: Adapter
    identity: Identity
    reading: EngineReading

    def document(self) -> dict[str, Any]:
        """
        The JSON contract of `probe`.

        A histogram's value is `{count, sum_seconds, buckets: [[le, cumulative count], ...]}` with
        `le` null for infinity; the value of a quantity that was read as NaN is null.
        """
        quantities: dict[str, Any] = {}
        for name, reading in self.reading.readings.items():
            quantities[name] = {"value": reading.value, "unit": _UNITS[name], "source": reading.source}
        for name, histogram in self.reading.histograms.items():
            buckets = [[None if le == float("inf") else le, count] for le, count in histogram.buckets]
            value = {
                "count": histogram.buckets[-1][1] if histogram.buckets else None,
                "sum_seconds": histogram.sum_seconds,
                "buckets": buckets,
            }
            quantities[name] = {"value": value, "unit": _UNITS[name], "source": histogram.source}
        order = [quantity.name for quantity in QUANTITIES]
        return {
            "engine": self.identity.kind,
            "version": self.identity.version,
            "url": redact_url(self.endpoint.url),
            "model_id": self.identity.model_id,
            "max_context_tokens": self.identity.max_context_tokens,
            "state": str(self.reading.state),
            "detail": self.reading.detail,
            "quantities": {name: quantities[name] for name in order if name in quantities},
            "not_read": {
                name: {"offer": str(a.offer), "reason": a.reason, "remedy": a.remedy}
                for name, a in self.reading.absences.items()
            },
        }


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything on this host at one moment."""

    engines: tuple[Probed, ...]
    host: HostSample
    devices: DeviceReading
    looked_for: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """One JSON document."""
        return {
            "engines": [engine.document() for engine in self.engines],
            "host": asdict(self.host),
            "devices": {
                "state": str(self.devices.state),
                "detail": self.devices.detail,
                "devices": [asdict(device) for device in self.devices.devices],
                "samples": [asdict(sample) for sample in self.devices.samples],
            },
            "looked_for": list(self.looked_for),
        }


def probe(target: Target, settings: Settings) -> Probed | str:
    """Identify and sample one endpoint; a sentence that says what answered instead when no engine did."""
    with HttpClient(settings.collector) as http:
        endpoint = _with_process(Endpoint(url=target.url, found_by="command line", api_key=target.api_key), settings)
        try:
            for adapter in ADAPTERS:
                identity = adapter.identify(endpoint, http)
                if identity is not None:
                    return Probed(endpoint, adapter, identity, adapter.sample(endpoint, http, histograms=True))
            answer = http.get(endpoint, "/")
        except HttpError as failed:
            return str(failed)
        return f"something answers (HTTP {answer.status}, {answer.content_type}), but it is none of the known engines"


def survey(settings: Settings) -> Survey:
    """Discover and sample everything once; takes two seconds at most where nothing hangs."""
    ts = datetime.now(UTC)
    host, devices = HostSource(), backends()
    host.read(ts, settings.host)  # the busy share of the CPU is measured between two readings
    with HttpClient(settings.collector) as http:
        snapshot = ProcessTable().snapshot(sockets=True)
        found = Prober().find(candidates(settings, ADAPTERS, snapshot), ADAPTERS, http)
        engines = tuple(
            Probed(f.endpoint, f.adapter, f.identity, f.adapter.sample(f.endpoint, http, histograms=True))
            for f in found
        )
    try:
        return Survey(
            engines=engines,
            host=host.read(ts, settings.host),
            devices=read_all(devices, ts, settings.host),
            looked_for=tuple(f"{a.title} (ports {', '.join(map(str, a.usual_ports))})" for a in ADAPTERS),
        )
    finally:
        for backend in devices:
            backend.close()


def _with_process(endpoint: Endpoint, settings: Settings) -> Endpoint:
    """The endpoint with its process, where that runs on this host and can be seen."""
    snapshot = ProcessTable().snapshot(sockets=True)
    for candidate in candidates(settings, ADAPTERS, snapshot):
        if _same_address(candidate.url, endpoint.url):
            return replace(
                candidate,
                url=endpoint.url,
                found_by=endpoint.found_by,
                name=endpoint.name,
                api_key=endpoint.api_key,
            )
    return endpoint


def _same_address(one: str, other: str) -> bool:
    return one.replace("localhost", "127.0.0.1") == other.replace("localhost", "127.0.0.1")
