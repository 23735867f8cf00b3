"""What a worker is given and how it ends; each is a real child process with a script of its own."""

import os
import sys

import psutil
import pytest

from loadtest.spec import Spec
from loadtest.worker_process import Worker
from tests.support.wait import until

SPEC = Spec.from_json({"endpoints": [{"url": "http://127.0.0.1:8000", "api_key_env": "MINE_KEY"}], "seed": 5})


def worker(script: str) -> Worker:
    return Worker(SPEC, ["MINE_KEY", "OTHER_KEY"], [sys.executable, "-c", script])


def test_it_gets_the_spec_and_only_the_keys_of_its_own_endpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE_KEY", "mine")
    monkeypatch.setenv("OTHER_KEY", "other")
    script = "import os, sys; print(sys.stdin.read()); print(os.environ['MINE_KEY'], os.environ.get('OTHER_KEY'))"
    given, keys = worker(script).lines()
    assert Spec.from_json(given) == SPEC
    assert keys == b"mine None\n"


def test_its_last_words_are_told_without_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE_KEY", "a-key-of-no-known-shape")
    child = worker(
        "import os, sys; sys.stderr.write('first\\nrefused: ' + os.environ['MINE_KEY'] + '\\n\\n'); sys.exit(3)"
    )
    assert list(child.lines()) == []
    assert child.wait() == "the load generator ended with exit code 3: refused: [redacted]"


def test_one_that_ended_before_it_was_asked_anything_is_told_like_any_other() -> None:
    assert worker("import os; os.close(0); raise SystemExit('no')").wait() == (
        "the load generator ended with exit code 1: no"
    )
    assert worker("pass").wait() is None


def test_what_it_says_on_standard_error_never_holds_it_up() -> None:
    child = worker("import sys; sys.stderr.write('x' * 100 + '\\n' + 'y\\n' * 500_000); print('done')")
    assert list(child.lines()) == [b"done\n"]
    assert child.wait() is None


def test_killing_it_takes_its_children_along() -> None:
    script = (
        "import subprocess, sys, time; "
        "print(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, flush=True); "
        "time.sleep(600)"
    )
    child = worker(script)
    grandchild = psutil.Process(int(next(child.lines())))
    child.kill()
    assert child.wait() == "the load generator was killed by signal 9"
    until(
        lambda: not grandchild.is_running() or grandchild.status() == psutil.STATUS_ZOMBIE,
        timeout_seconds=60,
        what="its child to end",
    )
    assert os.getpgid(0) != child.pid
