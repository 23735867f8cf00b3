"""A sweep of a real llama.cpp server: what the client counts is what the server counted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.llamacpp import llamacpp_server
from tests.support.loadtest_worker import run, spec

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_sweep_of_llama_cpp_agrees_with_its_counters(tmp_path: Path, api: str) -> None:
    with llamacpp_server(context=2048, slots=2, threads=1) as url:
        given = spec(url, levels=[1, 2], input={"tokens": 48}, output={"tokens": 4}, warmup={"most_batches": 1})
        given["endpoints"][0]["api"] = api
        told = run(given, tmp_path)
    assert told.ended is not None
    assert told.ended.state == "finished", told.ended.detail
    assert [stage.concurrency for stage in told.stages] == [1, 2]
    for stage in told.stages:
        assert (stage.engine, stage.succeeded, stage.failed) == ("llama.cpp", 8, 0)
        assert stage.tokens_source == "usage"
        assert stage.output_tokens == 8 * 4
        counted = json.loads(stage.counters or "")["difference"]
        assert counted["generation_tokens_total"] == stage.output_tokens
        assert stage.cached_input_tokens is not None
        assert stage.output_tokens_per_second is not None
        assert stage.tpot_p50_seconds is not None
    assert told.severities("output_length") == {"ok"}
    assert told.severities("counters_disagree") == {"ok"}
    assert "failed" not in told.severities("prefix_cache_hits")
    # Prompts were as long as asked for, by the server's own count.
    lengths = [request.input_tokens or 0 for request in told.requests]
    assert sum(lengths) / len(lengths) == pytest.approx(48, rel=0.05)
