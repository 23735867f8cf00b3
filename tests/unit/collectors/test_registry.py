"""Engines keep their identity over restarts; every life of a process is an epoch of its own."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

import pytest

from collectors.engines import ADAPTERS
from collectors.engines.base import Endpoint, EngineReading, Identity, Reading
from collectors.registry import Registry, engine_id_of, short_model_name
from store.model import Engine, EngineState, Epoch, Event

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
VLLM = next(a for a in ADAPTERS if a.kind == "vllm")
LLAMA = next(a for a in ADAPTERS if a.kind == "llama.cpp")


def endpoint(start: float | None = None, url: str = "http://127.0.0.1:8000", name: str | None = None) -> Endpoint:
    return Endpoint(url=url, found_by="test", name=name, pid=4711, process_start=start, arguments=("vllm", "serve"))


def identity(model: str | None = "Qwen/Qwen3-8B", version: str | None = "0.32.0") -> Identity:
    return Identity(kind="vllm", state=EngineState.READY, version=version, model_id=model)


def reading(generated: float, marker: str | None = None) -> EngineReading:
    return EngineReading(
        state=EngineState.READY,
        readings={"generation_tokens_total": Reading(generated, "vllm:generation_tokens_total")},
        restart_marker=marker,
    )


def kinds(rows: list[object]) -> list[str]:
    return [row.kind for row in rows if isinstance(row, Event)]


@pytest.mark.parametrize(
    ("kind", "url", "expected"),
    [
        ("vllm", "http://127.0.0.1:8000", "vllm-8000"),
        ("llama.cpp", "http://[::1]:8080", "llama.cpp-8080"),
        ("vllm", "http://10.0.0.7:8000", "vllm-10.0.0.7-8000"),
        ("vllm", "https://gpu.example/llm", "vllm-gpu.example-443-llm"),
    ],
)
def test_engine_id_is_kind_and_address(kind: str, url: str, expected: str) -> None:
    assert engine_id_of(kind, url) == expected


def test_short_model_name() -> None:
    assert short_model_name("/models/SmolLM2-135M-Instruct.Q4_1.gguf") == "SmolLM2-135M-Instruct.Q4_1"
    assert short_model_name("Qwen/Qwen3-8B") == "Qwen3-8B"
    assert short_model_name(None) is None


def test_first_sight_opens_an_epoch_at_the_process_start() -> None:
    start = (NOON - timedelta(hours=1)).timestamp()
    attached, rows = Registry("box").attach(endpoint(start), VLLM, identity(), NOON)
    assert attached.engine.label == "vLLM · Qwen3-8B"
    assert attached.epoch.started == NOON - timedelta(hours=1)
    assert attached.epoch.started_is_process_start
    assert [type(row) for row in rows] == [Engine, Epoch, Event]
    assert kinds(rows) == ["started"]


def test_seeing_the_same_process_again_changes_nothing() -> None:
    registry = Registry("box")
    first, _ = registry.attach(endpoint(1000.0), VLLM, identity(), NOON)
    again, rows = registry.attach(endpoint(1000.4), VLLM, identity(), NOON + timedelta(seconds=30))
    assert again.epoch == first.epoch
    assert rows == []


def test_another_process_is_a_restart_of_the_same_engine() -> None:
    registry = Registry("box")
    first, _ = registry.attach(endpoint(1000.0), VLLM, identity(), NOON)
    second, rows = registry.attach(endpoint(5000.0), VLLM, identity(version="0.33.0"), NOON)
    assert second.engine.engine_id == first.engine.engine_id
    assert second.epoch.epoch_id != first.epoch.epoch_id
    assert kinds(rows) == ["restarted"]
    assert "version 0.32.0 → 0.33.0" in next(row.text for row in rows if isinstance(row, Event))


@pytest.mark.parametrize(
    "after", [reading(10.0), reading(200.0, marker="b")], ids=["a counter went back", "the start marker changed"]
)
def test_a_restart_is_noticed_where_the_process_cannot_be_seen(after: EngineReading) -> None:
    registry = Registry("box")
    attached, _ = registry.attach(endpoint(), VLLM, identity(), NOON)
    attached, rows = registry.observe(attached, reading(100.0, marker="a"), NOON)
    assert rows == []
    later, rows = registry.observe(attached, after, NOON + timedelta(seconds=2))
    assert later.epoch.epoch_id != attached.epoch.epoch_id
    assert later.engine.engine_id == attached.engine.engine_id
    assert kinds(rows) == ["restarted"]
    steady, rows = registry.observe(later, replace(after, restart_marker=None), NOON + timedelta(seconds=4))
    assert steady.epoch == later.epoch
    assert rows == []


def test_an_engine_that_finished_loading_keeps_its_epoch() -> None:
    registry = Registry("box")
    loading = Identity(kind="vllm", state=EngineState.LOADING)
    first, _ = registry.attach(endpoint(1000.0), VLLM, loading, NOON)
    ready, rows = registry.attach(endpoint(1000.0), VLLM, identity(), NOON + timedelta(seconds=60))
    assert ready.epoch.epoch_id == first.epoch.epoch_id
    assert ready.epoch.model_id == "Qwen/Qwen3-8B"
    assert ready.engine.label == "vLLM · Qwen3-8B"
    assert kinds(rows) == []


def test_another_model_at_an_unseen_process_is_a_configuration_change() -> None:
    registry = Registry("box")
    first, _ = registry.attach(endpoint(), VLLM, identity(), NOON)
    second, rows = registry.attach(endpoint(), VLLM, identity("Qwen/Qwen3-4B"), NOON + timedelta(seconds=30))
    assert second.epoch.epoch_id != first.epoch.epoch_id
    assert kinds(rows) == ["configuration_changed"]


def test_a_fact_that_an_engine_does_not_tell_now_is_no_change() -> None:
    registry = Registry("box")
    first, _ = registry.attach(endpoint(1000.0), VLLM, identity(), NOON)
    busy, rows = registry.attach(endpoint(1000.0), VLLM, identity(model=None, version=None), NOON)
    assert busy.epoch == first.epoch
    assert rows == []


def test_identities_survive_the_collector() -> None:
    registry = Registry("box")
    attached, _ = registry.attach(endpoint(1000.0), VLLM, identity(), NOON)
    known = {**asdict(attached.epoch), **asdict(attached.engine)}
    again, rows = Registry("box", [known]).attach(endpoint(1000.2), VLLM, identity(), NOON + timedelta(hours=1))
    assert again.epoch == attached.epoch
    assert kinds(rows) == []


def test_an_epoch_is_not_continued_over_a_restart_of_this_host() -> None:
    registry = Registry("box")
    attached, _ = registry.attach(endpoint(), VLLM, identity(), NOON)
    known = {**asdict(attached.epoch), **asdict(attached.engine)}
    rebooted = Registry("box", [known], booted=NOON + timedelta(minutes=5))
    again, rows = rebooted.attach(endpoint(), VLLM, identity(), NOON + timedelta(minutes=6))
    assert again.epoch.epoch_id != attached.epoch.epoch_id
    assert kinds(rows) == ["restarted"]


def test_labels_are_unique() -> None:
    registry = Registry("box")
    first, _ = registry.attach(endpoint(1.0), VLLM, identity(), NOON)
    second, _ = registry.attach(endpoint(2.0, "http://127.0.0.1:8001"), VLLM, identity(), NOON)
    named, _ = registry.attach(endpoint(3.0, "http://127.0.0.1:8002", name="chat"), VLLM, identity(), NOON)
    assert [x.engine.label for x in (first, second, named)] == [
        "vLLM · Qwen3-8B",
        "vLLM · Qwen3-8B (8001)",
        "chat",
    ]


def test_two_kinds_on_one_port_over_time_are_two_engines() -> None:
    registry = Registry("box")
    first, _ = registry.attach(endpoint(1.0), VLLM, identity(), NOON)
    other = Identity(kind="llama.cpp", state=EngineState.READY, model_id="m.gguf")
    second, _ = registry.attach(endpoint(2.0), LLAMA, other, NOON)
    assert first.engine.engine_id == "vllm-8000"
    assert second.engine.engine_id == "llama.cpp-8000"
