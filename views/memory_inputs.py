"""
The controls of the Memory page and what they mean: devices, lengths, and the engines' own flags.

Every control is in the link. What has no control is typed as the engine's own flags, which the calculator reads
with the same parser as the command line.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from calculator.devices import GIB, PRESETS, preset
from calculator.flags import refuse_unknown
from calculator.model import CalculatorError, Device
from views import data, formatting

THIS_HOST = "this host"
DEFAULT_DEVICE = "rtx-4090"
CONTEXTS = [
    512, 1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 40960, 49152, 65536, 98304, 131072, 196608,
    262144, 524288, 1048576,
]  # fmt: skip
USERS = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
LENGTHS = ("exponential", "uniform", "all alike")
VLLM_WEIGHTS = ("as published", "fp8", "awq", "gptq", "nvfp4", "mxfp4")
VLLM_KV = ("auto", "fp8")
LLAMACPP_QUANTS = (
    "Q4_K_M", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_S", "Q4_0", "IQ4_XS", "Q3_K_L", "Q3_K_M", "Q3_K_S", "Q2_K",
    "MXFP4_MOE", "BF16", "F16",
)  # fmt: skip
LLAMACPP_KV = ("f16", "q8_0", "q4_0", "bf16")
MOST_FLAGS = 2000


@dataclass(frozen=True, slots=True)
class Machine:
    """What a plan is made for. `devices` is empty for a host without a GPU."""

    devices: tuple[Device, ...]
    host: Device | None
    source: str  # where the capacities are from


@dataclass(frozen=True, slots=True)
class Load:
    """The users: tokens that one of them may need, how many there are at once, and how long requests really are."""

    context_tokens: int
    users: int
    mean_tokens: int
    lengths: str


def read_link() -> list[str]:
    """
    Take up device keys that a link carries in place of titles, and name the values of a link that mean nothing.

    A widget drops such a value silently; this is asked before the widgets are drawn.
    """
    titles = {kind.key: kind.title for kind in PRESETS}
    given = st.query_params.get("device")
    if given in titles and "device" not in st.session_state:
        st.session_state["device"] = given
    valid: dict[str, set[str]] = {
        "device": {THIS_HOST, *titles, *titles.values()},
        "context": {context_words(length) for length in CONTEXTS},
        "users": {str(count) for count in USERS},
        "lengths": set(LENGTHS),
        "vllm_weights": set(VLLM_WEIGHTS),
        "vllm_kv": set(VLLM_KV),
        "llamacpp_quant": set(LLAMACPP_QUANTS),
        "llamacpp_kv": set(LLAMACPP_KV),
    }
    return [
        f"{name}={st.query_params[name]}"
        for name, values in valid.items()
        if name in st.query_params and st.query_params[name] not in values
    ]


def draw_machine(records: Sequence[data.Records]) -> Machine:
    """
    Device, count and host memory in one row. `records`: devices and host samples of the store, newest last.

    Raises `CalculatorError` when this host is chosen and nothing is known of it.
    """
    keys = [THIS_HOST, *(kind.key for kind in PRESETS)]
    titles = {kind.key: kind.title for kind in PRESETS}
    key = st.selectbox(
        "Device",
        keys,
        index=0 if "device" in st.session_state else keys.index(DEFAULT_DEVICE),
        key="device",
        bind="query-params",
        format_func=lambda name: titles.get(name, name),
        width=190,
    )
    own = key == THIS_HOST
    count = st.number_input("How many", 1, 16, 1, key="count", bind="query-params", disabled=own, width=110)
    gib = st.number_input(
        "Host memory (GiB)", 1, 16384, 64, key="host_gib", bind="query-params", disabled=own, width=150
    )
    if own:
        return this_host(*records)
    chosen = preset(str(key))
    host = Device("host", int(gib) * GIB)
    if chosen.capacity_bytes is None:
        return Machine((), host, chosen.source)
    return Machine(tuple(chosen.device(number) for number in range(int(count))), host, chosen.source)


def context_words(tokens: int) -> str:
    """A context length as people name it: 32768 is 32k. Binary, unlike counts of tokens."""
    return f"{tokens // 1024}k" if tokens >= 1024 and tokens % 1024 == 0 else formatting.count(tokens)


def this_host(devices: data.Records, host_samples: data.Records) -> Machine:
    """The GPUs that the collector sees, less what others hold on them now, and this host's memory."""
    known = [sample for sample in host_samples if sample.get("memory_total_bytes")]
    if not known:
        raise CalculatorError("nothing is known of this host yet: the collector has not sampled its memory")
    gpus = tuple(_gpu(row) for row in sorted(devices, key=lambda row: int(row["index"])) if row["memory_total_bytes"])
    newest = known[-1]
    host = Device("host", int(newest["memory_total_bytes"]), int(newest.get("memory_used_bytes") or 0))
    held = sum(gpu.in_use_bytes for gpu in gpus)
    text = f"{len(gpus)} GPU(s) and {formatting.size(host.capacity_bytes)} of memory, sampled on this host"
    in_use = f"; in use now: {formatting.size(host.in_use_bytes)} of the host"
    return Machine(gpus, host, text + in_use + (f", {formatting.size(held)} on GPUs" if gpus else ""))


def _gpu(row: dict[str, Any]) -> Device:
    """CUDA's total is NVML's less the driver's reserve; what is used beyond the reserve is held by somebody."""
    reserved = int(row.get("memory_reserved_bytes") or 0)
    used = max(0, int(row.get("memory_used_bytes") or 0) - reserved)
    return Device(f"GPU {row['index']} {row['name']}", int(row["memory_total_bytes"]) - reserved, used)


def draw_load() -> Load:
    """Context, users and the lengths of requests."""
    context = st.select_slider(
        "Context: tokens a user may need",
        CONTEXTS,
        value=8192,
        format_func=context_words,
        key="context",
        bind="query-params",
        width=320,
    )
    users = st.select_slider("Users at once", USERS, value=8, key="users", bind="query-params", width=260)
    mean = st.number_input(
        "Mean request (tokens)",
        1,
        1_048_576,
        1200,
        key="mean_tokens",
        bind="query-params",
        width=170,
        help="Prompt and output together, on average. Decides how much reserved cache stays empty.",
    )
    lengths = st.segmented_control(
        "Lengths", LENGTHS, default=LENGTHS[0], required=True, key="lengths", bind="query-params"
    )
    return Load(int(context), int(users), int(mean), str(lengths))


def draw_vllm(device_count: int) -> tuple[list[str], str]:
    """Controls of vLLM. Returns flags without lengths, and the chosen form of the weights."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        weights = st.selectbox("Weights", VLLM_WEIGHTS, key="vllm_weights", bind="query-params", width=125)
        kv = st.selectbox("KV cache", VLLM_KV, key="vllm_kv", bind="query-params", width=90)
        share = st.number_input(
            "Memory share", 0.1, 1.0, 0.92, 0.01, key="vllm_share", bind="query-params", width=118,
            help="--gpu-memory-utilization: 0.92 by default since vLLM 0.20.2, 0.9 before.",
        )  # fmt: skip
        ranks = st.number_input(
            "TP", 1, 16, min(device_count, 16) or 1, key="vllm_tp", bind="query-params", width=75,
            help="--tensor-parallel-size: over how many devices each layer is cut.",
        )  # fmt: skip
        more = st.text_input(
            "Further flags", "", MOST_FLAGS, key="vllm_flags", bind="query-params", width="stretch",
            placeholder="--enforce-eager --max-num-seqs 64",
        )  # fmt: skip
    flags = ["--kv-cache-dtype", str(kv), "--tensor-parallel-size", str(ranks)]
    if share != 0.92:
        flags += ["--gpu-memory-utilization", f"{share:g}"]
    return [*flags, *split_flags("vllm", more or "")], str(weights)


def draw_llamacpp(*, has_file: bool, has_devices: bool) -> tuple[list[str], str | None]:
    """Controls of llama.cpp. Returns flags without lengths, and the quantisation where no file decides it."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        quant = st.selectbox(
            "Weights", LLAMACPP_QUANTS, key="llamacpp_quant", bind="query-params", width=110, disabled=has_file,
            help="A GGUF file has its own; for a model of the catalogue the mix of this name is estimated.",
        )  # fmt: skip
        kv = st.selectbox("KV cache", LLAMACPP_KV, key="llamacpp_kv", bind="query-params", width=90)
        layers = st.text_input(
            "-ngl", "all" if has_devices else "0", 12, key="llamacpp_ngl", bind="query-params", width=80,
            help="Layers on the GPU: a number, or all. The output counts as one layer.",
        )  # fmt: skip
        more = st.text_input(
            "Further flags", "", MOST_FLAGS, key="llamacpp_flags", bind="query-params", width="stretch",
            placeholder="--n-cpu-moe 12 -ub 1024",
        )  # fmt: skip
    flags = ["-ctk", str(kv), "-ctv", str(kv)]
    if has_devices:
        flags += ["-ngl", (layers or "all").strip()]
    return [*flags, *split_flags("llama.cpp", more or "")], None if has_file else str(quant)


def split_flags(engine: str, text: str) -> list[str]:
    """Flags as typed, split as a shell would. Raises `CalculatorError` for a quote without end or an unknown flag."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CalculatorError(f"the further flags of {engine} can't be read: {error}") from error
    refuse_unknown(engine, words)
    return words
