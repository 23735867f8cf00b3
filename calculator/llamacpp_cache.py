"""
Cells, KV cache, recurrent state and output buffer of llama.cpp.

Sources, llama.cpp b11434: src/llama-context.cpp (cells, output buffer), src/llama-kv-cache.cpp and
src/llama-kv-cache-iswa.cpp (caches), src/llama-memory-recurrent.cpp (states). Earlier rules: the builds named in
`calculator.llamacpp_settings`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from calculator.ggml_types import row_bytes
from calculator.llamacpp_settings import (
    BUILD_MLA_CACHE,
    BUILD_MLA_K_ONLY,
    BUILD_WINDOW_CACHE,
    BUILD_WINDOW_PAD_256,
    BUILD_WINDOW_UBATCH,
    LlamaCppSettings,
)
from calculator.model import Attention, CalculatorError, Layer, MissingFactError, Model

CELL_PADDING = 256
SWA_PADDING_BEFORE = 32  # of the window cache between b5427 and b7063, with flash attention 256
STATE_BYTES = 4  # recurrent states are F32 whatever the cache types say
LOGIT_BYTES = 4

_row = cache(row_bytes)


def pad(value: int, to: int) -> int:
    """The next multiple of `to` (GGML_PAD)."""
    return -(-value // to) * to


@dataclass(frozen=True, slots=True)
class Cells:
    """How the context is shared out. All in tokens."""

    context: int  # n_ctx, all slots together
    per_slot: int  # n_ctx_seq: what one request can use, and the cells of each stream
    streams: int  # caches side by side
    window: int | None  # cells of the window cache, each stream; None: no sliding layers
    batch: int
    ubatch: int


def context_cells(model: Model, settings: LlamaCppSettings) -> Cells:
    """
    The cells of the caches.

    Raises `MissingFactError` when neither `-c` nor the model's training context is known.
    """
    asked = settings.context or model.context_train
    if not asked:
        raise MissingFactError(f"{model.name}: its training context is not known; state the context with -c")
    slots = settings.slots
    batch = min(asked, settings.batch)
    ubatch = min(batch, settings.ubatch)
    context = pad(asked, CELL_PADDING)
    streams = 1 if settings.unified else slots
    per_slot = context
    if streams > 1:
        per_slot = pad(context // slots, CELL_PADDING)
        context = per_slot * slots
    windows = [layer.window for layer in model.layers if layer.window]
    window = None
    if windows:
        window = _window_cells(max(windows), per_slot, settings, batch, ubatch)
    return Cells(context, per_slot, streams, window, batch, ubatch)


def _window_cells(window: int, cells: int, settings: LlamaCppSettings, batch: int, ubatch: int) -> int:
    """Cells of a sliding layer (llama_kv_cache_iswa)."""
    if settings.swa_full or settings.era < BUILD_WINDOW_CACHE:
        return cells
    sequences = settings.slots if settings.unified else 1
    room = ubatch if settings.era >= BUILD_WINDOW_UBATCH else batch
    if settings.era < BUILD_WINDOW_PAD_256:
        step = CELL_PADDING if settings.uses_flash_attention else SWA_PADDING_BEFORE
        return min(cells, pad(window * sequences + room, step))
    return pad(min(cells, window * sequences + room), CELL_PADDING)


def layer_kv_bytes(layer: Layer, settings: LlamaCppSettings, cells: Cells, widest_v: int) -> int:
    """
    Bytes of one layer's cache, of all streams.

    `widest_v` is the widest V of any layer: without flash attention V is kept transposed and padded to it.
    """
    if layer.attention is Attention.NONE or layer.shares_kv:
        return 0
    count = cells.per_slot
    if layer.window and cells.window is not None:
        count = cells.window
    count *= cells.streams
    if layer.attention is Attention.MLA:
        if layer.mla_width is None:
            raise MissingFactError("a compressed (MLA) layer without its width")
        if settings.era < BUILD_MLA_CACHE:
            raise CalculatorError(
                f"llama.cpp before b{BUILD_MLA_CACHE} (#12801) keeps all heads of this model instead of the compressed "
                "vector, and needs a GGUF file of that time: plan with such a file, or with a newer build"
            )
        total = _row(settings.cache_type_k, layer.mla_width)
        if settings.era < BUILD_MLA_K_ONLY:
            total += _row(settings.cache_type_v, layer.mla_lora_rank or 0)
        if layer.indexer_width:
            total += _row(settings.cache_type_k, layer.indexer_width)
        return count * total
    width_v = layer.n_head_kv * layer.head_dim_v
    if not settings.uses_flash_attention:
        width_v = max(width_v, widest_v)
    return count * (
        _row(settings.cache_type_k, layer.n_head_kv * layer.head_dim_k) + _row(settings.cache_type_v, width_v)
    )


def widest_v(layers: Sequence[Layer]) -> int:
    """The widest V row of the layers (n_embd_v_gqa_max)."""
    return max((layer.n_head_kv * layer.head_dim_v for layer in layers), default=0)


def layer_state_bytes(layer: Layer, settings: LlamaCppSettings) -> int:
    """Bytes of one layer's recurrent state: a row for every slot, and one for each step that may be taken back."""
    if layer.state is None:
        return 0
    rows = settings.slots * (1 + settings.rollback_rows)
    return rows * (layer.state.conv_elements + layer.state.ssm_elements) * STATE_BYTES


def output_bytes(model: Model, settings: LlamaCppSettings) -> int:
    """Bytes of the output buffer on the host: logits of a token for every slot, and its embedding where asked."""
    width = model.n_vocab + (model.n_embd if settings.embeddings else 0)
    return settings.slots * width * LOGIT_BYTES
