"""The table of sources says what is known now, and not what was known when the last sample came."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from views import tables

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def row(source: str, state: str, ago_seconds: float | None, interval_seconds: float = 2.0) -> dict[str, Any]:
    ts = None if ago_seconds is None else NOW - timedelta(seconds=ago_seconds)
    return {"source_id": source, "state": state, "ts": ts, "interval_seconds": interval_seconds}


@pytest.mark.parametrize(
    ("state", "ago_seconds", "interval_seconds", "told"),
    [
        ("ready", 2, 2, "\N{BLACK CIRCLE} ready"),
        ("ready", 14, 2, "\N{BLACK CIRCLE} ready"),  # a few late samples are no silence
        ("ready", 26 * 60, 2, "\N{WHITE CIRCLE} not sampled any more, was ready"),
        ("ok", 40, 10, "\N{BLACK CIRCLE} ok"),
        ("unreachable", 51, 10, "\N{WHITE CIRCLE} not sampled any more, was unreachable"),
        ("stopped", 26 * 60, 2, "\N{WHITE CIRCLE} stopped"),
        ("driver_missing", None, 2, "\N{WHITE CIRCLE} driver missing"),
    ],
)
def test_a_source_that_went_silent_is_not_said_to_be_ready(state, ago_seconds, interval_seconds, told):
    frame = tables.source_frame([row("engine:vllm-8000", state, ago_seconds, interval_seconds)], NOW)
    assert frame["state"].tolist() == [told]


def test_silent_sources_stand_below_those_that_are_sampled():
    frame = tables.source_frame([row("a", "ready", 600), row("b", "ready", 1), row("c", "unreachable", 1)], NOW)
    assert frame["source"].tolist() == ["c", "b", "a"]
