"""
The memory plan of a model under llama.cpp: every buffer the engine prints, by its own rules.

Where the engine's own estimator is on the machine (`llama-fit-params`), it is the reference; this is the what-if.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from calculator.gguf_rules import GGUF_NAMES, RULES, Pattern
from calculator.llamacpp_cache import (
    Cells,
    context_cells,
    layer_kv_bytes,
    layer_state_bytes,
    output_bytes,
    widest_v,
)
from calculator.llamacpp_compute import Compute, Sizes, compute_buffers
from calculator.llamacpp_mixes import estimated_tensors, known_mix, mix_of
from calculator.llamacpp_notes import notes_of
from calculator.llamacpp_remedies import WHOLLY_FITS, find_remedies, grade
from calculator.llamacpp_settings import LlamaCppSettings
from calculator.llamacpp_weights import HOST, Placed, place_weights
from calculator.model import (
    Attention,
    Device,
    DevicePlan,
    Fits,
    Interval,
    Layer,
    MemoryPlan,
    Model,
    UnknownArchitectureError,
)

MIB = 1 << 20
# Context and pools of the driver, and what grows while a long prompt runs: in no buffer. Observed: 153 MiB (CUDA),
# 253 (ROCm, MI50), 450 (Vulkan) after loading; 13 to 300 MiB more under load.
DEVICE_OVERHEAD = Interval(150 * MIB, 750 * MIB)
# The process itself: libraries, tokenizer, threads' stacks; 15 to 25 MiB beyond its buffers for a 135M model, idle.
# The output buffer and repacked weights are added to it.
HOST_OVERHEAD = Interval(10 * MIB, 300 * MIB)


@dataclass(slots=True)
class _Sums:
    """KV cache and state of every device; the host's last."""

    kv: list[int]
    state: list[int]


def plan_llamacpp(
    model: Model,
    settings: LlamaCppSettings,
    devices: Sequence[Device],
    host: Device | None = None,
    *,
    draft: Model | None = None,
    remedies: bool = True,
) -> MemoryPlan:
    """
    Plan the memory of `model` under llama.cpp.

    :param settings: the server's flags; `settings.build` chooses the rules of a build
    :param devices: GPUs, in the engine's order; none for the CPU
    :param host: the host's memory, where it is stated
    :param draft: a draft model for speculative decoding, with a context of its own
    :param remedies: look for flags that make it fit; each is planned again, so this takes longer
    :raises MissingFactError: a fact of the model that a rule needs is not known
    :raises UnknownArchitectureError: llama.cpp's rules for the architecture are not known here
    :raises SettingError: flags that contradict each other or the devices
    """
    model, estimated = _prepare(model)
    sizes: Sizes = {}
    plan = _plan(model, settings, devices, host, draft, sizes, estimated=estimated)
    if remedies and grade(plan) < WHOLLY_FITS:

        def attempt(changed: LlamaCppSettings) -> MemoryPlan:
            return _plan(model, changed, devices, host, draft, sizes, estimated=estimated)

        return replace(plan, remedies=find_remedies(model, settings, plan, attempt))
    return plan


_prepared: dict[int, tuple[Model, Model, bool]] = {}
_KEPT_MODELS = 32


def _prepare(model: Model) -> tuple[Model, bool]:
    """The model as llama.cpp would load it; whether its weights are an estimate by the name of a quantisation."""
    kept = _prepared.get(id(model))
    if kept is None or kept[0] is not model:
        while len(_prepared) >= _KEPT_MODELS:
            _prepared.pop(next(iter(_prepared)), None)
        kept = (model, *_as_loaded(model))
        _prepared[id(model)] = kept
    return kept[1], kept[2]


def _as_loaded(model: Model) -> tuple[Model, bool]:
    name = GGUF_NAMES.get(model.architecture, model.architecture)
    rule = RULES.get(name)
    if rule is None:
        raise UnknownArchitectureError(f"{model.name}: llama.cpp's rules for {model.architecture!r} are not known here")
    loaded = replace(model, architecture=name)
    if rule.pattern is Pattern.NEVER and any(layer.window for layer in model.layers):
        # a window that llama.cpp does not keep (Mistral 7B v0.1, Phi-3: `load_arch_hparams`)
        layers = tuple(
            replace(layer, attention=Attention.FULL, window=None) if layer.window else layer for layer in model.layers
        )
        loaded = replace(loaded, layers=layers)
    if any(tensor.name.startswith(("blk.", "token_embd")) for tensor in model.tensors[:8]):
        return loaded, False
    return replace(loaded, tensors=estimated_tensors(loaded, mix_of(loaded)), mtp_layers=()), True


def with_mix(model: Model, mix: str) -> Model:
    """
    The model as a file of this quantisation mix would hold it ("Q4_K_M"), for a model without a file.

    Raises `CalculatorError` for a name that llama-quantize does not know.
    """
    known_mix(mix)
    return replace(model, quantization=mix.upper(), quantization_config={})


def _plan(
    model: Model,
    settings: LlamaCppSettings,
    devices: Sequence[Device],
    host: Device | None,
    draft: Model | None,
    sizes: Sizes,
    *,
    estimated: bool,
) -> MemoryPlan:
    cells = context_cells(model, settings)
    placed = place_weights(model, settings, devices)
    sums = _caches(model.layers, settings, cells, placed, len(devices))
    if settings.mtp and model.mtp_layers:
        own = replace(settings, rollback_rows=0)
        extra = _caches(model.mtp_layers, own, cells, placed, len(devices), first=len(model.layers))
        sums.kv = [a + b for a, b in zip(sums.kv, extra.kv, strict=True)]
    compute = compute_buffers(model, settings, cells, placed, devices, sizes)
    if settings.mtp and model.mtp_layers:
        compute = _twice(compute, model, settings, cells, placed, devices)
    rows = output_bytes(model, settings)
    parts = []
    for index, device in enumerate(devices):
        used = placed.device_bytes[index] or sums.kv[index] or sums.state[index] or compute.devices[index].high
        overhead = DEVICE_OVERHEAD if used else Interval.exactly(0)
        weights = placed.device_bytes[index] + (settings.mmproj_bytes if index == settings.main_gpu else 0)
        parts.append(_device(device, weights, sums.kv[index], sums.state[index], compute.devices[index], overhead))
    repacked = placed.host_repacked_bytes if settings.repack else 0
    on_host = _device(
        host,
        placed.host_bytes + (0 if devices else settings.mmproj_bytes),
        sums.kv[-1],
        sums.state[-1],
        compute.host,
        HOST_OVERHEAD + Interval(rows, rows + repacked),
    )
    plan = MemoryPlan(
        engine="llama.cpp",
        engine_version=f"b{settings.era}",
        model=model.name,
        devices=tuple(parts),
        host=on_host,
        output_bytes=rows,
        kv_capacity_tokens=cells.context,
        max_concurrency=float(cells.context / cells.per_slot),
        context_cells=cells.context,
        notes=notes_of(model, settings, cells, placed, estimated=estimated),
    )
    if draft is not None:
        plan = _with_draft(plan, draft, settings, devices, host, cells)
    return _judged(plan, devices, host)


def _caches(
    layers: Sequence[Layer], settings: LlamaCppSettings, cells: Cells, placed: Placed, devices: int, first: int = 0
) -> _Sums:
    """KV cache and state where their layers lie (`dev_layer`), or on the host without `--kv-offload`."""
    sums = _Sums([0] * (devices + 1), [0] * (devices + 1))
    widest = widest_v(layers)
    known: dict[int, tuple[int, int]] = {}
    for index, layer in enumerate(layers, start=first):
        size = known.get(id(layer))
        if size is None:
            size = layer_kv_bytes(layer, settings, cells, widest), layer_state_bytes(layer, settings)
            known[id(layer)] = size
        device = placed.layer_device[min(index, len(placed.layer_device) - 1)] if settings.kv_offload else HOST
        if settings.split_mode == "tensor" and device != HOST:
            for each in range(devices):
                sums.kv[each] += size[0] // devices
                sums.state[each] += size[1] // devices
        else:
            sums.kv[device] += size[0]
            sums.state[device] += size[1]
    return sums


def _twice(
    compute: Compute,
    model: Model,
    settings: LlamaCppSettings,
    cells: Cells,
    placed: Placed,
    devices: Sequence[Device],
) -> Compute:
    """The buffers of the draft context over the MTP blocks, on top."""
    only = replace(model, layers=model.mtp_layers, mtp_layers=())
    where = replace(placed, layer_device=placed.layer_device[len(model.layers) :])
    drafting = compute_buffers(only, replace(settings, rollback_rows=0), cells, where, devices)
    return Compute(
        tuple(a + b for a, b in zip(compute.devices, drafting.devices, strict=True)), compute.host + drafting.host
    )


def _device(
    device: Device | None, weights: int, kv: int, state: int, compute: Interval, overhead: Interval
) -> DevicePlan:
    return DevicePlan(
        name=device.name if device else "host",
        capacity_bytes=device.capacity_bytes if device else None,
        weights_bytes=weights,
        kv_bytes=kv,
        state_bytes=state,
        compute_bytes=compute,
        overhead_bytes=overhead,
        fits=None,
    )


def _with_draft(
    plan: MemoryPlan,
    draft: Model,
    settings: LlamaCppSettings,
    devices: Sequence[Device],
    host: Device | None,
    cells: Cells,
) -> MemoryPlan:
    """The draft model's own weights, cache and buffers on top (common/speculative.cpp: same context and batch)."""
    own = replace(
        settings,
        context=cells.context,
        cache_type_k=settings.draft_cache_type_k,
        cache_type_v=settings.draft_cache_type_v,
        gpu_layers=settings.draft_gpu_layers,
        mmproj_bytes=0,
        mtp=False,
        override_tensor=(),
        cpu_moe=False,
        n_cpu_moe=0,
        n_cpu_ffn=0,
    )
    second = plan_llamacpp(draft, own, devices, host, remedies=False)

    def joined(first: DevicePlan, more: DevicePlan) -> DevicePlan:
        return replace(
            first,
            weights_bytes=first.weights_bytes + more.weights_bytes,
            kv_bytes=first.kv_bytes + more.kv_bytes,
            state_bytes=first.state_bytes + more.state_bytes,
            compute_bytes=first.compute_bytes + more.compute_bytes,
        )

    parts = tuple(joined(a, b) for a, b in zip(plan.devices, second.devices, strict=True))
    return replace(plan, devices=parts, host=joined(plan.host, second.host))


def _judged(plan: MemoryPlan, devices: Sequence[Device], host: Device | None) -> MemoryPlan:
    """The plan with its verdicts. What a device shares with the host counts for both."""
    shared = sum(device.unified for device in devices)
    total = plan.host.total_bytes
    parts = []
    for part, device in zip(plan.devices, devices, strict=True):
        need = part.total_bytes + total if device.unified else part.total_bytes
        parts.append(replace(part, fits=_fits(need, device)))
    verdict = None if host is None or shared else _fits(total, host)
    return replace(plan, devices=tuple(parts), host=replace(plan.host, fits=verdict))


def _fits(need: Interval, device: Device) -> Fits:
    free = device.capacity_bytes - device.in_use_bytes
    if need.high <= free:
        return Fits.YES
    return Fits.NO if need.low > free else Fits.MAYBE
