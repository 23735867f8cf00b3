"""What the pages ask about the present: overview, devices, sources, quantities, epochs, events, status."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from store.model import DeviceSample, Event, QuantityOffer, SourceHealth
from tests.contract.conftest import Filled
from tests.support.rows import (
    ENGINE,
    EPOCH,
    GPU,
    HOST,
    at,
    device,
    device_sample,
    engine,
    epoch,
    held,
    histogram,
    sample,
)

LLAMA = "llama.cpp-8080"


def _overview(filled: Filled, seconds: float, **parameters: Any) -> dict[str, dict[str, Any]]:
    rows = filled.store.query("overview", {"at": at(seconds), **parameters}).to_pylist()
    return {row["engine_id"]: row for row in rows}


def test_overview_shows_the_newest_sample_and_the_rates_before_it(filled: Filled) -> None:
    filled.put(engine(), epoch(model_id="m", version="0.33.0", max_context_tokens=4096))
    for second in range(0, 101, 2):
        filled.writer.put(
            [
                sample(
                    second,
                    generation_tokens_total=1000 + 30.0 * second,
                    prompt_tokens_total=50.0 * second,
                    prefix_cache_query_tokens_total=100.0 * second,
                    prefix_cache_hit_tokens_total=25.0 * second,
                    requests_running=3,
                    requests_waiting=1,
                    kv_used_fraction=0.5,
                    kv_capacity_tokens=100_000,
                )
            ]
        )
    filled.writer.flush()
    row = _overview(filled, 100)[ENGINE]
    assert (row["model_id"], row["version"], row["max_context_tokens"]) == ("m", "0.33.0", 4096)
    assert (row["epoch_id"], row["epoch_started"], row["epoch_started_is_process_start"]) == (EPOCH, at(0), True)
    assert (row["state"], row["state_ts"], row["state_since"]) == ("ready", at(100), at(0))
    assert (row["generation_tokens_per_second"], row["generation_source"]) == (30, "settled")
    assert row["prompt_tokens_per_second"] == 50
    assert row["generation_tokens"] == 60 * 30
    assert row["prefix_cache_hit_fraction"] == 0.25
    assert (row["requests_running"], row["requests_waiting"]) == (3, 1)
    assert (row["kv_used_fraction"], row["kv_capacity_tokens"]) == (0.5, 100_000)
    # In the past it shows the past: in a window of 20 s, 600 tokens.
    past = _overview(filled, 50, window_seconds=20, rate_window_seconds=4)[ENGINE]
    assert (past["state_ts"], past["generation_tokens"]) == (at(50), 600)


def test_what_an_engine_does_not_tell_is_null_not_zero(filled: Filled) -> None:
    filled.put(engine(), epoch(), sample(0, state="metrics_disabled", detail="start it with --metrics"))
    row = _overview(filled, 1)[ENGINE]
    assert (row["state"], row["detail"]) == ("metrics_disabled", "start it with --metrics")
    untold = [
        "generation_tokens_per_second",
        "generation_source",
        "prompt_tokens_per_second",
        "generation_tokens",
        "requests_running",
        "requests_waiting",
        "kv_used_fraction",
        "prefix_cache_hit_fraction",
        "mean_itl_seconds",
        "device_memory_bytes",
        "host_memory_bytes",
        "cpu_cores",
        "process_count",
    ]
    assert {name: row[name] for name in untold} == dict.fromkeys(untold)


def test_a_start_that_failed_leaves_the_overview_after_ten_minutes(filled: Filled) -> None:
    filled.put(engine(), epoch(), sample(0, state="loading"), sample(10, state="stopped"))
    assert set(_overview(filled, 60)) == {ENGINE}
    assert _overview(filled, 11 * 60) == {}


def test_an_engine_that_fell_silent_keeps_its_last_state_with_its_time(filled: Filled) -> None:
    filled.put(engine(), epoch(version="b1"), sample(0), sample(10, state="stopped"), sample(12, state="stopped"))
    row = _overview(filled, 4 * 3600)[ENGINE]
    assert (row["state"], row["state_ts"], row["state_since"]) == ("stopped", at(12), at(10))
    assert row["generation_tokens_per_second"] is None


def test_a_pair_that_spans_more_than_the_window_says_nothing_about_it(filled: Filled) -> None:
    filled.put(engine(), epoch(), sample(0, generation_tokens_total=0), sample(600, generation_tokens_total=6000))
    row = _overview(filled, 601)[ENGINE]
    assert (row["generation_tokens_per_second"], row["generation_tokens"]) == (None, None)


def test_mean_itl_from_the_histogram_or_else_from_generation_time(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-1000), engine(LLAMA), epoch("l1", LLAMA))
    filled.put(*histogram(0, {0.1: 10, float("inf"): 10}, 1.0, quantity="itl_seconds"))
    filled.put(*histogram(50, {0.1: 60, float("inf"): 110}, 9.0, quantity="itl_seconds"))
    filled.put(
        sample(10, "l1", LLAMA, generation_tokens_total=0, generation_seconds_total=0),
        sample(50, "l1", LLAMA, generation_tokens_total=400, generation_seconds_total=20),
    )
    rows = _overview(filled, 60)
    assert rows[ENGINE]["mean_itl_seconds"] == pytest.approx((9.0 - 1.0) / (110 - 10))
    assert rows[LLAMA]["mean_itl_seconds"] == pytest.approx(20 / 400)


def test_memory_of_an_engine_is_the_newest_over_its_devices_and_processes(filled: Filled) -> None:
    filled.put(engine(), epoch(), sample(10))
    filled.put(held(8, 900, device_id="GPU-9"), held(0, 1), held(1, 1, device_id="GPU-gone"))
    filled.put(held(10, 500, pid=1), held(10, 250, pid=2), held(10, 9999, engine_id=None, pid=3))
    filled.put(held(9, 70, device_id=None, method="rss", cpu_cores=1.25, process_count=4))
    row = _overview(filled, 11)[ENGINE]
    assert (row["device_memory_bytes"], row["device_memory_method"]) == (500 + 250 + 900, "nvml_process")
    assert (row["host_memory_bytes"], row["host_memory_method"]) == (70, "rss")
    assert (row["cpu_cores"], row["process_count"]) == (1.25, 4)


def test_a_part_that_is_not_known_makes_the_sum_unknown(filled: Filled) -> None:
    filled.put(engine(), epoch(), sample(10), held(10, 500, pid=1), held(10, None, pid=2))
    assert _overview(filled, 11)[ENGINE]["device_memory_bytes"] is None


def test_facts_that_changed_replace_the_older_ones(filled: Filled) -> None:
    filled.put(engine(label="old"), epoch(version="1"), sample(0))
    filled.put(engine(label="new", first_seen=at(500)), epoch(version="2"))
    row = _overview(filled, 600)[ENGINE]
    assert (row["label"], row["version"], row["first_seen"]) == ("new", "2", at(0))
    assert [e["version"] for e in filled.store.query("epochs").to_pylist()] == ["2"]


def test_labels_are_unique(filled: Filled) -> None:
    filled.put(engine("vllm-1", label="m"), engine("vllm-2", label="m"), engine("vllm-3", label="n"))
    labels = {row["engine_id"]: row["label"] for row in filled.store.query("overview", {"at": at(1)}).to_pylist()}
    assert labels == {"vllm-1": "m [vllm-1]", "vllm-2": "m [vllm-2]", "vllm-3": "n"}


def test_epochs_newest_first_and_the_latest_of_each_engine(filled: Filled) -> None:
    filled.put(engine(), engine(LLAMA), epoch("e1"), epoch("l1", LLAMA, started=5), epoch("e2", started=50))
    assert [row["epoch_id"] for row in filled.store.query("epochs").to_pylist()] == ["e2", "l1", "e1"]
    one = filled.store.query("epochs", {"engine_id": ENGINE}).to_pylist()
    assert [(row["epoch_id"], row["label"], row["kind"]) for row in one] == [
        ("e2", f"model on {ENGINE}", "vllm"),
        ("e1", f"model on {ENGINE}", "vllm"),
    ]
    latest = filled.store.query("latest_epochs").to_pylist()
    assert [(row["engine_id"], row["epoch_id"], row["first_seen"]) for row in latest] == [
        (LLAMA, "l1", at(5)),
        (ENGINE, "e2", at(50)),
    ]


def test_devices_with_their_newest_sample(filled: Filled) -> None:
    now = datetime.now(UTC)
    filled.put(device(), device("GPU-1", index=1, name="second", memory_total_bytes=None))
    for ago, used in ((3600, 1), (5, 2)):
        filled.put(DeviceSample(now - timedelta(seconds=ago), HOST, GPU, "ok", None, 24_576, used, power_watts=80.0))
    first, second = filled.store.query("devices").to_pylist()
    assert (first["device_id"], first["name"], first["memory_total_bytes"]) == (GPU, "Test GPU", 24_576)
    assert (first["ts"], first["memory_used_bytes"], first["power_watts"]) == (now - timedelta(seconds=5), 2, 80.0)
    assert first["temperature_celsius"] is None
    assert (second["device_id"], second["name"], second["state"]) == ("GPU-1", "second", None)
    assert (second["memory_total_bytes"], second["memory_used_bytes"]) == (None, None)


def test_quantities_are_the_newest_offers_of_the_newest_epoch(filled: Filled) -> None:
    def offer(epoch_id: str, quantity: str, kind: str, second: float) -> QuantityOffer:
        return QuantityOffer(at(second), HOST, ENGINE, epoch_id, quantity, kind, None, "why", "what to do")

    filled.put(engine(), epoch("e1"), epoch("e2", started=10))
    filled.put(offer("e1", "ttft_seconds", "offered", 0), offer("e1", "itl_seconds", "offered", 0))
    filled.put(offer("e2", "ttft_seconds", "unknown", 10), offer("e2", "ttft_seconds", "disabled", 12))
    for parameters in ({}, {"engine_id": ENGINE}):
        rows = filled.store.query("quantities", parameters).to_pylist()
        assert [(r["quantity"], r["offer"], r["reason"], r["remedy"], r["ts"]) for r in rows] == [
            ("ttft_seconds", "disabled", "why", "what to do", at(12))
        ]
    assert filled.store.query("quantities", {"engine_id": "nobody"}).num_rows == 0


def test_events_newest_first_with_a_limit_and_an_engine(filled: Filled) -> None:
    def event(second: float, engine_id: str | None) -> Event:
        return Event(at(second), HOST, engine_id, None, None, "kind", f"event {second:g}", None)

    filled.put(engine(), *(event(second, ENGINE if second % 2 else None) for second in range(10)))
    span = {"start": at(1), "end": at(8)}
    texts = [row["text"] for row in filled.store.query("events", {**span, "limit": 3}).to_pylist()]
    assert texts == ["event 8", "event 7", "event 6"]
    rows = filled.store.query("events", {**span, "engine_id": ENGINE}).to_pylist()
    assert [(row["text"], row["label"]) for row in rows] == [
        (f"event {second}", f"model on {ENGINE}") for second in (7, 5, 3, 1)
    ]


def test_status_counts_rows(filled: Filled) -> None:
    filled.put(engine(), epoch(), sample(0), sample(2), device_sample(5))
    (row,) = filled.store.query("status").to_pylist()
    assert (row["rows_engine"], row["rows_engine_sample"], row["rows_device_sample"]) == (1, 2, 1)
    assert (row["rows_event"], row["oldest_ts"], row["newest_ts"]) == (0, at(0), at(5))
    assert row["file_bytes"] == filled.settings.store_path.stat().st_size
    assert row["schema_version"] >= 1


def test_sources_count_what_went_wrong(filled: Filled) -> None:
    now = datetime.now(UTC)

    def health(seconds_ago: float, source_id: str, kind: str, state: str, lateness: float = 0.0) -> SourceHealth:
        ts = now - timedelta(seconds=seconds_ago)
        return SourceHealth(ts, HOST, source_id, kind, state, 0.02, lateness, 2.0, f"{state} now", "configuration")

    filled.put(engine())
    filled.put(
        health(900, f"engine:{ENGINE}", "engine", "ready"),
        health(700, f"engine:{ENGINE}", "engine", "unreachable"),
        health(20, f"engine:{ENGINE}", "engine", "busy", 0.5),
        health(10, f"engine:{ENGINE}", "engine", "unreachable", 0.25),
        health(5, "host", "host", "ok"),
        health(4, "device:amd", "device", "driver_missing"),
        health(3000, "store", "store", "error"),
    )
    rows = {row["source_id"]: row for row in filled.store.query("sources").to_pylist()}
    one = rows[f"engine:{ENGINE}"]
    assert (one["state"], one["detail"], one["label"]) == ("unreachable", "unreachable now", f"model on {ENGINE}")
    assert (one["samples_10m"], one["errors_10m"], one["lateness_max_10m_seconds"]) == (2, 2, 0.5)
    assert one["last_ok"] == now - timedelta(seconds=900)
    assert (rows["host"]["errors_10m"], rows["host"]["last_ok"]) == (0, rows["host"]["ts"])
    assert (rows["device:amd"]["errors_10m"], rows["device:amd"]["last_ok"]) == (0, None)
    # A source that has not reported for ten minutes is still there, with the time of its last report.
    assert (rows["store"]["samples_10m"], rows["store"]["state"]) == (0, "error")
    assert rows["store"]["ts"] == now - timedelta(seconds=3000)
