"""The rules behind the figures of a llama.cpp plan, in words, each with where it was read."""

from __future__ import annotations

from calculator.llamacpp_cache import Cells
from calculator.llamacpp_mixes import mix_of
from calculator.llamacpp_settings import (
    BUILD_MASK_F16,
    BUILD_MLA_K_ONLY,
    BUILD_SERVER_OUTPUTS,
    BUILD_WINDOW_CACHE,
    NEWEST_BUILD,
    LlamaCppSettings,
)
from calculator.llamacpp_weights import HOST, Placed
from calculator.model import Attention, Model, Note

_SOURCE = f"llama.cpp b{NEWEST_BUILD} "


def notes_of(
    model: Model, settings: LlamaCppSettings, cells: Cells, placed: Placed, *, estimated: bool
) -> tuple[Note, ...]:
    """Give the notes that apply to this plan."""
    out = [
        Note(
            "context_cells",
            f"{cells.context} cells: " + (
                f"{settings.slots} slots share them" if cells.streams == 1 and settings.slots > 1
                else f"{cells.per_slot} for each of {settings.slots} slots" if cells.streams > 1
                else "all for one slot"
            ) + "; padded to 256",
            _SOURCE + "src/llama-context.cpp",
        ),
        Note(
            "compute_buffers",
            "the graph of one micro-batch laid out as ggml's allocator does it; "
            + ("logits for every token of it" if settings.all_outputs or settings.era < BUILD_SERVER_OUTPUTS
               else "logits for one token a slot")
            + (", masks in half precision" if settings.era >= BUILD_MASK_F16 else ", masks in single precision"),
            _SOURCE + "ggml/src/ggml-alloc.c, src/llama-context.cpp sched_reserve",
        ),
        Note(
            "overhead",
            "driver context and pools are in no buffer: 150 to 450 MiB were observed, up to 300 MiB more under load",
            "printed breakdowns of CUDA, ROCm and Vulkan runs",
        ),
    ]  # fmt: skip
    if estimated:
        out.append(
            Note(
                "estimated_weights",
                f"no file: the weights are those of llama-quantize's {mix_of(model)} mix by shape; "
                "files of the same name differ",
                _SOURCE + "src/llama-quant.cpp",
            )
        )
    if any(layer.window for layer in model.layers):
        text = (
            f"sliding layers keep {cells.window} cells instead of {cells.per_slot}"
            if cells.window is not None and cells.window < cells.per_slot
            else "sliding layers keep as many cells as full ones"
            + (" (builds before 2025-05)" if settings.era < BUILD_WINDOW_CACHE else "")
        )
        out.append(Note("sliding_window", text, _SOURCE + "src/llama-kv-cache-iswa.cpp"))
    if any(layer.attention is Attention.MLA for layer in model.layers):
        text = "compressed cache: one latent a token" + (
            ", V is a view of K" if settings.era >= BUILD_MLA_K_ONLY else ", and V beside it in this build"
        )
        out.append(Note("mla", text, _SOURCE + "src/llama-kv-cache.cpp"))
    if any(layer.state is not None for layer in model.layers):
        out.append(
            Note(
                "recurrent_state",
                f"a state in single precision for each of {settings.slots} slots, whatever the context",
                _SOURCE + "src/llama-memory-recurrent.cpp",
            )
        )
    if not settings.uses_flash_attention:
        out.append(
            Note(
                "no_flash_attention",
                "V is kept transposed and padded to the widest layer; the whole score matrix is in the compute buffer",
                _SOURCE + "src/llama-kv-cache.cpp TAG_V_CACHE_VARIABLE",
            )
        )
    if placed.host_repacked_bytes and settings.repack:
        out.append(
            Note(
                "repacked_weights",
                f"up to {placed.host_repacked_bytes >> 20} MiB more: CPU backends copy matrices into a layout of their "
                "own (CPU_REPACK, AMX) while the mapped file stays; --no-repack avoids it",
                _SOURCE + "ggml/src/ggml-cpu/repack.cpp; ggml-org/llama.cpp#17035",
            )
        )
    if settings.mmap and placed.host_bytes:
        out.append(
            Note(
                "mapped_file",
                "weights on the host are pages of the mapped file: they count as cache until they are used",
                _SOURCE + "src/llama-model.cpp load_tensors",
            )
        )
    if model.tied_embeddings and placed.layer_device and placed.layer_device[-1] != HOST:
        out.append(
            Note(
                "tied_embedding",
                "the token embedding lies on the host, and once more on the output's device",
                _SOURCE + "src/llama-model.cpp TENSOR_DUPLICATED",
            )
        )
    if settings.cache_ram_mib:
        limit = "no limit" if settings.cache_ram_mib < 0 else f"{settings.cache_ram_mib} MiB"
        out.append(
            Note(
                "prompt_cache",
                f"the server may fill a prompt cache on the host on top ({limit}, --cache-ram); it is not in the sum",
                _SOURCE + "common/common.h cache_ram_mib",
            )
        )
    if settings.mmproj_bytes:
        out.append(
            Note(
                "mmproj",
                "the projector's own compute buffer comes on top; it depends on the image size",
                _SOURCE + "tools/mtmd/clip.cpp",
            )
        )
    return tuple(out)
