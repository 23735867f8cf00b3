"""The plan of vLLM: budgets, parallelism, refusals and remedies, flags, the heat map. Sources stand at each figure."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from calculator import catalog
from calculator.hf_config import model_from_config
from calculator.model import Attention, CalculatorError, Device, Fits, MemoryPlan, Model
from calculator.sglang import SglangSettings, default_fraction, plan_sglang
from calculator.vllm import heat_map, plan_vllm
from calculator.vllm_kv import plan_kv
from calculator.vllm_outcome import compute
from calculator.vllm_settings import (
    VllmSettings,
    batch_defaults,
    command,
    from_arguments,
    parse_count,
    parse_version,
    resolve,
)
from calculator.vllm_weights import rank_weights, scheme_of, stages

GIB = 1 << 30
H100 = Device("H100", int(79.2 * GIB))
A10G = Device("A10G", int(22.07 * GIB))


def plan(name: str, device: Device = H100, count: int = 1, **flags: Any) -> MemoryPlan:
    """Plan a catalogue model on `count` devices."""
    return plan_vllm(catalog.load(name), VllmSettings(**flags), [device] * count)


def test_the_cpu_back_end_is_planned_as_it_printed() -> None:
    """
    vLLM 0.32.0 on a CPU, started on 1 December 2026: SmolLM2-135M, --dtype float32, --max-model-len 2048,
    1 GiB of cache: "CPU KV cache size: 23,296 tokens, Maximum concurrency for 2,048 tokens per request: 11.38x".
    """
    settings = VllmSettings(
        version="0.32.0",
        platform="cpu",
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=16,
        enforce_eager=True,
        kv_cache_memory_bytes=GIB,
    )
    found = plan_vllm(catalog.load("SmolLM2-135M-Instruct"), settings, [], Device("host", 18 * GIB))
    assert found.kv_capacity_tokens == 23_296
    assert found.max_concurrency == pytest.approx(11.38, abs=0.0051)
    assert found.devices == ()
    assert found.host.fits is Fits.YES
    # 134,515,008 parameters (its model card) in four bytes, and the rotary table of 8192 x 64
    assert found.host.weights_bytes == 4 * (134_515_008 + 8192 * 64)


def test_a_share_of_the_hosts_memory_leaves_what_the_cpu_back_end_printed() -> None:
    """
    vLLM 0.32.0 on a CPU, 1 December 2026, --gpu-memory-utilization 0.2: "Auto set (2.24/18.21) GiB for KV cache on
    node 0, with 3.59 GiB requested memory for the worker. 1.35 GiB memory was consumed by non-kv usages."
    """
    flags = VllmSettings(
        platform="cpu",
        dtype="float32",
        max_model_len=2048,
        max_num_seqs=16,
        enforce_eager=True,
        gpu_memory_utilization=0.2,
    )
    host = Device("host", int(3.59 / 0.2 * GIB))
    found = compute(catalog.load("SmolLM2-135M-Instruct"), flags, [], host, None)
    assert found.available.low <= 2.24 * GIB <= found.available.high


def test_utilization_defaults_by_version() -> None:
    """0.9 before, 0.92 from 0.20.2 (config/cache.py of either)."""
    model = catalog.load("Qwen3-8B")
    assert resolve(VllmSettings(version="0.20.1"), model, GIB).utilization == 0.9
    assert resolve(VllmSettings(version="0.20.2rc1+cu130"), model, GIB).utilization == 0.92


@pytest.mark.parametrize(
    ("gib", "name", "expected"),
    [
        (24, "RTX 4090", (2048, 256)),
        (79.2, "H100", (8192, 1024)),
        (79.2, "NVIDIA A100", (2048, 256)),
        (178, "B200", (16384, 1024)),
    ],
)
def test_batch_defaults_follow_the_device(gib: float, name: str, expected: tuple[int, int]) -> None:
    """arg_utils.py get_batch_defaults of 0.32.0, for the API server."""
    assert batch_defaults(VllmSettings(), int(gib * GIB), name) == expected


def test_graphs_are_inside_the_budget_since_0_21() -> None:
    """The engine's own words: "CUDA graph memory profiling is enabled (default since v0.21.0)"."""
    before = plan("Qwen3-8B", version="0.20.2")
    since = plan("Qwen3-8B", version="0.21.0")
    eager = plan("Qwen3-8B", version="0.21.0", enforce_eager=True)
    assert since.devices[0].kv_bytes < before.devices[0].kv_bytes
    assert eager.devices[0].kv_bytes == pytest.approx(before.devices[0].kv_bytes, rel=1e-4)
    assert eager.devices[0].overhead_bytes.high < since.devices[0].overhead_bytes.low


def test_explicit_cache_bytes_bypass_the_budget() -> None:
    """gpu_worker.py: "This does not respect the gpu_memory_utilization config"."""
    found = plan("Qwen3-8B", kv_cache_memory_bytes=10 * GIB, gpu_memory_utilization=0.1, max_model_len=8192)
    assert found.devices[0].kv_bytes == pytest.approx(10 * GIB, rel=1e-3)
    assert found.devices[0].fits is Fits.YES
    too_much = plan("Qwen3-8B", kv_cache_memory_bytes=70 * GIB, max_model_len=8192)
    assert too_much.devices[0].fits is Fits.NO


def test_a_shared_device_is_refused_in_the_engines_words() -> None:
    """v1/worker/utils.py request_memory."""
    device = Device("cuda:0", 80 * GIB, in_use_bytes=20 * GIB)
    found = plan("Qwen3-8B", device, max_model_len=8192)
    assert found.devices[0].fits is Fits.NO
    assert found.kv_capacity_tokens is None
    words = [note.text for note in found.notes if note.rule == "vllm-refuses"]
    assert words[0].startswith("Free memory on cuda:0 (60.00/80.00 GiB) on startup is less than desired GPU memory")
    assert "--gpu-memory-utilization 0.74" in found.remedies  # 60 of 80 GiB, less the driver's half


def test_a_cache_too_small_for_one_request_is_refused_in_the_engines_words() -> None:
    """v1/core/kv_cache_utils.py _check_enough_kv_cache_memory: 131072 tokens x 131072 bytes are 16 GiB."""
    found = plan("Llama-3.1-8B-Instruct", A10G)
    assert found.devices[0].fits is Fits.NO
    words = [note.text for note in found.notes if note.rule == "vllm-refuses"]
    assert words[0].startswith(
        "To serve at least one request with the model's max seq len (131072), 16.00 GiB KV cache is needed"
    )


@pytest.mark.parametrize(
    ("name", "device", "flags"),
    [
        ("Llama-3.1-8B-Instruct", A10G, {}),
        ("Qwen3-14B", A10G, {"max_model_len": 8192}),
        ("Qwen3-8B", Device("shared", 80 * GIB, in_use_bytes=30 * GIB), {}),
        ("gemma-3-27b-it", Device("RTX 5090", int(31.4 * GIB)), {}),
        ("Qwen3-8B", Device("one", 40 * GIB), {"kv_cache_memory_bytes": 30 * GIB}),
    ],
)
def test_every_remedy_makes_it_fit(name: str, device: Device, flags: dict[str, Any]) -> None:
    """A remedy is read back as the flags it is written in, and planned again."""
    found = plan(name, device, 4, **flags)
    assert found.devices[0].fits is Fits.NO
    assert found.remedies
    for remedy in found.remedies:
        changed = {key: value for key, value in flags.items() if remedy != "without --kv-cache-memory-bytes"}
        if not remedy.startswith("without"):
            given_flags = from_arguments(shlex.split(remedy))
            plain = VllmSettings()
            changed |= {
                key: getattr(given_flags, key)
                for key in VllmSettings.__dataclass_fields__
                if getattr(given_flags, key) != getattr(plain, key)
            }
        assert plan(name, device, 4, **changed).devices[0].fits is Fits.YES, remedy


def test_tensor_parallelism_divides_what_it_divides() -> None:
    """Each rank of two keeps half of 70.55 billion parameters but all norms (80 x 2 + 1 vectors of 8192)."""
    model = catalog.load("Llama-3.3-70B-Instruct")
    rotary = 131_072 * 128 * 2
    norms = (80 * 2 + 1) * 8192 * 2
    one = rank_weights(model, resolve(VllmSettings(), model, GIB))[0]
    two = rank_weights(model, resolve(VllmSettings(tensor_parallel_size=2), model, GIB))[0]
    assert one == 2 * 70_553_706_496 + rotary
    assert two == (one - rotary - norms) // 2 + rotary + norms


def test_pipeline_stages_hold_their_layers_and_ends() -> None:
    """Both stages together hold the model once; each has the rotary table."""
    model = catalog.load("Llama-3.1-70B-Instruct")
    parts = rank_weights(model, resolve(VllmSettings(pipeline_parallel_size=2), model, GIB))
    assert sum(parts) == 2 * 70_553_706_496 + 2 * 131_072 * 128 * 2
    assert plan("Llama-3.1-70B-Instruct", count=4, tensor_parallel_size=2, pipeline_parallel_size=2).devices[
        3
    ].weights_bytes == pytest.approx(parts[1] / 2, rel=0.01)


def test_a_pipeline_stage_holds_half_of_the_cache() -> None:
    """With half of the layers on each stage a block takes half the bytes, so the pool has twice the tokens."""
    one = plan("Qwen3-8B", kv_cache_memory_bytes=GIB, max_model_len=4096)
    two = plan("Qwen3-8B", count=2, kv_cache_memory_bytes=GIB, max_model_len=4096, pipeline_parallel_size=2)
    assert one.kv_capacity_tokens is not None
    assert two.kv_capacity_tokens is not None
    assert two.kv_capacity_tokens == pytest.approx(2 * one.kv_capacity_tokens, rel=0.01)


def test_layers_over_stages_as_vllm_splits_them() -> None:
    """distributed/utils.py get_pp_indices: the last stage takes none of the remainder."""
    assert [len(part) for part in stages(7, 3)] == [2, 3, 2]
    assert [len(part) for part in stages(61, 4)] == [15, 15, 16, 15]


def test_expert_parallelism_keeps_whole_experts() -> None:
    """Qwen3-30B-A3B on 4 ranks: 32 of 128 experts each, or a quarter of each: the same bytes; twice the ranks, half."""
    model = catalog.load("Qwen3-30B-A3B")
    expert_bytes = 48 * 128 * 3 * 768 * 2048 * 2

    def rank(**flags: Any) -> int:
        return rank_weights(model, resolve(VllmSettings(**flags), model, GIB))[0]

    cut = rank(tensor_parallel_size=4)
    whole = rank(tensor_parallel_size=4, enable_expert_parallel=True)
    wide = rank(tensor_parallel_size=4, data_parallel_size=2, enable_expert_parallel=True)
    assert cut == whole
    assert whole - wide == expert_bytes // 8


def test_heads_that_do_not_divide_are_refused_in_the_engines_words() -> None:
    """config/model.py verify_with_parallel_config."""
    with pytest.raises(CalculatorError, match=r"Total number of attention heads \(14\) must be divisible by tensor"):
        plan("Qwen2.5-0.5B-Instruct", count=4, tensor_parallel_size=4)


def test_mla_is_not_divided_by_tensor_parallelism() -> None:
    """576 elements of two bytes a token and layer on every rank (MLAAttentionSpec, one head)."""
    model = catalog.load("DeepSeek-V3")
    for tp in (1, 8):
        layout = plan_kv(model, resolve(VllmSettings(tensor_parallel_size=tp), model, GIB))
        assert layout.block_bytes == 61 * 64 * 576 * 2


def test_sparse_attention_in_fp8_takes_656_bytes_and_its_indexer_132() -> None:
    """DeepSeek V3.2's fp8_ds_mla (MLAAttentionSpec) and DeepseekV32IndexerCache."""
    model = catalog.load("DeepSeek-V3.2-Exp")
    layout = plan_kv(model, resolve(VllmSettings(kv_cache_dtype="fp8"), model, GIB))
    assert layout.block_bytes == 61 * 64 * (656 + 132)


def test_a_checkpoint_brings_the_type_of_its_cache() -> None:
    """utils/torch_utils.py: "auto" follows kv_cache_scheme or kv_cache_quant_algo of the checkpoint."""
    config = dict(catalog.find("Qwen3-8B").config)
    config["quantization_config"] = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}
    model = model_from_config(config, name="x", source="test")
    layout = plan_kv(model, resolve(VllmSettings(), model, GIB))
    assert layout.block_bytes == 36 * 16 * 8 * 256


def test_windows_keep_no_more_than_they_see_and_what_is_in_flight() -> None:
    """
    gpt-oss-20b, 12 full and 12 window layers: two groups. Full: 131072/16 blocks; window of 128:
    ceil((127 + in flight)/16) + 1, with one batch of 2048 in flight in 0.26, two in 0.32 (vllm#47728).
    """
    model = catalog.load("gpt-oss-20b")
    for version, batches in (("0.26.0", 1), ("0.32.0", 2)):
        layout = plan_kv(model, resolve(VllmSettings(version=version), model, 24 * GIB))
        assert layout.blocks_per_request == 8192 + -(-(127 + batches * 2048) // 16) + 1


def test_chunked_layers_keep_a_chunk() -> None:
    """Llama 4 Scout: 36 layers in chunks of 8192 make three groups beside one of 12 full layers."""
    model = catalog.load("Llama-4-Scout-17B-16E-Instruct")
    flags = VllmSettings(version="0.26.0", max_model_len=1_000_000, max_num_batched_tokens=8192)
    layout = plan_kv(model, resolve(flags, model, GIB))
    assert [group.spec.kind for group in layout.groups].count(Attention.CHUNKED) == 3
    assert layout.blocks_per_request == 62_500 + 3 * (16_384 // 16)


def test_disabling_the_hybrid_manager_keeps_everything() -> None:
    """unify_hybrid_kv_cache_specs: window layers become full ones, in one group."""
    model = catalog.load("gpt-oss-20b")
    layout = plan_kv(model, resolve(VllmSettings(disable_hybrid_kv_cache_manager=True), model, 24 * GIB))
    assert len(layout.groups) == 1
    assert layout.blocks_per_request == 8192


def test_a_draft_block_takes_weights_and_cache() -> None:
    """One more full layer joins the sixteen of Qwen3.6-27B (vllm-38: 17 layers, 332 blocks)."""
    model = catalog.load("Qwen3.6-27B")
    plain = resolve(VllmSettings(), model, GIB)
    drafting = resolve(VllmSettings(draft="mtp", num_speculative_tokens=1), model, GIB)
    assert max(len(group.layers) for group in plan_kv(model, drafting).groups) == 17
    added = rank_weights(model, drafting)[0] - rank_weights(model, plain)[0]
    assert added == 2 * sum(layer.parameters or 0 for layer in model.mtp_layers)


# Bytes of a weight: what create_weights of vLLM's quantization/ allocates for a large matrix.
SCHEMES = [
    ({"quant_method": "awq", "bits": 4, "group_size": 128}, 0.51953),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, 0.51953),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, 1 + 4 / 16384),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 0.5625),
    ({"quant_method": "mxfp4"}, 0.53125),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True}, 0.5625),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"weights": {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}}},
        },
        0.5625,
    ),
    (
        {
            "quant_method": "compressed-tensors",
            "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
        },
        1 + 4 / 4096,
    ),
]


@pytest.mark.parametrize(("config", "expected"), SCHEMES)
def test_bytes_of_a_quantised_weight(config: dict[str, Any], expected: float) -> None:
    base = {**catalog.find("Qwen3-8B").config, "quantization_config": config}
    scheme = scheme_of(model_from_config(base, name="x", source="test"), None)
    assert scheme is not None
    assert scheme.size(4096, 4096, 1) / 4096**2 == pytest.approx(expected, rel=1e-4)


def test_gpt_oss_is_as_large_as_its_checkpoint() -> None:
    """arXiv 2508.10925, table 1: the checkpoint of gpt-oss-20b is 12.8 GiB, that of gpt-oss-120b 60.8 GiB."""
    for name, gib in (("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)):
        model = catalog.load(name)
        assert rank_weights(model, resolve(VllmSettings(), model, GIB))[0] / GIB == pytest.approx(gib, rel=0.01)


def test_an_unknown_quantisation_is_refused_by_name() -> None:
    config = {**catalog.find("Qwen3-8B").config, "quantization_config": {"quant_method": "strange"}}
    with pytest.raises(CalculatorError, match="'strange' has no rule here"):
        plan_vllm(model_from_config(config, name="x", source="test"), VllmSettings(), [H100])


def test_a_list_of_exceptions_leaves_layers_alone() -> None:
    """Two blocks of Qwen3-8B in 16 bits instead of FP8: 2 x 192,937,984 linear weights, one byte more each."""
    base = catalog.find("Qwen3-8B").config
    config = {"quant_method": "fp8"}
    names = ["lm_head", "model.layers.0", "re:model.layers.35.*"]

    def size(quantization: dict[str, Any]) -> int:
        model = model_from_config({**base, "quantization_config": quantization}, name="x", source="test")
        return rank_weights(model, resolve(VllmSettings(), model, GIB))[0]

    linear = 4096 * (4096 + 2 * 1024 + 4096) + 3 * 4096 * 12288
    scales = 4 * 4  # one of four bytes for each of q, k, v, o; gate_up and down have two
    difference = size({**config, "modules_to_not_convert": names}) - size(config)
    assert difference == pytest.approx(2 * linear, abs=2 * 2 * scales)


def test_flags_are_read_and_written() -> None:
    words = shlex.split(
        "Qwen/Qwen3-8B --tensor-parallel-size 2 --gpu-memory-utilization=0.85 --max-model-len 32K -q fp8 --port 9 "
        "--no-enable-prefix-caching --enforce-eager --kv-cache-dtype fp8 --api-key secret "
        '--speculative-config \'{"method": "mtp", "num_speculative_tokens": 2}\''
    )
    found = from_arguments(words, version="0.30.1")
    assert found == VllmSettings(
        version="0.30.1",
        tensor_parallel_size=2,
        gpu_memory_utilization=0.85,
        max_model_len=32_768,
        quantization="fp8",
        enable_prefix_caching=False,
        enforce_eager=True,
        kv_cache_dtype="fp8",
        draft="mtp",
        num_speculative_tokens=2,
    )
    again = from_arguments(shlex.split(command(found, "Qwen/Qwen3-8B"))[2:], version="0.30.1")
    assert again == found
    assert "secret" not in command(found, "Qwen/Qwen3-8B")


@pytest.mark.parametrize(("text", "value"), [("4096", 4096), ("32k", 32_000), ("32K", 32_768), ("1.5G", 1_610_612_736)])
def test_numbers_as_vllm_reads_them(text: str, value: int) -> None:
    """utils/argparse_utils.py human_readable_int: small letters decimal, capitals binary."""
    assert parse_count(text) == value


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"gpu_memory_utilization": 1.5}, "--gpu-memory-utilization is 1.5"),
        ({"tensor_parallel_size": 0}, "--tensor-parallel-size is 0"),
        ({"max_model_len": -5}, "--max-model-len is -5"),
        ({"kv_cache_dtype": "q8_0"}, "--kv-cache-dtype 'q8_0'"),
        ({"dtype": "int3"}, "--dtype 'int3'"),
        ({"version": "latest"}, "'latest' is not a version"),
        ({"tensor_parallel_size": 2}, "needs 2 devices; 1 are given"),
        ({"platform": "tpu"}, "platform 'tpu'"),
        ({"pipeline_parallel_size": 99}, "needs 99 devices"),
    ],
)
def test_bad_settings_are_told(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(CalculatorError, match=message):
        plan("Qwen3-8B", **flags)


def test_bad_flags_are_told() -> None:
    for words in (["--max-model-len"], ["--max-model-len", "many"], ["--gpu-memory-utilization", "much"]):
        with pytest.raises(CalculatorError, match=words[0]) if len(words) == 1 else pytest.raises(CalculatorError):
            from_arguments(words)


def test_versions_are_read() -> None:
    assert parse_version("0.11.1rc2.dev3+gabc") == (0, 11, 1)
    assert parse_version("v0.9") == (0, 9, 0)


def test_a_heat_map_agrees_with_the_plan() -> None:
    """At the longest request the map says yes for as many users as the plan's lowest concurrency, and no above it."""
    model, flags = catalog.load("Qwen3-8B"), VllmSettings(max_model_len=32_768)
    found = plan_vllm(model, flags, [H100])
    assert found.max_concurrency is not None
    users = list(range(1, 40))
    column = [row[0] for row in heat_map(model, flags, [H100], [32_768], users)]
    surely = column.count(Fits.YES)
    assert surely <= found.max_concurrency <= surely + column.count(Fits.MAYBE) + 1
    shorter = heat_map(model, flags, [H100], [1024, 8192, 32_768, 40_000], [8, 64, 512])
    order = [Fits.YES, Fits.MAYBE, Fits.NO]
    for row in shorter:
        assert [order.index(value) for value in row] == sorted(order.index(value) for value in row)
        assert row[3] is Fits.NO  # longer than max_model_len


NAMES = (
    "Qwen3-8B",
    "gpt-oss-20b",
    "Qwen3.6-27B",
    "DeepSeek-V2-Lite-Chat",
    "gemma-3-27b-it",
    "LFM2-1.2B",
    "Falcon-H1-7B-Instruct",
)


@hypothesis_settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(NAMES),
    gib=st.integers(1, 200),
    more=st.integers(1, 100),
    length=st.sampled_from([512, 4096, 16_384]),
    version=st.sampled_from(["0.11.0", "0.21.0", "0.32.0"]),
)
def test_more_memory_never_holds_less(name: str, gib: int, more: int, length: int, version: str) -> None:
    """For any model, size and version: no negative figure, and a larger cache holds at least as much."""
    model = catalog.load(name)
    found = [
        plan_vllm(
            model,
            VllmSettings(version=version, max_model_len=length, kv_cache_memory_bytes=size * GIB),
            [Device("d", 400 * GIB)],
        )
        for size in (gib, gib + more)
    ]
    small, large = (item.kv_capacity_tokens for item in found)
    assert small is not None
    assert large is not None
    assert 0 <= small <= large
    assert found[0].devices[0].kv_bytes <= gib * GIB
    assert all(part.devices[0].compute_bytes.low > 0 for part in found)


def model_without_vocabulary_multiple() -> Model:
    """Give a model whose vocabulary is no multiple of 64."""
    return model_from_config({**catalog.find("Qwen3-8B").config, "vocab_size": 151_937}, name="x", source="test")


def test_the_vocabulary_is_padded_to_64() -> None:
    """vocab_parallel_embedding.py pad_vocab_size: 151,937 becomes 152,000, for the embedding and the head."""
    padded = model_without_vocabulary_multiple()
    plain = catalog.load("Qwen3-8B")
    grown = rank_weights(padded, resolve(VllmSettings(), padded, GIB))[0]
    assert grown - rank_weights(plain, resolve(VllmSettings(), plain, GIB))[0] == 2 * 64 * 4096 * 2


def test_sglang_pool_and_default_fraction() -> None:
    """
    tokens = (free - weights - free x (1 - fraction)) / bytes of a token; Llama-3.1-8B takes 128 KiB a token.
    The default on 80 GiB reserves 512 + 1.5 x 8192 + 2 x 256 + 128 MiB (arg_groups/memory_hook.py).
    """
    model = catalog.load("Llama-3.1-8B-Instruct")
    device = Device("H100", 80 * GIB)
    assert default_fraction(SglangSettings(), device.capacity_bytes) == pytest.approx(1 - 13_440 / 81_920, abs=0.001)
    found = plan_sglang(model, SglangSettings(mem_fraction_static=0.85), [device])
    weights = found.devices[0].weights_bytes
    assert found.kv_capacity_tokens == (int(0.85 * 80 * GIB) - weights) // 131_072
    assert found.devices[0].fits is Fits.YES
    small = plan_sglang(model, SglangSettings(), [A10G])
    assert small.devices[0].fits is Fits.NO
    assert small.remedies
    with pytest.raises(CalculatorError, match="sliding layers"):
        plan_sglang(catalog.load("gpt-oss-20b"), SglangSettings(), [device])
