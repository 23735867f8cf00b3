"""
Where weights lie, and what a quantisation's name stands for.

Expected figures are what the engine printed (ids of tests/fixtures/calculator/memory-cases.jsonl) for files of
published models that llama-quantize made; the shapes are the catalogue's.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calculator import catalog
from calculator.gguf_header import read_header
from calculator.gguf_model import model_from_header
from calculator.llamacpp import plan_llamacpp, with_mix
from calculator.llamacpp_settings import LlamaCppSettings, SettingError, from_arguments
from calculator.llamacpp_weights import HOST, layer_devices, place_weights
from calculator.model import CalculatorError, Device, Model
from tests.support.gguf_files import write_spec

MIB = 1 << 20
FILE = Path(__file__).parents[2] / "fixtures" / "calculator" / "memory-cases.jsonl"
CASES = {row["id"]: row for row in map(json.loads, FILE.read_text().splitlines())}
PRINTED = {  # case -> model of the catalogue, mix
    "llama-34": ("Qwen3-14B", "Q8_0"),
    "llama-43": ("Qwen2.5-7B-Instruct", "Q4_K_M"),
    "llama-48": ("Qwen3-4B", "Q4_K_M"),
    "llama-64": ("Qwen3-235B-A22B", "Q8_0"),
    "llama-66": ("Llama-3.1-8B-Instruct", "Q4_K_M"),
    "llama-79": ("gemma-3-1b-it", "Q8_0"),
}
SPEC = {"arch": "qwen3moe", "n_layer": 8, "n_embd": 512, "n_head": 8, "n_head_kv": 2, "head_dim": 64, "n_ff": 1024,
        "n_vocab": 8192, "n_ctx": 32768, "quant": "Q8_0", "embd_quant": "Q8_0", "output_quant": "Q8_0", "tied": False,
        "n_expert": 16, "n_expert_used": 2, "n_ff_exp": 256}  # fmt: skip
# Bytes by the format: rows of 512 in Q8_0 take 512 / 32 * 34.
ROW = 512 // 32 * 34
EXPERTS = 16 * 3 * 256 * ROW  # gate, up and down of one block; rows of down are 256 / 32 * 34, twice as many
EMBEDDING = 8192 * ROW
REST = (2 * 8 * 64 + 2 * 2 * 64) * ROW + (2 * 512 + 2 * 64 + 16 * 512) * 4
OUTPUT = EMBEDDING + 512 * 4
GPUS = [Device("CUDA0", 24 << 30), Device("CUDA1", 24 << 30)]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return model_from_header(read_header(write_spec(tmp_path / "model.gguf", SPEC)))


@pytest.mark.parametrize("name", PRINTED)
def test_a_mix_by_name_has_the_printed_size(name: str) -> None:
    model_name, mix = PRINTED[name]
    settings = LlamaCppSettings(gpu_layers=0 if CASES[name]["settings"]["ngl"] == 0 else None)
    plan = plan_llamacpp(with_mix(catalog.load(model_name), mix), settings, [Device("CUDA0", 1 << 40)], remedies=False)
    printed = CASES[name]["observed"]["weights_mib"]
    total = sum(size for place, size in printed.items() if place != "AMX")  # AMX is a copy
    assert sum(part.weights_bytes for part in (*plan.devices, plan.host)) / MIB == pytest.approx(total, abs=0.02)
    if "CUDA0" in printed and name != "llama-64":
        assert plan.devices[0].weights_bytes / MIB == pytest.approx(printed["CUDA0"], abs=0.01)
        assert plan.host.weights_bytes / MIB == pytest.approx(printed["CPU_Mapped"], abs=0.01)


def test_a_name_without_a_mix_is_refused() -> None:
    with pytest.raises(CalculatorError, match="'UD-Q9' is no quantisation"):
        with_mix(catalog.load("Qwen3-4B"), "ud-q9")


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        # load_tensors of src/llama-model.cpp: the output counts as a layer and goes first, then the last blocks
        ("-ngl 0", [HOST] * 9),
        ("-ngl 1", [HOST] * 8 + [0]),
        ("-ngl 4 -sm none -mg 1", [HOST] * 5 + [1] * 4),
        ("-ngl 99", [0] * 5 + [1] * 4),  # 9 layers over equal halves: 0, 1/9 .. 4/9 < 1/2
        ("-ts 3,1", [0] * 7 + [1] * 2),
        ("-ts 1", [0] * 9),
        ("-ts 0,1", [1] * 9),
    ],
)
def test_layers_go_to_devices_as_the_engine_sends_them(model: Model, flags: str, expected: list[int]) -> None:
    assert layer_devices(model, from_arguments(flags.split()), GPUS) == expected


def test_free_memory_decides_where_no_split_is_given(model: Model) -> None:
    busy = [Device("CUDA0", 24 << 30, in_use_bytes=16 << 30), Device("CUDA1", 24 << 30)]
    # a quarter and three quarters of what is free: 9 layers, the first of them below 1/4 are 0, 1, 2
    assert layer_devices(model, LlamaCppSettings(), busy) == [0] * 3 + [1] * 6


@pytest.mark.parametrize("flags", ["-ts 1,1,1", "-sm none -mg 2", "-ot exps=CUDA7"])
def test_devices_that_are_not_there_are_named(model: Model, flags: str) -> None:
    with pytest.raises(SettingError):
        place_weights(model, from_arguments(flags.split()), GPUS)


def place(model: Model, flags: str) -> tuple[list[int], int]:
    placed = place_weights(model, from_arguments(flags.split()), GPUS[:1])
    return placed.device_bytes, placed.host_bytes


def test_every_byte_lies_somewhere(model: Model) -> None:
    whole = 8 * (EXPERTS + REST) + OUTPUT
    assert place(model, "") == ([whole], EMBEDDING)
    assert place(model, "-ngl 0") == ([0], whole + EMBEDDING)
    assert place(model, "-ngl 1") == ([OUTPUT], 8 * (EXPERTS + REST) + EMBEDDING)
    assert place(model, "--cpu-moe") == ([8 * REST + OUTPUT], 8 * EXPERTS + EMBEDDING)
    assert place(model, "--n-cpu-moe 3") == ([5 * EXPERTS + 8 * REST + OUTPUT], 3 * EXPERTS + EMBEDDING)
    assert place(model, "-ot blk\\.[0-2]\\.ffn_.*_exps=CPU") == place(model, "--n-cpu-moe 3")
    assert place(model, "-ot token_embd=CUDA0") == ([whole + EMBEDDING], 0)


def test_a_tied_embedding_lies_on_both_sides(tmp_path: Path) -> None:
    path = write_spec(tmp_path / "tied.gguf", SPEC | {"tied": True})
    tied = model_from_header(read_header(path))
    assert place(tied, "") == ([8 * (EXPERTS + REST) + OUTPUT], EMBEDDING)
    assert place(tied, "-ngl 0") == ([0], 8 * (EXPERTS + REST) + OUTPUT)  # one copy where both are on the host


def test_rows_are_shared_out_and_norms_are_not(model: Model) -> None:
    settings = from_arguments(["-sm", "row", "-ts", "3,1", "-ngl", "99"])
    placed = place_weights(model, settings, GPUS)
    assert sum(placed.device_bytes) == pytest.approx(8 * (EXPERTS + REST) + OUTPUT, abs=64)
    assert placed.device_bytes[0] / placed.device_bytes[1] == pytest.approx(3, rel=0.01)
    halves = place_weights(model, from_arguments(["-sm", "tensor"]), GPUS).device_bytes
    assert halves[0] == halves[1] == pytest.approx((8 * (EXPERTS + REST) + OUTPUT) / 2, abs=64)
