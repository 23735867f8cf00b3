"""
KV waste against the figures of the PagedAttention paper (arXiv 2309.06180) and its own arithmetic.

ShareGPT in the paper (figure 11): mean input 161.31 and mean output 337.99 tokens; the systems compared reserve
2,048 tokens a request. The vLLM announcement (2023-06-20) states 60 % to 80 % waste for such systems, and under
4 % with paging.
"""

import pytest

from calculator.model import CalculatorError
from calculator.waste import exponential_lengths, kv_waste, uniform_lengths


def test_sharegpt_like_lengths_waste_what_the_paper_says() -> None:
    found = kv_waste(exponential_lengths(499, 2048), reserved_tokens=2048, block_tokens=16)
    assert 0.60 < found.contiguous_fraction < 0.80
    assert found.paged_fraction < 0.04
    # With a cut at 2,048 the mean of an exponential distribution of mean 499 is 499 (1 - e^(-2048/499)) = 490.8.
    assert found.used_tokens == pytest.approx(490.8, rel=0.005)


def test_every_length_of_one_block_wastes_half_a_block_on_average() -> None:
    # All lengths 1..16 equally often: (15 + 14 + ... + 0) / 16 = 7.5 tokens a request stay empty.
    found = kv_waste(dict.fromkeys(range(1, 17), 1.0), reserved_tokens=16, block_tokens=16)
    assert found.paged_tokens - found.used_tokens == 7.5
    # With blocks of one token nothing is wasted; contiguous reservation of 16 wastes the same 7.5.
    tight = kv_waste(dict.fromkeys(range(1, 17), 1.0), reserved_tokens=16, block_tokens=1)
    assert tight.paged_fraction == 0
    assert tight.contiguous_fraction == pytest.approx(7.5 / 16)


def test_large_blocks_of_hybrid_models_waste_most_of_a_short_request() -> None:
    # A block of 1,056 tokens (vLLM's attention block of a hybrid) for 100 tokens: 956 of 1,056 are empty.
    assert kv_waste({100: 1.0}, 8192, block_tokens=1056).paged_fraction == pytest.approx(956 / 1056)


def test_weights_count() -> None:
    found = kv_waste({100: 3.0, 500: 1.0}, reserved_tokens=1000, block_tokens=100)
    assert (found.used_tokens, found.paged_tokens) == (200, 200)
    assert found.gain == 5


def test_uniform_lengths_include_both_ends() -> None:
    lengths = uniform_lengths(10, 1000, steps=100)
    assert (min(lengths), max(lengths), len(lengths)) == (10, 1000, 100)
    assert uniform_lengths(7, 7) == {7: 1.0}


@pytest.mark.parametrize(
    ("lengths", "reserved", "message"),
    [
        ({}, 100, "weights"),
        ({10: 0.0}, 100, "weights"),
        ({10: -1.0, 20: 5.0}, 100, "weights"),
        ({10: float("nan")}, 100, "weights"),
        ({0: 1.0}, 100, "not possible"),
        ({101: 1.0}, 100, "longer than the 100"),
        ({10: 1.0}, 0, "at least 1"),
    ],
)
def test_impossible_distributions_are_refused(lengths: dict[int, float], reserved: int, message: str) -> None:
    with pytest.raises(CalculatorError, match=message):
        kv_waste(lengths, reserved)
