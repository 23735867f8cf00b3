"""
What llama.cpp knows of an architecture beyond the file's metadata: windows, their patterns, recurrent layers.

Read in `load_arch_hparams` of src/models/*.cpp and `create_memory` of src/llama-model.cpp, llama.cpp b11434.
An architecture that is not listed here is refused: its layers may keep something else than is thought.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Pattern(StrEnum):
    """Where the sliding-window layers stand."""

    NEVER = "never"  # a window in the metadata is ignored
    OPTIONAL = "optional"  # with a window in the metadata: every n-th layer is full
    ALWAYS = "always"  # every n-th layer is full, also where the metadata has no window
    ARRAY = "array"  # the metadata say it for every layer
    ATTENTION = "attention"  # with a window in the metadata: every attention layer


class Recurrent(StrEnum):
    """Which layers keep a recurrent state."""

    NONE = "none"
    ALL = "all"  # and none has a KV cache
    BOTH = "both"  # every layer has a state and a KV cache
    NO_KV_HEADS = "no_kv_heads"  # those whose KV head count is 0
    NO_KV_HEADS_NOR_FF = "no_kv_heads_nor_ff"  # the same, unless they are feed-forward only
    INTERVAL = "interval"  # all but every n-th


@dataclass(frozen=True, slots=True)
class Rule:
    """One architecture's rules; widths and counts come from the metadata."""

    pattern: Pattern = Pattern.NEVER
    period: int = 0  # every `period`-th layer is full; 0 with ALWAYS: all layers slide
    full_first: bool = False  # the full layer is the first of each period instead of the last
    window: int | None = None  # where the metadata have none; None with ALWAYS: they must have one
    fixed_window: int | None = None  # whatever the metadata say
    chunked: bool = False
    recurrent: Recurrent = Recurrent.NONE
    interval: int = 4  # of full attention, where the metadata have none
    state: str = ""  # the state's kind, as in `calculator.model.RecurrentState`
    layers_with_cache: int | None = None  # the later ones read an earlier layer's cache
    indexer: bool = False  # DeepSeek sparse attention: an indexer key beside the MLA cache
    mla: bool = False  # the metadata may describe a compressed cache


_PLAIN = (
    "llama deci falcon grok gpt2 gptneox mpt baichuan starcoder refact bloom stablelm qwen qwen2 qwen2moe qwen2vl "
    "qwen3 qwen3moe qwen3vl qwen3vlmoe phi2 phi3 phimoe plamo codeshell orion internlm2 minicpm minicpm3 gemma "
    "starcoder2 xverse command-r dbrx olmo olmoe openelm arctic deepseek chatglm glm4 glm4moe bitnet jais jais2 "
    "nemotron exaone granite granitemoe chameleon bailingmoe bailingmoe2 dots1 arcee ernie4_5 ernie4_5-moe "
    "hunyuan-moe hunyuan-dense hunyuan_vl smollm3 seed_oss grovemoe apertus minimax-m2 cogvlm pangu-embedded "
    "mistral3 paddleocr maincoder"
)

RULES: dict[str, Rule] = {name: Rule() for name in _PLAIN.split()} | {
    # windows
    "gemma2": Rule(Pattern.ALWAYS, 2, window=4096),
    "gemma3": Rule(Pattern.OPTIONAL, 6),
    "gemma3n": Rule(Pattern.ALWAYS, 5, layers_with_cache=20),
    "gemma4": Rule(Pattern.ARRAY),  # and attention.shared_kv_layers
    "cohere2": Rule(Pattern.ALWAYS, 4),
    "cohere2moe": Rule(Pattern.ALWAYS, 4, full_first=True),
    "exaone4": Rule(Pattern.ALWAYS, 4, window=4096),  # only with 64 layers, see gguf_model
    "exaone-moe": Rule(Pattern.ALWAYS, 4),
    "gpt-oss": Rule(Pattern.ALWAYS, 2),
    "llama4": Rule(Pattern.ALWAYS, 4, fixed_window=8192, chunked=True),  # unless the metadata say window 0
    "olmo2": Rule(Pattern.OPTIONAL, 4),
    "smallthinker": Rule(Pattern.OPTIONAL, 4, full_first=True, fixed_window=4096),
    "laguna": Rule(Pattern.OPTIONAL, 4, full_first=True),
    "mellum": Rule(Pattern.OPTIONAL, 4),
    "plamo3": Rule(Pattern.OPTIONAL, 8),
    "afmoe": Rule(Pattern.OPTIONAL, 4),
    "muse-glimmer": Rule(Pattern.ALWAYS, 4),
    "mimo2": Rule(Pattern.ARRAY),
    "step35": Rule(Pattern.ARRAY),
    "spark2_5": Rule(Pattern.ARRAY),
    "granite_swa": Rule(Pattern.ARRAY),
    # compressed caches
    "deepseek2": Rule(mla=True),
    "deepseek2-ocr": Rule(mla=True),
    "mistral4": Rule(mla=True),
    "deepseek32": Rule(mla=True, indexer=True),
    "glm-dsa": Rule(mla=True, indexer=True),
    # recurrent and hybrid
    "mamba": Rule(recurrent=Recurrent.ALL, state="mamba1"),
    "mamba2": Rule(recurrent=Recurrent.ALL, state="mamba2"),
    "rwkv6": Rule(recurrent=Recurrent.ALL, state="rwkv"),
    "rwkv6qwen2": Rule(recurrent=Recurrent.ALL, state="rwkv"),
    "rwkv7": Rule(recurrent=Recurrent.ALL, state="rwkv"),
    "arwkv7": Rule(recurrent=Recurrent.ALL, state="rwkv"),
    "jamba": Rule(recurrent=Recurrent.NO_KV_HEADS, state="mamba1"),
    "granitehybrid": Rule(recurrent=Recurrent.NO_KV_HEADS, state="mamba2"),
    "plamo2": Rule(recurrent=Recurrent.NO_KV_HEADS, state="mamba2"),
    "lfm2": Rule(Pattern.ATTENTION, recurrent=Recurrent.NO_KV_HEADS, state="lfm2"),
    "lfm2moe": Rule(recurrent=Recurrent.NO_KV_HEADS, state="lfm2"),
    "falcon-h1": Rule(recurrent=Recurrent.BOTH, state="mamba2"),
    "nemotron_h": Rule(recurrent=Recurrent.NO_KV_HEADS_NOR_FF, state="mamba2"),
    "nemotron_h_moe": Rule(recurrent=Recurrent.NO_KV_HEADS_NOR_FF, state="mamba2"),
    "qwen3next": Rule(recurrent=Recurrent.INTERVAL, state="gdn"),
    "qwen35": Rule(recurrent=Recurrent.INTERVAL, state="gdn"),
    "qwen35moe": Rule(recurrent=Recurrent.INTERVAL, state="gdn"),
    "minimax-01": Rule(recurrent=Recurrent.INTERVAL, interval=8, state="lightning"),
    "kimi-linear": Rule(recurrent=Recurrent.NO_KV_HEADS, state="kda", mla=True),
    "kimi-k3": Rule(recurrent=Recurrent.NO_KV_HEADS, state="kda", mla=True),
    "bailingmoe3": Rule(recurrent=Recurrent.NO_KV_HEADS, state="kda", mla=True),
}

# What convert_hf_to_gguf.py makes of a Hugging Face architecture (conversion/*.py).
GGUF_NAMES = {
    "LlamaForCausalLM": "llama", "MistralForCausalLM": "llama", "Mistral3ForConditionalGeneration": "llama",
    "MixtralForCausalLM": "llama", "Llama4ForConditionalGeneration": "llama4", "Qwen2ForCausalLM": "qwen2",
    "Qwen2_5_VLForConditionalGeneration": "qwen2vl", "Qwen2MoeForCausalLM": "qwen2moe", "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3moe", "Qwen3NextForCausalLM": "qwen3next",
    "Qwen3_5ForConditionalGeneration": "qwen35", "Qwen3_5MoeForConditionalGeneration": "qwen35moe",
    "GemmaForCausalLM": "gemma", "Gemma2ForCausalLM": "gemma2", "Gemma3ForCausalLM": "gemma3",
    "Gemma3ForConditionalGeneration": "gemma3", "Gemma3nForCausalLM": "gemma3n",
    "Gemma3nForConditionalGeneration": "gemma3n", "Gemma4ForConditionalGeneration": "gemma4",
    "Phi3ForCausalLM": "phi3", "PhiMoEForCausalLM": "phimoe", "CohereForCausalLM": "command-r",
    "Cohere2ForCausalLM": "cohere2", "DeepseekV2ForCausalLM": "deepseek2", "DeepseekV3ForCausalLM": "deepseek2",
    "DeepseekV32ForCausalLM": "deepseek32", "KimiLinearForCausalLM": "kimi-linear", "Exaone4ForCausalLM": "exaone4",
    "FalconH1ForCausalLM": "falcon-h1", "Glm4ForCausalLM": "glm4", "Glm4MoeForCausalLM": "glm4moe",
    "Glm4MoeLiteForCausalLM": "deepseek2", "GlmMoeDsaForCausalLM": "glm-dsa", "GptOssForCausalLM": "gpt-oss",
    "GraniteForCausalLM": "granite", "GraniteMoeHybridForCausalLM": "granitehybrid", "Lfm2ForCausalLM": "lfm2",
    "Lfm2MoeForCausalLM": "lfm2moe", "NemotronForCausalLM": "nemotron", "NemotronHForCausalLM": "nemotron_h",
    "Olmo2ForCausalLM": "olmo2", "SmolLM3ForCausalLM": "smollm3", "Starcoder2ForCausalLM": "starcoder2",
}  # fmt: skip
