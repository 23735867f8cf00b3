"""A fake NVIDIA driver behind the real pynvml. See README.md."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")


def compiler() -> str | None:
    """The C compiler of this machine, or None."""
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(folder: Path, *, without: Sequence[str] = ()) -> Path:
    """Compile `libnvidia-ml.so.1` into `folder` and return it. `without` names functions that an older driver lacks."""
    cc = compiler()
    if cc is None:
        raise RuntimeError("the fake NVIDIA driver needs a C compiler (cc, gcc or clang)")
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "libnvidia-ml.so.1"
    leave_out = [f"-DWITHOUT_{name}" for name in without]
    subprocess.run(
        [cc, "-shared", "-fPIC", "-O2", "-Wall", "-Werror", *leave_out, "-o", str(library), str(SOURCE)], check=True
    )
    return library


@dataclass(frozen=True)
class FakeProcess:
    """A process as the driver lists it. `memory_bytes` None: the driver answers "not available"."""

    pid: int
    memory_bytes: int | None
    kind: str = "compute"  # or "graphics"
    instance: tuple[int, int] | None = None  # GPU instance and compute instance, with MIG


@dataclass(frozen=True)
class FakeGpu:
    """What one GPU answers, in NVML's own units. None: the device answers NVML_ERROR_NOT_SUPPORTED."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    memory: tuple[int, int, int] | None = (85_520_809_984, 624_951_296, 0)  # total, reserved, used bytes
    utilisation: tuple[int, int] | None = (0, 0)  # GPU and memory, percent
    power: int | None = 70_123  # milliwatts
    limit: int | None = 700_000  # milliwatts
    temperature: int | None = 31  # degrees Celsius
    sm_clock: int | None = 1_980  # MHz
    memory_clock: int | None = 2_619  # MHz
    energy: int | None = 1_000_000  # millijoules
    mig: int | None = None  # 1: on
    processes: tuple[FakeProcess, ...] = ()
    errors: Mapping[str, int] = field(default_factory=dict)  # call (a field's name, "handle", "all") -> nvmlReturn_t

    def lines(self, index: int) -> list[str]:
        """This GPU in the format of the state file."""
        text = [f"uuid {self.uuid}", f"name {self.name}"]
        for key in ("power", "limit", "temperature", "sm_clock", "memory_clock", "energy", "mig"):
            value = getattr(self, key)
            if value is not None:
                text.append(f"{key} {value}")
        for key, values in (("memory", self.memory), ("utilisation", self.utilisation)):
            if values is not None:
                text.append(f"{key} {' '.join(map(str, values))}")
        for process in self.processes:
            amount = "NA" if process.memory_bytes is None else str(process.memory_bytes)
            instance = "" if process.instance is None else f" {process.instance[0]} {process.instance[1]}"
            text.append(f"process {process.kind} {process.pid} {amount}{instance}")
        text += [f"error {call} {code}" for call, code in self.errors.items()]
        return [f"gpu {index} {line}" for line in text]


class FakeDriver:
    """A compiled fake driver and the file that it answers from. Use it in child processes (`environment`)."""

    def __init__(self, folder: Path, *, without: Sequence[str] = ()) -> None:
        self.library = build(folder, without=without)
        self.state = folder / "state.txt"

    def environment(self) -> dict[str, str]:
        """The environment for a child process that is to see this driver."""
        path = os.pathsep.join(filter(None, (str(self.library.parent), os.environ.get("LD_LIBRARY_PATH"))))
        return {**os.environ, "LD_LIBRARY_PATH": path, "FAKE_NVML_STATE": str(self.state)}

    def write(
        self, gpus: Sequence[FakeGpu], *, init_error: int = 0, error: int = 0, version: str = "580.65.06"
    ) -> None:
        """
        Replace what the driver answers from now on.

        `init_error` is the nvmlReturn_t of nvmlInit alone, `error` of every call, as when the driver went away.
        """
        lines = [f"init_error {init_error}", f"error {error}", f"driver {version}"]
        for index, gpu in enumerate(gpus):
            lines += gpu.lines(index)
        fresh = self.state.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.state)

    def remove(self) -> None:
        """Take the state away: every call answers NVML_ERROR_DRIVER_NOT_LOADED."""
        self.state.unlink(missing_ok=True)
