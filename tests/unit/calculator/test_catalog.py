"""The catalogue against what publishers say: a typing error in a configuration shows as another parameter count."""

from __future__ import annotations

import pytest

from calculator import catalog
from calculator.model import Attention, CalculatorError

# The families that the catalogue must cover, by the words of the task's own list.
FAMILIES = (
    "Llama",
    "Qwen",
    "Mistral",
    "Mixtral",
    "gemma",
    "phi",
    "DeepSeek",
    "gpt-oss",
    "GLM",
    "command-r",
    "granite",
    "LFM2",
    "Nemotron",
    "Falcon-H1",
)


@pytest.mark.parametrize("entry", catalog.entries(), ids=lambda entry: entry.name)
def test_parameters_by_shape_are_those_published(entry: catalog.Entry) -> None:
    """Published counts: the repository's safetensors metadata or the model card, as each entry says."""
    model = catalog.load(entry.name)
    assert model.parameters is not None
    drafts = sum(layer.parameters or 0 for layer in model.mtp_layers) if entry.parameters_include_mtp else 0
    assert model.parameters + drafts == pytest.approx(entry.parameters_published, rel=0.01)


def test_the_catalogue_is_large_and_covers_the_families() -> None:
    names = catalog.names()
    assert len(names) >= 40
    assert len(set(names)) == len(names)
    for family in FAMILIES:
        assert any(family.lower() in name.lower() for name in names), family


def test_every_entry_names_its_source() -> None:
    for entry in catalog.entries():
        assert entry.repo in entry.source
        assert entry.parameters_source


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("Qwen/Qwen3-8B", "Qwen3-8B"),
        ("Qwen/Qwen3-8B-FP8", "Qwen3-8B"),
        ("llama-3.1-8b", "Llama-3.1-8B-Instruct"),
        ("unsloth/gemma-3-27b-it-GGUF", "gemma-3-27b-it"),
        ("OPENAI/GPT-OSS-20B", "gpt-oss-20b"),
        ("Qwen3-Next-80B-A3B-Instruct-AWQ-4bit", "Qwen3-Next-80B-A3B-Instruct"),
    ],
)
def test_a_name_is_found_however_it_is_dressed(asked: str, name: str) -> None:
    assert catalog.load(asked).name == name


def test_a_name_that_fits_two_models_is_not_guessed() -> None:
    with pytest.raises(CalculatorError, match=r"v0\.1 or Mistral-7B-Instruct-v0\.3"):
        catalog.load("Mistral-7B")


def test_an_unknown_name_is_told_with_the_nearest() -> None:
    with pytest.raises(CalculatorError, match="gpt-oss-20b"):
        catalog.load("openai/gpt-oss-30b")


# Layers with a cache of their own by kind; sources: each model's report or card, as noted.
KINDS = [
    ("gemma-3-27b-it", {Attention.FULL: 10, Attention.SLIDING: 52}),  # arXiv 2503.19786: 5 local to 1 global
    ("gpt-oss-20b", {Attention.FULL: 12, Attention.SLIDING: 12}),  # arXiv 2508.10925: alternating
    ("Llama-4-Scout-17B-16E-Instruct", {Attention.FULL: 12, Attention.CHUNKED: 36}),  # model card: iRoPE, 3 to 1
    ("c4ai-command-r7b-12-2024", {Attention.FULL: 8, Attention.SLIDING: 24}),  # model card: 3 local to 1 global
    ("DeepSeek-V3", {Attention.MLA: 61}),  # arXiv 2412.19437
    ("Qwen3-Next-80B-A3B-Instruct", {Attention.FULL: 12, Attention.NONE: 36}),  # model card: 12 x (3 + 1)
    ("granite-4.0-h-small", {Attention.FULL: 4, Attention.NONE: 36}),  # model card: 4 attention, 36 Mamba 2
    ("NVIDIA-Nemotron-Nano-9B-v2", {Attention.FULL: 4, Attention.NONE: 52}),  # arXiv 2508.14444: 4 of 56
    ("LFM2-1.2B", {Attention.FULL: 6, Attention.NONE: 10}),  # model card: 10 convolutions, 6 attention
    ("gemma-4-26B-A4B-it", {Attention.FULL: 5, Attention.SLIDING: 25}),  # vllm-39: 5 and 25 layers
    ("gemma-3n-E4B-it", {Attention.FULL: 4, Attention.SLIDING: 16}),  # 15 of 35 layers share (gemma3n configuration)
    ("Kimi-Linear-48B-A3B-Instruct", {Attention.MLA: 7, Attention.NONE: 20}),  # arXiv 2510.26692: 3 KDA to 1 MLA
    ("Phi-3-mini-4k-instruct", {Attention.SLIDING: 32}),  # config.json: sliding_window 2047
]


@pytest.mark.parametrize(("name", "kinds"), KINDS)
def test_layers_attend_as_the_publisher_says(name: str, kinds: dict[Attention, int]) -> None:
    found: dict[Attention, int] = {}
    for layer in catalog.load(name).layers:
        if not layer.shares_kv:
            found[layer.attention] = found.get(layer.attention, 0) + 1
    assert found == kinds
