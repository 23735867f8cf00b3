"""
Weights of a vision encoder, where a configuration describes one of the usual shape (a vision transformer).

An encoder of another make (Gemma 3n's MobileNet, audio encoders) is not computed; the caller is told so.
"""

from __future__ import annotations

from calculator.hf_fields import Fields
from calculator.model import Shard, Weight


def vision_weights(fields: Fields, text_hidden: int) -> tuple[Weight, ...] | None:
    """
    Give the encoder's weights, or None where its shape is not one of those known here.

    Blocks are attention (4 matrices of width x width) and a feed-forward of two matrices, three in Qwen2.5-VL,
    Pixtral and Gemma 4 (transformers ``modeling_qwen2_5_vl.py``, ``modeling_siglip.py``, ``modeling_pixtral.py``, ...).
    """
    family = fields.text("model_type") or ""
    if not fields.has("intermediate_size") and family not in ("qwen2_vl",):
        return None
    depth = fields.integer("depth", "num_hidden_layers", default=0)
    width = fields.integer("hidden_size", "embed_dim", default=0)
    if not depth or not width:
        return None
    if family in ("qwen2_vl",):
        width = fields.size("embed_dim", default=width)
        feed = int(width * fields.number("mlp_ratio", 4.0))
    else:
        feed = fields.size("intermediate_size")
    gated = family in ("qwen2_5_vl", "qwen2_5_vl_vision", "pixtral", "gemma4_vision")
    patch = fields.size("patch_size", default=14)
    channels = fields.size("in_channels", "in_chans", "num_channels", default=3)
    frames = fields.size("temporal_patch_size", default=1)
    merge = fields.size("spatial_merge_size", default=1)
    block = 4 * width * width + (3 if gated else 2) * width * feed
    out: list[Weight] = [
        Weight("visual.blocks", block, 1, Shard.COLUMN, depth),
        Weight("visual.patch_embed", width, channels * frames * patch * patch, Shard.REPLICATED),
    ]
    if fields.has("num_position_embeddings") or fields.has("position_embedding_size"):
        tables = 2 if fields.has("position_embedding_size") else 1
        positions = fields.size("num_position_embeddings", "position_embedding_size")
        out.append(Weight("visual.pos_embed", positions, width, Shard.REPLICATED, tables))
    elif fields.has("image_size"):
        side = fields.size("image_size") // patch
        out.append(Weight("visual.pos_embed", side * side, width, Shard.REPLICATED))
    if family.startswith("qwen"):
        target = fields.size("out_hidden_size", default=text_hidden) if family != "qwen2_vl" else text_hidden
        merged = width * merge * merge
        deep = len(fields.items("deepstack_visual_indexes") or [])
        out.append(Weight("visual.merger", merged + target, merged, Shard.COLUMN, 1 + deep))
    else:
        out.append(Weight("visual.projector", text_hidden, width, Shard.REPLICATED))
    return tuple(out)
