"""`python -m loadtest run` beside a running collector: the run is stored like those of the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.collector import ROOT, running_collector
from tests.support.llamacpp import complete, llamacpp_server
from tests.support.loadtest_worker import exit_status
from tests.support.scripted_server import Call, Reply, ScriptedServer, answer
from tests.support.wait import until

pytestmark = pytest.mark.timeout(600)
SMALL = ["--input-tokens", "20", "--output-tokens", "5", "--repeats", "1", "--no-warmup"]


def command(url: str, *more: str, requests: int = 8) -> list[str]:
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
        "--requests",
        str(requests),
        *SMALL,
        *more,
    ]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "ENGINE_ROOM_DATA": str(folder)}


def test_the_collector_stores_what_the_command_line_measures(tmp_path: Path) -> None:
    with ScriptedServer(lambda call: answer(call, first=0.03)) as server, running_collector(tmp_path) as collector:
        done = subprocess.run(
            command(server.url, "--name", "from a terminal", "--json"),
            capture_output=True, text=True, timeout=240, cwd=ROOT, env=environment(tmp_path), check=False,
        )  # fmt: skip
        printed = json.loads(done.stdout)
        against = [each["text"] for each in printed["judgement"] if each["severity"] == "failed"]
        assert done.returncode == exit_status(against), done.stderr
        run_id = printed["run_id"]
        (run,) = collector.rows("loadtest_runs")  # it is over when the command line is
        stages = collector.rows("loadtest_stages", run_id=run_id)
        requests = collector.rows("loadtest_requests", run_id=run_id)
    # It is no engine that the collector knows, so nothing is said of what else was at work, and that is told.
    assert "the collector does not know their engine" in printed["others_not_judged"]
    assert (run["run_id"], run["name"], run["started_by"]) == (run_id, "from a terminal", "command line")
    assert run["state"] == "finished"
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


@pytest.mark.engine
def test_what_only_the_collector_saw_is_printed_and_decides(tmp_path: Path) -> None:
    """Two llama.cpp servers on the same cores: what the one measures while the other works is not to be trusted."""
    ended = threading.Event()

    def keep_busy(url: str) -> None:
        while not ended.is_set():
            complete(url, "again", 32)

    with llamacpp_server(threads=1) as measured, llamacpp_server(threads=1) as other:
        ports = [int(url.rsplit(":", 1)[1]) for url in (measured, other)]
        with running_collector(tmp_path, *ports) as collector:
            for url in (measured, other):
                until(lambda url=url: (e := collector.engine(url)) and e["state"] == "ready", 240, "both to be found")
            thread = threading.Thread(target=keep_busy, args=(other,))
            with subprocess.Popen(
                # For some seconds, so that samples cover the stage on a busy machine too.
                command(measured, "--json", requests=40), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                cwd=ROOT, env=environment(tmp_path),
            ) as process:  # fmt: skip
                assert process.stdout is not None
                assert process.stderr is not None
                said = next((line for line in process.stderr if "1 user: begins" in line), None)
                assert said is not None, "the run ended before its first stage"
                thread.start()
                try:
                    printed = json.loads(process.stdout.read())
                finally:
                    ended.set()
                    thread.join()
            stored = collector.rows("loadtest_judgements", run_id=printed["run_id"])
            (run,) = collector.rows("loadtest_runs")
    (against,) = [each for each in printed["judgement"] if each["code"] == "other_engine_busy"]
    assert (against["severity"], against["stage_id"]) == ("failed", 0)
    assert "on the same CPUs while scripted was measured" in against["text"]
    assert (process.returncode, printed["trusted"], run["trusted"]) == (4, False, False)
    assert printed["others_not_judged"] is None
    told = {(each["stage_id"], each["code"], each["severity"], each["text"]) for each in printed["judgement"]}
    assert told == {(row["stage_id"], row["code"], row["severity"], row["text"]) for row in stored}
