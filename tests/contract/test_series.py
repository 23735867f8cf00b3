"""Charts: raw samples where few, buckets where many, and a row of NULLs where sampling had a gap."""

import pytest

from store.protocol import Parameter
from tests.contract.conftest import Filled
from tests.support.rows import GPU, at, device, device_sample, engine, epoch, held, host_sample, sample

OTHER = "llama.cpp-8080"


def test_gauges_come_raw_and_engines_in_order(filled: Filled) -> None:
    filled.put(engine(), epoch(), engine(OTHER), epoch("o1", OTHER))
    filled.put(
        sample(0, requests_running=1, requests_waiting=0, kv_used_fraction=0.25),
        sample(2, state="busy", detail="no answer within 10 s"),
        sample(1, "o1", OTHER, requests_running=3),
    )
    rows = filled.store.query("engine_series", {"start": at(0), "end": at(10)}).to_pylist()
    assert [(row["engine_id"], row["ts"], row["state"]) for row in rows] == [
        (OTHER, at(1), "ready"),
        ("vllm-8000", at(0), "ready"),
        ("vllm-8000", at(2), "busy"),
    ]
    assert (rows[1]["requests_running"], rows[1]["requests_waiting"], rows[1]["kv_used_fraction"]) == (1, 0, 0.25)
    # What was not told is not 0.
    assert rows[2]["requests_running"] is None
    assert rows[0]["kv_used_fraction"] is None
    assert {row["label"] for row in rows} == {f"model on {OTHER}", "model on vllm-8000"}


def test_a_gap_breaks_the_line_in_its_middle(filled: Filled) -> None:
    # Every 2 s until 20 s, then from 80 s: a gap of 60 s > 3 x 2 s, its middle at 50 s.
    seconds = [*range(0, 21, 2), *range(80, 101, 2)]
    filled.put(engine(), epoch(), *(sample(s, requests_running=2) for s in seconds))
    rows = filled.store.query("engine_series", {"start": at(0), "end": at(100)}).to_pylist()
    assert [row["ts"] for row in rows] == [at(s) for s in (*range(0, 21, 2), 50, *range(80, 101, 2))]
    empty = next(row for row in rows if row["ts"] == at(50))
    assert empty["samples"] == 0
    assert {name for name, value in empty.items() if value is not None} == {
        "ts",
        "engine_id",
        "label",
        "kind",
        "samples",
    }


def test_a_missed_tick_is_no_gap(filled: Filled) -> None:
    # One of three samples missing: 4 s apart, not over 3 x 2 s.
    filled.put(engine(), epoch(), *(sample(s, requests_running=2) for s in (0, 2, 4, 8, 10, 12)))
    assert filled.store.query("engine_series", {"start": at(0), "end": at(20)}).num_rows == 6


def test_buckets_keep_peaks_and_gaps(filled: Filled) -> None:
    # 600 samples a second apart with 200 s missing in the middle: 799 s / 19 = 42.1 s -> buckets of a minute.
    seconds = [*range(300), *range(500, 800)]
    filled.put(
        *(host_sample(s, cpu_fraction=0.9 if s == 123 else 0.1, memory_used_bytes=1000, cpu_count=4) for s in seconds)
    )
    table = filled.store.query("host_series", {"start": at(0), "end": at(800), "points": 20})
    assert table.schema.metadata == {b"bucket_seconds": b"60", b"gap_seconds": b"120", b"level": b"raw"}
    rows = table.to_pylist()
    assert len(rows) <= 20
    assert max(row["cpu_fraction_max"] for row in rows if row["cpu_fraction_max"] is not None) == 0.9
    assert min(row["cpu_fraction_min"] for row in rows if row["cpu_fraction_min"] is not None) == 0.1
    assert [row["ts"] for row in rows if row["cpu_fraction"] is None] == [at((299 + 500) / 2)]
    assert all(row["memory_used_bytes"] == 1000 for row in rows if row["cpu_fraction"] is not None)


def test_device_series_have_the_facts_of_their_device(filled: Filled) -> None:
    filled.put(device(), device(name="Renamed GPU"))
    filled.put(
        device_sample(0, memory_total_bytes=24_000, memory_used_bytes=1000, power_watts=100.0, power_limit_watts=300.0),
        device_sample(1, memory_total_bytes=24_000, memory_used_bytes=1200, power_watts=150.0, power_limit_watts=300.0),
    )
    rows = filled.store.query("device_series", {"start": at(0), "end": at(5)}).to_pylist()
    assert [(row["memory_used_bytes"], row["power_watts"], row["temperature_celsius"]) for row in rows] == [
        (1000, 100.0, None),
        (1200, 150.0, None),
    ]
    assert {(row["device_id"], row["index"], row["name"]) for row in rows} == {(GPU, 0, "Renamed GPU")}


def test_the_parts_of_a_device_s_memory_sum_to_what_is_used(filled: Filled) -> None:
    filled.put(engine(), epoch(), device(), device_sample(0, memory_used_bytes=10_000))
    filled.put(held(0, 4000, pid=1), held(0, 2500, pid=2), held(0, 1500, engine_id=None, pid=3))
    rows = filled.store.query("device_memory_series", {"start": at(0), "end": at(5)}).to_pylist()
    assert [(row["part"], row["engine_id"], row["memory_bytes"], row["method"]) for row in rows] == [
        ("driver and unattributed", None, 10_000 - 6500 - 1500, "remainder"),
        ("engine", "vllm-8000", 6500, "nvml_process"),
        ("other processes", None, 1500, "nvml_process"),
    ]


def test_memory_that_nobody_can_attribute_is_said_to_be_so(filled: Filled) -> None:
    filled.put(device(), device_sample(0, memory_used_bytes=10_000), held(0, None))
    rows = filled.store.query("device_memory_series", {"start": at(0), "end": at(5)}).to_pylist()
    assert [(row["part"], row["memory_bytes"], row["method"]) for row in rows] == [
        ("driver and unattributed", 10_000, "none")
    ]


def test_processes_that_hold_more_than_is_used_leave_no_negative_rest(filled: Filled) -> None:
    filled.put(engine(), epoch(), device(), device_sample(0, memory_used_bytes=5000), held(0, 6000))
    rows = filled.store.query("device_memory_series", {"start": at(0), "end": at(5)}).to_pylist()
    assert [(row["part"], row["memory_bytes"]) for row in rows] == [
        ("counted twice", -1000),
        ("driver and unattributed", 0),
        ("engine", 6000),
    ]


def test_the_parts_of_a_bucket_are_means_that_sum_to_the_mean_used(filled: Filled) -> None:
    # 100 s in buckets of 12 s (99 s / 9 -> 11, but T0 is not aligned to it); the engine comes after 50 s.
    filled.put(engine(), epoch(), device())
    for second in range(100):
        filled.writer.put([device_sample(second, memory_used_bytes=9000 if second >= 50 else 3000)])
        filled.writer.put([held(second, 1000, engine_id=None, pid=3)])
        filled.writer.put([held(second, 6000)] if second >= 50 else [])
    filled.writer.flush()
    span: dict[str, Parameter] = {"start": at(0), "end": at(99), "points": 10}
    parts: dict[object, float] = {}
    for row in filled.store.query("device_memory_series", span).to_pylist():
        parts[row["ts"]] = parts.get(row["ts"], 0.0) + row["memory_bytes"]
    used = {row["ts"]: row["memory_used_bytes"] for row in filled.store.query("device_series", span).to_pylist()}
    assert parts == pytest.approx(used)
    assert 5 <= len(parts) <= 10


def test_an_engine_that_was_there_for_half_a_bucket_holds_half_of_it(filled: Filled) -> None:
    """It alone holds memory from second 50 on: before, its device was sampled and no process was listed."""
    filled.put(engine(), epoch(), device())
    for second in range(100):
        filled.writer.put([device_sample(second, memory_used_bytes=7000 if second >= 50 else 1000)])
        filled.writer.put([held(second, 6000)] if second >= 50 else [])
    filled.writer.flush()
    rows = filled.store.query("device_memory_series", {"start": at(0), "end": at(99), "points": 3}).to_pylist()
    assert {row["part"] for row in rows} == {"engine", "driver and unattributed"}
    assert all(row["memory_bytes"] == pytest.approx(1000) for row in rows if row["part"] != "engine")


def test_host_memory_of_an_engine(filled: Filled) -> None:
    filled.put(engine(), epoch())
    filled.put(held(0, 700, device_id=None, method="rss", cpu_cores=1.5, process_count=3), held(0, 5000))
    rows = filled.store.query("engine_memory_series", {"start": at(0), "end": at(5)}).to_pylist()
    assert len(rows) == 1
    assert (rows[0]["method"], rows[0]["memory_bytes"], rows[0]["cpu_cores"], rows[0]["process_count"]) == (
        "rss",
        700,
        1.5,
        3,
    )
