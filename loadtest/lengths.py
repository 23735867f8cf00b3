"""How long prompts are to be, in tokens: the same sequence for every endpoint, so that all get the same work."""

from __future__ import annotations

import math
from random import Random

from loadtest.spec import InputSpec

MOST_TOKENS = 1_000_000


def draw(spec: InputSpec, random: Random) -> int:
    """
    One length. `uniform`: any whole number from least to greatest, both included. `lognormal`: median `tokens`, cut to
    the given bounds, which makes the mean of what is sent differ from that of the distribution.
    """
    if spec.distribution == "fixed":
        return spec.tokens
    least, most = spec.tokens_min or 1, spec.tokens_max or MOST_TOKENS
    if spec.distribution == "uniform":
        return random.randint(least, most)
    return min(most, max(least, round(random.lognormvariate(math.log(spec.tokens), spec.sigma))))


def greatest(spec: InputSpec) -> int:
    """The longest prompt that is likely: the bound, or for an unbounded log-normal one in a thousand."""
    if spec.distribution == "fixed":
        return spec.tokens
    return spec.tokens_max or round(spec.tokens * math.exp(3.1 * spec.sigma))
