"""What differs between configurations. The rows are epochs as the collector writes them for real engines."""

from __future__ import annotations

import json
from typing import Any

import pytest

from comparison.configurations import compare, differing, of_epoch, of_stage, unfair

H100 = "NVIDIA H100 80GB HBM3"


def vllm(**changed: Any) -> dict[str, Any]:
    facts = {"cache_dtype": "auto", "enable_prefix_caching": True} | changed.pop("facts", {})
    arguments = ["vllm", "serve", "Qwen/Qwen3-8B", "--port", "8000", *changed.pop("more", [])]
    row = {
        "kind": "vllm", "version": "0.33.0", "model_id": "Qwen/Qwen3-8B", "quantization": None, "slots": None,
        "max_context_tokens": 32768, "host": "host-a", "facts": json.dumps(facts), "arguments": json.dumps(arguments),
    }  # fmt: skip
    return row | changed


def llama(**changed: Any) -> dict[str, Any]:
    facts = {"kv_unified": True} | changed.pop("facts", {})
    arguments = ["llama-server", "-m", "/m/Qwen3-8B-Q4_K_M.gguf", "--metrics", *changed.pop("more", [])]
    row = {
        "kind": "llama.cpp", "version": "b11434", "model_id": "Qwen3-8B-Q4_K_M", "quantization": "Q4_K - Medium",
        "slots": 4, "max_context_tokens": 8192, "host": "host-a", "facts": json.dumps(facts),
        "arguments": json.dumps(arguments),
    }  # fmt: skip
    return row | changed


def found(*sides: Any, concurrency: int | None = None) -> dict[str, Any]:
    return {aspect.name: aspect for aspect in compare(sides, concurrency)}


def test_a_configuration_does_not_differ_from_itself():
    side = of_epoch("A", vllm(quantization="BF16", slots=256), [H100], "580.95")
    aspects = compare([side, side, side])
    assert {aspect.state for aspect in aspects} == {"same"}
    assert differing(aspects) == []


def test_the_same_model_in_other_bits_on_another_engine_is_named_before_the_figures():
    sides = of_epoch("A", vllm(quantization="BF16"), [H100]), of_epoch("B", llama(), [H100])
    aspects = found(*sides)
    assert aspects["engine"].values == ("vLLM", "llama.cpp")
    assert (aspects["model"].state, aspects["model"].values) == ("differs", ("Qwen/Qwen3-8B", "Qwen3-8B-Q4_K_M"))
    assert aspects["weights"].state == "unfair"
    assert aspects["weights"].text.startswith("Weights: BF16 in A; Q4_K - Medium in B. Decoding reads the weights once")
    assert [aspect.name for aspect in unfair(tuple(aspects.values()))] == ["weights"]


def test_other_models_tell_nothing_about_the_engines():
    aspects = found(of_epoch("A", vllm()), of_epoch("B", vllm(model_id="Qwen/Qwen3-32B")))
    assert aspects["model"].state == "unfair"
    assert "nothing here says which engine is better" in aspects["model"].text


def test_what_one_side_does_not_tell_is_not_known_and_never_the_same():
    aspects = found(of_epoch("A", vllm()), of_epoch("B", vllm(quantization="fp8", slots=64)))
    assert aspects["weights"].state == "not known"
    assert aspects["requests at once"].state == "not known"
    assert aspects["devices"].state == "not known"


@pytest.mark.parametrize(("concurrency", "state"), [(None, "differs"), (4, "differs"), (5, "unfair")])
def test_slots_are_unfair_once_more_requests_are_sent_than_one_side_computes(concurrency, state):
    aspects = found(of_epoch("A", vllm(slots=256)), of_epoch("B", llama()), concurrency=concurrency)
    assert aspects["requests at once"].state == state


def test_a_side_that_queues_is_not_unfair_to_one_that_queues_too():
    assert found(of_epoch("A", llama()), of_epoch("B", llama(slots=2)), concurrency=8)["requests at once"].state == (
        "differs"
    )


@pytest.mark.parametrize(
    ("first", "second", "state"),
    [
        (vllm(), llama(), "differs"),  # auto is the model's own 16 bit, llama.cpp's default f16
        (vllm(facts={"cache_dtype": "fp8"}), vllm(), "unfair"),
        (llama(), llama(facts={"cache_type_k": "q8_0", "cache_type_v": "q8_0"}), "unfair"),
        (llama(), llama(facts={"cache_type_k": "q8_0"}), "unfair"),
        (llama(arguments=None), llama(), "not known"),
    ],
)
def test_a_smaller_type_of_the_kv_cache_is_unfair(first, second, state):
    assert found(of_epoch("A", first), of_epoch("B", second))["KV cache type"].state == state


def test_a_prefix_cache_on_one_side_only_is_unfair():
    aspects = found(of_epoch("A", vllm()), of_epoch("B", vllm(facts={"enable_prefix_caching": False})))
    assert (aspects["prefix cache"].state, aspects["prefix cache"].values) == ("unfair", ("on", "off"))
    assert found(of_epoch("A", vllm()), of_epoch("B", llama(more=["--no-cache-prompt"])))["prefix cache"].state == (
        "unfair"
    )


def test_speculative_decoding_on_one_side_is_unfair():
    aspects = found(of_epoch("A", llama(more=["-md", "/m/draft.gguf"])), of_epoch("B", llama()))
    assert (aspects["speculative decoding"].state, aspects["speculative decoding"].values) == ("unfair", ("on", "off"))


def test_devices_are_compared_by_name_and_number():
    one, two = of_epoch("A", vllm(), [H100]), of_epoch("B", vllm(), [H100, H100])
    none = of_epoch("C", llama(), [])
    aspects = found(one, two, none)
    assert aspects["devices"].values == (H100, f"2 x {H100}", "no GPU")
    assert aspects["devices"].state == "unfair"


def test_of_one_engine_only_the_arguments_that_differ_are_shown():
    before = vllm(more=["--max-num-seqs", "64", "--enforce-eager"])
    after = vllm(more=["--max_num_seqs=64", "--gpu-memory-utilization", "0.8"], version="0.34.0")
    aspects = found(of_epoch("A", before), of_epoch("B", after))
    assert aspects["arguments"].values == ("--enforce-eager", "--gpu-memory-utilization 0.8")
    assert aspects["arguments"].state == "differs"
    assert [aspect.name for aspect in differing(tuple(aspects.values()))][:2] == ["version", "arguments"]


def test_another_port_or_name_is_no_other_configuration():
    first = vllm(arguments=json.dumps(["vllm", "serve", "m", "--port", "8000"]))
    second = vllm(arguments=json.dumps(["vllm", "serve", "m", "--port=9000", "--served-model-name", "chat"]))
    assert found(of_epoch("A", first), of_epoch("B", second))["arguments"].state == "same"


def test_split_over_devices_is_told_in_words():
    aspects = found(of_epoch("A", vllm(facts={"tensor_parallel_size": 2})), of_epoch("B", vllm()))
    assert aspects["split over devices"].values == ("TP 2", "not split")


def test_a_stage_without_an_epoch_is_known_by_what_it_tells():
    side = of_stage("B", {"engine": "llama.cpp", "engine_version": None, "model_id": "Qwen3-8B-Q4_K_M.gguf"})
    aspects = found(of_epoch("A", vllm(quantization="awq")), side)
    assert aspects["weights"].state == "differs"  # both nominally 4 bits
    assert aspects["arguments"].values[1] is None


def test_facts_that_cannot_be_read_are_no_facts():
    side = of_epoch("A", vllm(facts={}) | {"facts": "{broken", "arguments": "[1,"})
    assert side.arguments is None
    assert side.kv_format is None
