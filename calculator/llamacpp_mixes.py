"""
What a quantisation's name stands for, for a model whose GGUF file is not at hand: an estimate, and marked as one.

A name does not define sizes: makers of files choose types by their own lists. These are the mixes of llama-quantize
(src/llama-quant.cpp of llama.cpp b11434: `llama_tensor_get_type`), without an importance matrix.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from calculator.ggml_types import TYPE_BY_NAME, tensor_bytes
from calculator.model import CalculatorError, Layer, Model, Tensor, Weight

DEFAULT_MIX = "Q4_K_M"
OF_CHECKPOINTS = {"mxfp4": "MXFP4_MOE", "bf16": "BF16"}  # how converted files of such checkpoints are made
# name of the mix -> the type of most matrices
BASE = {
    "F32": "F32", "F16": "F16", "BF16": "BF16", "Q8_0": "Q8_0", "Q4_0": "Q4_0", "Q4_1": "Q4_1", "Q5_0": "Q5_0",
    "Q5_1": "Q5_1", "Q2_K": "Q2_K", "Q3_K_S": "Q3_K", "Q3_K_M": "Q3_K", "Q3_K_L": "Q3_K", "Q4_K_S": "Q4_K",
    "Q4_K_M": "Q4_K", "Q5_K_S": "Q5_K", "Q5_K_M": "Q5_K", "Q6_K": "Q6_K", "IQ4_XS": "IQ4_XS", "IQ4_NL": "IQ4_NL",
    "IQ3_M": "IQ3_S", "IQ2_M": "IQ2_S",
    "IQ3_S": "IQ3_S", "IQ3_XXS": "IQ3_XXS", "IQ2_XXS": "IQ2_XXS", "IQ2_XS": "IQ2_XS", "IQ2_S": "IQ2_S",
    "IQ1_S": "IQ1_S", "IQ1_M": "IQ1_M", "MXFP4_MOE": "Q8_0", "TQ1_0": "TQ1_0", "TQ2_0": "TQ2_0",
}  # fmt: skip
# Where a row is no multiple of 256, a type of 32 takes over (`tensor_type_fallback`).
_FALLBACK = {
    "Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0", "IQ4_XS": "IQ4_NL",
    "IQ3_S": "IQ4_NL", "IQ3_XXS": "IQ4_NL", "IQ2_XXS": "IQ4_NL", "IQ2_XS": "IQ4_NL", "IQ2_S": "IQ4_NL",
    "IQ1_S": "IQ4_NL", "IQ1_M": "IQ4_NL", "TQ1_0": "Q4_0", "TQ2_0": "Q4_0",
}  # fmt: skip
_WHOLE = ("F32", "F16", "BF16")
_TINY = ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M", "IQ1_S", "IQ1_M")
_EMBEDDING = {
    "IQ2_XXS": "Q2_K", "IQ2_XS": "Q2_K", "IQ1_S": "Q2_K", "IQ1_M": "Q2_K", "IQ2_S": "IQ3_S", "IQ2_M": "IQ3_S",
    "IQ3_XXS": "IQ3_S", "TQ1_0": "Q4_K", "TQ2_0": "Q4_K",
}  # fmt: skip
# Hugging Face names of a block's matrices -> the role that the mixes speak of, and the GGUF name
_ROLES = (
    (re.compile(r"experts.*(?:gate_up|gate|up|w1|w3)"), "ffn_up_exps"),
    (re.compile(r"experts.*(?:down|w2)"), "ffn_down_exps"),
    (re.compile(r"experts"), "ffn_up_exps"),
    (re.compile(r"v_proj"), "attn_v"),
    (re.compile(r"k_proj"), "attn_k"),
    (re.compile(r"q_proj"), "attn_q"),
    (re.compile(r"qkv"), "attn_qkv"),
    (re.compile(r"o_proj|attention\.dense"), "attn_output"),
    (re.compile(r"down_proj|w2|fc2|c_proj"), "ffn_down"),
    (re.compile(r"gate_proj|w1"), "ffn_gate"),
    (re.compile(r"up_proj|w3|fc1"), "ffn_up"),
)


def known_mix(name: str) -> str:
    """The name in capitals. Raises `CalculatorError` for one that llama-quantize does not know."""
    mix = name.upper()
    if mix not in BASE:
        raise CalculatorError(f"{mix!r} is no quantisation that llama-quantize makes; known are {', '.join(BASE)}")
    return mix


def mix_of(model: Model) -> str:
    """The mix that a plan assumes: the model's own where it names one, else that of its checkpoint, else Q4_K_M."""
    name = model.quantization or DEFAULT_MIX
    if name.upper() in BASE:
        return name.upper()
    return OF_CHECKPOINTS.get(name.lower(), DEFAULT_MIX)


def use_more_bits(block: int, blocks: int) -> bool:
    """Whether a mix gives this block the better type: the first and last eighth and every third between."""
    return block < blocks // 8 or block >= 7 * blocks // 8 or (block - blocks // 8) % 3 == 2


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a matrix stands: its block, and its number among the blocks that have such a matrix."""

    index: int
    count: int
    ratio: int  # attention heads for one KV head
    eight_experts: bool
    is_70b: bool


def _attn_v(mix: str, place: _Place) -> str | None:
    if mix in _TINY:
        return "Q4_K" if place.ratio >= 4 or place.eight_experts else "IQ3_S" if mix in ("IQ2_S", "IQ2_M") else "Q2_K"
    kind = BASE[mix]
    match mix:
        case "Q2_K":
            kind = "Q4_K" if place.ratio >= 4 else "Q3_K"
        case "IQ3_XXS":
            kind = "Q4_K" if place.ratio >= 4 else "IQ3_S"
        case "IQ3_S" if place.ratio >= 4:
            kind = "Q4_K"
        case "IQ3_M":
            kind = "Q4_K"
        case "Q3_K_M":
            kind = "Q5_K" if place.index < 2 else "Q4_K"
        case "Q3_K_L":
            kind = "Q5_K"
        case "IQ4_NL" | "IQ4_XS" if place.ratio >= 4:
            kind = "Q5_K"
        case "Q4_K_M" | "Q5_K_M" if use_more_bits(place.index, place.count):
            kind = "Q6_K"
        case "Q4_K_S" if place.index < 4:
            kind = "Q5_K"
    if place.is_70b and kind in ("Q3_K", "Q4_K"):
        kind = "Q5_K"
    return "Q8_0" if place.eight_experts else kind


def _ffn_down(mix: str, place: _Place) -> str | None:
    early = place.index < place.count // 8
    if mix in _TINY:
        return ("IQ3_S" if mix in ("IQ2_S", "IQ2_M") else "Q2_K") if early else None
    match mix:
        case "Q2_K":
            return "Q3_K"
        case "IQ3_XXS":
            return "Q4_K" if early else "Q3_K"
        case "Q3_K_M":
            return "Q5_K" if place.index < place.count // 16 else "Q4_K"
        case "IQ3_M" if early or (place.eight_experts and use_more_bits(place.index, place.count)):
            return "Q4_K"
        case "Q3_K_L":
            return "Q5_K"
        case "Q4_K_M" | "Q5_K_M" if use_more_bits(place.index, place.count):
            return "Q6_K"
        case "IQ4_NL" | "IQ4_XS" | "Q4_K_S" if early:
            return "Q5_K"
    return None


def _attn_output(mix: str, place: _Place) -> str | None:
    if place.eight_experts:
        heavy = ("Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q5_0", "Q5_1", "Q4_0", "Q4_1", *_WHOLE)
        return None if mix in heavy else "Q5_K"
    return {
        "Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K", "IQ1_S": "IQ2_XXS",
        "IQ1_M": "IQ2_XXS", "IQ2_S": "IQ3_S", "IQ2_M": "IQ3_S",
    }.get(mix)  # fmt: skip


def _type_of(role: str, mix: str, place: _Place) -> str:
    """The type of one block matrix under a mix."""
    base = BASE[mix]
    if mix == "MXFP4_MOE":
        return "MXFP4" if role.endswith("_exps") else "Q8_0"
    if mix in _WHOLE or mix == "Q8_0":
        return base
    if role == "attn_v":
        return _attn_v(mix, place) or base
    if role.startswith("ffn_down"):
        return _ffn_down(mix, place) or base
    if role == "attn_output":
        return _attn_output(mix, place) or base
    if role == "attn_k" and place.eight_experts:
        return "Q4_K" if mix in _TINY else "Q8_0"
    if role in ("attn_k", "attn_q") and mix == "IQ3_XXS":
        return "IQ2_S"
    if role == "attn_qkv":
        return {"Q3_K_M": "Q4_K", "Q3_K_L": "Q4_K", "IQ3_M": "Q4_K", "Q4_K_M": "Q5_K", "Q5_K_M": "Q6_K"}.get(mix, base)
    return base


def _fitting(kind: str, columns: int) -> str:
    """The type itself, or the one that takes over where a row does not divide into its blocks."""
    while columns % TYPE_BY_NAME[kind].block_elements:
        kind = _FALLBACK.get(kind, "F16")
    return kind


def _tensor(name: str, weight: Weight, kind: str) -> Tensor:
    kind = _fitting(kind, weight.columns)
    shape = (weight.columns, weight.rows) if weight.copies == 1 else (weight.columns, weight.rows, weight.copies)
    return Tensor(name, shape, kind, tensor_bytes(kind, shape))


def _small(name: str, weight: Weight) -> Tensor:
    """Norms, biases, routers and convolutions stay in single precision."""
    return Tensor(name, (weight.elements,), "F32", weight.elements * 4)


def estimated_tensors(model: Model, mix: str) -> tuple[Tensor, ...]:
    """
    A tensor table by the shapes of a configuration and the name of a mix.

    Raises `CalculatorError` for a name without a mix, or a model without shapes.
    """
    mix = known_mix(mix)
    if not model.weights or not all(layer.weights for layer in model.layers):
        raise CalculatorError(f"{model.name}: neither a tensor table nor the shapes of its weights are known")
    head = "Q5_K" if mix in (*_TINY, "IQ3_XXS") else {"Q8_0": "Q8_0", "MXFP4_MOE": "Q8_0"}.get(mix, "Q6_K")
    head = mix if mix in _WHOLE else head
    out: list[Tensor] = []
    for weight in model.weights:
        if weight.name.startswith("visual"):
            continue  # a file of its own: --mmproj
        if weight.name == "embed_tokens":
            out.append(
                _tensor("token_embd.weight", weight, head if model.tied_embeddings else _EMBEDDING.get(mix, BASE[mix]))
            )
        elif weight.name == "lm_head":
            out.append(_tensor("output.weight", weight, head))
        elif weight.name == "embed_tokens_per_layer":
            out.append(_tensor("per_layer_token_embd.weight", weight, head))
        elif weight.linear:
            out.append(_tensor(weight.name, weight, BASE[mix]))
        else:
            out.append(_small(weight.name, weight))
    attentions = sum(bool(layer.n_head_kv) for layer in model.layers)
    seen = 0
    for block, layer in enumerate(model.layers):
        ratio = layer.n_head // layer.n_head_kv if layer.n_head_kv else 1
        is_70b = len(model.layers) == 80 and ratio > 1 and model.architecture == "llama"
        by_block = _Place(block, len(model.layers), ratio, model.n_expert == 8, is_70b)
        by_attention = replace(by_block, index=seen, count=attentions)
        out += _block(block, layer, mix, by_attention, by_block)
        seen += bool(layer.n_head_kv)
    return tuple(out)


def _block(block: int, layer: Layer, mix: str, by_attention: _Place, by_block: _Place) -> list[Tensor]:
    out = []
    for weight in layer.weights:
        role = next((role for pattern, role in _ROLES if pattern.search(weight.name)), None)
        if not weight.linear or weight.columns == 1:
            out.append(_small(f"blk.{block}.{weight.name}", weight))
        else:
            kind = _type_of(role or "", mix, by_attention if role == "attn_v" else by_block)
            out.append(_tensor(f"blk.{block}.{role or weight.name}.weight", weight, kind))
    return out
