"""
What the adapters declare is what they do, and what the README says.

Declarations are compared with samples of the recorded bodies (tests/fixtures/README.md): a quantity that is declared
as never offered is never read, with the declared reason, and each that is declared as offered is read from the body
of some version.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectors.engines import ADAPTERS
from collectors.engines.base import Absence, Adapter, Child, Endpoint, EngineReading, Offered
from collectors.http import HttpClient
from settings import CollectorSettings
from store.model import QUANTITIES, Offer
from tests.support.engine_server import Answer, EngineServer, payload

ROOT = Path(__file__).parents[4]
SLOTS = payload("llamacpp_0.6.0_slots_one_busy.json")
OLLAMA = {"/api/ps": payload("ollama_api_ps.json")}
TGI = {"/info": payload("tgi_info.json")}
HEALTHY = {"/health": Answer()}
SERVERS: dict[str, list[dict[str, Answer]]] = {
    "vllm": [
        {"/metrics": payload("vllm_0.33_single.prom")} | HEALTHY,
        {"/metrics": payload("vllm_0.33_idle.prom")} | HEALTHY,
        {"/metrics": payload("vllm_0.13_single.prom")} | HEALTHY,
    ],
    "llama.cpp": [
        {"/metrics": payload("llamacpp_0.6.0_busy.prom"), "/slots": SLOTS},
        {"/metrics": payload("llamacpp_2025-05_8733e0cf6_kv.prom")},
    ],
    "sglang": [
        {"/metrics": payload("sglang_0.5.23.prom")},
        {"/v1/loads?include=core": payload("sglang_v1_loads.json")},
    ],
    "tgi": [{"/metrics": payload("tgi_3.3.prom")} | TGI, {"/metrics": payload("tgi_3.3_fresh.prom")} | TGI],
    "ollama": [OLLAMA, {"/api/ps": payload("ollama_api_ps_idle.json")}],
}
COMMANDS = {
    "llama.cpp": ("llama-server", "-m", "m"),
    "tgi": ("text-generation-launcher", "--max-batch-total-tokens", "32000"),
}


@pytest.fixture
def http() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=5)) as client:
        yield client


def samples(adapter: Adapter, http: HttpClient) -> list[EngineReading]:
    """One of every server, with a llama-server child, as an Ollama has."""
    readings = []
    child_answers = {"/metrics": payload("llamacpp_0.6.0_busy.prom"), "/slots": SLOTS}
    with EngineServer(child_answers, server="llama.cpp") as inner:
        for answers in SERVERS[adapter.kind]:
            child = Child(1, 1.0, ("llama-server",), inner.url)
            with EngineServer(answers) as server:
                arguments = COMMANDS.get(adapter.kind, ())
                endpoint = Endpoint(server.url, "test", arguments=arguments, children=(child,))
                readings.append(adapter.sample(endpoint, http, histograms=True))
    return readings


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.kind)
def test_every_quantity_is_declared_once(adapter: Adapter) -> None:
    assert set(adapter.offers) == {quantity.name for quantity in QUANTITIES}
    for offer in adapter.offers.values():
        if isinstance(offer, Absence):
            assert offer.offer is Offer.NOT_OFFERED
            assert offer.reason.endswith(".")


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.kind)
def test_what_is_declared_as_missing_is_missing_for_that_reason(adapter: Adapter, http: HttpClient) -> None:
    never = {name: offer for name, offer in adapter.offers.items() if isinstance(offer, Absence)}
    for reading in samples(adapter, http):
        assert not set(never) & (set(reading.readings) | set(reading.histograms))
        assert {name: reading.absences[name] for name in never} == never


@pytest.mark.parametrize("adapter", ADAPTERS, ids=lambda adapter: adapter.kind)
def test_what_is_declared_as_offered_is_read_from_there(adapter: Adapter, http: HttpClient) -> None:
    first = samples(adapter, http)[0]
    told = {name: value.source for name, value in first.readings.items()}
    told |= {name: value.source for name, value in first.histograms.items()}
    offered = {name: offer for name, offer in adapter.offers.items() if isinstance(offer, Offered)}
    assert set(told) == set(offered)
    for name, offer in offered.items():
        declared = offer.source.partition("{")[0].split()[: 2 if adapter.kind == "ollama" else 1]
        assert " ".join(declared).strip(":") in told[name], name


def test_the_readme_is_current() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "collectors", "engines", "--markdown"], cwd=ROOT, capture_output=True, text=True
    )
    assert printed.returncode == 0, printed.stderr
    readme = (ROOT / "README.md").read_text()
    begin, end = "<!-- engines: begin -->\n", "<!-- engines: end -->"
    written = readme[readme.index(begin) + len(begin) : readme.index(end)]
    assert written == printed.stdout, "replace that part by the output of `python -m collectors engines --markdown`"
    for adapter in ADAPTERS:
        assert f"| {adapter.title} |" in written
