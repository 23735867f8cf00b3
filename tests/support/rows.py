"""Rows with believable defaults, so that a test names only what it is about. Times are seconds after `T0`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from store.model import Device, DeviceSample, Engine, EngineSample, Epoch, HostSample, LatencyBucket, ProcessMemory

T0 = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)
HOST = "host-a"
ENGINE = "vllm-8000"
EPOCH = "vllm-8000@1"
GPU = "GPU-0"
MONOTONIC_AT_T0 = 5_000.0


def at(seconds: float) -> datetime:
    """The moment `seconds` after T0."""
    return T0 + timedelta(seconds=seconds)


def engine(engine_id: str = ENGINE, label: str | None = None, **facts: Any) -> Engine:
    """An engine first seen at T0."""
    known: dict[str, Any] = {
        "host": HOST,
        "engine_id": engine_id,
        "kind": engine_id.rsplit("-", 1)[0],
        "label": label or f"model on {engine_id}",
        "url": "http://127.0.0.1:8000",
        "found_by": "configuration",
        "first_seen": T0,
    }
    return Engine(**(known | facts))


def epoch(epoch_id: str = EPOCH, engine_id: str = ENGINE, started: float = 0, **facts: Any) -> Epoch:
    """A life of an engine's process that began `started` seconds after T0."""
    known: dict[str, Any] = dict.fromkeys(field.name for field in fields(Epoch))
    known |= {
        "host": HOST,
        "engine_id": engine_id,
        "epoch_id": epoch_id,
        "started": at(started),
        "started_is_process_start": True,
        "first_seen": at(started),
    }
    return Epoch(**(known | facts))


def sample(seconds: float, epoch_id: str = EPOCH, engine_id: str = ENGINE, **values: Any) -> EngineSample:
    """A sample `seconds` after T0 by both clocks; `clock_offset` sets the wall clock apart."""
    offset = values.pop("clock_offset", 0.0)
    state, detail = values.pop("state", "ready"), values.pop("detail", None)
    return EngineSample(
        at(seconds + offset), MONOTONIC_AT_T0 + seconds, HOST, engine_id, epoch_id, state, detail, **values
    )


def histogram(
    seconds: float,
    buckets: Mapping[float, float],
    sum_seconds: float | None = None,
    quantity: str = "ttft_seconds",
    epoch_id: str = EPOCH,
    engine_id: str = ENGINE,
) -> list[LatencyBucket]:
    """A snapshot of a cumulative histogram: upper bound to cumulative count; the last bound is infinity."""
    assert math.inf in buckets
    return [
        LatencyBucket(
            at(seconds), MONOTONIC_AT_T0 + seconds, HOST, engine_id, epoch_id, quantity, le, count, sum_seconds
        )
        for le, count in buckets.items()
    ]


def device(device_id: str = GPU, **facts: Any) -> Device:
    """A GPU first seen at T0."""
    known: dict[str, Any] = {
        "host": HOST,
        "device_id": device_id,
        "vendor": "nvidia",
        "index": 0,
        "name": "Test GPU",
        "memory_total_bytes": 24_000,
        "driver_version": "580.1",
        "first_seen": T0,
    }
    return Device(**(known | facts))


def device_sample(seconds: float, device_id: str = GPU, **values: Any) -> DeviceSample:
    """A sample of a device `seconds` after T0."""
    return DeviceSample(at(seconds), HOST, device_id, "ok", None, **values)


def host_sample(seconds: float, **values: Any) -> HostSample:
    """A sample of the host `seconds` after T0; what is not named is not known."""
    known: dict[str, Any] = dict.fromkeys(field.name for field in fields(HostSample))
    return HostSample(**(known | {"ts": at(seconds), "host": HOST} | values))


def held(
    seconds: float,
    memory_bytes: int | None,
    engine_id: str | None = ENGINE,
    device_id: str | None = GPU,
    method: str = "nvml_process",
    **values: Any,
) -> ProcessMemory:
    """Memory that a process (of an engine, or of nobody known) holds `seconds` after T0."""
    known: dict[str, Any] = {"epoch_id": EPOCH if engine_id else None, "pid": 4711, "process_name": "python"} | values
    return ProcessMemory(
        ts=at(seconds),
        host=HOST,
        engine_id=engine_id,
        device_id=device_id,
        method=method,
        memory_bytes=memory_bytes,
        **known,
    )
