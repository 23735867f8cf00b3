"""
`python -m calculator` as a person runs it.

The JSON contract is that of the design ("JSON of `plan`"). Figures: Qwen3-8B has 8,190,735,360 parameters
(https://huggingface.co/Qwen/Qwen3-8B, safetensors), so its BF16 weights take 16.38 GB; its cache takes
36 layers x 8 KV heads x (128 + 128) x 2 bytes = 147,456 bytes a token (config.json there).
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.llamacpp import model_path

ROOT = Path(__file__).resolve().parents[3]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "calculator", *arguments],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )


def plan(*arguments: str) -> dict:
    done = run("plan", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


PLACE = {
    "name", "capacity_bytes", "weights_bytes", "kv_bytes", "state_bytes", "compute_bytes", "overhead_bytes",
    "total_bytes", "fits",
}  # fmt: skip


def test_the_document_has_the_fields_of_the_contract_and_its_sums_agree() -> None:
    document = plan("Qwen3-8B", "--engine", "vllm", "--devices", "2xh100", "--max-model-len", "32K", "-tp", "2")
    assert set(document) >= {
        "engine", "engine_version", "devices", "host", "totals", "kv_capacity_tokens", "max_concurrency",
        "context_cells", "notes",
    }  # fmt: skip
    for place in (*document["devices"], document["host"]):
        assert set(place) == PLACE
        for end in ("low", "high"):
            parts = place["weights_bytes"] + place["kv_bytes"] + place["state_bytes"]
            assert place["total_bytes"][end] == parts + place["compute_bytes"][end] + place["overhead_bytes"][end]
    assert set(document["totals"]) == {"weights_bytes", "kv_bytes", "state_bytes", "output_bytes"}
    assert document["totals"]["weights_bytes"] == sum(place["weights_bytes"] for place in document["devices"])
    assert document["totals"]["weights_bytes"] == pytest.approx(2 * 8_190_735_360, rel=0.01)
    assert all(note["rule"] and note["text"] for note in document["notes"])
    assert {place["fits"] for place in document["devices"]} == {"yes"}
    # 147,456 bytes a token over both devices
    assert document["totals"]["kv_bytes"] / document["kv_capacity_tokens"] == pytest.approx(147_456, rel=0.01)
    assert document["max_concurrency"] == pytest.approx(document["kv_capacity_tokens"] / 32768, rel=0.01)


def test_a_real_gguf_file_under_llama_cpp() -> None:
    document = plan(str(model_path()), "--engine", "llama.cpp", "--devices", "cpu", "-c", "4096", "-np", "2")
    assert document["devices"] == []
    # SmolLM2-135M: 30 layers x 3 KV heads x (64 + 64) x 2 bytes (f16) = 23,040 bytes a cell, 4,096 cells
    assert document["host"]["kv_bytes"] == 23_040 * 4096
    assert document["context_cells"] == document["kv_capacity_tokens"] == 4096
    assert document["max_concurrency"] == 2
    # what the server itself told of this file (facts.weights_bytes of /v1/models: 96,576,768)
    assert document["host"]["weights_bytes"] == 96_576_768
    assert document["host"]["fits"] is None  # nothing was said about the host's memory


def test_the_table_for_people_says_what_it_means() -> None:
    done = run("plan", "Qwen3-8B:Q4_K_M", "--engine", "llama.cpp", "--devices", "8GiB", "-c", "32768", "-ngl", "all")
    assert done.returncode == 0, done.stderr
    assert "does not fit" in done.stdout
    assert "What would make it fit" in done.stdout
    assert "GiB" in done.stdout
    assert "[llama.cpp" in done.stdout  # every rule with its source


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["Qwen3-8B", "--engine", "vllm", "--devices", "24GiB", "--max-modl-len", "8k"], "--max-model-len"),
        (["Qwen3-8B", "--engine", "llama.cpp", "--devices", "24GiB", "--no-such-flag"], "--no-such-flag"),
        (["Qwen3-8B", "--engine", "vllm", "--devices", "24"], "24GiB"),
        (["Qwen3-8B", "--engine", "vllm", "--devices", "cpu"], "--host-memory"),
        (["Qwen3-8B", "--engine", "ollama", "--devices", "24GiB"], "ollama"),
        (["Qwen3-8B", "--engine", "vllm"], "--devices"),
        (["Qwen3-8B", "--devices", "24GiB"], "--engine"),
        (["Qwen3-8B", "--engine", "vllm", "--devices"], "needs a value"),
        (["--engine", "vllm", "Qwen3-8B"], "name the model first"),
        (["Qwen3-9B-Turbo-Imaginary", "--engine", "vllm", "--devices", "24GiB"], "catalogue"),
        (["/no/such/model.gguf", "--engine", "llama.cpp", "--devices", "24GiB"], "does not exist"),
        (["Qwen3-8B", "--engine", "llama.cpp", "--devices", "24GiB", "-ctk", "q9"], "q9"),
        (["Qwen3-8B", "--engine", "vllm", "--devices", "24GiB", "--gpu-memory-utilization", "1.5"], "1.5"),
        (["no-one/such-model", "--engine", "vllm", "--devices", "24GiB"], "no-one/such-model"),
    ],
)
def test_a_question_that_cannot_be_answered_says_why_on_stderr(arguments: list[str], says: str) -> None:
    done = run("plan", *arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_folders_are_read_and_a_folder_of_gguf_files_asks_which(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"")
    done = run("plan", str(tmp_path), "--engine", "vllm", "--devices", "24GiB")
    assert done.returncode == 2
    assert "a.gguf" in done.stderr
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536, "vocab_size": 49152,
        "max_position_embeddings": 8192, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    document = plan(str(tmp_path), "--engine", "vllm", "--devices", "24GiB")
    # SmolLM2-135M has 134,515,008 parameters (https://huggingface.co/HuggingFaceTB/SmolLM2-135M)
    assert document["totals"]["weights_bytes"] == pytest.approx(2 * 134_515_008, rel=0.01)


def test_a_quantised_namesake_of_a_catalogue_model_is_not_planned_as_bf16() -> None:
    whole = plan("Qwen/Qwen3-8B", "--engine", "vllm", "--devices", "24GiB", "--max-model-len", "8k")
    awq = plan("Qwen/Qwen3-8B-AWQ", "--engine", "vllm", "--devices", "24GiB", "--max-model-len", "8k")
    # https://huggingface.co/Qwen/Qwen3-8B-AWQ: model files of 6.10 GB together, against 16.4 GB in BF16
    assert whole["totals"]["weights_bytes"] == pytest.approx(16.4e9, rel=0.01)
    assert awq["totals"]["weights_bytes"] == pytest.approx(6.10e9, rel=0.02)


def test_help_models_and_devices_are_listed() -> None:
    assert "python -m calculator plan MODEL" in run("--help").stdout
    assert "openai/gpt-oss-120b" in run("models").stdout
    assert "MI300X".lower() in run("devices").stdout
    wrong = run("plot")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "'plot'" in wrong.stderr
