"""
Result files of other tools. Their origin is in tests/fixtures/README.md; expected values are read off the files and
worked out by hand, as each test shows.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from loadtest.importers import Imported, ImportFailedError, load, reading
from settings import Settings
from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestRun, LoadtestStage
from store.local import LocalStore
from store.writer import Writer

FILES = Path(__file__).parents[2] / "fixtures" / "loadtest"
NOW = datetime(2026, 12, 1, 9, 15, tzinfo=UTC)


def imported(name: str) -> Imported:
    return load(name, (FILES / name).read_text(), NOW, "host-a")


def text(content: str, name: str = "result.json") -> Imported:
    return load(name, content, NOW, "host-a")


def of(kind, found: Imported) -> list:
    return [row for row in found.rows if isinstance(row, kind)]


def codes(found: Imported) -> dict[str, str]:
    return {row.code: row.severity for row in of(LoadtestJudgement, found)}


def details(stage: LoadtestStage) -> dict:
    return json.loads(stage.details)


def test_a_result_of_vllm_bench_serve_with_its_requests() -> None:
    found = imported("vllm_bench_0.32.0_detailed.json")
    (run,), (stage,), requests = of(LoadtestRun, found), of(LoadtestStage, found), of(LoadtestRequest, found)
    assert (run.state, run.source, run.started_by) == ("imported", "vllm bench serve", "import")
    assert run.began is None  # its date names no zone
    assert run.trusted is None
    assert (stage.mode, stage.concurrency, stage.model_id) == ("closed", 2, "smollm2")
    assert (stage.requests, stage.succeeded, stage.failed) == (8, 8, 0)
    assert (stage.input_tokens, stage.output_tokens, stage.tokens_source) == (256, 127, "file")
    # 127 tokens in 216.583 s, ramp and tail included: there is no steady window, and no rate in one.
    assert stage.whole_output_tokens_per_second == pytest.approx(127 / 216.58314, rel=1e-6)
    assert stage.output_tokens_per_second is None
    assert stage.requests_per_second is None
    assert details(stage)["whole_requests_per_second"] == pytest.approx(8 / 216.58314, rel=1e-6)
    assert stage.ttft_mean_seconds == pytest.approx(11.859411, abs=1e-6)  # mean_ttft_ms
    assert stage.ttft_p90_seconds == pytest.approx(21.762229, abs=1e-6)
    assert stage.tpot_p50_seconds == pytest.approx(2.954215, abs=1e-6)
    assert stage.icl_p99_seconds == pytest.approx(12.553579, abs=1e-6)  # its "ITL" is between chunks
    assert stage.e2e_p99_seconds == pytest.approx(65.240016, abs=1e-6)
    # Request 0: the file gives its latency apart from its chunks, 45.070918 s; 16 tokens.
    assert requests[0].e2e_seconds == pytest.approx(45.070918, abs=1e-6)
    assert requests[0].tpot_seconds == pytest.approx((45.070918 - 0.122591) / 15, abs=1e-6)
    assert requests[2].sent_seconds == pytest.approx(852.257365398 - 807.186026028)
    assert (len(requests), requests[6].output_tokens, requests[6].chunks) == (8, 15, 17)
    assert codes(found)["imported"] == "note"
    assert details(stage)["metadata"] == {"note": "fixture", "seed_note": "7"}


def test_results_appended_to_one_file_are_stages_and_lack_what_was_not_asked_for() -> None:
    found = imported("vllm_bench_0.32.0_append.jsonl")
    open_loop, closed = of(LoadtestStage, found)
    assert (open_loop.mode, open_loop.offered_requests_per_second, open_loop.concurrency) == ("poisson", 2.0, None)
    assert (closed.mode, closed.concurrency) == ("closed", 2)
    assert open_loop.e2e_mean_seconds is None  # --percentile-metrics ttft,tpot,itl
    assert closed.e2e_mean_seconds == pytest.approx(14.754592, abs=1e-6)
    assert open_loop.ttft_p90_seconds is None
    lacks = {row.stage_id: row.text for row in of(LoadtestJudgement, found) if row.code == "imported"}
    assert "E2E latency" in lacks[0]
    assert "E2E latency" not in lacks[1]
    assert of(LoadtestRequest, found) == []


def test_percentiles_that_the_file_leaves_out_come_from_its_requests() -> None:
    content = json.loads((FILES / "vllm_bench_0.32.0_detailed.json").read_text())
    for name in list(content):
        if name.startswith("p90"):
            del content[name]
    (stage,) = of(LoadtestStage, text(json.dumps(content)))
    # vLLM writes percentiles by numpy's linear method, and so do we: the same value as the one that was taken out.
    assert stage.ttft_p90_seconds == pytest.approx(21.762229, abs=1e-6)


def test_a_burst_without_a_limit_has_no_level() -> None:
    content = json.loads((FILES / "vllm_bench_0.32.0_detailed.json").read_text()) | {"max_concurrency": None}
    found = text(json.dumps(content))
    assert of(LoadtestStage, found)[0].concurrency is None
    assert codes(found)["no_level"] == "note"


def test_too_many_failures_are_held_against_a_file() -> None:
    content = json.loads((FILES / "vllm_bench_0.32.0_append.jsonl").read_text().splitlines()[0]) | {"failed": 1}
    found = text(json.dumps(content))  # 1 of 5
    assert codes(found)["errors"] == "failed"
    assert of(LoadtestRun, found)[0].trusted is False


def test_guidellms_itl_is_our_tpot_and_its_tpot_is_not() -> None:
    found = imported("guidellm_0.8.1.json")
    (run,), (stage,), requests = of(LoadtestRun, found), of(LoadtestStage, found), of(LoadtestRequest, found)
    assert (run.source, stage.concurrency, stage.mode) == ("guidellm", 2, "closed")
    # Unix 1796118180.6018686
    assert run.began == datetime(2026, 12, 1, 9, 43, 0, 601869, tzinfo=UTC)
    # Request 0: sent at 180.603651, first token at 199.335430, last at 234.222947; 8 tokens.
    assert requests[0].ttft_seconds == pytest.approx(18.731779, abs=1e-5)
    assert requests[0].tpot_seconds == pytest.approx((234.222947 - 199.335430) / 7, abs=1e-5)
    assert requests[0].e2e_seconds == pytest.approx(234.222947 - 180.603651, abs=1e-5)
    assert requests[0].from_schedule_seconds == pytest.approx(234.222947 - 180.514066, abs=1e-5)
    # inter_token_latency_ms of the four requests: 4983.931, 4985.552, 4530.677, 1622.286.
    assert stage.tpot_mean_seconds == pytest.approx((4.983931 + 4.985552 + 4.530677 + 1.622286) / 4, abs=1e-5)
    assert stage.tpot_p50_seconds == pytest.approx((4.983931 + 4.530677) / 2, abs=1e-5)
    assert details(stage)["guidellm_tpot_mean_seconds"] == pytest.approx(6.290326, abs=1e-6)
    assert stage.whole_output_tokens_per_second == pytest.approx(32 / 101.058479, rel=1e-6)
    assert stage.output_tokens_per_second is None  # no warm-up was cut off
    assert (stage.input_tokens, stage.cached_input_tokens) == (4 * 62, 24 + 24 + 26 + 26)
    assert codes(found)["prefix_cache_hits"] == "failed"  # 100 of 248 prompt tokens
    assert run.trusted is False


def test_guidellms_own_statistics_where_requests_are_not_all_there() -> None:
    content = json.loads((FILES / "guidellm_0.8.1.json").read_text())
    content["benchmarks"][0]["requests"]["successful"] = []
    found = text(json.dumps(content))
    (stage,) = of(LoadtestStage, found)
    assert stage.tpot_p50_seconds == pytest.approx(4.530677, abs=1e-6)
    assert stage.e2e_mean_seconds == pytest.approx(50.324255, abs=1e-5)
    assert codes(found)["own_statistics"] == "note"


def test_a_window_that_guidellm_cut_is_a_window() -> None:
    content = json.loads((FILES / "guidellm_0.8.1.json").read_text())
    content["benchmarks"][0]["warmup_duration"] = 5.0
    (stage,) = of(LoadtestStage, text(json.dumps(content)))
    assert stage.output_tokens_per_second == pytest.approx(32 / 101.058479, rel=1e-6)
    assert (stage.whole_output_tokens_per_second, stage.window_seconds) == (None, pytest.approx(101.058479))


def test_a_summary_of_aiperf() -> None:
    found = imported("aiperf_0.13.0.json")
    (stage,) = of(LoadtestStage, found)
    assert (stage.url, stage.concurrency, stage.succeeded, stage.failed) == ("http://127.0.0.1:28080", 2, 4, 0)
    assert stage.tpot_mean_seconds == pytest.approx(2.164213, abs=1e-6)  # inter_token_latency
    assert stage.icl_mean_seconds == pytest.approx(2.061261, abs=1e-6)  # inter_chunk_latency
    assert stage.ttft_p50_seconds == pytest.approx(10.364212, abs=1e-6)
    # Its tokenizer found 31 tokens in what the server counted as 32: one reply came out as 7 instead of 8.
    assert stage.output_tokens == 32
    assert stage.whole_output_tokens_per_second == pytest.approx(32 / 49.634543, rel=1e-6)
    assert codes(found)["tokens_disagree"] == "warning"
    assert of(LoadtestRun, found)[0].began is None  # its times name no zone


def test_records_of_aiperf_by_the_servers_count() -> None:
    found = imported("aiperf_0.13.0_records.jsonl")
    (stage,), requests = of(LoadtestStage, found), of(LoadtestRequest, found)
    assert len(requests) == 4
    # Request 0: 33.367522 s, TTFT 16.071526 s, 8 tokens by usage; by AIPerf's 7 tokens it had 2.882666.
    assert requests[0].tpot_seconds == pytest.approx((33.367522 - 16.071526) / 7, abs=1e-6)
    assert requests[0].chunks == 8
    assert requests[0].scheduled_seconds == pytest.approx(545.741643 - 545.739827, abs=1e-5)
    assert requests[1].sent_seconds == 0
    assert stage.concurrency is None
    assert of(LoadtestRun, found)[0].began == datetime(2026, 12, 1, 9, 49, 5, 739827, tzinfo=UTC)


def test_the_warm_up_of_aiperf_is_left_out() -> None:
    lines = (FILES / "aiperf_0.13.0_records.jsonl").read_text().splitlines()
    warm = lines[0].replace('"benchmark_phase":"profiling"', '"benchmark_phase":"warmup"')
    assert len(of(LoadtestRequest, text("\n".join([warm, *lines[1:]])))) == 3


@pytest.mark.parametrize("name", ["llama_bench_readme.json", "llama_bench_readme.jsonl", "llama_bench.csv"])
def test_21_llama_bench_in_each_of_its_forms_is_told_apart_from_a_server(name) -> None:
    # llama.cpp#25121: llama-bench calls the library in its own process, without HTTP, slots and samplers.
    found = imported(name)
    prefill, decode = of(LoadtestStage, found)
    assert (prefill.engine, prefill.engine_version) == ("llama.cpp", "b5163-8cf427ff")
    assert prefill.model_id == "Qwen2.5-7B-Instruct-Q4_K_M.gguf"
    assert "pp512" in prefill.label
    assert "in process" in decode.label
    assert details(decode)["tokens_per_second"] == pytest.approx(decode.whole_output_tokens_per_second)
    # 128 tokens in about 1.07 s each time.
    assert decode.whole_output_tokens_per_second == pytest.approx(128 / details(decode)["test_seconds"], rel=1e-3)
    assert prefill.whole_output_tokens_per_second is None
    assert details(prefill)["prefill_tokens_per_second"] == pytest.approx(
        512 / details(prefill)["test_seconds"], rel=1e-3
    )
    for stage in (prefill, decode):  # it has no latency and no level, and nothing is made up for them
        assert (stage.ttft_mean_seconds, stage.tpot_mean_seconds, stage.e2e_mean_seconds) == (None, None, None)
        assert (stage.concurrency, stage.requests, stage.output_tokens_per_second) == (None, None, None)
    assert "in its own process" in " ".join(found.notes)


def test_llama_bench_counts_its_samples_where_it_gives_them() -> None:
    prefill, decode = of(LoadtestStage, imported("llama_bench_readme.jsonl"))
    # Five samples of 71.551, 71.2228, 70.3641, 69.4391 and 69.9091 ms.
    assert prefill.whole_seconds == pytest.approx(0.3524861, abs=1e-7)
    assert prefill.input_tokens == 5 * 512
    assert (decode.output_tokens, decode.ts) == (5 * 128, datetime(2025, 4, 24, 11, 59, 33, tzinfo=UTC))


def test_llama_benchy() -> None:
    one, two = of(LoadtestStage, imported("llama_benchy_0.4.0.json"))
    assert (one.concurrency, two.concurrency) == (1, 2)
    # e2e_ttft of the two runs of one user: 17862.754 and 4431.521 ms.
    assert one.ttft_mean_seconds == pytest.approx((17.862754 + 4.431521) / 2, abs=1e-6)
    assert two.succeeded == 4
    # tg of a request: 0.997417, 0.997436, 0.806826, 0.806755 tokens/s; TPOT is one over each.
    assert two.user_tokens_per_second == pytest.approx(0.902108, abs=1e-6)
    assert two.tpot_mean_seconds == pytest.approx((1 / 0.997417 + 1 / 0.997436 + 1 / 0.806826 + 1 / 0.806755) / 4, 1e-5)
    assert details(two)["decode_tokens_per_second"] == pytest.approx(1.804126, abs=1e-6)
    assert two.whole_output_tokens_per_second is None  # the speed of decoding is no throughput
    assert of(LoadtestRun, imported("llama_benchy_0.4.0.json"))[0].ended == datetime(2026, 12, 1, 9, 40, 38, tzinfo=UTC)


def test_neither_prompts_nor_answers_nor_keys_are_taken() -> None:
    content = json.loads((FILES / "guidellm_0.8.1.json").read_text())
    benchmark = content["benchmarks"][0]
    benchmark["config"]["backend"] |= {"api_key": "sk-verysecret", "target": "http://me:hunter2@gpu:8000"}
    failed = dict(benchmark["requests"]["successful"].pop())
    failed["info"] = dict(failed["info"], error="401 for Authorization: Bearer sk-verysecret")
    benchmark["requests"]["errored"] = [failed]
    answers = [each["output"] for each in benchmark["requests"]["successful"]]
    vllm = json.loads((FILES / "vllm_bench_0.32.0_detailed.json").read_text())
    for found, said in ((text(json.dumps(content)), answers), (text(json.dumps(vllm)), vllm["generated_texts"])):
        stored = repr(found.rows)
        assert not any(answer.strip() in stored for answer in said if len(answer.strip()) > 8)
        assert "verysecret" not in stored
        assert "hunter2" not in stored


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "it is empty"),
        ("   \n", "it is empty"),
        ("{", "neither JSON nor CSV"),
        ("hello", "neither JSON nor CSV"),
        ("[]", "empty list"),
        ("{}", "no result of a known tool"),
        ('{"a": 1, "b": 2}', "first keys: a, b"),
        ("[1, 2]", "no result of a known tool"),
        ("null", "no result of a known tool"),
        ("[" * 100_000, "nested too deeply"),
        ('{"metadata": {"guidellm_version": "0.3", "version": 1}, "benchmarks": 0}', "of version 1; version 2 can"),
        ('{"metadata": {"guidellm_version": "0.8", "version": 2}, "benchmarks": []}', "without a benchmark"),
        ('{"latency_mode": "api", "benchmarks": [{}]}', "benchmark 1 has no concurrency"),
        ('{"total_output_tokens": 1, "request_throughput": 2}', "no usable duration"),
        ('{"aiperf_version": "0.13"}', "without a request count"),
        ('{"build_commit": "a", "avg_ts": null, "n_prompt": 1, "n_gen": 0}', "no avg_ts"),
        ('{"total_output_tokens": 1, "request_throughput": 2}\n{"total_outp', "line 2 is not JSON"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_result_says_what_is_wrong(content, says) -> None:
    with pytest.raises(ImportFailedError) as raised:
        text(content, "/home/me/../wrong.json")
    assert str(raised.value).startswith("wrong.json: ")
    assert says in str(raised.value)


def test_a_csv_with_rows_of_another_length_is_refused() -> None:
    # As printed in llama-bench's own README, whose head is newer than its rows.
    with pytest.raises(ImportFailedError, match="line 2 has another number of fields than the head"):
        imported("llama_bench_readme_uneven.csv")


def test_a_file_that_is_too_large_is_refused_before_it_is_read(monkeypatch) -> None:
    monkeypatch.setattr("loadtest.importers.MOST_CHARACTERS", 1000)
    with pytest.raises(ImportFailedError, match=r"has 5,3\d\d characters, at most 1,000"):
        imported("vllm_bench_0.32.0_detailed.json")


def test_numbers_that_are_none_are_not_measurable() -> None:
    content = json.loads((FILES / "vllm_bench_0.32.0_append.jsonl").read_text().splitlines()[0])
    content |= {"mean_ttft_ms": float("nan"), "p99_ttft_ms": -5, "mean_tpot_ms": "fast", "total_input_tokens": True}
    (stage,) = of(LoadtestStage, text(json.dumps(content)))
    assert (stage.ttft_mean_seconds, stage.ttft_p99_seconds) == (None, None)
    assert (stage.tpot_mean_seconds, stage.input_tokens) == (None, None)


@pytest.mark.parametrize("path", sorted(FILES.iterdir()), ids=lambda path: path.name)
def test_a_damaged_file_is_refused_in_words_or_read(path) -> None:
    """Cut off anywhere, or with any value replaced: never another error, never a figure that is none."""
    whole = path.read_text()
    choice = random.Random(7)
    damaged = [whole[: choice.randrange(1, len(whole))] for _ in range(20)]
    if path.suffix == ".json":
        for _ in range(150):
            document = json.loads(whole)
            _spoil(document, choice)
            damaged.append(json.dumps(document))
    for content in damaged:
        try:
            found = text(content, path.name)
        except ImportFailedError:
            continue
        for stage in of(LoadtestStage, found):
            json.loads(stage.details or "{}")
            for name in LoadtestStage.__dataclass_fields__:
                value = getattr(stage, name)
                assert not isinstance(value, float) or 0 <= value < float("inf"), (name, value)


def _spoil(document, choice: random.Random) -> None:
    """Replace one value, on a random way down, by one of another kind."""
    here = document
    while True:
        keys = list(here) if isinstance(here, dict) else list(range(len(here)))
        if not keys:
            return
        key = choice.choice(keys)
        below = here[key]
        if isinstance(below, dict | list) and below and choice.random() < 0.8:
            here = below
            continue
        here[key] = choice.choice([None, "x", -1, 1e308, True, [], {}, [None], {"a": {}}, 0, "1e999", 10**400])
        return


def test_rows_of_every_file_go_into_a_store_and_come_back(tmp_path) -> None:
    settings = Settings(data=tmp_path, host="host-a")
    writer = Writer(settings.store_path, settings.store, host="host-a")
    store = LocalStore(writer, settings.store)
    runs = [imported(path.name) for path in FILES.iterdir() if "uneven" not in path.name]
    try:
        for found in runs:
            writer.put(found.rows)
        writer.flush()
        told = store.query("loadtest_runs").to_pylist()
        assert {row["run_id"] for row in told} == {found.run_id for found in runs}
        assert len({found.run_id for found in runs}) == len(runs)
        for found in runs:
            stages = store.query("loadtest_stages", {"run_id": found.run_id}).to_pylist()
            assert len(stages) == len(of(LoadtestStage, found))
    finally:
        writer.close()


def test_the_least_that_a_name_can_be() -> None:
    assert reading.last_part("/home/me/models/a.gguf") == "a.gguf"
    assert reading.last_part("C:\\models\\a.gguf") == "a.gguf"
    assert reading.last_part("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B"
