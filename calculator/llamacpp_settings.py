"""
How a llama.cpp server is run: its flags by their own names, and their defaults by build.

Flags: common/arg.cpp of llama.cpp b11434. Builds at which a default or a rule changed are dated by the release that
first carried the pull request; between the release before and it the older rule is used.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

from calculator.model import CalculatorError

NEWEST_BUILD = 11434  # what was read; also used when no version is known

# First builds of a rule. Sources: reference cases with the printed buffers of builds around them, and the pull request.
BUILD_EXPERTS_STACKED = 2600  # the experts of a block are one tensor and one node (#6387, 2024-04)
BUILD_OP_OFFLOAD = 2450  # large batches are computed on the device with weights of the host (#6083, 2024-03)
BUILD_MLA_CACHE = 5140  # multi-head latent attention keeps its compressed vector (#12801, 2025-04)
BUILD_WINDOW_CACHE = 5427  # sliding layers keep their window only (#13194, 2025-05)
BUILD_WINDOW_UBATCH = 5542  # a window cache has room for one micro-batch instead of a batch (#13746, 2025-05)
BUILD_GATE_FUSED = 5790  # gate and up are joined in one node instead of in place (#14158, 2025-06)
BUILD_CELL_INDICES = 6100  # K and V are written by index (#14285, 2025-08)
BUILD_FLASH_AUTO = 6325  # -fa becomes on/off/auto (#15434, 2025-08)
BUILD_SLOTS_AUTO = 6929  # no -np: 4 slots on one shared cache (#16736, 2025-11)
BUILD_WINDOW_PAD_256 = 7063  # the window cache is padded to 256 in any case (#17037, 2025-11)
BUILD_MLA_K_ONLY = 7826  # V of a compressed cache is a view of K (#19057, 2026-01)
BUILD_EMBEDDING_INPUT = 7650  # the graph has room for tokens and for embeddings (#18550, 2026-01)
BUILD_CACHE_ROTATION = 8607  # Q, K and V are rotated for a quantised cache (#21038, 2026-04)
BUILD_MASK_F16 = 9350  # masks are built as f16 under flash attention (#23764, 2026-05)
BUILD_SERVER_OUTPUTS = 9400  # the server reserves logits for its slots only (#23861, 2026-05)
BUILD_MIXED_INPUT = 11200  # and for both mixed; not yet in the buffers of b10809, in the source of b11434

CACHE_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
SPLIT_MODES = ("none", "layer", "row", "tensor")
ALL_LAYERS = 1 << 20


class SettingError(CalculatorError):
    """A flag or its value that llama.cpp would not take; the message names it."""


@dataclass(frozen=True, slots=True)
class LlamaCppSettings:
    """
    Settings that decide memory, by the flags of llama-server. Lengths are tokens.

    `None` stands for the engine's own choice. `--fit` is not imitated: the plan is of what the flags say.
    """

    context: int | None = None  # -c; None or 0: the length the model was trained on
    parallel: int | None = None  # -np; None: automatic
    kv_unified: bool | None = None  # -kvu; None: only with automatic slots
    cache_type_k: str = "f16"  # -ctk
    cache_type_v: str = "f16"  # -ctv
    flash_attention: str = "auto"  # -fa on|off|auto; auto is taken as on where the build has it
    swa_full: bool = False  # --swa-full
    batch: int = 2048  # -b
    ubatch: int = 512  # -ub
    gpu_layers: int | None = None  # -ngl; None: all, as far as there are devices
    split_mode: str = "layer"  # -sm
    tensor_split: tuple[float, ...] = ()  # -ts
    main_gpu: int = 0  # -mg
    override_tensor: tuple[tuple[str, str], ...] = ()  # -ot: pattern, buffer type ("CPU", "CUDA0")
    n_cpu_moe: int = 0  # --n-cpu-moe
    cpu_moe: bool = False  # --cpu-moe
    n_cpu_ffn: int = 0  # --n-cpu-ffn
    mmap: bool = True  # --no-mmap, -lm none
    repack: bool = True  # -nr
    kv_offload: bool = True  # -nkvo
    op_offload: bool = True  # --no-op-offload
    embeddings: bool = False  # --embedding: the output buffer keeps a row of the last hidden state too
    rollback_rows: int = 0  # states a recurrent model keeps for taking back drafted tokens (--draft-max with MTP)
    cache_ram_mib: int = 8192  # --cache-ram: prompt cache on the host, filled in use; 0: none, -1: no limit
    all_outputs: bool = False  # logits for every token of a batch: llama-bench, llama-cpp-python, llama-fit-params
    mmproj_bytes: int = 0  # size of the --mmproj file
    draft_gpu_layers: int | None = None  # -ngld
    draft_cache_type_k: str = "f16"  # -ctkd
    draft_cache_type_v: str = "f16"  # -ctvd
    mtp: bool = False  # drafting by the model's own MTP blocks: a context of their own
    build: int | None = None  # b11434 -> 11434; None: the newest that is known
    model_path: str | None = None  # -m
    draft_path: str | None = None  # -md
    mmproj_path: str | None = None  # --mmproj
    ignored: tuple[str, ...] = field(default=(), compare=False)  # arguments that have no part in memory

    def __post_init__(self) -> None:
        for flag, kind in (("-ctk", self.cache_type_k), ("-ctv", self.cache_type_v)):
            if kind not in CACHE_TYPES:
                raise SettingError(f"{flag} {kind}: the cache can be kept as {', '.join(CACHE_TYPES)}")
        if self.split_mode not in SPLIT_MODES:
            raise SettingError(f"-sm {self.split_mode}: choose one of {', '.join(SPLIT_MODES)}")
        if self.flash_attention not in ("on", "off", "auto"):
            raise SettingError(f"-fa {self.flash_attention}: choose on, off or auto")
        for flag, value, least in (
            ("-c", self.context, 0), ("-np", self.parallel, 1), ("-b", self.batch, 1), ("-ub", self.ubatch, 1),
            ("-ngl", self.gpu_layers, 0), ("--n-cpu-moe", self.n_cpu_moe, 0), ("-mg", self.main_gpu, 0),
            ("--n-cpu-ffn", self.n_cpu_ffn, 0),
        ):  # fmt: skip
            if value is not None and not least <= value < 1 << 31:
                raise SettingError(f"{flag} {value}: at least {least} and below 2^31 was expected")
        if any(share < 0 for share in self.tensor_split) or (self.tensor_split and not sum(self.tensor_split)):
            raise SettingError("-ts: the proportions must not be negative, nor all 0")
        if self.cache_type_v not in ("f32", "f16", "bf16") and self.flash_attention == "off":
            raise SettingError(f"-ctv {self.cache_type_v} needs flash attention: llama.cpp refuses it with -fa off")

    @property
    def era(self) -> int:
        """The build whose rules apply."""
        return self.build if self.build is not None else NEWEST_BUILD

    @property
    def uses_flash_attention(self) -> bool:
        """`auto` is on where the backend can (since b6325; before, the flag was off by default)."""
        return self.flash_attention == "on" or (self.flash_attention == "auto" and self.era >= BUILD_FLASH_AUTO)

    @property
    def automatic_slots(self) -> bool:
        """Whether the server itself chooses 4 slots on one cache."""
        return self.parallel is None and self.era >= BUILD_SLOTS_AUTO

    @property
    def slots(self) -> int:
        """Sequences at once (n_seq_max)."""
        return self.parallel or (4 if self.automatic_slots else 1)

    @property
    def unified(self) -> bool:
        """Whether all slots share one cache; always before b6929, when the server had no other way."""
        if self.kv_unified is not None:
            return self.kv_unified
        return self.automatic_slots


def parse_build(version: str | None) -> int | None:
    """The number in `b11434`, `0.6.0-dev (b11434)` or `version: 11434 (...)`; None where there is none."""
    found = re.search(r"\bb(\d{3,6})\b|\bversion: (\d{3,6})\b|^(\d{4,6})$", version or "")
    return int(next(group for group in found.groups() if group)) if found else None


# flag -> (field, how its value is read); "+" and "-" are switches without a value
_FLAGS: dict[str, tuple[str, str]] = {
    name: (target, how)
    for names, target, how in (
        ("-c --ctx-size", "context", "int"), ("-np --parallel", "parallel", "slots"),
        ("-b --batch-size", "batch", "int"),
        ("-ub --ubatch-size", "ubatch", "int"), ("-ctk --cache-type-k", "cache_type_k", "type"),
        ("-ctv --cache-type-v", "cache_type_v", "type"), ("-kvu --kv-unified", "kv_unified", "+"),
        ("-no-kvu --no-kv-unified", "kv_unified", "-"), ("-fa --flash-attn", "flash_attention", "flash"),
        ("--swa-full", "swa_full", "+"), ("-ngl --gpu-layers --n-gpu-layers", "gpu_layers", "layers"),
        ("-sm --split-mode", "split_mode", "str"), ("-ts --tensor-split", "tensor_split", "shares"),
        ("-mg --main-gpu", "main_gpu", "int"), ("-ot --override-tensor", "override_tensor", "overrides"),
        ("-ncmoe --n-cpu-moe", "n_cpu_moe", "int"), ("-cmoe --cpu-moe", "cpu_moe", "+"),
        ("-ncffn --n-cpu-ffn", "n_cpu_ffn", "int"), ("--mmap", "mmap", "+"), ("--no-mmap", "mmap", "-"),
        ("-lm --load-mode", "mmap", "load"), ("--repack", "repack", "+"), ("-nr --no-repack", "repack", "-"),
        ("-kvo --kv-offload", "kv_offload", "+"), ("-nkvo --no-kv-offload", "kv_offload", "-"),
        ("--op-offload", "op_offload", "+"), ("--no-op-offload", "op_offload", "-"),
        ("--embedding --embeddings", "embeddings", "+"), ("-cram --cache-ram", "cache_ram_mib", "int"),
        ("-m --model", "model_path", "str"), ("-md --model-draft", "draft_path", "str"),
        ("-mm --mmproj", "mmproj_path", "str"),
        ("-ngld --gpu-layers-draft --n-gpu-layers-draft", "draft_gpu_layers", "layers"),
        ("-ctkd --cache-type-k-draft", "draft_cache_type_k", "type"),
        ("-ctvd --cache-type-v-draft", "draft_cache_type_v", "type"),
        ("--draft --draft-n --draft-max", "rollback_rows", "int"), ("--spec-type", "mtp", "spec"),
    )
    for name in names.split()
}  # fmt: skip


def _read(flag: str, how: str, text: str) -> object:
    """The value of one flag."""
    try:
        match how:
            case "int":
                return int(text)
            case "slots":
                return None if int(text) == -1 else int(text)
            case "type":
                return text.lower()
            case "layers":
                named = {"auto": None, "all": ALL_LAYERS, "-1": None}
                return named[text] if text in named else int(text)
            case "shares":
                return tuple(float(part) for part in re.split(r"[,/]", text))
            case "overrides":
                return tuple(_override(part) for part in text.split(","))
            case "load":
                return text in ("auto", "mmap", "mmap+mlock")
            case "spec":
                return "mtp" in text
            case "flash":
                return {"1": "on", "true": "on", "enabled": "on", "0": "off", "false": "off", "disabled": "off"}.get(
                    text, text
                )
    except ValueError as error:
        raise SettingError(f"{flag} {text}: a number was expected") from error
    return text


def _override(text: str) -> tuple[str, str]:
    pattern, equals, place = text.rpartition("=")
    if not equals:
        raise SettingError(f"-ot {text}: PATTERN=BUFFER was expected, for instance exps=CPU")
    try:
        re.compile(pattern)
    except re.error as error:
        raise SettingError(f"-ot {text}: the pattern is no regular expression: {error}") from error
    return pattern, place


def from_arguments(argv: Sequence[str], version: str | None = None) -> LlamaCppSettings:
    """
    Settings from a llama-server command line (without or with the program's own name).

    `version` is what the engine reports. Arguments that have no part in memory are kept in `ignored`. Raises
    `SettingError` for a value that llama.cpp would not take.
    """
    values: dict[str, object] = {}
    ignored: list[str] = []
    rest = list(argv)
    while rest:
        argument = rest.pop(0)
        flag, equals, attached = argument.partition("=") if argument.startswith("--") else (argument, "", "")
        target, how = _FLAGS.get(flag, ("", ""))
        if not target:
            ignored.append(argument)
        elif how in ("+", "-"):
            values[target] = how == "+"
        elif how == "flash" and not equals and (not rest or rest[0].startswith("-")):
            values[target] = "on"  # before b6325 a switch without a value
        else:
            if not equals and not rest:
                raise SettingError(f"{flag}: its value is missing")
            value = _read(flag, how, attached if equals else rest.pop(0))
            if how == "overrides":
                value = (*values.get(target, ()), *value)  # type: ignore[misc]
            values[target] = value
    if not values.get("mtp"):
        values.pop("rollback_rows", None)
    return LlamaCppSettings(**values, build=parse_build(version), ignored=tuple(ignored))  # type: ignore[arg-type]


def with_flags(settings: LlamaCppSettings, **changes: object) -> LlamaCppSettings:
    """A copy with some settings changed."""
    return replace(settings, **changes)  # type: ignore[arg-type]


_WRITTEN = {
    "context": "-c", "parallel": "-np", "cache_type_k": "-ctk", "cache_type_v": "-ctv", "flash_attention": "-fa",
    "batch": "-b", "ubatch": "-ub", "gpu_layers": "-ngl", "split_mode": "-sm", "main_gpu": "-mg",
    "n_cpu_moe": "--n-cpu-moe", "n_cpu_ffn": "--n-cpu-ffn", "cache_ram_mib": "--cache-ram", "model_path": "-m",
    "draft_path": "-md", "mmproj_path": "--mmproj", "draft_gpu_layers": "-ngld", "draft_cache_type_k": "-ctkd",
    "draft_cache_type_v": "-ctvd",
}  # fmt: skip
_SWITCHES = {
    "swa_full": ("--swa-full", ""), "cpu_moe": ("--cpu-moe", ""), "embeddings": ("--embedding", ""),
    "mmap": ("", "--no-mmap"), "repack": ("", "--no-repack"), "kv_offload": ("", "--no-kv-offload"),
    "op_offload": ("", "--no-op-offload"), "kv_unified": ("--kv-unified", "--no-kv-unified"),
}  # fmt: skip


def arguments(settings: LlamaCppSettings) -> tuple[str, ...]:
    """The flags of every setting that is not at its default, in llama-server's own short names."""
    out: list[str] = []
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        if value == entry.default:
            continue
        if entry.name in _SWITCHES:
            flag = _SWITCHES[entry.name][0 if value else 1]
            out += [flag] if flag else []
        elif entry.name in _WRITTEN:
            out += [_WRITTEN[entry.name], "all" if value == ALL_LAYERS else str(value)]
        elif entry.name == "tensor_split":
            out += ["-ts", ",".join(f"{share:g}" for share in settings.tensor_split)]
        elif entry.name == "override_tensor":
            out += ["-ot", ",".join(f"{pattern}={place}" for pattern, place in settings.override_tensor)]
    return tuple(out)


def command(settings: LlamaCppSettings, model_path: str) -> str:
    """A `llama-server` line that runs these settings, quoted for a shell."""
    changed = replace(settings, model_path=None)
    return shlex.join(("llama-server", "-m", model_path, *arguments(changed)))
