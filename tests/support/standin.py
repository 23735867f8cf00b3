"""
One process of a stand-in engine: it carries the titles, sockets and children of a real one.

Run by `tests.support.processes`, never imported. `STANDIN_PLAN` (JSON) says what to be:
`{"title": str, "listen": [[address, port], ...], "answers": {path: [status, content type, body]},
"children": [plan, ...]}`; a child with `"argv"` (and `"executable"`) is executed, any other is forked.
Sockets without `"answers"` accept connections and stay silent; with
`"listen_when_exists"` they are opened once that file is there. `"script"` names a JSON file of such answers
that is read anew for every request, `"record"` one to which `METHOD path` of each request is appended,
`"server"` is the Server header. The tree lives until the pipe
`STANDIN_LIFE` is closed by the test.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


def listener(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((address, port))
    sock.listen()
    return sock


def serve(sock: socket.socket, plan: dict[str, Any]) -> None:
    class Handler(BaseHTTPRequestHandler):
        def version_string(self) -> str:
            return plan.get("server", "stand-in")

        def __getattr__(self, name: str) -> Any:
            if name.startswith("do_"):  # every method is recorded and answered alike
                return self.any_method
            raise AttributeError(name)

        def any_method(self) -> None:
            answers = plan.get("answers") or {}
            if "script" in plan:
                with open(plan["script"]) as file:  # noqa: PTH123  (this file runs without the repository)
                    answers = json.load(file)
            if "record" in plan:
                with open(plan["record"], "a") as file:  # noqa: PTH123
                    file.write(f"{self.command} {self.path}\n")
            status, kind, body = answers.get(self.path, (404, "text/plain", "not found"))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:
            """Silence."""

    server = HTTPServer(sock.getsockname()[:2], Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = sock
    threading.Thread(target=server.serve_forever, daemon=True).start()


def start_child(plan: dict[str, Any]) -> None:
    if "argv" in plan:
        environment = {**os.environ, "STANDIN_PLAN": json.dumps({**plan, "argv": None})}
        keep = (int(os.environ["STANDIN_LIFE"]), int(os.environ["STANDIN_REPORT"]))
        subprocess.Popen(plan["argv"], executable=plan["executable"], env=environment, pass_fds=keep)
    elif os.fork() == 0:
        be(plan)
        os._exit(0)


def report(plan: dict[str, Any]) -> None:
    line = json.dumps({"key": plan.get("key") or plan.get("title") or "root", "pid": os.getpid()}) + "\n"
    os.write(int(os.environ["STANDIN_REPORT"]), line.encode())


def be(plan: dict[str, Any]) -> None:
    for child in plan.get("children", ()):
        start_child(child)
    if plan.get("title"):
        from setproctitle import setproctitle  # only the virtual environment's interpreter has it

        setproctitle(plan["title"])
    late = plan.get("listen_when_exists")
    if late:
        report(plan)
        while not os.path.exists(late):  # noqa: PTH110
            if select.select([int(os.environ["STANDIN_LIFE"])], [], [], 0.02)[0]:
                return
    sockets = [listener(address, port) for address, port in plan.get("listen", ())]
    if plan.get("fork_after_listening"):
        start_child(plan["fork_after_listening"])  # it holds the same sockets
    for sock in sockets:
        if plan.get("answers") is not None or "script" in plan:
            serve(sock, plan)
    ballast = bytearray(plan.get("ballast_bytes", 0))
    for at in range(0, len(ballast), 4096):
        ballast[at] = 1  # touched, so that it is resident
    while time.process_time() < plan.get("burn_cpu_seconds", 0):
        pass
    if plan.get("leave_zombie") and os.fork() == 0:
        os._exit(0)
    if not late:
        report(plan)
    os.read(int(os.environ["STANDIN_LIFE"]), 1)


if __name__ == "__main__":
    be(json.loads(os.environ.pop("STANDIN_PLAN")))
    sys.exit(0)
