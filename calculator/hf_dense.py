"""
Dense families: Llama and its kin, Qwen, Mistral, Gemma 1-3, Phi, GLM 4, Cohere, OLMo 2, Granite, Nemotron 4.

What a family's block holds is read in its ``modeling_*.py`` of Hugging Face transformers 5.19.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from calculator.hf_blocks import attention, mlp, vector
from calculator.hf_fields import Fields
from calculator.hf_layers import Heads, Parts, attention_kind, layer, layer_kinds, once, window_of
from calculator.model import Layer


@dataclass(frozen=True, slots=True)
class Dense:
    """How a dense family's block differs from Llama's."""

    norms: int = 2  # norms over the hidden size in a block
    norm_bias: bool = False
    head_norms: bool = False  # q and k norms of one head
    wide_norms: bool = False  # q and k norms over all heads
    bias: bool | None = None  # of q, k, v; None: as `attention_bias` says
    output_bias: bool | None = None  # of the output projection; None: like `bias` by `attention_bias`
    gated: bool = True
    mlp_bias: bool | None = None  # None: as `mlp_bias` says


LLAMA = Dense()
DENSE: dict[str, Dense] = {
    "llama": LLAMA,
    "mistral": Dense(bias=False, output_bias=False),
    "ministral": Dense(bias=False, output_bias=False),
    "ministral3": Dense(bias=False, output_bias=False),
    "smollm3": LLAMA,
    "seed_oss": Dense(bias=None, output_bias=False),
    "qwen2": Dense(bias=True, output_bias=False),
    "qwen2_vl": Dense(bias=True, output_bias=False),
    "qwen2_vl_text": Dense(bias=True, output_bias=False),
    "qwen2_5_vl": Dense(bias=True, output_bias=False),
    "qwen2_5_vl_text": Dense(bias=True, output_bias=False),
    "qwen3": Dense(head_norms=True),
    "qwen3_vl_text": Dense(head_norms=True),
    "gemma": Dense(),
    "gemma2": Dense(norms=4),
    "gemma3": Dense(norms=4, head_norms=True),
    "gemma3_text": Dense(norms=4, head_norms=True),
    "phi3": Dense(bias=False, output_bias=False),
    "olmo2": Dense(wide_norms=True),
    "olmo3": Dense(wide_norms=True),
    "ernie4_5": LLAMA,
    "exaone4": Dense(head_norms=True),
    "hunyuan_v1_dense": Dense(head_norms=True),
    "cohere": Dense(norms=1),
    "cohere2": Dense(norms=1),
    "granite": LLAMA,
    "glm": Dense(output_bias=False),
    "glm4": Dense(norms=4, output_bias=False),
    "nemotron": Dense(norm_bias=True, gated=False),
}


def _default_kind(family: str, fields: Fields) -> Callable[[int], str]:
    """Give the pattern of windows where the configuration lists none, as each family's configuration class makes it."""
    if family == "gemma2":
        return lambda index: "sliding" if (index + 1) % 2 else "full"
    if family in ("gemma3", "gemma3_text"):
        pattern = fields.size("sliding_window_pattern", "_sliding_window_pattern", default=6)
        return lambda index: "sliding" if (index + 1) % pattern else "full"
    if family == "cohere2":
        pattern = fields.size("sliding_window_pattern", "_sliding_window_pattern", default=4)
        return lambda index: "sliding" if (index + 1) % pattern else "full"
    if family == "exaone4":
        words = fields.values.get("sliding_window_pattern")
        if not fields.has("sliding_window") or words is None:
            return lambda _: "full"
        step = len(words) if isinstance(words, str) else fields.size("sliding_window_pattern")
        return lambda index: "sliding" if (index + 1) % step else "full"
    if family == "olmo3":
        return lambda index: "sliding" if (index + 1) % 4 else "full"
    if family.startswith("qwen"):
        if not fields.flag("use_sliding_window") or not fields.has("sliding_window"):
            return lambda _: "full"
        first = fields.integer("max_window_layers", default=28)
        return lambda index: "sliding" if index >= first else "full"
    if family in ("mistral", "ministral", "phi3") and fields.has("sliding_window"):
        return lambda _: "sliding"
    return lambda _: "full"


def build_dense(family: str, fields: Fields) -> Parts:
    """
    Build the layers of a dense family.

    :raises CalculatorError: a field is missing or contradicts another
    """
    shape, heads = DENSE[family], Heads.of(fields)
    width = fields.size("intermediate_size")
    kinds = layer_kinds(fields, heads.layers, _default_kind(family, fields))
    window = window_of(fields, kinds)
    configured = fields.flag("attention_bias")
    bias = configured if shape.bias is None else shape.bias
    output_bias = configured if shape.output_bias is None else shape.output_bias
    head_norms = shape.head_norms
    cohere_norms = family == "cohere" and fields.flag("use_qk_norm")

    def make(kind: str) -> Layer:
        weights = attention(
            heads.hidden,
            heads.heads,
            heads.heads_kv,
            heads.head_dim,
            bias=bias,
            output_bias=output_bias,
            head_norms=head_norms,
            wide_norms=shape.wide_norms or cohere_norms,
        )
        weights += mlp(
            heads.hidden,
            width,
            gated=shape.gated,
            bias=fields.flag("mlp_bias") if shape.mlp_bias is None else shape.mlp_bias,
        )
        weights.append(vector("norms", heads.hidden * shape.norms * (2 if shape.norm_bias else 1)))
        return layer(
            weights,
            attention=attention_kind(kind, fields),
            heads=heads.heads,
            heads_kv=heads.heads_kv,
            head_dim=heads.head_dim,
            window=window,
            n_ff=width,
        )

    layers = once(make, [(kind,) for kind in kinds])
    return Parts(layers, last_norm=2 if shape.norm_bias else 1)
