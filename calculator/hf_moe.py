"""
Families with routed experts: Mixtral, Qwen 2/3 MoE, DeepSeek V2/V3/V3.2, Kimi K2, GLM 4.5/5, gpt-oss, Llama 4, ...

What a family's block holds is read in its ``modeling_*.py`` of Hugging Face transformers 5.19.
"""

from __future__ import annotations

from collections.abc import Callable

from calculator.hf_blocks import attention, experts, matrix, mla, mlp, vector
from calculator.hf_fields import Fields
from calculator.hf_layers import Heads, Parts, attention_kind, layer, layer_kinds, once, window_of
from calculator.model import Attention, Layer, MalformedModelError, Shard, Weight

MLA_FAMILIES = (
    "deepseek_v2",
    "deepseek_v3",
    "deepseek_v32",
    "kimi_k2",
    "glm_moe_dsa",
    "glm4_moe_lite",
)
MOE_FAMILIES = (
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
    "qwen3_vl_moe_text",
    "glm4_moe",
    "gpt_oss",
    "llama4_text",
    "llama4",
    "granitemoe",
    "phimoe",
    "minimax_m2",
)


def experts_of(fields: Fields) -> tuple[int, int]:
    """Give (routed experts, experts used by a token)."""
    number = fields.size("num_local_experts", "n_routed_experts", "num_experts")
    used = fields.size("num_experts_per_tok", "num_experts_per_token", "top_k_experts")
    if used > number:
        raise MalformedModelError(f"{fields.path}: num_experts_per_tok {used} exceeds the {number} experts")
    return number, used


def _sparse(family: str, fields: Fields, layers: int) -> list[bool]:
    """Say of each layer whether it has experts."""
    listed = fields.names("mlp_layer_types", layers)
    if listed is not None:
        return [word == "sparse" for word in listed]
    if family in ("llama4", "llama4_text"):
        chosen = fields.integers("moe_layers")
        step = fields.size("interleave_moe_layer_step", default=1)
        indices = set(chosen) if chosen else set(range(step - 1, layers, step))
        return [index in indices for index in range(layers)]
    if family in MLA_FAMILIES or family == "glm4_moe":
        first = fields.integer("first_k_dense_replace")
        step = fields.size("moe_layer_freq", default=1)
        return [index >= first and index % step == 0 for index in range(layers)]
    if family in ("qwen2_moe", "qwen3_moe", "qwen3_vl_moe_text"):
        dense = set(fields.integers("mlp_only_layers") or [])
        step = fields.size("decoder_sparse_step", default=1)
        return [index not in dense and (index + 1) % step == 0 for index in range(layers)]
    return [True] * layers


def _feed_forward(family: str, fields: Fields, hidden: int, sparse: bool) -> list[Weight]:
    """Give the feed-forward of a layer."""
    if not sparse:
        dense = fields.size("intermediate_size_mlp" if family.startswith("llama4") else "intermediate_size")
        return mlp(hidden, dense)
    number, _ = experts_of(fields)
    width = fields.size("moe_intermediate_size", "intermediate_size")
    gpt_oss = family == "gpt_oss"
    out = experts(hidden, width, number, bias=gpt_oss, router_bias=gpt_oss)
    if family in ("deepseek_v3", "deepseek_v32", "kimi_k2", "glm4_moe", "glm_moe_dsa", "glm4_moe_lite", "minimax_m2"):
        out.append(vector("mlp.gate.e_score_correction_bias", number))
    if family == "qwen2_moe":
        out += mlp(hidden, fields.size("shared_expert_intermediate_size"), name="mlp.shared_expert")
        out.append(Weight("mlp.shared_expert_gate", 1, hidden, Shard.REPLICATED))
    elif family.startswith("llama4"):
        out += mlp(hidden, width, name="feed_forward.shared_expert")
    elif shared := fields.integer("n_shared_experts", default=0):
        out += mlp(hidden, width * shared, name="mlp.shared_experts")
    return out


def _default_kind(family: str, fields: Fields) -> Callable[[int], str]:
    if family == "gpt_oss":
        return lambda index: "sliding" if (index + 1) % 2 else "full"
    if family.startswith("llama4"):
        no_rope = fields.integers("no_rope_layers") or []
        step = fields.size("no_rope_layer_interval", default=4)
        if no_rope:
            return lambda index: "chunked" if index < len(no_rope) and no_rope[index] else "full"
        return lambda index: "chunked" if (index + 1) % step else "full"
    if family == "mixtral" and fields.has("sliding_window"):
        return lambda _: "sliding"
    return lambda _: "full"


def build_moe(family: str, fields: Fields) -> Parts:
    """
    Build the layers of a family with experts and ordinary attention.

    :raises CalculatorError: a field is missing or contradicts another
    """
    heads = Heads.of(fields)
    kinds = layer_kinds(fields, heads.layers, _default_kind(family, fields))
    window = window_of(fields, kinds)
    sparse = _sparse(family, fields, heads.layers)
    number, used = experts_of(fields)
    bias = {"qwen2_moe": True, "mixtral": False}.get(family, fields.flag("attention_bias", default=family == "gpt_oss"))
    head_norms = family in ("qwen3_moe", "qwen3_vl_moe_text") or (family == "glm4_moe" and fields.flag("use_qk_norm"))

    def make(kind: str, has_experts: bool) -> Layer:
        weights = attention(
            heads.hidden,
            heads.heads,
            heads.heads_kv,
            heads.head_dim,
            bias=bias,
            output_bias=bias and family in ("gpt_oss", "phimoe", "granitemoe"),
            head_norms=head_norms,
            wide_norms=family == "minimax_m2",
        )
        if family == "gpt_oss":
            weights.append(vector("self_attn.sinks", heads.heads, Shard.COLUMN))
        weights += _feed_forward(family, fields, heads.hidden, has_experts)
        weights.append(vector("norms", heads.hidden * (4 if family == "phimoe" else 2)))
        return layer(
            weights,
            attention=attention_kind(kind, fields),
            heads=heads.heads,
            heads_kv=heads.heads_kv,
            head_dim=heads.head_dim,
            window=window,
            n_ff=0 if has_experts else _dense_width(family, fields),
            experts=number if has_experts else 0,
        )

    layers = once(make, zip(kinds, sparse, strict=True))
    mtp: tuple[Layer, ...] = ()
    if family == "glm4_moe" and (blocks := fields.integer("num_nextn_predict_layers", "num_mtp_layers", default=0)):
        mtp = (_draft_block(make("full", True), fields, heads.hidden),) * blocks
    shared_experts = fields.integer("n_shared_experts", default=1 if family.startswith(("llama4", "qwen2_moe")) else 0)
    extra = (vector("lm_head.bias", fields.size("vocab_size"), Shard.VOCAB),) if family == "phimoe" else ()
    return Parts(
        layers,
        mtp_layers=mtp,
        weights=extra,
        last_norm=2 if family == "phimoe" else 1,
        n_expert=number,
        n_expert_used=used,
        n_ff_exp=fields.size("moe_intermediate_size", "intermediate_size"),
        n_shared_experts=shared_experts,
    )


def _dense_width(family: str, fields: Fields) -> int:
    return fields.size("intermediate_size_mlp" if family.startswith("llama4") else "intermediate_size")


def _draft_block(inner: Layer, fields: Fields, hidden: int) -> Layer:
    """Give a next-token prediction block: a decoder layer with its projection, norms, embedding and head."""
    vocab = fields.size("vocab_size")
    weights = [
        *inner.weights,
        matrix("eh_proj", hidden, 2 * hidden, Shard.REPLICATED),
        vector("enorm, hnorm, shared_head.norm", 3 * hidden),
        Weight("embed_tokens", vocab, hidden, Shard.VOCAB),
        Weight("shared_head.head", vocab, hidden, Shard.VOCAB),
    ]
    return layer(
        weights,
        attention=inner.attention,
        heads=inner.n_head,
        heads_kv=inner.n_head_kv,
        head_dim=inner.head_dim_k,
        head_dim_v=inner.head_dim_v,
        mla_width=inner.mla_width,
        mla_rank=inner.mla_lora_rank,
        indexer_width=inner.indexer_width,
        experts=inner.experts,
    )


def _indexers(fields: Fields, layers: int) -> list[bool]:
    """Say of each layer whether it runs the sparse-attention indexer (``configuration_glm_moe_dsa.py``)."""
    if not fields.has("index_head_dim"):
        return [False] * layers
    listed = fields.names("indexer_types", layers)
    if listed is not None:
        return [word == "full" for word in listed]
    pattern = fields.text("index_topk_pattern")
    if pattern is not None:
        if len(pattern) != layers:
            raise MalformedModelError(
                f"{fields.path}: index_topk_pattern has {len(pattern)} letters for {layers} layers"
            )
        return [letter == "F" for letter in pattern]
    step = fields.size("index_topk_freq", default=1)
    offset = fields.integer("index_skip_topk_offset", default=2)
    return [step == 1 or max(index - offset + 1, 0) % step == 0 for index in range(layers)]


def build_mla(family: str, fields: Fields) -> Parts:
    """
    Build the layers of a family with multi-head latent attention.

    :raises CalculatorError: a field is missing or contradicts another
    """
    hidden, count = fields.size("hidden_size"), fields.size("num_hidden_layers")
    heads = fields.size("num_attention_heads")
    kv_rank, rope = fields.size("kv_lora_rank"), fields.size("qk_rope_head_dim")
    nope, value = fields.size("qk_nope_head_dim"), fields.size("v_head_dim")
    q_rank = fields.size("q_lora_rank") if fields.has("q_lora_rank") else None
    index_dim = fields.size("index_head_dim") if fields.has("index_head_dim") else None
    number, used = experts_of(fields)
    sparse, indexed = _sparse(family, fields, count), _indexers(fields, count)

    def make(has_experts: bool, has_indexer: bool) -> Layer:
        indexer = (fields.size("index_n_heads"), index_dim) if has_indexer and index_dim else None
        weights = mla(hidden, heads, q_rank, kv_rank, rope, nope, value, indexer=indexer)
        weights += _feed_forward(family, fields, hidden, has_experts)
        weights.append(vector("norms", 2 * hidden))
        return layer(
            weights,
            attention=Attention.MLA,
            heads=heads,
            heads_kv=1,
            head_dim=kv_rank + rope,
            head_dim_v=0,
            mla_width=kv_rank + rope,
            mla_rank=kv_rank,
            indexer_width=index_dim if has_indexer else None,
            n_ff=0 if has_experts else fields.size("intermediate_size"),
            experts=number if has_experts else 0,
        )

    layers = once(make, zip(sparse, indexed, strict=True))
    blocks = fields.integer("num_nextn_predict_layers", default=0)
    mtp = (_draft_block(make(True, index_dim is not None), fields, hidden),) * blocks if blocks else ()
    return Parts(
        layers,
        mtp_layers=mtp,
        n_expert=number,
        n_expert_used=used,
        n_ff_exp=fields.size("moe_intermediate_size"),
        n_shared_experts=fields.integer("n_shared_experts", default=0),
    )
