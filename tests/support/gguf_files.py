"""
Writes sparse GGUF files: a real header and tensor table by the `gguf` package, and no weights on the disk.

`write_spec` is a port of the generator that made the files behind fixtures/calculator/llama-fit-cases.jsonl.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf

Metadata = Mapping[str, int | float | str | bool | Sequence[int] | Sequence[bool] | Sequence[str]]
# name, shape with the fastest dimension first, type
TensorSpec = tuple[str, tuple[int, ...], str]


def _nbytes(shape: tuple[int, ...], kind: gguf.GGMLQuantizationType) -> int:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = 1
    for extent in shape:
        count *= extent
    return count // block * size


def write_gguf(path: Path, architecture: str, metadata: Metadata, tensors: Iterable[TensorSpec]) -> Path:
    """A file of these keys (the architecture is put before a key that begins with a dot) and tensors."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        full = f"{architecture}{key}" if key.startswith(".") else key
        if isinstance(value, bool):
            writer.add_bool(full, value)
        elif isinstance(value, int):
            writer.add_uint32(full, value)
        elif isinstance(value, float):
            writer.add_float32(full, value)
        elif isinstance(value, str):
            writer.add_string(full, value)
        else:
            writer.add_array(full, list(value))
    total = 0
    for name, shape, type_name in tensors:
        kind = gguf.GGMLQuantizationType[type_name]
        size = _nbytes(shape, kind)
        writer.tensors[-1][name] = gguf.gguf_writer.TensorInfo(shape=shape[::-1], dtype=kind, nbytes=size)
        total += gguf.GGUFWriter.ggml_pad(size, writer.data_alignment)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    out = writer.fout[0]
    writer.write_padding(out, out.tell())
    end = out.tell()
    out.flush()
    writer.close()
    os.truncate(path, end + total)
    return path


def spec_tensors(c: Mapping[str, Any]) -> Iterable[TensorSpec]:
    """The tensors of a llama, qwen2, qwen3 or qwen3moe model of these sizes."""
    quant = str(c["quant"])
    e, v, arch = int(c["n_embd"]), int(c["n_vocab"]), c["arch"]
    hd, heads, kv = int(c["head_dim"]), int(c["n_head"]), int(c["n_head_kv"])
    ff = int(c.get("n_ff", 0))
    yield "token_embd.weight", (e, v), str(c.get("embd_quant", quant))
    yield "output_norm.weight", (e,), "F32"
    if not c.get("tied"):
        yield "output.weight", (e, v), str(c.get("output_quant", "Q6_K"))
    for block in range(int(c["n_layer"])):
        p = f"blk.{block}."
        yield p + "attn_norm.weight", (e,), "F32"
        yield p + "attn_q.weight", (e, heads * hd), quant
        yield p + "attn_k.weight", (e, kv * hd), quant
        yield p + "attn_v.weight", (e, kv * hd), quant
        yield p + "attn_output.weight", (heads * hd, e), quant
        if arch == "qwen2":
            for name, width in (("q", heads * hd), ("k", kv * hd), ("v", kv * hd)):
                yield p + f"attn_{name}.bias", (width,), "F32"
        if arch in ("qwen3", "qwen3moe"):
            yield p + "attn_q_norm.weight", (hd,), "F32"
            yield p + "attn_k_norm.weight", (hd,), "F32"
        yield p + "ffn_norm.weight", (e,), "F32"
        if c.get("n_expert"):
            experts, width = int(c["n_expert"]), int(c["n_ff_exp"])
            yield p + "ffn_gate_inp.weight", (e, experts), "F32"
            yield p + "ffn_gate_exps.weight", (e, width, experts), quant
            yield p + "ffn_up_exps.weight", (e, width, experts), quant
            yield p + "ffn_down_exps.weight", (width, e, experts), quant
        else:
            yield p + "ffn_gate.weight", (e, ff), quant
            yield p + "ffn_up.weight", (e, ff), quant
            yield p + "ffn_down.weight", (ff, e), quant


def write_spec(path: Path, c: Mapping[str, Any]) -> Path:
    """A file from the `spec` of a fit case."""
    metadata: dict[str, int | float | str] = {
        "general.name": str(c["arch"]), ".block_count": int(c["n_layer"]), ".context_length": int(c["n_ctx"]),
        ".embedding_length": int(c["n_embd"]), ".feed_forward_length": int(c.get("n_ff", 0)),
        ".attention.head_count": int(c["n_head"]), ".attention.head_count_kv": int(c["n_head_kv"]),
        ".attention.key_length": int(c["head_dim"]), ".attention.value_length": int(c["head_dim"]),
        ".attention.layer_norm_rms_epsilon": 1e-6, ".rope.freq_base": 10000.0,
        ".rope.dimension_count": int(c["head_dim"]), ".vocab_size": int(c["n_vocab"]),
        "tokenizer.ggml.model": "none", "general.file_type": 15, "general.quantization_version": 2,
    }  # fmt: skip
    if c.get("n_expert"):
        metadata[".expert_count"] = int(c["n_expert"])
        metadata[".expert_used_count"] = int(c["n_expert_used"])
        metadata[".expert_feed_forward_length"] = int(c["n_ff_exp"])
    return write_gguf(path, str(c["arch"]), metadata, spec_tensors(c))
