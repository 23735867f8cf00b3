"""Gauges that stay while nothing moves (engines.md 6.1: vllm-project/vllm#29928) are told, and nothing else is."""

from __future__ import annotations

from collectors.engines.base import EngineReading, Reading
from collectors.stillness import STILL_SECONDS, Stillness
from store.model import EngineState


def reading(running: float | None, tokens: float, state: EngineState = EngineState.READY) -> EngineReading:
    return EngineReading(
        state=state,
        readings={
            "requests_running": Reading(running, "vllm:num_requests_running"),
            "generation_tokens_total": Reading(tokens, "vllm:generation_tokens_total"),
        },
    )


def test_running_requests_without_any_movement_are_told_after_a_while() -> None:
    stillness = Stillness()
    assert stillness.remark(reading(3, 100), 0) is None
    assert stillness.remark(reading(3, 100), STILL_SECONDS - 1) is None
    remark = stillness.remark(reading(3, 100), STILL_SECONDS + 4)
    assert remark is not None
    assert remark.startswith("3 request(s) are shown as running, but no counter has moved for 34 s")


def test_movement_idleness_and_silence_begin_anew() -> None:
    for between in (reading(3, 101), reading(0, 100), reading(None, 100), reading(3, 100, EngineState.BUSY)):
        stillness = Stillness()
        stillness.remark(reading(3, 100), 0)
        stillness.remark(between, STILL_SECONDS - 1)
        assert stillness.remark(reading(3, 100), STILL_SECONDS + 1) is None
