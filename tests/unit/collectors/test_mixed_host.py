"""
A host with every engine, each as real processes on the real /proc (tests/support/engines.py): found once, under its
own name, its memory its own, and nothing that is asked of any of them changes it.

Expected values: the pids and ports that the test started, and what stands in the payloads that each engine answers
with (tests/fixtures/README.md).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from collectors.attribution import TreeUsage, device_rows
from collectors.devices.base import DeviceProcess, DeviceReading
from collectors.discovery import candidates
from collectors.discovery_source import DiscoverySource
from collectors.engines import ADAPTERS
from collectors.http import HttpClient
from collectors.processes import ProcessTable
from collectors.registry import Registry
from collectors.scheduler import Scheduler
from settings import CollectorSettings, Settings
from store.model import EngineSample, EngineState, Epoch, Event, QuantityOffer, Row, SourceState
from tests.support.engines import (
    LLAMA_SERVER,
    OLLAMA_IDLE,
    Engine,
    llamacpp_router,
    of_model,
    old_llamacpp,
    ollama_server,
    router_answers,
    router_models,
    sglang,
    tgi,
    vllm_data_parallel,
)
from tests.support.wait import until

HARMLESS = {
    "vllm": {"/version", "/v1/models", "/metrics", "/health"},
    "router": {"/props", "/models", "/v1/models", "/metrics", "/slots"},
    "old": {"/props", "/v1/models", "/metrics", "/slots"},
    "sglang": {"/model_info", "/v1/models", "/server_info", "/metrics"},
    "tgi": {"/info", "/metrics"},
    "ollama": {"/api/version", "/api/ps"},
}
GIB = 2**30


class Recorder:
    """A sink that keeps all rows."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[Row] = []

    def put(self, rows: Sequence[Row]) -> None:
        with self._lock:
            self._rows += rows

    def of(self, kind: type) -> list:
        with self._lock:
            return [row for row in self._rows if isinstance(row, kind)]


class Host:
    """The engines of one host and the part of a collector that finds and samples them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        def start(make: Callable[..., Engine], name: str) -> Engine:
            (folder / name).mkdir()
            return stack.enter_context(make(folder / name))

        self.engines = {
            "vllm": start(vllm_data_parallel, "vllm"),
            "router": start(llamacpp_router, "router"),
            "old": start(old_llamacpp, "old"),
            "sglang": start(sglang, "sglang"),
            "tgi": start(tgi, "tgi"),
            "ollama": start(ollama_server, "ollama"),
        }
        self.settings = Settings(data=folder, host="box", collector=CollectorSettings(engine_interval_seconds=0.5))
        self.table, self.sink, self.registry = ProcessTable(), Recorder(), Registry("box")
        self.http = stack.enter_context(HttpClient(self.settings.collector))
        self.scheduler = Scheduler(self.sink, "box")
        self.discovery = DiscoverySource(self.settings, ADAPTERS, self.registry, self.scheduler, self.http, self.table)
        stack.callback(self.discovery.close)
        stack.callback(self.scheduler.stop)

    def look(self) -> None:
        """One pass of discovery, as the scheduler makes it every 5 s."""
        self.discovery.run(datetime.now(UTC), time.monotonic())

    def id_of(self, name: str) -> str:
        kind = {"router": "llama.cpp", "old": "llama.cpp"}.get(name, name)
        return f"{kind}-{self.engines[name].port}"

    @property
    def model_id(self) -> str:
        return f"{self.id_of('router')}-tiny"

    def ours(self) -> dict[str, object]:
        """Engine of this test -> its root; other engines that this machine may run are left out."""
        ports = {str(engine.port) for engine in self.engines.values()}
        return {r.engine_id: r for r in self.discovery.roots() if r.engine_id.split("-")[1] in ports}

    def samples(self, engine_id: str, state: EngineState | None = None) -> list[EngineSample]:
        rows = [row for row in self.sink.of(EngineSample) if row.engine_id == engine_id]
        return [row for row in rows if state is None or row.state == state]

    def newest(self, engine_id: str) -> EngineSample:
        return until(lambda: self.samples(engine_id), what=f"a sample of {engine_id}")[-1]

    def after(self, engine_id: str, state: EngineState, epochs: int = 0) -> EngineSample:
        """The first sample in this state, looking again and again, from the epoch with this number on."""

        def found() -> list[EngineSample]:
            self.look()
            begun = list(dict.fromkeys(row.epoch_id for row in self.samples(engine_id)))
            return [row for row in self.samples(engine_id, state) if row.epoch_id in begun[epochs:]]

        return until(found, what=f"{engine_id} to be {state}")[0]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with ExitStack() as stack:
        yield Host(tmp_path, stack)


def test_each_engine_is_found_once_and_children_are_not_engines(host: Host) -> None:
    host.look()
    assert set(host.ours()) == {*map(host.id_of, host.engines), host.model_id}
    labels = {engine.engine_id: engine.label for engine in host.registry.engines() if engine.engine_id in host.ours()}
    assert labels == {
        host.id_of("vllm"): "vLLM · Qwen2.5-7B-Instruct",
        host.id_of("router"): "llama.cpp router",
        host.model_id: "llama.cpp · tiny",
        host.id_of("old"): "llama.cpp · old",
        host.id_of("sglang"): "SGLang · Qwen2.5-7B-Instruct",
        host.id_of("tgi"): "TGI · Qwen2.5-7B-Instruct",
        host.id_of("ollama"): "Ollama · qwen3:8b",
    }
    pids = {pid for engine in host.engines.values() for pid in engine.pids.values()}
    found = candidates(host.settings, ADAPTERS, host.table.snapshot(sockets=True))
    assert sorted(e.pid for e in found if e.pid in pids) == sorted(engine.pid for engine in host.engines.values())


def test_the_processes_of_an_engine_hold_its_memory(host: Host) -> None:
    host.look()
    engines = [*host.ours().values()]
    held = {
        host.id_of("vllm"): ("vllm", ["VLLM::Worker_DP0_TP0", "VLLM::Worker_DP1_TP0", "VLLM::EngineCore_DP1"]),
        host.id_of("router"): ("router", ["root"]),
        host.model_id: ("router", ["tiny"]),
        host.id_of("sglang"): ("sglang", ["sglang::scheduler_TP0", "sglang::scheduler_TP1"]),
        host.id_of("tgi"): ("tgi", ["shard"]),
        host.id_of("ollama"): ("ollama", ["model"]),
    }
    owners = {host.engines[name].pids[key]: engine_id for engine_id, (name, keys) in held.items() for key in keys}
    processes = tuple(DeviceProcess("GPU-a", pid, GIB, "nvml_process") for pid in owners)
    reading = DeviceReading(SourceState.OK, None, (), (), processes)
    snapshot = host.table.snapshot()
    rows, detail = device_rows(datetime.now(UTC), "box", engines, reading, snapshot)
    assert {row.pid: row.engine_id for row in rows} == owners
    assert detail is None
    usage = TreeUsage().rows(datetime.now(UTC), 1.0, "box", engines, snapshot)
    # vLLM: root, API server, coordinator, 2 cores, 2 workers; SGLang: root, 2 schedulers, detokenizer;
    # TGI: launcher, router, shard; Ollama and its child; the router alone, its child apart
    assert {row.engine_id: row.process_count for row in usage} == {
        host.id_of("vllm"): 7,
        host.id_of("router"): 1,
        host.model_id: 1,
        host.id_of("old"): 1,
        host.id_of("sglang"): 4,
        host.id_of("tgi"): 3,
        host.id_of("ollama"): 2,
    }


def test_every_engine_is_sampled_and_none_is_changed(host: Host) -> None:
    host.look()
    newest = {engine_id: host.newest(engine_id) for engine_id in host.ours()}
    assert {row.state for row in newest.values()} == {EngineState.READY}
    # vllm_0.33_dp2_multiproc.prom is the sum of both engines; the others are the files that tests/support/engines names
    assert newest[host.id_of("sglang")].generation_live_tokens_total == 40680
    assert newest[host.id_of("tgi")].generation_tokens_total == 2852
    assert newest[host.id_of("old")].kv_used_fraction == 0.187439
    assert newest[host.model_id].generation_live_tokens_total == 228
    assert newest[host.id_of("router")].generation_tokens_total is None
    assert newest[host.id_of("ollama")].requests_running == 1  # its child's /slots
    host.look()  # identities are asked again
    until(lambda: all(len(host.samples(engine_id)) > 1 for engine_id in host.ours()), what="second samples")
    for name, engine in host.engines.items():
        asked = engine.scripts["root"].requests
        assert asked
        for line in asked:
            method, path = line.split(" ")
            query = parse_qs(urlsplit(path).query)
            assert method == "GET"
            assert urlsplit(path).path in HARMLESS[name]
            assert query in ({}, {"model": ["tiny"], "autoload": ["false"]})
    child = host.engines["ollama"].scripts["model"].requests
    assert set(child) == {"GET /metrics", "GET /slots"}


def test_what_ollama_does_not_tell_is_told_with_its_remedy(host: Host) -> None:
    host.look()
    host.newest(host.id_of("ollama"))
    offers = {o.quantity: o for o in host.sink.of(QuantityOffer) if o.engine_id == host.id_of("ollama")}
    assert "LLAMA_ARG_ENDPOINT_METRICS=1" in (offers["generation_tokens_total"].remedy or "")
    assert offers["requests_running"].source == "llama-server child: /slots is_processing"


def test_a_model_that_is_unloaded_stops_and_loaded_again_begins_a_new_life(host: Host) -> None:
    router = host.engines["router"]
    host.look()
    host.newest(host.model_id)
    loaded = router_answers(1)["/models"]
    unloaded = router_models(1, value="unloaded")
    answers = router_answers(1)
    router.scripts["root"].answer(answers | {"/models": unloaded, "/v1/models": unloaded})
    stopped = host.after(host.model_id, EngineState.STOPPED)
    assert "unloaded the model" in (stopped.detail or "")
    assert host.newest(host.id_of("router")).state == EngineState.READY
    before = len(router.scripts["root"].requests)
    until(lambda: len(router.scripts["root"].requests) > before + 4, what="the router to be asked further")
    later = router.scripts["root"].requests[before:]
    assert not any("model=" in line for line in later)  # what is not loaded is not asked for
    router.scripts["root"].answer(answers | {"/models": loaded} | of_model(LLAMA_SERVER, "tiny"))
    again = host.after(host.model_id, EngineState.READY, epochs=1)
    assert again.epoch_id != stopped.epoch_id
    assert "restarted" in [row.kind for row in host.sink.of(Event) if row.engine_id == host.model_id]


def test_a_model_that_ollama_unloads_is_nothing_loaded_and_no_restart(host: Host) -> None:
    ollama = host.engines["ollama"]
    host.look()
    first = host.newest(host.id_of("ollama"))
    assert "stays loaded until 04:21:38 UTC" in (first.detail or "")
    ollama.scripts["root"].answer(OLLAMA_IDLE)
    host.look()
    idle = until(
        lambda: [row for row in host.samples(host.id_of("ollama")) if "No model is loaded" in (row.detail or "")],
        what="Ollama to have nothing loaded",
    )[0]
    assert idle.state == EngineState.READY
    assert idle.requests_running is None
    epochs = {row.epoch_id for row in host.sink.of(Epoch) if row.engine_id == host.id_of("ollama")}
    assert epochs == {first.epoch_id} == {idle.epoch_id}
