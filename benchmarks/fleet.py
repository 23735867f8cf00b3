"""
Eight vLLM stand-ins in one process, for benchmarks: the body of a real vLLM 0.32.0 with counters that move.

`python -m benchmarks.fleet N` prints one URL a line and serves until its standard input ends.
"""

from __future__ import annotations

import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAYLOADS = Path(__file__).parents[1] / "tests" / "fixtures" / "payloads"
BODY = (PAYLOADS / "vllm_0.32.0_cpu_real.prom").read_text()
JSON_BODIES = {
    "/v1/models": (PAYLOADS / "vllm_0.32.0_v1_models_real.json").read_bytes(),
    "/version": (PAYLOADS / "vllm_0.32.0_version_real.json").read_bytes(),
}
MOVING = re.compile(r"^(vllm:\S*(?:_total|_count|_sum|_bucket)\{[^}]*\}) (\S+)$", re.MULTILINE)


def handler() -> type[BaseHTTPRequestHandler]:
    """A handler for one stand-in, whose counters grow with every scrape."""
    scrapes = iter(range(10**9))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            kind, body = "application/json", JSON_BODIES.get(path)
            if path == "/metrics":
                step = next(scrapes)
                text = MOVING.sub(lambda m: f"{m[1]} {float(m[2]) + step}", BODY)
                kind, body = "text/plain; version=0.0.4", text.encode()
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        server = ThreadingHTTPServer(("127.0.0.1", 0), handler())
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()
