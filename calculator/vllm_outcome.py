"""
vLLM's budget: what is left for the cache on the tightest rank, and whether the engine would start.

Rules: vLLM 0.32.0 ``v1/worker/gpu_worker.py`` (determine_available_memory), ``v1/worker/utils.py``
(request_memory), ``v1/worker/cpu_worker.py``; the differences of older versions are in `calculator.vllm_settings`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from calculator.model import CalculatorError, Device, Fits, Interval, Model
from calculator.vllm_budget import activation, graphs, other
from calculator.vllm_kv import Capacity, KvPlan, capacity, plan_kv
from calculator.vllm_settings import CPU_UTILIZATION, GIB, GRAPHS_IN_BUDGET, Resolved, VllmSettings, check, resolve
from calculator.vllm_weights import rank_weights


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was computed before it is put into words."""

    resolved: Resolved
    layout: KvPlan
    weights: list[int]
    available: Interval  # bytes for the cache on the tightest rank
    activation: Interval
    overhead: Interval  # graphs and other
    devices: tuple[Device, ...]
    refused: str | None  # why vLLM would not start at all
    limits: tuple[int, ...]  # bytes that each device has for this engine


@dataclass(frozen=True, slots=True)
class Known:
    """Weights and layouts that were computed for one model, by the settings they depend on; remedies ask again."""

    weights: dict[tuple[object, ...], list[int]] = field(default_factory=dict)
    layouts: dict[tuple[object, ...], KvPlan] = field(default_factory=dict)


def compute(
    model: Model,
    settings: VllmSettings,
    devices: Sequence[Device],
    host: Device | None,
    draft: Model | None,
    known: Known | None = None,
) -> Outcome:
    """
    Compute a plan's figures.

    :param known: what earlier calls for this model and drafter computed
    :raises CalculatorError: a fact is missing, or vLLM refuses the settings whatever the memory
    """
    check(settings)
    cpu = settings.platform == "cpu"
    if cpu and host is None:
        raise CalculatorError("the CPU platform needs the host's memory")
    used = (host,) if cpu and host is not None else tuple(devices)
    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size
    if not used or (not cpu and len(used) < ranks):
        raise CalculatorError(
            f"tensor x pipeline parallelism needs {ranks} devices; {len(used)} are given. Name more devices "
            "or lower --tensor-parallel-size"
        )
    world = ranks * settings.data_parallel_size
    used = used if cpu else used[:world]
    smallest = min(used, key=lambda device: device.capacity_bytes)
    resolved = resolve(settings, model, smallest.capacity_bytes, smallest.name)
    known = known if known is not None else Known()
    layout = _layout(model, resolved, draft, known)
    weights = _weights(model, resolved, draft, known)
    work, graph, rest = activation(model, resolved), graphs(model, resolved), other(resolved)
    offloaded = min(int(settings.cpu_offload_gb * GIB), min(weights))
    available: Interval | None = None
    refused: str | None = None
    limits = []
    for index, device in enumerate(used):
        own = weights[stage_of(settings, index)] - offloaded
        free = device.capacity_bytes - device.in_use_bytes
        limits.append(free)
        if settings.kv_cache_memory_bytes is not None:
            left = Interval.exactly(settings.kv_cache_memory_bytes)
        elif cpu and resolved.version < CPU_UTILIZATION:
            left = Interval.exactly(4 * GIB)
        else:
            budget = math.ceil(device.capacity_bytes * resolved.utilization)
            if free < budget:
                refused = _refusal(device, free, budget, resolved.utilization)
            left = left_for_cache(budget, work + rest + own, graph, resolved)
        if available is None:
            available = left
        else:
            available = Interval(min(available.low, left.low), min(available.high, left.high))
    return Outcome(
        resolved=resolved,
        layout=_tighteststage_of(layout, resolved, len(model.layers)),
        weights=[value - offloaded for value in weights],
        available=available or Interval.exactly(0),
        activation=work,
        overhead=graph + rest,
        devices=used,
        refused=refused,
        limits=tuple(limits),
    )


def _weights(model: Model, resolved: Resolved, draft: Model | None, known: Known) -> list[int]:
    settings = resolved.settings
    key = (
        settings.tensor_parallel_size,
        settings.pipeline_parallel_size,
        settings.data_parallel_size,
        settings.enable_expert_parallel,
        settings.quantization,
        resolved.dtype_bytes,
    )
    if key not in known.weights:
        found = rank_weights(model, resolved)
        if draft is not None:
            alone = replace(resolved, settings=replace(settings, pipeline_parallel_size=1))
            found[-1] += rank_weights(draft, alone)[0]
        known.weights[key] = found
    return known.weights[key]


def _layout(model: Model, resolved: Resolved, draft: Model | None, known: Known) -> KvPlan:
    settings = resolved.settings
    key = (
        settings.tensor_parallel_size,
        settings.kv_cache_dtype,
        resolved.max_model_len,
        resolved.in_flight_tokens,
        resolved.dtype_bytes,
    )
    if key not in known.layouts:
        known.layouts[key] = plan_kv(model, resolved, draft)
    return known.layouts[key]


def left_for_cache(budget: int, taken: Interval, graph: Interval, resolved: Resolved) -> Interval:
    """
    Give the bytes left for the cache of a `budget` (total x utilization) after weights, activations and libraries.

    The estimate for CUDA graphs comes off it since 0.21; before, graphs were captured on top of the budget.
    """
    if resolved.version >= GRAPHS_IN_BUDGET:
        taken = taken + graph
    return Interval(budget - taken.high, budget - taken.low)


def stage_of(settings: VllmSettings, index: int) -> int:
    """Give the pipeline stage of a device: ranks count tensor parallelism first."""
    return index // settings.tensor_parallel_size % settings.pipeline_parallel_size


def _tighteststage_of(layout: KvPlan, resolved: Resolved, layers: int) -> KvPlan:
    """
    Give the layout of the pipeline stage with the most cache, which decides the number of blocks.

    The groups are made over all stages; a stage holds its share of each group's layers.
    """
    stages = resolved.settings.pipeline_parallel_size
    if stages == 1 or not layout.groups:
        return layout
    from_all = math.ceil(max(len(group.layers) for group in layout.groups) / stages)
    if len(layout.groups) == 1:
        page = math.ceil(layout.block_bytes / from_all / stages)
    else:
        page = layout.groups[0].spec.page_bytes  # one page size for all groups
    return replace(layout, block_bytes=min(layout.block_bytes, from_all * page))


def _refusal(device: Device, free: int, budget: int, share: float) -> str:
    return (
        f"Free memory on {device.name} ({free / GIB:.2f}/{device.capacity_bytes / GIB:.2f} GiB) on startup is less "
        f"than desired GPU memory utilization ({share:g}, {budget / GIB:.2f} GiB). Decrease GPU memory utilization "
        "or reduce GPU memory used by other processes."
    )


def middle(outcome: Outcome) -> int:
    """Give the middle of the bytes left for the cache: what is shown as one figure."""
    return (outcome.available.low + outcome.available.high) // 2


def capacity_of(outcome: Outcome, available: int) -> Capacity:
    """Say what fits into `available` bytes; one block and no tokens for a model without a cache."""
    if not outcome.layout.groups:
        return Capacity(1, 0, 0.0)
    return capacity(outcome.layout, outcome.resolved, available)


def enough(outcome: Outcome, available: int) -> bool:
    """Say whether one request of full length fits, beside the null block (check_enough_kv_cache_memory)."""
    if not outcome.layout.groups:
        return True
    blocks = outcome.resolved.settings.num_gpu_blocks_override or max(available, 0) // outcome.layout.block_bytes
    return blocks > outcome.layout.blocks_per_request


def fits_of(outcome: Outcome, capacities: Sequence[Capacity]) -> Fits:
    """Say whether vLLM starts: for sure, not at all, or depending on where in its bounds the truth lies."""
    if outcome.refused is not None:
        return Fits.NO
    low, high = enough(outcome, outcome.available.low), enough(outcome, outcome.available.high)
    if not high:
        return Fits.NO
    beside = _beside_budget(outcome, capacities)
    if beside is Fits.NO:
        return Fits.NO
    return Fits.YES if low and beside is Fits.YES else Fits.MAYBE


def _beside_budget(outcome: Outcome, capacities: Sequence[Capacity]) -> Fits:
    """Say whether what is not in the budget fits: an explicit cache, or graphs captured after it (before 0.21)."""
    settings = outcome.resolved.settings
    outside = settings.kv_cache_memory_bytes is not None or (
        outcome.resolved.version < GRAPHS_IN_BUDGET and not settings.enforce_eager
    )
    if not outside and settings.num_gpu_blocks_override is None:
        return Fits.YES
    answer = Fits.YES
    for index, free in enumerate(outcome.limits):
        fixed = outcome.weights[stage_of(settings, index)] + capacities[1].blocks * outcome.layout.block_bytes
        need = outcome.activation + outcome.overhead + fixed
        if settings.kv_cache_memory_bytes is None and settings.num_gpu_blocks_override is None:
            budget = math.ceil(outcome.devices[index].capacity_bytes * outcome.resolved.utilization)
            need = Interval(budget, budget) + _graphs_only(outcome)
        if need.low > free:
            return Fits.NO
        if need.high > free:
            answer = Fits.MAYBE
    return answer


def _graphs_only(outcome: Outcome) -> Interval:
    """Give the graphs' share of the overhead."""
    rest = other(outcome.resolved)
    return Interval(outcome.overhead.low - rest.low, outcome.overhead.high - rest.high)
