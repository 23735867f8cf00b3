"""
Which device holds which weights under llama.cpp.

Sources: `load_tensors` of src/llama-model.cpp (layers to devices), `LLM_TENSOR_INFOS` of src/llama-arch.cpp (input
and output tensors), common/common.h (patterns of --cpu-moe, --n-cpu-moe, --n-cpu-ffn), llama.cpp b11434.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct

from calculator.llamacpp_settings import LlamaCppSettings, SettingError
from calculator.model import Device, Model, Tensor

HOST = -1
EXPERTS = r"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
DENSE_FEED_FORWARD = r"\.ffn_(up|down|gate)\."
# Types whose matrices the CPU backends copy into a layout of their own: ggml/src/ggml-cpu/repack.cpp and amx/.
REPACKED = frozenset({"Q4_0", "Q4_1", "Q4_K", "Q5_K", "Q6_K", "Q2_K", "Q8_0", "IQ4_NL", "IQ4_XS", "MXFP4"})
_INPUT = ("token_embd.weight", "position_embd.weight", "token_types.weight", "per_layer_token_embd.weight")
_BLOCK = re.compile(r"blk\.(\d+)\.")
_FLOAT = Struct("f")


@dataclass(frozen=True, slots=True)
class Group:
    """Tensors that always lie together: one block's experts, or the rest of a block, or what lies outside blocks."""

    block: int | None  # None: not part of a block
    role: str  # "input", "output", "tied", "experts", "feed_forward", "rest"
    size_bytes: int
    matrix_bytes: int  # of matrices, which split mode `row` cuts
    repacked_bytes: int  # of matrices that a CPU backend may copy
    largest_bytes: int  # the largest tensor: what a device stages to compute with weights of the host


@dataclass(slots=True)
class Placed:
    """Weights of every device, and of the host."""

    device_bytes: list[int]
    host_bytes: int = 0
    host_repacked_bytes: int = 0
    staged_bytes: int = 0  # the largest tensor of a block on the host, which a device would stage
    staged_head_bytes: int = 0  # the output head, where it lies on the host
    layer_device: list[int] = field(default_factory=list)  # of every block, and of the output last
    overridden: bool = False


def layer_devices(model: Model, settings: LlamaCppSettings, devices: Sequence[Device]) -> list[int]:
    """
    The device of every block and, last, of the output; `HOST` where it stays on the CPU.

    The output counts as one layer, so that `-ngl 1` moves the output alone, and the last blocks move first.
    """
    total = len(model.layers) + len(model.mtp_layers)
    offloaded = min(total + 1 if settings.gpu_layers is None else settings.gpu_layers, total + 1) if devices else 0
    first = total + 1 - offloaded
    out = [HOST] * first
    if not offloaded:
        return out
    if settings.split_mode == "none" or len(devices) == 1:
        chosen = settings.main_gpu if settings.split_mode == "none" else 0
        if chosen >= len(devices):
            raise SettingError(f"-mg {chosen}: there are {len(devices)} devices, numbered from 0")
        return out + [chosen] * offloaded
    shares = settings.tensor_split or tuple(float(d.capacity_bytes - d.in_use_bytes) for d in devices)
    if len(shares) > len(devices):
        raise SettingError(f"-ts names {len(shares)} proportions for {len(devices)} devices")
    shares = (*shares, *(0.0,) * (len(devices) - len(shares)))
    bounds, reached = [], 0.0
    for share in shares:
        reached += share
        bounds.append(reached)
    bounds = [_single(bound / reached) for bound in bounds]
    last = len(devices) - 1
    return out + [min(bisect_right(bounds, _single(index / offloaded)), last) for index in range(offloaded)]


def _single(value: float) -> float:
    """Rounded to single precision, as the engine computes the split."""
    rounded: float = _FLOAT.unpack(_FLOAT.pack(value))[0]
    return rounded


def groups_of(tensors: Sequence[Tensor], tied: bool) -> tuple[Group, ...]:
    """Sum up a tensor table by block and role. A tied embedding is there again for the output."""
    sums: dict[tuple[int | None, str], list[int]] = {}
    for tensor in tensors:
        block, role = _role(tensor.name)
        _add(sums, block, role, tensor)
        if tied and tensor.name == "token_embd.weight":
            _add(sums, None, "tied", tensor)
    return tuple(Group(block, role, *total) for (block, role), total in sums.items())


def _add(sums: dict[tuple[int | None, str], list[int]], block: int | None, role: str, tensor: Tensor) -> None:
    total = sums.setdefault((block, role), [0, 0, 0, 0])
    matrix = len(tensor.shape) > 1
    total[0] += tensor.size_bytes
    total[1] += tensor.size_bytes if matrix else 0
    total[2] += tensor.size_bytes if matrix and tensor.type in REPACKED and role != "input" else 0
    total[3] = max(total[3], tensor.size_bytes if matrix and role != "input" else 0)


def _role(name: str) -> tuple[int | None, str]:
    found = _BLOCK.match(name)
    if found:
        role = "rest"
        if re.search(EXPERTS, name):
            role = "experts"
        elif re.search(DENSE_FEED_FORWARD, name):
            role = "feed_forward"
        return int(found[1]), role
    return None, "input" if name in _INPUT else "output"


# Summing up a table of a thousand tensors takes longer than the rest of a plan, so the last tables are kept.
_KEPT_TABLES = 32
_kept: dict[tuple[int, bool], tuple[tuple[Tensor, ...], tuple[Group, ...]]] = {}


def _groups(tensors: tuple[Tensor, ...], tied: bool) -> tuple[Group, ...]:
    key = id(tensors), tied
    kept = _kept.get(key)
    if kept is None or kept[0] is not tensors:
        while len(_kept) >= _KEPT_TABLES:
            _kept.pop(next(iter(_kept)), None)
        kept = tensors, groups_of(tensors, tied)
        _kept[key] = kept
    return kept[1]


def _named_place(place: str, devices: Sequence[Device]) -> int:
    """The device that a buffer type of `-ot` names: CPU, a device's own name, or its number at the end (CUDA1)."""
    if place.upper().startswith("CPU"):
        return HOST
    for index, device in enumerate(devices):
        if device.name == place:
            return index
    number = re.search(r"(\d+)$", place)
    if number and int(number[1]) < len(devices):
        return int(number[1])
    raise SettingError(f"-ot ...={place}: no such buffer here; use CPU or the name of a device")


def place_weights(model: Model, settings: LlamaCppSettings, devices: Sequence[Device]) -> Placed:
    """Add up the weights of each device by the model's tensor table."""
    where = layer_devices(model, settings, devices)
    placed = Placed([0] * len(devices), layer_device=where)
    tied = bool(model.tied_embeddings)
    placed.overridden = bool(settings.override_tensor or settings.cpu_moe or settings.n_cpu_moe or settings.n_cpu_ffn)
    if settings.override_tensor:
        chosen = _chooser(settings, devices)
        for tensor in model.tensors:
            block, _ = _role(tensor.name)
            groups = groups_of((tensor,), tied)
            named = chosen(tensor.name)
            for group in groups:
                _place(group, named if named is not None else _default(block, group.role, where), placed, settings)
        return placed
    for group in _groups(model.tensors, tied):
        device = _default(group.block, group.role, where)
        if group.block is not None and (
            (group.role == "experts" and (settings.cpu_moe or group.block < settings.n_cpu_moe))
            or (group.role == "feed_forward" and group.block < settings.n_cpu_ffn)
        ):
            device = HOST
        _place(group, device, placed, settings)
    return placed


def _chooser(settings: LlamaCppSettings, devices: Sequence[Device]) -> Callable[[str], int | None]:
    """What `-ot` and its shorthands say of one tensor; the first pattern that is found in the name decides."""
    rules = [(re.compile(pattern), _named_place(place, devices)) for pattern, place in settings.override_tensor]
    if settings.cpu_moe:
        rules.append((re.compile(EXPERTS), HOST))
    rules += [(re.compile(rf"blk\.{block}{EXPERTS}"), HOST) for block in range(settings.n_cpu_moe)]
    rules += [(re.compile(rf"blk\.{block}{DENSE_FEED_FORWARD}"), HOST) for block in range(settings.n_cpu_ffn)]
    return lambda name: next((device for pattern, device in rules if pattern.search(name)), None)


def _default(block: int | None, role: str, where: Sequence[int]) -> int:
    if block is not None:
        return where[min(block, len(where) - 1)]
    return HOST if role == "input" else where[-1]


def _place(group: Group, device: int, placed: Placed, settings: LlamaCppSettings) -> None:
    """Count one group where it lies."""
    if device == HOST:
        if group.role in ("tied", "output"):
            placed.staged_head_bytes = max(placed.staged_head_bytes, group.largest_bytes or group.size_bytes)
        if group.role == "tied":
            return  # the embedding already lies on the host
        placed.host_bytes += group.size_bytes
        placed.host_repacked_bytes += group.repacked_bytes
        if group.block is not None:
            placed.staged_bytes = max(placed.staged_bytes, group.largest_bytes)
    elif settings.split_mode == "tensor":
        for index in range(len(placed.device_bytes)):
            placed.device_bytes[index] += group.size_bytes // len(placed.device_bytes)
    elif settings.split_mode == "row" and len(placed.device_bytes) > 1:
        shares = settings.tensor_split or (1.0,) * len(placed.device_bytes)
        for index, share in enumerate(shares):
            placed.device_bytes[index] += int(group.matrix_bytes * share / sum(shares))
        placed.device_bytes[device] += group.size_bytes - group.matrix_bytes
    else:
        placed.device_bytes[device] += group.size_bytes
