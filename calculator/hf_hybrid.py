"""
Families with recurrent layers: Qwen3-Next and Qwen3.5, Granite 4, Nemotron-H, Falcon-H1, LFM2.

What a family's block holds is read in its ``modeling_*.py`` of Hugging Face transformers 5.19.
"""

from __future__ import annotations

from collections.abc import Sequence

from calculator.hf_blocks import attention, experts, gated_delta_net, mamba2, matrix, mlp, short_convolution, vector
from calculator.hf_fields import Fields
from calculator.hf_layers import Heads, Parts, layer, layer_kinds, once
from calculator.hf_moe import experts_of
from calculator.model import Attention, Layer, MalformedModelError, RecurrentState, Shard, Weight

GDN_FAMILIES = ("qwen3_next", "qwen3_5_text", "qwen3_5", "qwen3_5_moe_text", "qwen3_5_moe")
HYBRID_FAMILIES = (*GDN_FAMILIES, "granitemoehybrid", "nemotron_h", "falcon_h1", "lfm2", "lfm2_moe")
LETTERS = {"M": "linear", "E": "moe", "*": "full", "-": "mlp"}


def _attention_layer(heads: Heads, weights: Sequence[Weight], **more: int | RecurrentState | None) -> Layer:
    state = more.get("state")
    return layer(
        weights,
        attention=Attention.FULL,
        heads=heads.heads,
        heads_kv=heads.heads_kv,
        head_dim=heads.head_dim,
        state=state if isinstance(state, RecurrentState) else None,
        n_ff=_whole(more.get("n_ff")),
        experts=_whole(more.get("experts")),
    )


def _whole(value: int | RecurrentState | None) -> int:
    return value if isinstance(value, int) else 0


def build_gated_delta(family: str, fields: Fields) -> Parts:
    """
    Build Qwen3-Next and Qwen3.5: three layers of gated delta net to one of gated attention.

    :raises CalculatorError: a field is missing or contradicts another
    """
    heads = Heads.of(fields)
    step = fields.size("full_attention_interval", default=4)
    kinds = layer_kinds(fields, heads.layers, lambda index: "linear" if (index + 1) % step else "full")
    moe = family == "qwen3_next" or "moe" in family
    number, used = experts_of(fields) if moe else (0, 0)
    dense = set(fields.integers("mlp_only_layers") or [])
    width = fields.size("moe_intermediate_size") if moe else fields.size("intermediate_size")

    def feed_forward(sparse: bool) -> list[Weight]:
        if not sparse:
            return mlp(heads.hidden, fields.size("intermediate_size"))
        return [
            *experts(heads.hidden, width, number),
            *mlp(heads.hidden, fields.size("shared_expert_intermediate_size"), name="mlp.shared_expert"),
            Weight("mlp.shared_expert_gate", 1, heads.hidden, Shard.REPLICATED),
        ]

    def make(kind: str, sparse: bool) -> Layer:
        rest = [*feed_forward(sparse), vector("norms", 2 * heads.hidden)]
        n_ff, n_experts = (0, number) if sparse else (fields.size("intermediate_size"), 0)
        if kind == "full":
            weights = attention(heads.hidden, heads.heads, heads.heads_kv, heads.head_dim, head_norms=True, gate=True)
            return _attention_layer(heads, [*weights, *rest], n_ff=n_ff, experts=n_experts)
        mixer, state = gated_delta_net(
            heads.hidden,
            fields.size("linear_num_key_heads"),
            fields.size("linear_key_head_dim"),
            fields.size("linear_num_value_heads"),
            fields.size("linear_value_head_dim"),
            fields.size("linear_conv_kernel_dim"),
            fields.text("mamba_ssm_dtype") or ("float32" if family.startswith("qwen3_5") else None),
        )
        return layer([*mixer, *rest], state=state, n_ff=n_ff, experts=n_experts)

    sparse = [moe and index not in dense for index in range(heads.layers)]
    layers = once(make, zip(kinds, sparse, strict=True))
    mtp: tuple[Layer, ...] = ()
    if blocks := fields.integer("mtp_num_hidden_layers", "num_nextn_predict_layers", default=0):
        inner = make("full", moe)
        projection = [
            matrix("mtp.fc", heads.hidden, 2 * heads.hidden, Shard.REPLICATED),
            vector("mtp.norms", 3 * heads.hidden),
        ]
        mtp = (_attention_layer(heads, [*inner.weights, *projection], n_ff=inner.n_ff, experts=inner.experts),) * blocks
    return Parts(
        layers,
        mtp_layers=mtp,
        n_expert=number,
        n_expert_used=used,
        n_ff_exp=width if moe else None,
        n_shared_experts=1 if moe else 0,
    )


def build_granite_hybrid(fields: Fields) -> Parts:
    """
    Build Granite 4: Mamba 2 and attention layers, each followed by experts and a shared feed-forward.

    :raises CalculatorError: a field is missing or contradicts another
    """
    heads = Heads.of(fields)
    kinds = layer_kinds(fields, heads.layers, lambda _: "linear")
    number = fields.integer("num_local_experts", default=0)
    used = fields.integer("num_experts_per_tok", default=0) if number else 0
    shared_width = fields.size("shared_intermediate_size")
    width = fields.size("intermediate_size") if number else None

    def make(kind: str) -> Layer:
        rest = mlp(heads.hidden, shared_width, name="shared_mlp")
        if width:
            rest += experts(heads.hidden, width, number, name="block_sparse_moe")
        rest.append(vector("norms", 2 * heads.hidden))
        if kind == "full":
            bias = fields.flag("attention_bias")
            weights = attention(heads.hidden, heads.heads, heads.heads_kv, heads.head_dim, bias=bias, output_bias=bias)
            return _attention_layer(heads, [*weights, *rest], n_ff=shared_width, experts=number)
        mixer, state = _mamba_mixer(fields, heads.hidden)
        return layer([*mixer, *rest], state=state, n_ff=shared_width, experts=number)

    layers = once(make, [(kind,) for kind in kinds])
    return Parts(layers, n_expert=number, n_expert_used=used, n_ff_exp=width, n_shared_experts=1 if number else 0)


def _mamba_mixer(
    fields: Fields, hidden: int, inner: int | None = None, norm: bool = True
) -> tuple[list[Weight], RecurrentState]:
    """Read the `mamba_*` fields that Granite 4 and Falcon-H1 share."""
    if inner is None:
        inner = fields.size("mamba_expand", default=2) * hidden
    number = fields.size("mamba_n_heads")
    automatic = fields.values.get("mamba_d_head") in (None, "auto")
    head_dim = inner // number if automatic else fields.size("mamba_d_head")
    if number * head_dim != inner:
        raise MalformedModelError(
            f"{fields.path}: mamba_n_heads {number} x mamba_d_head {head_dim} is not the inner width {inner}"
        )
    return mamba2(
        hidden,
        number,
        head_dim,
        fields.size("mamba_n_groups"),
        fields.size("mamba_d_state"),
        fields.size("mamba_d_conv"),
        inner=inner,
        conv_bias=fields.flag("mamba_conv_bias", default=True),
        projection_bias=fields.flag("mamba_proj_bias"),
        norm=norm,
    )


def build_falcon_h1(fields: Fields) -> Parts:
    """
    Build Falcon-H1: attention and a Mamba 2 mixer side by side in every layer.

    :raises CalculatorError: a field is missing or contradicts another
    """
    heads = Heads.of(fields)
    width = fields.size("intermediate_size")
    inner = fields.size("mamba_d_ssm") if fields.has("mamba_d_ssm") else None
    bias = fields.flag("attention_bias")
    weights = attention(heads.hidden, heads.heads, heads.heads_kv, heads.head_dim, bias=bias, output_bias=bias)
    mixer, state = _mamba_mixer(fields, heads.hidden, inner, norm=fields.flag("mamba_rms_norm"))
    weights += [*mixer, *mlp(heads.hidden, width, name="feed_forward", bias=fields.flag("mlp_bias"))]
    weights.append(vector("norms", 2 * heads.hidden))
    return Parts((_attention_layer(heads, weights, state=state, n_ff=width),) * heads.layers)


def build_nemotron_h(fields: Fields) -> Parts:
    """
    Build Nemotron-H: each block is one of Mamba 2, attention, feed-forward or experts.

    :raises CalculatorError: a field is missing or contradicts another
    """
    heads = Heads.of(fields)
    pattern = fields.text("hybrid_override_pattern")
    if pattern is None:
        kinds = layer_kinds(fields, heads.layers, lambda _: "missing")
        if "missing" in kinds:
            raise MalformedModelError(f"{fields.path}: hybrid_override_pattern or layers_block_type is needed")
    else:
        if len(pattern) != heads.layers or set(pattern) - set(LETTERS):
            raise MalformedModelError(
                f"{fields.path}: hybrid_override_pattern has {len(pattern)} letters for {heads.layers} layers; "
                f"its letters are {' '.join(LETTERS)}"
            )
        kinds = [LETTERS[letter] for letter in pattern]
    number, used = experts_of(fields) if "moe" in kinds else (0, 0)
    latent = fields.integer("moe_latent_size", default=0)

    def make(kind: str) -> Layer:
        norm = vector("norm", heads.hidden)
        if kind == "full":
            weights = attention(heads.hidden, heads.heads, heads.heads_kv, heads.head_dim)
            return _attention_layer(heads, [*weights, norm])
        if kind == "mlp":
            width = fields.size("intermediate_size")
            return layer([*mlp(heads.hidden, width, name="mixer", gated=False), norm], n_ff=width)
        if kind == "moe":
            return layer([*_nemotron_experts(fields, heads.hidden, number, latent), norm], experts=number)
        mixer, state = mamba2(
            heads.hidden,
            fields.size("mamba_num_heads"),
            fields.size("mamba_head_dim"),
            fields.size("n_groups", "mamba_n_groups"),
            fields.size("ssm_state_size"),
            fields.size("conv_kernel", "mamba_d_conv"),
            conv_bias=fields.flag("use_conv_bias", "mamba_conv_bias", default=True),
            name="mixer",
            ssm_dtype=fields.text("mamba_ssm_cache_dtype"),
        )
        return layer([*mixer, norm], state=state)

    return Parts(
        once(make, [(kind,) for kind in kinds]),
        n_expert=number,
        n_expert_used=used,
        n_ff_exp=fields.size("moe_intermediate_size") if number else None,
        n_shared_experts=fields.integer("n_shared_experts", default=0) if number else 0,
    )


def _nemotron_experts(fields: Fields, hidden: int, number: int, latent: int) -> list[Weight]:
    out = experts(
        latent or hidden,
        fields.size("moe_intermediate_size"),
        number,
        gated=False,
        router_width=hidden,
        name="mixer",
    )
    out.append(vector("mixer.gate.e_score_correction_bias", number))
    shared = fields.integer("n_shared_experts", default=1) * fields.integer("moe_shared_expert_intermediate_size")
    out += mlp(hidden, shared, name="mixer.shared_experts", gated=False)
    if latent:
        out += [
            matrix("mixer.fc1_latent_proj", latent, hidden, Shard.REPLICATED),
            matrix("mixer.fc2_latent_proj", hidden, latent, Shard.REPLICATED),
        ]
    return out


def build_lfm2(family: str, fields: Fields) -> Parts:
    """
    Build LFM2: short convolutions and some attention layers.

    :raises CalculatorError: a field is missing or contradicts another
    """
    heads = Heads.of(fields)
    indices = fields.integers("full_attn_idxs")
    attends = set(range(heads.layers) if indices is None else indices)
    kinds = layer_kinds(fields, heads.layers, lambda index: "full" if index in attends else "conv")
    moe = family == "lfm2_moe"
    number, used = experts_of(fields) if moe else (0, 0)
    dense = fields.integer("num_dense_layers", default=2) if moe else heads.layers
    width = fields.size("intermediate_size", "block_ff_dim") if moe else _lfm2_width(fields)

    def make(kind: str, sparse: bool) -> Layer:
        if sparse:
            rest = experts(heads.hidden, fields.size("moe_intermediate_size"), number, name="feed_forward")
            rest.append(vector("feed_forward.expert_bias", number))
        else:
            rest = mlp(heads.hidden, width, name="feed_forward")
        rest.append(vector("norms", 2 * heads.hidden))
        n_ff, n_experts = (0, number) if sparse else (width, 0)
        if kind == "full":
            weights = attention(heads.hidden, heads.heads, heads.heads_kv, heads.head_dim, head_norms=True)
            return _attention_layer(heads, [*weights, *rest], n_ff=n_ff, experts=n_experts)
        mixer, state = short_convolution(heads.hidden, fields.size("conv_L_cache", default=3), fields.flag("conv_bias"))
        return layer([*mixer, *rest], state=state, n_ff=n_ff, experts=n_experts)

    sparse = [index >= dense for index in range(heads.layers)]
    return Parts(
        once(make, zip(kinds, sparse, strict=True)),
        n_expert=number,
        n_expert_used=used,
        n_ff_exp=fields.size("moe_intermediate_size") if moe else None,
    )


def _lfm2_width(fields: Fields) -> int:
    """Give the feed-forward width (transformers ``modeling_lfm2.py`` Lfm2MLP: two thirds, rounded up)."""
    width = fields.size("block_ff_dim", "intermediate_size")
    if not fields.flag("block_auto_adjust_ff_dim", default=True):
        return width
    width = int(fields.number("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
    multiple = fields.size("block_multiple_of", default=256)
    return -(-width // multiple) * multiple


def build_hybrid(family: str, fields: Fields) -> Parts:
    """
    Build the layers of a family with recurrent layers.

    :raises CalculatorError: a field is missing or contradicts another
    """
    if family in GDN_FAMILIES:
        return build_gated_delta(family, fields)
    if family == "granitemoehybrid":
        return build_granite_hybrid(fields)
    if family == "nemotron_h":
        return build_nemotron_h(fields)
    if family == "falcon_h1":
        return build_falcon_h1(fields)
    return build_lfm2(family, fields)
