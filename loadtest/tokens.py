"""
How many tokens a server says that a request had, wherever it says so.

`usage` of the OpenAI API, in the last chunk with choices (llama.cpp), in one more without (vLLM) or in every chunk
(`continuous_usage_stats` of vLLM); else `timings` of llama.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class TokenCounts:
    """The newest counts of one request; ``None``: not told."""

    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    source: str | None = None  # usage | timings

    def read(self, chunk: Mapping[str, Any]) -> int | None:
        """Take in what one chunk says; returns the output tokens so far where its `usage` says them."""
        usage = chunk.get("usage")
        if isinstance(usage, dict):
            return self._usage(usage)
        timings = chunk.get("timings")
        if isinstance(timings, dict) and self.source != "usage":
            self._timings(timings)
        return None

    def _usage(self, usage: Mapping[str, Any]) -> int | None:
        output = _count(usage.get("completion_tokens"))
        if output is not None:
            self.output_tokens, self.source = output, "usage"
        given = _count(usage.get("prompt_tokens"))
        self.input_tokens = self.input_tokens if given is None else given
        details = usage.get("prompt_tokens_details")
        cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
        self.cached_input_tokens = self.cached_input_tokens if cached is None else cached
        return output

    def _timings(self, timings: Mapping[str, Any]) -> None:
        output = _count(timings.get("predicted_n"))
        if output is not None:
            self.output_tokens, self.source = output, "timings"
        read, cached = _count(timings.get("prompt_n")), _count(timings.get("cache_n"))
        self.cached_input_tokens = cached
        self.input_tokens = None if read is None or cached is None else read + cached


def _count(value: Any) -> int | None:
    """A number of tokens, or None for anything that is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
