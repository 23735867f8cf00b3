"""
AMD GPUs from a tree of files (tests/support/amd_tree).

Expected values are what the test writes there, in the kernel's units: bytes, percent, microwatts, thousandths of a
degree, hertz; KiB and MiB in fdinfo (Documentation/gpu/amdgpu/*.rst, gpu/drm-usage-stats.rst).
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.devices import read_all
from collectors.devices.amd import SCAN_SECONDS, AmdBackend, present
from collectors.devices.base import DeviceReading
from collectors.devices.nvidia import NvidiaBackend
from store.model import SourceState
from tests.support.amd_tree import GIB, MIB, AmdTree, client

SLOT, SECOND = "0000:03:00.0", "0000:83:00.0"
TS = datetime(2026, 12, 1, tzinfo=UTC)


class Watched:
    """A tree and a backend that reads it, with a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.tree = AmdTree(folder)
        self.now = 1000.0
        self.backend = AmdBackend(sys=self.tree.sys, proc=self.tree.proc, clock=lambda: self.now)

    def read(self) -> DeviceReading:
        return self.backend.read(TS, "host-a")

    def held(self) -> dict[tuple[str, int], tuple[int | None, str]]:
        self.now += SCAN_SECONDS
        return {(held.device_id, held.pid): (held.memory_bytes, held.method) for held in self.read().processes}


@pytest.fixture
def host(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def test_every_quantity_in_base_units(host: Watched) -> None:
    host.tree.card(1, SLOT, product_name="AMD Radeon RX 7900 XTX")
    reading = host.read()
    (device,), (sample,) = reading.devices, reading.samples
    assert (reading.state, reading.detail) == (SourceState.OK, None)
    assert (device.device_id, device.vendor, device.index, device.name, device.memory_total_bytes) == (
        "AMD-dead000000000001",
        "amd",
        0,
        "AMD Radeon RX 7900 XTX",
        24 * GIB,
    )
    assert (sample.memory_total_bytes, sample.memory_used_bytes) == (24 * GIB, 2 * GIB)
    assert (sample.utilisation_fraction, sample.memory_utilisation_fraction) == (0.37, 0.12)
    assert (sample.power_watts, sample.power_limit_watts, sample.temperature_celsius) == pytest.approx((123, 303, 54))
    assert (sample.sm_clock_hertz, sample.memory_clock_hertz) == (2.304e9, 1.249e9)


def test_what_a_card_does_not_offer_is_not_known(host: Watched) -> None:
    host.tree.card(
        0, SLOT, unique_id=None, mem_busy_percent=None, hwmon__hwmon3__power1_average=None,
        hwmon__hwmon3__power1_input=88_000_000,
    )  # fmt: skip
    reading = host.read()
    assert reading.devices[0].device_id == f"AMD-{SLOT}"
    assert reading.devices[0].name == "AMD GPU 744c"
    assert reading.samples[0].memory_utilisation_fraction is None
    assert reading.samples[0].power_watts == pytest.approx(88)


def test_a_host_without_amd_has_no_such_source(host: Watched) -> None:
    assert not present(host.tree.sys)
    host.tree.card(0, SLOT, vendor="0x10de")
    assert not present(host.tree.sys)
    assert host.read().devices == ()
    host.tree.card(1, SECOND)
    assert present(host.tree.sys)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"memory_vram": "1024 KiB"}, MIB),
        ({"total_vram": "3 MiB"}, 3 * MIB),
        ({"total_vram": "9 MiB", "resident_vram": "3 MiB", "memory_vram": "3072 KiB"}, 3 * MIB),
        ({"memory_vram": "4096"}, 4096),
    ],
)
def test_each_form_of_the_kernels_keys_is_read(host: Watched, keys: dict[str, str], expected: int) -> None:
    host.tree.card(0, SLOT)
    host.tree.process(41, "/tmp/a", client(SLOT, 7, **keys))
    assert host.held() == {("AMD-dead000000000000", 41): (expected, "fdinfo")}


def test_a_client_counts_once_however_many_hold_it(host: Watched) -> None:
    """Two descriptors of one client, a forked child with the same one, and a second client of the same process."""
    host.tree.card(0, SLOT)
    host.tree.card(1, SECOND)
    one, other = client(SLOT, 7, memory_vram="1024 KiB"), client(SLOT, 8, memory_vram="2048 KiB")
    host.tree.process(41, one, one, other, client(SECOND, 7, memory_vram="5120 KiB"))
    host.tree.process(42, one)
    assert host.held() == {
        ("AMD-dead000000000000", 41): (3 * MIB, "fdinfo"),
        ("AMD-dead000000000001", 41): (5 * MIB, "fdinfo"),
    }


def test_clients_of_another_driver_or_device_are_nobodys_here(host: Watched) -> None:
    host.tree.card(0, SLOT)
    intel = client(SLOT, 7, memory_vram="1 MiB") | {"drm-driver": "i915"}
    host.tree.process(41, intel, client("0000:99:00.0", 7, memory_vram="1 MiB"))
    assert host.held() == {}


def test_a_kernel_without_memory_keys_leaves_the_device_untold(host: Watched) -> None:
    host.tree.card(0, SLOT)
    host.tree.process(41, client(SLOT, 7, engine_gfx="12 ns"))
    assert host.held() == {}
    assert host.read().untold == {"AMD-dead000000000000"}


def test_processes_come_and_go(host: Watched) -> None:
    host.tree.card(0, SLOT)
    host.tree.process(41, client(SLOT, 7, memory_vram="1 MiB"))
    assert len(host.held()) == 1
    host.tree.end(41)
    assert host.read().processes == ()
    host.tree.process(43, client(SLOT, 9, memory_vram="1 MiB"))
    assert host.read().processes == ()  # not yet: processes are looked for every SCAN_SECONDS
    assert list(host.held()) == [("AMD-dead000000000000", 43)]


def test_a_processor_with_a_gpu_has_unified_memory(host: Watched) -> None:
    """gpu_metrics of format 2: 512 MiB are reserved, up to 16 GiB of host memory may be mapped."""
    host.tree.card(
        0, SLOT, metrics_format=2, mem_info_vram_total=512 * MIB, mem_info_vram_used=300 * MIB,
        mem_info_gtt_total=16 * GIB, mem_info_gtt_used=5 * GIB,
    )  # fmt: skip
    host.tree.process(41, client(SLOT, 7, memory_vram="200 MiB", memory_gtt="4096 MiB"))
    reading = host.read()
    assert reading.samples[0].memory_used_bytes == 300 * MIB + 5 * GIB
    assert reading.samples[0].memory_total_bytes == 512 * MIB + 16 * GIB
    assert "unified memory" in str(reading.detail)
    assert host.held() == {("AMD-dead000000000000", 41): (200 * MIB + 4 * GIB, "unified")}


def test_a_sleeping_card_is_not_woken(host: Watched) -> None:
    host.tree.card(0, SLOT, power__runtime_status="suspended")
    (sample,) = host.read().samples
    assert (sample.power_watts, sample.utilisation_fraction, sample.temperature_celsius) == (None, None, None)
    assert sample.memory_used_bytes == 2 * GIB
    assert "asleep" in str(sample.detail)
    host.tree.set(SLOT, power__runtime_status="active")
    assert host.read().samples[0].power_watts == pytest.approx(123)


def test_a_card_that_vanishes_is_lost_and_the_other_goes_on(host: Watched) -> None:
    host.tree.card(0, SLOT)
    host.tree.card(1, SECOND)
    first = host.read()
    host.tree.pull(0, SLOT)
    reading = host.read()
    assert [sample.state for sample in reading.samples] == ["device_lost", "ok"]
    assert reading.state == SourceState.PARTIAL
    assert reading.devices == first.devices  # the same facts, whatever the number of cards that are left
    host.tree.pull(1, SECOND)
    assert host.read().state == SourceState.DEVICE_LOST


def test_beside_a_card_a_missing_driver_of_another_vendor_is_no_trouble(host: Watched) -> None:
    """Two backends of this tree stand for two vendors; on a host with NVIDIA's library the first has devices too."""
    host.tree.card(0, SLOT)
    nvidia = NvidiaBackend()
    alone, both = nvidia.read(TS, "host-a"), read_all([nvidia, host.backend], TS, "host-a")
    nvidia.close()
    assert "AMD-dead000000000000" in {device.device_id for device in both.devices}
    assert alone.devices or both.state == SourceState.OK


def test_processes_of_other_users_are_counted() -> None:
    """Process 1 belongs to root: its descriptors are denied to anyone else (proc(5)). A child becomes somebody else."""
    text = (
        "import os; from pathlib import Path; from collectors.devices.fdinfo import FdinfoReader; "
        "os.geteuid() or os.setuid(65534); print(FdinfoReader(Path('/proc'), 'amdgpu', 10).read(0.0).denied)"
    )
    told = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True, timeout=60)
    assert int(told.stdout) >= 1
