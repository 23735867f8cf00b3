"""What the Memory page asks about predictions: the newest comparison of each life of each engine."""

from typing import Any

from store.model import MemoryScore
from tests.contract.conftest import Filled
from tests.support.rows import EPOCH, HOST, at, engine, epoch


def score(seconds: float, part: str = "host memory", epoch_id: str = EPOCH, **figures: Any) -> MemoryScore:
    known: dict[str, Any] = {
        "engine_id": "vllm-8000",
        "engine": "vllm",
        "engine_version": "0.32.0",
        "model": "Qwen3-8B",
        "model_file": "/models/Qwen3-8B",
        "unit": "bytes",
        "predicted_low": 90.0,
        "predicted_high": 110.0,
        "measured": 100.0,
        "measured_method": "rss",
        "error_fraction": 0.0,
        "reason": None,
    }
    return MemoryScore(ts=at(seconds), host=HOST, epoch_id=epoch_id, part=part, **(known | figures))


def test_the_newest_comparison_of_each_life_is_answered_in_the_order_of_its_parts(filled: Filled) -> None:
    filled.put(engine(), epoch(), epoch("vllm-8000@2", started=100))
    filled.put(score(10), score(10, "KV cache", unit="tokens"))
    filled.put(score(20, measured=120.0), score(20, "KV cache", unit="tokens", measured=None, reason="not told"))
    filled.put(score(110, epoch_id="vllm-8000@2", document='{"engine": "vllm"}'))
    rows = filled.store.query("memory_scores").to_pylist()
    assert [(row["epoch_id"], row["part"], row["measured"]) for row in rows] == [
        ("vllm-8000@2", "host memory", 100.0),
        (EPOCH, "host memory", 120.0),
        (EPOCH, "KV cache", None),
    ]
    assert rows[2]["reason"] == "not told"
    assert rows[0]["label"] == "model on vllm-8000"


def test_one_engine_can_be_asked_for(filled: Filled) -> None:
    filled.put(engine(), epoch(), score(10))
    assert filled.store.query("memory_scores", {"engine_id": "vllm-8000"}).num_rows == 1
    assert filled.store.query("memory_scores", {"engine_id": "llama.cpp-8080"}).num_rows == 0
