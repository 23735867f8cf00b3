"""
NVIDIA GPUs through the real pynvml and a fake libnvidia-ml.so.1.

Every expected value is what the test tells the fake driver (tests/support/fake_nvml), in NVML's units as
nvml.h gives them: bytes, milliwatts, MHz, millijoules, percent. Return codes are nvml.h's nvmlReturn_t.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.support.fake_nvml import FakeDriver, FakeGpu, FakeProcess, compiler

NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, LOST, MISMATCH, UNKNOWN = 3, 4, 9, 15, 18, 999
GIB = 2**30

needs_compiler = pytest.mark.skipif(compiler() is None, reason="the fake NVIDIA driver needs a C compiler")


class Reader:
    """A child process with the backend, told what to do."""

    def __init__(self, environment):
        self._child = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fake_nvml.reader"],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def tell(self, command):
        self._child.stdin.write(command + "\n")
        self._child.stdin.flush()
        return json.loads(self._child.stdout.readline())

    def read(self):
        return self.tell("read")

    def end(self):
        self._child.stdin.close()
        self._child.wait(10)
        self._child.stdout.close()


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return FakeDriver(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def driver(library):
    library.write([])
    return library


@pytest.fixture
def reader(driver):
    reader = Reader(driver.environment())
    yield reader
    reader.end()


@needs_compiler
def test_every_quantity_in_base_units(driver, reader):
    driver.write(
        [
            FakeGpu(
                "GPU-a",
                name="NVIDIA L4",
                memory=(24 * GIB, 500_000_000, 7_000_000_000),
                utilisation=(37, 12),
                power=71_250,
                limit=72_000,
                temperature=64,
                sm_clock=2_040,
                memory_clock=6_251,
                energy=1_234_567,
            ),
            FakeGpu("GPU-b", name="NVIDIA A100-SXM4-80GB"),
        ],
        version="575.57.08",
    )
    reading = reader.read()
    assert reading["state"] == "ok"
    assert reading["detail"] is None
    first, second = reading["devices"]
    assert (first["device_id"], first["index"], first["name"]) == ("GPU-a", 0, "NVIDIA L4")
    assert (second["device_id"], second["index"], second["name"]) == ("GPU-b", 1, "NVIDIA A100-SXM4-80GB")
    assert (first["vendor"], first["driver_version"], first["memory_total_bytes"]) == ("nvidia", "575.57.08", 24 * GIB)
    sample = reading["samples"][0]
    assert {name: sample[name] for name in sample if name not in ("ts", "host", "device_id", "detail")} == {
        "state": "ok",
        "memory_total_bytes": 24 * GIB,
        "memory_used_bytes": 7_500_000_000,  # allocated and reserved, as nvmlMemory_t.used is defined
        "memory_reserved_bytes": 500_000_000,
        "utilisation_fraction": 0.37,
        "memory_utilisation_fraction": 0.12,
        "power_watts": 71.25,
        "power_limit_watts": 72.0,
        "temperature_celsius": 64,
        "sm_clock_hertz": 2.04e9,
        "memory_clock_hertz": 6.251e9,
        "energy_joules_total": 1234.567,
    }


@needs_compiler
@pytest.mark.parametrize(
    ("field", "columns"),
    [
        ("utilisation", ("utilisation_fraction", "memory_utilisation_fraction")),
        ("power", ("power_watts",)),
        ("limit", ("power_limit_watts",)),
        ("temperature", ("temperature_celsius",)),
        ("sm_clock", ("sm_clock_hertz",)),
        ("memory_clock", ("memory_clock_hertz",)),
        ("energy", ("energy_joules_total",)),
        ("memory", ("memory_total_bytes", "memory_used_bytes", "memory_reserved_bytes")),
    ],
)
def test_an_unsupported_quantity_is_not_known_and_the_others_are(driver, reader, field, columns):
    driver.write([FakeGpu("GPU-a", **{field: None})])
    sample = reader.read()["samples"][0]
    measured = {name: value for name, value in sample.items() if name not in ("ts", "host", "device_id", "detail")}
    assert {name for name, value in measured.items() if value is None} == set(columns)
    assert sample["state"] == "ok"
    assert "not offered" in sample["detail"]


@needs_compiler
def test_zero_is_a_value_and_not_missing(driver, reader):
    driver.write([FakeGpu("GPU-a", memory=(GIB, 0, 0), utilisation=(0, 0), power=0, energy=0, temperature=0)])
    sample = reader.read()["samples"][0]
    assert (sample["memory_used_bytes"], sample["utilisation_fraction"], sample["power_watts"]) == (0, 0.0, 0.0)
    assert (sample["energy_joules_total"], sample["temperature_celsius"]) == (0.0, 0)


@needs_compiler
def test_a_quantity_that_fails_names_the_error_and_is_not_known(driver, reader):
    driver.write([FakeGpu("GPU-a", errors={"power": NO_PERMISSION}, temperature=41)])
    reading = reader.read()
    sample = reading["samples"][0]
    assert (reading["state"], sample["state"], sample["power_watts"]) == ("partial", "partial", None)
    assert sample["temperature_celsius"] == 41
    assert "power: Insufficient Permissions" in sample["detail"]


@needs_compiler
def test_unified_memory_points_to_the_host(driver, reader):
    driver.write([FakeGpu("GPU-a", name="NVIDIA GB10", memory=None)])
    reading = reader.read()
    assert reading["devices"][0]["memory_total_bytes"] is None
    assert reading["samples"][0]["memory_used_bytes"] is None
    assert "unified memory" in reading["samples"][0]["detail"]


@needs_compiler
def test_processes_of_unified_memory_say_that_the_pool_is_the_hosts(driver, reader):
    """GB10 (DGX Spark) and Jetson: nvmlDeviceGetMemoryInfo is not supported, processes are listed all the same."""
    driver.write([FakeGpu("GPU-a", name="NVIDIA GB10", memory=None, processes=(FakeProcess(41, 3 * GIB),))])
    reading = reader.read()
    (held,) = reading["processes"]
    assert (held["method"], held["memory_bytes"]) == ("unified", 3 * GIB)
    assert "the pool is the host's memory" in reading["samples"][0]["detail"]
    assert reading["devices"][0]["memory_total_bytes"] is None


@needs_compiler
@pytest.mark.parametrize(
    ("gpu", "untold"),
    [
        (FakeGpu("GPU-a", processes=(FakeProcess(41, GIB),)), False),
        (FakeGpu("GPU-a"), False),  # nobody holds anything, and the driver says so
        (FakeGpu("GPU-a", processes=(FakeProcess(41, None),)), True),  # usedGpuMemory N/A
        (FakeGpu("GPU-a", errors={"compute": NOT_SUPPORTED}), True),  # WSL
        (FakeGpu("GPU-a", mig=1, errors={"compute": NO_PERMISSION}), True),  # MIG, as another user than root
    ],
)
def test_whether_the_driver_tells_what_each_process_holds_is_said(driver, reader, gpu, untold):
    driver.write([gpu])
    assert ("GPU-a" in reader.read()["untold"]) is untold


@needs_compiler
def test_processes_are_merged_over_both_lists_and_mig_instances(driver, reader):
    driver.write(
        [
            FakeGpu(
                "GPU-a",
                processes=(
                    FakeProcess(11, 3 * GIB),
                    FakeProcess(12, 2 * GIB, "compute"),
                    FakeProcess(12, 2 * GIB, "graphics"),  # C+G: one context, listed twice
                    FakeProcess(13, GIB // 4, "graphics"),
                ),
            ),
            FakeGpu(
                "GPU-b",
                mig=1,
                processes=(FakeProcess(14, GIB, instance=(1, 0)), FakeProcess(14, 2 * GIB, instance=(2, 0))),
            ),
        ]
    )
    reading = reader.read()
    held = {(p["device_id"], p["pid"]): p["memory_bytes"] for p in reading["processes"]}
    assert held == {
        ("GPU-a", 11): 3 * GIB,
        ("GPU-a", 12): 2 * GIB,
        ("GPU-a", 13): GIB // 4,
        ("GPU-b", 14): 3 * GIB,
    }
    assert len(reading["processes"]) == 4
    assert {p["method"] for p in reading["processes"]} == {"nvml_process"}
    assert "MIG" in reading["samples"][1]["detail"]


@needs_compiler
def test_process_memory_that_the_driver_keeps_to_itself_is_not_known(driver, reader):
    driver.write([FakeGpu("GPU-a", processes=(FakeProcess(21, None), FakeProcess(22, GIB)))])
    reading = reader.read()
    assert {p["pid"]: p["memory_bytes"] for p in reading["processes"]} == {21: None, 22: GIB}
    assert "does not tell how much memory each process holds" in reading["samples"][0]["detail"]


@needs_compiler
def test_a_list_of_processes_that_fails_is_not_an_empty_list(driver, reader):
    driver.write([FakeGpu("GPU-a", errors={"compute": NO_PERMISSION})])
    assert "compute processes: Insufficient Permissions" in reader.read()["samples"][0]["detail"]


@needs_compiler
def test_a_lost_gpu_leaves_the_others_alone_and_comes_back(driver, reader):
    good, other = FakeGpu("GPU-a", temperature=50), FakeGpu("GPU-b", temperature=60)
    driver.write([good, other])
    assert reader.read()["state"] == "ok"
    driver.write([good, FakeGpu("GPU-b", errors={"all": LOST})])
    reading = reader.read()
    assert reading["state"] == "partial"
    assert [s["state"] for s in reading["samples"]] == ["ok", "device_lost"]
    assert reading["samples"][0]["temperature_celsius"] == 50
    assert reading["samples"][1]["temperature_celsius"] is None
    assert "Xid" in reading["samples"][1]["detail"]
    assert [d["device_id"] for d in reading["devices"]] == ["GPU-a", "GPU-b"]
    # after a reset the old handle stays lost; NVML has to be started anew, which the back-off allows after 30 s
    driver.write([good, other])
    assert [s["state"] for s in reader.read()["samples"]] == ["ok", "device_lost"]
    reader.tell("advance 31")
    reading = reader.read()
    assert [s["state"] for s in reading["samples"]] == ["ok", "ok"]
    assert reading["samples"][1]["temperature_celsius"] == 60


@needs_compiler
def test_a_gpu_that_fell_out_of_the_list_stays_known_as_lost(driver, reader):
    driver.write([FakeGpu("GPU-a"), FakeGpu("GPU-b")])
    reader.read()
    driver.write([FakeGpu("GPU-b", errors={"all": LOST}), FakeGpu("GPU-b")])
    reader.read()
    driver.write([FakeGpu("GPU-b")])  # the driver now lists one, under another index
    reader.tell("advance 31")
    states = {s["device_id"]: s["state"] for s in reader.read()["samples"]}
    assert states == {"GPU-a": "device_lost", "GPU-b": "ok"}


@needs_compiler
def test_all_gpus_lost(driver, reader):
    driver.write([FakeGpu("GPU-a")])
    reader.read()
    driver.write([FakeGpu("GPU-a", errors={"all": LOST})])
    assert reader.read()["state"] == "device_lost"


@needs_compiler
def test_a_driver_that_goes_away_and_comes_back(driver, reader):
    driver.write([FakeGpu("GPU-a", temperature=44)])
    assert reader.read()["samples"][0]["temperature_celsius"] == 44
    driver.write([FakeGpu("GPU-a", temperature=44)], error=DRIVER_NOT_LOADED)
    reading = reader.read()
    assert reading["state"] == "driver_unusable"
    assert [(s["device_id"], s["state"], s["temperature_celsius"]) for s in reading["samples"]] == [
        ("GPU-a", "driver_unusable", None)
    ]
    driver.write([FakeGpu("GPU-a", temperature=45)])
    assert reader.read()["state"] == "driver_unusable"  # not started again at every reading
    reader.tell("advance 31")
    reading = reader.read()
    assert (reading["state"], reading["samples"][0]["temperature_celsius"]) == ("ok", 45)


@needs_compiler
@pytest.mark.parametrize(
    ("code", "says"),
    [
        (DRIVER_NOT_LOADED, "not loaded"),
        (MISMATCH, "different versions"),
        (NO_PERMISSION, "permissions of /dev/nvidia"),
        (UNKNOWN, "Unknown Error"),
    ],
)
def test_a_driver_that_does_not_start_says_why(driver, reader, code, says):
    driver.write([FakeGpu("GPU-a")], init_error=code)
    reading = reader.read()
    assert reading["state"] == "driver_unusable"
    assert says in reading["detail"]
    assert reading["samples"] == []


@needs_compiler
def test_a_driver_without_gpus_is_fine_and_says_so(driver, reader):
    reading = reader.read()
    assert (reading["state"], reading["samples"]) == ("ok", [])
    assert "lists no GPU" in reading["detail"]


@needs_compiler
def test_an_older_driver_tells_no_reserve_and_lists_processes_all_the_same(tmp_path):
    older = FakeDriver(
        tmp_path,
        without=(
            "nvmlDeviceGetMemoryInfo_v2",
            "nvmlDeviceGetTemperatureV",
            "nvmlDeviceGetComputeRunningProcesses_v3",
            "nvmlDeviceGetGraphicsRunningProcesses_v3",
        ),
    )
    older.write([FakeGpu("GPU-a", memory=(8 * GIB, GIB, 2 * GIB), temperature=55, processes=(FakeProcess(31, GIB),))])
    reader = Reader(older.environment())
    reading = reader.read()
    reader.end()
    sample = reading["samples"][0]
    assert (sample["state"], sample["memory_used_bytes"], sample["memory_reserved_bytes"]) == ("ok", 3 * GIB, None)
    assert sample["temperature_celsius"] == 55
    assert [(p["pid"], p["memory_bytes"]) for p in reading["processes"]] == [(31, GIB)]


@needs_compiler
def test_a_driver_too_old_to_start(tmp_path):
    ancient = FakeDriver(tmp_path, without=("nvmlInitWithFlags",))
    ancient.write([FakeGpu("GPU-a")])
    reader = Reader(ancient.environment())
    reading = reader.read()
    reader.end()
    assert reading["state"] == "driver_unusable"
    assert "too old" in reading["detail"]


@needs_compiler
def test_facts_of_a_device_are_the_same_at_every_reading(driver, reader):
    driver.write([FakeGpu("GPU-a")])
    first = reader.read()["devices"]
    driver.write([FakeGpu("GPU-a", temperature=80)])
    assert reader.read()["devices"] == first


@needs_compiler
def test_closing_twice_and_reading_again(driver, reader):
    driver.write([FakeGpu("GPU-a")])
    reader.read()
    reader.tell("close")
    reader.tell("close")
    reader.tell("advance 31")
    assert reader.read()["state"] == "ok"


def test_without_a_driver_the_source_says_what_is_missing(tmp_path):
    """A file that is no library stands in front of any real driver on the search path, so none can be loaded."""
    (tmp_path / "libnvidia-ml.so.1").write_text("not a library\n")
    reader = Reader({**os.environ, "LD_LIBRARY_PATH": str(tmp_path)})
    reading = reader.read()
    reader.end()
    assert (reading["state"], reading["devices"], reading["samples"]) == ("driver_missing", [], [])
    assert "libnvidia-ml.so.1" in reading["detail"]
