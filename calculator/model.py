"""
What the calculator knows of a model and what it answers: facts in, a memory plan out. Pure data.

All sizes are bytes, widths are elements (not bytes), lengths tokens. ``None`` means that a fact is not
known; a planner that needs it raises `MissingFactError` and names it. Nothing is guessed here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class CalculatorError(Exception):
    """The question can't be answered; the message names the field and what to do."""


class MalformedModelError(CalculatorError):
    """A file is truncated, corrupt or contradicts itself."""


class UnknownArchitectureError(CalculatorError):
    """An architecture whose layers this calculator does not know."""


class MissingFactError(CalculatorError):
    """A fact that a rule needs is not known."""


class Attention(StrEnum):
    """How the attention of one layer keeps what it has seen."""

    FULL = "full"
    SLIDING = "sliding"  # keeps the last `window` tokens
    CHUNKED = "chunked"  # keeps the current chunk of `window` tokens (Llama 4)
    MLA = "mla"  # one compressed vector a token, shared by all heads
    NONE = "none"


@dataclass(frozen=True, slots=True)
class RecurrentState:
    """
    Fixed-size state of one recurrent layer (Mamba, gated delta net, short convolution, RWKV).

    `conv_elements` and `ssm_elements` are for one sequence over the whole model (before tensor
    parallelism). `kind` is the field's name: "mamba1", "mamba2", "gdn", "kda", "lfm2", "rwkv".
    """

    kind: str
    conv_elements: int
    ssm_elements: int
    k_heads: int | None = None  # gated delta net: for sharding over tensor-parallel ranks
    k_dim: int | None = None
    v_heads: int | None = None
    v_dim: int | None = None
    kernel: int | None = None
    ssm_dtype: str | None = None  # of the recurrent part in vLLM; None: the type of the activations
    groups: int | None = None  # Mamba 2: groups of B and C, for sharding over tensor-parallel ranks


class Shard(StrEnum):
    """How tensor parallelism divides a weight."""

    COLUMN = "column"  # by its rows (output features)
    ROW = "row"  # by its columns (input features)
    KV = "kv"  # by KV heads; a rank keeps at least one head
    VOCAB = "vocab"  # by rows of the padded vocabulary
    EXPERT = "expert"  # within each expert, or whole experts under expert parallelism
    REPLICATED = "replicated"  # every rank keeps all of it


@dataclass(frozen=True, slots=True)
class Weight:
    """
    One weight by its shape, for what is planned without a tensor table; or the sum of a block's stored tensors.

    `rows` are output features, `columns` input features (1 for a vector), `copies` experts or stacked parts.
    `linear` says that weight quantisation applies to it, unless the quantisation's own list excludes its name.
    """

    name: str
    rows: int
    columns: int
    shard: Shard
    copies: int = 1
    linear: bool = False
    stored_bytes: int | None = None  # of all copies, where safetensors headers tell it
    stored_dtype: str | None = None  # safetensors dtype of `stored_bytes`

    @property
    def elements(self) -> int:
        """Parameters of all copies."""
        return self.rows * self.columns * self.copies


@dataclass(frozen=True, slots=True)
class Layer:
    """One block of the model, as far as memory is concerned."""

    attention: Attention
    n_head: int = 0
    n_head_kv: int = 0  # 0 where there is no attention
    head_dim_k: int = 0
    head_dim_v: int = 0
    window: int | None = None  # SLIDING and CHUNKED
    shares_kv: bool = False  # reads the cache of an earlier layer and owns none (Gemma 3n, Gemma 4 E-models)
    mla_width: int | None = None  # MLA: kv_lora_rank + rope width
    mla_lora_rank: int | None = None  # MLA: kv_lora_rank
    indexer_width: int | None = None  # DeepSeek sparse attention: width of the indexer's key, where the layer has one
    state: RecurrentState | None = None
    n_ff: int = 0  # dense feed-forward width; 0 in a pure expert layer
    experts: int = 0  # routed experts in this layer
    parameters: int | None = None  # weights of the block, where they are known from the shapes
    weights: tuple[Weight, ...] = ()  # the same by matrix, where a configuration gives the shapes


@dataclass(frozen=True, slots=True)
class Tensor:
    """One stored tensor. `type` is a GGML type name ("Q4_K") or a safetensors dtype ("BF16", "F8_E4M3")."""

    name: str
    shape: tuple[int, ...]  # as stored: GGUF ne0, ne1, ...; safetensors outermost first
    type: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Model:
    """The facts of one model."""

    name: str
    architecture: str  # the GGUF name ("qwen3moe") or the Hugging Face one ("Qwen3MoeForCausalLM")
    source: str  # where the facts are from: a file, a catalogue entry with its own source, a running engine
    layers: tuple[Layer, ...]  # without MTP/draft blocks
    n_embd: int
    n_vocab: int
    n_ff: int | None = None  # the widest dense feed-forward
    n_head: int | None = None  # the most heads of any layer
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_exp: int | None = None
    n_shared_experts: int = 0
    context_train: int | None = None
    tied_embeddings: bool | None = None
    n_embd_per_layer: int | None = None  # Gemma 3n / 4 E-models
    mtp_layers: tuple[Layer, ...] = ()  # next-token prediction blocks: weights, and a cache only when drafting
    parameters: int | None = None
    tensors: tuple[Tensor, ...] = ()  # empty when only a configuration is known
    quantization: str | None = None  # "Q4_K_M", "fp8", "awq", "gptq", "nvfp4", "mxfp4", "compressed-tensors" ...
    quantization_config: Mapping[str, object] = field(default_factory=dict)  # Hugging Face, as it stands
    dtype: str | None = None  # "bfloat16" ...: of the unquantised weights
    has_vision: bool = False
    weights: tuple[Weight, ...] = ()  # outside the blocks: embeddings, head, last norm, vision encoder
    rotary_elements: int = 0  # cos/sin table of the rotary embedding: positions x rotary width, over distinct tables


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure that lies between two bounds; equal bounds are an exact figure."""

    low: int
    high: int

    @classmethod
    def exactly(cls, value: int) -> Interval:
        """An exact figure."""
        return cls(value, value)

    @property
    def exact(self) -> bool:
        """Whether both bounds are the same."""
        return self.low == self.high

    def __add__(self, other: Interval | int) -> Interval:
        if isinstance(other, int):
            return Interval(self.low + other, self.high + other)
        return Interval(self.low + other.low, self.high + other.high)


class Fits(StrEnum):
    """Whether a device can hold what is planned for it."""

    YES = "yes"
    NO = "no"
    MAYBE = "maybe"  # it depends on where in the intervals the truth lies


@dataclass(frozen=True, slots=True)
class Device:
    """A place for memory. `capacity_bytes` is what the driver reports as total, not the label."""

    name: str
    capacity_bytes: int
    in_use_bytes: int = 0  # held by others before this engine starts
    unified: bool = False  # shares its memory with the host


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """What one device holds."""

    name: str
    capacity_bytes: int | None  # None: the host, where it is not stated
    weights_bytes: int
    kv_bytes: int
    state_bytes: int
    compute_bytes: Interval
    overhead_bytes: Interval
    fits: Fits | None  # None when the capacity is not stated

    @property
    def total_bytes(self) -> Interval:
        """The sum of the parts."""
        return self.compute_bytes + self.overhead_bytes + (self.weights_bytes + self.kv_bytes + self.state_bytes)


@dataclass(frozen=True, slots=True)
class Note:
    """The rule behind a figure, or a caution. `rule` is its stable name, `source` where the rule was read."""

    rule: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The answer of a planner for one model on one engine."""

    engine: str  # "vllm", "llama.cpp", "sglang"
    engine_version: str
    model: str
    devices: tuple[DevicePlan, ...]
    host: DevicePlan
    output_bytes: int
    kv_capacity_tokens: int | None
    max_concurrency: float | None  # requests of full length that fit at once
    context_cells: int | None  # llama.cpp: cells of the cache
    notes: tuple[Note, ...]
    remedies: tuple[str, ...] = ()  # what would make it fit, in the engine's own flags; empty when it fits
