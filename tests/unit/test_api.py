"""
The HTTP routes, over the real read API.

Expected values: the demo's formulas (`tests.support.demo`), the Prometheus exposition format as its own
parser reads it, RFC 9110 for status codes, and the rows that were written for CSV.
"""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.testclient import TestClient

import api
from tests.support import dashboard
from tests.support.demo import GIB, LLAMA, VLLM, VLLM_POOL_BYTES

use_folder = dashboard.use_folder
serve = dashboard.serve


@pytest.fixture
def http():
    with TestClient(Starlette(routes=api.routes())) as client:
        yield client


def metrics(http) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        family.name: {tuple(sorted(sample.labels.items())): sample.value for sample in family.samples}
        for family in text_string_to_metric_families(answer.text)
    }


def of(samples, **labels) -> float:
    wanted = set(labels.items())
    (value,) = [value for key, value in samples.items() if wanted <= set(key)]
    return value


def test_metrics_tell_what_the_memory_is_made_of(serve, http):
    serve("usual")
    parts = metrics(http)["engineroom_memory_part_bytes"]
    assert of(parts, engine=VLLM, part="kv_reserved", place="device", derived="true") == VLLM_POOL_BYTES
    assert of(parts, engine=LLAMA, part="weights", place="device", derived="false") == 5_027_783_488


def test_memory_parts_are_exported_with_their_sources(serve, http):
    serve("usual")
    rows = list(csv.DictReader(io.StringIO(http.get("/export/memory_part.csv").text)))
    (pool,) = (row for row in rows if row["engine_id"] == VLLM and row["part"] == "kv_reserved")
    assert (pool["memory_bytes"], pool["derived"]) == (str(VLLM_POOL_BYTES), "true")
    assert pool["source"].startswith("13,625 blocks")


def test_health_is_ok_while_samples_arrive(serve, http):
    serve("two")
    answer = http.get("/healthz")
    body = answer.json()
    assert answer.status_code == 200
    assert body["status"] == "ok"
    assert 0 <= body["newest_sample_age_seconds"] < 30
    assert body["collector"]["writer"]["state"] == "ok"


def test_health_is_stale_when_samples_stopped_arriving(serve, http):
    serve("two", end=datetime.now(UTC) - timedelta(minutes=5))
    answer = http.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "stale"
    assert answer.json()["newest_sample_age_seconds"] >= 300


def test_health_is_down_without_a_collector(use_folder, tmp_path, http):
    use_folder(tmp_path / "nothing")
    answer = http.get("/healthz")
    assert answer.status_code == 503
    assert answer.json()["status"] == "down"
    assert "python -m collectors run" in answer.json()["message"]


def test_metrics_carry_our_values_with_their_labels(serve, http):
    serve("usual")
    found = metrics(http)
    assert of(found["engineroom_up"]) == 1
    rates = found["engineroom_generation_tokens_per_second"]
    assert of(rates, engine=LLAMA, kind="llama.cpp", model="Qwen3-8B-Q4_K_M", host="bench-01") == pytest.approx(88.0)
    assert of(rates, engine=VLLM) == pytest.approx(600, abs=60)
    assert of(found["engineroom_engine_state"], engine="sglang-30000", state="unreachable") == 1
    assert of(found["engineroom_gpu_memory_used_bytes"], index="1") == 62 * GIB
    assert of(found["engineroom_host_memory_total_bytes"], host="bench-01") == 512 * GIB
    # Exponential with mean 0.3 s: median 0.208 s, interpolated inside the bucket from 0.1 to 0.25 s.
    assert 0.1 < of(found["engineroom_ttft_seconds"], engine=VLLM, quantile="0.5") <= 0.25


def test_what_is_not_known_is_absent_and_not_zero(serve, http):
    serve("usual")
    found = metrics(http)
    engines = {dict(key)["engine"] for key in found["engineroom_generation_tokens_per_second"]}
    assert engines == {VLLM, LLAMA}
    assert {dict(key)["engine"] for key in found["engineroom_ttft_seconds"]} == {VLLM}


def test_every_metric_explains_itself_with_a_unit_or_meaning(serve, http):
    serve("two")
    helps = dict(
        line[len("# HELP ") :].split(" ", 1)
        for line in http.get("/metrics").text.splitlines()
        if line.startswith("# HELP")
    )
    assert all(name.startswith("engineroom_") for name in helps)
    assert all(len(text) > 20 for text in helps.values())
    for name in (name for name in helps if name.endswith(("_bytes", "_seconds", "_watts"))):
        assert name.rsplit("_", 1)[1] in helps[name] or "10 min" in helps[name], name


def test_a_scrape_without_collector_answers_that_it_is_down(use_folder, tmp_path, http):
    use_folder(tmp_path / "nothing")
    assert metrics(http) == {"engineroom_up": {(): 0.0}}


def test_openmetrics_for_those_who_ask(serve, http):
    serve("two")
    answer = http.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert answer.headers["content-type"].startswith("application/openmetrics-text")
    assert answer.text.endswith("# EOF\n")


def test_an_export_gives_the_rows_of_one_engine_and_range(serve, http):
    store = serve("two", seconds=60)
    start = store.demo.start + timedelta(seconds=10)
    end = store.demo.start + timedelta(seconds=20)
    answer = http.get(
        "/export/engine_sample.csv", params={"from": start.isoformat(), "to": end.isoformat(), "engine": LLAMA}
    )
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert answer.headers["content-disposition"] == 'attachment; filename="engine-room_engine_sample.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    assert {row["engine_id"] for row in rows} == {LLAMA}
    totals = [float(row["generation_live_tokens_total"]) for row in rows]
    written = [88.0 * second for second in range(10, 21, 2)]  # the demo samples engines every 2 s
    assert totals == written[: len(totals)]
    assert len(totals) >= 5
    assert all(row["ts"].endswith("Z") for row in rows)


@pytest.mark.parametrize(
    ("url", "status", "says"),
    [
        ("/export/no_such_table.csv", 404, "no_such_table"),
        ("/export/..%2f..%2fetc%2fpasswd.csv", 404, ""),
        ("/export/Engine;drop.csv", 404, "No such table"),
        ("/export/engine_sample.csv?from=yesterday", 400, "from=yesterday"),
        ("/export/engine_sample.csv?from=2026-12-01&to=2026-11-01", 400, "after"),
        ("/export/engine_sample.csv?start=1", 400, "start"),
        ("/export/engine_series.csv?points=many", 400, "points=many"),
        ("/export/engine_sample.csv?points=100", 404, "points are for series"),
        ("/export/engine_sample.csv?run=r", 404, "not of load tests"),
        ("/export/device_series.csv?engine=vllm-8000", 404, "not about engines"),
        ("/export/loadtest_request.csv?engine=vllm-8000", 404, "not about engines"),
    ],
)
def test_bad_requests_say_what_is_wrong(serve, http, url, status, says):
    serve("two", seconds=10)
    answer = http.get(url)
    assert answer.status_code == status
    assert says in answer.text


def test_an_export_without_collector_is_unavailable(use_folder, tmp_path, http):
    use_folder(tmp_path / "nothing")
    answer = http.get("/export/engine_sample.csv")
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "5"


def test_routes_only_read(http):
    for path in ("/healthz", "/metrics", "/export/engine.csv"):
        assert http.post(path).status_code == 405
