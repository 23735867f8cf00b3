"""Sorts the tensors of a safetensors checkpoint into blocks and shards, so that a plan uses their exact bytes."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from calculator.model import Layer, MalformedModelError, Model, Shard, Tensor, Weight

_BLOCK = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d+)\.")
_DRAFT = re.compile(r"(?:^|\.)mtp\.")
_ENCODER = re.compile(r"(?:^|\.)(?:visual|vision_\w+|vit|multi_modal_projector|embed_vision|audio_\w+|embed_audio)\.")
# Names of Hugging Face checkpoints; first match decides. Shards as in vLLM 0.32's layers of the same name.
_SHARDS = (
    (re.compile(r"experts\.\d+\.|\.experts\."), Shard.EXPERT),
    (re.compile(r"embed_tokens|lm_head|word_embeddings|\.wte\.|(?:^|\.)embeddings\.weight"), Shard.VOCAB),
    (re.compile(r"\.[kv]_proj\."), Shard.KV),
    (re.compile(r"\.(?:o_proj|down_proj|out_proj|w2|c_proj|dense_4h_to_h)\."), Shard.ROW),
    (
        re.compile(
            r"\.(?:q_proj|qkv_proj|gate_proj|up_proj|gate_up_proj|in_proj\w*|q_b_proj|kv_b_proj|w1|w3|input_linear)\."
            r"|conv1d|A_log|dt_bias|\.D$|\.sinks$"
        ),
        Shard.COLUMN,
    ),
)
_Totals = dict[tuple[str, Shard, str, bool], list[int]]
_FLOATS = ("F32", "F16", "BF16", "F64")
_SCALE = re.compile(r"scale|zero_point|qzeros|g_idx")


def shard_of(name: str) -> Shard:
    """Say how a rank keeps the tensor of this name."""
    return next((shard for pattern, shard in _SHARDS if pattern.search(name)), Shard.REPLICATED)


def with_tensors(model: Model, tensors: Iterable[Tensor]) -> Model:
    """
    Replace a model's weights by shape with the stored ones, summed up by block, shard and type.

    Draft blocks (MTP) and an output head that is stored although it is tied are left out, as vLLM doesn't load them.

    :raises MalformedModelError: a layer of the configuration has no stored weights
    """
    tensors = tuple(tensors)
    blocks: list[_Totals] = [defaultdict(lambda: [0, 0]) for _ in model.layers]
    outside: _Totals = defaultdict(lambda: [0, 0])
    for tensor in tensors:
        encoder = _ENCODER.search(tensor.name) is not None
        found = None if encoder else _BLOCK.search(tensor.name)
        index = int(found.group(1)) if found else None
        if _DRAFT.search(tensor.name) or (index is not None and index >= len(blocks)):
            continue
        if model.tied_embeddings and "lm_head" in tensor.name:
            continue
        scale = _SCALE.search(tensor.name) is not None
        kind = f"{tensor.type} scale" if scale and tensor.type in _FLOATS else tensor.type
        shard = Shard.COLUMN if encoder else shard_of(tensor.name)
        linear = _is_linear(tensor, shard, encoder)
        where, name = (outside, _end(tensor.name, encoder)) if index is None else (blocks[index], "stored")
        total = where[name, shard, kind, linear]
        total[0] += math.prod(tensor.shape)
        total[1] += tensor.size_bytes
    missing = [index for index, block in enumerate(blocks) if not block]
    if missing:
        raise MalformedModelError(
            f"{model.name}: the safetensors files hold no weights of layer {missing[0]}, config.json has "
            f"{len(blocks)} layers; the download is incomplete or of another model"
        )
    made: dict[tuple[int, tuple[Weight, ...]], Layer] = {}  # equal blocks stay one object, which keeps plans fast
    layers = []
    for layer, block in zip(model.layers, blocks, strict=True):
        weights = _weights(block)
        key = (id(layer), weights)
        if key not in made:
            made[key] = replace(layer, weights=weights)
        layers.append(made[key])
    return replace(model, layers=tuple(layers), weights=_weights(outside), tensors=tensors)


def _weights(totals: _Totals) -> tuple[Weight, ...]:
    return tuple(
        Weight(name, elements, 1, shard, linear=linear, stored_bytes=size, stored_dtype=kind)
        for (name, shard, kind, linear), (elements, size) in totals.items()
    )


def _end(name: str, encoder: bool) -> str:
    """Tell what the last pipeline stage keeps from what the first one does."""
    if encoder:
        return "stored"
    return "lm_head" if "lm_head" in name else "norm" if re.search(r"norm\w*\.weight$", name) else "stored"


def _is_linear(tensor: Tensor, shard: Shard, encoder: bool) -> bool:
    """Say whether quantisation at load applies: a matrix of a block's projections, not of the image encoder."""
    divided = shard in (Shard.COLUMN, Shard.ROW, Shard.KV, Shard.EXPERT)
    return divided and not encoder and len(tensor.shape) >= 2 and "conv1d" not in tensor.name
