"""Figures and ratios as the Compare table words them. Expected texts are rounded by hand."""

import pytest

from comparison.measures import BY_KEY
from views.compare_table import _factor, difference_words, signed_words, value_words


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("generation", 612.4, "612 tok/s"),
        ("requests", 5.789, "5.79 requests/s"),
        ("ttft_p50", 0.0934, "93.4 ms"),
        ("device_memory", 70.1 * 2**30, "70.1 GiB"),
        ("kv_used", 0.281, "28 %"),
        ("power", 310.9, "311 W"),
        ("energy", 3_640_000.0, "3.64 MJ"),
        ("energy", 7_714.0, "7.71 kJ"),
        ("energy", 990.0, "990 J"),
        ("joules_per_token", 0.2689, "0.269 J"),
        ("preemptions", 1750.0, "1,750"),
        ("cpu", 0.563, "0.56 cores"),
    ],
)
def test_every_figure_has_its_unit(key, value, words):
    assert value_words(BY_KEY[key], value) == words


def test_differences_have_a_sign_and_shares_differ_in_points():
    assert signed_words(BY_KEY["generation"], -512.0) == "\N{MINUS SIGN}512 tok/s"
    assert signed_words(BY_KEY["kv_used"], 0.63) == "+63 points"
    assert signed_words(BY_KEY["power"], 0.0) == "no difference"


@pytest.mark.parametrize(("key", "value"), [("host_memory", -0.3), ("cpu", 0.004), ("generation", 0.0)])
def test_a_difference_too_small_to_be_shown_has_no_sign(key, value):
    assert difference_words(BY_KEY[key], value) in ("nearly the same", "no difference")
    assert difference_words(BY_KEY["host_memory"], 2.0**30).startswith("+1")


@pytest.mark.parametrize(
    ("value", "words"),
    [(13.145, "13.1"), (1.0, "1.00"), (9.99, "9.99"), (0.4, "0.400"), (0.0132, "0.0132"), (1250.0, "1,250")],
)
def test_ratios_have_three_digits(value, words):
    assert _factor(value) == words
