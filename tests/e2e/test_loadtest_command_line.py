"""`python -m loadtest run` beside a running collector: the run is stored like those of the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.collector import ROOT, running_collector
from tests.support.scripted_server import Call, Reply, ScriptedServer, answer
from tests.support.wait import until

pytestmark = pytest.mark.timeout(600)
SMALL = ["--input-tokens", "20", "--output-tokens", "5", "--requests", "8", "--repeats", "1", "--no-warmup"]


def command(url: str, *more: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "loadtest",
        "run",
        "--url",
        url,
        "--label",
        "scripted",
        "--concurrency",
        "1",
        *SMALL,
        *more,
    ]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "ENGINE_ROOM_DATA": str(folder)}


def test_the_collector_stores_what_the_command_line_measures(tmp_path: Path) -> None:
    with ScriptedServer() as server, running_collector(tmp_path) as collector:
        done = subprocess.run(
            command(server.url, "--name", "from a terminal", "--json"),
            capture_output=True, text=True, timeout=240, cwd=ROOT, env=environment(tmp_path), check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout)
        run_id = printed["run_id"]
        run = until(
            lambda: next((r for r in collector.rows("loadtest_runs") if r["state"] == "finished"), None), 120, "its end"
        )
        stages = collector.rows("loadtest_stages", run_id=run_id)
        requests = collector.rows("loadtest_requests", run_id=run_id)
    assert (run["run_id"], run["name"], run["started_by"]) == (run_id, "from a terminal", "command line")
    # The same numbers here and there.
    assert [stage["output_tokens_per_second"] for stage in stages] == [
        stage["output_tokens_per_second"] for stage in printed["stages"]
    ]
    assert len(requests) == 8
    assert {request["status"] for request in requests} == {"ok"}


def test_an_endpoint_under_another_load_test_is_left_alone(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        return answer(call, first=3600.0 if call.max_tokens > 2 else 0.0)

    with ScriptedServer(reply) as server, running_collector(tmp_path) as collector:
        with subprocess.Popen(
            command(server.url),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=ROOT,
            env=environment(tmp_path),
        ) as first:
            until(lambda: server.measured(), 240, "its first request")
            second = subprocess.run(
                command(server.url), capture_output=True, text=True, timeout=240, cwd=ROOT, env=environment(tmp_path),
                check=False,
            )  # fmt: skip
            assert second.returncode == 1
            assert "wait until it has ended, or stop it" in second.stderr
            # Somebody stops the first one from the page; the command line hears of it.
            (row,) = collector.client.command("loadtest_status", {})["runs"]
            collector.client.command("loadtest_stop", {"run_id": row["run_id"]})
            assert first.wait(240) == 4  # nothing of it was measured
        assert len(server.measured()) == 1
