"""NVIDIA GPUs through NVML (`pynvml`). A driver that is missing, unusable or lost is a state."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pynvml

from collectors.devices.base import DeviceProcess, DeviceReading
from store.model import Device, DeviceSample, SourceState

_LOST = {pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND}
_DRIVER_GONE = {
    pynvml.NVML_ERROR_UNINITIALIZED,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
}
_NOT_OFFERED = {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND}
_OTHER_FORM = {*_NOT_OFFERED, pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH}  # an older form of the call may do

_INIT_ADVICE = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: (
        SourceState.DRIVER_MISSING,
        "libnvidia-ml.so.1 was not found: no NVIDIA driver is installed here. For a container, pass the GPUs in "
        "(docker run --gpus all).",
    ),
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: (
        SourceState.DRIVER_UNUSABLE,
        "the NVIDIA library is installed but the kernel driver is not loaded; run nvidia-smi, or modprobe nvidia.",
    ),
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        SourceState.DRIVER_UNUSABLE,
        "the NVIDIA library and the loaded kernel driver have different versions, as after an upgrade; reboot or "
        "reload the driver, then restart the collector.",
    ),
    pynvml.NVML_ERROR_NO_PERMISSION: (
        SourceState.DRIVER_UNUSABLE,
        "this user may not talk to the NVIDIA driver; check the permissions of /dev/nvidiactl and /dev/nvidia*.",
    ),
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: (
        SourceState.DRIVER_UNUSABLE,
        "the NVIDIA driver is too old: its library lacks functions that pynvml needs; install a newer driver.",
    ),
    pynvml.NVML_ERROR_GPU_IS_LOST: (
        SourceState.DEVICE_LOST,
        "the driver reports a lost GPU and does not start; see dmesg for Xid messages. A reset or a reboot is needed.",
    ),
}


@dataclass(slots=True)
class _Gpu:
    """A GPU with its handle and what does not change while the driver stays up."""

    facts: Device
    handle: Any  # None: the driver no longer lists it
    mig: bool = False


@dataclass(slots=True)
class _Notes:
    """What could not be read of one device: limits of the device or driver, and real faults."""

    not_offered: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def read(self, name: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """`call(*arguments)`, or None with the reason noted. A lost device or driver is raised."""
        try:
            return call(*arguments)
        except pynvml.NVMLError as error:
            if error.value in _LOST or error.value in _DRIVER_GONE:
                raise
            if error.value in _NOT_OFFERED:
                self.not_offered.append(name)
            else:
                self.faults.append(f"{name}: {error}")
            return None

    def text(self) -> str | None:
        """All notes in one line, or None."""
        parts = [*self.faults, *self.remarks]
        if self.not_offered:
            parts.append("not offered by this device and driver: " + ", ".join(self.not_offered))
        return "; ".join(parts) or None


class NvidiaBackend:
    """
    All NVIDIA GPUs that the driver lists.

    While the driver can't be used, or a device is lost, NVML is started anew every `retry_seconds`,
    never more often: starting it is slow on a host without persistence mode.
    """

    source_id = "device:nvidia"

    def __init__(self, *, retry_seconds: float = 30.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._retry_seconds = retry_seconds
        self._clock = clock
        self._gpus: dict[str, _Gpu] = {}  # by UUID; a lost device stays
        self._started = False
        self._failure = (SourceState.ERROR, "not started")
        self._unlisted: tuple[str, ...] = ()  # devices that could not even be named
        self._next_start = clock()

    def read(self, ts: datetime, host: str) -> DeviceReading:
        """
        Read every GPU once.

        Units: bytes; watts and joules (NVML gives mW and mJ); hertz (NVML gives MHz); fractions
        (NVML gives percent). `memory_used_bytes` is what is allocated plus what the driver reserves,
        which is what NVML's first memory structure calls "used"; the reserve is known where the
        driver has `nvmlDeviceGetMemoryInfo_v2`.
        """
        if self._clock() >= self._next_start and (not self._started or self._has_lost()):
            self._start(ts, host)
        if not self._started:
            return self._all_failed(ts, host, *self._failure)
        samples: list[DeviceSample] = []
        processes: list[DeviceProcess] = []
        untold = set()
        for gpu in self._gpus.values():
            try:
                sample, held, told = _sample(gpu, ts, host)
                untold |= set() if told else {sample.device_id}
            except pynvml.NVMLError as error:
                if error.value in _DRIVER_GONE:
                    self._stop(*_advice(error))
                    return self._all_failed(ts, host, *self._failure)
                self._next_start = max(self._next_start, self._clock() + self._retry_seconds)
                gpu.handle = None
                sample, held = _lost(gpu, ts, host, str(error)), []
            samples.append(sample)
            processes += held
        facts = tuple(gpu.facts for gpu in self._gpus.values())
        return DeviceReading(*self._summary(samples), facts, tuple(samples), tuple(processes), frozenset(untold))

    def close(self) -> None:
        """Shut NVML down."""
        if self._started:
            self._stop(SourceState.ERROR, "closed")

    def _has_lost(self) -> bool:
        return bool(self._unlisted) or any(gpu.handle is None for gpu in self._gpus.values())

    def _start(self, ts: datetime, host: str) -> None:
        self.close()
        self._next_start = self._clock() + self._retry_seconds
        try:
            pynvml.nvmlInit()
            self._started = True
            self._list_devices(ts, host)
        except pynvml.NVMLError as error:
            self._stop(*_advice(error))

    def _stop(self, state: SourceState, detail: str) -> None:
        if self._started:
            with contextlib.suppress(pynvml.NVMLError):  # a driver that is gone can't be told goodbye
                pynvml.nvmlShutdown()
        self._started = False
        self._failure = (state, detail)
        self._next_start = self._clock() + self._retry_seconds

    def _list_devices(self, ts: datetime, host: str) -> None:
        for gpu in self._gpus.values():
            gpu.handle = None
        unlisted = []
        version = str(pynvml.nvmlSystemGetDriverVersion())
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                handle = pynvml.nvmlDeviceGetHandleByIndex(index)
                uuid = str(pynvml.nvmlDeviceGetUUID(handle))
                notes = _Notes()
                memory = notes.read("memory", pynvml.nvmlDeviceGetMemoryInfo, handle)
                mig = notes.read("MIG", pynvml.nvmlDeviceGetMigMode, handle)
                known = self._gpus.get(uuid)
                facts = Device(
                    host=host,
                    device_id=uuid,
                    vendor="nvidia",
                    index=index,
                    name=str(pynvml.nvmlDeviceGetName(handle)),
                    memory_total_bytes=int(memory.total) if memory else None,
                    driver_version=version,
                    first_seen=known.facts.first_seen if known else ts,
                )
                self._gpus[uuid] = _Gpu(facts, handle, mig=bool(mig and mig[0]))
            except pynvml.NVMLError as error:
                if error.value in _DRIVER_GONE:
                    raise
                unlisted.append((index, str(error)))
        remembered = {gpu.facts.index for gpu in self._gpus.values() if gpu.handle is None}
        self._unlisted = tuple(f"GPU {index}: {error}" for index, error in unlisted if index not in remembered)

    def _all_failed(self, ts: datetime, host: str, state: SourceState, detail: str) -> DeviceReading:
        facts = tuple(gpu.facts for gpu in self._gpus.values())
        samples = tuple(
            DeviceSample(ts=ts, host=host, device_id=device.device_id, state=state.value, detail=detail)
            for device in facts
        )
        return DeviceReading(state, detail, facts, samples, ())

    def _summary(self, samples: list[DeviceSample]) -> tuple[SourceState, str | None]:
        details = [
            f"GPU {self._gpus[sample.device_id].facts.index}: {sample.detail}" for sample in samples if sample.detail
        ]
        details += self._unlisted
        if not samples and not self._unlisted:
            return SourceState.OK, "the NVIDIA driver answers and lists no GPU"
        lost = [sample for sample in samples if sample.state == SourceState.DEVICE_LOST]
        if len(lost) == len(samples):
            return SourceState.DEVICE_LOST, "; ".join(details)
        impaired = self._unlisted or any(sample.state != SourceState.OK for sample in samples)
        return SourceState.PARTIAL if impaired else SourceState.OK, "; ".join(details) or None


def _advice(error: Any) -> tuple[SourceState, str]:
    return _INIT_ADVICE.get(
        error.value,
        (SourceState.DRIVER_UNUSABLE, f"the NVIDIA driver does not answer: {error}; run nvidia-smi to see why."),
    )


def _lost(gpu: _Gpu, ts: datetime, host: str, error: str) -> DeviceSample:
    return DeviceSample(
        ts=ts,
        host=host,
        device_id=gpu.facts.device_id,
        state=SourceState.DEVICE_LOST.value,
        detail=f"the device does not answer ({error}); see dmesg for Xid messages. A reset or a reboot is needed.",
    )


def _sample(gpu: _Gpu, ts: datetime, host: str) -> tuple[DeviceSample, list[DeviceProcess], bool]:
    """
    One sample, the processes of one GPU, and whether the driver tells what each process holds.

    Raises NVMLError when the device or the driver is lost.
    """
    if gpu.handle is None:
        return _lost(gpu, ts, host, "the driver no longer lists it"), [], True
    handle, notes = gpu.handle, _Notes()
    total, used, reserved = notes.read("memory", _memory, handle, notes) or (None, None, None)
    if "memory" in notes.not_offered:
        notes.remarks.append("no memory of its own is reported, as with unified memory: the pool is the host's memory")
    utilisation = notes.read("utilisation", pynvml.nvmlDeviceGetUtilizationRates, handle)
    power = notes.read("power", pynvml.nvmlDeviceGetPowerUsage, handle)
    limit = notes.read("power limit", pynvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    temperature = notes.read("temperature", _temperature, handle)
    sm_clock = notes.read("SM clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM)
    memory_clock = notes.read("memory clock", pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM)
    energy = notes.read("energy", pynvml.nvmlDeviceGetTotalEnergyConsumption, handle)
    method = "unified" if "memory" in notes.not_offered else "nvml_process"
    processes = _processes(gpu.facts.device_id, handle, notes, method)
    listed = "compute processes" not in (*notes.not_offered, *(fault.split(":")[0] for fault in notes.faults))
    if gpu.mig:
        notes.remarks.append("MIG is on: memory and processes are those of the whole device, not of its instances")
    sample = DeviceSample(
        ts=ts,
        host=host,
        device_id=gpu.facts.device_id,
        state=(SourceState.PARTIAL if notes.faults else SourceState.OK).value,
        detail=notes.text(),
        memory_total_bytes=total,
        memory_used_bytes=used,
        memory_reserved_bytes=reserved,
        utilisation_fraction=utilisation.gpu / 100 if utilisation else None,
        memory_utilisation_fraction=utilisation.memory / 100 if utilisation else None,
        power_watts=_thousandth(power),
        power_limit_watts=_thousandth(limit),
        temperature_celsius=temperature,
        sm_clock_hertz=_mega(sm_clock),
        memory_clock_hertz=_mega(memory_clock),
        energy_joules_total=_thousandth(energy),
    )
    return sample, processes, listed and all(held.memory_bytes is not None for held in processes)


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _mega(value: int | None) -> float | None:
    return None if value is None else value * 1e6


def _memory(handle: Any, notes: _Notes) -> tuple[int | None, int | None, int | None]:
    """Total, used (reserve included) and reserved bytes."""
    try:
        memory = pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2)
        return int(memory.total), int(memory.used + memory.reserved), int(memory.reserved)
    except pynvml.NVMLError as error:
        if error.value not in _OTHER_FORM:
            raise
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    notes.remarks.append("the driver does not tell its reserve apart from other used memory")
    return int(memory.total), int(memory.used), None


def _temperature(handle: Any) -> int:
    try:
        return int(pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU))
    except pynvml.NVMLError as error:
        if error.value not in _OTHER_FORM:
            raise
    return int(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))


def _running(kind: str, handle: Any) -> Iterable[Any]:
    newest: Callable[[Any], Iterable[Any]] = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v3")
    older: Callable[[Any], Iterable[Any]] = getattr(pynvml, f"nvmlDeviceGet{kind}RunningProcesses_v2")
    try:
        return newest(handle)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
    return older(handle)


def _processes(device_id: str, handle: Any, notes: _Notes, method: str) -> list[DeviceProcess]:
    """
    Processes that hold memory of the device, one entry a pid.

    A process that computes and draws is in both lists with its whole memory, so the larger figure
    counts; within one list the MIG instances of a pid are different memory, so they are added.
    """
    held: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics"):
        listed: dict[int, dict[tuple[int, int], int | None]] = {}
        for process in notes.read(f"{kind.lower()} processes", _running, kind, handle) or ():
            instance = (process.gpuInstanceId, process.computeInstanceId)
            listed.setdefault(int(process.pid), {})[instance] = process.usedGpuMemory
        for pid, instances in listed.items():
            amounts = list(instances.values())
            amount = None if None in amounts else sum(int(part) for part in amounts if part is not None)
            other = held.get(pid)
            held[pid] = other if amount is None else amount if other is None else max(amount, other)
    if None in held.values():
        notes.remarks.append("the driver does not tell how much memory each process holds")
    return [DeviceProcess(device_id, pid, amount, method) for pid, amount in held.items()]
