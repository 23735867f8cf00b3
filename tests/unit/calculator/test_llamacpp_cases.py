"""
llama.cpp against real runs: tests/fixtures/calculator/memory-cases.jsonl, what the engine's log printed.

Each case's model is written as a GGUF file with the keys that a converter writes, read back through the header walk,
and planned with the settings of the run. Required: cells, KV cache and state within 1 % or the log's rounding; compute
buffers inside the stated interval, which is never wider than a factor of two. What misses is in `KNOWN_MISSES` with
the reason; a miss that passes fails the test as well.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from calculator.gguf_header import read_header
from calculator.gguf_model import model_from_header
from calculator.llamacpp import plan_llamacpp
from calculator.llamacpp_cache import context_cells, layer_kv_bytes, widest_v
from calculator.llamacpp_settings import LlamaCppSettings, parse_build
from calculator.model import Device, Interval, MemoryPlan, Model, UnknownArchitectureError
from tests.support.gguf_cases import write_case

MIB = 1 << 20
FILE = Path(__file__).parents[2] / "fixtures" / "calculator" / "memory-cases.jsonl"
CASES = {row["id"]: row for row in map(json.loads, FILE.read_text().splitlines()) if row["engine"] == "llama.cpp"}

# Build where the log does not name one: by its date, and by what its buffers show (in brackets).
BUILDS = {
    "2023-12": 1650, "2024-01": 1900, "2024-03": 2400, "2024-05": 2900, "2024-06": 3150, "2025-03/04": 5000,
    "2025-04/05": 5200, "ollama (2025)": 5900, "2025 ROCm": 5900, "2025-26 CUDA": 6700, "2025-26 CPU": 6900,
    "ollama 2025-26": 6900, "llama-cpp-python 0.3.35": 11000, "2026-05 master + PRs": 9500, "2026-05": 9340,
}  # fmt: skip
BUILD_OF = {
    "llama-25": 6200,  # "2025" [V indices in the host's buffer]
    "llama-30": 10000,  # "2026" [masks in half precision]
    "llama-48": 5900,  # "2026" [no room for embeddings, no V indices]
}
LATE, MID = 10000, 9340  # "2026" with logits for the slots only, and before that

# What the case itself does not hold.
SETTINGS: dict[str, dict[str, Any]] = {
    "llama-72a": {"cpu_moe": True},  # its table shows 30.9 GB on the host: --fit moved experts there
    "llama-72b": {"cpu_moe": True},
}
FACTS = {"llama-30": {"n_ff": 21504}}  # google/gemma-4-31B, config.json

KNOWN_MISSES = {
    "llama-08 host_compute": "Hexagon NPU: most nodes run on the CPU, so its buffer is the host's",
    "llama-08 compute each": "Hexagon NPU: few nodes run on the device",
    "llama-57 facts": "architecture qwen4exp (n-gram embeddings, pooled indexer) is not known to the calculator",
    "llama-60 output": "two rows printed, n_seq_max of the run is not in the log",
    "llama-61 output": "two rows printed, n_seq_max of the run is not in the log",
    "llama-70 compute CUDA0": "the staged expert tensor's type is not in the log",
    "llama-88 facts": "architecture deepseek4 (compressor states) is not known to the calculator",
}


def build_of(case: dict[str, Any]) -> int:
    version = case["engine_version"]
    if case["id"] in BUILD_OF:
        return BUILD_OF[case["id"]]
    if version.startswith("b") and (stated := parse_build(version.split()[0])):
        return stated
    dated = next((build for name, build in BUILDS.items() if version.startswith(name)), None)
    return dated or (LATE if case["settings"].get("n_outputs_max") == "n_seq" else MID)


def settings_of(case: dict[str, Any]) -> LlamaCppSettings:
    s = case["settings"]
    slots = s.get("n_seq_max", 1)
    on_host = s.get("cpu_moe") or s.get("n_cpu_moe") or "experts=CPU" in str(s.get("override_tensor"))
    settings = LlamaCppSettings(
        context=s.get("n_ctx"),
        parallel=slots,
        kv_unified=s.get("kv_unified", slots > 1),
        cache_type_k=s.get("type_k", "f16"),
        cache_type_v=s.get("type_v", "f16"),
        flash_attention={True: "on", False: "off", "auto->on": "on"}[s.get("flash_attn", True)],
        swa_full=s.get("swa_full", False),
        ubatch=s.get("n_ubatch", 512),
        batch=s.get("n_batch", max(2048, s.get("n_ubatch", 512))),
        gpu_layers=s["ngl"] if s.get("ngl", 99) < 99 else None,
        split_mode=s.get("split_mode", "layer"),
        embeddings=s.get("embeddings", False),
        rollback_rows=s.get("n_rs_seq", 0),
        all_outputs=s.get("n_outputs_max") != "n_seq" and case["id"] != "llama-30",
        cpu_moe=bool(on_host),
        build=build_of(case),
    )
    return replace(settings, **SETTINGS.get(case["id"], {}))


def devices_of(case: dict[str, Any]) -> list[Device]:
    """Devices without a limit: where layers lie is checked by the cases that name a share of the layers."""
    s = case["settings"]
    if str(s.get("backend", "")).startswith("CPU"):
        return []
    number = s.get("devices", 1)
    kind = "RPC" if "RPC" in str(number) else "CUDA"
    return [Device(f"{kind}{index}", 80 << 30) for index in range(number if isinstance(number, int) else 2)]


@dataclass(frozen=True)
class Check:
    name: str
    got: Interval
    expected: float  # MiB
    exact: bool

    @property
    def passes(self) -> bool:
        if self.exact:
            return abs(self.got.low / MIB - self.expected) <= max(0.01 * self.expected, 0.011)
        # Printed to two places, some tables to whole MiB.
        rounding = 0.01 if self.expected != int(self.expected) else 0.5
        return self.got.low / MIB - rounding <= self.expected <= self.got.high / MIB + rounding


def memory_checks(case: dict[str, Any], model: Model, settings: LlamaCppSettings, plan: MemoryPlan) -> list[Check]:
    seen, cells = case["observed"], context_cells(model, settings)
    parts = (*plan.devices, plan.host)
    widest = widest_v(model.layers)
    sizes = [(bool(layer.window), layer_kv_bytes(layer, settings, cells, widest)) for layer in model.layers]
    total = sum(part.kv_bytes for part in parts)
    assert total == sum(size for _, size in sizes) or settings.split_mode == "tensor"
    figures = {
        "kv_total_mib": total,
        "kv_swa_mib": sum(size for slides, size in sizes if slides),
        "kv_full_mib": sum(size for slides, size in sizes if not slides),
        "rs_total_mib": sum(part.state_bytes for part in parts),
        "output_buffer_mib": plan.output_bytes,
        "context_mib": total + sum(part.state_bytes for part in parts),
    }
    checks = []
    for key, figure in figures.items():
        if key in seen:
            expected = seen[key] + (seen.get("kv_indexer_mib", 0) if key == "kv_full_mib" else 0)
            name = "output" if key == "output_buffer_mib" else key
            checks.append(Check(f"{case['id']} {name}", Interval.exactly(figure), expected, exact=True))
    if "swa_cells" in seen and cells.window is not None:
        checks.append(Check(f"{case['id']} cells", Interval.exactly(cells.window * MIB), seen["swa_cells"], exact=True))
    return checks


def compute_checks(case: dict[str, Any], plan: MemoryPlan) -> list[Check]:
    seen, checks = case["observed"], []
    if "host_compute_mib" in seen:
        name = f"{case['id']} host_compute"
        checks.append(Check(name, plan.host.compute_bytes, seen["host_compute_mib"], exact=False))
    printed = dict(seen.get("compute_mib", {}))
    if "fit_table_mib" in seen:
        printed["CUDA0"] = seen["fit_table_mib"]["CUDA0"]["compute"]
    for place, expected in printed.items():
        if place == "CPU":
            got = plan.host.compute_bytes
        else:
            number = int(place[-1]) if place[-1].isdigit() and len(plan.devices) > 1 else 0
            number = number - 1 if place.startswith("dev") else number
            got = plan.devices[number].compute_bytes
        checks.append(Check(f"{case['id']} compute {place}", got, expected, exact=False))
    return checks


def checks_of(case: dict[str, Any], folder: Path) -> list[Check]:
    case = case | {"arch": case["arch"] | FACTS.get(case["id"], {})}
    if case["settings"].get("type_k") == "tq3_0":
        return []  # a fork's own type
    model = model_from_header(read_header(write_case(folder / "model.gguf", case)))
    settings = settings_of(case)
    plan = plan_llamacpp(model, settings, devices_of(case), remedies=False)
    return memory_checks(case, model, settings, plan) + compute_checks(case, plan)


@pytest.mark.parametrize("name", CASES)
def test_a_run_is_planned_as_it_was(name: str, tmp_path: Path) -> None:
    expected_misses = {key for key in KNOWN_MISSES if key.startswith(f"{name} ")}
    if expected_misses == {f"{name} facts"}:
        with pytest.raises(UnknownArchitectureError, match="is not known here"):
            checks_of(CASES[name], tmp_path)
        return
    checks = checks_of(CASES[name], tmp_path)
    missed = {check.name for check in checks if not check.passes}
    assert missed == expected_misses, [check for check in checks if not check.passes]
    for check in checks:
        assert check.got.high <= 2 * check.got.low + MIB, check


def test_enough_of_the_runs_pass(tmp_path: Path) -> None:
    """The issue: 9 of 10 compute buffers inside their interval; caches and states of all models that are known."""
    checks = [
        check
        for name, case in CASES.items()
        if f"{name} facts" not in KNOWN_MISSES
        for check in checks_of(case, tmp_path)
    ]
    caches = [check for check in checks if check.exact and not check.name.endswith("output")]
    device = [check for check in checks if " compute " in check.name and not check.name.endswith(" CPU")]
    assert len(caches) > 120
    assert all(check.passes for check in caches)
    assert len(device) > 40
    assert sum(check.passes for check in device) >= 0.9 * len(device)


# Which part of a model lies on which device, where the log tells both.
PLACED = {
    # 26 of 65 layers: the output, 7 of 16 attention and 18 of 48 recurrent blocks
    "llama-01": {"kv": (3584, 4608), "state": (56.11, 93.52)},
    "llama-54": {"kv": (160, 96), "state": (29.31, 20.94)},  # 20 of 33
}


@pytest.mark.parametrize("name", PLACED)
def test_caches_lie_where_their_layers_lie(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = model_from_header(read_header(write_case(tmp_path / "model.gguf", case)))
    plan = plan_llamacpp(model, settings_of(case), devices_of(case), remedies=False)
    for part, kv, state in zip((plan.devices[0], plan.host), PLACED[name]["kv"], PLACED[name]["state"], strict=True):
        assert part.kv_bytes / MIB == kv
        assert part.state_bytes / MIB == pytest.approx(state, abs=0.01)
