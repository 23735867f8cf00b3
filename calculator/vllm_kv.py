"""
vLLM's KV cache: pages, groups, blocks, tokens and concurrency, from the bytes that are left for it.

Rules of vLLM 0.32.0 ``v1/core/kv_cache_utils.py`` (page unification, grouping, capacity), ``v1/kv_cache_interface.py``
(blocks of a request) and ``platforms/interface.py`` (block size of hybrids); differences of older versions are those
of `calculator.vllm_settings`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from calculator.model import Attention, CalculatorError, Layer, MissingFactError, Model, RecurrentState
from calculator.vllm_settings import NEMOTRON_STATE_FLOAT32, TOKENS_FROM_CONCURRENCY, Resolved


def ceil_div(value: int, by: int) -> int:
    """Divide and round up."""
    return -(-value // by)


# Bytes of one element of K or V, and bytes added for each head and token; `--kv-cache-dtype` of vLLM.
# nvfp4: packed halves and one FP8 scale for 16 elements (v1/attention/backends, nvfp4_kv_cache_full_dim).
KV_ELEMENT_BYTES: dict[str, tuple[float, int]] = {
    "float16": (2, 0),
    "bfloat16": (2, 0),
    "float32": (4, 0),
    "fp8": (1, 0),
    "fp8_e4m3": (1, 0),
    "fp8_e5m2": (1, 0),
    "fp8_inc": (1, 0),
    "fp8_ds_mla": (1, 0),
    "int8_per_token_head": (1, 4),
    "fp8_per_token_head": (1, 4),
    "nvfp4": (0.5625, 0),
    "nvfp4_ds_mla": (0.5625, 0),
}
MLA_TOKEN_BYTES = {"fp8_ds_mla": 656, "nvfp4_ds_mla": 352}  # of 512 + 64 elements (MLAAttentionSpec)
STATE_DTYPE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, slots=True)
class Spec:
    """What one layer's cache asks for: a page of `block_tokens` tokens, or of one state."""

    kind: Attention
    block_tokens: int
    page_bytes: int
    window: int | None = None
    shape: tuple[int, ...] = ()  # heads and widths: only layers of the same shape share a group


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a block table."""

    spec: Spec
    layers: tuple[int, ...]
    page_bytes: int  # of all its layers, one block


@dataclass(frozen=True, slots=True)
class KvPlan:
    """How the cache is laid out on one rank."""

    groups: tuple[Group, ...]
    block_bytes: int  # of one block of the shared pool
    blocks_per_request: int  # of a request of full length
    block_tokens: int  # smallest of any group
    attention_block_tokens: int  # what the log calls "attention block size"
    decode_context: int


@dataclass(frozen=True, slots=True)
class Capacity:
    """What fits into the available bytes, as vLLM prints it."""

    blocks: int
    tokens: int
    max_concurrency: float


def kv_dtype(resolved: Resolved, model: Model) -> str:
    """Give the cache's type; "auto" follows the checkpoint's own scheme (utils/torch_utils.py), else the weights."""
    name = resolved.settings.kv_cache_dtype
    if name == "auto":
        config = model.quantization_config
        scheme = config.get("kv_cache_scheme")
        algorithm = str(config.get("kv_cache_quant_algo") or "")
        if isinstance(scheme, dict) and scheme.get("num_bits") == 8:
            return "fp8"
        if algorithm.lower() in ("fp8", "nvfp4"):
            return algorithm.lower()
        return "float32" if resolved.dtype_bytes == 4 else "bfloat16"
    if name not in KV_ELEMENT_BYTES:
        raise CalculatorError(
            f"--kv-cache-dtype {name!r} has no rule here; known are auto, {', '.join(sorted(KV_ELEMENT_BYTES))}"
        )
    return name


def _attention_spec(layer: Layer, resolved: Resolved, dtype: str) -> list[Spec]:
    """Give the specs of a layer's attention: one, or two with a sparse-attention indexer."""
    tp, block = resolved.settings.tensor_parallel_size, resolved.block_size
    element, per_head = KV_ELEMENT_BYTES[dtype]
    if layer.attention is Attention.MLA:
        if layer.mla_width is None:
            raise MissingFactError(f"the width of the compressed KV vector of {layer.attention} is not known")
        indexed = layer.indexer_width is not None
        if dtype in MLA_TOKEN_BYTES or (indexed and dtype.startswith("fp8")):
            token = MLA_TOKEN_BYTES.get(dtype, 656)  # sparse attention stores "fp8" as fp8_ds_mla
        else:
            token = math.ceil(layer.mla_width * element)
        specs = [Spec(Attention.MLA, block, block * token, shape=(token,))]
        if layer.indexer_width is not None:
            # FP8 keys and one float32 scale for 128 of them (models/deepseek_v2.py, DeepseekV32IndexerCache)
            index = layer.indexer_width + 4 * ceil_div(layer.indexer_width, 128)
            specs.append(Spec(Attention.MLA, block, block * index, shape=(index,)))
        return specs
    heads = max(1, layer.n_head_kv // tp)
    token = math.ceil(heads * ((layer.head_dim_k + layer.head_dim_v) * element + 2 * per_head))
    shape = (heads, layer.head_dim_k, layer.head_dim_v)
    kind, window = layer.attention, layer.window
    if resolved.settings.disable_hybrid_kv_cache_manager and kind in (Attention.SLIDING, Attention.CHUNKED):
        kind, window = Attention.FULL, None
    return [Spec(kind, block, block * token, window, shape)]


def state_page_bytes(state: RecurrentState, resolved: Resolved, architecture: str) -> int:
    """
    Give the bytes of one recurrent state on one rank.

    Shapes of ``model_executor/layers/mamba/mamba_utils.py`` (gated_delta_net_state_shape, mamba2_state_shape,
    short_conv_state_shape): the convolution is widened by the speculative tokens. The convolution has the type of the
    activations, the recurrent part its own where the model says so.
    """
    tp, spec = resolved.settings.tensor_parallel_size, resolved.settings.num_speculative_tokens
    if state.kernel is None:
        raise MissingFactError("the convolution's kernel of the recurrent state is not known")
    taps = state.kernel - 1
    channels = state.conv_elements // max(taps, 1)
    if state.kind == "mamba2" and state.groups is not None and state.k_dim is not None and state.groups % tp:
        channels += 2 * (tp - state.groups) * state.k_dim  # groups are repeated until every rank has its own
    conv = ceil_div(channels, tp) * (taps + spec)
    return conv * resolved.dtype_bytes + state.ssm_elements // tp * _state_width(state, resolved, architecture)


def _state_width(state: RecurrentState, resolved: Resolved, architecture: str) -> int:
    asked = resolved.settings.mamba_ssm_cache_dtype
    if asked == "auto":
        nemotron = architecture.startswith("NemotronH") or architecture == "nemotron_h"
        if nemotron and resolved.version < NEMOTRON_STATE_FLOAT32:
            return resolved.dtype_bytes
        asked = state.ssm_dtype or ("float32" if nemotron else "auto")
    if asked == "auto":
        return resolved.dtype_bytes
    if asked not in STATE_DTYPE_BYTES:
        raise CalculatorError(f"--mamba-ssm-cache-dtype {asked!r} is unknown; float32, float16 or bfloat16")
    return STATE_DTYPE_BYTES[asked]


def _specs(model: Model, layers: Sequence[Layer], resolved: Resolved, dtype: str) -> tuple[list[Spec], int]:
    """Give the spec of every cache in order, and the block size of attention after fitting it to the states."""
    states = {id(layer): layer.state for layer in layers if layer.state is not None}
    attends = [layer for layer in layers if layer.attention is not Attention.NONE and not layer.shares_kv]
    by_layer: dict[int, list[Spec]] = {}
    if states and attends:
        state_bytes = max(
            state_page_bytes(state, resolved, model.architecture) for state in states.values() if state is not None
        )
        first = attends[0]
        one = _attention_spec(first, replace(resolved, block_size=1), dtype)[0].page_bytes
        align = max(16, resolved.block_size, 128 if first.attention is Attention.MLA else 0)
        block = align * ceil_div(state_bytes, align * one)
        resolved = replace(resolved, block_size=max(block, resolved.block_size))
        page = resolved.block_size * one
    else:
        page = 0
    out: list[Spec] = []
    same: dict[Spec, Spec] = {}  # equal specs are one object, so that what follows compares identities
    for layer in layers:
        made = by_layer.get(id(layer))
        if made is None:
            made = []
            if layer.attention is not Attention.NONE and not layer.shares_kv:
                made += _attention_spec(layer, resolved, dtype)
            if layer.state is not None:
                size = state_page_bytes(layer.state, resolved, model.architecture)
                made.append(Spec(Attention.NONE, resolved.block_size, max(size, page), shape=(size,)))
            made = by_layer[id(layer)] = [same.setdefault(spec, spec) for spec in made]
        out += made
    return out, resolved.block_size


def _unify(specs: list[Spec]) -> list[Spec]:
    """Give all layers the page of the largest: more tokens where it divides evenly, padding where not."""
    kinds = {id(spec): spec for spec in specs}
    largest = max(spec.page_bytes for spec in kinds.values())
    made: dict[int, Spec] = {}
    for key, spec in kinds.items():
        if spec.page_bytes == largest:
            made[key] = spec
        elif spec.kind is not Attention.NONE and largest % spec.page_bytes == 0:
            ratio = largest // spec.page_bytes
            made[key] = replace(spec, block_tokens=spec.block_tokens * ratio, page_bytes=largest)
        elif spec.kind is Attention.MLA:
            raise CalculatorError(
                "vLLM can't give these layers one page size: an MLA page does not divide the largest page evenly"
            )
        else:
            made[key] = replace(spec, page_bytes=largest)
    same: dict[Spec, Spec] = {}
    made = {key: same.setdefault(spec, spec) for key, spec in made.items()}
    return [made[id(spec)] for spec in specs]


def _group(specs: list[Spec]) -> list[Group]:
    """Split layers into groups of one size (_get_kv_cache_groups_uniform_page_size)."""
    buckets: dict[int, list[int]] = {}
    for index, spec in enumerate(specs):
        buckets.setdefault(id(spec), []).append(index)
    fewest, most = min(map(len, buckets.values())), max(map(len, buckets.values()))
    size = most if most < fewest * 1.5 else fewest
    groups = []
    for layers in buckets.values():
        spec = specs[layers[0]]
        number = ceil_div(len(layers), size)
        for part in range(number):
            own = tuple(layers[part::number])
            groups.append(Group(spec, own, size * spec.page_bytes))
    return groups


def plan_kv(model: Model, resolved: Resolved, draft: Model | None = None) -> KvPlan:
    """
    Lay out the cache of one rank.

    :param draft: the drafter of a speculative method with layers of its own (EAGLE); MTP blocks are the model's
    :raises CalculatorError: a layer that vLLM has no page for
    """
    layers = list(model.layers)
    if resolved.settings.num_speculative_tokens and resolved.settings.draft == "mtp":
        layers += model.mtp_layers
    dtype = kv_dtype(resolved, model)
    specs, attention_block = _specs(model, layers, resolved, dtype)
    if draft is not None:
        same = {spec: spec for spec in reversed(specs)}
        specs += [same.get(spec, spec) for spec in _specs(draft, draft.layers, resolved, dtype)[0]]
    if not specs:
        return KvPlan((), 0, 0, resolved.block_size, resolved.block_size, 1)
    kinds = {(spec.kind, spec.window, spec.block_tokens) for spec in {id(spec): spec for spec in specs}.values()}
    if len(kinds) == 1:
        # One type of attention: one group, whatever the pages (UniformTypeKVCacheSpecs)
        page = sum(spec.page_bytes for spec in specs)
        groups = [Group(specs[0], tuple(range(len(specs))), page)]
    else:
        groups = _group(_unify(specs))
    block_bytes = max(group.page_bytes for group in groups)
    return KvPlan(
        groups=tuple(groups),
        block_bytes=block_bytes,
        blocks_per_request=blocks_per_request(groups, resolved, resolved.max_model_len),
        block_tokens=min(group.spec.block_tokens for group in groups),
        attention_block_tokens=attention_block,
        decode_context=resolved.settings.decode_context_parallel_size,
    )


def blocks_per_request(groups: Sequence[Group], resolved: Resolved, length: int) -> int:
    """Give the blocks that a request of `length` tokens takes, over all groups."""
    settings = resolved.settings
    total = 0
    for group in groups:
        block, window = group.spec.block_tokens, group.spec.window
        if group.spec.kind is Attention.NONE:
            total += (2 if resolved.prefix_caching else 1) + settings.num_speculative_tokens
        elif group.spec.kind is Attention.SLIDING and window:
            total += ceil_div(min(window - 1 + resolved.in_flight_tokens, length), block) + 1
        elif group.spec.kind is Attention.CHUNKED and window:
            total += ceil_div(min(window + resolved.in_flight_tokens, length), block)
        else:
            total += ceil_div(ceil_div(length, settings.decode_context_parallel_size), block)
    return total


def capacity(plan: KvPlan, resolved: Resolved, available_bytes: int) -> Capacity:
    """
    Say what fits into `available_bytes` of one rank: the blocks, and tokens and concurrency as vLLM prints them.

    Printed tokens: int(concurrency x max_model_len) since 0.21, before that blocks // groups x smallest block (of
    all ranks of decode context parallelism).
    """
    blocks = resolved.settings.num_gpu_blocks_override or max(available_bytes, 0) // plan.block_bytes
    concurrency = blocks / plan.blocks_per_request
    if resolved.version >= TOKENS_FROM_CONCURRENCY:
        tokens = int(concurrency * resolved.max_model_len)
    else:
        tokens = blocks // len(plan.groups) * plan.block_tokens * plan.decode_context
    return Capacity(blocks, tokens, concurrency)


def longest_request(plan: KvPlan, resolved: Resolved, available_bytes: int) -> int:
    """Give the longest length for which one request fits beside the null block, in tokens; 0 if none."""
    blocks = max(available_bytes, 0) // plan.block_bytes - 1
    low, high = 0, resolved.max_model_len
    while low < high:
        middle = (low + high + 1) // 2
        if blocks_per_request(plan.groups, resolved, middle) <= blocks:
            low = middle
        else:
            high = middle - 1
    return low
