"""Names as they stand on Hugging Face and in the answers of llama.cpp and vLLM."""

import pytest

from comparison.formats import base_model, format_in, weight_bits


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("Qwen3-8B-Q4_K_M", "qwen3-8b"),
        ("/models/Qwen3-8B-Q4_K_M.gguf", "qwen3-8b"),
        ("Qwen/Qwen3-8B-AWQ", "qwen3-8b"),
        ("Qwen/Qwen3-8B-FP8", "qwen3-8b"),
        ("bartowski/Qwen_Qwen3-8B-GGUF", "qwen_qwen3-8b"),
        ("RedHatAI/Qwen3-8B-quantized.w4a16", "qwen3-8b-quantized"),
        ("Qwen3-Coder-30B-A3B-Instruct-Q4_K_M-00001-of-00002.gguf", "qwen3-coder-30b-a3b-instruct"),
        ("gemma-3-12b-it-UD-IQ2_XXS.gguf", "gemma-3-12b-it-ud"),
        ("llama3.2:latest", "llama3.2"),
        ("gpt-oss-20b-mxfp4.gguf", "gpt-oss-20b"),
        ("/srv/models/Qwen3-8B/", "qwen3-8b"),
        ("Q8_0.gguf", "q8_0"),
        (None, None),
        ("", None),
    ],
)
def test_a_model_is_known_by_its_name_without_owner_ending_and_format(name, base):
    assert base_model(name) == base


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("BF16", 16),
        ("all F32", 32),
        ("bfloat16", 16),
        ("Q4_K - Medium", 4),
        ("Q4_K_M", 4),
        ("IQ4_XS", 4),
        ("mostly Q8_0", 8),
        ("Q6_K", 6),
        ("Q5_K_S", 5),
        ("IQ3_XXS", 3),
        ("Q2_K", 2),
        ("TQ1_0", 1),
        ("awq_marlin", 4),
        ("fp8_e4m3", 8),
        ("compressed-tensors", None),
        ("Qwen/Qwen3-8B", None),
        (None, None),
    ],
)
def test_formats_have_their_nominal_bits(text, bits):
    assert weight_bits(text) == bits


def test_the_format_of_a_file_is_read_from_its_name():
    assert format_in("/models/Qwen3-8B-Q4_K_M.gguf") == "Q4_K_M"
    assert format_in("Qwen/Qwen3-8B-AWQ") == "AWQ"
    assert format_in("Qwen/Qwen3-8B") is None
