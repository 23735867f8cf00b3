"""
Compute buffers of llama.cpp, per device and for the host.

They are what its allocator reserves for the worst micro-batch (`sched_reserve`, src/llama-context.cpp), so the same
graph is laid out here (`calculator.llamacpp_graph`). Where the order of nodes was checked against the engine's own
estimator, the interval is 2 % wide; elsewhere it is wider, but never more than a factor of two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calculator.llamacpp_cache import Cells, pad
from calculator.llamacpp_graph import graph_bytes, input_bytes
from calculator.llamacpp_settings import (
    BUILD_CACHE_ROTATION,
    BUILD_CELL_INDICES,
    BUILD_EMBEDDING_INPUT,
    BUILD_EXPERTS_STACKED,
    BUILD_GATE_FUSED,
    BUILD_MASK_F16,
    BUILD_MIXED_INPUT,
    BUILD_OP_OFFLOAD,
    BUILD_SERVER_OUTPUTS,
    LlamaCppSettings,
)
from calculator.llamacpp_weights import HOST, Placed
from calculator.llamacpp_work import Part, Work, kind_of, representative
from calculator.model import Attention, Device, Interval, Layer, Model

OFFLOAD_MIN_BATCH = 32  # GGML_OP_OFFLOAD_MIN_BATCH: from here on a device computes with the host's weights
PIPELINE_COPIES = 4  # GGML_SCHED_MAX_COPIES
FLOATS = ("f32", "f16", "bf16")
EXACT_ERA = BUILD_MIXED_INPUT

# Architectures whose graph was compared node by node with the engine's own figures.
CHECKED = frozenset({"llama", "qwen2", "qwen3", "qwen3moe"})
# Half-widths of intervals, as shares below and above the laid-out graph.
_CHECKED = (
    0.01,
    0.012,
)  # equal to the last printed place in nearly all of 300 comparisons
_CHECKED_NO_FLASH = (0.05, 0.04)
_SMALL_TENSORS_BYTES = 256 << 10
_CHECKED_ELSEWHERE = (0.07, 0.07)  # the same graph, on a device or in an earlier build
_SIMILAR = (0.25, 0.35)  # attention layers in another order of nodes
_RECURRENT = (0.25, 0.35)  # scans differ between backends and builds
_SPARSE = (0.25, 0.5)  # so does the indexer of sparse attention


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute buffers in bytes."""

    devices: tuple[Interval, ...]
    host: Interval


Sizes = dict[object, int]


def work_of(settings: LlamaCppSettings, cells: Cells) -> Work:
    """The worst micro-batch."""
    era, flash = settings.era, settings.uses_flash_attention
    tokens = pad(cells.ubatch, settings.slots)  # graph_reserve: a multiple of the sequences
    every = settings.all_outputs or era < BUILD_SERVER_OUTPUTS or settings.embeddings
    half = flash and era >= BUILD_MASK_F16
    return Work(
        tokens=tokens,
        outputs=cells.ubatch if every else min(tokens, settings.slots * (1 + settings.rollback_rows)),
        cells=cells.per_slot,
        window_cells=cells.window or 0,
        sequences=settings.slots,
        flash=flash,
        mask_bytes=2 if half else 4,
        cast_mask=flash and not half,
        fused_gate=era >= BUILD_GATE_FUSED,
        cell_indices=era >= BUILD_CELL_INDICES,
        rotates_k=era >= BUILD_CACHE_ROTATION and settings.cache_type_k not in FLOATS,
        rotates_v=era >= BUILD_CACHE_ROTATION and settings.cache_type_v not in FLOATS,
        embedding_inputs=(era >= BUILD_EMBEDDING_INPUT) + (era >= BUILD_MIXED_INPUT),
    )


def compute_buffers(
    model: Model,
    settings: LlamaCppSettings,
    cells: Cells,
    placed: Placed,
    devices: Sequence[Device],
    known: Sizes | None = None,
) -> Compute:
    """
    What the graph needs on each device and on the host.

    Every device of a layer split holds a whole buffer: the widest block passes through each. Weights that stay on the
    host are copied to the first device to compute with them when a micro-batch has 32 tokens or more.
    """
    work = work_of(settings, cells)
    where, layers = placed.layer_device, model.layers
    output = where[-1]
    kinds = [kind_of(layer) for layer in layers]
    known = {} if known is None else known

    def size_of(chosen: Sequence[int], part: Part) -> int:
        """The buffer of these layers; parts of alike layers are laid out once."""
        own = [kinds[index] for index in chosen]
        numbers = representative(own)
        key = (tuple(own[number] for number in numbers), part, work)
        if key not in known:
            full = replace(part, layers=tuple(layers[chosen[number]] for number in numbers))
            known[key] = graph_bytes(model, work, full)
        return known[key]

    everything = range(len(layers))
    if not devices:
        size = size_of(everything, Part((), embeds=True, outputs=True))
        return Compute((), _around(size, model, layers, settings, work, on_host=True))
    staging = (
        settings.op_offload
        and settings.era >= BUILD_OP_OFFLOAD
        and work.tokens >= OFFLOAD_MIN_BATCH
        and (placed.staged_bytes > 0 or placed.staged_head_bytes > 0)
    )
    pipeline = (
        len(devices) > 1
        and settings.split_mode == "layer"
        and HOST not in where
        and not placed.overridden
        and settings.kv_offload
        and not any(device.name.startswith("RPC") for device in devices)  # no events between hosts
    )
    by_device: list[list[int]] = [[] for _ in range(len(devices) + 1)]  # the host's last
    for index in everything:
        by_device[where[index]].append(index)
    on_device = []
    for index in range(len(devices)):
        own: Sequence[int] = by_device[index]
        split = settings.split_mode == "tensor"
        if split or (staging and index == 0 and by_device[HOST]):
            own = everything  # the first device computes for the host
        outputs = output == index or split or (staging and index == 0 and output == HOST)
        if not own and not outputs:
            on_device.append(Interval.exactly(0))
            continue
        part = Part(
            (),
            embeds=False,
            outputs=outputs,
            staged_bytes=placed.staged_bytes if staging and index == 0 else 0,
            staged_head_bytes=placed.staged_head_bytes if staging and output == HOST and index == 0 else 0,
            copies=PIPELINE_COPIES if pipeline else 1,
        )
        some = [layers[number] for number in own]
        on_device.append(_around(size_of(own, part), model, some, settings, work, on_host=False))
    if work not in known:
        known[work] = input_bytes(model, work, layers)
    inputs = known[work] * (PIPELINE_COPIES if pipeline else 1)
    stay = by_device[HOST]
    if not stay and output != HOST:
        spread = 0 if settings.era >= EXACT_ERA and not pipeline else 0.05
        return Compute(tuple(on_device), Interval(int(inputs * (1 - spread)), int(inputs * (1 + spread))))
    on_host = [layers[number] for number in stay]
    size = size_of(stay, Part((), embeds=True, outputs=output == HOST))
    whole = _around(size, model, on_host, settings, work, on_host=True)
    if staging:
        stays = any(layer.state is not None for layer in on_host)  # scans run where their weights lie
        low = max(inputs, whole.high // 2) if stays else inputs
        whole = Interval(low, min(max(whole.high, low), 2 * low))
    return Compute(tuple(on_device), whole)


def _around(
    size: int, model: Model, layers: Sequence[Layer], settings: LlamaCppSettings, work: Work, *, on_host: bool
) -> Interval:
    """
    The interval in which a buffer lies whose laid-out graph has this size.

    Where masks are converted and logits follow, the order of allocation decides whether the logits can use the masks'
    place: up to both masks more.
    """
    recurrent = any(layer.state is not None for layer in layers)
    other = any(layer.attention in (Attention.MLA, Attention.CHUNKED) for layer in layers)
    one_by_one = model.n_expert > 0 and settings.era < BUILD_EXPERTS_STACKED  # experts in an order not checked
    if model.architecture in CHECKED and not recurrent and not one_by_one:
        if on_host and settings.era >= EXACT_ERA:
            below, above = _CHECKED if settings.uses_flash_attention else _CHECKED_NO_FLASH
            return Interval(int(size * (1 - below)), int(size * (1 + above)) + _SMALL_TENSORS_BYTES)
        below, above = _CHECKED_ELSEWHERE
    else:
        below, above = _RECURRENT if recurrent or other else _SIMILAR
        if any(layer.indexer_width for layer in layers):
            below, above = _SPARSE
    high = int(size * (1 + above))
    if work.cast_mask and work.outputs >= work.tokens - settings.slots:
        high += (work.mask_bytes + 2) * work.tokens * (work.cells + work.window_cells)
    low = int(size * (1 - below))
    return Interval(low, min(high, 2 * low))
