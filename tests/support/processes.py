"""
Real processes that look like engines in the process table: titles, command lines, sockets and trees.

The shapes are those of the engines: vLLM sets the titles of its children with setproctitle and leaves
its root's command line alone (vllm/v1/utils.py, vllm/utils/system_utils.py); llama.cpp's router and
Ollama start `llama-server` children on free ports (tools/server/server-models.cpp, llm/llama_server.go).
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

STANDIN = Path(__file__).with_name("standin.py")
Plan = dict[str, Any]


class Standin:
    """
    A running tree of stand-ins. Use it in a `with`; at its end every process of the tree is gone.

    `pids` maps a plan's `key` (else its title, else "root") to the process.
    """

    def __init__(
        self,
        argv: Sequence[str],
        plan: Plan,
        *,
        executable: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        life_read, self._life = os.pipe()
        self._report, report_write = os.pipe()
        inherited = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        self.process = subprocess.Popen(
            list(argv),
            executable=executable,
            cwd=folder,
            pass_fds=(life_read, report_write),
            env={
                **inherited,
                **(environment or {}),
                "STANDIN_PLAN": json.dumps(plan),
                "STANDIN_LIFE": str(life_read),
                "STANDIN_REPORT": str(report_write),
            },
        )
        os.close(life_read)
        os.close(report_write)
        self.pids: dict[str, int] = {}
        try:
            self._await(_count(plan))
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process at the top of the tree."""
        return self.process.pid

    def _await(self, count: int) -> None:
        deadline, text = time.monotonic() + 20, b""
        while text.count(b"\n") < count:
            ready, _, _ = select.select([self._report], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._report, 65536) if ready else b""
            assert piece, f"{text.count(bytes([10]))} of {count} stand-in processes came up"
            text += piece
        for line in text.decode().splitlines():
            ready_process = json.loads(line)
            self.pids[ready_process["key"]] = ready_process["pid"]

    def close(self) -> None:
        """End the whole tree: its processes read the end of the pipe that keeps them alive."""
        os.close(self._life)
        self.process.wait(20)
        while os.read(self._report, 65536):
            pass  # the last process of the tree has ended when nobody holds the other end any more
        os.close(self._report)

    def __enter__(self) -> Standin:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _count(plan: Plan) -> int:
    heir = plan.get("fork_after_listening")
    return 1 + sum(_count(child) for child in plan.get("children", ())) + (_count(heir) if heir else 0)


def program(folder: Path, name: str) -> str:
    """A Python interpreter under another name, so that the kernel's short name of the process is `name`."""
    path = folder / name
    if not path.exists():
        path.symlink_to(Path(sys.executable).resolve())
    return str(path)


def script(folder: Path, name: str) -> str:
    """The stand-in as a script called `name`, as pip installs `vllm`."""
    path = folder / name
    path.write_text(STANDIN.read_text())
    return str(path)


def vllm(folder: Path, arguments: Sequence[str], plan: Plan, **options: Any) -> Standin:
    """`python .../vllm serve ARGUMENTS`, its command line intact as vLLM leaves it."""
    return Standin([sys.executable, script(folder, "vllm"), "serve", *arguments], plan, **options)


def llama_server(folder: Path, arguments: Sequence[str], plan: Plan, **options: Any) -> Standin:
    """A process whose name and argv[0] are `llama-server`."""
    executable = program(folder, "llama-server")
    return Standin([executable, str(STANDIN), *arguments], plan, executable=executable, **options)


def llama_server_child(folder: Path, arguments: Sequence[str], plan: Plan) -> Plan:
    """A plan for a `llama-server` that another stand-in starts, as a router and Ollama do."""
    executable = program(folder, "llama-server")
    return {**plan, "argv": [executable, str(STANDIN), *arguments], "executable": executable}


def ollama(folder: Path, plan: Plan, **options: Any) -> Standin:
    """`ollama serve`: name and argv[0] are `ollama`, argv[1] is `serve`."""
    executable = program(folder, "ollama")
    script(folder, "serve")
    return Standin(["ollama", "serve"], plan, executable=executable, folder=folder, **options)
