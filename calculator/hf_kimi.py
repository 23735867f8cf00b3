"""
Kimi Linear: three layers of Kimi delta attention to one of multi-head latent attention, experts throughout.

Read in ``modeling_kimi_linear.py`` of Hugging Face transformers 5.19; its state in vLLM 0.32 ``mamba_utils.py``
(kda_state_shape: the recurrent part is float32 unless told otherwise).
"""

from __future__ import annotations

from calculator.hf_blocks import experts, matrix, mla, mlp, vector
from calculator.hf_fields import Fields
from calculator.hf_layers import KINDS, Parts, layer, once
from calculator.hf_moe import experts_of
from calculator.model import Attention, Layer, MalformedModelError, RecurrentState, Shard, Weight


def _kinds(fields: Fields, layers: int) -> list[str]:
    """Give "full" or "linear" for each layer; `linear_attn_config` counts layers from 1."""
    listed = fields.names("layer_types", layers)
    if listed is not None:
        return [KINDS.get(word, word) for word in listed]
    inner = fields.inner("linear_attn_config")
    full = None if inner is None else inner.integers("full_attn_layers")
    if full is None:
        return ["linear" if (index + 1) % 4 else "full" for index in range(layers)]
    if any(not 1 <= index <= layers for index in full):
        raise MalformedModelError(f"{fields.path}: full_attn_layers {full} names a layer outside 1 to {layers}")
    return ["full" if index + 1 in full else "linear" for index in range(layers)]


def _delta(hidden: int, heads: int, width: int, kernel: int) -> tuple[list[Weight], RecurrentState]:
    wide = heads * width
    weights = [
        matrix("self_attn.qkv_proj", 3 * wide, hidden, Shard.COLUMN),
        Weight("self_attn.conv1d", 3 * wide, kernel, Shard.COLUMN),
        vector("self_attn.A_log", heads, Shard.COLUMN),
        vector("self_attn.dt_bias", wide, Shard.COLUMN),
        matrix("self_attn.f_a_proj", width, hidden, Shard.REPLICATED),
        matrix("self_attn.f_b_proj", wide, width, Shard.COLUMN),
        matrix("self_attn.b_proj", heads, hidden, Shard.COLUMN),
        matrix("self_attn.g_a_proj", width, hidden, Shard.REPLICATED),
        matrix("self_attn.g_b_proj", wide, width, Shard.COLUMN),
        vector("self_attn.o_norm", width),
        matrix("self_attn.o_proj", hidden, wide, Shard.ROW),
    ]
    state = RecurrentState(
        "kda",
        3 * wide * (kernel - 1),
        heads * width * width,
        k_heads=heads,
        k_dim=width,
        v_heads=heads,
        v_dim=width,
        kernel=kernel,
        ssm_dtype="float32",
    )
    return weights, state


def build_kimi_linear(fields: Fields) -> Parts:
    """
    Build the layers of Kimi Linear.

    :raises CalculatorError: a field is missing or contradicts another
    """
    hidden, count, heads = (fields.size(name) for name in ("hidden_size", "num_hidden_layers", "num_attention_heads"))
    kv_rank, rope = fields.size("kv_lora_rank"), fields.size("qk_rope_head_dim")
    nope, value = fields.size("qk_nope_head_dim"), fields.size("v_head_dim")
    q_rank = fields.size("q_lora_rank") if fields.has("q_lora_rank") else None
    inner = fields.inner("linear_attn_config") or fields
    linear = (
        inner.size("num_heads", "linear_num_heads", default=heads),
        inner.size("head_dim", "linear_head_dim", default=128),
        inner.size("short_conv_kernel_size", "linear_conv_kernel_dim", default=4),
    )
    number, used = experts_of(fields)
    width, shared = fields.size("moe_intermediate_size"), fields.integer("num_shared_experts", "n_shared_experts")
    first = fields.integer("first_k_dense_replace")

    def make(kind: str, sparse: bool) -> Layer:
        if sparse:
            rest = [*experts(hidden, width, number), vector("mlp.gate.e_score_correction_bias", number)]
            rest += mlp(hidden, width * shared, name="mlp.shared_experts")
        else:
            rest = mlp(hidden, fields.size("intermediate_size"))
        rest.append(vector("norms", 2 * hidden))
        n_ff, n_experts = (0, number) if sparse else (fields.size("intermediate_size"), 0)
        if kind == "full":
            weights = mla(hidden, heads, q_rank, kv_rank, rope, nope, value)
            return layer(
                [*weights, *rest],
                attention=Attention.MLA,
                heads=heads,
                heads_kv=1,
                head_dim=kv_rank + rope,
                head_dim_v=0,
                mla_width=kv_rank + rope,
                mla_rank=kv_rank,
                n_ff=n_ff,
                experts=n_experts,
            )
        mixer, state = _delta(hidden, *linear)
        return layer([*mixer, *rest], state=state, n_ff=n_ff, experts=n_experts)

    kinds = _kinds(fields, count)
    return Parts(
        once(make, [(kind, index >= first) for index, kind in enumerate(kinds)]),
        n_expert=number,
        n_expert_used=used,
        n_ff_exp=width,
        n_shared_experts=shared,
    )
