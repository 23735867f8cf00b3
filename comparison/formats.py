"""
Names of models and of number formats, reduced to what two engines have in common.

One model goes by many names: `Qwen/Qwen3-8B` on vLLM is `Qwen3-8B-Q4_K_M.gguf` on llama.cpp. What is left without
owner, folder, file ending and number format is compared; whether two such files hold the same weights nobody can tell
from their names, so that "same" here means "of the same name".
"""

from __future__ import annotations

import re
from pathlib import PurePath

# Nominal bits of a weight. The mixes of GGUF (Q4_K_M ...) hold some tensors in more bits than their name says.
_BITS: tuple[tuple[str, int], ...] = (
    (r"(?:bf|f|fp)16|bfloat16|float16|half", 16),
    (r"(?:f|fp)32|float32|float", 32),
    (r"fp8(?:[_-]?e[45]m[23])?|f8_e4m3|int8|w8a8|w8a16|8bit|q8(?:_[0-9kpx]+)?(?:_[sml])?", 8),
    (r"q6(?:_k)?(?:_[sml])?", 6),
    (r"q5(?:_[01k])?(?:_[sml])?", 5),
    (r"(?:i?q4)(?:_(?:[01k]|nl|xs))?(?:_[sml])?|awq(?:_marlin)?|gptq(?:_marlin)?|int4|w4a16|4bit|nf4|bnb|bitsandbytes"
     r"|nvfp4|mxfp4(?:_moe)?|fp4|modelopt_fp4", 4),
    (r"(?:i?q3)(?:_(?:k|xxs|xs|s|m))?(?:_[sml])?", 3),
    (r"(?:i?q2|tq2)(?:_(?:0|k|xxs|xs|s|m))?(?:_[sml])?", 2),
    (r"(?:i?q1|tq1)(?:_(?:0|s|m))?", 1),
)  # fmt: skip
_FORMATS = tuple(
    (re.compile(rf"(?<![a-z0-9])(?:{pattern})(?![a-z0-9])", re.IGNORECASE), bits) for pattern, bits in _BITS
)
_ENDING = re.compile(r"(?:-\d{5}-of-\d{5})?\.(?:gguf|safetensors|bin)\Z|[-_.]gguf\Z", re.IGNORECASE)


def weight_bits(text: str | None) -> int | None:
    """Nominal bits of the format that `text` names ("Q4_K - Medium", "BF16", "awq"); None where it names none."""
    found = [(match.start(), bits) for pattern, bits in _FORMATS if text and (match := pattern.search(text))]
    return max(found)[1] if found else None


def format_in(name: str | None) -> str | None:
    """The number format at the end of a model's name, as it is written there: `Q4_K_M`, `AWQ`; None without one."""
    stem = _ENDING.sub("", PurePath(name).name) if name else ""
    found = [match for pattern, _ in _FORMATS for match in pattern.finditer(stem)]
    return max(found, key=lambda match: match.start()).group() if found else None


def base_model(name: str | None) -> str | None:
    """
    What a model is called without owner, folder, file ending, tag `:latest` and number format, in lower case.

    None where there is no name. A name that is nothing but a format stays as it is.
    """
    if not name or not name.strip("/"):
        return None
    whole = _ENDING.sub("", PurePath(name.strip().rstrip("/")).name.removesuffix(":latest"))
    bare = whole
    for pattern, _ in _FORMATS:
        bare = pattern.sub("", bare)
    bare = re.sub(r"[-_.:\s]{2,}", "-", bare.lower()).strip("-_.: ")
    return bare or whole.lower()
