"""
What one engine did, held and used in a window. Expected values are worked out by hand from the rows of each test.
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from store.maintenance import Maintenance
from tests.contract.conftest import Filled
from tests.support.rows import ENGINE, GPU, at, device, device_sample, engine, epoch, held, histogram, sample

INF = math.inf
OTHER = "llama.cpp-8080"


def _summary(filled: Filled, start: float = 0, end: float = 60, engine_id: str = ENGINE) -> dict[str, Any]:
    rows = filled.store.query("window_summary", {"start": at(start), "end": at(end), "engine_id": engine_id})
    (row,) = rows.to_pylist()
    found: dict[str, Any] = row
    return found


def test_rates_are_increases_over_elapsed_time_and_idle_time_is_told_apart(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-100))
    # 0 to 20 s idle, 20 to 40 s with two requests at 50 tokens/s, then idle: 1,000 tokens in 40 s of pairs.
    tokens = {0: 0.0, 10: 0.0, 20: 0.0, 30: 500.0, 40: 1000.0}
    running = {0: 0.0, 10: 0.0, 20: 2.0, 30: 2.0, 40: 0.0}
    for second, total in tokens.items():
        filled.put(
            sample(second, generation_tokens_total=total, prompt_tokens_total=4 * total,
                   requests_running=running[second], requests_waiting=1.0, requests_finished_total=second / 10)
        )  # fmt: skip
    row = _summary(filled)
    assert (row["label"], row["kind"]) == ("model on vllm-8000", "vllm")
    assert (row["samples"], row["ready_samples"], row["epochs"], row["epoch_ids"]) == (5, 5, 1, ["vllm-8000@1"])
    assert (row["first_ts"], row["last_ts"]) == (at(0), at(40))
    assert row["covered_seconds"] == pytest.approx(40)
    assert row["generation_tokens"] == pytest.approx(1000)
    assert row["generation_tokens_per_second"] == pytest.approx(1000 / 40)
    # Pairs with a request at either end: 10-20, 20-30 and 30-40 s.
    assert row["working_seconds"] == pytest.approx(30)
    assert row["working_generation_tokens_per_second"] == pytest.approx(1000 / 30)
    assert row["prompt_tokens_per_second"] == pytest.approx(4000 / 40)
    assert row["requests_finished"] == pytest.approx(4)
    assert row["requests_per_second"] == pytest.approx(4 / 40)
    assert (row["requests_running_mean"], row["requests_running_max"]) == (pytest.approx(4 / 5), 2)
    assert row["requests_waiting_mean"] == 1
    assert row["prefix_cache_hit_fraction"] is None
    assert row["mean_seconds_per_token"] is None


def test_a_window_takes_what_happened_in_it_and_begins_its_first_pair_before_it(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-100))
    for second in range(-20, 41, 10):
        filled.put(sample(second, generation_tokens_total=100.0 * (second + 20)))
    row = _summary(filled, 0, 20)  # [0, 20): the samples at 0 and 10
    assert row["samples"] == 2
    assert row["covered_seconds"] == pytest.approx(20)  # -10 to 0 and 0 to 10
    assert row["generation_tokens_per_second"] == pytest.approx(100)


def test_a_restart_is_two_lives_and_no_negative_increase(filled: Filled) -> None:
    filled.put(engine(), epoch("e1", started=-100), epoch("e2", started=15))
    for second, epoch_id, total in ((0, "e1", 900.0), (10, "e1", 1000.0), (20, "e2", 0.0), (30, "e2", 300.0)):
        filled.put(sample(second, epoch_id, generation_tokens_total=total))
    row = _summary(filled)
    assert (row["epochs"], row["epoch_ids"]) == (2, ["e1", "e2"])
    assert row["generation_tokens"] == pytest.approx(100 + 300)
    assert row["covered_seconds"] == pytest.approx(20)


def test_an_engine_that_was_not_sampled_has_no_figures(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-100), sample(-500, generation_tokens_total=1.0))
    row = _summary(filled)
    assert row["label"] == "model on vllm-8000"
    assert row["epochs"] == 0
    assert {name for name, value in row.items() if value} == {"host", "engine_id", "label", "kind"}


def test_an_engine_without_counters_has_states_and_no_zeros(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-100), sample(0, state="loading"), sample(10, state="ready"))
    row = _summary(filled)
    assert (row["samples"], row["ready_samples"]) == (2, 1)
    assert (row["generation_tokens"], row["generation_tokens_per_second"], row["covered_seconds"]) == (None, None, None)


def test_memory_is_the_mean_while_held_and_the_peak_summed_over_devices(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-100), device(), device("GPU-1", index=1))
    for second, first, second_gpu, resident in ((0, 10, 100, 5), (10, 30, 100, 7)):
        filled.put(held(second, first), held(second, second_gpu, device_id="GPU-1"))
        filled.put(held(second, resident, device_id=None, method="rss", cpu_cores=0.5 + second / 10))
    row = _summary(filled)
    assert (row["device_memory_mean_bytes"], row["device_memory_peak_bytes"]) == (20 + 100, 30 + 100)
    assert row["device_memory_method"] == "nvml_process"
    assert row["device_ids"] == [GPU, "GPU-1"]
    assert (row["host_memory_mean_bytes"], row["host_memory_peak_bytes"], row["host_memory_method"]) == (6, 7, "rss")
    assert (row["cpu_cores_mean"], row["cpu_cores_max"]) == (1.0, 1.5)


def test_memory_that_one_driver_does_not_tell_is_not_known_as_a_whole(filled: Filled) -> None:
    filled.put(engine(), epoch(started=-100), held(0, 10), held(0, None, device_id="GPU-1", method="none"))
    row = _summary(filled)
    assert (row["device_memory_mean_bytes"], row["device_memory_peak_bytes"]) == (None, None)
    assert row["device_memory_method"] == "none+nvml_process"


def _busy(filled: Filled, *others: Any) -> None:
    filled.put(engine(), epoch(started=-100), device(), *others)
    for second in range(0, 50, 10):
        filled.put(sample(second, generation_tokens_total=100.0 * second, requests_running=1.0), held(second, 10))


def test_energy_is_the_counters_of_the_devices_it_held_memory_on(filled: Filled) -> None:
    _busy(filled, device("GPU-1", index=1))
    for second in range(0, 50, 10):
        filled.put(
            device_sample(second, utilisation_fraction=0.5, power_watts=90.0, energy_joules_total=1e6 + 80.0 * second)
        )
        filled.put(device_sample(second, "GPU-1", utilisation_fraction=1.0, power_watts=500.0, energy_joules_total=0.0))
    row = _summary(filled)
    # GPU-1 is somebody else's. 80 J/s over 40 s, for 4,000 tokens.
    assert (row["utilisation_fraction_mean"], row["power_watts_mean"]) == (0.5, 90.0)
    assert (row["energy_joules"], row["energy_method"]) == (pytest.approx(3200), "counter")
    assert row["joules_per_output_token"] == pytest.approx(3200 / 4000)


def test_without_a_counter_energy_is_mean_power_by_time(filled: Filled) -> None:
    _busy(filled)
    for second, watts in ((0, 100.0), (10, 200.0), (20, 300.0)):
        filled.put(device_sample(second, power_watts=watts))
    row = _summary(filled)
    # Three samples stand for 30 s at 200 W.
    assert (row["energy_joules"], row["energy_method"]) == (pytest.approx(6000), "power_integral")


def test_without_power_there_is_no_energy(filled: Filled) -> None:
    _busy(filled)
    filled.put(device_sample(0, utilisation_fraction=0.5), device_sample(10, utilisation_fraction=0.7))
    row = _summary(filled)
    assert row["utilisation_fraction_mean"] == pytest.approx(0.6)
    assert [row[name] for name in ("power_watts_mean", "energy_joules", "energy_method")] == [None, None, None]


@pytest.mark.parametrize(("running", "sharing"), [(1.0, [OTHER]), (0.0, []), (None, [OTHER])])
def test_others_on_the_device_are_named_unless_they_were_idle(
    filled: Filled, running: float | None, sharing: list[str]
) -> None:
    _busy(filled, engine(OTHER), epoch("o1", OTHER, started=-100))
    filled.put(held(10, 5, OTHER, epoch_id="o1"), sample(10, "o1", OTHER, requests_running=running))
    assert _summary(filled)["sharing_engine_ids"] == sharing


def _close(row: dict[str, Any]) -> dict[str, Any]:
    """A row that equals another one up to rounding."""
    return {name: pytest.approx(value, rel=1e-9) if isinstance(value, float) else value for name, value in row.items()}


def _three_hours(filled: Filled) -> None:
    """Samples every 30 s with a restart after an hour, two devices, histograms, and another engine."""
    filled.put(engine(), engine(OTHER), epoch("e1", started=-3600), epoch("e2", started=3601), device())
    filled.put(epoch("o1", OTHER, started=-3600))
    for second in range(-60, 3 * 3600, 30):
        life = "e1" if second < 3600 else "e2"
        lived = second + 60 if second < 3600 else second - 3600
        busy = float(second % 600 < 300)
        filled.put(
            sample(second, life, generation_tokens_total=7.0 * lived, prompt_tokens_total=31.0 * lived,
                   requests_running=busy, requests_waiting=2 * busy, kv_used_fraction=(second % 97) / 97,
                   requests_finished_total=float(lived // 60)),
            sample(second, "o1", OTHER, requests_running=0.0),
            held(second, 1000 + second % 131, epoch_id=life),
            held(second, 500, OTHER, epoch_id="o1"),
            held(second, 300 + second % 17, device_id=None, method="rss", cpu_cores=0.5, epoch_id=life),
            device_sample(second, utilisation_fraction=0.5 + busy / 4, power_watts=100 + 50 * busy,
                          energy_joules_total=1e6 + 120.0 * second),
            *histogram(second, {0.1: lived / 4, 0.5: lived / 2, INF: lived}, lived * 0.3, epoch_id=life),
        )  # fmt: skip


@pytest.mark.parametrize("filled", ["local"], indirect=True)  # hours of samples: about figures, not the way to them
@pytest.mark.parametrize(("start", "end"), [(0, 3 * 3600 - 100), (1234, 9876), (3600, 7200)])
def test_minutes_and_hours_give_the_same_figures_as_samples(filled: Filled, start: float, end: float) -> None:
    _three_hours(filled)
    span = {"start": at(start), "end": at(end)}
    from_samples = _summary(filled, start, end)
    latency_from_samples = filled.store.query("latency", span).to_pylist()
    Maintenance(filled.writer, filled.settings.store).once(at(3 * 3600))
    assert _summary(filled, start, end) == _close(from_samples)
    latency = filled.store.query("latency", span).to_pylist()
    # A minute's latencies are those of the snapshots in it: at both edges up to a minute of 1 observation a second.
    assert [row["count"] for row in latency] == pytest.approx([row["count"] for row in latency_from_samples], abs=60)
    for row, sooner in zip(latency, latency_from_samples, strict=True):
        for name in ("p50_seconds", "p95_low_seconds", "mean_seconds"):
            assert row[name] == pytest.approx(sooner[name])


@pytest.mark.parametrize("filled", ["local"], indirect=True)  # hours of samples: about figures, not the way to them
def test_where_samples_were_deleted_a_window_is_rounded_to_minutes(filled: Filled) -> None:
    _three_hours(filled)
    whole = _summary(filled, 1200, 9900)
    Maintenance(filled.writer, filled.settings.store).once(at(9 * 86400))
    assert _summary(filled, 1234, 9876) == _close(whole)
