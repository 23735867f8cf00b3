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


def test_a_model_behind_a_router_has_an_id_of_its_own() -> None:
    assert engine_id_of("llama.cpp", "http://127.0.0.1:8080", "tiny") == "llama.cpp-8080-tiny"
    name = "ggml-org/gemma-3:Q4_K_M"
    assert engine_id_of("llama.cpp", "http://10.0.0.7:8080", name) == "llama.cpp-10.0.0.7-8080-ggml-org--gemma-3-Q4_K_M"


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


def model_endpoint(start: float | None) -> Endpoint:
    return Endpoint("http://127.0.0.1:8080", "router", pid=77 if start else None, process_start=start, model="tiny")


def model_identity() -> Identity:
    return Identity(kind="llama.cpp", state=EngineState.READY, model_id="tiny")


STOPPED = EngineReading(state=EngineState.STOPPED, detail="The router has unloaded the model.")


@pytest.mark.parametrize("starts", [(1000.0, 2000.0), (None, None)], ids=["child seen", "child unseen"])
def test_a_model_that_is_unloaded_and_loaded_again_begins_an_epoch(starts: tuple[float | None, float | None]) -> None:
    registry = Registry("h")
    first, _ = registry.attach(model_endpoint(starts[0]), LLAMA, model_identity(), NOON)
    registry.observe(first, STOPPED, NOON)
    later = NOON + timedelta(seconds=30)
    second, rows = registry.attach(model_endpoint(starts[1]), LLAMA, model_identity(), later)
    assert second.engine.engine_id == first.engine.engine_id == "llama.cpp-8080-tiny"
    assert second.epoch.epoch_id != first.epoch.epoch_id
    assert kinds(rows) == ["restarted"]
    assert second.engine.label == "llama.cpp · tiny"


def test_a_router_and_its_models_are_told_apart() -> None:
    registry = Registry("h")
    facts = {"role": "router", "models": {"tiny": "loaded"}}
    front = Endpoint("http://127.0.0.1:8080", "test")
    router, _ = registry.attach(front, LLAMA, Identity("llama.cpp", EngineState.READY, facts=facts), NOON)
    model, _ = registry.attach(model_endpoint(None), LLAMA, model_identity(), NOON)
    assert (router.engine.engine_id, router.engine.label) == ("llama.cpp-8080", "llama.cpp router")
    assert model.engine.label == "llama.cpp · tiny"


def test_a_model_that_ollama_exchanges_begins_one_epoch() -> None:
    """Its name changes in the identity and its child in the sample: both are the same change."""
    ollama = next(a for a in ADAPTERS if a.kind == "ollama")
    registry, at = Registry("h"), Endpoint("http://127.0.0.1:11434", "test", pid=9, process_start=10.0)

    def serves(model: str | None) -> Identity:
        return Identity("ollama", EngineState.READY, model_id=model, models_come_and_go=True)

    def sampled(child: str) -> EngineReading:
        return replace(reading(5.0, child), marker_change="counts anew: a model was loaded or unloaded")

    before, _ = registry.attach(at, ollama, serves("a"), NOON)
    before, _ = registry.observe(before, sampled("41@1"), NOON)
    after, rows = registry.attach(at, ollama, serves("b"), NOON + timedelta(seconds=5))
    assert kinds(rows) == ["configuration_changed"]
    after, rows = registry.observe(after, sampled("42@7"), NOON + timedelta(seconds=6))
    assert kinds(rows) == []
    again, rows = registry.observe(after, sampled("43@9"), NOON + timedelta(seconds=60))
    assert again.epoch.epoch_id != after.epoch.epoch_id  # the same model, loaded again
    (event,) = [row for row in rows if isinstance(row, Event)]
    assert event.text == "Ollama · b counts anew: a model was loaded or unloaded"


def test_a_counter_that_was_hidden_for_a_while_still_tells_a_restart() -> None:
    """TGI's families vanish with a restart and come back with the first request."""
    registry = Registry("h")
    attached, _ = registry.attach(endpoint(), VLLM, identity(), NOON)
    registry.observe(attached, reading(1000), NOON)
    registry.observe(attached, EngineReading(EngineState.READY), NOON + timedelta(seconds=2))
    other = EngineReading(EngineState.READY, readings={"requests_finished_total": Reading(1, "x")})
    registry.observe(attached, other, NOON + timedelta(seconds=4))
    _, rows = registry.observe(attached, reading(3), NOON + timedelta(seconds=6))
    assert kinds(rows) == ["restarted"]
