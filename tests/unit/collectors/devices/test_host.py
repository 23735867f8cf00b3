"""The host's figures against the kernel's own files: /proc/meminfo, /proc/loadavg and /proc/stat (proc(5))."""

import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.devices.host import HostSource

TS = datetime(2026, 12, 1, tzinfo=UTC)

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="compares with Linux's /proc")


def meminfo():
    lines = Path("/proc/meminfo").read_text().splitlines()
    return {name: int(rest.split()[0]) * 1024 for name, rest in (line.split(":") for line in lines)}


@linux
def test_memory_and_swap_are_those_of_the_kernel():
    sample, kernel = HostSource().read(TS, "host-a"), meminfo()
    assert sample.memory_total_bytes == kernel["MemTotal"]
    assert sample.memory_available_bytes == pytest.approx(kernel["MemAvailable"], rel=0.2)
    assert sample.memory_used_bytes == sample.memory_total_bytes - sample.memory_available_bytes
    assert sample.swap_total_bytes == kernel["SwapTotal"]


@linux
def test_cpu_count_and_load_are_those_of_the_kernel():
    sample = HostSource().read(TS, "host-a")
    cpus = [line for line in Path("/proc/stat").read_text().splitlines() if line[:3] == "cpu" and line[3].isdigit()]
    assert sample.cpu_count == len(cpus)
    assert sample.load_1m == pytest.approx(float(Path("/proc/loadavg").read_text().split()[0]), abs=2)


def test_the_busy_share_is_unknown_at_first_and_high_while_a_process_computes():
    source = HostSource()
    assert source.read(TS, "host-a").cpu_fraction is None
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.5: pass"], check=True)
    sample = source.read(TS, "host-a")
    # half a second of CPU time was used on at most `cpu_count` cores, so the share can't be nought
    assert 0 < sample.cpu_fraction <= 1


def test_two_sources_do_not_share_their_window():
    first, second = HostSource(), HostSource()
    first.read(TS, "host-a")
    assert second.read(TS, "host-a").cpu_fraction is None
