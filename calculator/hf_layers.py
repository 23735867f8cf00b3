"""Which layer of a Hugging Face configuration attends how, and the assembly of one layer from its parts."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from calculator.hf_blocks import count
from calculator.hf_fields import Fields
from calculator.model import Attention, Layer, MalformedModelError, RecurrentState, Weight

# The words of `layer_types` in transformers 5.19, `configuration_utils.py` ALLOWED_LAYER_TYPES, and older spellings.
KINDS = {
    "full_attention": "full",
    "attention": "full",
    "hybrid": "hybrid",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "mamba": "linear",
    "conv": "conv",
    "moe": "moe",
    "mlp": "mlp",
    "indexed_attention": "full",
}


@dataclass(frozen=True, slots=True)
class Parts:
    """What a family's builder found: blocks, draft blocks and weights outside the blocks."""

    layers: tuple[Layer, ...]
    mtp_layers: tuple[Layer, ...] = ()
    weights: tuple[Weight, ...] = ()  # beyond embedding, head and last norm
    last_norm: int = 1  # vectors of the last norm: 2 with a bias
    n_embd_per_layer: int | None = None
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_exp: int | None = None
    n_shared_experts: int = 0


def once(make: Callable[..., Layer], keys: Iterable[tuple[Hashable, ...]]) -> tuple[Layer, ...]:
    """Make each distinct layer once, so that a model of 90 layers holds two or three objects."""
    made: dict[tuple[Hashable, ...], Layer] = {}
    out = []
    for key in keys:
        found = made.get(key)
        if found is None:
            found = made[key] = make(*key)
        out.append(found)
    return tuple(out)


def layer(
    weights: Sequence[Weight],
    *,
    attention: Attention = Attention.NONE,
    heads: int = 0,
    heads_kv: int = 0,
    head_dim: int = 0,
    window: int | None = None,
    shares_kv: bool = False,
    mla_width: int | None = None,
    mla_rank: int | None = None,
    indexer_width: int | None = None,
    state: RecurrentState | None = None,
    n_ff: int = 0,
    experts: int = 0,
    head_dim_v: int | None = None,
) -> Layer:
    """Assemble a layer; its parameters are the sum over its weights."""
    return Layer(
        attention=attention,
        n_head=heads,
        n_head_kv=heads_kv,
        head_dim_k=head_dim,
        head_dim_v=head_dim if head_dim_v is None else head_dim_v,
        window=window if attention in (Attention.SLIDING, Attention.CHUNKED) else None,
        shares_kv=shares_kv,
        mla_width=mla_width,
        mla_lora_rank=mla_rank,
        indexer_width=indexer_width,
        state=state,
        n_ff=n_ff,
        experts=experts,
        parameters=count(weights),
        weights=tuple(weights),
    )


@dataclass(frozen=True, slots=True)
class Heads:
    """Width and heads of a configuration, checked."""

    hidden: int
    layers: int
    heads: int
    heads_kv: int
    head_dim: int

    @classmethod
    def of(cls, fields: Fields, *, default_kv: int | None = None) -> Heads:
        """
        Read them; a missing `head_dim` is hidden size / heads, as transformers computes it.

        :raises MalformedModelError: the heads don't divide
        """
        hidden, layers, heads = fields.size("hidden_size"), fields.size("num_hidden_layers"), _heads(fields)
        if layers > 10_000:
            raise MalformedModelError(f"{fields.path}: num_hidden_layers is {layers}; no model has so many")
        heads_kv = fields.size("num_key_value_heads", default=default_kv or heads)
        if heads % heads_kv:
            raise MalformedModelError(
                f"{fields.path}: num_attention_heads {heads} is not a multiple of num_key_value_heads {heads_kv}"
            )
        if fields.has("head_dim") or fields.has("attention_head_dim"):
            head_dim = fields.size("head_dim", "attention_head_dim")
        elif hidden % heads:
            raise MalformedModelError(
                f"{fields.path}: hidden_size {hidden} is not a multiple of num_attention_heads {heads}, "
                "and head_dim is missing"
            )
        else:
            head_dim = hidden // heads
        return cls(hidden, layers, heads, heads_kv, head_dim)


def _heads(fields: Fields) -> int:
    return fields.size("num_attention_heads", "n_head")


def layer_kinds(fields: Fields, layers: int, default: Callable[[int], str]) -> list[str]:
    """
    Give the kind of every layer: from `layer_types` (or `layers_block_type`), else from the family's `default`.

    :raises MalformedModelError: an unknown word, or another number of entries than layers
    """
    for name in ("layer_types", "layers_block_type"):
        words = fields.names(name, layers)
        if words is None:
            continue
        unknown = sorted({word for word in words if word not in KINDS})
        if unknown:
            raise MalformedModelError(f"{fields.path}: {name} holds {unknown[0]!r}, which no rule here knows")
        return [KINDS[word] for word in words]
    return [default(index) for index in range(layers)]


def window_of(fields: Fields, kinds: Sequence[str]) -> int | None:
    """
    Give the window of sliding or chunked layers.

    :raises MissingFactError: there are such layers and no window
    """
    if "chunked" in kinds:
        return fields.size("attention_chunk_size")
    if "sliding" in kinds:
        return fields.size("sliding_window")
    return None


ATTENTIONS = {"full": Attention.FULL, "sliding": Attention.SLIDING, "chunked": Attention.CHUNKED}


def attention_kind(kind: str, fields: Fields) -> Attention:
    """
    Give the attention of an attention-only family's layer.

    :raises MalformedModelError: a kind of layer that such a family does not have
    """
    try:
        return ATTENTIONS[kind]
    except KeyError:
        raise MalformedModelError(
            f"{fields.path}: layer_types holds a {kind!r} layer, which this architecture does not have"
        ) from None
