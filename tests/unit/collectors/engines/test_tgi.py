"""
Text Generation Inference against bodies made from its source (tests/fixtures/README.md). Expected numbers were read
by hand from the file that each test names; the rules are those of router/src/{server,infer/mod}.rs and
backends/v3/src/{lib,backend}.rs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from collectors.engines.base import Endpoint, EngineReading
from collectors.engines.tgi import Tgi
from collectors.http import HttpClient
from settings import CollectorSettings
from store.model import QUANTITIES, EngineState, Offer
from tests.support.engine_server import PAYLOADS, TEXT, Answer, EngineServer, document, payload
from tests.support.wait import free_port

TGI = Tgi()
COMMAND = ("text-generation-launcher", "--model-id", "m", "--max-batch-total-tokens", "10680")
# /info of 2.0.4 (router/src/lib.rs, struct Info); made-up values
OLD_INFO = {
    "model_id": "bigscience/blomm-560m",
    "model_sha": "e985a63cdc139290c5f700ff1929f0b5942cced2",
    "model_dtype": "torch.float16",
    "model_device_type": "cuda",
    "model_pipeline_tag": "lm",
    "max_concurrent_requests": 128,
    "max_best_of": 2,
    "max_stop_sequences": 4,
    "max_input_length": 1024,
    "max_total_tokens": 2048,
    "waiting_served_ratio": 1.2,
    "max_batch_total_tokens": 32000,
    "max_waiting_tokens": 20,
    "max_batch_size": None,
    "validation_workers": 2,
    "version": "2.0.4",
    "sha": None,
    "docker_label": None,
}
# /info of text-embeddings-inference, which is another server
EMBEDDINGS_INFO = {
    "model_id": "thenlper/gte-base",
    "model_sha": "fca14538aa9956a46526bd1d0d11d69e19b5a101",
    "model_dtype": "float16",
    "model_type": {"embedding": {"pooling": "cls"}},
    "max_concurrent_requests": 512,
    "max_input_length": 512,
    "version": "1.5.0",
}


@pytest.fixture
def http() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=5)) as client:
        yield client


def serve(metrics: Answer | None = None, info: Answer | None = None) -> EngineServer:
    answers = {"/metrics": metrics or payload("tgi_3.3.prom"), "/info": info or payload("tgi_info.json")}
    return EngineServer(answers, server="")


def text(body: str) -> Answer:
    return Answer(body=body.encode(), content_type=TEXT)


def sample(
    http: HttpClient, server: EngineServer, *, histograms: bool = True, arguments: tuple[str, ...] = ()
) -> EngineReading:
    with server:
        return TGI.sample(Endpoint(server.url, "test", arguments=arguments), http, histograms=histograms)


def values(reading: EngineReading) -> dict[str, float | None]:
    return {name: value.value for name, value in reading.readings.items()}


def assert_complete(reading: EngineReading) -> None:
    told = set(reading.readings) | set(reading.histograms)
    assert told | set(reading.absences) == {quantity.name for quantity in QUANTITIES}
    assert not told & set(reading.absences)
    assert all(absence.reason.endswith(".") for absence in reading.absences.values())


def test_identity(http: HttpClient) -> None:
    # tgi_info.json
    with serve() as server:
        identity = TGI.identify(Endpoint(server.url, "test", arguments=(*COMMAND, "--quantize", "awq")), http)
    assert identity is not None
    assert (identity.kind, identity.state, identity.version) == ("tgi", EngineState.READY, "3.3.7")
    assert (identity.model_id, identity.max_context_tokens) == ("Qwen/Qwen2.5-7B-Instruct", 4096)
    assert identity.quantization == "awq"
    assert identity.facts == {
        "model_sha": "a09a35458c702b33eeacc393d103063234e8bc28",
        "max_concurrent_requests": 128,
        "max_input_tokens": 3072,
        "max_batch_total_tokens": 10680,
    }


def test_identity_of_an_old_version(http: HttpClient) -> None:
    with serve(info=document(OLD_INFO)) as server:
        identity = TGI.identify(Endpoint(server.url, "test"), http)
    assert identity is not None
    assert (identity.version, identity.max_context_tokens) == ("2.0.4", 2048)
    assert (identity.facts["dtype"], identity.facts["max_batch_total_tokens"]) == ("torch.float16", 32000)


@pytest.mark.parametrize(
    "info",
    [
        document(EMBEDDINGS_INFO),
        document({"version": "1"}),
        document([]),
        Answer(404),
        Answer(401),
        Answer(503),
        Answer(body=b"<html>", content_type="text/html"),
    ],
)
def test_strangers_are_not_tgi(http: HttpClient, info: Answer) -> None:
    with serve(info=info) as server:
        assert TGI.identify(Endpoint(server.url, "test"), http) is None


def test_a_launcher_that_refuses_is_tgi_all_the_same(http: HttpClient) -> None:
    with serve(info=Answer(503)) as server:
        identity = TGI.identify(Endpoint(server.url, "test", arguments=COMMAND), http)
    assert identity is not None
    assert identity.state is EngineState.LOADING


def test_quantities(http: HttpClient) -> None:
    # tgi_3.3.prom: counters without _total; 2670 of the 10680 tokens of the command line are reserved
    reading = sample(http, serve(), arguments=COMMAND)
    assert reading.state is EngineState.READY
    assert values(reading) == {
        "generation_tokens_total": 2852,
        "prompt_with_cached_tokens_total": 17780,
        "requests_finished_total": 42,
        "prompt_seconds_total": 1.7682313580864852,
        "requests_running": 3,
        "requests_waiting": 0,
        "kv_used_fraction": 0.25,
        "kv_capacity_tokens": 10680,
    }
    assert "reserved, not used" in reading.readings["kv_used_fraction"].source
    assert "succeeds" in reading.readings["generation_tokens_total"].source
    assert reading.absences["ttft_seconds"].offer is Offer.NOT_OFFERED
    assert_complete(reading)


def test_histograms(http: HttpClient) -> None:
    reading = sample(http, serve())
    counts = {name: (h.buckets[-1][1], h.sum_seconds) for name, h in reading.histograms.items()}
    assert counts == {
        "tpot_seconds": (42, 0.9845105378892577),
        "e2e_seconds": (42, 54.72678389914815),
        "queue_seconds": (42, 0.03990174513628502),
    }


def test_without_histograms_none_is_missing(http: HttpClient) -> None:
    reading = sample(http, serve(), histograms=False)
    assert reading.histograms == {}
    assert not {"tpot_seconds", "e2e_seconds", "queue_seconds"} & set(reading.absences)


def test_a_budget_that_stands_only_in_the_log_is_not_guessed(http: HttpClient) -> None:
    reading = sample(http, serve())
    assert "log" in reading.absences["kv_capacity_tokens"].reason
    assert "--max-batch-total-tokens" in (reading.absences["kv_used_fraction"].remedy or "")
    assert_complete(reading)


def test_the_budget_of_an_old_version_is_in_its_info(http: HttpClient) -> None:
    got = values(sample(http, serve(info=document(OLD_INFO))))
    assert (got["kv_capacity_tokens"], got["kv_used_fraction"]) == (32000, 2670 / 32000)


def test_the_budget_gauge_is_taken_where_it_is_exported(http: HttpClient) -> None:
    body = (
        PAYLOADS / "tgi_3.3.prom"
    ).read_text() + "# TYPE tgi_batch_max_total_tokens gauge\ntgi_batch_max_total_tokens 26700\n"
    reading = sample(http, serve(text(body)))
    assert values(reading)["kv_used_fraction"] == 0.1
    assert reading.readings["kv_capacity_tokens"].source == "tgi_batch_max_total_tokens"


def test_an_empty_answer_is_a_server_without_traffic(http: HttpClient) -> None:
    # tgi_3.3_fresh.prom: 0 bytes with status 200 (text-generation-inference#2184)
    reading = sample(http, serve(payload("tgi_3.3_fresh.prom")))
    assert reading.state is EngineState.READY
    assert "No request yet" in (reading.detail or "")
    assert reading.readings == {}
    assert reading.absences["generation_tokens_total"].offer is Offer.UNKNOWN
    assert "first event" in reading.absences["generation_tokens_total"].reason
    assert_complete(reading)


def test_summaries_of_early_versions_have_totals_and_no_buckets(http: HttpClient) -> None:
    # quantiles instead of buckets (text-generation-inference#231)
    body = (
        "# TYPE tgi_request_success counter\ntgi_request_success 42\n"
        "# TYPE tgi_request_generated_tokens summary\n"
        'tgi_request_generated_tokens{quantile="0.5"} 64\n'
        "tgi_request_generated_tokens_sum 2852\ntgi_request_generated_tokens_count 42\n"
        "# TYPE tgi_request_duration summary\n"
        'tgi_request_duration{quantile="0.5"} 1.3\ntgi_request_duration{quantile="0.99"} 3.1\n'
        "tgi_request_duration_sum 54.7\ntgi_request_duration_count 42\n"
    )
    reading = sample(http, serve(text(body)))
    assert values(reading) == {"generation_tokens_total": 2852, "requests_finished_total": 42}
    assert "quantiles" in reading.absences["e2e_seconds"].reason
    assert reading.absences["queue_seconds"].offer is Offer.UNKNOWN
    assert "tgi_request_queue_duration" in reading.absences["queue_seconds"].reason
    assert "tgi_queue_size" in reading.absences["requests_waiting"].reason
    assert_complete(reading)


@pytest.mark.parametrize(
    ("metrics", "state"),
    [
        (payload("vllm_0.33_idle.prom"), EngineState.UNREACHABLE),
        (Answer(body=b"<html></html>", content_type="text/html"), EngineState.UNREACHABLE),
        (Answer(503), EngineState.LOADING),
        (Answer(404), EngineState.UNREACHABLE),
        (Answer(401), EngineState.UNAUTHORISED),
    ],
)
def test_nonsense(http: HttpClient, metrics: Answer, state: EngineState) -> None:
    reading = sample(http, serve(metrics))
    assert (reading.state, reading.readings) == (state, {})
    assert_complete(reading)


def test_loading_and_busy(http: HttpClient) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert TGI.sample(Endpoint(url, "t", pid=os.getpid()), http, histograms=True).state is EngineState.LOADING
    with serve(Answer(behaviour="hang")) as server, HttpClient(CollectorSettings(request_timeout_seconds=0.3)) as brisk:
        assert TGI.sample(Endpoint(server.url, "t"), brisk, histograms=True).state is EngineState.BUSY


@pytest.mark.parametrize(
    ("arguments", "title", "expected"),
    [
        (("text-generation-launcher", "--model-id", "m"), "text-generation-launcher", True),
        (("/usr/local/bin/text-generation-router",), "text-generation", True),
        (("/opt/venv/bin/python3", "/opt/venv/bin/text-generation-server", "serve", "m"), "python3", True),
        (("python3", "-m", "text_generation"), "python3", False),
        (("text-generation-webui",), "text-generation-webui", False),
        ((), "", False),
    ],
)
def test_looks_like(arguments: tuple[str, ...], title: str, expected: bool) -> None:
    assert TGI.looks_like(arguments, title) is expected
