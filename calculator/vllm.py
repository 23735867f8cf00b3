"""
Memory plan of vLLM: weights on each rank, the KV cache in what is left of the budget, what the engine would refuse.

The rules are in `calculator.vllm_kv`, `vllm_weights`, `vllm_budget` and `vllm_outcome`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from calculator.model import CalculatorError, Device, DevicePlan, Fits, Interval, MemoryPlan, Model
from calculator.vllm_kv import Capacity, blocks_per_request, longest_request
from calculator.vllm_notes import explain
from calculator.vllm_outcome import Known, Outcome, capacity_of, compute, fits_of, middle, stage_of
from calculator.vllm_settings import GIB, VllmSettings

# The driver's own context is taken before vLLM looks at what is free (observed: 0.3 to 0.5 GiB); advice leaves room.
CONTEXT_BYTES = GIB // 2


def plan_vllm(
    model: Model,
    settings: VllmSettings,
    devices: Sequence[Device],
    host: Device | None = None,
    *,
    draft: Model | None = None,
    remedies: bool = True,
) -> MemoryPlan:
    """
    Plan the memory of `vllm serve` with these settings on these devices.

    :param devices: one for each rank of tensor x pipeline (x data) parallelism; for the CPU platform none
    :param host: the host's memory: where the CPU platform runs and offloaded weights go
    :param draft: the model of a speculative method that brings layers of its own (EAGLE)
    :param remedies: False leaves out what would make it fit, which takes most of the time
    :raises CalculatorError: a fact is missing, or vLLM refuses the settings whatever the memory
    """
    known = Known()
    outcome = compute(model, settings, devices, host, draft, known)
    capacities = [
        capacity_of(outcome, value) for value in (outcome.available.low, middle(outcome), outcome.available.high)
    ]
    fits = fits_of(outcome, capacities)
    plans = tuple(_device_plan(outcome, index, capacities[1], fits) for index in range(len(outcome.devices)))
    cpu = settings.platform == "cpu"
    host_plan = plans[0] if cpu else _host_plan(settings, host)
    best = capacities[1] if outcome.layout.groups and outcome.refused is None else None
    wanted = remedies and fits is not Fits.YES
    found = _remedies(model, settings, devices, host, draft, outcome, known) if wanted else ()
    return MemoryPlan(
        engine="vllm",
        engine_version=settings.version,
        model=model.name,
        devices=() if cpu else plans,
        host=host_plan,
        output_bytes=0,
        kv_capacity_tokens=best.tokens if best else None,
        max_concurrency=best.max_concurrency if best else None,
        context_cells=None,
        notes=tuple(explain(model, outcome, capacities)),
        remedies=found,
    )


def heat_map(
    model: Model,
    settings: VllmSettings,
    devices: Sequence[Device],
    lengths: Sequence[int],
    users: Sequence[int],
    host: Device | None = None,
) -> list[list[Fits]]:
    """
    Say for each number of concurrent users (rows) and each request length in tokens (columns) whether the cache holds.

    A request of each length takes the blocks that vLLM would reserve for it at most (the same rule as for
    `max_model_len`); block 0 is never used. Lengths above `max_model_len` don't fit.
    """
    outcome = compute(model, settings, devices, host, None)
    layout, resolved = outcome.layout, outcome.resolved
    if outcome.refused is not None:
        return [[Fits.NO] * len(lengths) for _ in users]
    if not layout.groups:
        return [[Fits.YES] * len(lengths) for _ in users]
    low, high = (max(value, 0) // layout.block_bytes - 1 for value in (outcome.available.low, outcome.available.high))
    need = [
        blocks_per_request(layout.groups, resolved, length) if length <= resolved.max_model_len else high + 1
        for length in lengths
    ]
    return [
        [Fits.YES if n * blocks <= low else Fits.NO if n * blocks > high else Fits.MAYBE for blocks in need]
        for n in users
    ]


def _device_plan(outcome: Outcome, index: int, middle: Capacity, fits: Fits) -> DevicePlan:
    device = outcome.devices[index]
    return DevicePlan(
        name=device.name,
        capacity_bytes=device.capacity_bytes,
        weights_bytes=outcome.weights[stage_of(outcome.resolved.settings, index)],
        kv_bytes=middle.blocks * outcome.layout.block_bytes if outcome.refused is None else 0,
        state_bytes=0,
        compute_bytes=outcome.activation,
        overhead_bytes=outcome.overhead,
        fits=fits,
    )


def _host_plan(settings: VllmSettings, host: Device | None) -> DevicePlan:
    offloaded = int(settings.cpu_offload_gb * GIB) * settings.tensor_parallel_size
    fits = None
    if host is not None:
        fits = Fits.YES if offloaded <= host.capacity_bytes - host.in_use_bytes else Fits.NO
    none = Interval.exactly(0)
    capacity_bytes = host.capacity_bytes if host is not None else None
    return DevicePlan("host", capacity_bytes, offloaded, 0, 0, none, none, fits)


def _remedies(
    model: Model,
    settings: VllmSettings,
    devices: Sequence[Device],
    host: Device | None,
    draft: Model | None,
    outcome: Outcome,
    known: Known,
) -> tuple[str, ...]:
    """Give changes that make it fit for sure, each verified by planning again with it."""
    candidates: list[tuple[str, VllmSettings]] = []
    used = outcome.devices
    if settings.kv_cache_memory_bytes is not None:
        candidates.append(("without --kv-cache-memory-bytes", replace(settings, kv_cache_memory_bytes=None)))
    share = min(
        (free - CONTEXT_BYTES) / device.capacity_bytes for free, device in zip(outcome.limits, used, strict=True)
    )
    value = min(math.floor(share * 100) / 100, 0.95)
    if 0 < value != outcome.resolved.utilization:
        candidates.append((f"--gpu-memory-utilization {value:g}", replace(settings, gpu_memory_utilization=value)))
    if outcome.refused is None and outcome.layout.groups:
        longest = longest_request(outcome.layout, outcome.resolved, outcome.available.low)
        rounded = longest // 1024 * 1024 or longest
        if 0 < rounded < outcome.resolved.max_model_len:
            candidates.append((f"--max-model-len {rounded}", replace(settings, max_model_len=rounded)))
    if settings.kv_cache_dtype == "auto" and settings.platform != "cpu":
        candidates.append(("--kv-cache-dtype fp8", replace(settings, kv_cache_dtype="fp8")))
    fewer = max(1, outcome.resolved.max_num_seqs // 4)
    batch = max(512, outcome.resolved.max_num_batched_tokens // 4)
    smaller = replace(settings, max_num_seqs=fewer, max_num_batched_tokens=batch)
    candidates.append((f"--max-num-seqs {fewer} --max-num-batched-tokens {batch}", smaller))
    if not settings.enforce_eager and settings.platform != "cpu":
        candidates.append(("--enforce-eager", replace(settings, enforce_eager=True)))
    if not model.quantization and not settings.quantization and settings.platform != "cpu":
        candidates.append(("--quantization fp8", replace(settings, quantization="fp8")))
    tp = settings.tensor_parallel_size
    ranks = tp * settings.pipeline_parallel_size * settings.data_parallel_size
    candidates += [
        (f"--tensor-parallel-size {tp * factor}", replace(settings, tensor_parallel_size=tp * factor))
        for factor in (2, 4, 8)
        if ranks * factor <= len(devices)
    ]
    return tuple(text for text, changed in candidates if _would_fit(model, changed, devices, host, draft, known))


def _would_fit(
    model: Model,
    settings: VllmSettings,
    devices: Sequence[Device],
    host: Device | None,
    draft: Model | None,
    known: Known,
) -> bool:
    try:
        outcome = compute(model, settings, devices, host, draft, known)
    except CalculatorError:  # a candidate that vLLM refuses is no remedy
        return False
    return fits_of(outcome, [capacity_of(outcome, middle(outcome))] * 2) is Fits.YES
