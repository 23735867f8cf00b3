"""
Memory plan of vLLM: weights on each rank, the KV cache in what is left of the budget, what the engine would refuse.

Budget rules: vLLM 0.32.0 ``v1/worker/gpu_worker.py`` (determine_available_memory), ``v1/worker/utils.py``
(request_memory), ``v1/worker/cpu_worker.py``; the differences of older versions are in `calculator.vllm_settings`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from calculator.model import (
    Attention,
    CalculatorError,
    Device,
    DevicePlan,
    Fits,
    Interval,
    MemoryPlan,
    Model,
    Note,
)
from calculator.vllm_budget import activation, graphs, other
from calculator.vllm_kv import Capacity, KvPlan, capacity, longest_request, plan_kv
from calculator.vllm_settings import (
    CPU_UTILIZATION,
    GIB,
    GRAPHS_IN_BUDGET,
    TOKENS_FROM_CONCURRENCY,
    Resolved,
    VllmSettings,
    resolve,
)
from calculator.vllm_weights import rank_weights, scheme_of

SOURCE = "vLLM 0.32.0 "


@dataclass(frozen=True, slots=True)
class _Outcome:
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


def plan_vllm(
    model: Model,
    settings: VllmSettings,
    devices: Sequence[Device],
    host: Device | None = None,
    *,
    draft: Model | None = None,
) -> MemoryPlan:
    """
    Plan the memory of `vllm serve` with these settings on these devices.

    :param devices: one for each rank of tensor x pipeline (x data) parallelism; for the CPU platform none
    :param host: the host's memory: where the CPU platform runs and offloaded weights go
    :param draft: the model of a speculative method that brings layers of its own (EAGLE)
    :raises CalculatorError: a fact is missing, or vLLM refuses the settings whatever the memory
    """
    outcome = _compute(model, settings, devices, host, draft)
    length = outcome.resolved.max_model_len
    capacities = [
        _capacity(outcome, value) for value in (outcome.available.low, _middle(outcome), outcome.available.high)
    ]
    fits = _fits(outcome, capacities)
    plans = tuple(_device_plan(outcome, index, capacities[1], fits) for index in range(len(outcome.devices)))
    cpu = settings.platform == "cpu"
    host_plan = plans[0] if cpu else _host_plan(settings, host)
    middle = capacities[1] if outcome.layout.groups and outcome.refused is None else None
    remedies = () if fits is Fits.YES else _remedies(model, settings, devices, host, draft, outcome)
    return MemoryPlan(
        engine="vllm",
        engine_version=settings.version,
        model=model.name,
        devices=() if cpu else plans,
        host=host_plan,
        output_bytes=0,
        kv_capacity_tokens=middle.tokens if middle else None,
        max_concurrency=middle.max_concurrency if middle else None,
        context_cells=None,
        notes=tuple(_notes(model, outcome, capacities, length)),
        remedies=remedies,
    )


def _compute(
    model: Model, settings: VllmSettings, devices: Sequence[Device], host: Device | None, draft: Model | None
) -> _Outcome:
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
    layout = plan_kv(model, resolved, draft)
    weights = rank_weights(model, resolved)
    if draft is not None:
        weights[-1] += rank_weights(draft, replace(resolved, settings=replace(settings, pipeline_parallel_size=1)))[0]
    work, graph, rest = activation(model, resolved), graphs(model, resolved), other(resolved)
    offloaded = min(int(settings.cpu_offload_gb * GIB), min(weights))
    available: Interval | None = None
    refused: str | None = None
    limits = []
    for index, device in enumerate(used):
        own = weights[_stage(settings, index)] - offloaded
        free = device.capacity_bytes - device.in_use_bytes
        budget = math.ceil(device.capacity_bytes * resolved.utilization)
        limits.append(free)
        if settings.kv_cache_memory_bytes is not None:
            left = Interval.exactly(settings.kv_cache_memory_bytes)
        elif cpu and resolved.version < CPU_UTILIZATION:
            left = Interval.exactly(4 * GIB)
        else:
            if free < budget:
                refused = _refusal(device, free, budget, resolved.utilization)
            taken = work + rest + own
            if resolved.version >= GRAPHS_IN_BUDGET:
                taken = taken + graph
            left = Interval(budget - taken.high, budget - taken.low)
        if available is None:
            available = left
        else:
            available = Interval(min(available.low, left.low), min(available.high, left.high))
    return _Outcome(
        resolved=resolved,
        layout=_tightest_stage(layout, resolved, len(model.layers)),
        weights=[value - offloaded for value in weights],
        available=available or Interval.exactly(0),
        activation=work,
        overhead=graph + rest,
        devices=used,
        refused=refused,
        limits=tuple(limits),
    )


def _stage(settings: VllmSettings, index: int) -> int:
    """Give the pipeline stage of a device: ranks count tensor parallelism first."""
    return index // settings.tensor_parallel_size % settings.pipeline_parallel_size


def _tightest_stage(layout: KvPlan, resolved: Resolved, layers: int) -> KvPlan:
    """
    Give the layout of the pipeline stage with the most cache, which decides the number of blocks.

    The groups are made over all stages; a stage holds its share of each group's layers.
    """
    stages = resolved.settings.pipeline_parallel_size
    if stages == 1 or not layout.groups:
        return layout
    from_all = math.ceil(max(len(group.layers) for group in layout.groups) / stages)
    page = max(group.page_bytes // max(len(group.layers), 1) for group in layout.groups)
    return replace(layout, block_bytes=min(layout.block_bytes, from_all * page))


def _refusal(device: Device, free: int, budget: int, share: float) -> str:
    return (
        f"Free memory on {device.name} ({free / GIB:.2f}/{device.capacity_bytes / GIB:.2f} GiB) on startup is less than "
        f"desired GPU memory utilization ({share:g}, {budget / GIB:.2f} GiB). Decrease GPU memory utilization or reduce "
        "GPU memory used by other processes."
    )


def _middle(outcome: _Outcome) -> int:
    return (outcome.available.low + outcome.available.high) // 2


def _capacity(outcome: _Outcome, available: int) -> Capacity:
    if not outcome.layout.groups:
        return Capacity(1, 0, 0.0)
    return capacity(outcome.layout, outcome.resolved, available)


def _enough(outcome: _Outcome, available: int) -> bool:
    """Say whether one request of full length fits, beside the null block (check_enough_kv_cache_memory)."""
    if not outcome.layout.groups:
        return True
    blocks = outcome.resolved.settings.num_gpu_blocks_override or max(available, 0) // outcome.layout.block_bytes
    return blocks > outcome.layout.blocks_per_request


def _fits(outcome: _Outcome, capacities: Sequence[Capacity]) -> Fits:
    if outcome.refused is not None:
        return Fits.NO
    low, high = _enough(outcome, outcome.available.low), _enough(outcome, outcome.available.high)
    if not high:
        return Fits.NO
    beside = _beside_budget(outcome, capacities)
    if beside is Fits.NO:
        return Fits.NO
    return Fits.YES if low and beside is Fits.YES else Fits.MAYBE


def _beside_budget(outcome: _Outcome, capacities: Sequence[Capacity]) -> Fits:
    """Say whether what is not in the budget fits: an explicit cache, or graphs captured after it (before 0.21)."""
    settings = outcome.resolved.settings
    outside = settings.kv_cache_memory_bytes is not None or (
        outcome.resolved.version < GRAPHS_IN_BUDGET and not settings.enforce_eager
    )
    if not outside and settings.num_gpu_blocks_override is None:
        return Fits.YES
    answer = Fits.YES
    for index, free in enumerate(outcome.limits):
        fixed = outcome.weights[_stage(settings, index)] + capacities[1].blocks * outcome.layout.block_bytes
        need = outcome.activation + outcome.overhead + fixed
        if settings.kv_cache_memory_bytes is None and settings.num_gpu_blocks_override is None:
            budget = math.ceil(outcome.devices[index].capacity_bytes * outcome.resolved.utilization)
            need = Interval(budget, budget) + graphs_only(outcome)
        if need.low > free:
            return Fits.NO
        if need.high > free:
            answer = Fits.MAYBE
    return answer


def graphs_only(outcome: _Outcome) -> Interval:
    """Give the graphs' share of the overhead."""
    rest = other(outcome.resolved)
    return Interval(outcome.overhead.low - rest.low, outcome.overhead.high - rest.high)


def _device_plan(outcome: _Outcome, index: int, middle: Capacity, fits: Fits) -> DevicePlan:
    device = outcome.devices[index]
    return DevicePlan(
        name=device.name,
        capacity_bytes=device.capacity_bytes,
        weights_bytes=outcome.weights[_stage(outcome.resolved.settings, index)],
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
    outcome: _Outcome,
) -> tuple[str, ...]:
    """Give changes that make it fit for sure, each verified by planning again with it."""
    candidates: list[tuple[str, VllmSettings]] = []
    used = outcome.devices
    if settings.kv_cache_memory_bytes is not None:
        candidates.append(("without --kv-cache-memory-bytes", replace(settings, kv_cache_memory_bytes=None)))
    share = min((free / device.capacity_bytes for free, device in zip(outcome.limits, used, strict=True)), default=0)
    for value in (math.floor(share * 100) / 100, 0.95, 0.92, 0.9):
        if 0 < value <= 1 and value <= share and value != outcome.resolved.utilization:
            candidates.append((f"--gpu-memory-utilization {value:g}", replace(settings, gpu_memory_utilization=value)))
            break
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
    return tuple(text for text, changed in candidates if _would_fit(model, changed, devices, host, draft))


def _would_fit(
    model: Model, settings: VllmSettings, devices: Sequence[Device], host: Device | None, draft: Model | None
) -> bool:
    try:
        outcome = _compute(model, settings, devices, host, draft)
    except CalculatorError:  # a candidate that vLLM refuses is no remedy
        return False
    return _fits(outcome, [_capacity(outcome, _middle(outcome))] * 2) is Fits.YES


def _notes(model: Model, outcome: _Outcome, capacities: Sequence[Capacity], length: int) -> list[Note]:
    resolved, layout = outcome.resolved, outcome.layout
    settings = resolved.settings
    scheme = None if model.tensors else scheme_of(model, settings.quantization)
    origin = "stored tensors, exact" if model.tensors else f"shapes, {scheme.name if scheme else 'not quantised'}"
    out = [
        Note(
            "vllm-weights",
            f"weights of a rank from {origin}; vocabulary padded to 64, norms and routers whole on every rank, "
            "rotary table included",
            SOURCE + "model_executor/layers/linear.py, vocab_parallel_embedding.py, rotary_embedding/base.py",
        )
    ]
    if outcome.refused is not None:
        return [*out, Note("vllm-refuses", outcome.refused, SOURCE + "v1/worker/utils.py request_memory")]
    out.append(_budget_note(outcome))
    if not layout.groups:
        return [*out, Note("vllm-no-cache", "no layer keeps a cache", SOURCE + "v1/core/kv_cache_utils.py")]
    states = sum(group.spec.kind is Attention.NONE for group in layout.groups)
    shared = f", {states} of recurrent state (in the same pool, so its bytes are in the KV figure)" if states else ""
    out += [
        Note(
            "vllm-groups",
            f"{len(layout.groups)} group(s) of layers{shared}; a block is {layout.attention_block_tokens} tokens and "
            f"{layout.block_bytes} bytes; a request of {length} tokens takes {layout.blocks_per_request} blocks; "
            "block 0 is never used",
            SOURCE + "v1/core/kv_cache_utils.py, platforms/interface.py",
        ),
        Note(
            "vllm-tokens",
            "printed tokens are "
            + (
                "concurrency x max_model_len"
                if resolved.version >= TOKENS_FROM_CONCURRENCY
                else "blocks // groups x the smallest block"
            )
            + f"; between {capacities[0].tokens} and {capacities[2].tokens}, concurrency between "
            f"{capacities[0].max_concurrency:.2f} and {capacities[2].max_concurrency:.2f}",
            SOURCE + "v1/core/kv_cache_utils.py get_kv_cache_capacity; vllm#43308",
        ),
        Note(
            "vllm-activation",
            "activations: the largest of feed-forward, experts' workspace and logits of a full batch, up to twice "
            f"that; {resolved.max_num_batched_tokens} tokens and {resolved.max_num_seqs} sequences in a batch",
            SOURCE + "v1/worker/gpu_model_runner.py profile_run; bounds observed",
        ),
    ]
    if not _enough(outcome, outcome.available.low):
        out.append(_too_small(outcome))
    return out


def _budget_note(outcome: _Outcome) -> Note:
    resolved = outcome.resolved
    settings = resolved.settings
    if settings.kv_cache_memory_bytes is not None:
        text = "--kv-cache-memory-bytes is reserved as it stands and does not respect --gpu-memory-utilization"
    elif settings.platform == "cpu" and resolved.version < CPU_UTILIZATION:
        text = "the CPU back end reserves 4 GiB unless VLLM_CPU_KVCACHE_SPACE says otherwise"
    else:
        inside = "inside" if resolved.version >= GRAPHS_IN_BUDGET else "on top of"
        text = (
            f"the cache gets what {resolved.utilization:g} of the device's total leaves after weights, activations and "
            f"libraries; CUDA graphs are {inside} this budget; the tightest rank decides"
        )
    return Note("vllm-budget", text, SOURCE + "v1/worker/gpu_worker.py determine_available_memory")


def _too_small(outcome: _Outcome) -> Note:
    layout, low = outcome.layout, outcome.available.low
    needed = layout.blocks_per_request * layout.block_bytes
    longest = longest_request(layout, outcome.resolved, low)
    if low <= 0:
        text = "No available memory for the cache blocks. Try increasing `gpu_memory_utilization`"
    else:
        text = (
            f"To serve at least one request with the model's max seq len ({outcome.resolved.max_model_len}), "
            f"{needed / GIB:.2f} GiB KV cache is needed, which is larger than the available KV cache memory "
            f"({low / GIB:.2f} GiB at the least)"
        )
    if longest:
        text += f". The longest length that fits for sure is {longest}"
    return Note("vllm-refuses", text, SOURCE + "v1/core/kv_cache_utils.py _check_enough_kv_cache_memory")
