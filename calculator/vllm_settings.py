"""
vLLM's settings by the engine's own flag names, and what it makes of those that are not given.

Sources: vLLM 0.32.0 ``engine/arg_utils.py``, ``config/cache.py``, ``config/vllm.py``; earlier behaviour as the
version rules below say.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from calculator.model import CalculatorError, MissingFactError, Model

GIB = 1 << 30
Version = tuple[int, int, int]
# The first versions of a behaviour. Where a release was not read itself, the next one known to have it is named.
UTILIZATION_092 = (0, 20, 2)  # --gpu-memory-utilization defaults to 0.92 instead of 0.9
GRAPHS_IN_BUDGET = (0, 21, 0)  # the CUDA-graph estimate is taken from the KV cache (gpu_worker.py says so)
TOKENS_FROM_CONCURRENCY = (0, 21, 0)  # printed tokens = int(concurrency x max_model_len) (vllm#43308)
IN_FLIGHT_BATCHES = (0, 27, 0)  # windows also reserve for batches in flight (vllm#47728; 0.26 did not, vllm#40388)
HYBRID_PREFIX_CACHING = (0, 27, 0)  # on by default for hybrid models (0.32 config/model.py; opt-in in 0.26, #51250)
NEMOTRON_STATE_FLOAT32 = (0, 14, 0)  # NemotronHForCausalLMConfig.DEFAULT_MAMBA_SSM_CACHE_DTYPE
FEWER_GRAPHS = (0, 11, 1)  # captured sizes in steps of 16 above 256
CPU_UTILIZATION = (0, 21, 0)  # the CPU back end takes a share of memory; 4 GiB before


@dataclass(frozen=True, slots=True)
class VllmSettings:
    """
    What `vllm serve` is started with. ``None`` is "not given"; `version` is the engine's, as ``/version`` tells it.

    `platform` is "cuda", "rocm" or "cpu". `draft` names the speculative method ("mtp", "eagle3", ...).
    """

    version: str = "0.32.0"
    platform: str = "cuda"
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    enable_expert_parallel: bool = False
    gpu_memory_utilization: float | None = None
    kv_cache_memory_bytes: int | None = None
    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    kv_cache_dtype: str = "auto"
    block_size: int | None = None
    num_gpu_blocks_override: int | None = None
    dtype: str = "auto"
    quantization: str | None = None
    enforce_eager: bool = False
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None
    disable_hybrid_kv_cache_manager: bool = False
    mamba_ssm_cache_dtype: str = "auto"
    cpu_offload_gb: float = 0.0
    draft: str | None = None
    num_speculative_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings with every default filled in."""

    settings: VllmSettings
    version: Version
    utilization: float
    max_model_len: int
    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    prefix_caching: bool
    in_flight_tokens: int
    dtype_bytes: int


def parse_version(text: str) -> Version:
    """
    Read "0.11.1rc2+cu129" as (0, 11, 1).

    :raises CalculatorError: no version
    """
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", text.strip())
    if found is None:
        raise CalculatorError(f"{text!r} is not a version of vLLM; give it like 0.32.0")
    return int(found[1]), int(found[2]), int(found[3] or 0)


DTYPE_BYTES = {"float32": 4, "float": 4, "float16": 2, "half": 2, "bfloat16": 2}


def dtype_bytes(settings: VllmSettings, model: Model) -> int:
    """Give the width of unquantised weights and activations: "auto" loads float32 checkpoints in 16 bits."""
    if settings.dtype == "auto":
        return 2
    try:
        return DTYPE_BYTES[settings.dtype]
    except KeyError:
        raise CalculatorError(f"--dtype {settings.dtype!r} is unknown; one of auto, {', '.join(DTYPE_BYTES)}") from None


def batch_defaults(settings: VllmSettings, device_bytes: int, device_name: str) -> tuple[int, int]:
    """Give (max_num_batched_tokens, max_num_seqs) of `vllm serve` (arg_utils.py get_batch_defaults, 0.32)."""
    if settings.platform == "cpu":
        world = settings.tensor_parallel_size * settings.pipeline_parallel_size
        return 2048 * world, 128 * world
    if device_bytes >= 160 * GIB:
        return 16384, 1024
    if device_bytes >= 70 * GIB and "a100" not in device_name.lower():
        return 8192, 1024
    return 2048, 256


def resolve(settings: VllmSettings, model: Model, device_bytes: int, device_name: str = "") -> Resolved:
    """
    Fill in the defaults for a model on a device.

    :raises CalculatorError: a value that vLLM refuses
    :raises MissingFactError: the length is neither given nor known from the model
    """
    version = parse_version(settings.version)
    check(settings)
    length = settings.max_model_len or model.context_train
    if length is None:
        raise MissingFactError("max_position_embeddings is not known of this model; give --max-model-len")
    tokens, sequences = batch_defaults(settings, device_bytes, device_name)
    sequences = settings.max_num_seqs or sequences
    if settings.max_num_batched_tokens is None:
        tokens = min(sequences * length, tokens)
    else:
        tokens = settings.max_num_batched_tokens
    if settings.max_num_seqs is None:
        sequences = min(sequences, tokens)
    hybrid = any(layer.state is not None for layer in model.layers)
    mla = any(layer.mla_width is not None for layer in model.layers)
    prefix = settings.enable_prefix_caching
    if prefix is None:
        prefix = not hybrid or version >= HYBRID_PREFIX_CACHING
    default_block = (16 if mla else 128) if settings.platform == "cpu" else 64 if mla else 16
    return Resolved(
        settings=settings,
        version=version,
        utilization=settings.gpu_memory_utilization or (0.92 if version >= UTILIZATION_092 else 0.9),
        max_model_len=length,
        max_num_seqs=sequences,
        max_num_batched_tokens=tokens,
        block_size=settings.block_size or default_block,
        prefix_caching=prefix,
        in_flight_tokens=tokens * _batches_in_flight(settings, version),
        dtype_bytes=dtype_bytes(settings, model),
    )


def _batches_in_flight(settings: VllmSettings, version: Version) -> int:
    """Give how many batches a window must outlast (0.32 config/vllm.py max_concurrent_batches)."""
    if version < IN_FLIGHT_BATCHES:
        return 1
    asynchronous = settings.async_scheduling if settings.async_scheduling is not None else True
    return settings.pipeline_parallel_size + (1 if asynchronous else 0)


def check(settings: VllmSettings) -> None:
    """Refuse values that vLLM refuses; :raises CalculatorError: naming the flag."""
    for name in (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "decode_context_parallel_size",
        "max_model_len",
        "max_num_seqs",
        "max_num_batched_tokens",
        "block_size",
        "kv_cache_memory_bytes",
        "num_gpu_blocks_override",
    ):
        value = getattr(settings, name)
        if value is not None and value < 1:
            raise CalculatorError(f"--{name.replace('_', '-')} is {value}; it must be at least 1")
    share = settings.gpu_memory_utilization
    if share is not None and not 0 < share <= 1:
        raise CalculatorError(f"--gpu-memory-utilization is {share}; it must be above 0 and at most 1")
    if settings.num_speculative_tokens < 0 or settings.cpu_offload_gb < 0:
        raise CalculatorError("num_speculative_tokens and --cpu-offload-gb can't be negative")
    if settings.platform not in ("cuda", "rocm", "cpu"):
        raise CalculatorError(f"platform {settings.platform!r} is unknown; one of cuda, rocm, cpu")
    if settings.tensor_parallel_size % settings.decode_context_parallel_size:
        raise CalculatorError("--tensor-parallel-size must be a multiple of --decode-context-parallel-size")


SHORT = {"-tp": "tensor_parallel_size", "-pp": "pipeline_parallel_size", "-dp": "data_parallel_size"}
SHORT |= {"-dcp": "decode_context_parallel_size", "-q": "quantization", "-ep": "enable_expert_parallel"}
_BOOLEANS = (
    "enable_expert_parallel",
    "enforce_eager",
    "enable_prefix_caching",
    "async_scheduling",
    "disable_hybrid_kv_cache_manager",
)
_NOT_FLAGS = ("version", "platform", "draft", "num_speculative_tokens")


def parse_count(text: str) -> int:
    """
    Read a number as vLLM does: 32k is 32 000, 32K is 32 768 (utils/argparse_utils.py human_readable_int).

    :raises CalculatorError: not a number
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([kKmMgGtT]?)", text.strip())
    if found is None:
        raise CalculatorError(f"{text!r} is not a number; like 32768, 32k or 32K")
    power = "kmgt".find(found[2].lower()) + 1 if found[2] else 0
    base = 1024 if found[2].isupper() else 1000
    value = float(found[1]) * base**power
    if value != int(value):
        raise CalculatorError(f"{text!r} is not a whole number")
    return int(value)


def from_arguments(arguments: Sequence[str], *, version: str = "0.32.0", platform: str = "cuda") -> VllmSettings:
    """
    Read the arguments of ``vllm serve``; flags that don't concern memory are passed over.

    :param arguments: the words after ``vllm serve``, the model among them
    :raises CalculatorError: a value that can't be read
    """
    known = {item.name for item in fields(VllmSettings)} - set(_NOT_FLAGS)
    found: dict[str, object] = {}
    words = list(arguments)
    index = 0
    while index < len(words):
        word, _, inline = words[index].partition("=")
        index += 1
        negated = word.startswith("--no-")
        name = SHORT.get(word) or word.removeprefix("--no-").removeprefix("--").replace("-", "_")
        if not word.startswith("-"):
            continue
        if name in _BOOLEANS:
            found[name] = not negated
            continue
        takes = inline or (words[index] if index < len(words) else "")
        if name == "speculative_config":
            found |= _speculative(takes)
        elif name in known:
            found[name] = _value(name, takes)
        else:
            continue
        index += 0 if inline else 1
    return VllmSettings(version=version, platform=platform, **found)  # type: ignore[arg-type]


def _value(name: str, text: str) -> object:
    if not text:
        raise CalculatorError(f"--{name.replace('_', '-')} has no value")
    if name in ("kv_cache_dtype", "dtype", "quantization", "mamba_ssm_cache_dtype"):
        return text
    if name in ("gpu_memory_utilization", "cpu_offload_gb"):
        try:
            return float(text)
        except ValueError:
            raise CalculatorError(f"--{name.replace('_', '-')} is {text!r}; a number is needed") from None
    if name == "max_model_len" and text in ("-1", "auto"):
        return None
    return parse_count(text)


def _speculative(text: str) -> dict[str, object]:
    method = re.search(r'"method"\s*:\s*"(\w+)"', text)
    tokens = re.search(r'"num_speculative_tokens"\s*:\s*(\d+)', text)
    return {"draft": method[1] if method else None, "num_speculative_tokens": int(tokens[1]) if tokens else 1}


def command(settings: VllmSettings, model: str) -> str:
    """Write the ``vllm serve`` command of these settings, ready to copy; defaults are left out."""
    words = ["vllm", "serve", model]
    plain = VllmSettings()
    for item in fields(VllmSettings):
        value = getattr(settings, item.name)
        if item.name in _NOT_FLAGS or value == getattr(plain, item.name):
            continue
        flag = "--" + item.name.replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else "--no-" + flag.removeprefix("--"))
        else:
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    if settings.draft:
        tokens = settings.num_speculative_tokens
        words += ["--speculative-config", f'{{"method": "{settings.draft}", "num_speculative_tokens": {tokens}}}']
    return shlex.join(words)


def with_changes(settings: VllmSettings, **changes: object) -> VllmSettings:
    """Give the settings with some changed."""
    return replace(settings, **changes)  # type: ignore[arg-type]
