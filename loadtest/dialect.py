"""
What a request asks beyond prompt and length, and what is left out again where a server refuses it.

A server that takes a flag may still ignore it: whether lengths came out as asked is verified from what it produced.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from loadtest.prompts import Prompt

# In the order in which they are given up when a server refuses without naming what it refused.
FEATURES: Mapping[str, str] = {
    "continuous_usage_stats": "token counts per chunk are not told, so how many tokens a chunk brought is not known",
    "min_tokens": "only ignore_eos asks for the full length",
    "cache_prompt": "a prefix cache can't be switched off per request",
    "ignore_eos": "answers may end before the asked length",
    "temperature": "the server chooses how to sample",
    "include_usage": "the server does not tell token counts while streaming",
}
_BY_ENGINE: Mapping[str, frozenset[str]] = {
    "vllm": frozenset(FEATURES) - {"cache_prompt"},
    "sglang": frozenset(FEATURES) - {"cache_prompt"},
    "llama.cpp": frozenset({"cache_prompt", "ignore_eos", "temperature", "include_usage"}),
    "ollama": frozenset({"temperature", "include_usage"}),
    "tgi": frozenset({"temperature", "include_usage"}),
}
_UNKNOWN_ENGINE = frozenset({"min_tokens", "ignore_eos", "temperature", "include_usage"})


@dataclass(frozen=True, slots=True)
class Dialect:
    """The features that are asked for, and the name of the length limit."""

    features: frozenset[str]
    length: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"

    @classmethod
    def of(cls, engine: str | None, *, ignore_eos: bool, cached: bool) -> Dialect:
        """What an engine is known to take, of what the run wants."""
        features = _BY_ENGINE.get(engine or "", _UNKNOWN_ENGINE)
        if not ignore_eos:
            features -= {"ignore_eos", "min_tokens"}
        if cached:
            features -= {"cache_prompt"}
        return cls(features)

    def without_refused(self, message: str) -> tuple[Dialect, str] | None:
        """What is left after a refusal with `message`, and what that means; None when there is nothing to give up."""
        if self.length == "max_tokens" and "max_completion_tokens" in message:
            return Dialect(self.features, "max_completion_tokens"), "the length limit is called max_completion_tokens"
        held = [name for name in FEATURES if name in self.features]
        named = [name for name in held if name in message]
        if "stream_options" in message and not named:
            named = [name for name in held if name in ("continuous_usage_stats", "include_usage")]
        if not held:
            return None
        refused = (named or held)[0]
        return Dialect(self.features - {refused}, self.length), f"the server refuses {refused}: {FEATURES[refused]}"

    def document(self, api: str, model: str | None, prompt: Prompt, output_tokens: int) -> dict[str, Any]:
        """The JSON object of one request."""
        content: dict[str, Any] = {"messages": prompt.messages} if api == "chat" else {"prompt": prompt.text}
        if model is not None:
            content["model"] = model
        content |= {self.length: output_tokens, "stream": True}
        if "include_usage" in self.features:
            options = {"include_usage": True}
            if "continuous_usage_stats" in self.features:
                options["continuous_usage_stats"] = True
            content["stream_options"] = options
        if "temperature" in self.features:
            content["temperature"] = 0
        if "ignore_eos" in self.features:
            content["ignore_eos"] = True
        if "min_tokens" in self.features:
            content["min_tokens"] = output_tokens
        if "cache_prompt" in self.features:
            content["cache_prompt"] = False
        return content
