"""
KV cache that holds no token: contiguous reservation against paging, for a distribution of request lengths.

A request of `length` tokens (prompt and output together) occupies
- with *contiguous reservation* of the longest possible request, `reserved` tokens from its first to its last
  moment, whatever it uses (systems before vLLM; a llama.cpp slot, whose cells no other slot can borrow);
- with *paging*, ceil(length / block) blocks, of which only the last is partly empty.

Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention",
SOSP 2023, arXiv 2309.06180, sections 1, 3.1 and 4.3. Their measurement of 20.4 % to 38.2 % of the memory used is
of real traces; what is computed here is this distribution's own figure. While a request grows it holds fewer
tokens than at its end, so a snapshot in between shows more waste than the end of life shown here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from calculator.model import CalculatorError

MAX_TOKENS = 2**31


@dataclass(frozen=True, slots=True)
class Waste:
    """Tokens reserved per request and used, on average over the requests; shares are 0..1 of what is reserved."""

    used_tokens: float
    contiguous_tokens: float
    paged_tokens: float

    @property
    def contiguous_fraction(self) -> float:
        """Share of the contiguous reservation that holds no token."""
        return 1 - self.used_tokens / self.contiguous_tokens

    @property
    def paged_fraction(self) -> float:
        """Share of the allocated blocks that holds no token."""
        return 1 - self.used_tokens / self.paged_tokens

    @property
    def gain(self) -> float:
        """How many times as many requests fit into the same memory with paging."""
        return self.contiguous_tokens / self.paged_tokens


def kv_waste(lengths: Mapping[int, float], reserved_tokens: int, block_tokens: int = 16) -> Waste:
    """
    Waste at the end of requests whose lengths in tokens are distributed as `lengths` says (length -> weight).

    `reserved_tokens` is what contiguous reservation sets aside for each request. Raises `CalculatorError` when a
    length is not between 1 and `reserved_tokens`, or the weights are not positive numbers.
    """
    if not 1 <= reserved_tokens <= MAX_TOKENS or not 1 <= block_tokens <= MAX_TOKENS:
        raise CalculatorError("the reserved tokens and the block size must be at least 1 token")
    total = sum(lengths.values())
    if not lengths or not math.isfinite(total) or total <= 0 or min(lengths.values()) < 0:
        raise CalculatorError("the request lengths need weights that are not negative and not all 0")
    if min(lengths) < 1:
        raise CalculatorError(f"a request of {min(lengths)} tokens is not possible")
    if max(lengths) > reserved_tokens:
        raise CalculatorError(
            f"a request of {max(lengths)} tokens is longer than the {reserved_tokens} tokens that are reserved for it"
        )
    used = sum(length * weight for length, weight in lengths.items()) / total
    paged = sum(-(-length // block_tokens) * block_tokens * weight for length, weight in lengths.items()) / total
    return Waste(used_tokens=used, contiguous_tokens=float(reserved_tokens), paged_tokens=paged)


def exponential_lengths(mean_tokens: int, longest_tokens: int, steps: int = 200) -> dict[int, float]:
    """
    Lengths whose share falls off exponentially with the given mean before the cut at `longest_tokens`.

    Chats look roughly so: many short, few long. What would be longer is counted as `longest_tokens`, as a server
    with that limit cuts it. `steps` lengths stand for all. Raises `CalculatorError` for lengths below 1.
    """
    if mean_tokens < 1 or longest_tokens < 1:
        raise CalculatorError("mean and longest length must be at least 1 token")
    edges = [longest_tokens * step / steps for step in range(steps + 1)]
    lengths: dict[int, float] = {}
    for low, high in pairwise(edges):
        share = math.exp(-low / mean_tokens) - math.exp(-high / mean_tokens)
        middle = min(longest_tokens, max(1, round((low + high) / 2)))
        lengths[middle] = lengths.get(middle, 0.0) + share
    lengths[longest_tokens] = lengths.get(longest_tokens, 0.0) + math.exp(-longest_tokens / mean_tokens)
    return lengths


def uniform_lengths(shortest_tokens: int, longest_tokens: int, steps: int = 200) -> dict[int, float]:
    """
    All lengths between two bounds equally often. `steps` at most stand for all; raises `CalculatorError`.

    The first and last length are always among them.
    """
    if not 1 <= shortest_tokens <= longest_tokens:
        raise CalculatorError("the shortest length must be at least 1 token and at most the longest")
    count = min(steps, longest_tokens - shortest_tokens + 1)
    if count == 1:
        return {longest_tokens: 1.0}
    span = longest_tokens - shortest_tokens
    return {shortest_tokens + round(span * step / (count - 1)): 1.0 for step in range(count)}
