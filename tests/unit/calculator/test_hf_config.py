"""config.json and safetensors files as they come, good and bad: facts are right or the message names the field."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from calculator import catalog
from calculator.hf_config import family_names, load_folder, model_from_config
from calculator.model import CalculatorError, MalformedModelError, MissingFactError, Shard, UnknownArchitectureError
from calculator.safetensors_header import read_folder, read_safetensors
from calculator.vllm_settings import VllmSettings, resolve
from calculator.vllm_weights import rank_weights

LLAMA = dict(catalog.find("Llama-3.2-1B-Instruct").config)


def build(changes: dict[str, Any], without: tuple[str, ...] = ()) -> None:
    """Build Llama 3.2 1B with changed fields."""
    config = {key: value for key, value in {**LLAMA, **changes}.items() if key not in without}
    model_from_config(config, name="changed", source="test")


@pytest.mark.parametrize(
    ("changes", "without", "error", "message"),
    [
        ({}, ("hidden_size",), MissingFactError, "hidden_size is missing"),
        ({}, ("vocab_size",), MissingFactError, "vocab_size is missing"),
        ({}, ("model_type",), MissingFactError, "model_type is missing"),
        ({"hidden_size": "2048"}, (), MalformedModelError, "hidden_size is '2048'"),
        ({"hidden_size": True}, (), MalformedModelError, "hidden_size is True"),
        ({"hidden_size": -1}, (), MalformedModelError, "hidden_size is -1"),
        ({"hidden_size": 2**60}, (), MalformedModelError, "hidden_size is"),
        ({"num_hidden_layers": 2**30}, (), MalformedModelError, "num_hidden_layers is"),
        ({"num_key_value_heads": 5}, (), MalformedModelError, "num_attention_heads 32 is not a multiple"),
        ({"hidden_size": 2049}, ("head_dim",), MalformedModelError, "head_dim is missing"),
        ({"layer_types": ["full_attention"]}, (), MalformedModelError, "layer_types has 1 entries for 16 layers"),
        ({"layer_types": ["strange"] * 16}, (), MalformedModelError, "'strange'"),
        ({"layer_types": ["sliding_attention"] * 16}, (), MissingFactError, "sliding_window is missing"),
        ({"tie_word_embeddings": "yes"}, (), MalformedModelError, "tie_word_embeddings is 'yes'"),
        ({"model_type": "rwkv9"}, (), UnknownArchitectureError, "model_type 'rwkv9' is not known"),
        ({"text_config": 3}, (), MalformedModelError, "text_config is 3"),
        ({"quantization_config": []}, (), MalformedModelError, "quantization_config is"),
    ],
)
def test_a_bad_field_is_named(
    changes: dict[str, Any], without: tuple[str, ...], error: type[CalculatorError], message: str
) -> None:
    with pytest.raises(error, match=message):
        build(changes, without)


def test_a_known_architecture_is_listed_when_another_is_refused() -> None:
    with pytest.raises(UnknownArchitectureError, match="llama"):
        build({"model_type": "none"})
    assert "llama" in family_names()


def test_more_used_experts_than_experts_is_a_contradiction() -> None:
    config = {**catalog.find("Qwen3-30B-A3B").config, "num_experts_per_tok": 129}
    with pytest.raises(MalformedModelError, match="129 exceeds the 128 experts"):
        model_from_config(config, name="x", source="test")


def test_a_pattern_of_another_length_than_the_layers_is_refused() -> None:
    config = {**catalog.find("NVIDIA-Nemotron-Nano-9B-v2").config, "hybrid_override_pattern": "M*-"}
    with pytest.raises(MalformedModelError, match="3 letters for 56 layers"):
        model_from_config(config, name="x", source="test")


def test_an_indexer_runs_only_where_the_schedule_says() -> None:
    """GLM-5.2 runs 21 of its 78 indexers (llama.cpp's cache of it); its schedule is one in four after the third."""
    config = {**catalog.find("GLM-5").config, "index_topk_freq": 4, "index_skip_topk_offset": 3}
    model = model_from_config(config, name="x", source="test")
    assert sum(layer.indexer_width is not None for layer in model.layers) == 21


Table = dict[str, tuple[str, list[int]]]


def write_safetensors(path: Path, table: Table) -> None:
    """Write a file of this table with a hole for its data, as the format says (huggingface/safetensors README)."""
    sizes = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U8": 1}
    header, end = {}, 0
    for name, (dtype, shape) in table.items():
        size = sizes[dtype]
        for part in shape:
            size *= part
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(raw)) + raw)
        file.truncate(8 + len(raw) + end)


def checkpoint(hidden: int = 64, layers: int = 2, vocab: int = 128) -> Table:
    """Give the tensors of a two-layer Llama, by the names of its modeling file."""
    out: Table = {"model.embed_tokens.weight": ("BF16", [vocab, hidden]), "model.norm.weight": ("BF16", [hidden])}
    for index in range(layers):
        base = f"model.layers.{index}"
        out |= {
            f"{base}.self_attn.q_proj.weight": ("BF16", [hidden, hidden]),
            f"{base}.self_attn.k_proj.weight": ("BF16", [hidden // 2, hidden]),
            f"{base}.self_attn.v_proj.weight": ("BF16", [hidden // 2, hidden]),
            f"{base}.self_attn.o_proj.weight": ("BF16", [hidden, hidden]),
            f"{base}.mlp.gate_proj.weight": ("BF16", [2 * hidden, hidden]),
            f"{base}.mlp.up_proj.weight": ("BF16", [2 * hidden, hidden]),
            f"{base}.mlp.down_proj.weight": ("BF16", [hidden, 2 * hidden]),
            f"{base}.input_layernorm.weight": ("BF16", [hidden]),
            f"{base}.post_attention_layernorm.weight": ("BF16", [hidden]),
        }
    return out


CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 128,
    "vocab_size": 128,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}


def test_a_folder_gives_the_bytes_of_its_files(tmp_path: Path) -> None:
    """Two files and an index; the sum of bytes is that of the files' data, the shapes agree with the configuration."""
    table = checkpoint()
    names = list(table)
    write_safetensors(tmp_path / "model-00001-of-00002.safetensors", {name: table[name] for name in names[:7]})
    write_safetensors(tmp_path / "model-00002-of-00002.safetensors", {name: table[name] for name in names[7:]})
    weight_map = {name: f"model-0000{1 if name in names[:7] else 2}-of-00002.safetensors" for name in names}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    model = load_folder(tmp_path)
    stored = sum(weight.stored_bytes or 0 for weight in model.weights)
    stored += sum(weight.stored_bytes or 0 for layer in model.layers for weight in layer.weights)
    files = sum(
        path.stat().st_size - 8 - struct.unpack("<Q", path.read_bytes()[:8])[0]
        for path in tmp_path.glob("*.safetensors")
    )
    assert stored == files == 2 * (model.parameters or 0)
    kept = {weight.shard: weight.stored_bytes for weight in model.layers[0].weights}
    assert kept[Shard.KV] == 2 * 2 * 32 * 64
    assert kept[Shard.ROW] == 2 * (64 * 64 + 64 * 128)


def test_a_tied_head_and_draft_blocks_are_not_counted(tmp_path: Path) -> None:
    table = checkpoint(layers=3) | {"lm_head.weight": ("BF16", [128, 64]), "mtp.fc.weight": ("BF16", [64, 128])}
    write_safetensors(tmp_path / "model.safetensors", table)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    model = load_folder(tmp_path)
    stored = sum(weight.stored_bytes or 0 for weight in model.weights)
    assert stored == 2 * (128 * 64 + 64)


def test_a_layer_without_stored_weights_is_told(tmp_path: Path) -> None:
    write_safetensors(tmp_path / "model.safetensors", checkpoint(layers=1))
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(MalformedModelError, match="no weights of layer 1,"):
        load_folder(tmp_path)


def test_stored_weights_are_planned_in_the_type_they_are_loaded_in(tmp_path: Path) -> None:
    """--dtype float32 doubles a BF16 checkpoint; --quantization fp8 halves its projections (and nothing else)."""
    write_safetensors(tmp_path / "model.safetensors", checkpoint())
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    model = load_folder(tmp_path)
    rotary, embedding = 512 * 16, 128 * 64
    projections = 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 64 * 128)
    norms = 5 * 64

    def size(**flags: Any) -> int:
        return rank_weights(model, resolve(VllmSettings(**flags), model, 1 << 30))[0]

    elements = rotary + embedding + projections + norms
    assert size() == 2 * elements
    assert size(dtype="float32") == 4 * elements
    scales = 4 * 2 * 3  # one of four bytes for each layer and kind of projection
    assert size(quantization="fp8") == 2 * (elements - projections) + projections + scales
    stages = rank_weights(model, resolve(VllmSettings(pipeline_parallel_size=2), model, 1 << 30))
    assert stages == [projections + 2 * (rotary + embedding + 2 * 64), projections + 2 * (rotary + embedding + 3 * 64)]


def test_a_folder_without_a_configuration_is_told(tmp_path: Path) -> None:
    with pytest.raises(MissingFactError, match=r"no config\.json"):
        load_folder(tmp_path)


def test_a_configuration_that_is_not_json_is_told(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[" * 100_000)
    with pytest.raises(MalformedModelError, match=r"config\.json: not JSON"):
        load_folder(tmp_path)


def test_modelopt_describes_its_quantisation_in_a_file_beside(tmp_path: Path) -> None:
    """hf_quant_config.json of NVIDIA ModelOpt checkpoints."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    described = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "group_size": 16}}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(described))
    assert load_folder(tmp_path).quantization == "nvfp4"


def entry(dtype: object, shape: object, offsets: object) -> bytes:
    """Give a header with one tensor, and 16 bytes of data."""
    raw = json.dumps({"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()
    return struct.pack("<Q", len(raw)) + raw + bytes(16)


OVERLAP = json.dumps(
    {
        "a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]},
        "b": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]},
    }
).encode()
HOSTILE: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "truncated or not safetensors"),
    "length 2^60": (lambda: struct.pack("<Q", 2**60) + b"{}", "claims 1152921504606846976 bytes"),
    "header beyond the file": (lambda: struct.pack("<Q", 100) + b"{}", "claims 100 bytes"),
    "not JSON": (lambda: struct.pack("<Q", 4) + b"\xff\x00{{", "not JSON"),
    "deep JSON": (lambda: struct.pack("<Q", 200_000) + b"[" * 200_000, "not JSON"),
    "a list": (lambda: struct.pack("<Q", 2) + b"[]", "not a JSON object"),
    "an entry that is no object": (lambda: struct.pack("<Q", 7) + b'{"a":1}', "not an object"),
    "unknown dtype": (lambda: entry("Q4", [4], [0, 16]), "dtype 'Q4'"),
    "negative shape": (lambda: entry("F32", [-4], [0, 16]), "shape of 'a'"),
    "shape of 2^60": (lambda: entry("F32", [2**60], [0, 16]), "shape of 'a'"),
    "offsets that don't fit the shape": (lambda: entry("F32", [2], [0, 16]), "needs 8 bytes"),
    "three offsets": (lambda: entry("F32", [4], [0, 16, 3]), "not two whole numbers"),
    "overlap": (lambda: struct.pack("<Q", len(OVERLAP)) + OVERLAP + bytes(12), "overlap at byte 4"),
    "truncated data": (lambda: entry("F32", [4], [0, 16])[:-4], "truncated or corrupt"),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_header_is_refused(tmp_path: Path, what: str) -> None:
    content, message = HOSTILE[what]
    path = tmp_path / "model.safetensors"
    path.write_bytes(content())
    with pytest.raises(MalformedModelError, match=message):
        read_safetensors(path)


def test_an_index_names_no_file_outside_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    write_safetensors(tmp_path / "secret.safetensors", checkpoint())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "../secret.safetensors"}}))
    with pytest.raises(MalformedModelError, match="outside the folder"):
        read_folder(folder)


def test_an_incomplete_download_is_told(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "x.safetensors"}}))
    with pytest.raises(MalformedModelError, match=r"x\.safetensors is missing"):
        read_folder(tmp_path)
