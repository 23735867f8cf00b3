"""
What a plan of llama.cpp adds up to, when it fits, and what it advises.

Sizes are worked out by hand from the sources named in `calculator.llamacpp_cache`; remedies are planned again here.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calculator import catalog
from calculator.gguf_header import read_header
from calculator.gguf_model import model_from_header
from calculator.llamacpp import plan_llamacpp, with_mix
from calculator.llamacpp_settings import LlamaCppSettings, from_arguments
from calculator.model import (
    CalculatorError,
    Device,
    Fits,
    MemoryPlan,
    MissingFactError,
    Model,
    UnknownArchitectureError,
)
from tests.support.gguf_files import write_gguf, write_spec

MIB, GIB = 1 << 20, 1 << 30
SPEC: dict[str, Any] = {
    "arch": "qwen3moe", "n_layer": 8, "n_embd": 512, "n_head": 8, "n_head_kv": 2, "head_dim": 64, "n_ff": 1024,
    "n_vocab": 8192, "n_ctx": 32768, "quant": "Q8_0", "embd_quant": "Q8_0", "output_quant": "Q8_0", "tied": False,
    "n_expert": 16, "n_expert_used": 2, "n_ff_exp": 256,
}  # fmt: skip
GPU = [Device("CUDA0", 24 * GIB)]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    return model_from_header(read_header(write_spec(tmp_path / "model.gguf", SPEC)))


def plan(model: Model, flags: str = "", devices: list[Device] | None = None, **more: Any) -> MemoryPlan:
    return plan_llamacpp(model, from_arguments(flags.split()), GPU if devices is None else devices, **more)


# 8 layers, K and V of 2 heads of 64: 256 numbers a token and layer
@pytest.mark.parametrize(
    ("flags", "cells", "per_token_layer"),
    [
        ("-c 1000", 1024, 512),  # padded to 256, two bytes
        ("-c 1000 -np 3", 3 * 512, 512),  # 1024 / 3 = 341, padded to 512, three streams
        ("-c 1000 -np 3 -kvu", 1024, 512),  # shared
        ("", 32768, 512),  # the training context, four slots share it
        ("-c 1024 -ctk q8_0 -ctv q4_0", 1024, 128 // 32 * 34 + 128 // 32 * 18),
        ("-c 1024 -ctk f32", 1024, 512 + 256),
    ],
)
def test_cells_and_cache(model: Model, flags: str, cells: int, per_token_layer: int) -> None:
    result = plan(model, flags)
    assert result.context_cells == result.kv_capacity_tokens == cells
    assert result.devices[0].kv_bytes == 8 * cells * per_token_layer
    assert result.host.kv_bytes == 0


def test_concurrency_is_of_full_length(model: Model) -> None:
    assert plan(model, "-c 8192 -np 4").max_concurrency == 4
    assert plan(model, "-c 8192 -np 4 -kvu").max_concurrency == 1


def test_the_cache_follows_its_layers_or_stays(model: Model) -> None:
    whole = plan(model, "-c 8192").devices[0].kv_bytes
    half = plan(model, "-c 8192 -ngl 5")  # the output and the last four blocks
    assert half.devices[0].kv_bytes == half.host.kv_bytes == whole // 2
    assert plan(model, "-c 8192 --no-kv-offload").host.kv_bytes == whole


def test_a_file_without_context_asks_for_one(tmp_path: Path) -> None:
    model = model_from_header(read_header(write_spec(tmp_path / "m.gguf", SPEC)))
    with pytest.raises(MissingFactError, match="state the context with -c"):
        plan(replace(model, context_train=None))


def test_an_architecture_without_rules_is_refused(model: Model) -> None:
    with pytest.raises(UnknownArchitectureError, match="'HyperNet'"):
        plan(replace(model, architecture="HyperNet"))


def test_verdicts_follow_the_interval(model: Model) -> None:
    total = plan(model, "-c 8192").devices[0].total_bytes
    assert total.low < total.high

    def verdict(capacity: int, in_use: int = 0) -> Fits | None:
        return plan(model, "-c 8192", [Device("CUDA0", capacity, in_use)], remedies=False).devices[0].fits

    assert verdict(total.high) is Fits.YES
    assert verdict(total.high - 1) is Fits.MAYBE
    assert verdict(total.low - 1) is Fits.NO
    assert verdict(total.high + GIB, GIB) is Fits.YES
    assert verdict(total.high + GIB - 1, GIB) is Fits.MAYBE


def test_the_host_is_judged_where_it_is_stated(model: Model) -> None:
    assert plan(model).host.fits is None
    assert plan(model, host=Device("host", 64 * GIB)).host.fits is Fits.YES
    assert plan(model, devices=[], host=Device("host", 10 * MIB), remedies=False).host.fits is Fits.NO


def test_unified_memory_holds_both_sides(model: Model) -> None:
    apart = plan(model, "-c 8192")
    need = apart.devices[0].total_bytes.high + apart.host.total_bytes.high
    shared = plan(model, "-c 8192", [Device("MTL0", need - 1, unified=True)], remedies=False)
    assert shared.devices[0].fits is Fits.MAYBE
    assert plan(model, "-c 8192", [Device("MTL0", need, unified=True)]).devices[0].fits is Fits.YES


@pytest.mark.parametrize(
    ("name", "flags", "capacity", "slots"),
    [
        ("Llama-3.1-8B-Instruct", "-c 131072", 16 * GIB, 2),
        ("Qwen3-30B-A3B", "-c 16384", 12 * GIB, 1),
        ("Mistral-7B-Instruct-v0.3", "-c 32768 -np 8", 8 * GIB, 1),
    ],
)
def test_remedies_make_it_fit(name: str, flags: str, capacity: int, slots: int) -> None:
    model = with_mix(catalog.load(name), "Q4_K_M")
    devices = [Device("CUDA0", capacity)]
    first = plan(model, flags, devices)
    assert first.devices[0].fits is Fits.NO
    assert first.remedies
    for remedy in first.remedies:
        may = remedy.endswith(" (may fit)")
        changed = from_arguments([*flags.split(), *remedy.removesuffix(" (may fit)").split()])
        again = plan_llamacpp(model, changed, devices, remedies=False)
        assert again.devices[0].fits is (Fits.MAYBE if may else Fits.YES), remedy


def test_a_remedy_is_the_least_that_helps() -> None:
    model = with_mix(catalog.load("Qwen3-30B-A3B"), "Q4_K_M")
    devices = [Device("CUDA0", 12 * GIB)]
    found = next(r for r in plan(model, "-c 16384", devices).remedies if r.startswith("--n-cpu-moe"))
    blocks = int(found.split()[1])
    less = plan(model, f"-c 16384 --n-cpu-moe {blocks - 1}", devices, remedies=False)
    assert less.devices[0].fits is not Fits.YES


def test_what_fits_gets_no_advice(model: Model) -> None:
    assert plan(model, "-c 8192").remedies == ()


def test_projector_and_draft_come_on_top(model: Model, tmp_path: Path) -> None:
    alone = plan(model, "-c 8192 -np 1")
    settings = replace(from_arguments("-c 8192 -np 1".split()), mmproj_bytes=500 * MIB)  # noqa: SIM905
    with_projector = plan_llamacpp(model, settings, GPU)
    assert with_projector.devices[0].weights_bytes == alone.devices[0].weights_bytes + 500 * MIB
    small = SPEC | {"arch": "qwen3", "n_layer": 2, "n_expert": 0}
    draft = model_from_header(read_header(write_spec(tmp_path / "draft.gguf", small)))
    both = plan(model, "-c 8192 -np 1", draft=draft)
    own = plan(draft, "-c 8192 -np 1")
    assert both.devices[0].weights_bytes == alone.devices[0].weights_bytes + own.devices[0].weights_bytes
    assert both.devices[0].kv_bytes == alone.devices[0].kv_bytes + own.devices[0].kv_bytes
    assert both.devices[0].compute_bytes == alone.devices[0].compute_bytes + own.devices[0].compute_bytes


def test_mtp_has_a_cache_and_rows_to_take_back(tmp_path: Path) -> None:
    """Cases llama-04, llama-56 and llama-89: a context over the MTP block, and 1 + n states a slot."""
    keys = {
        ".block_count": 5, ".nextn_predict_layers": 1, ".context_length": 8192, ".embedding_length": 1024,
        ".feed_forward_length": 2048, ".attention.head_count": 8, ".attention.head_count_kv": 2,
        ".attention.key_length": 128, ".attention.value_length": 128, ".ssm.conv_kernel": 4, ".ssm.inner_size": 2048,
        ".ssm.state_size": 128, ".ssm.group_count": 16, ".ssm.time_step_rank": 16,
    }  # fmt: skip
    path = write_gguf(tmp_path / "m.gguf", "qwen35", keys, [("token_embd.weight", (1024, 32_000), "Q8_0")])
    model = model_from_header(read_header(path))
    plain = plan(model, "-c 8192 -np 1")
    drafting = plan(model, "-c 8192 -np 1 --spec-type draft-mtp --draft-max 2")
    one_layer = 8192 * 2 * (2 * 128 + 2 * 128)
    assert plain.devices[0].kv_bytes == one_layer  # one of four blocks has attention
    assert drafting.devices[0].kv_bytes == 2 * one_layer
    assert drafting.devices[0].state_bytes == 3 * plain.devices[0].state_bytes == 3 * 3 * (18432 + 262144) * 4


def test_every_rule_is_noted_with_its_source() -> None:
    model = with_mix(catalog.load("gemma-3-12b-it"), "Q4_K_M")
    notes = {note.rule: note for note in plan(model, "-c 8192").notes}
    assert {"context_cells", "compute_buffers", "overhead", "estimated_weights", "sliding_window"} <= set(notes)
    assert all(note.source for note in notes.values())
    # 1024 + one micro-batch of 512 for each of 4 slots on one cache: 4 * 1024 + 512
    assert "keep 4608 cells instead of 8192" in notes["sliding_window"].text


def test_a_build_changes_the_rules() -> None:
    model = with_mix(catalog.load("gemma-3-12b-it"), "Q4_K_M")
    before = plan_llamacpp(model, LlamaCppSettings(context=8192, parallel=1, build=5000), GPU)
    after = plan_llamacpp(model, LlamaCppSettings(context=8192, parallel=1, build=11434), GPU)
    assert before.devices[0].kv_bytes == 48 * 8192 * 2 * (8 * 256 + 8 * 256)  # every layer in full
    # google/gemma-3-12b: 40 of 48 layers keep 1024 + 512 cells
    assert after.devices[0].kv_bytes == (8 * 8192 + 40 * 1536) * 2 * (8 * 256 + 8 * 256)


def test_a_compressed_cache_is_refused_for_builds_that_had_none() -> None:
    """ggml-org/llama.cpp#12801 (2025-04) brought the compressed cache; b4905 kept 71 times as much (case llama-63)."""
    settings = from_arguments(["-c", "4096", "-np", "1"], "b4905")
    with pytest.raises(CalculatorError, match="#12801"):
        plan_llamacpp(with_mix(catalog.load("DeepSeek-R1"), "Q4_K_M"), settings, [Device("CUDA0", 800 * GIB)])
