"""
The heat map against every cell planned by itself: for catalogue models of each kind on both sides of "fits".

The shortcut of `heat_map` rests on memory that never falls with a longer context or one more user; planning every
pair proves the result whatever it rests on.
"""

from dataclasses import replace

import pytest

from calculator.devices import GIB, parse_devices
from calculator.heatmap import Cell, fits_together, heat_map
from calculator.llamacpp_settings import LlamaCppSettings
from calculator.model import Device, DevicePlan, Fits, Interval, MemoryPlan
from calculator.plan import load_model, plan

CONTEXTS = [512, 2048, 8192, 16384, 40960, 131072]
USERS = [1, 2, 5, 16, 48, 200]
HOST = Device("host", 64 * GIB)


@pytest.mark.parametrize(
    ("name", "devices"),
    [
        ("Qwen3-8B:Q4_K_M", "rtx-4090"),
        ("gpt-oss-20b", "24GiB"),  # sliding windows
        ("Qwen3-Next-80B-A3B-Instruct:Q4_K_M", "h100"),  # recurrent state
        ("DeepSeek-V3:Q4_K_M", "4xh200"),  # compressed cache, does not fit at all
    ],
)
def test_the_map_is_what_planning_every_pair_gives(name: str, devices: str) -> None:
    model, places = load_model(name), parse_devices(devices)
    asked: list[tuple[int, int]] = []

    def planner(context: int, users: int) -> MemoryPlan:
        asked.append((context, users))
        settings = LlamaCppSettings(context=context * users, parallel=users)
        return plan(model, settings, places, HOST, remedies=False)

    found = heat_map(planner, CONTEXTS, USERS)
    shortcut = len(asked)
    expected = [
        Cell(context, users, fits_together(planner(context, users), users)) for users in USERS for context in CONTEXTS
    ]
    assert list(found) == expected
    assert shortcut <= 2 * (len(CONTEXTS) + len(USERS))


def place(fits: Fits | None, total: int = 10) -> DevicePlan:
    none = Interval.exactly(0)
    return DevicePlan("x", 100, total, 0, 0, none, none, fits)


def whole(*devices: DevicePlan, concurrency: float | None = None) -> MemoryPlan:
    return MemoryPlan("vllm", "0.32.0", "m", devices, place(None, 0), 0, None, concurrency, None, ())


def test_the_worst_place_decides_and_an_unstated_one_says_nothing() -> None:
    assert fits_together(whole(place(Fits.YES), place(Fits.NO))) == Fits.NO
    assert fits_together(whole(place(Fits.YES), place(Fits.MAYBE))) == Fits.MAYBE
    assert fits_together(whole(place(Fits.YES), place(None))) == Fits.YES


def test_a_cache_that_holds_fewer_requests_than_there_are_users_does_not_fit() -> None:
    assert fits_together(whole(place(Fits.YES), concurrency=7.9), users=8) == Fits.NO
    assert fits_together(replace(whole(place(Fits.YES)), max_concurrency=8.0), users=8) == Fits.YES


def test_axes_are_taken_in_rising_order_without_doubles() -> None:
    cells = heat_map(lambda context, users: whole(place(Fits.YES)), [2, 1, 2], [3, 1])
    assert [(cell.context_tokens, cell.users) for cell in cells] == [(1, 1), (2, 1), (1, 3), (2, 3)]
