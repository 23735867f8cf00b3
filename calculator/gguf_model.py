"""
The facts of a model from the header of its GGUF file, as llama.cpp reads them (`load_hparams`, src/llama-model.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from calculator.gguf_header import GgufHeader, Value
from calculator.gguf_rules import RULES, Pattern, Recurrent, Rule
from calculator.model import (
    Attention,
    Layer,
    MalformedModelError,
    Model,
    RecurrentState,
    UnknownArchitectureError,
)

MAX_LAYERS = 512  # LLAMA_MAX_LAYERS, src/llama-hparams.h of b11434
MAX_COUNT = 1 << 31
GLM_DSA_SHARED_INDEXERS_CONTEXT = 1_048_576  # from this training context on (GLM-5.2) three layers share an indexer

# `general.file_type` (llama_ftype, include/llama.h) by the name that files carry
FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4",
}  # fmt: skip


class _Facts:
    """Typed access to the metadata of one architecture."""

    def __init__(self, header: GgufHeader, architecture: str) -> None:
        self._values: Mapping[str, Value] = header.metadata
        self._lengths = header.array_lengths
        self._file = header.path.name
        self.architecture = architecture

    def fail(self, key: str, what: str) -> MalformedModelError:
        return MalformedModelError(f"{self._file}: {self.architecture}.{key} {what}")

    def raw(self, key: str) -> Value | None:
        return self._values.get(f"{self.architecture}.{key}")

    def length(self, full_key: str) -> int | None:
        return self._lengths.get(full_key)

    def _count(self, key: str, value: object) -> int:
        if isinstance(value, bool):
            return int(value)
        if not isinstance(value, int) or not 0 <= value < MAX_COUNT:
            raise self.fail(key, f"is {value!r}; a whole number below 2^31 was expected")
        return value

    def number(self, key: str) -> int | None:
        """One number, or None where the key is absent."""
        value = self.raw(key)
        return None if value is None else self._count(key, value)

    def required(self, key: str, *, least: int = 1) -> int:
        """One number that must be there."""
        value = self.number(key)
        if value is None:
            raise self.fail(key, "is missing")
        if value < least:
            raise self.fail(key, f"is {value}; at least {least} was expected")
        return value

    def per_layer(self, key: str, layers: int) -> tuple[int, ...] | None:
        """A number for every layer, from an array or from one number for all."""
        value = self.raw(key)
        if value is None:
            if self.length(f"{self.architecture}.{key}") is not None:
                raise self.fail(key, "is an array that is too long for the layers of a model")
            return None
        if not isinstance(value, tuple):
            return (self._count(key, value),) * layers
        if len(value) < layers:
            raise self.fail(key, f"has {len(value)} elements for {layers} layers")
        return tuple(self._count(key, element) for element in value[:layers])


def model_from_header(header: GgufHeader) -> Model:
    """
    The facts of the model that a GGUF header describes.

    Raises `UnknownArchitectureError` for an architecture without a rule here, `MalformedModelError` for metadata that
    are missing or contradict themselves.
    """
    architecture = header.metadata.get("general.architecture")
    if not isinstance(architecture, str):
        raise MalformedModelError(f"{header.path.name}: general.architecture is missing")
    rule = RULES.get(architecture)
    if rule is None:
        raise UnknownArchitectureError(
            f"{header.path.name}: the architecture {architecture!r} (general.architecture) is not known here; "
            f"its memory can't be planned"
        )
    facts = _Facts(header, architecture)
    total = facts.required("block_count")
    if total > MAX_LAYERS:
        raise facts.fail("block_count", f"is {total}; llama.cpp allows {MAX_LAYERS}")
    drafting = facts.number("nextn_predict_layers") or 0
    if drafting >= total:
        raise facts.fail("nextn_predict_layers", f"is {drafting} of {total} blocks; none is left for the model")
    layers = _layers(facts, rule, total, drafting)
    names = {tensor.name: tensor for tensor in header.tensors}
    embedding = names.get("token_embd.weight")
    vocabulary = (
        facts.number("vocab_size")
        or facts.length("tokenizer.ggml.tokens")
        or (embedding.shape[-1] if embedding and len(embedding.shape) > 1 else None)
    )
    if not vocabulary:
        raise facts.fail("vocab_size", "is missing, and so are tokenizer.ggml.tokens and token_embd.weight")
    if embedding is not None and len(embedding.shape) > 1:
        vocabulary = embedding.shape[1]
    experts_used = facts.per_layer("expert_used_count", total) or (0,)
    widths = facts.per_layer("expert_feed_forward_length", total)
    file_type = header.metadata.get("general.file_type")
    name = header.metadata.get("general.name")
    return Model(
        name=name if isinstance(name, str) and name else header.path.stem,
        architecture=architecture,
        source=header.path.name,
        layers=layers[: total - drafting],
        n_embd=facts.required("embedding_length"),
        n_vocab=vocabulary,
        n_ff=max((layer.n_ff for layer in layers), default=0) or None,
        n_head=max((layer.n_head for layer in layers), default=0) or None,
        n_expert=facts.number("expert_count") or 0,
        n_expert_used=max(experts_used),
        n_ff_exp=max(widths) if widths else None,
        n_shared_experts=facts.number("expert_shared_count") or 0,
        context_train=facts.number("context_length"),
        tied_embeddings=("output.weight" not in names) if names else None,
        n_embd_per_layer=facts.number("embedding_length_per_layer_input") or None,
        mtp_layers=layers[total - drafting :],
        parameters=sum(_elements(tensor.shape) for tensor in header.tensors) or None,
        tensors=header.tensors,
        quantization=FILE_TYPES.get(file_type) if isinstance(file_type, int) else None,
    )


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for extent in shape:
        count *= extent
    return count


def _windows(facts: _Facts, rule: Rule, total: int, drafting: int) -> tuple[int | None, tuple[bool, ...]]:
    """The window, and which layers slide (`load_swa_pattern`; MTP blocks never do unless an array says so)."""
    key = "attention.sliding_window"
    none = (None, (False,) * total)
    window = facts.number(key)
    optional = rule.pattern in (Pattern.OPTIONAL, Pattern.ATTENTION)
    if (
        rule.pattern is Pattern.NEVER
        or (optional and not window)
        or (rule.chunked and window == 0)
        or (facts.architecture == "exaone4" and total - drafting != 64)
    ):
        return none
    window = rule.fixed_window or window or rule.window
    if not window:
        raise facts.fail(key, "is missing")
    if rule.pattern is Pattern.ATTENTION:
        return window, (True,) * total
    key = "attention.sliding_window_pattern"
    stated = facts.raw(key)
    if rule.pattern is Pattern.ARRAY or isinstance(stated, tuple):
        if not isinstance(stated, tuple):
            raise facts.fail(key, "is missing")
        sliding = facts.per_layer(key, min(total, len(stated))) or ()
        if len(sliding) < total - drafting:
            raise facts.fail(key, f"has {len(sliding)} elements for {total} layers")
        return window, tuple(bool(slides) for slides in sliding) + (False,) * (total - len(sliding))
    period = facts.number(key) or rule.period
    full = 0 if rule.full_first else period - 1
    return window, tuple(index < total - drafting and index % period != full for index in range(total))


def _recurrent(
    facts: _Facts, rule: Rule, total: int, drafting: int, kv: tuple[int, ...], ff: tuple[int, ...]
) -> list[bool]:
    """Which layers keep a recurrent state; MTP blocks never do."""
    main = range(total - drafting)
    match rule.recurrent:
        case Recurrent.ALL | Recurrent.BOTH:
            found = [True for _ in main]
        case Recurrent.NO_KV_HEADS:
            found = [kv[index] == 0 for index in main]
        case Recurrent.NO_KV_HEADS_NOR_FF:
            found = [kv[index] == 0 and ff[index] == 0 for index in main]
        case Recurrent.INTERVAL:
            stated = facts.per_layer("attention.recurrent_layers", total - drafting)
            interval = facts.number("full_attention_interval") or rule.interval
            found = [bool(stated[index]) if stated else (index + 1) % interval != 0 for index in main]
        case Recurrent.NONE:
            found = [False for _ in main]
    return found + [False] * drafting


def _state(facts: _Facts, rule: Rule, heads: int) -> RecurrentState:
    """Width of one recurrent layer's state (`n_embd_r` and `n_embd_s`, src/llama-hparams.cpp)."""
    embedding = facts.required("embedding_length")
    match rule.state:
        case "rwkv":
            size = facts.required("wkv.head_size")
            shifts = facts.number("token_shift_count")
            return RecurrentState("rwkv", (2 if shifts is None else shifts) * embedding, size * embedding)
        case "lfm2":
            return RecurrentState("lfm2", embedding * (facts.required("shortconv.l_cache") - 1), 0)
        case "kda":
            size = facts.required("kda.head_dim")
            kernel = facts.required("ssm.conv_kernel")
            return RecurrentState("kda", 3 * (kernel - 1) * heads * size, size * size * heads)
        case "lightning":
            size = facts.number("attention.key_length") or embedding // max(heads, 1)
            return RecurrentState("lightning", 0, size * size * heads)
    kernel, inner = facts.required("ssm.conv_kernel"), facts.required("ssm.inner_size")
    width, groups = facts.required("ssm.state_size"), facts.number("ssm.group_count") or 0
    gated = rule.state == "gdn"
    value_heads = facts.number("ssm.time_step_rank") if gated else None
    return RecurrentState(
        rule.state,
        (kernel - 1) * (inner + 2 * groups * width),
        width * inner,
        k_heads=groups if gated else None,
        k_dim=width if gated else None,
        v_heads=value_heads,
        v_dim=inner // value_heads if value_heads else None,
        kernel=kernel,
        groups=groups,
    )


def _indexers(facts: _Facts, rule: Rule, count: int) -> tuple[bool, ...]:
    """Which layers own an indexer of DeepSeek's sparse attention (src/models/glm-dsa.cpp, deepseek32.cpp)."""
    if not rule.indexer:
        return (False,) * count
    if facts.architecture == "glm-dsa":
        stated = facts.per_layer("attention.indexer.types", count)
        if stated is not None:
            return tuple(kind == 1 for kind in stated)
        if (facts.number("context_length") or 0) >= GLM_DSA_SHARED_INDEXERS_CONTEXT:
            return tuple(index < 2 or (index - 2) % 4 == 0 for index in range(count))
    return (True,) * count


def _layers(facts: _Facts, rule: Rule, total: int, drafting: int) -> tuple[Layer, ...]:
    """All blocks, MTP blocks last."""
    embedding = facts.required("embedding_length")
    heads = facts.per_layer("attention.head_count", total) or (0,) * total
    kv_heads = facts.per_layer("attention.head_count_kv", total) or heads
    ff = facts.per_layer("feed_forward_length", total) or (0,) * total
    experts = facts.number("expert_count") or 0
    dense = facts.number("leading_dense_block_count") or 0
    first = next((count for count in heads if count), 0)
    default = embedding // first if first else 0
    key, value = facts.number("attention.key_length") or default, facts.number("attention.value_length") or default
    key_window = facts.number("attention.key_length_swa") or key
    value_window = facts.number("attention.value_length_swa") or value
    compressed = rule.mla and facts.number("attention.key_length_mla") is not None
    rank = facts.required("attention.kv_lora_rank") if compressed else None
    head_k, head_v = facts.number("attention.key_length_mla") or 0, facts.number("attention.value_length_mla") or 0
    window, sliding = _windows(facts, rule, total, drafting)
    recurrent = _recurrent(facts, rule, total, drafting, kv_heads, ff)
    indexers = _indexers(facts, rule, total - drafting)
    index_width = facts.required("attention.indexer.key_length") if rule.indexer else None
    owners = rule.layers_with_cache
    if facts.architecture == "gemma4":
        owners = total - (facts.number("attention.shared_kv_layers") or 0)
    state = _state(facts, rule, max(heads)) if any(recurrent) else None
    layers = []
    for index, indexed in zip_longest(range(total), indexers, fillvalue=False):
        slides = sliding[index]
        only_feed_forward = (
            rule.recurrent is Recurrent.NO_KV_HEADS_NOR_FF and ff[index] > 0 and index < total - drafting
        )
        stateful_only = recurrent[index] and rule.recurrent is not Recurrent.BOTH
        if kv_heads[index] == 0 or stateful_only or only_feed_forward:
            kind = Attention.NONE
        elif compressed:
            kind = Attention.MLA
        elif slides:
            kind = Attention.CHUNKED if rule.chunked else Attention.SLIDING
        else:
            kind = Attention.FULL
        width_k, width_v = (key_window, value_window) if slides else (key, value)
        if kind is not Attention.NONE and not (width_k and width_v):
            raise facts.fail(
                "attention.key_length", "is missing and can't be told from embedding_length and head_count"
            )
        attends = kind is not Attention.NONE
        if kind is Attention.MLA:
            width_k, width_v = head_k, head_v
        layers.append(
            Layer(
                attention=kind,
                n_head=heads[index],
                n_head_kv=kv_heads[index] if attends else 0,
                head_dim_k=width_k if attends else 0,
                head_dim_v=width_v if attends else 0,
                window=window if attends and slides else None,
                shares_kv=owners is not None and index >= owners,
                mla_width=key * kv_heads[index] if kind is Attention.MLA else None,
                mla_lora_rank=rank if kind is Attention.MLA else None,
                indexer_width=index_width if indexed else None,
                state=state if recurrent[index] else None,
                n_ff=ff[index],
                experts=experts if experts and index >= dense else 0,
            )
        )
    return tuple(layers)
