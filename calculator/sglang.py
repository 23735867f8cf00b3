"""
SGLang's pool: what `--mem-fraction-static` leaves for the KV cache after the weights.

Rules: SGLang 0.5.23 ``model_executor/pool_configurator.py`` and ``arg_groups/memory_hook.py``:
tokens = (free after load - free before load x (1 - fraction)) / bytes of a token, rounded down to pages.
"""

from __future__ import annotations

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
    MissingFactError,
    Model,
    Note,
)
from calculator.vllm_kv import KV_ELEMENT_BYTES
from calculator.vllm_settings import GIB, VllmSettings, resolve
from calculator.vllm_weights import rank_weights

MIB = 1 << 20
SOURCE = "SGLang 0.5.23 "
# Device memory below which --chunked-prefill-size and the largest CUDA-graph batch default to these
# (arg_groups/memory_hook.py): (GiB, chunk, batch with tp < 4, batch with tp >= 4)
DEFAULTS = ((20, 2048, 8, 8), (35, 2048, 24, 80), (60, 4096, 32, 160), (90, 8192, 256, 512), (160, 8192, 256, 512))
LARGEST_DEFAULTS = (16384, 512, 512)


@dataclass(frozen=True, slots=True)
class SglangSettings:
    """What ``sglang.launch_server`` is started with; ``None`` is "not given"."""

    version: str = "0.5.23"
    tp_size: int = 1
    pp_size: int = 1
    mem_fraction_static: float | None = None
    chunked_prefill_size: int | None = None
    cuda_graph_max_bs: int | None = None
    context_length: int | None = None
    kv_cache_dtype: str = "auto"
    page_size: int = 1
    quantization: str | None = None


def default_fraction(settings: SglangSettings, device_bytes: int) -> float:
    """
    Give `--mem-fraction-static` where it isn't given: what a reserve leaves of the device's memory.

    The reserve in MiB is 512 + 1.5 x chunked prefill tokens + 2 x largest graph batch + 1024 x tp x pp / 8.
    """
    row = next((row for row in DEFAULTS if device_bytes < row[0] * GIB), None)
    chunk, small, large = LARGEST_DEFAULTS if row is None else row[1:]
    chunk = settings.chunked_prefill_size or chunk
    batch = settings.cuda_graph_max_bs or (large if settings.tp_size >= 4 else small)
    reserve = 512 + 1.5 * chunk + 2 * batch + 1024 * settings.tp_size * settings.pp_size / 8
    return round((device_bytes / MIB - reserve) / (device_bytes / MIB), 3)


def token_bytes(model: Model, settings: SglangSettings) -> tuple[int, int]:
    """
    Give the bytes of K and of V that one token takes on one rank, over all its layers.

    :raises CalculatorError: layers for which SGLang keeps another pool (windows, recurrent state)
    """
    other = sorted(
        {layer.attention.value for layer in model.layers if layer.attention in (Attention.SLIDING, Attention.CHUNKED)}
        | {layer.state.kind for layer in model.layers if layer.state is not None}
    )
    if other:
        raise CalculatorError(
            f"{model.name} has {', '.join(other)} layers, for which SGLang divides its pool by its own ratios; "
            "only models with one kind of attention are planned"
        )
    dtype = "bfloat16" if settings.kv_cache_dtype == "auto" else settings.kv_cache_dtype
    if dtype not in KV_ELEMENT_BYTES:
        raise CalculatorError(f"--kv-cache-dtype {dtype!r} has no rule here")
    element = KV_ELEMENT_BYTES[dtype][0]
    keys = values = 0.0
    for layer in model.layers[: -(-len(model.layers) // settings.pp_size)]:
        if layer.attention is Attention.NONE or layer.shares_kv:
            continue
        if layer.attention is Attention.MLA:
            if layer.mla_width is None:
                raise MissingFactError(f"{model.name}: the width of the compressed KV vector is not known")
            index = layer.indexer_width + 4 * -(-layer.indexer_width // 128) if layer.indexer_width else 0
            keys += layer.mla_width * element + index
        else:
            heads = max(1, layer.n_head_kv // settings.tp_size)
            keys += heads * layer.head_dim_k * element
            values += heads * layer.head_dim_v * element
    return int(keys), int(values)


def pool_tokens(model: Model, settings: SglangSettings, available_bytes: int) -> int:
    """Give the tokens that `available_bytes` of one rank hold, whole pages."""
    cell = sum(token_bytes(model, settings))
    if cell == 0:
        raise CalculatorError(f"{model.name} keeps no KV cache; there is no pool to plan")
    return max(available_bytes, 0) // cell // settings.page_size * settings.page_size


def plan_sglang(
    model: Model, settings: SglangSettings, devices: Sequence[Device], host: Device | None = None
) -> MemoryPlan:
    """
    Plan the memory of SGLang with these settings.

    :param devices: one for each rank of tensor x pipeline parallelism
    :raises CalculatorError: a fact is missing, or there are fewer devices than ranks
    """
    ranks = settings.tp_size * settings.pp_size
    if ranks < 1 or len(devices) < ranks:
        raise CalculatorError(f"tensor x pipeline parallelism needs {ranks} devices; {len(devices)} are given")
    length = settings.context_length or model.context_train
    if length is None:
        raise MissingFactError("max_position_embeddings is not known of this model; give --context-length")
    same = VllmSettings(
        tensor_parallel_size=settings.tp_size,
        pipeline_parallel_size=settings.pp_size,
        max_model_len=length,
        quantization=settings.quantization,
    )
    weights = rank_weights(model, resolve(same, model, devices[0].capacity_bytes))
    rows: list[tuple[Device, int, int]] = []
    for index, device in enumerate(devices[:ranks]):
        fraction = settings.mem_fraction_static or default_fraction(settings, device.capacity_bytes)
        if not 0 < fraction < 1:
            raise CalculatorError(f"--mem-fraction-static is {fraction}; it must be between 0 and 1")
        own = weights[index // settings.tp_size]
        free = device.capacity_bytes - device.in_use_bytes
        rows.append((device, own, int(free * fraction) - own))
    tokens = pool_tokens(model, settings, min(left for _, _, left in rows))
    cell = sum(token_bytes(model, settings))
    fits = Fits.YES if tokens >= length else Fits.NO
    plans = tuple(
        DevicePlan(
            name=device.name,
            capacity_bytes=device.capacity_bytes,
            weights_bytes=own,
            kv_bytes=tokens * cell,
            state_bytes=0,
            compute_bytes=Interval.exactly(0),
            overhead_bytes=Interval(0, max(device.capacity_bytes - device.in_use_bytes - own - tokens * cell, 0)),
            fits=fits,
        )
        for device, own, _ in rows
    )
    none = Interval.exactly(0)
    fraction = settings.mem_fraction_static or default_fraction(settings, devices[0].capacity_bytes)
    return MemoryPlan(
        engine="sglang",
        engine_version=settings.version,
        model=model.name,
        devices=plans,
        host=DevicePlan("host", host.capacity_bytes if host else None, 0, 0, 0, none, none, None),
        output_bytes=0,
        kv_capacity_tokens=tokens,
        max_concurrency=tokens / length,
        context_cells=None,
        notes=(
            Note(
                "sglang-pool",
                f"weights and KV pool take {fraction:g} of the free memory; a token takes {cell} bytes on a rank; what "
                "is left is for activations and CUDA graphs, whose use is not stated more closely",
                SOURCE + "model_executor/pool_configurator.py, arg_groups/memory_hook.py",
            ),
        ),
        remedies=() if fits is Fits.YES else _remedies(model, settings, devices, tokens),
    )


def _remedies(model: Model, settings: SglangSettings, devices: Sequence[Device], tokens: int) -> tuple[str, ...]:
    """Give changes that make a request of full length fit, each verified by planning again with it."""
    candidates = []
    if tokens >= 1024:
        shorter = tokens // 1024 * 1024
        candidates.append((f"--context-length {shorter}", replace(settings, context_length=shorter)))
    if settings.kv_cache_dtype == "auto":
        candidates.append(("--kv-cache-dtype fp8_e4m3", replace(settings, kv_cache_dtype="fp8_e4m3")))
    doubled = settings.tp_size * 2
    if doubled * settings.pp_size <= len(devices):
        candidates.append((f"--tp-size {doubled}", replace(settings, tp_size=doubled)))
    return tuple(
        text for text, changed in candidates if plan_sglang(model, changed, devices).devices[0].fits is Fits.YES
    )
