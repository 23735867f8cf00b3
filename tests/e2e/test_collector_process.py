"""
The collector as a user runs it, against a real llama.cpp server: `python -m collectors ...`.

Expected token counts are what the client was told in `usage` (OpenAI API reference, completions).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.collector import ROOT, cli, environment, running_collector
from tests.support.llamacpp import complete, get, llamacpp_server
from tests.support.wait import free_port, until

pytestmark = pytest.mark.engine
HOUR = timedelta(hours=1)


@pytest.fixture(scope="module")
def llama() -> str:
    with llamacpp_server() as url:
        yield url


def port_of(url: str) -> int:
    return int(url.rsplit(":", 1)[1])


def answers(url: str) -> bool:
    try:
        return get(url) != b""
    except OSError:
        return False


def complete_until(url: str, stop: threading.Event) -> None:
    while not stop.is_set():
        complete(url, "x", 8)


def test_the_store_counts_what_the_client_received(llama: str, tmp_path: Path) -> None:
    with running_collector(tmp_path, port_of(llama)) as collector:
        until(lambda: (collector.engine(llama) or {}).get("state") == "ready", what="the engine to be found ready")
        before = collector.engine(llama)["generation_tokens"] or 0
        lengths = [5, 17, 9, 24, 12, 21]
        with ThreadPoolExecutor(4) as pool:  # two slots: two of the four requests wait at any time
            received = sum(pool.map(lambda n: complete(llama, f"{n} sheep went to sea", n), lengths))
        assert received == sum(lengths)  # ignore_eos was honoured, so the lengths are those asked for

        def counted() -> bool:
            engine = collector.engine(llama)
            return engine["requests_running"] == 0 and engine["generation_tokens"] - before == received

        until(counted, what=f"the store to count {received} tokens")
        now = datetime.now(UTC)
        series = collector.rows("engine_series", start=now - HOUR, end=now + HOUR, points=2000)
        mine = [row for row in series if row["engine_id"] == f"llama.cpp-{port_of(llama)}"]
        rates = [r["generation_tokens_per_second"] for r in mine if r["generation_tokens_per_second"] is not None]
        assert max(rates) > 0
        assert min(rates) >= 0


def test_probe_prints_the_contract(llama: str, tmp_path: Path) -> None:
    done = cli(tmp_path, "probe", llama, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert set(document) >= {"engine", "version", "url", "model_id", "max_context_tokens", "state", "quantities"}
    assert document["engine"] == "llama.cpp"
    assert document["state"] == "ready"
    assert document["max_context_tokens"] == 1024  # 2048 cells over 2 slots, as the server was started
    tokens = document["quantities"]["generation_tokens_total"]
    assert tokens["source"] == "llamacpp:tokens_predicted_total"
    assert isinstance(tokens["value"], float | int)
    assert not (tmp_path / "telemetry.duckdb").exists()


def test_probe_of_something_else_exits_3_and_says_what_answered(tmp_path: Path) -> None:
    nothing = cli(tmp_path, "probe", f"http://127.0.0.1:{free_port()}", "--json")
    assert nothing.returncode == 3
    assert "refused" in nothing.stderr.lower()
    wrong = cli(tmp_path, "probe", "127.0.0.1:8080")
    assert wrong.returncode == 1
    assert "base URL" in wrong.stderr


def test_once_stores_nothing(llama: str, tmp_path: Path) -> None:
    done = cli(tmp_path, "once", "--json", ports=(port_of(llama),))
    assert done.returncode == 0, done.stderr
    found = {engine["url"]: engine for engine in json.loads(done.stdout)["engines"]}
    assert found[llama]["engine"] == "llama.cpp"
    assert list(tmp_path.iterdir()) == []


def test_stopping_and_restarting_an_engine_leaves_events_and_a_new_epoch(tmp_path: Path) -> None:
    port = free_port()
    with running_collector(tmp_path, port) as collector:
        with llamacpp_server(port) as url:
            until(lambda: (collector.engine(url) or {}).get("state") == "ready", what="the first life")
            complete(url, "one", 12)
            until(lambda: (collector.engine(url)["generation_tokens"] or 0) == 12, what="12 tokens")
        until(lambda: collector.engine(url)["state"] == "stopped", what="the stop to be seen")
        with llamacpp_server(port) as url:
            until(lambda: collector.engine(url)["state"] == "ready", what="the second life")
            complete(url, "two", 7)
            # the counter began anew at 0: the window holds 12 of the first life and 7 of the second
            until(lambda: collector.engine(url)["generation_tokens"] == 19, what="12 + 7 tokens")
        now = datetime.now(UTC)
        engine_id = f"llama.cpp-{port}"
        events = collector.rows("events", start=now - HOUR, end=now + HOUR, engine_id=engine_id)
        kinds = [event["kind"] for event in sorted(events, key=lambda e: e["ts"])]
        assert kinds[0] == "started"
        assert "stopped" in kinds
        assert "restarted" in kinds
        assert len(collector.rows("epochs", engine_id=engine_id)) == 2
        series = collector.rows("engine_series", start=now - HOUR, end=now + HOUR, points=2000)
        rates = [row["generation_tokens_per_second"] for row in series if row["engine_id"] == engine_id]
        assert min(rate for rate in rates if rate is not None) >= 0


def test_kill_9_loses_nothing_that_was_acknowledged(llama: str, tmp_path: Path) -> None:
    for _ in range(3):
        with running_collector(tmp_path, port_of(llama)) as collector:
            until(lambda: (collector.engine(llama) or {}).get("state") == "ready", what="the engine to be found")
            stop = threading.Event()
            load = threading.Thread(target=complete_until, args=(llama, stop))
            load.start()
            status = until(
                lambda: s if (s := collector.rows("status")[0])["rows_engine_sample"] > 5 else None, what="samples"
            )
            collector.process.send_signal(signal.SIGKILL)
            collector.process.wait(10)
            stop.set()
            load.join()
        with running_collector(tmp_path, port_of(llama)) as again:
            after = again.rows("status")[0]
            for table in ("rows_engine_sample", "rows_host_sample", "rows_event", "rows_epoch"):
                assert after[table] >= status[table], f"{table} lost rows"
            until(lambda: again.engine(llama)["state"] == "ready", what="sampling to go on")
            assert len(again.rows("epochs", engine_id=f"llama.cpp-{port_of(llama)}")) == 1  # the same life


def test_one_collector_for_one_folder(tmp_path: Path) -> None:
    with running_collector(tmp_path) as collector:
        second = cli(tmp_path, "run")
        assert second.returncode == 1
        assert str(collector.process.pid) in second.stderr
        told = cli(tmp_path, "status").stdout
        assert "writer.state " in told  # a line a fact
        assert "{" not in told
        status = cli(tmp_path, "status", "--json")
        assert status.returncode == 0
        assert json.loads(status.stdout)["pid"] == collector.process.pid
        stopped = cli(tmp_path, "stop")
        assert stopped.returncode == 0
        assert collector.process.wait(20) == 0
    assert cli(tmp_path, "status").returncode == 3
    assert cli(tmp_path, "stop").returncode == 3


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a folder")
    done = cli(blocker / "data", "run")
    assert done.returncode == 1
    assert str(blocker) in done.stderr
    assert "Traceback" not in done.stderr


def test_a_killed_web_server_leaves_sampling_and_the_next_one_finds_it(tmp_path: Path) -> None:
    def server(port: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port)],
            cwd=ROOT,
            env=environment(tmp_path),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def running() -> int | None:
        done = cli(tmp_path, "status", "--json")
        document = json.loads(done.stdout)
        return document["pid"] if done.returncode == 0 and "started" in document else None

    first = server(free_port())
    collector = until(running, 40, "the server to have started a collector")
    first.kill()
    first.wait(10)
    os.kill(collector, 0)  # it lives
    second = server(free_port())
    try:
        assert until(running, 40, "the collector to be found") == collector
        second.send_signal(signal.SIGINT)
        second.wait(30)
        until(lambda: running() is None, 30, "a clean stop of the server to end its collector")
    finally:
        second.kill()
        if running() is not None:
            cli(tmp_path, "stop")


def test_a_server_that_was_told_to_leave_the_collector_alone_ends_cleanly(tmp_path: Path) -> None:
    server = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", "app.py", "--server.port", str(port := free_port())],
        cwd=ROOT,
        env=environment(tmp_path, ENGINE_ROOM_COLLECTOR__START_WITH_SERVER="false"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: answers(f"http://127.0.0.1:{port}/_stcore/health"), 40, "the server to answer")
    server.send_signal(signal.SIGINT)
    _, errors = server.communicate(timeout=30)
    assert "Error" not in errors
    assert cli(tmp_path, "status").returncode == 3
