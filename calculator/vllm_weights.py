"""
Bytes of a model's weights on one rank of vLLM: parallelism and quantisation applied to shapes or stored tensors.

How a layer is divided: vLLM 0.32 ``model_executor/layers/linear.py``, ``vocab_parallel_embedding.py``,
``fused_moe/layer.py`` and ``distributed/utils.py`` (pipeline stages). Bytes of a quantised matrix:
``model_executor/layers/quantization/`` (what each method's create_weights allocates).
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from calculator.model import CalculatorError, Layer, MissingFactError, Model, Shard, Weight
from calculator.vllm_settings import Resolved

VOCAB_PADDING = 64  # vocab_parallel_embedding.py DEFAULT_VOCAB_PADDING_SIZE
_FLOATS = ("F32", "F16", "BF16", "F64")


@dataclass(frozen=True, slots=True)
class Scheme:
    """
    How a linear layer's matrix is stored.

    `bits` of one weight; `group` input features share a scale of `scale_bits` (and a zero of `zero_bits`); 0: one
    scale for an output feature; None: one for the matrix. `block` is FP8's square of 128 x 128 with a 4-byte scale.
    """

    name: str
    bits: int
    group: int | None = None
    scale_bits: int = 0
    zero_bits: int = 0
    block: tuple[int, int] | None = None
    index_bytes: int = 0  # for each input feature (GPTQ with act-order)
    only_experts: bool = False
    skips: tuple[str, ...] = ()  # names that stay unquantised

    def size(self, rows: int, columns: int, copies: int) -> int:
        """Give the bytes of `copies` matrices of rows x columns."""
        total = rows * columns * self.bits / 8 + columns * self.index_bytes
        if self.block is not None:
            total += 4 * -(-rows // self.block[0]) * -(-columns // self.block[1])
        elif self.group:
            total += rows * -(-columns // self.group) * (self.scale_bits + self.zero_bits) / 8
        elif self.group == 0:
            total += rows * self.scale_bits / 8
        else:
            total += 4
        return int(total) * copies


def scheme_of(model: Model, quantization: str | None) -> Scheme | None:
    """
    Read the scheme from the checkpoint's `quantization_config`, or from `--quantization` for weights quantised at load.

    :raises CalculatorError: a method whose bytes no rule here knows
    """
    config = model.quantization_config
    method = str(config.get("quant_method") or quantization or "").lower()
    if not method:
        return None
    skips = _skips(config)
    algorithm = str(config.get("quant_algo") or "").upper()
    if method in ("modelopt", "modelopt_fp4"):
        method = "nvfp4" if "FP4" in algorithm or method == "modelopt_fp4" else "fp8"
    if method in ("fp8", "fbgemm_fp8", "ptpc_fp8"):
        block = config.get("weight_block_size")
        square = (int(block[0]), int(block[1])) if isinstance(block, list | tuple) and len(block) == 2 else None
        return Scheme("FP8", 8, None if method == "fp8" else 0, 32, block=square, skips=skips)
    if method in ("awq", "awq_marlin", "gptq", "gptq_marlin"):
        bits = _number(config, 4, "bits", "w_bit")
        group = _number(config, 128, "group_size", "q_group_size")
        index = 4 if method.startswith("gptq") and config.get("desc_act") else 0
        name = method.removesuffix("_marlin").upper()
        return Scheme(f"{name} {bits} bit", bits, max(group, 0), 16, bits, index_bytes=index, skips=skips)
    if method == "nvfp4":
        return Scheme("NVFP4", 4, 16, 8, skips=skips)
    if method in ("mxfp4", "gpt_oss_mxfp4"):
        return Scheme("MXFP4", 4, 32, 8, only_experts=model.architecture.startswith("GptOss"), skips=skips)
    if method == "compressed-tensors":
        return _compressed(config, skips)
    if method == "bitsandbytes":
        if config.get("load_in_8bit"):
            return Scheme("bitsandbytes 8 bit", 8, 0, 32, skips=skips)
        return Scheme("bitsandbytes 4 bit", 4, 64, 32, skips=skips)
    raise CalculatorError(
        f"quantisation {method!r} has no rule here; a folder with its safetensors files gives the exact bytes"
    )


def _number(config: Mapping[str, object], default: int, *names: str) -> int:
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return default


def _skips(config: Mapping[str, object]) -> tuple[str, ...]:
    for name in ("ignore", "modules_to_not_convert", "exclude_modules", "ignored_layers"):
        found = config.get(name)
        if isinstance(found, list | tuple):
            return tuple(str(word) for word in found)
    return ()


def _compressed(config: Mapping[str, object], skips: tuple[str, ...]) -> Scheme:
    """Read the first group of a compressed-tensors configuration (quantization/compressed_tensors)."""
    groups = config.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        raise MissingFactError("quantization_config: config_groups has no weights; the bits of a weight are not known")
    bits = _number(weights, 8, "num_bits")
    floating = weights.get("type") == "float"
    zero = 0 if weights.get("symmetric", True) else bits
    group = _number(weights, 0, "group_size")
    if weights.get("strategy") == "block":
        return Scheme("compressed-tensors FP8", bits, block=(128, 128), skips=skips)
    if floating and bits == 4:
        return Scheme("compressed-tensors FP4", 4, group or 16, 8, skips=skips)
    if weights.get("strategy") == "tensor":
        return Scheme(f"compressed-tensors {bits} bit", bits, None, skips=skips)
    scale = 32 if floating else 16
    return Scheme(f"compressed-tensors {bits} bit", bits, max(group, 0), scale, zero, skips=skips)


_PARTS = {
    "gate_up_proj": ("gate_up_proj", "gate_proj", "up_proj"),
    "in_proj_qkvz": ("in_proj_qkvz", "in_proj_qkv", "in_proj_z"),
    "in_proj_ba": ("in_proj_ba", "in_proj_b", "in_proj_a"),
}


@lru_cache(maxsize=4096)
def _skipped(patterns: tuple[str, ...], name: str, indices: tuple[int, ...]) -> int:
    """Count the layers in which the weight of this name is excluded from quantisation."""
    head, _, last = name.rpartition(".")
    names = [f"{head}.{part}" if head else part for part in _PARTS.get(last, (last,))]
    total = 0
    for index in indices:
        spelled = [f"model.layers.{index}.{part}" for part in names]
        total += any(_matches(pattern, word) for pattern in patterns for word in spelled)
    return total


def _matches(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        try:
            return re.match(pattern[3:], name) is not None or re.match(pattern[3:], name + ".weight") is not None
        except re.error:
            raise CalculatorError(f"quantization_config: ignore holds {pattern!r}, no regular expression") from None
    bare = re.sub(r"^(?:model\.)?(?:language_model\.)?(?:model\.)?", "model.", pattern)
    if "*" in bare:
        return fnmatch.fnmatchcase(name, bare) or fnmatch.fnmatchcase(name, bare + ".*")
    plain = pattern.removesuffix(".weight")
    return name == bare or name.startswith(bare + ".") or f".{plain}." in f"{name}."


def stages(layers: int, ranks: int) -> list[range]:
    """Split layers over pipeline ranks as vLLM does (distributed/utils.py get_pp_indices)."""
    if ranks > layers:
        raise CalculatorError(f"--pipeline-parallel-size {ranks} exceeds the model's {layers} layers")
    sizes = [layers // ranks] * ranks
    for rank in range(2, layers % ranks + 2):
        sizes[-rank] += 1
    out, start = [], 0
    for size in sizes:
        out.append(range(start, start + size))
        start += size
    return out


@dataclass(frozen=True, slots=True)
class Ranks:
    """How many ranks share what."""

    tp: int
    ep: int  # 1: experts are cut like other layers
    padded_vocab: int

    @classmethod
    def of(cls, model: Model, resolved: Resolved) -> Ranks:
        """Read them; :raises CalculatorError: the heads don't divide."""
        settings = resolved.settings
        tp = settings.tensor_parallel_size
        for layer in model.layers:
            if layer.n_head % tp:
                raise CalculatorError(
                    f"Total number of attention heads ({layer.n_head}) must be divisible by tensor parallel size ({tp})"
                )
        ep = tp * settings.data_parallel_size if settings.enable_expert_parallel else 1
        return cls(tp, ep, -(-model.n_vocab // VOCAB_PADDING) * VOCAB_PADDING)


def _rank_shape(weight: Weight, layer: Layer | None, ranks: Ranks, vocab: int) -> tuple[int, int, int]:
    """Give (rows, columns, copies) that one rank keeps."""
    rows, columns, copies, tp = weight.rows, weight.columns, weight.copies, ranks.tp
    if weight.shard is Shard.VOCAB:
        if weight.columns > 1 and rows == vocab:
            rows = ranks.padded_vocab
        return -(-rows // tp), columns, copies
    if weight.shard is Shard.EXPERT:
        if ranks.ep > 1:
            return rows, columns, -(-copies // ranks.ep)
        if weight.name.endswith("down_proj"):
            return rows, -(-columns // tp), copies
        return (rows, columns, copies) if weight.name.endswith("down_proj_bias") else (-(-rows // tp), columns, copies)
    if weight.shard is Shard.COLUMN:
        return -(-rows // tp), columns, copies
    if weight.shard is Shard.ROW:
        return (rows, -(-columns // tp), copies) if columns > 1 else (-(-rows // tp), columns, copies)
    if weight.shard is Shard.KV and layer is not None and layer.n_head_kv:
        kept = max(1, layer.n_head_kv // tp)
        return rows * kept // layer.n_head_kv, columns, copies
    return rows, columns, copies


def _weight_bytes(
    weight: Weight,
    layer: Layer | None,
    ranks: Ranks,
    vocab: int,
    scheme: Scheme | None,
    width: int,
    layers: int,
    skip: int,
) -> int:
    """Give the bytes of a weight in `layers` blocks, `skip` of which leave it unquantised."""
    if weight.stored_bytes is not None:
        return _stored_bytes(weight, layer, ranks, width, scheme) * layers
    rows, columns, copies = _rank_shape(weight, layer, ranks, vocab)
    plain = rows * columns * copies * width
    applies = scheme is not None and weight.linear and (weight.shard is Shard.EXPERT or not scheme.only_experts)
    if scheme is None or not applies:
        return plain * layers
    return plain * skip + scheme.size(rows, columns, copies) * (layers - skip)


def _stored_bytes(weight: Weight, layer: Layer | None, ranks: Ranks, width: int, scheme: Scheme | None) -> int:
    size = weight.stored_bytes or 0
    if weight.stored_dtype in _FLOATS:
        # Unquantised weights are loaded in the type of the activations.
        size = weight.rows * width if scheme is None or not weight.linear else scheme.size(1, weight.rows, 1)
    if weight.shard is Shard.EXPERT:
        return -(-size // (ranks.ep if ranks.ep > 1 else ranks.tp))
    if weight.shard is Shard.KV and layer is not None and layer.n_head_kv:
        return size * max(1, layer.n_head_kv // ranks.tp) // layer.n_head_kv
    return size if weight.shard is Shard.REPLICATED else -(-size // ranks.tp)


def rank_weights(model: Model, resolved: Resolved) -> list[int]:
    """
    Give the weight bytes of one rank of every pipeline stage, rotary tables included.

    :raises CalculatorError: parallelism that doesn't divide the model, or an unknown quantisation
    :raises MissingFactError: the shapes are not known (a model without configuration or stored tensors)
    """
    if not any(layer.weights for layer in model.layers):
        raise MissingFactError(f"{model.name}: the shapes of its weights are not known; give a folder with config.json")
    ranks = Ranks.of(model, resolved)
    stored = any(weight.stored_bytes is not None for weight in model.weights)
    # Stored bytes hold a checkpoint's own quantisation already; `--quantization` applies to unquantised ones at load.
    scheme = None if stored and model.quantization_config else scheme_of(model, resolved.settings.quantization)
    width, vocab = resolved.dtype_bytes, model.n_vocab
    drafts = model.mtp_layers if resolved.settings.draft == "mtp" and resolved.settings.num_speculative_tokens else ()
    parts = stages(len(model.layers), resolved.settings.pipeline_parallel_size)
    out = []
    for stage, part in enumerate(parts):
        indices: dict[int, list[int]] = {}
        kinds: dict[int, Layer] = {}
        for index in part:
            layer = model.layers[index]
            indices.setdefault(id(layer), []).append(index)
            kinds[id(layer)] = layer
        total = model.rotary_elements * width
        for key, layer in kinds.items():
            where = indices[key]
            total += sum(
                _weight_bytes(
                    weight, layer, ranks, vocab, scheme, width, len(where), _skip(scheme, weight, tuple(where))
                )
                for weight in layer.weights
            )
        last = stage == len(parts) - 1
        for weight in _outside(model, stage == 0, last):
            total += _weight_bytes(weight, None, ranks, vocab, None, width, 1, 0)
        if last:
            shared = ("embed_tokens", "shared_head.head")  # the draft block uses the model's own
            for layer in drafts:
                total += sum(
                    _weight_bytes(weight, layer, ranks, vocab, scheme, width, 1, 0)
                    for weight in layer.weights
                    if weight.name not in shared
                )
        out.append(total)
    return out


def _skip(scheme: Scheme | None, weight: Weight, indices: Sequence[int]) -> int:
    if scheme is None or not weight.linear or not scheme.skips:
        return 0
    return _skipped(scheme.skips, weight.name, tuple(indices))


def _outside(model: Model, first: bool, last: bool) -> list[Weight]:
    """Give the weights outside the blocks that a stage keeps: embeddings on the first, norm and head on the last."""
    if first and last:
        return list(model.weights)
    out = []
    for weight in model.weights:
        at_end = weight.name in ("norm", "lm_head", "lm_head.bias")
        embedding = weight.shard is Shard.VOCAB and not at_end
        if (first and not at_end) or (last and (at_end or (embedding and model.tied_embeddings))):
            out.append(weight)
    return out
