"""`python -m loadtest run` as a person has it, and the stop of a run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.loadtest_worker import ROOT, exit_status, read, spec, start
from tests.support.scripted_server import Call, Reply, ScriptedServer, answer
from tests.support.wait import until

SMALL = ["--input-tokens", "20", "--output-tokens", "5", "--requests", "8", "--repeats", "1", "--no-warmup"]


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "loadtest", "run", *arguments]


def environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "ENGINE_ROOM_DATA": str(folder)}


def call(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=100, cwd=ROOT, env=environment(folder), check=False
    )


def paced(c: Call) -> Reply:
    """An answer that takes a while: of a server that answers at once the client itself is the bottleneck."""
    return answer(c, first=0.03)


def failed(out: str) -> list[str]:
    return [line for line in out.splitlines() if line.startswith("failed: ")]


def test_a_run_prints_a_table_its_judgements_and_that_nobody_stored_it(tmp_path: Path) -> None:
    with ScriptedServer(paced) as server:
        done = call(tmp_path, "--url", server.url, "--label", "mine", "--concurrency", "1,2", *SMALL)
    assert done.returncode == exit_status(failed(done.stdout)), done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.strip().startswith("mine")]
    assert [(row[1], row[3:6]) for row in rows] == [("1", ["0", "of", "8"]), ("2", ["0", "of", "8"])]
    assert "ok: Every answer had as many tokens as were asked for" in done.stdout
    assert "not stored" in done.stdout
    assert "what else was at work is not known: no collector followed the run" in done.stdout
    assert "[2/2] mine, 2 users: begins" in done.stderr
    assert "warming up" not in done.stderr


def test_several_endpoints_by_repeated_or_joined_urls(tmp_path: Path) -> None:
    with ScriptedServer(paced) as one, ScriptedServer(paced) as other:
        joined = call(tmp_path, "--url", f"{one.url},{other.url}", "--concurrency", "1", *SMALL)
        asked = len(one.measured()), len(other.measured())
    assert joined.returncode == exit_status(failed(joined.stdout)), joined.stderr
    assert asked == (8, 8)
    # What holds of both stages is said once, and the comparison comes last.
    notes = [line for line in joined.stdout.splitlines() if "could not be checked" in line]
    assert len(notes) == 1
    assert "(and 1 more of 2 stages)" in notes[0]
    assert all(server.url.removeprefix("http://") in joined.stdout.splitlines()[-1] for server in (one, other))


def test_a_run_that_is_not_to_be_trusted_has_an_exit_status_of_its_own(tmp_path: Path) -> None:
    with ScriptedServer(lambda c: answer(c, tokens=min(2, c.max_tokens))) as server:
        done = call(tmp_path, "--url", server.url, "--concurrency", "1", *SMALL)
    assert done.returncode == 4
    assert "did not honour ignore_eos" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--url", "nonsense"], "not a base URL"),
        (["--url", "http://localhost:1", "--concurrency", "32", "--requests", "4"], "keep no 32 users busy"),
        (["--url", "http://localhost:1", "--concurrency", "1", "--rate", "2"], "not both"),
        (["--url", "http://localhost:1", "--prompts", "/no/such/file"], "cannot be read"),
        (["--url", "http://localhost:1", "--model", "a,b"], "2 were given for 1 URLs"),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(tmp_path: Path, arguments: list[str], why: str) -> None:
    done = call(tmp_path, *arguments)
    assert done.returncode != 0
    assert why in done.stderr


def test_an_endpoint_that_does_not_answer_is_named(tmp_path: Path) -> None:
    done = call(tmp_path, "--url", "http://localhost:9", *SMALL, "--concurrency", "1")
    assert done.returncode == 1
    assert "no connection to http://localhost:9" in done.stderr


def test_own_prompts_are_sent_with_a_beginning_of_their_own(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.jsonl"
    lines = [{"prompt": "What is a slot?", "output_tokens": 7}, {"prompt": "And a block?"}]
    prompts.write_text("\n".join(json.dumps(line) for line in lines))
    with ScriptedServer(paced) as server:
        done = call(tmp_path, "--url", server.url, "--concurrency", "1", "--prompts", str(prompts), *SMALL)
        sent = [(c.prompt.partition("\n")[2], c.max_tokens) for c in server.measured()]
    assert done.returncode == exit_status(failed(done.stdout)), done.stderr
    assert sent == [("What is a slot?", 7), ("And a block?", 5)] * 4


def test_a_stop_keeps_what_was_measured(tmp_path: Path) -> None:
    # The fourth request hangs, so what is measured when the stop comes is known: three requests.
    three_are_done, hang = threading.Event(), 3600.0

    def reply(c: Call) -> Reply:
        if len(server.measured()) == 4:
            three_are_done.set()
            return answer(c, first=hang)
        return answer(c)

    with ScriptedServer(reply) as server, start(spec(server.url, requests=100), tmp_path) as process:
        assert process.stdout is not None
        until(three_are_done.is_set, 60, "the fourth request")
        process.send_signal(signal.SIGTERM)
        told = read(process.stdout.read())
        assert process.wait(60) == 0
    assert told.ended is not None
    assert told.ended.state == "stopped"
    assert (told.stage.succeeded, told.stage.cancelled, told.stage.failed) == (3, 1, 0)
    assert [request.status for request in told.requests] == ["ok", "ok", "ok", "cancelled"]
    assert told.stage.output_tokens_per_second is not None
    assert told.severities("stage_cut_short") == {"warning"}


def test_ctrl_c_stops_gracefully_and_prints_what_there_is(tmp_path: Path) -> None:
    def reply(c: Call) -> Reply:
        return answer(c, first=3600.0) if len(server.measured()) == 4 else paced(c)

    with ScriptedServer(reply) as server:
        process = subprocess.Popen(
            command("--url", server.url, "--concurrency", "1", *SMALL),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment(tmp_path),
        )  # fmt: skip
        until(lambda: len(server.measured()) == 4, 60, "the fourth request")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == exit_status(failed(out)), err
    assert "0 of 4" in out
    assert "The stage ended before its plan" in out


def test_a_worker_whose_reader_went_away_ends(tmp_path: Path) -> None:
    def reply(c: Call) -> Reply:
        return answer(c, first=3600.0 if c.max_tokens > 2 else 0.0)

    with ScriptedServer(reply) as server, start(spec(server.url), tmp_path) as process:
        until(lambda: server.measured(), 60, "a request")
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 0


def test_result_files_of_other_tools_are_shown_without_a_collector(tmp_path: Path) -> None:
    file = ROOT / "tests/fixtures/loadtest/vllm_bench_0.32.0_append.jsonl"
    arguments = [sys.executable, "-m", "loadtest", "import", str(file), "--json"]
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=100, cwd=ROOT, env=environment(tmp_path), check=True
    )
    found = json.loads(done.stdout)
    first = json.loads(file.read_text().splitlines()[0])
    assert found["stored_as"] == []
    stage = found["runs"][0]["stages"][0]
    assert stage["whole_output_tokens_per_second"] == pytest.approx(first["output_throughput"])
    assert stage["output_tokens_per_second"] is None  # the file knows no steady window
