"""What llama.cpp computes at once, and which of its blocks are enough to lay that out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calculator.model import Layer


@dataclass(frozen=True, slots=True)
class Work:
    """One micro-batch. Lengths are tokens."""

    tokens: int
    outputs: int  # rows of logits
    cells: int  # of each stream of the full cache
    window_cells: int
    sequences: int  # states of recurrent layers that are read
    flash: bool
    mask_bytes: int  # of one element of the mask as an input
    cast_mask: bool  # flash attention reads a half-precision copy of a single-precision mask
    fused_gate: bool  # gate and up become a third tensor, instead of being multiplied in place
    cell_indices: bool  # K and V are written by index; without flash attention V by the index of every element
    rotates_k: bool  # a quantised cache: heads of a multiple of 64 are rotated before they are stored
    rotates_v: bool
    embedding_inputs: int  # 0: tokens only; 1: a second input for embeddings; 2: and a third that mixes both


@dataclass(frozen=True, slots=True)
class Part:
    """What of the graph runs in one buffer."""

    layers: tuple[Layer, ...]  # in order; alike neighbours may be left out
    embeds: bool  # looks the tokens up
    outputs: bool  # ends with the logits
    staged_bytes: int = 0  # the largest weight of the host that a device copies in to compute with
    staged_head_bytes: int = 0  # the output head, where it lies on the host
    inputs_only: bool = False  # the blocks run elsewhere and read these inputs
    copies: int = 1  # of the inputs, while several devices work on micro-batches in turn


Kind = tuple[object, ...]


def kind_of(layer: Layer) -> Kind:
    """What makes blocks alike, as far as the sizes of their tensors go."""
    return (layer.attention, layer.n_head, layer.n_head_kv, layer.head_dim_k, layer.n_ff, layer.experts,
            layer.state is None, layer.shares_kv, layer.indexer_width)  # fmt: skip


def representative(kinds: Sequence[Kind]) -> list[int]:
    """
    Numbers of the layers that are enough for the same peak: the first three, each new pair of neighbours, the last two.

    Every block frees what it used before the next begins, so the places repeat.
    """
    kept: list[int] = []
    seen: set[tuple[Kind, Kind]] = set()
    previous: Kind = ()
    last = len(kinds) - 2
    for index, kind in enumerate(kinds):
        pair = previous, kind
        if index < 3 or index >= last or pair not in seen:
            kept.append(index)
            seen.add(pair)
        previous = kind
    return kept
