"""
Turns the facts of a real run (fixtures/calculator/memory-cases.jsonl) into a GGUF file as a converter writes it.

The keys are those of convert_hf_to_gguf.py for each architecture (llama.cpp b11434, conversion/). Weights are left
out but for the embedding, which gives the vocabulary; what the cases check does not depend on them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.gguf_files import TensorSpec, write_gguf

# Which architecture a case's model is stored as, by the beginning of its name; None: llama.cpp's own rules for it are
# not in the calculator.
ARCHITECTURES = {
    "Qwen3.8-Flash-Next": "qwen4exp", "Qwen3.5-35B": "qwen35moe", "Qwen3.6-35B": "qwen35moe",
    "Qwen3.x-35B": "qwen35moe", "Qwen3.5-122B": "qwen35moe", "Qwen3-Next": "qwen3next", "Qwen3-Coder-Next": "qwen3next",
    "Qwen3.": "qwen35", "Qwen3-235B": "qwen3moe", "Qwen3-Coder-30B": "qwen3moe", "Qwen3": "qwen3", "Qwen2.5": "qwen2",
    "Gemma-4": "gemma4", "Gemma-3": "gemma3", "Gemma-2B": "gemma", "gpt-oss": "gpt-oss", "GLM-5.2": "glm-dsa",
    "GLM-Z1": "glm4", "DeepSeek-V4": "deepseek4", "DeepSeek": "deepseek2", "Nemotron-3": "nemotron_h_moe",
    "MiniMax-M2": "minimax-m2", "Llama": "llama", "Mixtral": "llama", "Command-R": "command-r", "Phi-4": "phi3",
    "Phi-3": "phi3", "LFM2": "lfm2", "Laguna": "laguna", "Falcon-H1": "falcon-h1",
}  # fmt: skip


def architecture_of(case: dict[str, Any]) -> str:
    """The GGUF architecture of a case's model."""
    return next(name for begin, name in ARCHITECTURES.items() if case["model"].startswith(begin))


def _gemma4(arch: dict[str, Any], total: int, keys: dict[str, Any]) -> None:
    """Windows by an array; heads by layer; full heads of 512, sliding ones of 256 (published configurations)."""
    full, sliding = arch["kv"]
    owners = full["layers"] + sliding["layers"]
    period = owners // full["layers"]
    slides = [(index + 1) % period != 0 for index in range(total)]
    keys |= {
        ".attention.key_length": 512, ".attention.value_length": 512, ".attention.key_length_swa": 256,
        ".attention.value_length_swa": 256, ".attention.sliding_window": sliding["window"],
        ".attention.sliding_window_pattern": slides,
        ".attention.head_count_kv": [sliding["k"] // 256 if s else full["k"] // 512 for s in slides],
        ".attention.shared_kv_layers": total - owners,
        ".embedding_length_per_layer_input": arch.get("n_embd_per_layer", 0),
    }  # fmt: skip


def case_metadata(case: dict[str, Any]) -> dict[str, Any]:
    """The keys of a case's model."""
    arch, name = case["arch"], architecture_of(case)
    total = arch.get("n_layer_total", arch["n_layer"])
    kv = arch["kv"][0]
    heads = arch.get("n_head") or 32
    size = arch.get("head_dim") or (kv["k"] // arch["n_head_kv"] if arch.get("n_head_kv") else 128)
    keys: dict[str, Any] = {
        "general.name": case["model"], ".block_count": total, ".context_length": 262_144,
        ".embedding_length": arch.get("n_embd") or 4096, ".feed_forward_length": arch.get("n_ff") or 0,
        ".attention.head_count": heads, ".attention.head_count_kv": arch.get("n_head_kv") or max(kv["k"] // size, 1),
        ".attention.key_length": size, ".attention.value_length": size,
    }  # fmt: skip
    if arch.get("n_expert"):
        keys |= {".expert_count": arch["n_expert"], ".expert_used_count": arch["n_expert_used"]}
        keys[".expert_feed_forward_length"] = arch.get("n_ff_exp") or arch.get("n_ff") or 1024
    ssm, state = arch.get("ssm"), arch.get("state")
    match name:
        case "gemma4":
            _gemma4(arch, total, keys)
        case "gemma3" | "gpt-oss" | "laguna":
            sliding = arch["kv"][1]
            keys[".attention.sliding_window"] = sliding["window"]
            if name != "gemma3":
                keys |= {".attention.key_length": 64 if name == "gpt-oss" else 128}
                keys[".attention.value_length"] = keys[".attention.key_length"]
                keys[".attention.head_count_kv"] = kv["k"] // keys[".attention.key_length"]
        case "qwen35" | "qwen35moe" | "qwen3next":
            keys |= {
                ".ssm.conv_kernel": ssm["d_conv"], ".ssm.inner_size": ssm["d_inner"], ".ssm.state_size": ssm["d_state"],
                ".ssm.group_count": ssm["n_group"], ".ssm.time_step_rank": ssm["dt_rank"],
                ".full_attention_interval": arch["full_attention_interval"],
            }  # fmt: skip
        case "falcon-h1":  # d_inner 3072, d_state 256, 1 group, as the case's note says
            keys |= {".ssm.conv_kernel": 4, ".ssm.inner_size": 3072, ".ssm.state_size": 256, ".ssm.group_count": 1,
                     ".ssm.time_step_rank": 48}  # fmt: skip
        case "nemotron_h_moe":  # 6 attention layers of 52; 23 Mamba-2, 23 experts (published configuration)
            kinds = ("MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME")[:total]
            keys |= {
                ".attention.head_count_kv": [arch["n_head_kv"] if kind == "*" else 0 for kind in kinds],
                ".feed_forward_length": [1856 if kind == "E" else 0 for kind in kinds],
                ".ssm.conv_kernel": 4, ".ssm.inner_size": 4096, ".ssm.state_size": 128, ".ssm.group_count": 8,
                ".ssm.time_step_rank": 64,
            }  # fmt: skip
        case "lfm2":
            attention = kv["layers"]
            step = total // attention
            keys[".attention.head_count_kv"] = [
                kv["k"] // size if index % step == step - 1 and index // step < attention else 0
                for index in range(total)
            ]
            keys[".shortconv.l_cache"] = state["r"] // keys[".embedding_length"] + 1
        case "glm-dsa" | "deepseek2" if kv["kind"].startswith("mla"):
            keys |= {
                ".attention.head_count_kv": 1, ".attention.kv_lora_rank": arch["kv_lora_rank"],
                ".attention.key_length": arch["kv_lora_rank"] + arch["qk_rope"],
                ".attention.value_length": arch["kv_lora_rank"],
                ".attention.key_length_mla": 192 if name == "deepseek2" else 256,
                ".attention.value_length_mla": 128 if name == "deepseek2" else 256,
            }  # fmt: skip
            if name == "glm-dsa":
                keys |= {".attention.indexer.key_length": 128, ".context_length": 1_048_576,
                         ".expert_feed_forward_length": 2048, ".feed_forward_length": 12288}  # fmt: skip
        case "deepseek2":  # converted before b5178: whole heads, no key_length_mla
            keys |= {".attention.head_count_kv": arch["n_head"], ".attention.key_length": 192,
                     ".attention.value_length": 128, ".attention.kv_lora_rank": 512}  # fmt: skip
    return keys


def case_tensors(case: dict[str, Any]) -> list[TensorSpec]:
    """The embedding, the head where it is not tied, and the feed-forward matrices, in the case's main type."""
    arch = case["arch"]
    width, vocabulary = arch.get("n_embd") or 4096, arch.get("n_vocab") or 32_000
    kind = next((name for name in ("Q8_0", "Q6_K", "Q5_K", "Q3_K", "Q2_K", "MXFP4") if name in case["quant"]), "Q4_K")
    out: list[TensorSpec] = [("token_embd.weight", (width, vocabulary), "F16")]
    if not arch.get("tied"):
        out.append(("output.weight", (width, vocabulary), "Q8_0" if kind == "Q8_0" or width % 256 else "Q6_K"))
    for block in range(arch.get("n_layer_total", arch["n_layer"])):
        if arch.get("n_expert"):
            inner = arch.get("n_ff_exp") or arch.get("n_ff") or 1024
            for name, shape in (("gate", (width, inner)), ("up", (width, inner)), ("down", (inner, width))):
                fits = kind if shape[0] % 256 == 0 else "MXFP4"
                out.append((f"blk.{block}.ffn_{name}_exps.weight", (*shape, arch["n_expert"]), fits))
        elif arch.get("n_ff"):
            out += [
                (f"blk.{block}.ffn_up.weight", (width, arch["n_ff"]), kind),
                (f"blk.{block}.ffn_down.weight", (arch["n_ff"], width), kind),
            ]
    return out


def write_case(path: Path, case: dict[str, Any]) -> Path:
    """A GGUF file of a case's model."""
    return write_gguf(path, architecture_of(case), case_metadata(case), case_tensors(case))
