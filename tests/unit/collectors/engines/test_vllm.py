"""
vLLM against recorded and source-derived bodies (tests/fixtures/README.md says which is which).
Expected numbers were read by hand from the file that each test names; the rules are those of vLLM's
source (vllm/v1/metrics/loggers.py, vllm/v1/core/kv_cache_utils.py, vllm/v1/engine/core_client.py).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import pytest

from collectors.engines.base import Endpoint, EngineReading
from collectors.engines.vllm import Vllm
from collectors.http import ConnectFailedError, HttpClient, TimedOutError
from settings import CollectorSettings
from store.model import QUANTITIES, EngineState, Offer
from tests.support.engine_server import PAYLOADS, TEXT, Answer, EngineServer, document, payload
from tests.support.wait import free_port

VLLM = Vllm()
REAL = {
    "/version": payload("vllm_0.32.0_version_real.json"),
    "/v1/models": payload("vllm_0.32.0_v1_models_real.json"),
    "/metrics": payload("vllm_0.32.0_cpu_real.prom"),
    "/health": Answer(),
}
PATHS = ("/version", "/v1/models", "/metrics")
QWEN = "Qwen/Qwen2.5-7B-Instruct"
COMMAND = (
    "/opt/bin/python", "/opt/bin/vllm", "serve", QWEN, "--tensor_parallel_size=2", "-pp", "1", "-q", "fp8",
    "--max-model-len", "8k", "--max-num-seqs", "64", "--enforce-eager", "--api-key", "[redacted]",
)  # fmt: skip


@pytest.fixture
def http() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=5)) as client:
        yield client


@pytest.fixture
def impatient() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=0.3)) as client:
        yield client


def at(server: EngineServer, **fields: Any) -> Endpoint:
    return Endpoint(url=server.url, found_by="test", **fields)


def sample(
    http: HttpClient, metrics: Answer, *, histograms: bool = True, health: Answer | None = None
) -> EngineReading:
    with EngineServer({"/metrics": metrics, "/health": health or Answer()}) as server:
        return VLLM.sample(at(server), http, histograms=histograms)


def values(reading: EngineReading) -> dict[str, float | None]:
    return {name: value.value for name, value in reading.readings.items()}


def assert_complete(reading: EngineReading) -> None:
    """Each canonical quantity is in exactly one of readings, histograms and absences, and absences say why."""
    groups = [set(reading.readings), set(reading.histograms), set(reading.absences)]
    assert set.union(*groups) == {quantity.name for quantity in QUANTITIES}
    assert sum(map(len, groups)) == len(QUANTITIES)
    assert all(absence.reason.endswith(".") for absence in reading.absences.values())
    assert all(value.source for value in reading.readings.values())


def test_real_server_is_identified(http: HttpClient) -> None:
    # vllm_0.32.0_*_real: vllm serve ... --served-model-name smollm2 --max-model-len 2048 on a CPU
    with EngineServer(REAL) as server:
        identity = VLLM.identify(at(server), http)
    assert identity is not None
    assert (identity.kind, identity.state, identity.version) == ("vllm", EngineState.READY, "0.32.0")
    assert (identity.model_id, identity.model_path) == ("smollm2", "/models/smol-hf")
    assert identity.max_context_tokens == 2048
    assert identity.facts == {
        "block_size": 128,
        "cache_dtype": "auto",
        "enable_prefix_caching": True,
        "kv_cache_max_concurrency": 22.75,
        "kv_cache_memory_bytes": 1073741824,  # given, so gpu_memory_utilization (0.92 in the file) is not in effect
        "kv_cache_size_tokens": 46592,
        "num_gpu_blocks": 364,
    }


def test_command_line_gives_what_no_endpoint_tells(http: HttpClient) -> None:
    answers = {
        "/version": payload("vllm_version.json"),
        "/v1/models": payload("vllm_v1_models.json"),
        "/metrics": payload("vllm_0.33_single.prom"),
    }
    with EngineServer(answers) as server:
        identity = VLLM.identify(at(server, arguments=COMMAND), http)
    assert identity is not None
    assert (identity.version, identity.quantization, identity.slots) == ("0.33.0", "fp8", 64)
    assert identity.max_context_tokens == 8192  # of /v1/models; "8k" on the command line is 8000
    assert identity.facts["tensor_parallel_size"] == 2
    assert identity.facts["enforce_eager"] is True
    assert identity.facts["gpu_memory_utilization"] == 0.9
    assert "redacted" not in repr(identity)


def test_sample_of_the_real_server(http: HttpClient) -> None:
    # vllm_0.32.0_cpu_real.prom
    reading = sample(http, REAL["/metrics"])
    assert reading.state is EngineState.READY
    assert reading.detail is None
    assert values(reading) == {
        "generation_tokens_total": 1024,
        "prompt_tokens_total": 3929,
        "prompt_with_cached_tokens_total": 3929,
        "prefix_cache_query_tokens_total": 3929,
        "prefix_cache_hit_tokens_total": 0,
        "requests_finished_total": 32,
        "preemptions_total": 0,
        "generation_seconds_total": 360.2377914669996,
        "prompt_seconds_total": 465.4060815169996,
        "requests_running": 0,
        "requests_waiting": 0,
        "kv_used_fraction": 0,
        "kv_capacity_tokens": 46592,
    }
    assert {name: h.buckets[-1] for name, h in reading.histograms.items()} == {
        "ttft_seconds": (math.inf, 32),
        "itl_seconds": (math.inf, 992),
        "tpot_seconds": (math.inf, 32),
        "e2e_seconds": (math.inf, 32),
        "queue_seconds": (math.inf, 32),
    }
    itl = reading.histograms["itl_seconds"]
    assert itl.buckets[:6] == ((0.01, 0), (0.025, 0), (0.05, 0), (0.075, 11), (0.1, 69), (0.15, 215))
    assert itl.sum_seconds == 360.2377914669996
    assert reading.restart_marker == "1796098906.94"
    assert_complete(reading)


def test_data_parallel_engines_are_summed_and_shares_averaged(http: HttpClient) -> None:
    # vllm_0.33_dp2_multiproc.prom: two engines, several API servers, so no process_* and no _created
    reading = sample(http, payload("vllm_0.33_dp2_multiproc.prom"))
    assert values(reading) == {
        "generation_tokens_total": 42176 + 35264,
        "prompt_tokens_total": 117029 + 81355,
        "prompt_with_cached_tokens_total": 178373 + 128427,
        "prefix_cache_query_tokens_total": 178373 + 128427,
        "prefix_cache_hit_tokens_total": 61344 + 47072,
        "requests_finished_total": 153 + 67 + 118 + 62,
        "preemptions_total": 4,
        "generation_seconds_total": 716.8962590042569 + 599.420332265956,
        "prompt_seconds_total": 28.57474690557714 + 22.24651637097455,
        "requests_running": 25,
        "requests_waiting": 6,
        "kv_used_fraction": pytest.approx(0.158267732405760, abs=1e-12),
        "kv_capacity_tokens": 2 * 438896,  # kv_cache_size_tokens is per engine
    }
    assert "2 engines" in reading.readings["generation_tokens_total"].source
    assert reading.histograms["itl_seconds"].buckets[-1][1] == 41956 + 35084
    assert dict(reading.histograms["itl_seconds"].buckets)[0.05] == 41956 + 35083
    assert reading.histograms["queue_seconds"].sum_seconds == 2.2900404263912004 + 2.094321750820348
    assert reading.restart_marker is None
    assert_complete(reading)


def test_data_parallel_blocks_are_already_a_sum(http: HttpClient) -> None:
    # As before 0.24, without kv_cache_size_tokens: 54862 blocks of 16 over two engines, block 0 of each unused.
    body = (PAYLOADS / "vllm_0.33_dp2_multiproc.prom").read_text().replace('kv_cache_size_tokens="438896",', "")
    reading = sample(http, Answer(body=body.encode(), content_type=TEXT))
    assert reading.readings["kv_capacity_tokens"].value == (54862 - 2) * 16


def test_version_0_13(http: HttpClient) -> None:
    # vllm_0.13_single.prom: no prompt_tokens_by_source, no kv_cache_size_tokens
    reading = sample(http, payload("vllm_0.13_single.prom"))
    got = values(reading)
    assert got["generation_tokens_total"] == 39152
    assert got["prompt_with_cached_tokens_total"] == 158452
    assert got["prompt_tokens_total"] == 98836  # = 158452 - 59616 cached
    assert "approximate" in reading.readings["prompt_tokens_total"].source
    assert got["kv_capacity_tokens"] == (27431 - 1) * 16
    assert got["requests_finished_total"] == 152 + 68
    assert got["kv_used_fraction"] == 0.17326773240576004
    assert reading.restart_marker == "1796098123.45"
    assert_complete(reading)


@pytest.mark.parametrize(
    ("file", "generated", "computed", "running"),
    [("vllm_0.33_single.prom", 41040, 105412, 14), ("vllm_0.33_idle.prom", 0, 0, 0)],
)
def test_version_0_33(http: HttpClient, file: str, generated: float, computed: float, running: float) -> None:
    reading = sample(http, payload(file))
    got = values(reading)
    assert (got["generation_tokens_total"], got["prompt_tokens_total"], got["requests_running"]) == (
        generated, computed, running,
    )  # fmt: skip
    assert got["kv_capacity_tokens"] == 438896
    assert len(reading.histograms) == 5
    assert_complete(reading)


def test_rust_frontend(http: HttpClient) -> None:
    # vllm_0.33_rust_frontend.openmetrics: no cache_config_info, no process_*, one histogram
    answer = payload("vllm_0.33_rust_frontend.openmetrics", "application/openmetrics-text; version=1.0.0")
    reading = sample(http, answer)
    got = values(reading)
    assert (got["generation_tokens_total"], got["prompt_tokens_total"]) == (42720, 106518)
    assert (got["prefix_cache_query_tokens_total"], got["prefix_cache_hit_tokens_total"]) == (165734, 59216)
    assert (got["requests_finished_total"], got["requests_running"], got["preemptions_total"]) == (220, 14, 2)
    assert reading.histograms["ttft_seconds"].buckets == ((0.1, 75), (0.25, 205), (0.5, 219), (math.inf, 220))
    assert reading.histograms["ttft_seconds"].sum_seconds == 31.46
    assert "Rust" in reading.absences["kv_capacity_tokens"].reason
    assert reading.absences["kv_capacity_tokens"].offer is Offer.NOT_OFFERED
    assert_complete(reading)


def test_names_escaped_by_openmetrics_negotiation(http: HttpClient) -> None:
    answer = payload("vllm_0.32.0_slash_openmetrics_broken_excerpt.txt", "application/openmetrics-text; version=1.0.0")
    assert values(sample(http, answer))["generation_tokens_total"] == 1024


def test_version_0_8_5_names(http: HttpClient) -> None:
    # Names of 0.8.5 (vllm/v1/metrics/loggers.py there): gpu_* names, prefix cache in blocks, num_gpu_blocks "None".
    labels = '{engine="0",model_name="m"}'
    body = f"""vllm:gpu_cache_usage_perc{labels} 0.25
vllm:num_requests_running{labels} 2
vllm:num_requests_waiting{labels} 1
vllm:gpu_prefix_cache_queries_total{labels} 40
vllm:gpu_prefix_cache_hits_total{labels} 10
vllm:prompt_tokens_total{labels} 640
vllm:generation_tokens_total{labels} 99
vllm:time_per_output_token_seconds_bucket{{engine="0",le="0.01",model_name="m"}} 90
vllm:time_per_output_token_seconds_bucket{{engine="0",le="+Inf",model_name="m"}} 97
vllm:time_per_output_token_seconds_sum{labels} 0.9
vllm:time_per_output_token_seconds_count{labels} 97
vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="None"}} 1
"""
    reading = sample(http, Answer(body=body.encode(), content_type=TEXT))
    assert values(reading)["kv_used_fraction"] == 0.25
    assert reading.histograms["itl_seconds"].buckets == ((0.01, 90), (math.inf, 97))
    assert "blocks" in reading.absences["prefix_cache_hit_tokens_total"].reason
    assert {"prompt_tokens_total", "kv_capacity_tokens", "tpot_seconds"} <= set(reading.absences)
    assert_complete(reading)


def test_a_version_never_seen_gives_what_it_has_and_names_what_was_expected(http: HttpClient) -> None:
    # vllm_0.33_single.prom with two families under names that no version has had
    body = (PAYLOADS / "vllm_0.33_single.prom").read_text()
    generated = values(sample(http, Answer(body=body.encode(), content_type=TEXT)))["generation_tokens_total"]
    body = body.replace("vllm:num_requests_running", "vllm:requests_active").replace(
        "vllm:kv_cache_usage_perc", "vllm:kv"
    )
    reading = sample(http, Answer(body=body.encode(), content_type=TEXT))
    assert values(reading)["generation_tokens_total"] == generated
    for quantity, name in (("requests_running", "num_requests_running"), ("kv_used_fraction", "kv_cache_usage_perc")):
        assert reading.absences[quantity].offer is Offer.UNKNOWN
        assert f"vllm:{name}" in reading.absences[quantity].reason
    assert_complete(reading)


def test_prefix_caching_that_is_off_is_disabled_and_not_zero(http: HttpClient) -> None:
    body = (PAYLOADS / "vllm_0.33_idle.prom").read_text().replace('caching="True"', 'caching="False"')
    reading = sample(http, Answer(body=body.encode(), content_type=TEXT))
    absence = reading.absences["prefix_cache_hit_tokens_total"]
    assert absence.offer is Offer.DISABLED
    assert "--enable-prefix-caching" in (absence.remedy or "")
    assert_complete(reading)


def test_buckets_only_when_they_are_due(http: HttpClient) -> None:
    reading = sample(http, REAL["/metrics"], histograms=False)
    assert reading.histograms == {}
    assert set(reading.absences) == {"generation_live_tokens_total"}  # what is offered is not said to be missing


@pytest.mark.parametrize(("level", "says"), [("weights_offloaded", "level 1"), ("discard_all", "level 2")])
def test_sleep(http: HttpClient, level: str, says: str) -> None:
    body = (
        (PAYLOADS / "vllm_0.33_idle.prom").read_text()
        .replace('sleep_state="awake"} 1.0', 'sleep_state="awake"} 0.0')
        .replace(f'sleep_state="{level}"}} 0.0', f'sleep_state="{level}"}} 1.0')
    )  # fmt: skip
    reading = sample(http, Answer(body=body.encode(), content_type=TEXT))
    assert reading.state is EngineState.SLEEPING
    assert says in (reading.detail or "")
    assert values(reading)["generation_tokens_total"] == 0


def test_not_a_number_is_none_and_not_zero(http: HttpClient) -> None:
    body = (PAYLOADS / "vllm_0.32.0_cpu_real.prom").read_text()
    body = body.replace(
        'usage_perc{engine="0",model_name="smollm2"} 0.0', 'usage_perc{engine="0",model_name="smollm2"} NaN'
    )
    assert sample(http, Answer(body=body.encode(), content_type=TEXT)).readings["kv_used_fraction"].value is None


def test_without_log_stats(http: HttpClient) -> None:
    # --disable-log-stats: /metrics answers 200 with python_*, process_* and http_* only (vllm/v1/engine/async_llm.py)
    body = b'python_info{version="3.12"} 1.0\nprocess_start_time_seconds 1.7e9\nhttp_requests_total 3.0\n'
    metrics = Answer(body=body, content_type=TEXT)
    reading = sample(http, metrics)
    assert reading.state is EngineState.METRICS_DISABLED
    assert {absence.offer for absence in reading.absences.values()} == {Offer.DISABLED}
    assert all("--disable-log-stats" in (absence.remedy or "") for absence in reading.absences.values())
    assert_complete(reading)
    with EngineServer(REAL | {"/metrics": metrics}) as server:
        identity = VLLM.identify(at(server), http)
    assert identity is not None
    assert identity.state is EngineState.METRICS_DISABLED


def test_models_behind_a_key_are_named_by_the_metrics(http: HttpClient) -> None:
    locked = document({"error": "Unauthorized"}, status=401)
    with EngineServer(REAL | {"/v1/models": locked}) as server:
        identity = VLLM.identify(at(server), http)
    assert identity is not None
    assert (identity.model_id, identity.state, identity.max_context_tokens) == ("smollm2", EngineState.READY, None)
    assert "api_key_env" in (identity.detail or "")


def test_only_metrics_answers(http: HttpClient) -> None:
    with EngineServer({"/metrics": REAL["/metrics"]}) as server:
        identity = VLLM.identify(at(server), http)
    assert identity is not None
    assert (identity.version, identity.model_id) == (None, "smollm2")


@pytest.mark.parametrize(
    "answers",
    [
        {},
        {"/version": document({"version": "1.2.3"})},
        {
            "/version": document({"major": "1", "minor": "29"}),
            "/metrics": Answer(body=b"go_goroutines 3\n", content_type=TEXT),
        },
        {
            "/version": payload("vllm_version.json"),
            "/v1/models": document({"data": [{"id": "m", "owned_by": "sglang"}]}),
        },
        {"/v1/models": payload("llamacpp_0.6.0_v1_models.json"), "/metrics": payload("llamacpp_0.6.0_idle.prom")},
        dict.fromkeys(PATHS, Answer(body=b"<html>hello</html>", content_type="text/html")),
        dict.fromkeys(PATHS, Answer(body=b"\xff\xfe{")),
        {"/metrics": payload("sglang_0.5.23.prom")},
        {"/metrics": payload("tgi_3.3.prom")},
    ],
)
def test_others_are_not_vllm(http: HttpClient, answers: dict[str, Answer]) -> None:
    with EngineServer(answers) as server:
        assert VLLM.identify(at(server), http) is None


def test_metrics_of_a_llama_cpp_are_left_alone(http: HttpClient) -> None:
    with EngineServer({"/metrics": payload("llamacpp_0.6.0_idle.prom")}, server="llama.cpp") as server:
        assert VLLM.identify(at(server), http) is None
        assert "/metrics" not in server.paths


@pytest.mark.parametrize(
    ("metrics", "state", "says"),
    [
        (Answer(401), EngineState.UNAUTHORISED, "api_key_env"),
        (Answer(403), EngineState.UNAUTHORISED, "api_key_env"),
        (Answer(503), EngineState.LOADING, "503"),
        (Answer(404), EngineState.METRICS_DISABLED, "404"),
        (Answer(500), EngineState.METRICS_DISABLED, "PROMETHEUS_MULTIPROC_DIR"),
        (Answer(501), EngineState.UNREACHABLE, "501"),
        (Answer(302, headers={"Location": "/login"}), EngineState.UNREACHABLE, "redirect"),
        (Answer(body=b"<html></html>", content_type="text/html"), EngineState.UNREACHABLE, "HTML"),
        (document({"detail": "x"}), EngineState.UNREACHABLE, "JSON"),
        (Answer(body=b"x" * 1000, behaviour="truncate"), EngineState.UNREACHABLE, "broke off"),
        (Answer(behaviour="close"), EngineState.UNREACHABLE, "broke off"),
        (Answer(body=b"m 1\n" * 3_000_000, content_type=TEXT), EngineState.UNREACHABLE, "10,000,000 bytes"),
    ],
)
def test_refusals_and_nonsense(http: HttpClient, metrics: Answer, state: EngineState, says: str) -> None:
    reading = sample(http, metrics)
    assert reading.state is state
    assert says in (reading.detail or "")
    assert reading.readings == {}
    assert_complete(reading)


def test_wrong_content_type_of_a_good_body_is_read(http: HttpClient) -> None:
    body = (PAYLOADS / "vllm_0.32.0_cpu_real.prom").read_bytes()
    reading = sample(http, Answer(body=body, content_type="application/octet-stream"))
    assert values(reading)["generation_tokens_total"] == 1024


def test_body_that_lost_its_end(http: HttpClient) -> None:
    body = (PAYLOADS / "vllm_0.32.0_cpu_real.prom").read_bytes()
    cut = body.index(b"vllm:generation_tokens_total{") + 20
    reading = sample(http, Answer(body=body[:cut], content_type=TEXT))
    assert "cut off" in (reading.detail or "")
    assert values(reading)["requests_running"] == 0
    assert reading.absences["generation_tokens_total"].offer is Offer.UNKNOWN
    assert_complete(reading)


def test_dead_engine_behind_a_living_api_server(http: HttpClient) -> None:
    # GET /health is 503 on EngineDeadError (vllm/entrypoints/serve/instrumentator/health.py)
    reading = sample(http, REAL["/metrics"], health=Answer(503))
    assert reading.state is EngineState.UNREACHABLE
    assert "/health: 503" in (reading.detail or "")


def test_timeout_is_busy(impatient: HttpClient) -> None:
    with EngineServer({"/metrics": Answer(behaviour="hang"), "/version": Answer(behaviour="hang")}) as server:
        reading = VLLM.sample(at(server), impatient, histograms=True)
        assert reading.state is EngineState.BUSY
        assert "0.3 s" in (reading.detail or "")
        with pytest.raises(TimedOutError):
            VLLM.identify(at(server), impatient)
    assert_complete(reading)


def test_refused_is_loading_while_the_process_lives_and_unreachable_otherwise(http: HttpClient) -> None:
    # vLLM binds its port early but listens only when the model is loaded, so connections are refused until then.
    url = f"http://127.0.0.1:{free_port()}"
    loading = VLLM.sample(Endpoint(url, "test", pid=os.getpid()), http, histograms=True)
    assert loading.state is EngineState.LOADING
    assert str(os.getpid()) in (loading.detail or "")
    gone = VLLM.sample(Endpoint(url, "test"), http, histograms=True)
    assert gone.state is EngineState.UNREACHABLE
    with pytest.raises(ConnectFailedError):
        VLLM.identify(Endpoint(url, "test"), http)


@pytest.mark.parametrize(
    ("arguments", "title", "expected"),
    [
        (("/usr/bin/python3", "/opt/bin/vllm", "serve", "m"), "vllm", True),
        (("vllm", "serve", "m"), "vllm", True),
        (("python", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"), "python", True),
        (("VLLM::EngineCore",), "VLLM::EngineCor", True),
        (("VLLM::Worker_TP0",), "VLLM::Worker_TP", True),
        ((), "VLLM::EngineCor", True),
        (("/opt/vllm-rs", "--port", "8000"), "vllm-rs", True),
        (("vllm", "bench", "serve", "--model", "m"), "vllm", False),
        (("vllm", "chat"), "vllm", False),
        (("vim", "vllm"), "vim", False),
        (("sglang::scheduler",), "sglang::schedul", False),
        (("llama-server", "-m", "vllm.gguf"), "llama-server", False),
        ((), "", False),
    ],
)
def test_looks_like(arguments: tuple[str, ...], title: str, expected: bool) -> None:
    assert VLLM.looks_like(arguments, title) is expected
