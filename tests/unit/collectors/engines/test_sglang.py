"""
SGLang against bodies made from its source (tests/fixtures/README.md). Expected numbers were read by hand from the
file that each test names; the rules are those of srt/observability/metrics_collector.py, srt/metrics/collector.py
(up to 0.5.6) and srt/utils/auth.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from collectors.engines.base import Endpoint, EngineReading
from collectors.engines.sglang import Sglang
from collectors.http import HttpClient
from settings import CollectorSettings
from store.model import QUANTITIES, EngineState, Offer
from tests.support.engine_server import PAYLOADS, TEXT, Answer, EngineServer, document, payload
from tests.support.wait import free_port

SGLANG = Sglang()
COMMAND = ("python", "-m", "sglang.launch_server", "--model-path", "m", "--enable-metrics")
GIB = 2**30
MODELS = document({"object": "list", "data": [{"id": "m", "owned_by": "sglang", "max_model_len": 32768}]})
BODY = (PAYLOADS / "sglang_0.5.23.prom").read_text()


@pytest.fixture
def http() -> Iterator[HttpClient]:
    with HttpClient(CollectorSettings(request_timeout_seconds=5)) as client:
        yield client


def serve(**changed: Answer) -> EngineServer:
    return EngineServer(
        {
            "/model_info": payload("sglang_model_info.json"),
            "/server_info": payload("sglang_server_info_excerpt.json"),
            "/v1/models": MODELS,
            "/metrics": payload("sglang_0.5.23.prom"),
            "/v1/loads?include=core": payload("sglang_v1_loads.json"),
            **changed,
        }
    )


def text(body: str) -> Answer:
    return Answer(body=body.encode(), content_type=TEXT)


def sample(
    http: HttpClient, server: EngineServer, *, histograms: bool = True, arguments: tuple[str, ...] = COMMAND, **of: Any
) -> EngineReading:
    with server:
        return SGLANG.sample(Endpoint(server.url, "test", arguments=arguments, **of), http, histograms=histograms)


def values(reading: EngineReading) -> dict[str, float | None]:
    return {name: value.value for name, value in reading.readings.items()}


def assert_complete(reading: EngineReading) -> None:
    told = set(reading.readings) | set(reading.histograms)
    assert told | set(reading.absences) == {quantity.name for quantity in QUANTITIES}
    assert not told & set(reading.absences)
    assert all(absence.reason.endswith(".") for absence in reading.absences.values())


def test_identity(http: HttpClient) -> None:
    # sglang_model_info.json, sglang_server_info_excerpt.json
    with serve() as server:
        identity = SGLANG.identify(Endpoint(server.url, "test"), http)
    assert identity is not None
    assert (identity.kind, identity.state, identity.version) == ("sglang", EngineState.READY, "0.5.23")
    assert identity.model_id == identity.model_path == "Qwen/Qwen2.5-7B-Instruct"
    assert (identity.max_context_tokens, identity.slots, identity.quantization) == (32768, 2048, None)
    assert identity.facts == {
        "tensor_parallel_size": 1,
        "data_parallel_size": 1,
        "pipeline_parallel_size": 1,
        "mem_fraction_static": 0.88,
        "kv_cache_dtype": "auto",
        "max_total_num_tokens": 444617,
        "architecture": "Qwen2ForCausalLM",
    }


def test_identity_takes_no_key_and_no_command_from_server_info(http: HttpClient) -> None:
    # /server_info showed api_key and admin_api_key (sgl-project/sglang#30166)
    body = (PAYLOADS / "sglang_server_info_excerpt.json").read_bytes()
    leaking = body.replace(b'{"model_path"', b'{"api_key":"sk-leak","admin_api_key":"sk-leak2","model_path"', 1)
    with serve(**{"/server_info": Answer(body=leaking)}) as server:
        identity = SGLANG.identify(Endpoint(server.url, "test"), http)
    assert "sk-leak" not in repr(identity)
    assert "launch_server" not in repr(identity)


def test_identity_of_a_version_with_the_older_paths(http: HttpClient) -> None:
    # /get_model_info and /get_server_info, before 0.5.6
    missing = Answer(404, b'{"detail":"Not Found"}')
    older = {
        "/model_info": missing,
        "/server_info": missing,
        "/get_model_info": document({"model_path": "m", "tokenizer_path": "m", "is_generation": True}),
        "/get_server_info": payload("sglang_server_info_excerpt.json"),
    }
    with serve(**older) as server:
        identity = SGLANG.identify(Endpoint(server.url, "test"), http)
    assert identity is not None
    assert (identity.model_id, identity.version) == ("m", "0.5.23")


def test_a_scheduler_too_busy_for_server_info_does_not_hide_the_engine() -> None:
    with (
        serve(**{"/server_info": Answer(behaviour="hang")}) as server,
        HttpClient(CollectorSettings(request_timeout_seconds=0.3)) as impatient,
    ):
        identity = SGLANG.identify(Endpoint(server.url, "test"), impatient)
    assert identity is not None
    assert (identity.model_id, identity.version) == ("Qwen/Qwen2.5-7B-Instruct", None)


def test_a_locked_server_still_shows_its_metrics(http: HttpClient) -> None:
    # auth.py: /metrics needs no key, everything else does
    locked = dict.fromkeys(("/model_info", "/server_info", "/v1/models"), Answer(401))
    with serve(**locked) as server:
        identity = SGLANG.identify(Endpoint(server.url, "test"), http)
        reading = SGLANG.sample(Endpoint(server.url, "test"), http, histograms=True)
    assert identity is not None
    assert (identity.state, identity.model_id) == (EngineState.READY, "Qwen/Qwen2.5-7B-Instruct")
    assert identity.max_context_tokens == 32768
    assert "api_key_env" in (identity.detail or "")
    assert values(reading)["requests_running"] == 9


def test_a_locked_server_without_metrics(http: HttpClient) -> None:
    locked = dict.fromkeys(("/model_info", "/v1/loads?include=core"), Answer(401)) | {"/metrics": Answer(404)}
    with serve(**locked) as server:
        identity = SGLANG.identify(Endpoint(server.url, "test", arguments=COMMAND), http)
        reading = SGLANG.sample(Endpoint(server.url, "test", arguments=COMMAND), http, histograms=True)
    assert identity is not None
    assert identity.state is reading.state is EngineState.UNAUTHORISED
    assert "api_key_env" in (reading.detail or "")
    assert_complete(reading)


def test_quantities(http: HttpClient) -> None:
    # sglang_0.5.23.prom; waiting = 0 + 0; queries = 61233 + 8211 + 0 + 0; used = 5213 / 444617
    reading = sample(http, serve())
    assert reading.state is EngineState.READY
    assert values(reading) == {
        "generation_tokens_total": 38144,
        "generation_live_tokens_total": 40680,
        "prompt_tokens_total": 61233,
        "prompt_with_cached_tokens_total": 68802,
        "prefix_cache_query_tokens_total": 69444,
        "prefix_cache_hit_tokens_total": 8211,
        "requests_finished_total": 149,
        "preemptions_total": 0,
        "generation_seconds_total": 484.5446660257903,
        "requests_running": 9,
        "requests_waiting": 0,
        "kv_used_fraction": 5213 / 444617,
        "kv_capacity_tokens": 444617,
    }
    assert "log interval" in reading.readings["generation_live_tokens_total"].source
    assert "request ends" in reading.readings["generation_tokens_total"].source
    assert_complete(reading)


def test_histograms(http: HttpClient) -> None:
    reading = sample(http, serve())
    counts = {name: histogram.buckets[-1][1] for name, histogram in reading.histograms.items()}
    assert counts == {
        "ttft_seconds": 149, "itl_seconds": 37995, "tpot_seconds": 149, "e2e_seconds": 149, "queue_seconds": 149,
    }  # fmt: skip
    assert reading.histograms["ttft_seconds"].sum_seconds == 13.900873517216457
    assert reading.histograms["ttft_seconds"].source == 'sglang:time_to_first_token_seconds{is_streaming="true"}'
    assert reading.histograms["ttft_seconds"].buckets[0][0] == 0.1  # its first bound


def test_without_histograms_none_is_read_and_none_is_missing(http: HttpClient) -> None:
    reading = sample(http, serve(), histograms=False)
    assert reading.histograms == {}
    assert not {"ttft_seconds", "itl_seconds"} & set(reading.absences)


def test_memory_is_told_in_gibibytes(http: HttpClient) -> None:
    """
    The gauges say GB and mean GiB: 444617 tokens x 57344 bytes (28 layers, 4 KV heads of 128, K and V, 2 bytes,
    Qwen2.5-7B's config.json) are 25.5e9 bytes = 23.74 GiB, the file's figure.
    """
    memory = sample(http, serve()).memory
    assert {part: value.value for part, value in memory.items()} == {"weights": 14.25 * GIB, "kv_reserved": 23.74 * GIB}
    assert memory["kv_reserved"].value == pytest.approx(444617 * 57344, rel=1e-3)


def test_memory_counts_every_rank_that_the_command_line_tells(http: HttpClient) -> None:
    memory = sample(http, serve(), arguments=(*COMMAND, "--tp-size", "2", "--pp-size", "2")).memory
    assert memory["weights"].value == 4 * 14.25 * GIB
    assert "4 ranks" in memory["weights"].source
    shared = (*COMMAND, "--tp-size", "4", "--dp-size", "2", "--enable-dp-attention")
    assert sample(http, serve(), arguments=shared).memory["weights"].value == 2 * 14.25 * GIB


def test_ranks_that_count_the_same_requests_are_taken_once(http: HttpClient) -> None:
    # --enable-metrics-for-all-schedulers: every tensor rank reports
    twice = BODY + "".join(
        line.replace('tp_rank="0"', 'tp_rank="1"') + "\n"
        for line in BODY.splitlines()
        if 'tp_rank="0"' in line and not line.startswith("#")
    )
    one, two = sample(http, serve()), sample(http, serve(**{"/metrics": text(twice)}))
    assert values(one) == values(two)
    assert one.histograms["queue_seconds"].buckets == two.histograms["queue_seconds"].buckets
    assert {part: value.value for part, value in one.memory.items()} == {
        part: value.value for part, value in two.memory.items()
    }


def test_data_parallel_ranks_are_summed(http: HttpClient) -> None:
    # With attention split by data, the leader of rank 1 is another tensor rank (sglang#6892)
    second = BODY.replace('tp_rank="0"', 'tp_rank="1",dp_rank="1"')
    first = BODY.replace('tp_rank="0"', 'tp_rank="0",dp_rank="0"')
    ranked = [line for line in second.splitlines() if 'dp_rank="1"' in line]
    reading = sample(http, serve(**{"/metrics": text(first + "\n".join(ranked) + "\n")}))
    got = values(reading)
    assert (got["requests_running"], got["kv_capacity_tokens"]) == (18, 2 * 444617)
    assert got["generation_live_tokens_total"] == 2 * 40680
    assert got["generation_tokens_total"] == 38144  # the tokenizer manager has no rank
    assert got["kv_used_fraction"] == 5213 / 444617
    assert "2 data-parallel ranks" in reading.readings["requests_running"].source


def test_streaming_and_other_requests_are_summed_but_not_in_ttft(http: HttpClient) -> None:
    lines = BODY.splitlines()
    other = [line.replace('is_streaming="true"', 'is_streaming="false"') for line in lines if "is_streaming" in line]
    reading = sample(http, serve(**{"/metrics": text("\n".join([*lines, *other]) + "\n")}))
    assert values(reading)["generation_tokens_total"] == 2 * 38144
    assert values(reading)["requests_finished_total"] == 2 * 149
    assert reading.histograms["e2e_seconds"].buckets[-1][1] == 2 * 149
    assert reading.histograms["ttft_seconds"].buckets[-1][1] == 149


def test_ttft_of_requests_that_are_not_streamed_is_not_ttft(http: HttpClient) -> None:
    # Their first token comes with their 50th (PR #39270)
    reading = sample(http, serve(**{"/metrics": text(BODY.replace('is_streaming="true"', 'is_streaming="false"'))}))
    assert "streaming" in reading.absences["ttft_seconds"].reason
    assert reading.absences["ttft_seconds"].offer is Offer.UNKNOWN
    assert_complete(reading)


def test_the_total_over_priorities_is_not_added_to_its_parts(http: HttpClient) -> None:
    extra = (
        'sglang:num_running_reqs{engine_type="unified",model_name="m",priority="",tp_rank="0"} 9\n'
        'sglang:num_running_reqs{engine_type="unified",model_name="m",priority="1",tp_rank="0"} 4\n'
        'sglang:num_running_reqs{engine_type="unified",model_name="m",priority="2",tp_rank="0"} 5\n'
    )
    body = "\n".join(line for line in BODY.splitlines() if not line.startswith("sglang:num_running_reqs")) + "\n"
    assert values(sample(http, serve(**{"/metrics": text(body + extra)})))["requests_running"] == 9


def test_cached_tokens_by_source_with_their_total(http: HttpClient) -> None:
    # 0.5.6 to 0.5.9: no realtime counters; cached_tokens_total has sources and a total
    lines = [x for x in BODY.splitlines() if "realtime_tokens" not in x and "prefill_effective" not in x]
    total = 'sglang:cached_tokens_total{cache_source="total",model_name="m"} 8100'
    reading = sample(http, serve(**{"/metrics": text("\n".join([*lines, total]) + "\n")}))
    got = values(reading)
    assert got["prompt_tokens_total"] == 68802 - 8100
    assert (got["prefix_cache_query_tokens_total"], got["prefix_cache_hit_tokens_total"]) == (68802, 8100)
    assert "0.5.10" in (reading.absences["generation_live_tokens_total"].remedy or "")
    assert_complete(reading)


def test_version_0_4_1(http: HttpClient) -> None:
    """Names of srt/metrics/collector.py of 0.4.1, made-up values: no rank, retractions or capacity."""
    body = "\n".join(
        [
            "# TYPE sglang:prompt_tokens_total counter",
            'sglang:prompt_tokens_total{model_name="m"} 8.128902e+06',
            'sglang:generation_tokens_total{model_name="m"} 7.557572e+06',
            'sglang:num_running_reqs{model_name="m"} 162',
            'sglang:num_queue_reqs{model_name="m"} 2826',
            'sglang:token_usage{model_name="m"} 0.28',
            'sglang:num_used_tokens{model_name="m"} 123859',
            'sglang:cache_hit_rate{model_name="m"} 0.007507552643049313',
            *histogram("time_to_first_token_seconds", 11008, 2.3e6),
            *histogram("time_per_output_token_seconds", 7400000, 866964.57),
            *histogram("e2e_request_latency_seconds", 11228, 3116093.85),
        ]
    )
    reading = sample(http, serve(**{"/metrics": text(body + "\n")}))
    assert values(reading) == {
        "generation_tokens_total": 7557572,
        "prompt_with_cached_tokens_total": 8128902,
        "requests_finished_total": 11228,
        "generation_seconds_total": 866964.57,
        "requests_running": 162,
        "requests_waiting": 2826,
        "kv_used_fraction": 0.28,
    }
    assert reading.histograms["itl_seconds"].source == "sglang:time_per_output_token_seconds"
    assert reading.histograms["ttft_seconds"].buckets[-1][1] == 11008
    assert reading.absences["kv_capacity_tokens"].offer is Offer.UNKNOWN
    assert "0.5.6" in reading.absences["kv_capacity_tokens"].reason
    assert reading.memory == {}
    assert_complete(reading)


def histogram(name: str, count: int, total: float) -> list[str]:
    return [
        f"# TYPE sglang:{name} histogram",
        f'sglang:{name}_sum{{model_name="m"}} {total}',
        f'sglang:{name}_bucket{{le="0.3",model_name="m"}} 1',
        f'sglang:{name}_bucket{{le="+Inf",model_name="m"}} {count}',
        f'sglang:{name}_count{{model_name="m"}} {count}',
    ]


def test_another_pool_that_is_fuller_decides(http: HttpClient) -> None:
    # token_usage is the maximum over the pools (full attention, sliding window, recurrent state)
    body = BODY.replace("sglang:token_usage{", "sglang:was{").replace("sglang:swa_token_usage{", "sglang:token_usage{")
    lines = [x.replace("} 0.0", "} 0.41") if x.startswith("sglang:token_usage{") else x for x in body.splitlines()]
    reading = sample(http, serve(**{"/metrics": text("\n".join(lines) + "\n")}))
    assert values(reading)["kv_used_fraction"] == 0.41
    assert reading.readings["kv_used_fraction"].source == "sglang:token_usage"


def test_no_request_yet(http: HttpClient) -> None:
    # multiprocess mode: a series appears with its first event
    reading = sample(http, serve(**{"/metrics": text("")}))
    assert reading.state is EngineState.READY
    assert reading.readings == {}
    assert reading.absences["generation_tokens_total"].offer is Offer.UNKNOWN
    assert "first event" in reading.absences["generation_tokens_total"].reason
    assert_complete(reading)


def test_a_version_never_seen_gives_what_it_has(http: HttpClient) -> None:
    body = BODY.replace("sglang:num_running_reqs", "sglang:reqs_running_now")
    reading = sample(http, serve(**{"/metrics": text(body)}))
    assert values(reading)["kv_capacity_tokens"] == 444617
    assert reading.absences["requests_running"].offer is Offer.UNKNOWN
    assert "sglang:num_running_reqs" in reading.absences["requests_running"].reason
    assert_complete(reading)


def test_names_escaped_by_an_openmetrics_accept_are_read_all_the_same(http: HttpClient) -> None:
    escaped = "\n".join(x if x.startswith("#") else x.replace("sglang:", "sglang_", 1) for x in BODY.splitlines())
    assert values(sample(http, serve(**{"/metrics": text(escaped + "\n")}))) == values(sample(http, serve()))


def test_metrics_switched_off(http: HttpClient) -> None:
    # sglang_v1_loads.json; 404 without --enable-metrics
    reading = sample(http, serve(**{"/metrics": Answer(404)}))
    assert reading.state is EngineState.METRICS_DISABLED
    assert values(reading) == {
        "requests_running": 9,
        "requests_waiting": 0,
        "kv_capacity_tokens": 444617,
        "kv_used_fraction": 5213 / 444617,
    }
    assert {part: value.value for part, value in reading.memory.items()} == {
        "weights": 14.25 * GIB, "kv_reserved": 23.74 * GIB, "graphs": 0.92 * GIB,
    }  # fmt: skip
    assert reading.absences["generation_tokens_total"].offer is Offer.DISABLED
    assert "--enable-metrics" in (reading.absences["generation_tokens_total"].remedy or "")
    assert reading.absences["prompt_seconds_total"].offer is Offer.NOT_OFFERED
    assert_complete(reading)


@pytest.mark.parametrize("loads", [Answer(404), document({"loads": []}), document([]), Answer(body=b"nonsense")])
def test_metrics_switched_off_and_nothing_stands_in(http: HttpClient, loads: Answer) -> None:
    reading = sample(http, serve(**{"/metrics": Answer(404), "/v1/loads?include=core": loads}))
    assert (reading.state, reading.readings) == (EngineState.METRICS_DISABLED, {})
    assert_complete(reading)


def test_metrics_switched_off_is_seen_when_identifying(http: HttpClient) -> None:
    body = (
        (PAYLOADS / "sglang_server_info_excerpt.json")
        .read_bytes()
        .replace(b'"enable_metrics":true', b'"enable_metrics":false')
    )
    with serve(**{"/server_info": Answer(body=body)}) as server:
        identity = SGLANG.identify(Endpoint(server.url, "test"), http)
    assert identity is not None
    assert identity.state is EngineState.METRICS_DISABLED


def test_loading_busy_and_gone(http: HttpClient) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert SGLANG.sample(Endpoint(url, "t", pid=os.getpid()), http, histograms=True).state is EngineState.LOADING
    assert SGLANG.sample(Endpoint(url, "t"), http, histograms=True).state is EngineState.UNREACHABLE
    with (
        serve(**{"/metrics": Answer(behaviour="hang")}) as server,
        HttpClient(CollectorSettings(request_timeout_seconds=0.3)) as impatient,
    ):
        assert SGLANG.sample(Endpoint(server.url, "t"), impatient, histograms=True).state is EngineState.BUSY


@pytest.mark.parametrize(
    ("metrics", "state"),
    [
        (payload("vllm_0.33_idle.prom"), EngineState.UNREACHABLE),
        (Answer(body=b"<html></html>", content_type="text/html"), EngineState.UNREACHABLE),
        (Answer(503), EngineState.LOADING),
        (Answer(500), EngineState.UNREACHABLE),
    ],
)
def test_nonsense(http: HttpClient, metrics: Answer, state: EngineState) -> None:
    reading = sample(http, serve(**{"/metrics": metrics}))
    assert (reading.state, reading.readings) == (state, {})
    assert_complete(reading)


def test_the_metrics_are_asked_for_as_plain_text(http: HttpClient) -> None:
    with serve() as server:
        SGLANG.sample(Endpoint(server.url, "test"), http, histograms=True)
        (request,) = server.requests
    assert request[1] == "/metrics"
    assert request[2]["accept"] == "text/plain;version=0.0.4"


@pytest.mark.parametrize(
    ("arguments", "title", "expected"),
    [
        (("python3", "-m", "sglang.launch_server", "--model-path", "m"), "python3", True),
        (("python3", "/opt/sglang/launch_server.py"), "python3", True),
        (("/usr/bin/python3", "/usr/local/bin/sglang", "serve", "m"), "python3", True),
        (("sglang::scheduler_TP0",), "sglang::schedul", True),
        (("sglang::detokenizer",), "sglang::detoken", True),
        (("sglang::data_parallel_controller",), "x", True),
        (("python3", "-m", "sglang_router.launch_router"), "python3", False),
        (("python3", "-m", "sglang.bench_serving"), "python3", False),
        ((), "", False),
    ],
)
def test_looks_like(arguments: tuple[str, ...], title: str, expected: bool) -> None:
    assert SGLANG.looks_like(arguments, title) is expected
