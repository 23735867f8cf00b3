"""
Gemma 3n and Gemma 4: per-layer embeddings, layers that read another's cache, two widths of heads.

Read in ``modeling_gemma3n.py`` and ``modeling_gemma4.py`` of Hugging Face transformers 5.19.
"""

from __future__ import annotations

from calculator.hf_blocks import attention, experts, matrix, mlp, vector
from calculator.hf_fields import Fields
from calculator.hf_layers import Heads, Parts, attention_kind, layer, layer_kinds, once, window_of
from calculator.hf_moe import experts_of
from calculator.model import Layer, MalformedModelError, Shard, Weight

GEMMA_FAMILIES = ("gemma3n", "gemma3n_text", "gemma4", "gemma4_text", "gemma4_unified_text")


def _per_layer_weights(fields: Fields, hidden: int, layers: int, width: int) -> tuple[Weight, ...]:
    """Give the per-layer embedding table and its projection, outside the blocks."""
    if not width:
        return ()
    vocab = fields.size("vocab_size_per_layer_input", default=262_144)
    return (
        Weight("embed_tokens_per_layer", vocab, layers * width, Shard.VOCAB),
        Weight("per_layer_model_projection", layers * width, hidden, Shard.COLUMN),
        vector("per_layer_projection_norm", width),
    )


def _per_layer_block(hidden: int, width: int) -> list[Weight]:
    if not width:
        return []
    return [
        matrix("per_layer_input_gate", width, hidden, Shard.REPLICATED),
        matrix("per_layer_projection", hidden, width, Shard.REPLICATED),
        vector("post_per_layer_input_norm", hidden),
    ]


def _sharing(fields: Fields, layers: int) -> int:
    """Give the index of the first layer that owns no cache."""
    shared = fields.integer("num_kv_shared_layers", default=0)
    if shared >= layers:
        raise MalformedModelError(f"{fields.path}: num_kv_shared_layers {shared} leaves none of {layers} layers")
    return layers - shared


def build_gemma4(fields: Fields) -> Parts:
    """
    Build Gemma 4: full layers with wider heads, experts beside a dense feed-forward, per-layer embeddings.

    :raises CalculatorError: a field is missing or contradicts another
    """
    heads = Heads.of(fields)
    kinds = layer_kinds(fields, heads.layers, lambda index: "sliding" if (index + 1) % 6 else "full")
    kinds[-1] = "full"  # configuration_gemma4.py forces the last layer
    window = window_of(fields, kinds)
    first_shared = _sharing(fields, heads.layers)
    width, per_layer = fields.size("intermediate_size"), fields.integer("hidden_size_per_layer_input", default=0)
    wide_shared = fields.flag("use_double_wide_mlp")
    same_kv = fields.flag("attention_k_eq_v")
    global_dim = fields.size("global_head_dim", default=512)
    global_kv = heads.heads_kv
    if same_kv:
        global_kv = fields.size("num_global_key_value_heads", default=heads.heads_kv)
    moe = fields.flag("enable_moe_block")
    number, used = experts_of(fields) if moe else (0, 0)

    def make(kind: str, shares: bool) -> Layer:
        full = kind == "full"
        head_dim = global_dim if full else heads.head_dim
        heads_kv = global_kv if full else heads.heads_kv
        n_ff = width * (2 if shares and wide_shared else 1)
        weights = attention(
            heads.hidden,
            heads.heads,
            heads_kv,
            head_dim,
            head_norms=True,
            own_values=not (full and same_kv),
            own_kv=not shares,
        )
        weights += mlp(heads.hidden, n_ff)
        norms = 4
        if moe:
            weights += experts(heads.hidden, fields.size("moe_intermediate_size"), number, name="moe")
            weights += [vector("router.scale", heads.hidden), vector("router.per_expert_scale", number)]
            norms = 7
        weights += [vector("norms", norms * heads.hidden), vector("layer_scalar", 1)]
        weights += _per_layer_block(heads.hidden, per_layer)
        return layer(
            weights,
            attention=attention_kind(kind, fields),
            heads=heads.heads,
            heads_kv=heads_kv,
            head_dim=head_dim,
            window=window,
            shares_kv=shares,
            n_ff=n_ff,
            experts=number,
        )

    layers = once(make, [(kind, index >= first_shared) for index, kind in enumerate(kinds)])
    return Parts(
        layers,
        weights=_per_layer_weights(fields, heads.hidden, heads.layers, per_layer),
        n_embd_per_layer=per_layer or None,
        n_expert=number,
        n_expert_used=used,
        n_ff_exp=fields.size("moe_intermediate_size") if moe else None,
    )


def build_gemma3n(fields: Fields) -> Parts:
    """
    Build Gemma 3n: alternating updates (AltUp), a low-rank side path (LAuReL) and per-layer embeddings.

    :raises CalculatorError: a field is missing or contradicts another
    """
    heads = Heads.of(fields)
    kinds = layer_kinds(fields, heads.layers, lambda index: "sliding" if (index + 1) % 5 else "full")
    window = window_of(fields, kinds)
    first_shared = _sharing(fields, heads.layers)
    per_layer = fields.size("hidden_size_per_layer_input", default=256)
    inputs, rank = fields.size("altup_num_inputs", default=4), fields.size("laurel_rank", default=64)
    if isinstance(fields.values.get("intermediate_size"), list):
        widths = fields.integers("intermediate_size", heads.layers) or []
    else:
        widths = [fields.size("intermediate_size")] * heads.layers

    def make(kind: str, width: int, shares: bool) -> Layer:
        hidden = heads.hidden
        weights = attention(hidden, heads.heads, heads.heads_kv, heads.head_dim, head_norms=True)
        weights += mlp(hidden, width)
        weights += [
            matrix("laurel.linear_left", rank, hidden, Shard.REPLICATED),
            matrix("laurel.linear_right", hidden, rank, Shard.REPLICATED),
            vector("laurel.post_laurel_norm", hidden),
            Weight("altup.correction_coefs", inputs, inputs, Shard.REPLICATED),
            Weight("altup.prediction_coefs", inputs * inputs, inputs, Shard.REPLICATED),
            Weight("altup.modality_router", inputs, hidden, Shard.REPLICATED),
            vector("altup.norm, scale", 2 * hidden),
            vector("norms", 4 * hidden),
            *_per_layer_block(hidden, per_layer),
        ]
        return layer(
            weights,
            attention=attention_kind(kind, fields),
            heads=heads.heads,
            heads_kv=heads.heads_kv,
            head_dim=heads.head_dim,
            window=window,
            shares_kv=shares,
            n_ff=width,
        )

    keys = [(kind, widths[index], index >= first_shared) for index, kind in enumerate(kinds)]
    projections = (
        Weight("altup_projections", heads.hidden, heads.hidden, Shard.REPLICATED, inputs - 1),
        Weight("altup_unembed_projections", heads.hidden, heads.hidden, Shard.REPLICATED, inputs - 1),
    )
    return Parts(
        once(make, keys),
        weights=(*_per_layer_weights(fields, heads.hidden, heads.layers, per_layer), *projections),
        n_embd_per_layer=per_layer,
    )
