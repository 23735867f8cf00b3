"""
Layers from GGUF metadata, as llama.cpp's `load_arch_hparams` (src/models/*.cpp, b11434) makes them.

Expected layers and widths are written out from those sources and from published configurations, named in each test.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from calculator.gguf_header import read_header
from calculator.gguf_model import model_from_header
from calculator.model import Attention, MalformedModelError, Model, UnknownArchitectureError
from tests.support.gguf_files import write_gguf

BASE: dict[str, Any] = {
    ".block_count": 12, ".context_length": 8192, ".embedding_length": 1024, ".feed_forward_length": 2048,
    ".attention.head_count": 8, ".attention.head_count_kv": 2, ".attention.key_length": 128,
    ".attention.value_length": 128,
}  # fmt: skip
SSM = {".ssm.conv_kernel": 4, ".ssm.inner_size": 2048, ".ssm.state_size": 128, ".ssm.group_count": 16,
       ".ssm.time_step_rank": 16}  # fmt: skip


def load(tmp_path: Path, architecture: str, **changes: Any) -> Model:
    keys = BASE | changes
    keys = {key: value for key, value in keys.items() if value is not None}
    tensors = [("token_embd.weight", (256, 32_000), "F16")]
    return model_from_header(read_header(write_gguf(tmp_path / "m.gguf", architecture, keys, tensors)))


def sliding(model: Model) -> str:
    return "".join("s" if layer.window else "F" for layer in model.layers)


@pytest.mark.parametrize(
    ("architecture", "keys", "pattern", "window"),
    [
        # set_swa_pattern(n): layers with il % n < n - 1 slide; dense_first: il % n != 0
        ("llama", {".attention.sliding_window": 4096}, "F" * 12, None),  # ignored (Mistral 7B v0.1)
        ("phi3", {".attention.sliding_window": 2047}, "F" * 12, None),  # disabled in phi3.cpp
        ("gemma2", {}, "sF" * 6, 4096),
        ("gemma3", {".attention.sliding_window": 512}, "sssssF" * 2, 512),
        ("gemma3", {}, "F" * 12, None),
        ("gpt-oss", {".attention.sliding_window": 128, ".expert_count": 4, ".expert_used_count": 2}, "sF" * 6, 128),
        ("cohere2", {".attention.sliding_window": 4096}, "sssF" * 3, 4096),
        ("cohere2moe", {".attention.sliding_window": 4096}, "Fsss" * 3, 4096),
        ("laguna", {".attention.sliding_window": 512}, "Fsss" * 3, 512),
        ("smallthinker", {".attention.sliding_window": 2048}, "Fsss" * 3, 4096),
        ("olmo2", {".attention.sliding_window": 4096}, "sssF" * 3, 4096),
        ("llama4", {}, "sssF" * 3, 8192),
        ("llama4", {".attention.sliding_window": 0}, "F" * 12, None),
        ("exaone4", {".attention.sliding_window": 4096}, "F" * 12, None),  # only the model of 64 layers
        ("gemma3", {".attention.sliding_window": 512, ".attention.sliding_window_pattern": 3}, "ssF" * 4, 512),
        (
            "mimo2",
            {".attention.sliding_window": 128, ".attention.sliding_window_pattern": [False] + [True] * 11},
            "F" + "s" * 11,
            128,
        ),
    ],
)
def test_window_patterns(
    tmp_path: Path, architecture: str, keys: dict[str, Any], pattern: str, window: int | None
) -> None:
    model = load(tmp_path, architecture, **keys)
    assert sliding(model) == pattern
    assert {layer.window for layer in model.layers if layer.window} == ({window} if window else set())


def test_chunked_attention_is_named(tmp_path: Path) -> None:
    model = load(tmp_path, "llama4")
    assert [layer.attention for layer in model.layers[:4]] == [Attention.CHUNKED] * 3 + [Attention.FULL]


def test_exaone4_of_64_layers_slides(tmp_path: Path) -> None:
    assert sliding(load(tmp_path, "exaone4", **{".block_count": 64})) == "sssF" * 16


def test_gemma4_shares_caches_and_has_two_widths(tmp_path: Path) -> None:
    """google/gemma-4-E4B: 42 blocks, 18 of them without a cache; heads of 512 and of 256."""
    slides = [(index + 1) % 6 != 0 for index in range(42)]
    model = load(
        tmp_path, "gemma4",
        **{".block_count": 42, ".attention.sliding_window": 512, ".attention.sliding_window_pattern": slides,
           ".attention.shared_kv_layers": 18, ".attention.key_length": 512, ".attention.value_length": 512,
           ".attention.key_length_swa": 256, ".attention.value_length_swa": 256,
           ".embedding_length_per_layer_input": 256},
    )  # fmt: skip
    assert [layer.shares_kv for layer in model.layers] == [False] * 24 + [True] * 18
    assert {(layer.window, layer.head_dim_k) for layer in model.layers} == {(512, 256), (None, 512)}
    assert model.n_embd_per_layer == 256


def test_gemma3n_keeps_twenty_caches(tmp_path: Path) -> None:
    model = load(tmp_path, "gemma3n", **{".block_count": 35, ".attention.sliding_window": 512})
    assert sum(not layer.shares_kv for layer in model.layers) == 20


def test_heads_by_layer_mark_recurrent_layers(tmp_path: Path) -> None:
    """LiquidAI/LFM2-1.2B: attention at 2, 5, 8, 10, 12, 14 of 16; kernel 3 keeps two columns of 2048."""
    attention = (2, 5, 8, 10, 12, 14)
    model = load(
        tmp_path, "lfm2",
        **{".block_count": 16, ".embedding_length": 2048, ".shortconv.l_cache": 3,
           ".attention.head_count_kv": [8 if index in attention else 0 for index in range(16)]},
    )  # fmt: skip
    assert tuple(index for index, layer in enumerate(model.layers) if layer.attention is Attention.FULL) == attention
    states = {layer.state for index, layer in enumerate(model.layers) if index not in attention}
    assert {(state.kind, state.conv_elements, state.ssm_elements) for state in states if state} == {("lfm2", 4096, 0)}


def test_gated_delta_net_by_interval_and_mtp_block(tmp_path: Path) -> None:
    """Qwen3.5-0.8B: 24 layers, every fourth attention; the 25th block drafts. R 18432, S 262144 (case llama-19)."""
    model = load(tmp_path, "qwen35", **SSM, **{".block_count": 25, ".nextn_predict_layers": 1})
    assert len(model.layers) == 24
    assert [index for index, layer in enumerate(model.layers) if layer.state is None] == [3, 7, 11, 15, 19, 23]
    state = model.layers[0].state
    assert state is not None
    assert (state.conv_elements, state.ssm_elements) == (18432, 262144)
    assert model.mtp_layers[0].attention is Attention.FULL
    assert model.mtp_layers[0].state is None


def test_a_list_of_recurrent_layers_beats_the_interval(tmp_path: Path) -> None:
    stated = [True] * 11 + [False]
    model = load(tmp_path, "qwen3next", **SSM, **{".attention.recurrent_layers": stated})
    assert [layer.state is not None for layer in model.layers] == stated


def test_falcon_h1_has_both_in_every_layer(tmp_path: Path) -> None:
    model = load(tmp_path, "falcon-h1", **SSM)
    assert all(layer.state and layer.attention is Attention.FULL for layer in model.layers)


def test_nemotron_h_has_three_kinds_of_blocks(tmp_path: Path) -> None:
    kinds = "M-M*" * 3
    model = load(
        tmp_path, "nemotron_h", **SSM,
        **{".attention.head_count_kv": [2 if kind == "*" else 0 for kind in kinds],
           ".feed_forward_length": [4096 if kind == "-" else 0 for kind in kinds]},
    )  # fmt: skip
    found = "".join("M" if x.state else "*" if x.attention is Attention.FULL else "-" for x in model.layers)
    assert found == kinds


@pytest.mark.parametrize(("architecture", "layers"), [("mamba", SSM), ("mamba2", SSM)])
def test_mamba_has_states_and_no_cache(tmp_path: Path, architecture: str, layers: dict[str, Any]) -> None:
    model = load(tmp_path, architecture, **layers, **{".attention.head_count": 0, ".attention.head_count_kv": 0})
    assert {layer.attention for layer in model.layers} == {Attention.NONE}
    assert all(layer.state for layer in model.layers)


def test_rwkv_keeps_shifts_and_a_matrix_a_head(tmp_path: Path) -> None:
    """n_embd_r = token_shift_count * n_embd, n_embd_s = n_embd * wkv_head_size (src/llama-hparams.cpp)."""
    state = load(tmp_path, "rwkv7", **{".wkv.head_size": 64, ".attention.head_count": 0}).layers[0].state
    assert state is not None
    assert (state.conv_elements, state.ssm_elements) == (2 * 1024, 1024 * 64)


MLA = {".attention.kv_lora_rank": 512, ".attention.head_count": 128, ".expert_count": 8, ".expert_used_count": 2,
       ".leading_dense_block_count": 3}  # fmt: skip


def test_deepseek_is_compressed_where_the_file_says_so(tmp_path: Path) -> None:
    """deepseek2.cpp: with key_length_mla the cache is one latent of 512 + 64; files from before have whole heads."""
    new = load(
        tmp_path, "deepseek2",
        **MLA, **{".attention.head_count_kv": 1, ".attention.key_length": 576, ".attention.value_length": 512,
                  ".attention.key_length_mla": 192, ".attention.value_length_mla": 128},
    )  # fmt: skip
    assert {(x.attention, x.mla_width, x.mla_lora_rank) for x in new.layers} == {(Attention.MLA, 576, 512)}
    assert [x.experts for x in new.layers] == [0] * 3 + [8] * 9
    old = load(tmp_path, "deepseek2", **MLA, **{".attention.head_count_kv": 128, ".attention.key_length": 192})
    assert {(x.attention, x.n_head_kv, x.head_dim_k) for x in old.layers} == {(Attention.FULL, 128, 192)}


def test_glm_52_owns_an_indexer_in_21_of_78_layers(tmp_path: Path) -> None:
    """GLM_5_2_DEFAULT_INDEXER_TYPES of glm-dsa.cpp; before 5.2 every layer has one."""
    keys = MLA | {".block_count": 78, ".attention.head_count_kv": 1, ".attention.key_length": 576,
                  ".attention.value_length": 512, ".attention.key_length_mla": 256,
                  ".attention.value_length_mla": 256, ".attention.indexer.key_length": 128}  # fmt: skip
    late = load(tmp_path, "glm-dsa", **keys, **{".context_length": 1_048_576})
    assert [index for index, layer in enumerate(late.layers) if layer.indexer_width] == [0, 1, *range(2, 78, 4)]
    assert all(layer.indexer_width == 128 for layer in load(tmp_path, "glm-dsa", **keys).layers)


def test_head_width_falls_back_to_the_embedding(tmp_path: Path) -> None:
    model = load(tmp_path, "llama", **{".attention.key_length": None, ".attention.value_length": None})
    assert {(layer.head_dim_k, layer.head_dim_v) for layer in model.layers} == {(128, 128)}


def test_an_unknown_architecture_is_named_and_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(UnknownArchitectureError, match=r"m.gguf: the architecture 'hypernet' \(general.architecture\)"):
        load(tmp_path, "hypernet")


@pytest.mark.parametrize(
    ("architecture", "keys", "message"),
    [
        ("llama", {".block_count": None}, "llama.block_count is missing"),
        ("llama", {".block_count": 0}, "llama.block_count is 0; at least 1"),
        ("llama", {".block_count": 100_000}, "llama.cpp allows 512"),
        ("llama", {".embedding_length": None}, "llama.embedding_length is missing"),
        ("llama", {".embedding_length": "wide"}, "'wide'; a whole number"),
        ("llama", {".attention.head_count_kv": [1, 2]}, "llama.attention.head_count_kv has 2 elements for 12 layers"),
        ("llama", {".attention.head_count_kv": [1] * 5000}, "too long for the layers"),
        ("qwen35", {}, "qwen35.ssm.conv_kernel is missing"),
        ("cohere2", {}, "cohere2.attention.sliding_window is missing"),
        ("gemma4", {".attention.sliding_window": 5}, "gemma4.attention.sliding_window_pattern is missing"),
        ("qwen35", {".nextn_predict_layers": 12}, "is 12 of 12 blocks"),
        ("deepseek2", {".attention.key_length_mla": 192}, "deepseek2.attention.kv_lora_rank is missing"),
    ],
)
def test_contradictions_name_the_key(tmp_path: Path, architecture: str, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(MalformedModelError, match=message):
        load(tmp_path, architecture, **keys)
