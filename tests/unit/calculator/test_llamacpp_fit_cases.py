"""
llama.cpp's own estimator against the plan: tests/fixtures/calculator/llama-fit-cases.jsonl and llama-fit-more.jsonl.

Each row is what `llama-fit-params --no-repack --fit-print on` (b11434, CPU) printed for a sparse GGUF file of its
`spec`: whole MiB, in the second file the compute buffer to two places (`-v`). The GGUF file is written here again and
read through the header walk.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from calculator.gguf_header import read_header
from calculator.gguf_model import model_from_header
from calculator.llamacpp import plan_llamacpp
from calculator.llamacpp_settings import from_arguments
from tests.support.gguf_files import write_spec

MIB = 1 << 20
FOLDER = Path(__file__).parents[2] / "fixtures" / "calculator"
FILES = ("llama-fit-cases.jsonl", "llama-fit-more.jsonl")
CASES = [json.loads(line) for name in FILES for line in (FOLDER / name).read_text().splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['spec']['arch']}-{'_'.join(case['flags'])}")
def test_a_plan_is_what_the_engine_estimates(case: dict[str, Any], tmp_path: Path) -> None:
    model = model_from_header(read_header(write_spec(tmp_path / "model.gguf", case["spec"])))
    settings = from_arguments(case["flags"], version="b11434")
    # The estimator is no server: one sequence where none is asked for, and logits for every token of a batch.
    settings = replace(settings, parallel=settings.parallel or 1, all_outputs=True)
    host = plan_llamacpp(model, settings, []).host
    assert host.weights_bytes // MIB == case["model_mib"]
    assert host.kv_bytes // MIB == case["context_mib"]
    assert host.state_bytes == 0
    # Required: within 10 %. Whole numbers are cut off, others rounded.
    rounding = 1 if isinstance(case["compute_mib"], int) else 0.01
    assert host.compute_bytes.low / MIB <= case["compute_mib"] + rounding
    assert host.compute_bytes.high / MIB >= case["compute_mib"]
    assert host.compute_bytes.high - host.compute_bytes.low < 0.1 * host.compute_bytes.low + MIB // 2
