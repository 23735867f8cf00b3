"""
AMD GPUs through the kernel's own files (`/sys/class/drm`, `/proc/PID/fdinfo`), without any library of AMD.

Files and units: Documentation/gpu/amdgpu/driver-misc.rst and thermal.rst of the kernel: memory in bytes, busy in
percent, power in microwatts, temperature in thousandths of a degree, clocks in hertz.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from collectors.devices.base import DeviceProcess, DeviceReading
from collectors.devices.fdinfo import Clients, FdinfoReader
from store.model import Device, DeviceSample, SourceState

SYS, PROC = Path("/sys"), Path("/proc")
SCAN_SECONDS = 10.0  # between looks for processes with an open render node
AMD = "0x1002"  # PCI vendor
# Format of `gpu_metrics` (kgd_pp_interface.h): 1 is for cards, 2 and 3 are for processors with a GPU.
_APU_FORMATS = (2, 3)


@dataclass(slots=True)
class _Card:
    facts: Device
    folder: Path
    pci_slot: str
    hwmon: Path | None
    unified: bool  # no memory of its own but a reserved piece of the host's


def present(sys: Path = SYS) -> bool:
    """Whether this host has an AMD GPU with its kernel driver loaded."""
    return bool(_folders(sys))


class AmdBackend:
    """All GPUs of the `amdgpu` driver. Cards are listed once; one that vanishes is lost."""

    source_id = "device:amd"

    def __init__(self, *, sys: Path = SYS, proc: Path = PROC, clock: Callable[[], float] = time.monotonic) -> None:
        self._sys = sys
        self._clock = clock
        self._fdinfo = FdinfoReader(proc, "amdgpu", SCAN_SECONDS)
        self._cards: dict[str, _Card] = {}

    def read(self, ts: datetime, host: str) -> DeviceReading:
        """
        Read every card once.

        A card that the kernel has put to sleep is not asked for its sensors: that would wake it. On a processor with
        a GPU the memory is the reserved piece plus the host memory that it may map (GTT), method ``unified``.
        """
        listed = {card.folder for card in self._cards.values()}
        for place, folder in enumerate(_folders(self._sys)):
            if folder not in listed:
                card = _card(folder, place, ts, host, self._sys)
                self._cards[card.facts.device_id] = card
        clients = self._fdinfo.read(self._clock())
        samples = tuple(_sample(card, ts, host) for card in self._cards.values())
        processes, untold = _processes(list(self._cards.values()), clients)
        details = [
            f"GPU {self._cards[sample.device_id].facts.index}: {sample.detail}" for sample in samples if sample.detail
        ]
        if clients.denied:
            details.append(
                f"{clients.denied} processes of other users can't be looked into: what they hold is unattributed. "
                "Run the collector as root, or as the user who runs the engines."
            )
        lost = [sample for sample in samples if sample.state == SourceState.DEVICE_LOST]
        state = SourceState.OK
        if samples and len(lost) == len(samples):
            state = SourceState.DEVICE_LOST
        elif any(sample.state != SourceState.OK for sample in samples):
            state = SourceState.PARTIAL
        facts = tuple(card.facts for card in self._cards.values())
        return DeviceReading(state, "; ".join(details) or None, facts, samples, processes, untold)

    def close(self) -> None:
        """Nothing is held open."""


def _folders(sys: Path) -> list[Path]:
    """The device folders of AMD's cards, by the number of the card."""
    cards = [path for path in (sys / "class" / "drm").glob("card*") if re.fullmatch(r"card\d+", path.name)]
    folders = [path / "device" for path in sorted(cards, key=lambda path: int(path.name[4:]))]
    return [
        folder for folder in folders if _text(folder / "vendor") == AMD and (folder / "mem_info_vram_total").exists()
    ]


def _card(folder: Path, place: int, ts: datetime, host: str, sys: Path) -> _Card:
    slot = next(
        (
            line.partition("=")[2]
            for line in (_text(folder / "uevent") or "").splitlines()
            if line.startswith("PCI_SLOT_NAME=")
        ),
        folder.resolve().name,
    )
    identity = _text(folder / "unique_id") or slot
    model = _text(folder / "product_name") or f"AMD GPU {(_text(folder / 'device') or '').removeprefix('0x')}".strip()
    unified = _is_apu(folder)
    facts = Device(
        host=host,
        device_id=f"AMD-{identity}",
        vendor="amd",
        index=place,
        name=model,
        memory_total_bytes=_total(folder, unified),
        driver_version=_text(sys / "module" / "amdgpu" / "version"),
        first_seen=ts,
    )
    return _Card(facts, folder, slot, next(iter(sorted((folder / "hwmon").glob("hwmon*"))), None), unified)


def _is_apu(folder: Path) -> bool:
    try:
        with (folder / "gpu_metrics").open("rb") as file:
            head = file.read(4)
    except OSError:  # not offered by this kernel or card, or the card sleeps
        return False
    return len(head) == 4 and head[2] in _APU_FORMATS


def _total(folder: Path, unified: bool) -> int | None:
    vram, gtt = _number(folder / "mem_info_vram_total"), _number(folder / "mem_info_gtt_total")
    return vram if not unified or vram is None else vram + (gtt or 0)


def _sample(card: _Card, ts: datetime, host: str) -> DeviceSample:
    folder, hwmon = card.folder, card.hwmon
    used = _number(folder / "mem_info_vram_used")
    if used is None and not folder.exists():
        return DeviceSample(
            ts=ts,
            host=host,
            device_id=card.facts.device_id,
            state=SourceState.DEVICE_LOST.value,
            detail="the kernel no longer lists it; see dmesg for amdgpu messages. A reset or a reboot is needed.",
        )
    notes = []
    if card.unified:
        shared = _number(folder / "mem_info_gtt_used")
        used = None if used is None or shared is None else used + shared
        notes.append("unified memory: a reserved piece and mapped host memory, which is in the host's memory too")
    asleep = _text(folder / "power" / "runtime_status") == "suspended"
    if asleep:
        notes.append("asleep: its sensors are not read, because that would wake it")
    if used is None:
        notes.append("used memory could not be read")
    busy, memory_busy = (
        (None, None) if asleep else (_number(folder / "gpu_busy_percent"), _number(folder / "mem_busy_percent"))
    )
    sensors = dict.fromkeys(
        ("power1_average", "power1_input", "power1_cap", "temp1_input", "freq1_input", "freq2_input")
    )
    if hwmon is not None and not asleep:
        sensors = {name: _number(hwmon / name) for name in sensors}
    power = sensors["power1_average"] if sensors["power1_average"] is not None else sensors["power1_input"]
    return DeviceSample(
        ts=ts,
        host=host,
        device_id=card.facts.device_id,
        state=(SourceState.PARTIAL if used is None else SourceState.OK).value,
        detail="; ".join(notes) or None,
        memory_total_bytes=_total(folder, card.unified),
        memory_used_bytes=used,
        utilisation_fraction=_scaled(busy, 1e-2),
        memory_utilisation_fraction=_scaled(memory_busy, 1e-2),
        power_watts=_scaled(power, 1e-6),
        power_limit_watts=_scaled(sensors["power1_cap"], 1e-6),
        temperature_celsius=_scaled(sensors["temp1_input"], 1e-3),
        sm_clock_hertz=_scaled(sensors["freq1_input"], 1.0),
        memory_clock_hertz=_scaled(sensors["freq2_input"], 1.0),
    )


def _processes(cards: list[_Card], clients: Clients) -> tuple[tuple[DeviceProcess, ...], frozenset[str]]:
    """What each process holds of each card, and the cards of which not every process's share is known."""
    by_slot = {card.pci_slot: card for card in cards}
    held: dict[tuple[str, int], int] = {}
    untold = {card.facts.device_id for card in cards if clients.denied}
    for client in clients.clients:
        card = by_slot.get(client.pci_slot)
        if card is None:
            continue
        amounts = [client.vram_bytes, client.gtt_bytes] if card.unified else [client.vram_bytes]
        known = [amount for amount in amounts if amount is not None]
        if not known:
            untold.add(card.facts.device_id)
            continue
        key = (card.facts.device_id, client.pid)
        held[key] = held.get(key, 0) + sum(known)
    methods = {card.facts.device_id: "unified" if card.unified else "fdinfo" for card in cards}
    return (
        tuple(DeviceProcess(device, pid, size, methods[device]) for (device, pid), size in held.items() if size),
        frozenset(untold),
    )


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:  # not offered by this card or kernel, or not now
        return None


def _number(path: Path) -> int | None:
    text = _text(path)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def _scaled(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor
