"""
What a memory plan costs: `python -m benchmarks.plan`.

CPU time of this process, the least of five runs: a plan of vLLM and one of llama.cpp for models of each kind, where
it fits and where it does not (then remedies are planned as well), and a heat map of 20 lengths by 20 numbers of users.
Budgets: a plan under 1 ms, a heat map under 100 ms.
"""

from __future__ import annotations

import sys

from benchmarks.scrape import cpu_seconds
from calculator import catalog
from calculator.heatmap import heat_map
from calculator.llamacpp import plan_llamacpp
from calculator.llamacpp_settings import LlamaCppSettings
from calculator.model import Device, MemoryPlan, Model
from calculator.vllm import heat_map as vllm_map
from calculator.vllm import plan_vllm
from calculator.vllm_settings import VllmSettings

GIB = 1 << 30
PLAN_BUDGET_MS, MAP_BUDGET_MS = 1.0, 100.0
MODELS = ("Llama-3.1-8B-Instruct", "gpt-oss-20b", "gemma-3-27b-it", "Qwen3.6-27B", "Qwen3-235B-A22B", "DeepSeek-V3")
LENGTHS = [1024 * (index + 1) for index in range(20)]
USERS = [4 * (index + 1) for index in range(20)]
HOST = Device("host", 512 * GIB)
DEVICES = [Device(f"gpu{index}", 80 * GIB) for index in range(8)]


def main() -> int:
    """Print the table; returns how many budgets were missed."""
    missed = 0
    print(f"{'model':<24} {'what':<32} {'ms':>8} {'budget':>8}")
    for name in MODELS:
        model = catalog.load(name)
        for label, gib in (("fits", 180), ("does not fit", 8)):
            devices = [Device(f"gpu{index}", gib * GIB) for index in range(8)]
            vllm = VllmSettings(tensor_parallel_size=8 if model.n_embd >= 4096 else 1, max_model_len=32_768)
            llama = LlamaCppSettings(context=32_768)
            rows = [
                (
                    f"vLLM, {label}",
                    cpu_seconds(lambda v=vllm, d=devices, m=model: plan_vllm(m, v, d), 20),
                    PLAN_BUDGET_MS,
                ),
                (
                    f"llama.cpp, {label}",
                    cpu_seconds(lambda s=llama, d=devices, m=model: plan_llamacpp(m, s, d, HOST), 20),
                    PLAN_BUDGET_MS,
                ),
            ]
            if label == "fits":

                def llama_pair(length: int, users: int, m: Model = model) -> MemoryPlan:
                    changed = LlamaCppSettings(context=length * users, parallel=users)
                    return plan_llamacpp(m, changed, DEVICES, HOST, remedies=False)

                seconds = cpu_seconds(lambda v=vllm, m=model: vllm_map(m, v, DEVICES, LENGTHS, USERS), 5)
                rows.append(("vLLM, heat map 20 x 20", seconds, MAP_BUDGET_MS))
                seconds = cpu_seconds(lambda p=llama_pair: heat_map(p, LENGTHS, USERS), 1, 3)
                rows.append(("llama.cpp, heat map 20 x 20", seconds, MAP_BUDGET_MS))
            for what, spent, budget in rows:
                over = spent * 1000 > budget
                missed += over
                print(f"{name:<24} {what:<32} {spent * 1000:>8.3f} {budget:>8g}{'  missed' if over else ''}")
    return missed


if __name__ == "__main__":
    sys.exit(main())
