"""
Devices to plan for: presets with the total that the driver reports, and devices as a person writes them.

A card's label says more than an engine gets: CUDA's total is a few percent below it (ECC, the driver's own
reserve). The totals here were read in logs of such cards; `source` names the log. Two cards of one kind differ by
some ten MiB with the driver's version. All sizes are bytes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from calculator.model import CalculatorError, Device

MIB, GIB = 2**20, 2**30
MAX_DEVICES = 64
LARGEST_BYTES = 2**50
_OOM = "PyTorch's out-of-memory message, "


@dataclass(frozen=True, slots=True)
class Preset:
    """A kind of device that a person can choose. `capacity_bytes` is None for the CPU: the host's own memory."""

    key: str  # as written on the command line and in links
    title: str
    capacity_bytes: int | None
    source: str
    unified: bool = False  # shares its memory with the host

    def device(self, number: int = 0) -> Device:
        """One device of this kind. Raises `CalculatorError` for the CPU, which is not a device."""
        if self.capacity_bytes is None:
            raise CalculatorError(f"{self.title} is the host itself: give its memory as the host's")
        return Device(f"{self.title} {number}", self.capacity_bytes, unified=self.unified)


def _gib(value: float) -> int:
    return round(value * GIB)


def _apple(label_gib: int, gpu_gib: float, source: str) -> Preset:
    return Preset(
        f"apple-{label_gib}",
        f"Apple, {label_gib} GB unified",
        _gib(gpu_gib),
        f"recommendedMaxWorkingSetSize, the share that macOS lets the GPU hold: {source}",
        unified=True,
    )


PRESETS: tuple[Preset, ...] = (
    Preset("a10g", "A10G", _gib(22.07), "vLLM log of an A10G (nvidia-smi: 23028 MiB)"),
    Preset("l4", "L4", _gib(22.03), _OOM + "22.03 GiB (nvidia-smi: 23034 MiB, vllm-project/vllm#4959)"),
    Preset("rtx-3090", "RTX 3090", _gib(23.70), _OOM + "GaoLii/DSP#10 (nvidia-smi: 24576 MiB)"),
    Preset("rtx-4090", "RTX 4090", _gib(23.64), _OOM + "ali-vilab/VGen#104 (nvidia-smi: 24564 MiB)"),
    Preset("rtx-5090", "RTX 5090", _gib(31.37), _OOM + "Wan-Video/Wan2.1#465 (nvidia-smi: 32607 MiB)"),
    Preset("a100-40", "A100 40 GB", _gib(39.50), _OOM + "TianheWu/CoSeR#10 (nvidia-smi: 40960 MiB)"),
    Preset("a100-80", "A100 80 GB", _gib(79.25), _OOM + "wbfwonderful/Vad-R1#11 (nvidia-smi: 81920 MiB)"),
    Preset("h100", "H100 80 GB", _gib(79.11), _OOM + "vllm-project/vllm#27508 (nvidia-smi: 81559 MiB)"),
    Preset("h200", "H200", _gib(139.80), _OOM + "139.80 GiB (nvidia-smi: 143771 MiB)"),
    Preset("b200", "B200", _gib(178.35), "CUDA device query, pytorch/ao#4002 (nvidia-smi: 183359 MiB)"),
    Preset("mi300x", "MI300X", 206_141_652_992, "rocm-smi, ROCm/legacy-rocm-build#4750"),
    _apple(16, 16 * 2 / 3, "two thirds, as on 32 GB (ggml-org/llama.cpp#2011)"),
    _apple(32, 21845.34 / 1024, "21845.34 MB (ggml-org/llama.cpp#2011)"),
    _apple(64, 48, "three quarters, as on 96 GB; raullenchai/Rapid-MLX#183 lists 48 GB"),
    _apple(96, 72, "73728 MB (ggml-org/llama.cpp#3213)"),
    _apple(128, 107.52, "107.52 GiB on macOS 26 (antirez/ds4#893); 96 GiB before"),
    _apple(192, 144, "three quarters; raullenchai/Rapid-MLX#183 lists 144 GB"),
    Preset("cpu", "CPU only", None, "the memory of the host"),
)
_BY_KEY = {preset.key: preset for preset in PRESETS}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(b|kib|mib|gib|tib|kb|mb|gb|tb)?\Z", re.IGNORECASE)
_FACTORS = {
    "b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
}  # fmt: skip
_TIMES = re.compile(r"(\d+)\s*x\s*(.+)\Z", re.IGNORECASE)


def preset(key: str) -> Preset:
    """The preset of this key. Raises `CalculatorError` naming those there are."""
    found = _BY_KEY.get(key.strip().lower())
    if found is None:
        raise CalculatorError(f"there is no device {key!r}; there are {', '.join(_BY_KEY)}, or a size such as 24GiB")
    return found


def parse_size(text: str, what: str = "size") -> int:
    """
    Bytes from text such as ``24GiB``, ``24 GB`` (decimal) or ``25769803776``; a size without a unit is bytes.

    Raises `CalculatorError` naming `what`.
    """
    match = _SIZE.match(text.strip())
    if match is None:
        raise CalculatorError(f"{what} {text!r} is not a size such as 24GiB")
    value = float(match[1]) * _FACTORS[(match[2] or "b").lower()]
    if not 0 < value <= LARGEST_BYTES:
        raise CalculatorError(f"{what} {text!r} is not between 1 byte and 1024 TiB")
    if match[2] is None and value < MIB:
        raise CalculatorError(f"{what} {text!r} has no unit and would be bytes; write {match[1]}GiB for GiB")
    return round(value)


def parse_devices(text: str) -> tuple[Device, ...]:
    """
    Devices from ``24GiB,24GiB``, ``2x24GiB``, ``h100`` or ``4xh100``; ``cpu`` alone is no device at all.

    Raises `CalculatorError` naming the part that can't be read.
    """
    found: list[Device] = []
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise CalculatorError("no device is named; write 24GiB, h100, 2x24GiB, or cpu")
    if [part.lower() for part in parts] == ["cpu"]:
        return ()
    for part in parts:
        match = _TIMES.match(part)
        count, name = (int(match[1]), match[2]) if match else (1, part)
        if not 1 <= count <= MAX_DEVICES or len(found) + count > MAX_DEVICES:
            raise CalculatorError(f"{part!r}: between 1 and {MAX_DEVICES} devices can be planned for")
        for _ in range(count):
            found.append(_device(name, len(found)))
    return tuple(found)


def _device(name: str, number: int) -> Device:
    if name.lower() in _BY_KEY:
        return preset(name).device(number)
    if name[:1].isdigit():
        return Device(f"device {number}", parse_size(name, "device"))
    return preset(name).device(number)
