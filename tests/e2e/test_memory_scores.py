"""
The collector against a real llama.cpp: its plan from its own model file, beside what it holds.

SmolLM2-135M with f16 cache: 23,040 bytes a cell (30 layers x 3 KV heads x (64 + 64) x 2); 96,576,768 bytes of weights.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.collector import running_collector
from tests.support.llamacpp import complete, llamacpp_server, model_path
from tests.support.wait import until

pytestmark = pytest.mark.engine
MIB = 2**20


def test_the_plan_of_a_running_server_lies_beside_its_measurement(tmp_path: Path) -> None:
    with llamacpp_server(context=2048, slots=2) as url:
        complete(url, "once upon a time", 64)
        port = int(url.rsplit(":", 1)[1])
        with running_collector(tmp_path, port) as collector:
            rows = until(
                lambda: [r for r in collector.rows("memory_scores") if r["engine_id"] == f"llama.cpp-{port}"],
                90,
                "the engine to be compared",
            )
            parts = {row["part"]: row for row in rows}
            host = parts["host memory"]
            assert host["model_file"] == str(model_path().resolve())
            assert host["measured_method"] == "rss"
            # The process is Python with the engine in it (PyPI xllamacpp), so it may hold somewhat more than a
            # llama-server; the plan's parts that are exact are a floor once they were used.
            assert host["predicted_low"] >= 96_576_768 + 23_040 * 2048
            assert host["predicted_high"] < 2 * host["measured"] + 400 * MIB
            assert abs(host["error_fraction"]) < 0.5
            exported = b"".join(collector.client.export_csv("memory_plan", None, None, f"llama.cpp-{port}")).decode()
            plan = next(line for line in exported.splitlines() if '"host memory"' in line)
            assert json.loads(plan[plan.index('"{') + 1 : -1].replace('""', '"'))["context_cells"] == 2048


def test_what_its_memory_is_made_of_is_known_of_a_running_server(tmp_path: Path) -> None:
    """
    The server's own /v1/models tells its weights. Its command line is Python's, so nobody can say whether its slots
    share one cache, and the size of that stays unknown.
    """
    with llamacpp_server(context=2048, slots=2) as url:
        complete(url, "once upon a time", 64)
        engine = f"llama.cpp-{url.rsplit(':', 1)[1]}"
        with running_collector(tmp_path, int(engine.split("-")[1])) as collector:

            def known() -> dict[str, Any]:
                found = {row["part"]: row for row in collector.rows("memory_parts") if row["engine_id"] == engine}
                return found if found.get("rest", {}).get("memory_bytes") is not None else {}

            parts = until(known, 90, "its parts")
    assert {row["place"] for row in parts.values()} == {"host"}
    assert (parts["weights"]["memory_bytes"], parts["weights"]["derived"]) == (96_576_768, False)
    assert parts["kv_reserved"]["memory_bytes"] is None
    assert "does not tell how large its cache is" in parts["kv_reserved"]["source"]
    assert parts["held"]["source"] == "rss"
    assert parts["held"]["memory_bytes"] == 96_576_768 + parts["rest"]["memory_bytes"]
