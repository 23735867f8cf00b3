"""Forms of options as vllm/utils/argparse_utils.py and llama.cpp's common/arg.cpp take them."""

from __future__ import annotations

import pytest

from collectors.engines.commandline import fact_values, options_of


@pytest.mark.parametrize(
    "form", ["--tensor-parallel-size 2", "--tensor_parallel_size=2", "--tensor-parallel-size=2", "-tp 2"]
)
def test_forms_of_one_option(form: str) -> None:
    options = options_of(("vllm", "serve", "m", *form.split(), "--x"))
    assert options.integer("--tensor-parallel-size", "-tp") == 2


def test_switch_negative_number_and_last_one_counts() -> None:
    options = options_of(("llama-server", "-np", "-1", "--metrics", "-c", "1", "-c", "4096", "--ctx"))
    assert (options.text("--parallel", "-np"), options.integer("-np")) == ("-1", -1)
    assert options.has("--metrics")
    assert options.text("--metrics") is None
    assert options.integer("--ctx-size", "-c") == 4096


@pytest.mark.parametrize(
    ("text", "value"), [("8192", 8192), ("8k", 8000), ("8K", 8192), ("25.6k", 25600), ("auto", None)]
)
def test_human_readable_integers(text: str, value: int | None) -> None:
    assert options_of(("--max-model-len", text)).integer("--max-model-len") == value


def test_facts() -> None:
    names = {"a": ("--a", "-a"), "b": ("--b",), "c": ("--c",), "d": ("--d",)}
    assert fact_values(options_of(("-a", "3", "--b", "--c", "q8_0")), names) == {"a": 3, "b": True, "c": "q8_0"}
