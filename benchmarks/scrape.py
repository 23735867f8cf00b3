"""
What a scrape costs: `python -m benchmarks.scrape`.

Measured side by side in one run on this machine, as CPU time of this process (the servers are
processes of their own): parsing a vLLM body for the wanted families against prometheus_client's
parser on the whole of it, a keep-alive GET with the collector's client against httpx2 and http.client,
and a whole scrape (GETs, parsing and mapping). The last column holds budgets where there are any.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from collectors.engines.base import Adapter, Endpoint
from collectors.engines.llamacpp import LlamaCpp
from collectors.engines.vllm import Vllm
from collectors.engines.vllm_metrics import wanted
from collectors.exposition import parse
from collectors.http import HttpClient
from settings import CollectorSettings

PAYLOADS = Path(__file__).parents[1] / "tests" / "fixtures" / "payloads"
TEXT = "text/plain; version=0.0.4"
BODIES = ("vllm_0.32.0_cpu_real.prom", "vllm_0.33_dp2_multiproc.prom")
PARSE_RATIO_BUDGET = 5.0
ENGINES, INTERVAL_SECONDS, HISTOGRAM_EVERY = 8, 2.0, 5
CORE_SHARE_BUDGET = 0.03


def cpu_seconds(work: Callable[[], object], rounds: int, repeats: int = 5) -> float:
    """The least CPU time of one call, over `repeats` runs of `rounds` calls each."""
    work()
    best = float("inf")
    for _ in range(repeats):
        began = time.process_time()
        for _ in range(rounds):
            work()
        best = min(best, (time.process_time() - began) / rounds)
    return best


@contextmanager
def stand_in(files: dict[str, str]) -> Iterator[str]:
    """A stand-in engine in a process of its own; gives its URL."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "script.json"
        answers = {
            path: {
                "body_file": str(PAYLOADS / name),
                "content_type": TEXT if name.endswith("prom") else "application/json",
            }
            for path, name in files.items()
        }
        script.write_text(json.dumps(answers | {"/health": {}}))
        command = [sys.executable, "-m", "tests.support.engine_server", str(script)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
            process.terminate()


def parsing() -> dict[str, float]:
    """Ratio of prometheus_client's CPU time to ours for each body."""
    ratios = {}
    for name in BODIES:
        body = (PAYLOADS / name).read_bytes()
        text = body.decode()
        families = wanted(histograms=True)
        ours = cpu_seconds(lambda body=body, families=families: parse(body, TEXT, families), 40)
        theirs = cpu_seconds(lambda text=text: list(text_string_to_metric_families(text)), 5)
        ratios[name] = theirs / ours
        row(f"parse {name}", ours, f"prometheus_client {theirs * 1e3:.2f} ms: {theirs / ours:.1f}x (budget 5x)")
    return ratios


def requesting(url: str) -> None:
    """One keep-alive GET of a 52 kB body with three clients."""
    endpoint = Endpoint(url, "benchmark")
    with HttpClient(CollectorSettings()) as client:
        row("GET, collectors.http", cpu_seconds(lambda: client.get(endpoint, "/metrics"), 200))
    with httpx2.Client(trust_env=False) as client2:
        row("GET, httpx2", cpu_seconds(lambda: client2.get(url + "/metrics").content, 200))
    connection = http.client.HTTPConnection(urlsplit(url).netloc)

    def plain() -> bytes:
        connection.request("GET", "/metrics")
        return connection.getresponse().read()

    row("GET, http.client", cpu_seconds(plain, 200))
    connection.close()


def scraping(name: str, adapter: Adapter, url: str, arguments: tuple[str, ...]) -> float:
    """CPU seconds of one scrape, buckets included every fifth time as at the default intervals."""
    endpoint = Endpoint(url, "benchmark", arguments=arguments)
    with HttpClient(CollectorSettings()) as client:
        lean = cpu_seconds(lambda: adapter.sample(endpoint, client, histograms=False), 60)
        full = cpu_seconds(lambda: adapter.sample(endpoint, client, histograms=True), 60)
    mean = (full + (HISTOGRAM_EVERY - 1) * lean) / HISTOGRAM_EVERY
    share = ENGINES * mean / INTERVAL_SECONDS
    row(
        f"scrape {name}",
        mean,
        f"{ENGINES} engines every {INTERVAL_SECONDS:g} s: {share:.2%} of a core (budget 3 % for all)",
    )
    return share


def row(what: str, seconds: float, note: str = "") -> None:
    print(f"{what:42} {seconds * 1e3:8.3f} ms  {note}")


def main() -> int:
    """Print the table; exit 1 when a budget is exceeded."""
    ratios = parsing()
    vllm = {"/metrics": BODIES[0]}
    llama = {"/metrics": "llamacpp_0.6.0_busy.prom", "/slots": "llamacpp_0.6.0_slots_one_busy.json"}
    with stand_in(vllm) as vllm_url, stand_in(llama) as llama_url:
        requesting(vllm_url)
        shares = [
            scraping("vLLM", Vllm(), vllm_url, ("vllm", "serve", "m")),
            scraping("llama.cpp", LlamaCpp(), llama_url, ("llama-server", "-m", "m.gguf")),
        ]
    return 0 if min(ratios.values()) >= PARSE_RATIO_BUDGET and max(shares) < CORE_SHARE_BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
