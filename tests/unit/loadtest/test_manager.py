"""Load tests as a collector carries them out: turns, ends of every kind, and what is stored of each. Real processes."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from loadtest import manager as manager_module
from loadtest.commands import LoadtestCommands
from loadtest.endpoints import known_endpoints
from loadtest.manager import Manager
from loadtest.records import RunBegan, RunEnded, StageBegan, to_line
from settings import Settings, Target
from store.edits import delete_run
from store.loadtest_rows import LoadtestJudgement
from store.local import LocalStore
from store.model import Engine, EngineState, Epoch
from store.protocol import RefusedError, UnknownQueryError
from store.writer import Writer
from tests.support.loadtest_rows import RUN, judgement, run, stage
from tests.support.rows import HOST, engine, epoch, sample
from tests.support.wait import until

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "loadtest"
VLLM, LLAMA = "vllm-8000", "llama.cpp-8080"
LLAMA_URL = "http://127.0.0.1:8080"
Records = list[dict[str, Any]]


class Place:
    """A store with two engines, and the manager of its load tests."""

    def __init__(self, data: Path, held: ExitStack, *targets: Target) -> None:
        self.settings = Settings(data=data, host=HOST, target=targets, prompt_folders=(data / "prompts",))
        self.writer = Writer(self.settings.store_path, self.settings.store)
        held.callback(self.writer.close)
        self.store = LocalStore(self.writer, self.settings.store)
        self.engines: dict[str, tuple[Engine, Epoch]] = {
            VLLM: (engine(label="vLLM · Qwen"), epoch(version="0.33.0", model_id="Qwen/Qwen3-8B")),
            LLAMA: (engine(LLAMA, "llama.cpp", url=LLAMA_URL), epoch("llama.cpp-8080@1", LLAMA, version="b11434")),
        }
        self.writer.put([row for pair in self.engines.values() for row in pair])
        self.found: list[LoadtestJudgement] = []  # what the store has to say after each stage
        self._held = held

    def manage(self, script: str) -> LoadtestCommands:
        """The commands of a manager whose workers follow `script`."""
        targets = [(target.url, target.name, target.api_key_env) for target in self.settings.target]
        manager = Manager(
            self.settings,
            self.writer,
            lambda engine_id: self.engines[engine_id][1],
            lambda run, stage: self.found,
            [sys.executable, "-m", "tests.support.scripted_worker", script],
        )
        commands = LoadtestCommands(
            self.settings,
            self.writer,
            self.store,
            manager,
            lambda: known_endpoints(self.engines.values(), targets),
        )
        self._held.callback(commands.close)
        return commands

    def rows(self, name: str, run_id: str | None = None) -> Records:
        self.writer.flush()
        return self.store.query(name, {"run_id": run_id} if run_id else {}).to_pylist()

    def run(self, run_id: str) -> dict[str, Any]:
        return next(row for row in self.rows("loadtest_runs") if row["run_id"] == run_id)

    def ended(self, manager: LoadtestCommands, run_id: str) -> dict[str, Any]:
        """The stored row of a run, when it is over."""
        until(lambda: status(manager, run_id)["state"] not in ("waiting", "running"), 60, "the end of the run")
        return self.run(run_id)

    def events(self) -> list[tuple[str, str, str]]:
        self.writer.flush()
        span = {"start": "2020-01-01T00:00:00Z", "end": "2099-01-01T00:00:00Z"}
        rows = self.store.query("events", span).to_pylist()
        return [(row["kind"], row["engine_id"], row["text"]) for row in reversed(rows)]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as held:
        yield Place(tmp_path / "data", held)


def spec(*engine_ids: str, **more: Any) -> dict[str, Any]:
    return {"endpoints": [{"engine_id": name} for name in engine_ids], "levels": [1, 2], "repeats": 1, **more}


def start(manager: LoadtestCommands, *engine_ids: str, name: str = "Monday", **more: Any) -> dict[str, Any]:
    return manager.commands["loadtest_start"]({"spec": spec(*engine_ids, **more), "name": name})


def status(manager: LoadtestCommands, run_id: str) -> dict[str, Any]:
    (told,) = manager.commands["loadtest_status"]({"run_id": run_id})["runs"]
    return told


def stop(manager: LoadtestCommands, run_id: str) -> dict[str, Any]:
    return manager.commands["loadtest_stop"]({"run_id": run_id})


def test_what_a_worker_tells_is_stored_with_the_engines_and_their_lives(place: Place) -> None:
    manager = place.manage("usual")
    told = start(manager, VLLM, LLAMA)
    assert (told["state"], told["waits_for"]) == ("running", None)
    row = place.ended(manager, told["run_id"])
    assert (row["name"], row["state"], row["started_by"], row["source"]) == (
        "Monday",
        "finished",
        "page",
        "engine-room",
    )
    assert row["trusted"] is True
    assert row["began"] is not None
    assert row["ended"] >= row["began"]
    assert json.loads(row["client"]) == {"cpu_fraction": 0.25}
    asked = json.loads(row["spec"])
    assert asked["seed"] == 7  # the seed that the worker chose, so that the run can be repeated
    assert [e["url"] for e in asked["endpoints"]] == ["http://127.0.0.1:8000", LLAMA_URL]
    stages = place.rows("loadtest_stages", told["run_id"])
    known = [(s["engine"], s["engine_id"], s["epoch_id"], s["engine_version"]) for s in stages]
    assert known == [
        ("vllm", VLLM, "vllm-8000@1", "0.33.0"),
        ("llama.cpp", LLAMA, "llama.cpp-8080@1", "b11434"),
    ]
    requests = place.rows("loadtest_requests", told["run_id"])
    assert [(r["stage_id"], r["request"]) for r in requests] == [(s, n) for s in (0, 1) for n in range(3)]
    assert {r["host"] for r in requests} == {HOST}
    assert place.events() == [
        ("loadtest_began", VLLM, "Load test 'Monday' began: 1, 2 users"),
        ("loadtest_began", LLAMA, "Load test 'Monday' began: 1, 2 users"),
        ("loadtest_ended", VLLM, "Load test 'Monday' has finished"),
        ("loadtest_ended", LLAMA, "Load test 'Monday' has finished"),
    ]


def test_a_run_that_goes_on_tells_how_far_it_is_and_a_stop_keeps_what_was_measured(place: Place) -> None:
    manager = place.manage("hold")
    run_id = start(manager, VLLM)["run_id"]
    told = until(
        lambda: s if (s := status(manager, run_id))["done"] == 2 else None, timeout_seconds=60, what="progress"
    )
    assert (told["state"], told["stage"], told["stages"], told["level"], told["planned"]) == ("running", 0, 1, 1.0, 3)
    assert told["rate_tokens_per_second"] == 25.0
    assert place.run(run_id)["state"] == "running"
    stop(manager, run_id)
    row = place.ended(manager, run_id)
    assert (row["state"], row["trusted"]) == ("stopped", True)
    assert len(place.rows("loadtest_stages", run_id)) == 1
    with pytest.raises(RefusedError, match="ended already"):
        stop(manager, run_id)


def test_a_second_run_on_an_engine_waits_and_says_for_which(place: Place) -> None:
    manager = place.manage("hold")
    first, second = start(manager, VLLM, name="first")["run_id"], start(manager, VLLM, LLAMA, name="second")
    assert (second["state"], second["waits_for"]) == ("waiting", first)
    assert place.run(second["run_id"])["detail"] == "waits for load test 'first', which uses the same engine"
    # the third shares llama.cpp with the second, which came before it, though nobody uses llama.cpp yet
    third = start(manager, LLAMA, name="third")
    assert third["waits_for"] == second["run_id"]
    stop(manager, first)
    until(lambda: status(manager, second["run_id"])["state"] == "running", timeout_seconds=60, what="the second's turn")
    assert status(manager, third["run_id"])["waits_for"] == second["run_id"]
    assert place.run(second["run_id"])["detail"] is None
    stop(manager, second["run_id"])
    until(lambda: status(manager, third["run_id"])["state"] == "running", timeout_seconds=60, what="the third's turn")


def test_runs_on_different_engines_go_on_at_once(place: Place) -> None:
    manager = place.manage("hold")
    assert [start(manager, name)["state"] for name in (VLLM, LLAMA)] == ["running", "running"]


def test_a_run_that_waits_can_be_stopped(place: Place) -> None:
    manager = place.manage("hold")
    start(manager, VLLM)
    waiting = start(manager, VLLM)["run_id"]
    assert stop(manager, waiting)["state"] == "stopped"
    row = place.run(waiting)
    assert (row["state"], row["began"], row["trusted"]) == ("stopped", None, None)
    assert "before its turn" in row["detail"]


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("crash", r"ended with exit code 1: out of memory with key \[redacted\]"),
        ("mute", "ended without a word"),
    ],
)
def test_a_worker_that_breaks_fails_its_run_with_its_last_words(place: Place, script: str, told: str) -> None:
    manager = place.manage(script)
    assert place.ended(manager, run_id := start(manager, VLLM)["run_id"])["state"] == "failed"
    assert re.search(told, place.run(run_id)["detail"])
    assert start(manager, VLLM)["state"] == "running"  # the engine is free again


def test_a_worker_that_is_killed_fails_its_run(place: Place) -> None:
    manager = place.manage("hold")
    run_id = start(manager, VLLM)["run_id"]
    until(lambda: status(manager, run_id)["done"], timeout_seconds=60, what="progress")
    (child,) = children(os.getpid())
    os.kill(child, signal.SIGKILL)
    row = place.ended(manager, run_id)
    assert (row["state"], row["detail"]) == ("failed", "the load generator was killed by signal 9")
    assert len(place.rows("loadtest_stages", run_id)) == 1  # what it had told stays


def children(pid: int) -> list[int]:
    """Workers among the child processes."""
    return [p.pid for p in psutil.Process(pid).children() if "scripted_worker" in " ".join(p.cmdline())]


def test_a_worker_that_does_not_stop_is_killed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.worker_process.STOP_GRACE_SECONDS", 0.5)
    manager = place.manage("stubborn")
    run_id = start(manager, VLLM)["run_id"]
    until(lambda: status(manager, run_id)["stages"], timeout_seconds=60, what="the first record")
    stop(manager, run_id)
    row = place.ended(manager, run_id)
    assert (row["state"], row["detail"]) == ("stopped", "stopped before its first request was sent")
    assert children(os.getpid()) == []


def test_lines_that_are_no_records_are_told_not_hidden(place: Place) -> None:
    manager = place.manage("nonsense")
    row = place.ended(manager, start(manager, VLLM)["run_id"])
    assert (row["state"], row["detail"]) == ("finished", "1 lines of the load generator were not understood")


@pytest.mark.parametrize("script", ["usual", "distrust"])
def test_a_run_is_trusted_unless_something_failed_speaks_against_it(place: Place, script: str) -> None:
    if script == "usual":
        place.found = [judgement("other_engine_busy", "failed", 0)]
    manager = place.manage(script)
    assert place.ended(manager, start(manager, VLLM)["run_id"])["trusted"] is False


def test_the_end_of_the_collector_stops_its_runs_in_good_order(place: Place) -> None:
    manager = place.manage("hold")
    running, waiting = start(manager, VLLM)["run_id"], start(manager, VLLM)["run_id"]
    until(lambda: status(manager, running)["done"], timeout_seconds=60, what="progress")
    manager.close()
    assert [(place.run(r)["state"], place.run(r)["detail"]) for r in (running, waiting)] == [
        ("stopped", "the collector was stopped"),
        ("stopped", "the collector was stopped"),
    ]
    assert children(os.getpid()) == []
    with pytest.raises(RefusedError, match="being stopped"):
        start(manager, VLLM)


def test_runs_of_a_collector_that_was_killed_are_interrupted(place: Place) -> None:
    place.writer.put(
        [run(state="running"), stage(0), stage(1, seconds=10), run("20261130T120001Z-0002", "waiting", began=None)]
    )
    place.writer.put([run("20261130T120002Z-0003"), run("20261130T120003Z-0004", "imported")])
    place.writer.flush()
    place.manage("usual")
    states = {row["run_id"][-4:]: row["state"] for row in place.rows("loadtest_runs")}
    assert states == {"0001": "interrupted", "0002": "interrupted", "0003": "finished", "0004": "imported"}
    row = place.run(RUN)
    assert row["detail"] == "the collector ended while it ran; of its stages 2 had ended, and they are whole"
    assert row["ended"] == stage(1, seconds=10).ended
    assert place.run("20261130T120001Z-0002")["detail"] == "the collector ended while it waited"
    assert place.events() == [("loadtest_ended", VLLM, "Load test 'run 0001' was interrupted")]


def test_a_run_of_the_command_line_is_taken_in_alike(place: Place) -> None:
    manager = place.manage("usual")
    given = {"spec": spec(), "name": "by hand", "run_id": "20261201T090000Z-cli"}
    given["spec"]["endpoints"] = [{"url": "http://localhost:8000/v1"}]
    begin, records = manager.commands["loadtest_begin"], manager.commands["loadtest_records"]
    assert begin(given)["state"] == "running"
    with pytest.raises(RefusedError, match="already"):
        begin(given)
    with pytest.raises(RefusedError, match=r"'by hand'.* runs on the same engine"):
        begin({**given, "run_id": "20261201T090000Z-two"})
    assert start(manager, VLLM)["waits_for"] == given["run_id"]
    at = stage(0).ts
    lines = [
        RunBegan(at, 3, 1, {"seed": 3}),
        StageBegan(at, 0, 0, "localhost:8000", 1.0, 0, 8),
        stage(0, engine=None, engine_id=None, epoch_id=None),
    ]
    assert records({"run_id": given["run_id"], "lines": [to_line(line) for line in lines]})["stop"] is False
    stop(manager, given["run_id"])
    assert records({"run_id": given["run_id"], "lines": []})["stop"] is True
    records({"run_id": given["run_id"], "lines": [to_line(RunEnded(at, "stopped", None, None))]})
    row = place.ended(manager, given["run_id"])
    assert (row["state"], row["started_by"]) == ("stopped", "command line")
    assert place.rows("loadtest_stages", given["run_id"])[0]["epoch_id"] == "vllm-8000@1"
    with pytest.raises(RefusedError, match="no longer"):
        records({"run_id": given["run_id"], "lines": []})


def test_a_command_line_that_falls_silent_is_interrupted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manager_module, "SILENT_SECONDS", 0.2)
    manager = place.manage("usual")
    manager.commands["loadtest_begin"]({"spec": spec(VLLM) | {"endpoints": [{"url": LLAMA_URL}]}, "run_id": "x"})
    row = place.ended(manager, "x")
    assert (row["state"], row["name"]) == ("interrupted", "127.0.0.1:8080")
    assert "nothing was heard" in row["detail"]


def test_a_page_loads_only_what_is_discovered_or_configured(tmp_path: Path) -> None:
    with ExitStack() as held:
        target = Target(url="http://10.1.2.3:9000", name="other", api_key_env="OTHER_KEY")
        place = Place(tmp_path / "data", held, target)
        manager = place.manage("usual")
        for endpoint in ({"url": "http://169.254.169.254"}, {"engine_id": "no-such"}, {}):
            with pytest.raises(RefusedError, match="neither discovered nor configured"):
                manager.commands["loadtest_start"]({"spec": {"endpoints": [endpoint]}})
        asked = {"endpoints": [{"url": "http://10.1.2.3:9000", "api_key_env": "HOME"}], "levels": [1]}
        run_id = manager.commands["loadtest_start"]({"spec": asked})["run_id"]
        (endpoint,) = json.loads(place.run(run_id)["spec"])["endpoints"]
        # the variable of the key is the configuration's, whatever the page says
        assert (endpoint["url"], endpoint["label"], endpoint["api_key_env"]) == (target.url, "other", "OTHER_KEY")


def test_prompts_come_from_configured_folders_only(place: Place, tmp_path: Path) -> None:
    manager = place.manage("usual")
    folder = place.settings.prompt_folders[0]
    folder.mkdir()
    (folder / "mine.jsonl").write_text('{"prompt": "hello"}\n')
    (tmp_path / "secret.jsonl").write_text("{}")
    (folder / "link.jsonl").symlink_to(tmp_path / "secret.jsonl")
    for path in ("/etc/passwd", str(tmp_path / "secret.jsonl"), str(folder / "link.jsonl"), str(folder / "../x")):
        with pytest.raises(RefusedError, match="prompt_folders"):
            start(manager, VLLM, input={"kind": "file", "path": path})
    with pytest.raises(RefusedError, match="not a file"):
        start(manager, VLLM, input={"kind": "file", "path": str(folder / "gone.jsonl")})
    assert start(manager, VLLM, input={"kind": "file", "path": str(folder / "mine.jsonl")})["state"] == "running"


@pytest.mark.parametrize(
    ("state", "told"), [(EngineState.STOPPED, "is stopped; start it first"), (EngineState.LOADING, "wait until it is")]
)
def test_an_engine_that_can_not_answer_is_refused(place: Place, state: EngineState, told: str) -> None:
    # the sample is of an hour ago, and still the newest that is known
    place.writer.put([replace(sample(0), ts=datetime.now(UTC) - timedelta(hours=1), state=state)])
    place.writer.flush()
    with pytest.raises(RefusedError, match=told):
        start(place.manage("usual"), VLLM)


@pytest.mark.parametrize(
    ("command", "given", "told"),
    [
        ("loadtest_start", {}, "spec must be a JSON object"),
        ("loadtest_start", {"spec": {"endpoints": "x"}}, "list of endpoints"),
        ("loadtest_start", {"spec": {"endpoints": [{"engine_id": VLLM}], "levels": [0]}}, "greater than 0"),
        ("loadtest_start", {"spec": {"endpoints": [{"engine_id": VLLM}]}, "name": "x" * 300}, "at most 200"),
        ("loadtest_begin", {"spec": {}, "run_id": "a/b"}, "run_id must be given"),
        ("loadtest_records", {"run_id": "x", "lines": "y"}, "list of text"),
    ],
)
def test_a_wrong_command_is_told_what_is_wrong(place: Place, command: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(UnknownQueryError, match=told):
        place.manage("usual").commands[command](given)


def test_result_files_of_other_tools_become_runs(place: Place) -> None:
    commands = place.manage("usual").commands
    bench = (FIXTURES / "vllm_bench_0.32.0_detailed.json").read_text()
    csv = (FIXTURES / "llama_bench.csv").read_text()
    files = [{"name": "monday.json", "text": bench}, {"name": "../b.csv", "text": csv}]
    answer = commands["loadtest_import"]({"files": files, "name": "Monday"})
    rows = {row["name"]: row for row in place.rows("loadtest_runs")}
    assert {name: (row["source"], row["state"], row["started_by"]) for name, row in rows.items()} == {
        "Monday: monday.json": ("vllm bench serve", "imported", "import"),
        "Monday: b.csv": ("llama-bench", "imported", "import"),
    }
    assert set(answer["run_ids"]) == {row["run_id"] for row in rows.values()}
    assert answer["notes"]
    run_id = rows["Monday: monday.json"]["run_id"]
    # `completed` of the file, see tests/fixtures/README.md
    assert len(place.rows("loadtest_requests", run_id)) == json.loads(bench)["completed"]
    assert place.rows("loadtest_stages", run_id)[0]["ended"].tzinfo is not None


def test_files_are_imported_all_or_none(place: Place) -> None:
    commands = place.manage("usual").commands
    good = {"name": "good.csv", "text": (FIXTURES / "llama_bench.csv").read_text()}
    with pytest.raises(RefusedError, match=r"bad\.json: "):
        commands["loadtest_import"]({"files": [good, {"name": "bad.json", "text": "{}"}]})
    with pytest.raises(RefusedError, match="given twice"):
        commands["loadtest_import"]({"files": [good, good]})
    assert place.rows("loadtest_runs") == []
    for files in (None, [], [{"name": "x"}], [good] * 101):
        with pytest.raises(UnknownQueryError, match="files"):
            commands["loadtest_import"]({"files": files})


def test_nothing_of_a_run_comes_back_after_it_was_deleted(place: Place) -> None:
    manager = place.manage("usual")
    run_id = start(manager, VLLM)["run_id"]
    place.ended(manager, run_id)
    assert delete_run(place.writer, run_id) is True
    manager.close()
    assert place.rows("loadtest_runs") == []
    assert all(place.rows(f"loadtest_{name}", run_id) == [] for name in ("stages", "requests", "judgements"))


def test_many_requests_at_once_push_out_no_samples(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRIPTED_REQUESTS", "2500")
    monkeypatch.setattr(manager_module, "FLUSH_AFTER_ROWS", 500)
    monkeypatch.setattr("store.writer.MAX_QUEUED_ROWS", 1000)
    manager = place.manage("usual")
    run_id = start(manager, VLLM)["run_id"]
    place.ended(manager, run_id)
    assert len(place.rows("loadtest_requests", run_id)) == 2500
    assert place.writer.statistics().rows_dropped == 0
