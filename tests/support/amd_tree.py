"""
A tree of files as the `amdgpu` driver and `/proc` have them, for hosts without such a card.

Names and units: the kernel's Documentation/gpu/amdgpu/driver-misc.rst and thermal.rst, gpu/drm-usage-stats.rst;
`gpu_metrics` begins with its size and format as in kgd_pp_interface.h.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Mapping
from pathlib import Path

MIB, GIB = 2**20, 2**30


class AmdTree:
    """`sys` and `proc` below a folder; cards and processes are added and taken away."""

    def __init__(self, folder: Path) -> None:
        self.sys, self.proc = folder / "sys", folder / "proc"
        (self.sys / "class" / "drm").mkdir(parents=True)
        self.proc.mkdir()

    def card(self, number: int, slot: str, *, metrics_format: int = 1, **files: object) -> Path:
        """A card with 24 GiB of memory of its own; `files` replace or add (None: leave out), `__` is a slash."""
        folder = self.sys / "devices" / slot
        known: dict[str, object] = {
            "vendor": "0x1002",
            "device": "0x744c",
            "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME={slot}",
            "unique_id": f"dead{number:012x}",
            "mem_info_vram_total": 24 * GIB,
            "mem_info_vram_used": 2 * GIB,
            "mem_info_gtt_total": 32 * GIB,
            "mem_info_gtt_used": 100 * MIB,
            "gpu_busy_percent": 37,
            "mem_busy_percent": 12,
            "hwmon__hwmon3__power1_average": 123_000_000,
            "hwmon__hwmon3__power1_cap": 303_000_000,
            "hwmon__hwmon3__temp1_input": 54_000,
            "hwmon__hwmon3__freq1_input": 2_304_000_000,
            "hwmon__hwmon3__freq2_input": 1_249_000_000,
            "power__runtime_status": "active",
        }
        for name, value in (known | files).items():
            if value is not None:
                path = folder / name.replace("__", "/")
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{value}\n")
        (folder / "gpu_metrics").write_bytes(struct.pack("<HBB", 120, metrics_format, 0) + bytes(116))
        link = self.sys / "class" / "drm" / f"card{number}"
        link.mkdir()
        (link / "device").symlink_to(folder)
        (self.sys / "class" / "drm" / f"card{number}-DP-1").mkdir()  # a connector, not a card
        return folder

    def set(self, slot: str, **files: object) -> None:
        """Change files of a card."""
        for name, value in files.items():
            (self.sys / "devices" / slot / name.replace("__", "/")).write_text(f"{value}\n")

    def pull(self, number: int, slot: str) -> None:
        """The card vanishes."""
        shutil.rmtree(self.sys / "class" / "drm" / f"card{number}")
        shutil.rmtree(self.sys / "devices" / slot)

    def process(self, pid: int, *descriptors: Mapping[str, str] | str) -> None:
        """A process with open files: render nodes with the keys of their fdinfo, or other files by their target."""
        for place, keys in enumerate(descriptors, start=3):
            target = keys if isinstance(keys, str) else "/dev/dri/renderD128"
            lines = [] if isinstance(keys, str) else [f"{name}:\t{value}" for name, value in keys.items()]
            for name in ("fd", "fdinfo"):
                (self.proc / str(pid) / name).mkdir(parents=True, exist_ok=True)
            (self.proc / str(pid) / "fd" / str(place)).symlink_to(target)
            text = "\n".join(["pos:\t0", "flags:\t02100002", *lines, ""])
            (self.proc / str(pid) / "fdinfo" / str(place)).write_text(text)

    def end(self, pid: int) -> None:
        """The process ends."""
        shutil.rmtree(self.proc / str(pid))


def client(slot: str, number: int, **memory: str) -> dict[str, str]:
    """The keys of one client, e.g. ``client(slot, 7, memory_vram="512 KiB")`` for ``drm-memory-vram``."""
    keys = {f"drm-{name.replace('_', '-')}": value for name, value in memory.items()}
    return {"drm-driver": "amdgpu", "drm-pdev": slot, "drm-client-id": str(number), **keys}
