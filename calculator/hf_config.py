"""
A Hugging Face ``config.json`` becomes a `Model`: layers, windows, states and weights by their shapes.

Only configurations are read, never code: an architecture that no builder here knows is refused by name.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from calculator.hf_blocks import count, vector
from calculator.hf_dense import DENSE, build_dense
from calculator.hf_fields import Fields
from calculator.hf_gemma import GEMMA_FAMILIES, build_gemma3n, build_gemma4
from calculator.hf_hybrid import HYBRID_FAMILIES, build_hybrid
from calculator.hf_kimi import build_kimi_linear
from calculator.hf_layers import Parts
from calculator.hf_moe import MLA_FAMILIES, MOE_FAMILIES, build_mla, build_moe
from calculator.hf_tensors import with_tensors
from calculator.hf_vision import vision_weights
from calculator.model import (
    Attention,
    MalformedModelError,
    MissingFactError,
    Model,
    Shard,
    UnknownArchitectureError,
    Weight,
)
from calculator.safetensors_header import read_folder

LARGEST_CONFIG_BYTES = 16_000_000
# Configuration classes whose own default ties the output head to the embedding (transformers 5.19).
TIED_BY_DEFAULT = ("gemma", "cohere", "lfm2")
QUANTIZATION_FILE = "hf_quant_config.json"  # NVIDIA ModelOpt keeps its description beside older config.json files


def family_names() -> list[str]:
    """Give the `model_type` of every architecture that can be planned."""
    return sorted({*DENSE, *MOE_FAMILIES, *MLA_FAMILIES, *HYBRID_FAMILIES, *GEMMA_FAMILIES, "kimi_linear"})


def _build(family: str, fields: Fields) -> Parts:
    if family in DENSE:
        return build_dense(family, fields)
    if family in MOE_FAMILIES:
        return build_moe(family, fields)
    if family in MLA_FAMILIES:
        return build_mla(family, fields)
    if family in HYBRID_FAMILIES:
        return build_hybrid(family, fields)
    if family == "kimi_linear":
        return build_kimi_linear(fields)
    if family.startswith("gemma3n"):
        return build_gemma3n(fields)
    if family in GEMMA_FAMILIES:
        return build_gemma4(fields)
    raise UnknownArchitectureError(
        f"{fields.path}: model_type {family!r} is not known here; known are {', '.join(family_names())}"
    )


def model_from_config(config: Mapping[str, object], *, name: str, source: str, path: str = "config.json") -> Model:
    """
    Build the facts from a parsed ``config.json``.

    :param name: how the model is called in a plan
    :param source: where the configuration is from
    :param path: how messages name the file
    :raises UnknownArchitectureError: an architecture without a builder
    :raises MissingFactError: a field is missing
    :raises MalformedModelError: a field is of the wrong kind or contradicts another
    """
    outer = Fields(config, path)
    text = outer.inner("text_config") or outer.inner("llm_config") or outer.inner("language_config") or outer
    family = text.text("model_type") or outer.text("model_type")
    if family is None:
        raise MissingFactError(f"{path}: model_type is missing; without it the architecture is unknown")
    architectures = outer.names("architectures")
    parts = _build(family, text)
    hidden, vocab = text.size("hidden_size"), text.size("vocab_size")
    default = family.startswith(TIED_BY_DEFAULT)
    tied = outer.flag("tie_word_embeddings", "tie_embedding", default=text.flag("tie_word_embeddings", default=default))
    weights = [Weight("embed_tokens", vocab, hidden, Shard.VOCAB), vector("norm", hidden * parts.last_norm)]
    if not tied:
        weights.append(Weight("lm_head", vocab, hidden, Shard.VOCAB))
    weights += parts.weights
    vision = outer.inner("vision_config")
    if vision is not None:
        weights += vision_weights(vision, hidden) or ()
    quantization = _quantization(outer, text)
    return Model(
        name=name,
        architecture=architectures[0] if architectures else family,
        source=source,
        layers=parts.layers,
        n_embd=hidden,
        n_vocab=vocab,
        n_ff=max((layer.n_ff for layer in parts.layers), default=0) or None,
        n_head=max((layer.n_head for layer in parts.layers), default=0) or None,
        n_expert=parts.n_expert,
        n_expert_used=parts.n_expert_used,
        n_ff_exp=parts.n_ff_exp,
        n_shared_experts=parts.n_shared_experts,
        context_train=text.size("max_position_embeddings") if text.has("max_position_embeddings") else None,
        tied_embeddings=tied,
        n_embd_per_layer=parts.n_embd_per_layer,
        mtp_layers=parts.mtp_layers,
        parameters=count(weights) + sum(layer.parameters or 0 for layer in parts.layers),
        quantization=_quantization_name(quantization),
        quantization_config=quantization,
        dtype=text.text("torch_dtype") or text.text("dtype") or outer.text("torch_dtype") or outer.text("dtype"),
        has_vision=vision is not None,
        weights=tuple(weights),
        rotary_elements=_rotary_elements(family, text, parts),
    )


def _quantization(outer: Fields, text: Fields) -> Mapping[str, object]:
    for fields in (outer, text):
        for name in ("quantization_config", "compression_config"):
            found = fields.inner(name)
            if found is not None:
                return dict(found.values)
    return {}


def _quantization_name(config: Mapping[str, object]) -> str | None:
    """Name the method as vLLM does, with ModelOpt's and compressed-tensors' own word for the numbers."""
    method = config.get("quant_method")
    if not isinstance(method, str):
        return None
    algorithm = config.get("quant_algo") or config.get("format")
    if method in ("modelopt", "modelopt_fp4") and isinstance(algorithm, str):
        return algorithm.lower()
    return method


def _rotary_elements(family: str, text: Fields, parts: Parts) -> int:
    """
    Count the elements of vLLM's cos/sin table: positions x rotary width (layers/rotary_embedding/base.py).

    Tables are shared between layers of the same settings (rotary_embedding/__init__.py get_rope): Gemma 3 has two.
    A model with positions in three dimensions keeps four times as many (mrope.py).
    """
    positions = text.integer("max_position_embeddings", default=0)
    if family == "nemotron_h" or text.text("position_embedding_type") == "nope" or not positions:
        return 0
    rope = text.inner("rope_parameters") or text.inner("rope_scaling")
    partial = text.number("partial_rotary_factor", 0.25 if family.startswith(("qwen3_5", "qwen3_next")) else 1.0)
    if rope is not None:
        partial = rope.number("partial_rotary_factor", partial)
    widths: dict[int, int] = defaultdict(int)
    for layer in dict.fromkeys(parts.layers):
        if layer.attention is Attention.MLA:
            widths[(layer.mla_width or 0) - (layer.mla_lora_rank or 0)] = 1
        elif layer.attention is not Attention.NONE:
            two = layer.attention is Attention.SLIDING and family.startswith(("gemma3", "gemma4"))
            widths[layer.head_dim_k] |= 2 if two else 1
    tables = sum(int(width * partial) * (1 if mask in (1, 2) else 2) for width, mask in widths.items())
    return positions * tables * (4 if rope is not None and rope.has("mrope_section") else 1)


def load_config(path: Path) -> dict[str, object]:
    """
    Read a JSON object from a file of reasonable size.

    :raises MalformedModelError: too large, or not a JSON object
    :raises OSError: the file can't be read
    """
    if path.stat().st_size > LARGEST_CONFIG_BYTES:
        raise MalformedModelError(f"{path.name}: larger than {LARGEST_CONFIG_BYTES} bytes; that is no configuration")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise MalformedModelError(f"{path.name}: not JSON ({error})") from None
    if not isinstance(content, dict):
        raise MalformedModelError(f"{path.name}: not a JSON object")
    return content


def load_folder(folder: Path, *, name: str | None = None) -> Model:
    """
    Read a model's folder: ``config.json``, and the safetensors headers when the files are there (exact bytes).

    :raises CalculatorError: a file is missing, corrupt or of an unknown architecture
    """
    path = folder / "config.json"
    if not path.is_file():
        raise MissingFactError(f"{folder.name}: there is no config.json in this folder")
    config = load_config(path)
    described = folder / QUANTIZATION_FILE
    if "quantization_config" not in config and described.is_file():
        inner = load_config(described).get("quantization")
        if isinstance(inner, Mapping):
            config["quantization_config"] = {"quant_method": "modelopt", **inner}
    model = model_from_config(config, name=name or folder.name, source=str(path))
    tensors = read_folder(folder)
    return with_tensors(model, tensors) if tensors else model
