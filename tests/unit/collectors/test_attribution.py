"""
Who holds which memory: real process trees, and device readings as a driver would give them for their pids.

Expected values: what the test says the driver reports; resident sizes and CPU times from
/proc/PID/statm and /proc/PID/stat of the same processes (proc(5)).
"""

import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.attribution import EngineRoot, TreeUsage, device_rows
from collectors.devices.base import DeviceProcess, DeviceReading
from collectors.processes import Process, ProcessSnapshot, ProcessTable
from store.model import SourceState
from tests.support.processes import STANDIN, Standin, llama_server, llama_server_child, vllm
from tests.support.wait import until

GIB = 2**30
MIB = 2**20


@pytest.fixture
def table():
    return ProcessTable()


def reading(*held):
    processes = tuple(DeviceProcess(device, pid, amount, "nvml_process") for device, pid, amount in held)
    return DeviceReading(SourceState.OK, None, (), (), processes)


def now():
    return datetime.now(UTC)


def rss_bytes(pid):
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_workers_and_core_are_their_engine_and_the_rest_is_nobodys(tmp_path, table):
    workers = {"children": [{"title": "VLLM::Worker_TP0"}, {"title": "VLLM::Worker_TP1"}]}
    plan = {"children": [{"title": "VLLM::EngineCore", **workers}]}
    with vllm(tmp_path, ["a-model"], plan) as one, llama_server(tmp_path, [], {}) as two:
        engines = [EngineRoot("vllm-8000", "e1", one.pid), EngineRoot("llama.cpp-8080", "e2", two.pid)]
        rows, detail = device_rows(
            now(),
            "host-a",
            engines,
            reading(
                ("GPU-a", one.pids["VLLM::Worker_TP0"], 30 * GIB),
                ("GPU-b", one.pids["VLLM::Worker_TP1"], 31 * GIB),
                ("GPU-a", two.pid, 8 * GIB),
                ("GPU-b", os.getpid(), GIB),
            ),
            table.snapshot(),
        )
        assert [(r.device_id, r.engine_id, r.epoch_id, r.memory_bytes, r.method) for r in rows] == [
            ("GPU-a", "vllm-8000", "e1", 30 * GIB, "nvml_process"),
            ("GPU-b", "vllm-8000", "e1", 31 * GIB, "nvml_process"),
            ("GPU-a", "llama.cpp-8080", "e2", 8 * GIB, "nvml_process"),
            ("GPU-b", None, None, GIB, "nvml_process"),
        ]
        assert [r.process_name for r in rows[:3]] == ["VLLM::Worker_TP0", "VLLM::Worker_TP1", "llama-server"]
        assert detail is None


def test_the_models_of_a_router_belong_to_the_router(tmp_path, table):
    child = llama_server_child(tmp_path, ["-m", "a.gguf", "--port", "40001"], {"key": "model"})
    with llama_server(tmp_path, ["--models-dir", "/models"], {"children": [child]}) as router:
        engines = [EngineRoot("llama.cpp-8080", "e1", router.pid)]
        rows, _ = device_rows(now(), "host-a", engines, reading(("GPU-a", router.pids["model"], GIB)), table.snapshot())
        assert rows[0].engine_id == "llama.cpp-8080"


def test_a_process_that_cannot_be_seen_here_is_said_to_be_so(table):
    beyond = int(Path("/proc/sys/kernel/pid_max").read_text()) + 5  # no process of this namespace can have it
    rows, detail = device_rows(now(), "host-a", [], reading(("GPU-a", beyond, GIB)), table.snapshot())
    assert [(r.engine_id, r.process_name, r.pid, r.memory_bytes) for r in rows] == [(None, None, beyond, GIB)]
    assert str(beyond) in detail
    assert "--pid=host" in detail


def test_memory_that_the_driver_does_not_tell_stays_unknown(table):
    rows, _ = device_rows(now(), "host-a", [], reading(("GPU-a", os.getpid(), None)), table.snapshot())
    assert rows[0].memory_bytes is None


def test_host_memory_is_the_sum_over_the_tree(tmp_path, table):
    plan = {"children": [{"title": "VLLM::EngineCore", "ballast_bytes": 64 * MIB}]}
    with vllm(tmp_path, ["a-model"], plan) as engine:
        (row,) = TreeUsage().rows(now(), 1.0, "host-a", [EngineRoot("vllm-8000", "e1", engine.pid)], table.snapshot())
        total = rss_bytes(engine.pid) + rss_bytes(engine.pids["VLLM::EngineCore"])
        assert total > 64 * MIB
        assert row.memory_bytes == pytest.approx(total, rel=0.02)
        assert (row.device_id, row.method, row.pid, row.process_count) == (None, "rss", engine.pid, 2)
        assert row.cpu_cores is None  # nothing to compare with yet


def test_an_engine_whose_process_is_unknown_or_gone_has_no_host_row(table):
    with Standin([sys.executable, str(STANDIN)], {}) as ended:
        pass
    engines = [EngineRoot("a", "e1", None), EngineRoot("b", "e2", ended.pid)]
    assert TreeUsage().rows(now(), 1.0, "host-a", engines, table.snapshot()) == ()


def test_cpu_is_the_growth_of_the_kernels_own_counters():
    """The tree is this test process: what it burns in between is known from its own clock (times(2))."""
    table, usage = ProcessTable(), TreeUsage()
    engines = [EngineRoot("a", "e1", os.getpid())]
    usage.rows(now(), 100.0, "host-a", engines, table.snapshot())
    begin = os.times()
    while os.times().user - begin.user < 0.5:
        pass
    (row,) = usage.rows(now(), 102.0, "host-a", engines, table.snapshot())
    end = os.times()
    burnt = end.user + end.system - begin.user - begin.system
    assert row.cpu_cores == pytest.approx(burnt / 2.0, abs=0.1)


def test_a_process_that_ends_takes_nothing_away(tmp_path, table):
    """A child with CPU time behind it ends: the sum of the counters falls, the rate must not."""
    plan = {"children": [{"title": "VLLM::EngineCore", "burn_cpu_seconds": 0.3}]}
    usage = TreeUsage()
    with vllm(tmp_path, ["a-model"], plan) as engine:
        engines = [EngineRoot("vllm-8000", "e1", engine.pid)]
        usage.rows(now(), 100.0, "host-a", engines, table.snapshot())
        snapshot = table.snapshot()
        os.kill(engine.pids["VLLM::EngineCore"], signal.SIGKILL)
        (row,) = usage.rows(now(), 101.0, "host-a", engines, snapshot)  # it ends after the snapshot
        assert 0 <= row.cpu_cores < 0.3
        killed = engine.pids["VLLM::EngineCore"]
        until(lambda: killed not in table.snapshot().processes, what="the child's end")
        (row,) = usage.rows(now(), 102.0, "host-a", engines, table.snapshot())
        assert 0 <= row.cpu_cores < 0.3
        assert row.process_count == 1


def test_a_process_that_began_since_counts_from_its_start(tmp_path, table):
    """The worker burns 0.3 s before it reports; it began after the first call, so all of it belongs to the window."""
    usage = TreeUsage()
    plan = {"children": [{"title": "VLLM::EngineCore", "burn_cpu_seconds": 0.3}]}
    begin = time.monotonic()
    engines = [EngineRoot("a", "e1", os.getpid())]
    usage.rows(now(), begin, "host-a", engines, table.snapshot())
    with vllm(tmp_path, ["a-model"], plan):
        end = time.monotonic()
        (row,) = usage.rows(now(), end, "host-a", engines, table.snapshot())
        assert row.cpu_cores * (end - begin) >= 0.29


def test_what_an_old_process_used_before_it_was_seen_is_not_counted():
    """It has been running for an hour by its start, so its CPU time (times(2)) is not of this window."""
    pid, usage = os.getpid(), TreeUsage()
    assert sum(os.times()[:2]) > 0.1
    with Standin([sys.executable, str(STANDIN)], {}) as root:
        top = Process(root.pid, 1, "vllm", ("vllm",), time.time() - 7200)
        late = Process(pid, root.pid, "python", ("python",), time.time() - 3600)
        engines = [EngineRoot("a", "e1", root.pid)]
        usage.rows(now(), 100.0, "host-a", engines, ProcessSnapshot({root.pid: top}))
        (row,) = usage.rows(now(), 101.0, "host-a", engines, ProcessSnapshot({root.pid: top, pid: late}))
        assert row.process_count == 2
        assert row.cpu_cores < 0.1


def test_another_process_with_the_same_pid_starts_from_nothing():
    """Pids are used again: the first life had used more CPU than the second. Written by hand, see test_processes."""
    pid = os.getpid()
    usage, engines = TreeUsage(), [EngineRoot("a", "e1", pid)]
    start = time.time() - 3600

    def life(at):
        return ProcessSnapshot({pid: Process(pid, 1, "python", ("python",), at)})

    usage.rows(now(), 100.0, "host-a", engines, life(start - 1000))
    (row,) = usage.rows(now(), 101.0, "host-a", engines, life(start))
    assert row.cpu_cores is None


def test_a_tree_within_a_tree_keeps_its_own_processes(tmp_path, table):
    """An engine that another engine's supervisor started is not counted twice."""
    child = llama_server_child(tmp_path, ["--port", "40001"], {"key": "inner", "ballast_bytes": 32 * MIB})
    with llama_server(tmp_path, ["--port", "8080"], {"children": [child]}) as outer:
        engines = [EngineRoot("inner", "e1", outer.pids["inner"]), EngineRoot("outer", "e2", outer.pid)]
        rows = TreeUsage().rows(now(), 1.0, "host-a", engines, table.snapshot())
        assert [(row.engine_id, row.process_count) for row in rows] == [("inner", 1), ("outer", 1)]
        assert rows[0].memory_bytes > 32 * MIB
