"""What a stage used, from raw samples: figures worked out by hand from the samples of each test."""

import pytest

from store.model import Row
from tests.contract.conftest import Filled
from tests.support.rows import GPU, at, device, device_sample, engine, epoch, held, host_sample, sample

SPAN = {"start": at(10), "end": at(20), "engine_id": "vllm-8000"}
LLAMA, LIFE = "llama.cpp-8080", "llama.cpp-8080@1"


def _by_device(filled: Filled) -> dict[str | None, dict[str, object]]:
    return {row["device_id"]: row for row in filled.store.query("stage_resources", SPAN).to_pylist()}


def _others(filled: Filled) -> dict[str, dict[str, object]]:
    return {row["engine_id"]: row for row in filled.store.query("stage_others", SPAN).to_pylist()}


def _fill(filled: Filled, *more: Row) -> None:
    filled.put(engine(), epoch(), engine(LLAMA), epoch(LIFE, LLAMA), device(), *more)


def test_memory_is_the_mean_and_the_peak_of_the_span(filled: Filled) -> None:
    # Two processes of one engine are summed; 9 s and 21 s lie outside. Mean (1000 + 1400) / 2, peak 1400.
    _fill(
        filled,
        held(9, 9000), held(12, 600), held(12, 400), held(16, 1000), held(16, 400), held(21, 9000),
        held(12, 300, device_id=None, method="rss", cpu_cores=1.5),
        held(16, 500, device_id=None, method="rss", cpu_cores=0.5),
    )  # fmt: skip
    rows = _by_device(filled)
    gpu, host = rows[GPU], rows[None]
    assert (gpu["memory_mean_bytes"], gpu["memory_peak_bytes"], gpu["memory_method"]) == (1200, 1400, "nvml_process")
    assert (host["memory_mean_bytes"], host["memory_peak_bytes"], host["memory_method"]) == (400, 500, "rss")
    assert (host["cpu_cores_mean"], host["samples"]) == (1.0, 2)
    assert (host["energy_joules"], host["energy_method"]) == (None, None)


def test_energy_is_the_counters_increase_with_the_pairs_at_the_edges_in_part(filled: Filled) -> None:
    # 100 J a second until 15.5 s, 300 J a second after. Samples at .5: 9.5, 10.5 ... 20.5.
    # In [10, 20]: 5.5 s x 100 + 4.5 s x 300 = 1900.
    joules = 5_000.0
    rows: list[Row] = [held(12, 1)]
    for half in range(19, 42, 2):
        rows.append(device_sample(half / 2, energy_joules_total=joules, power_watts=1.0, utilisation_fraction=0.5))
        joules += 100 if half / 2 < 15.5 else 300
    _fill(filled, *rows)
    gpu = _by_device(filled)[GPU]
    assert gpu["energy_joules"] == pytest.approx(1900)
    assert (gpu["energy_method"], gpu["utilisation_mean_fraction"], gpu["samples"]) == ("counter", 0.5, 10)


def test_energy_without_a_counter_is_power_over_time(filled: Filled) -> None:
    # Power rises by 10 W a second from 100 W at 10 s to 200 W at 20 s: 150 W x 10 s.
    _fill(filled, held(12, 1), *(device_sample(second, power_watts=10.0 * second) for second in range(5, 25)))
    gpu = _by_device(filled)[GPU]
    assert gpu["energy_joules"] == pytest.approx(1500)
    assert (gpu["energy_method"], gpu["power_mean_watts"]) == ("power_integral", pytest.approx(150))


@pytest.mark.parametrize("missing", [range(12, 19), range(18, 60)], ids=["a hole", "an end that is missing"])
def test_energy_is_not_told_where_samples_do_not_cover_the_span(filled: Filled, missing: range) -> None:
    seconds = [second for second in range(5, 25) if second not in missing]
    _fill(filled, held(11, 1), *(device_sample(s, power_watts=100.0, energy_joules_total=100.0 * s) for s in seconds))
    gpu = _by_device(filled)[GPU]
    assert (gpu["energy_joules"], gpu["energy_method"]) == (None, None)


def test_a_counter_that_was_set_back_falls_back_to_power(filled: Filled) -> None:
    counts = {second: 100.0 * second if second < 15 else 100.0 * (second - 15) for second in range(5, 25)}
    _fill(filled, held(11, 1), *(device_sample(s, power_watts=70.0, energy_joules_total=j) for s, j in counts.items()))
    gpu = _by_device(filled)[GPU]
    assert (gpu["energy_joules"], gpu["energy_method"]) == (pytest.approx(700), "power_integral")


def test_what_others_held_is_their_most_at_once_and_unknown_where_processes_are_not_told(filled: Filled) -> None:
    _fill(
        filled,
        held(12, 1000), held(12, 50, engine_id=None), held(12, 200, LLAMA),
        held(16, 1000), held(16, 300, engine_id=None),
        held(12, 700, device_id="GPU-1", method="device_delta"), held(12, 10, engine_id=None, device_id="GPU-1"),
    )  # fmt: skip
    rows = _by_device(filled)
    assert rows[GPU]["others_memory_bytes"] == 300
    assert rows["GPU-1"]["others_memory_bytes"] is None


def test_a_span_without_samples_is_told_as_such(filled: Filled) -> None:
    _fill(filled, held(2, 1000), held(40, 1000, device_id=None, method="rss"))
    assert {device_id: row["samples"] for device_id, row in _by_device(filled).items()} == {None: 0}


def test_other_engines_that_worked_meanwhile_are_told_with_what_they_share(filled: Filled) -> None:
    quiet, far = "sglang-30000", "vllm-10.0.0.7-8000"
    _fill(filled, engine(quiet), epoch("q", quiet), engine(far), epoch("f", far))
    for second in range(6, 24, 2):
        tokens = 100.0 * max(0, second - 12)  # llama.cpp begins after 12 s: 800 tokens by 20 s
        filled.put(
            sample(second, requests_running=2, generation_tokens_total=50.0 * second),
            sample(second, LIFE, LLAMA, requests_running=3.0 * (second > 12), generation_tokens_total=tokens),
            sample(second, "q", quiet, requests_running=0, generation_tokens_total=7.0),
            sample(second, "f", far, requests_running=1),
            held(second, 1000), held(second, 1, device_id=None, method="rss"),
            held(second, 500, LLAMA),
            held(second, 800, quiet, device_id="GPU-1"), held(second, 5, quiet, device_id=None, method="rss"),
        )  # fmt: skip
    told = _others(filled)
    assert set(told) == {LLAMA, quiet, far}
    llama = told[LLAMA]
    # Samples at 10, 12 ... 20 s: of them 14, 16, 18 and 20 s found it busy.
    assert (llama["samples"], llama["busy_samples"], llama["requests_running_max"]) == (6, 4, 3)
    assert (llama["generation_tokens"], llama["shares"]) == (800, "device")
    assert (told[quiet]["busy_samples"], told[quiet]["generation_tokens"], told[quiet]["shares"]) == (0, 0, "host")
    assert told[far]["shares"] == "unknown"


def test_engines_without_a_device_share_the_processor(filled: Filled) -> None:
    _fill(filled)
    for second in range(10, 20, 2):
        filled.put(
            sample(second, LIFE, LLAMA, requests_running=1),
            held(second, 10, device_id=None, method="rss"), held(second, 10, LLAMA, device_id=None, method="rss"),
        )  # fmt: skip
    assert _others(filled)[LLAMA]["shares"] == "cpu"


def _host(filled: Filled) -> list[dict[str, object]]:
    return filled.store.query("stage_host", SPAN).to_pylist()


def test_cores_of_the_host_and_of_the_engine_are_means_over_time_within_the_span(filled: Filled) -> None:
    # Of 8 cores. Host: the sample at 9 s is outside, that at 11 s tells of 9 to 11 s, so in part of what was before.
    # 11 to 13 s a half, 13 to 17 s a quarter, 17 to 19 s a half: (2 x 4 + 4 x 2 + 2 x 4) / 8 = 3 cores over 8 s.
    _fill(
        filled,
        *(host_sample(s, cpu_fraction=f, cpu_count=8)
          for s, f in ((9, 1.0), (11, 1.0), (13, 0.5), (17, 0.25), (19, 0.5), (21, 1.0))),
    )  # fmt: skip
    # Engine: two processes are summed. 10 to 12 s 3 cores, 12 to 20 s 0.5: (2 x 3 + 8 x 0.5) / 10 = 1 core over 10 s.
    for second, cores in ((8, 7.0), (10, 7.0), (12, 2.0), (20, 0.25), (22, 7.0)):
        other = 1.0 if second == 12 else cores
        _fill(
            filled,
            held(second, 5, device_id=None, method="rss", cpu_cores=cores),
            held(second, 5, device_id=None, method="rss", cpu_cores=other, pid=2),
            held(second, 5, LLAMA, device_id=None, method="rss", cpu_cores=6.0),
        )  # fmt: skip
    (row,) = _host(filled)
    assert row == {
        "host": "host-a", "cpu_count": 8, "busy_cores": pytest.approx(3), "engine_cores": pytest.approx(1),
        "covered_seconds": pytest.approx(8),
    }  # fmt: skip


@pytest.mark.parametrize("cores", [None, "elsewhere"], ids=["not readable", "no process of it on this host"])
def test_without_the_engines_own_cores_nothing_is_told_of_its_host(filled: Filled, cores: str | None) -> None:
    _fill(filled, *(host_sample(s, cpu_fraction=0.5, cpu_count=8) for s in range(10, 21)))
    if cores is None:
        _fill(filled, *(held(s, 5, device_id=None, method="rss", cpu_cores=None) for s in range(10, 21)))
    assert _host(filled) == []
