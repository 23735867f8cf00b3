"""
Load tests as a page asks for them, through a running collector, of a real llama.cpp server.

What the client counted is held against the server's own counters (`/metrics` of llama.cpp, read here directly).
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from store.protocol import RefusedError
from tests.support.collector import RunningCollector, running_collector
from tests.support.llamacpp import complete, get, llamacpp_server
from tests.support.wait import free_port, until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]
PATIENCE_SECONDS = 240.0  # two cores that others use as well
SMALL = {
    "levels": [1, 2],
    "repeats": 1,
    "requests": 8,
    "input": {"tokens": 20},
    "output": {"tokens": 8},
    "warmup": {"most_batches": 0},
}


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    with llamacpp_server(threads=1) as url:
        yield url


def ready(collector: RunningCollector, url: str) -> str:
    """The engine's id, when it is found ready."""
    found = until(
        lambda: e if (e := collector.engine(url)) and e["state"] == "ready" else None,
        PATIENCE_SECONDS,
        "the engine to be found",
    )
    return str(found["engine_id"])


def start(collector: RunningCollector, engine_id: str, **more: Any) -> dict[str, Any]:
    spec = {"endpoints": [{"engine_id": engine_id, "label": "llama"}], **SMALL, **more}
    return collector.client.command("loadtest_start", {"spec": spec, "name": more.get("mode", "small")})


def status(collector: RunningCollector, run_id: str) -> dict[str, Any]:
    (told,) = collector.client.command("loadtest_status", {"run_id": run_id})["runs"]
    return told


def ended(collector: RunningCollector, run_id: str) -> dict[str, Any]:
    """The stored row of a run that is over."""

    def over() -> dict[str, Any] | None:
        row = next(row for row in collector.rows("loadtest_runs") if row["run_id"] == run_id)
        return row if row["state"] not in ("waiting", "running") else None

    return until(over, PATIENCE_SECONDS, "the end of the run")


def measuring(collector: RunningCollector, run_id: str, requests: int) -> None:
    until(
        lambda: (status(collector, run_id)["done"] or 0) >= requests,
        PATIENCE_SECONDS,
        f"{requests} requests to be done",
    )


def workers(collector: RunningCollector) -> list[psutil.Process]:
    children = psutil.Process(collector.process.pid).children()
    return [child for child in children if "loadtest.worker" in child.cmdline()]


def counter(url: str, name: str) -> float:
    lines = get(f"{url}/metrics").decode().splitlines()
    return float(next(line for line in lines if line.startswith(f"llamacpp:{name} ")).split()[1])


def port(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def test_a_sweep_is_measured_stored_and_agrees_with_the_servers_own_count(llama: str, tmp_path: Path) -> None:
    with running_collector(tmp_path, port(llama)) as collector:
        engine_id = ready(collector, llama)
        run_id = start(collector, engine_id)["run_id"]
        row = ended(collector, run_id)
        assert (row["state"], row["detail"]) == ("finished", None)
        stages = collector.rows("loadtest_stages", run_id=run_id)
        assert [(s["concurrency"], s["requests"], s["succeeded"]) for s in stages] == [(1, 8, 8), (2, 8, 8)]
        assert [s["output_tokens"] for s in stages] == [64, 64]  # 8 requests of 8 tokens each
        assert {(s["engine"], s["engine_id"]) for s in stages} == {("llama.cpp", engine_id)}
        assert {s["epoch_id"] for s in stages} == {e["epoch_id"] for e in collector.rows("epochs", engine_id=engine_id)}
        for stage in stages:
            counted = json.loads(stage["counters"])["difference"]
            assert counted["generation_tokens_total"] == 64
        requests = collector.rows("loadtest_requests", run_id=run_id)
        assert sum(r["output_tokens"] for r in requests) == 128
        assert all(0 < r["ttft_seconds"] <= r["e2e_seconds"] for r in requests)
        resources = collector.rows("loadtest_resources", run_id=run_id)
        assert [(r["stage_id"], r["device_id"], r["memory_method"]) for r in resources] == [
            (0, None, "rss"),
            (1, None, "rss"),
        ]
        assert all(r["memory_peak_bytes"] > 50e6 and r["samples"] > 0 for r in resources)
        assert all(r["energy_joules"] is None for r in resources)  # no device, so no figure, and not 0
        kinds = [e["kind"] for e in collector.rows("events", start=row["began"], end=row["ts"], engine_id=engine_id)]
        assert kinds == ["loadtest_ended", "loadtest_began"]
        assert "prompt" not in collector.log.read_text()


def test_a_run_is_stopped_half_way_the_next_one_has_its_turn_and_both_are_deleted(llama: str, tmp_path: Path) -> None:
    with running_collector(tmp_path, port(llama)) as collector:
        engine_id = ready(collector, llama)
        first = start(collector, engine_id, requests=100_000)["run_id"]
        second = start(collector, engine_id, requests=100_000)
        assert (second["state"], second["waits_for"]) == ("waiting", first)
        measuring(collector, first, 3)
        with pytest.raises(RefusedError, match="stop it first"):
            collector.client.command("loadtest_delete", {"run_id": first})
        collector.client.command("loadtest_stop", {"run_id": first})
        row = ended(collector, first)
        assert row["state"] == "stopped"
        (stage,) = collector.rows("loadtest_stages", run_id=first)
        assert stage["succeeded"] >= 3
        assert stage["output_tokens"] == 8 * stage["succeeded"]
        requests = collector.rows("loadtest_requests", run_id=first)
        assert sum(r["status"] == "ok" for r in requests) == stage["succeeded"]
        until(
            lambda: status(collector, second["run_id"])["state"] == "running", PATIENCE_SECONDS, "the second run's turn"
        )
        collector.client.command("loadtest_stop", {"run_id": second["run_id"]})
        ended(collector, second["run_id"])
        for run_id in (first, second["run_id"]):
            assert collector.client.command("loadtest_delete", {"run_id": run_id}) == {"deleted": True}
        assert collector.client.command("loadtest_delete", {"run_id": first}) == {"deleted": False}
        assert collector.rows("loadtest_runs") == []
        assert collector.rows("loadtest_requests", run_id=first) == []


def test_a_killed_collector_takes_its_worker_along_and_keeps_the_stages_that_were_over(
    llama: str, tmp_path: Path
) -> None:
    with running_collector(tmp_path, port(llama)) as collector:
        run_id = start(collector, ready(collector, llama), levels=[1], repeats=50)["run_id"]
        until(lambda: collector.rows("loadtest_stages", run_id=run_id), PATIENCE_SECONDS, "the first stage")
        (worker,) = workers(collector)
        collector.process.send_signal(signal.SIGKILL)
        collector.process.wait(60)
        until(
            lambda: not worker.is_running() or worker.status() == psutil.STATUS_ZOMBIE,
            PATIENCE_SECONDS,
            "the worker to end",
        )
    with running_collector(tmp_path, port(llama)) as again:
        row = ended(again, run_id)
        assert row["state"] == "interrupted"
        assert "the collector ended while it ran" in row["detail"]
        stages = again.rows("loadtest_stages", run_id=run_id)
        assert len(stages) >= 1
        assert all(stage["succeeded"] == 8 for stage in stages)
        ready(again, llama)
        assert start(again, ready(again, llama), levels=[1])["state"] == "running"  # the engine is free


def test_a_collector_that_is_stopped_stops_its_run_in_good_order(llama: str, tmp_path: Path) -> None:
    with running_collector(tmp_path, port(llama)) as collector:
        run_id = start(collector, ready(collector, llama), requests=100_000)["run_id"]
        measuring(collector, run_id, 1)
        (worker,) = workers(collector)
        collector.process.terminate()
        assert collector.process.wait(120) == 0
        assert not worker.is_running()
    with running_collector(tmp_path, port(llama)) as again:
        row = ended(again, run_id)
        assert (row["state"], row["detail"]) == ("stopped", "the collector was stopped")
        (stage,) = again.rows("loadtest_stages", run_id=run_id)
        assert stage["succeeded"] >= 1


def test_how_long_an_engine_takes_to_start_is_bounded_by_what_a_bystander_sees(tmp_path: Path) -> None:
    chosen = free_port()
    with running_collector(tmp_path, chosen) as collector:
        before = time.time()
        with llamacpp_server(chosen, threads=1) as url:
            seen_ready = time.time()  # by its /health, for which `llamacpp_server` waits
            engine_id = ready(collector, url)
            (row,) = until(
                lambda: collector.rows("startups", engine_id=engine_id), PATIENCE_SECONDS, "the start to be stored"
            )
            assert (row["note"], row["first_token_seconds"]) == (None, None)
            started = row["started"].timestamp()
            assert before - 0.1 <= started <= seen_ready
            # ready after the sample before the one that found it so, and by then at the latest when we saw it so
            assert row["ready_seconds"] - row["resolution_seconds"] <= seen_ready - started
            assert 0 < row["resolution_seconds"] <= row["ready_seconds"]
            asked = time.time() - started
            complete(url, "one", 4)
            told = until(
                lambda: r if (r := collector.rows("startups", engine_id=engine_id)[0])["first_token_seconds"] else None,
                PATIENCE_SECONDS,
                "the first token to be seen",
            )
            assert told["first_token_seconds"] > asked
            assert told["ready_seconds"] == row["ready_seconds"]
    with running_collector(tmp_path, chosen) as again:
        assert again.rows("startups", engine_id=engine_id) == [told]
