"""What the collector's samples say of a stage that is over: energy by token, restarts, and who else was at work."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from loadtest.endpoints import known_endpoints, match
from loadtest.ingest import Run, Stage
from loadtest.resources import after_stage
from loadtest.spec import Spec
from settings import Settings
from store.loadtest_rows import LoadtestJudgement, LoadtestResource, LoadtestStage
from store.local import LocalStore
from store.model import Epoch, Row
from store.writer import Writer
from tests.support.loadtest_rows import RUN, stage
from tests.support.rows import ENGINE, HOST, at, device, device_sample, engine, epoch, held, host_sample, sample

LLAMA = "llama.cpp-8080"


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    settings = Settings(data=tmp_path / "data", host=HOST)
    opened = Writer(settings.store_path, settings.store)
    opened.put([engine(label="vLLM"), epoch(), engine(LLAMA, "llama.cpp"), epoch("l@1", LLAMA), device()])
    yield opened
    opened.close()


def ask(writer: Writer, over: Stage, now: Epoch | None = None) -> list[Row]:
    """What the store says of a stage; the engine is in the life `now` by then."""
    writer.put([sample(60)])  # a sample after the stage: all that tell of it are stored
    writer.flush()
    store = LocalStore(writer, Settings(host=HOST).store)
    spec = Spec.from_json({"endpoints": [{"url": "http://127.0.0.1:8000"}]})
    known = match(spec, known_endpoints([(engine(), epoch())], []))
    run = Run(
        RUN, "x", spec, known, host=HOST, started_by="page", sink=writer, epoch_of=lambda _: None,
        stage_ended=lambda run, stage: None,
    )  # fmt: skip
    return after_stage(store, lambda _: now or epoch(), HOST, run, over)


def over(**values: object) -> Stage:
    """A stage whose measured requests took from 10 s to 20 s after T0: 40 requests, 2000 output tokens."""
    row = replace(stage(3), ended=at(21), label="vLLM", output_tokens=2000.0, succeeded=40, **values)
    return Stage(row, epoch(), at(10), at(20))


def judgements(rows: list[Row]) -> list[tuple[str, str, str]]:
    return [(row.code, row.severity, row.text) for row in rows if isinstance(row, LoadtestJudgement)]


def test_25_energy_is_told_for_each_output_token_and_each_request(writer: Writer) -> None:
    # InferenceX-app#393, mlcommons/inference#2558: energy by output token alone was compared across lengths.
    # 300 W for 10 s: 3000 J over 2000 tokens and over 40 requests.
    writer.put([held(12, 5000), held(12, 700, device_id=None, method="rss", cpu_cores=1.25)])
    writer.put([device_sample(second, power_watts=300.0) for second in range(5, 25)])
    rows = [row for row in ask(writer, over()) if isinstance(row, LoadtestResource)]
    host, gpu = rows
    assert (gpu.run_id, gpu.stage_id, gpu.engine_id, gpu.epoch_id) == (RUN, 3, ENGINE, "vllm-8000@1")
    assert gpu.energy_joules == pytest.approx(3000)
    assert gpu.joules_per_output_token == pytest.approx(1.5)
    assert gpu.joules_per_request == pytest.approx(75)
    assert (host.device_id, host.memory_peak_bytes, host.cpu_cores_mean) == (None, 700, 1.25)
    assert (host.energy_joules, host.joules_per_output_token, host.joules_per_request) == (None, None, None)


def test_without_tokens_there_is_no_energy_by_token(writer: Writer) -> None:
    writer.put([held(12, 5000), *(device_sample(second, power_watts=300.0) for second in range(5, 25))])
    gpu = next(row for row in ask(writer, over_with_nothing()) if isinstance(row, LoadtestResource) and row.device_id)
    assert (gpu.energy_joules, gpu.joules_per_output_token, gpu.joules_per_request) == (pytest.approx(3000), None, None)


def over_with_nothing() -> Stage:
    found = over()
    return replace(found, row=replace(found.row, output_tokens=None, succeeded=0))


def test_an_engine_that_began_another_life_during_the_stage_fails_it(writer: Writer) -> None:
    # The stage's requests began at 10 s; the process that answers now started at 15 s.
    rows = ask(writer, over(), now=epoch("vllm-8000@2", started=15))
    ((code, severity, text),) = judgements(rows)
    assert (code, severity) == ("engine_restarted", "failed")
    assert "vllm-8000@1 → vllm-8000@2" in text
    assert judgements(ask(writer, over())) == []


@pytest.mark.parametrize("known", [epoch(), None])
def test_a_life_that_the_collector_learnt_of_late_is_the_stages_own(writer: Writer, known: Epoch | None) -> None:
    # Its process started at 5 s, before the stage: nothing restarted, and the stage's row says so.
    rows = ask(writer, replace(over(), epoch=known), now=epoch("vllm-8000@2", started=5))
    assert judgements(rows) == []
    assert [row.epoch_id for row in rows if isinstance(row, LoadtestStage)] == ["vllm-8000@2"]
    assert {row.epoch_id for row in rows if isinstance(row, LoadtestResource)} == {"vllm-8000@2"}


@pytest.mark.parametrize(
    ("gpu", "severity", "where"),
    [("GPU-0", "failed", "on the same GPU"), ("GPU-1", "warning", "not on the same GPU")],
)
def test_another_engine_at_work_is_told(writer: Writer, gpu: str, severity: str, where: str) -> None:
    for second in range(6, 24, 2):
        writer.put([held(second, 9000), held(second, 1, device_id=None, method="rss")])
        writer.put([held(second, 900, LLAMA, device_id=gpu), held(second, 1, LLAMA, device_id=None, method="rss")])
        writer.put([sample(second, "l@1", LLAMA, requests_running=1, generation_tokens_total=10.0 * second)])
    # Ten tokens a second from 10 s to 20 s.
    assert [judged for judged in judgements(ask(writer, over())) if judged[0] == "other_engine_busy"] == [
        (
            "other_engine_busy",
            severity,
            f"llama.cpp generated 100 tokens {'on this host, though ' if severity == 'warning' else ''}{where} while "
            "vLLM was measured. Keep it idle and measure again.",
        )
    ]


def test_another_engine_that_was_idle_speaks_in_favour(writer: Writer) -> None:
    writer.put([sample(s, "l@1", LLAMA, requests_running=0, generation_tokens_total=7.0) for s in range(6, 24, 2)])
    text = "No other engine that is known worked meanwhile (looked at: llama.cpp)."
    assert judgements(ask(writer, over())) == [("other_engine_busy", "ok", text)]


def test_a_stage_in_which_nothing_was_sent_has_no_resources(writer: Writer) -> None:
    assert ask(writer, replace(over(), begin=None, end=None)) == []


def busy(writer: Writer, host: float, seconds: range = range(8, 24)) -> None:
    """The engine uses 1 of 4 cores, and all processes of the host together `host` of them."""
    for second in seconds:
        writer.put([host_sample(second, cpu_fraction=host / 4, cpu_count=4)])
        writer.put([held(second, 700, device_id=None, method="rss", cpu_cores=1.0)])


def with_client() -> Stage:
    """A stage in which the load generator used half a core."""
    return over(details=json.dumps({"client": {"cpu_fraction": 0.5}}))


@pytest.mark.parametrize(
    ("host", "severity", "text"),
    [
        # 1.8 less 1 and 0.5 leaves 0.3, less than a tenth of 4
        (1.8, "ok", "Other processes used 0.3 of the host's 4 cores on average."),
        (
            2.2, "warning",
            "Other processes used 0.7 of the host's 4 cores on average (vLLM 1.0, the load generator 0.5). "
            "End them and measure again.",
        ),
        (
            4.0, "warning",
            "No core was free: other processes used 2.5 of the host's 4 cores on average (vLLM 1.0, the load generator "
            "0.5). End them and measure again.",
        ),
    ],
)  # fmt: skip
def test_cores_that_others_used_are_told(writer: Writer, host: float, severity: str, text: str) -> None:
    busy(writer, host)
    assert judgements(ask(writer, with_client())) == [("host_busy", severity, text)]


def test_cores_are_not_judged_where_samples_cover_less_than_half_of_the_stage(writer: Writer) -> None:
    busy(writer, 4.0, range(10, 15))  # 4 s of 10
    assert judgements(ask(writer, with_client())) == []


@pytest.mark.parametrize(
    ("others", "severity", "text"),
    [
        (0, "ok", "No other process held memory on GPU 0."),
        (300 * 2**20, "note", "Other processes held up to 300.0 MiB on GPU 0 while vLLM was measured."),
        (
            6 * 2**30, "warning",
            "Other processes held up to 6.0 GiB on GPU 0 while vLLM was measured; whether they also computed on it is "
            "not known.",
        ),
    ],
)  # fmt: skip
def test_26_memory_that_others_held_on_the_device_is_told_apart(
    writer: Writer, others: int, severity: str, text: str
) -> None:
    # optimum-benchmark#123, #154: all memory of a GPU was charged to the engine under test.
    writer.put([held(12, 5000), *([held(12, others, engine_id=None)] if others else [])])
    rows = ask(writer, over())
    assert judgements(rows) == [("device_shared", severity, text)]
    (gpu,) = [row for row in rows if isinstance(row, LoadtestResource) and row.device_id]
    assert (gpu.memory_peak_bytes, gpu.memory_method, gpu.others_memory_bytes) == (5000, "nvml_process", others)
