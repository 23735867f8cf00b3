"""
Weights of a block's parts, as shapes, by the names of Hugging Face checkpoints.

The shapes are those of the ``modeling_*.py`` files of Hugging Face transformers 5.19; how tensor parallelism divides
them is vLLM 0.32 ``model_executor/layers/linear.py`` (ColumnParallelLinear, RowParallelLinear, QKVParallelLinear).
"""

from __future__ import annotations

from collections.abc import Iterable

from calculator.model import RecurrentState, Shard, Weight


def matrix(name: str, rows: int, columns: int, shard: Shard, copies: int = 1) -> Weight:
    """Give the weight matrix of a linear layer."""
    return Weight(name, rows, columns, shard, copies, linear=True)


def vector(name: str, length: int, shard: Shard = Shard.REPLICATED, copies: int = 1) -> Weight:
    """Give a norm, a bias or another vector, which weight quantisation leaves alone."""
    return Weight(name, length, 1, shard, copies)


def count(weights: Iterable[Weight]) -> int:
    """Sum up parameters."""
    return sum(weight.elements for weight in weights)


def attention(
    hidden: int,
    heads: int,
    heads_kv: int,
    head_dim: int,
    *,
    bias: bool = False,
    output_bias: bool = False,
    head_norms: bool = False,
    wide_norms: bool = False,
    gate: bool = False,
    own_values: bool = True,
    own_kv: bool = True,
) -> list[Weight]:
    """
    Multi-head or grouped attention.

    `head_norms`: a norm of q and k over a head; `wide_norms`: over all heads. `gate`: q is twice as wide
    (Qwen3-Next). `own_values`: False where keys serve as values (Gemma 4's full layers). `own_kv`: False where
    the layer reads another's cache.
    """
    wide_q = heads * head_dim * (2 if gate else 1)
    wide_kv = heads_kv * head_dim
    out = [
        matrix("self_attn.q_proj", wide_q, hidden, Shard.COLUMN),
        matrix("self_attn.o_proj", hidden, heads * head_dim, Shard.ROW),
    ]
    if own_kv:
        out.append(matrix("self_attn.k_proj", wide_kv, hidden, Shard.KV))
        if own_values:
            out.append(matrix("self_attn.v_proj", wide_kv, hidden, Shard.KV))
    if bias:
        out += [
            vector("self_attn.q_proj.bias", wide_q, Shard.COLUMN),
            vector("self_attn.k_proj.bias", wide_kv, Shard.KV),
            vector("self_attn.v_proj.bias", wide_kv, Shard.KV),
        ]
    if output_bias:
        out.append(vector("self_attn.o_proj.bias", hidden))
    if head_norms:
        out += [vector("self_attn.q_norm", head_dim), *([vector("self_attn.k_norm", head_dim)] if own_kv else [])]
    if wide_norms:
        out += [vector("self_attn.q_norm", heads * head_dim), vector("self_attn.k_norm", wide_kv)]
    return out


def mla(
    hidden: int,
    heads: int,
    q_rank: int | None,
    kv_rank: int,
    rope: int,
    nope: int,
    value: int,
    *,
    indexer: tuple[int, int] | None = None,
) -> list[Weight]:
    """
    DeepSeek's multi-head latent attention; `indexer` is (heads, head width) of sparse attention's indexer.

    The down projections are replicated over ranks (vLLM ReplicatedLinear, models/deepseek_v2.py).
    """
    wide_q = heads * (nope + rope)
    out = [
        matrix("self_attn.kv_a_proj_with_mqa", kv_rank + rope, hidden, Shard.REPLICATED),
        vector("self_attn.kv_a_layernorm", kv_rank),
        matrix("self_attn.kv_b_proj", heads * (nope + value), kv_rank, Shard.COLUMN),
        matrix("self_attn.o_proj", hidden, heads * value, Shard.ROW),
    ]
    if q_rank is None:
        out.append(matrix("self_attn.q_proj", wide_q, hidden, Shard.COLUMN))
    else:
        out += [
            matrix("self_attn.q_a_proj", q_rank, hidden, Shard.REPLICATED),
            vector("self_attn.q_a_layernorm", q_rank),
            matrix("self_attn.q_b_proj", wide_q, q_rank, Shard.COLUMN),
        ]
    if indexer is not None:
        index_heads, index_dim = indexer
        out += [
            matrix("self_attn.indexer.wq_b", index_heads * index_dim, q_rank or hidden, Shard.REPLICATED),
            matrix("self_attn.indexer.wk", index_dim, hidden, Shard.REPLICATED),
            vector("self_attn.indexer.k_norm", 2 * index_dim),
            Weight("self_attn.indexer.weights_proj", index_heads, hidden, Shard.REPLICATED),
        ]
    return out


def mlp(hidden: int, width: int, *, name: str = "mlp", gated: bool = True, bias: bool = False) -> list[Weight]:
    """Feed-forward: gate, up and down, or up and down only."""
    if not width:
        return []
    ups = 2 if gated else 1
    up_name = f"{name}.gate_up_proj" if gated else f"{name}.up_proj"
    out = [
        matrix(up_name, ups * width, hidden, Shard.COLUMN),
        matrix(f"{name}.down_proj", hidden, width, Shard.ROW),
    ]
    if bias:
        out += [vector(f"{name}.up_proj.bias", ups * width, Shard.COLUMN), vector(f"{name}.down_proj.bias", hidden)]
    return out


def experts(
    hidden: int,
    width: int,
    number: int,
    *,
    gated: bool = True,
    bias: bool = False,
    router_bias: bool = False,
    router_width: int | None = None,
    name: str = "mlp",
) -> list[Weight]:
    """Routed experts and their router (which stays unquantised and whole on every rank)."""
    ups = 2 if gated else 1
    out = [
        matrix(f"{name}.experts.gate_up_proj", ups * width, hidden, Shard.EXPERT, number),
        matrix(f"{name}.experts.down_proj", hidden, width, Shard.EXPERT, number),
        Weight(f"{name}.gate", number, router_width or hidden, Shard.REPLICATED),
    ]
    if bias:
        out += [
            vector(f"{name}.experts.gate_up_proj_bias", ups * width, Shard.EXPERT, number),
            vector(f"{name}.experts.down_proj_bias", hidden, Shard.EXPERT, number),
        ]
    if router_bias:
        out.append(vector(f"{name}.gate.bias", number))
    return out


def gated_delta_net(
    hidden: int, k_heads: int, k_dim: int, v_heads: int, v_dim: int, kernel: int, ssm_dtype: str | None
) -> tuple[list[Weight], RecurrentState]:
    """Qwen3-Next's linear attention (transformers ``modeling_qwen3_next.py`` Qwen3NextGatedDeltaNet)."""
    key, value = k_heads * k_dim, v_heads * v_dim
    conv = 2 * key + value
    weights = [
        matrix("linear_attn.in_proj_qkvz", 2 * key + 2 * value, hidden, Shard.COLUMN),
        matrix("linear_attn.in_proj_ba", 2 * v_heads, hidden, Shard.COLUMN),
        Weight("linear_attn.conv1d", conv, kernel, Shard.COLUMN),
        vector("linear_attn.A_log", v_heads, Shard.COLUMN),
        vector("linear_attn.dt_bias", v_heads, Shard.COLUMN),
        vector("linear_attn.norm", v_dim),
        matrix("linear_attn.out_proj", hidden, value, Shard.ROW),
    ]
    state = RecurrentState(
        "gdn",
        conv * (kernel - 1),
        v_heads * v_dim * k_dim,
        k_heads=k_heads,
        k_dim=k_dim,
        v_heads=v_heads,
        v_dim=v_dim,
        kernel=kernel,
        ssm_dtype=ssm_dtype,
    )
    return weights, state


def mamba2(
    hidden: int,
    heads: int,
    head_dim: int,
    groups: int,
    state_size: int,
    kernel: int,
    *,
    inner: int | None = None,
    conv_bias: bool = True,
    projection_bias: bool = False,
    norm: bool = True,
    name: str = "mamba",
    ssm_dtype: str | None = None,
) -> tuple[list[Weight], RecurrentState]:
    """Mamba 2 mixer (transformers ``modeling_mamba2.py``); its state as vLLM ``mamba_utils.py mamba2_state_shape``."""
    inner = inner if inner is not None else heads * head_dim
    conv = inner + 2 * groups * state_size
    weights = [
        matrix(f"{name}.in_proj", inner + conv + heads, hidden, Shard.COLUMN),
        Weight(f"{name}.conv1d", conv, kernel + (1 if conv_bias else 0), Shard.COLUMN),
        vector(f"{name}.A_log", heads, Shard.COLUMN),
        vector(f"{name}.D", heads, Shard.COLUMN),
        vector(f"{name}.dt_bias", heads, Shard.COLUMN),
        matrix(f"{name}.out_proj", hidden, inner, Shard.ROW),
    ]
    if norm:
        weights.append(vector(f"{name}.norm", inner, Shard.COLUMN))
    if projection_bias:
        weights += [vector(f"{name}.in_proj.bias", inner + conv + heads, Shard.COLUMN)]
        weights += [vector(f"{name}.out_proj.bias", hidden)]
    state = RecurrentState(
        "mamba2",
        conv * (kernel - 1),
        heads * head_dim * state_size,
        k_dim=state_size,
        v_heads=heads,
        v_dim=head_dim,
        kernel=kernel,
        ssm_dtype=ssm_dtype,
        groups=groups,
    )
    return weights, state


def short_convolution(hidden: int, kernel: int, bias: bool) -> tuple[list[Weight], RecurrentState]:
    """LFM2's gated short convolution (transformers ``modeling_lfm2.py`` Lfm2ShortConv)."""
    weights = [
        matrix("conv.in_proj", 3 * hidden, hidden, Shard.COLUMN),
        Weight("conv.conv", hidden, kernel + (1 if bias else 0), Shard.COLUMN),
        matrix("conv.out_proj", hidden, hidden, Shard.ROW),
    ]
    if bias:
        weights += [vector("conv.in_proj.bias", 3 * hidden, Shard.COLUMN), vector("conv.out_proj.bias", hidden)]
    return weights, RecurrentState("lfm2", hidden * (kernel - 1), 0, kernel=kernel)
