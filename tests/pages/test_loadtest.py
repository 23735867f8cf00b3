"""
The Load test page in its states.

Expected figures come from the demo's rows as they are written (`tests.support.demo_loadtest`) and from hand
calculations that the test shows.
"""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import streamlit as st

from store.client import StoreClient
from store.loadtest_rows import LoadtestRequest, LoadtestStage
from store.protocol import RefusedError
from tests.pages.conftest import open_page, words
from tests.support import dashboard, demo_loadtest, loadtest_rows
from tests.support.demo import LABELS, LLAMA, VLLM
from tests.support.demo_loadtest import HELD_BACK, RUN
from tests.support.wait import until
from views import loadtest_results

NOW = datetime.now(UTC).replace(microsecond=0)
PAGE = "load_test.py"


def opened(**query):
    """The page with a query string; `run` names the runs that are shown."""
    return open_page(PAGE, **query)


@pytest.fixture
def filled(serve):
    """The usual two engines, with the rows of load tests."""

    def fill(*rows, **options):
        store = serve("two", **options)
        store.writer.put(list(rows))
        store.writer.flush()
        return store

    return fill


def charts(app) -> list:
    return [element.proto for element in app.get("vega_lite_chart")]


def title(chart) -> str:
    return str(json.loads(chart.spec).get("title", ""))


def datasets(chart) -> dict[str, pa.Table]:
    return {item.name: pa.ipc.open_stream(item.data.data).read_all() for item in chart.datasets}


def the(app, name: str):
    """The chart with this title."""
    return next(chart for chart in charts(app) if title(chart).startswith(name))


# ---- set-up ------------------------------------------------------------------------------------


def test_the_form_has_defaults_that_can_be_started_at_once(filled):
    filled()
    app = opened()
    assert app.multiselect(key="targets").value == [LLAMA, VLLM]
    assert app.text_input(key="levels").value == "1, 2, 4, 8, 16, 32"
    assert (app.number_input(key="tokens_in").value, app.number_input(key="tokens_out").value) == (1000, 200)
    assert app.number_input(key="repeats").value == 3
    assert not app.button(key="start").disabled
    # Five requests a user and at least eight: 8 + 10 + 20 + 40 + 80 + 160 = 318 a sweep, 2 engines, 3 repeats.
    assert "36 stages, at most 1,908 requests, 1.9M prompt and 382k answer tokens" in words(app)
    assert "how long is not known before the first run" in words(app)


def test_what_is_unfair_between_the_engines_is_said_before_the_start(filled):
    filled()
    text = words(opened())
    assert "Weights: Q4_K_M in Qwen3-8B Q4_K_M on llama.cpp; BF16 in Qwen3-8B on vLLM." in text
    assert "With 32 requests in flight, Qwen3-8B Q4_K_M on llama.cpp lets some wait in its queue." in text
    assert "Prefix cache:" not in text  # avoided by every prompt
    assert "is answering 4 requests of others now" in text  # the demo's llama.cpp


def test_a_context_that_is_too_short_is_refused_with_its_reason(filled):
    filled()
    app = opened(tokens_in="8000", tokens_out="300")
    # llama.cpp has 8,192 a request (tests.support.demo), 8,000 + 300 = 8,300 are needed.
    (error,) = app.error
    assert "need 8,300; Qwen3-8B Q4_K_M on llama.cpp has a context of 8,192 a request" in error.value
    assert "at most 7,892" in error.value  # 8,192 - 300
    assert app.button(key="start").disabled


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ("1, two", "“two” is no number."),
        ("1, 2.5", "2.5 can't be used: levels are whole numbers from 1"),
        ("0 4", "0 can't be used"),
        ("", "Give at least one level."),
        ("<img/src=x>", "“&lt;img/src=x&gt;” is no number."),
    ],
)
def test_levels_that_mean_nothing_are_told_under_the_field(filled, levels, says):
    filled()
    app = opened()
    app.text_input(key="levels").set_value(levels).run()
    assert says in words(app)
    assert app.button(key="start").disabled


def test_a_level_beyond_the_limit_is_told_in_the_words_of_the_description(filled):
    filled()
    app = opened()
    app.text_input(key="levels").set_value("1, 9999").run()
    assert "concurrency must be a whole number from 1 to 4096, not 9999" in app.error[0].value
    assert app.button(key="start").disabled


def test_a_choice_of_a_link_that_there_is_not_is_named(filled):
    filled()
    app = opened(mode="sideways")
    assert "mode=sideways was ignored:** there is no such choice" in app.warning[0].value
    assert app.selectbox(key="mode").value == "closed"


def test_a_rate_is_asked_for_in_an_open_loop(filled):
    filled()
    app = opened(mode="Poisson rate")
    app.text_input(key="rates").set_value("0.5 2").run()
    # Thirty seconds of each rate and at least eight: 15 and 60 requests, 2 engines, 3 repeats.
    assert "12 stages, at most 450 requests" in words(app)


def test_one_user_is_always_among_the_levels(filled):
    filled()
    app = opened()
    app.text_input(key="levels").set_value("4, 8").run()
    assert "One user is measured as well" in words(app)
    assert "18 stages" in words(app)  # 1, 4, 8: 3 levels x 2 engines x 3 repeats


def test_the_time_is_estimated_from_an_earlier_run_of_the_same_workload(filled):
    filled(*demo_loadtest.finished(NOW - timedelta(hours=5)))
    assert re.search(r"about \d+ min, from an earlier run of this workload", words(opened()))
    assert "how long is not known" in words(opened(tokens_out="100"))


def test_start_runs_what_the_form_says_and_shows_it(filled):
    store = filled()
    app = opened(tokens_in="64", tokens_out="32")
    app.text_input(key="levels").set_value("1 2 4").run()
    app.text_input(key="test_name").set_value("Before lunch").run()
    app.button(key="start").click().run()
    run_id = app.query_params["run"]
    client = StoreClient(store.settings)
    row = next(row for row in client.query("loadtest_runs").to_pylist() if row["run_id"] == run_id)
    assert (row["name"], row["started_by"]) == ("Before lunch", "page")
    spec = json.loads(row["spec"])
    assert [each["engine_id"] for each in spec["endpoints"]] == [LLAMA, VLLM]
    assert spec["levels"] == [1, 2, 4]
    assert (spec["input"]["tokens"], spec["output"]["tokens"], spec["repeats"]) == (64, 32, 3)
    assert spec["slo"] == {"ttft_seconds": 1.0, "tpot_seconds": 0.05, "e2e_seconds": None}

    # The scripted worker plays a stage for each engine, then goes on until it is stopped.
    def measured():
        st.cache_resource.clear()
        app.run()
        return "25.0 tok/s" in words(app) and app

    until(measured, 60, "the rate of the run on the page")
    assert "stage 2 of 2" in words(app)
    app.button(key=f"stop-{run_id}").click().run()

    def over():
        st.cache_resource.clear()
        app.run()
        return "Stopped before its end." in "".join(message.value for message in app.warning) and app

    until(over, 60, "the run to be shown as stopped")
    assert app.button(key="delete-r0").disabled is False


def test_a_second_run_on_the_same_engine_waits_and_says_for_which(filled):
    filled()
    for name in ("First", "Second"):
        app = opened(targets=LABELS[VLLM])
        app.text_input(key="test_name").set_value(name).run()
        app.button(key="start").click().run()
    assert "waits for load test &#x27;First&#x27;, which uses the same engine" in words(app)


def test_a_refusal_of_the_collector_is_told(filled):
    def refuse(parameters):
        raise RefusedError("vllm-8000 is no engine that this collector knows; choose another")

    filled(commands={"loadtest_start": refuse})
    app = opened()
    app.button(key="start").click().run()
    assert "**Not started.** vllm-8000 is no engine that this collector knows" in app.error[0].value


def test_a_viewer_reads_results_and_is_told_what_only_the_host_may(filled, monkeypatch):
    filled(*demo_loadtest.finished(NOW - timedelta(hours=5)))
    monkeypatch.setattr(st.context.__class__, "ip_address", property(lambda _: "192.0.2.7"))
    app = opened()
    assert "Read-only." in app.info[0].value
    assert "only on the host that the dashboard runs on" in app.info[0].value
    assert not app.button  # nothing that a viewer may not do looks as if it could be done
    app = opened(run=RUN)
    assert [button.key for button in app.button] == ["new"]
    assert "Output throughput" in [title(chart) for chart in charts(app)]


def test_a_click_from_elsewhere_starts_nothing(filled, monkeypatch):
    """The button was drawn for the host itself; what counts is who asks at the moment of the click."""
    store = filled()
    app = opened()
    monkeypatch.setattr(st.context.__class__, "ip_address", property(lambda _: "192.0.2.7"))
    app.button(key="start").click().run()
    assert "Read-only." in app.info[0].value
    assert "run" not in app.query_params
    assert StoreClient(store.settings).query("loadtest_runs").num_rows == 0


def test_a_run_is_not_deleted_by_a_click_from_elsewhere(filled, monkeypatch):
    store = filled(*demo_loadtest.finished(NOW - timedelta(hours=5)))
    app = opened(run=RUN)
    app.button(key="delete-r0").click().run()
    monkeypatch.setattr(st.context.__class__, "ip_address", property(lambda _: "192.0.2.7"))
    app.button(key="confirm-delete").click().run()
    assert "**Not deleted.** Only from the host" in app.error[0].value
    assert StoreClient(store.settings).query("loadtest_runs").num_rows == 1


def test_no_engine_says_how_to_start_one(serve):
    serve("empty")
    app = opened()
    assert "No engine found on this host yet" in words(app)
    assert app.button(key="start").disabled


def test_no_collector_says_how_to_start_one(use_folder, tmp_path):
    use_folder(tmp_path / "nothing")
    app = opened()
    assert "No collector answers" in app.warning[0].value
    assert not app.get("multiselect")


# ---- while it runs -----------------------------------------------------------------------------


def test_a_run_under_way_shows_where_it_is_and_its_curves_so_far(filled):
    rows = demo_loadtest.going_on(NOW - timedelta(minutes=4), 9)
    told = demo_loadtest.status(rows)
    filled(*rows, commands={"loadtest_status": lambda _: {"runs": [told]}})
    app = opened(run=told["run_id"])
    text = words(app)
    assert "stage 10 of 36" in text
    assert "Qwen3-8B on vLLM \N{MULTIPLICATION SIGN} 8" in text
    assert "17 of 40 requests" in text
    assert "471 tok/s" in text
    assert "0 errors" in text
    assert "8 min left" in text  # 512 s
    curve = datasets(the(app, "Output throughput"))["curve"].to_pandas()
    # Nine stages are over: both engines at 1, 2, 4 and 8 users, and vLLM (first in its turn) at 16.
    assert sorted(curve["x"]) == [1, 1, 2, 2, 4, 4, 8, 8, 16]
    assert app.button(key="delete-r0").disabled


def test_a_run_under_way_is_seen_without_naming_it(filled):
    rows = demo_loadtest.going_on(NOW - timedelta(minutes=4), 9)
    filled(*rows, commands={"loadtest_status": lambda _: {"runs": [demo_loadtest.status(rows)]}})
    app = opened()
    assert "stage 10 of 36" in words(app)
    assert "Morning sweep is under way on the same engine; this one waits" in words(app)


# ---- results -----------------------------------------------------------------------------------


def test_curves_are_means_of_the_repeats_with_their_interval(filled):
    rows = demo_loadtest.finished(NOW - timedelta(hours=5))
    filled(*rows)
    curve = datasets(the(opened(run=RUN), "Output throughput"))["curve"].to_pandas()
    stages = [row for row in rows if isinstance(row, LoadtestStage) and row.engine_id == VLLM and row.concurrency == 8]
    rates = [row.output_tokens_per_second for row in stages]
    (row,) = curve[(curve["label"] == LABELS[VLLM]) & (curve["x"] == 8)].to_dict("records")
    assert row["n"] == 3
    assert row["tps"] == pytest.approx(statistics.mean(rates))
    # Student's t with two degrees of freedom: 4.303 (any table) times s / sqrt(3).
    half = 4.303 * statistics.stdev(rates) / 3**0.5
    assert (row["tps_lo"], row["tps_hi"]) == pytest.approx((row["tps"] - half, row["tps"] + half), rel=1e-4)


def test_latency_lines_take_the_middle_repeat_and_never_average_percentiles(filled):
    rows = demo_loadtest.finished(NOW - timedelta(hours=5))
    filled(*rows)
    chart = the(opened(run=RUN), "TTFT")
    stages = [row for row in rows if isinstance(row, LoadtestStage) and row.engine_id == LLAMA and row.concurrency == 4]
    curve = datasets(chart)["curve"].to_pandas()
    (row,) = curve[(curve["label"] == LABELS[LLAMA]) & (curve["x"] == 4)].to_dict("records")
    # 32-bit floats: seven digits
    assert row["ttft"] == pytest.approx(sorted(stage.ttft_p50_seconds for stage in stages)[1], rel=1e-6)
    assert row["ttft_hi"] == pytest.approx(max(stage.ttft_p95_seconds for stage in stages), rel=1e-6)
    assert datasets(chart)["slo"].to_pylist() == [{"value": 1.0, "text": "grey dashes: SLO 1 s"}]


def test_an_engine_has_its_colour_of_everywhere(filled):
    filled(*demo_loadtest.finished(NOW - timedelta(hours=5)))
    curve = datasets(the(opened(run=RUN), "Output throughput"))["curve"].to_pandas()
    keys = dict(zip(curve["label"], curve["s"], strict=True))
    # The demo sees both engines first at the same moment; ties go by id, and llama.cpp-8080 comes before vllm-8000.
    assert keys == {LABELS[LLAMA]: "s0", LABELS[VLLM]: "s1"}


def test_differences_have_a_ratio_with_its_interval(filled):
    rows = demo_loadtest.finished(NOW - timedelta(hours=5))
    filled(*rows)
    app = opened(run=RUN)
    frame = next(element.value for element in app.dataframe if "output B / A" in element.value.columns)
    assert list(frame["load"]) == [1, 2, 4, 8, 16, 32]
    means = {
        engine: statistics.mean(
            row.output_tokens_per_second
            for row in rows
            if isinstance(row, LoadtestStage) and row.engine_id == engine and row.concurrency == 32
        )
        for engine in (VLLM, LLAMA)
    }
    last = frame.iloc[-1]
    # The run measured vLLM first, so it is A.
    assert last["output A (tok/s)"] == pytest.approx(means[VLLM])
    ratio = means[LLAMA] / means[VLLM]
    assert last["output B / A"].startswith(f"{ratio:.3f} (")


def test_the_requests_of_a_stage_lie_in_its_window(filled):
    rows = demo_loadtest.finished(NOW - timedelta(hours=5))
    filled(*rows)
    app = opened(run=RUN)
    app.selectbox(key="stage").select_index(4).run()  # third level of the first repeat: vLLM with four users
    chart = next(chart for chart in charts(app) if "bars" in datasets(chart))
    bars, window = (datasets(chart)[name].to_pandas() for name in ("bars", "window"))
    mine = [row for row in rows if isinstance(row, LoadtestRequest) and row.stage_id == 4]
    assert len(set(bars["row"])) == len(mine) == 16
    first = bars[(bars["row"] == 0) & (bars["part"] == "TTFT")].iloc[0]
    assert first["end"] - first["start"] == pytest.approx(mine[0].ttft_seconds)
    (whole,) = (row for row in rows if isinstance(row, LoadtestStage) and row.stage_id == 4)
    assert window["end"].iloc[0] == pytest.approx(whole.window_seconds, abs=1e-3)


def test_memory_and_energy_stand_by_engine_and_level(filled):
    filled(*demo_loadtest.finished(NOW - timedelta(hours=5)))
    frame = next(element.value for element in opened(run=RUN).dataframe if "J per output token" in element.value)
    row = frame[(frame["engine"] == LABELS[VLLM]) & (frame["load"] == 1) & (frame["where"] != "host")].iloc[0]
    assert row["memory, peak"] == "65.6 GiB"
    assert row["power (W)"] == 542  # 540 and 2 a user
    assert "the driver's own figure" in row["memory by"]
    host = frame[(frame["engine"] == LABELS[VLLM]) & (frame["where"] == "host")].iloc[0]
    assert host["energy by"] == "not measurable"


def test_judgements_stand_with_what_failed_first(filled):
    filled(*demo_loadtest.finished(NOW - timedelta(hours=5), judged=[*demo_loadtest.GOOD, *demo_loadtest.BAD]))
    text = words(opened(run=RUN))
    assert text.index("failed: client saturated") < text.index("note: window short") < text.index("in order:")
    assert "The client was the bottleneck: 98 % of one core" in text


def test_an_untrusted_run_is_grey_and_concludes_nothing(filled):
    filled(*demo_loadtest.finished(NOW - timedelta(hours=3), HELD_BACK, judged=demo_loadtest.BAD))
    app = opened(run=HELD_BACK)
    assert "This run can't be relied on" in app.error[0].value
    chart = the(app, "Output throughput")
    assert not datasets(chart)["curve"].to_pandas()["ok"].any()
    assert '"condition": {"test": "datum.ok"' in chart.spec
    assert "overtakes" not in words(app)
    assert not any("output B / A" in element.value.columns for element in app.dataframe)


def test_a_run_whose_engine_went_down_says_so_above_its_figures(filled):
    began, why = NOW - timedelta(hours=3), "vLLM does not answer any more: Connection refused"
    filled(*demo_loadtest.finished(began, HELD_BACK, judged=demo_loadtest.BAD, state="failed", detail=why))
    (error,) = opened(run=HELD_BACK).error
    assert f"It failed: {why}. It did not pass its own checks" in error.value


def test_an_imported_file_shows_what_it_tells_and_names_what_it_lacks(filled):
    filled(*demo_loadtest.imported(NOW - timedelta(days=2)))
    app = opened(run="20261129T080000Z-beef")
    assert "From a result file" in app.info[0].value
    assert "its throughput is of the whole run" in words(app)
    curve = datasets(the(app, "Output throughput"))["curve"].to_pandas()
    assert list(curve["tps"]) == pytest.approx([485.4], rel=1e-6)
    assert "Not told here: Goodput" in words(app)
    assert [button.label for button in app.get("download_button")] == ["Stages", "Judgements"]


def test_runs_can_be_laid_over_each_other(filled):
    filled(*demo_loadtest.past(NOW))
    app = opened(run=[RUN, HELD_BACK])
    curve = datasets(the(app, "Output throughput"))["curve"].to_pandas()
    assert set(curve["r"]) == {"r0", "r1"}
    assert set(curve[curve["r"] == "r1"]["ok"]) == {False}
    # The run that failed its checks is no side of a difference.
    assert app.selectbox(key="a").options == [f"{LABELS[VLLM]}", f"{LABELS[LLAMA]}"]


def test_a_run_of_another_load_model_is_named_and_not_drawn(filled):
    poisson = [
        loadtest_rows.stage(0, "20261201T100000Z-0001", mode="poisson", concurrency=None, engine_id=VLLM,
                            offered_requests_per_second=2.0, output_tokens_per_second=300.0)
    ]  # fmt: skip
    other = loadtest_rows.run("20261201T100000Z-0001", name="Open loop")
    filled(*demo_loadtest.finished(NOW - timedelta(hours=5)), *poisson, other)
    app = opened(run=[RUN, "20261201T100000Z-0001"])
    assert "Open loop is not drawn: its load is open loop, Poisson" in words(app)


def test_a_stage_without_any_success_has_no_figure_and_no_zero(filled):
    nothing = loadtest_rows.stage(
        0, "20261201T100000Z-0002", concurrency=1, engine_id=VLLM, requests=8, succeeded=0, failed=8
    )
    failed = [
        loadtest_rows.request(
            number, 0, "20261201T100000Z-0002", status="error", error="HTTP 500", sent_seconds=0.0, done_seconds=0.2
        )
        for number in range(8)
    ]
    whole = loadtest_rows.run("20261201T100000Z-0002", trusted=False)
    failure = loadtest_rows.judgement("errors", "failed", 0, "20261201T100000Z-0002", "All 8 requests failed.")
    filled(nothing, *failed, failure, whole)
    app = opened(run="20261201T100000Z-0002")
    assert "All 8 requests failed." in words(app)
    stages = next(element.value for element in app.dataframe if "tok/s, steady" in element.value.columns)
    assert stages["tok/s, steady"].isna().all()
    assert list(stages["failed"]) == [8]
    bars = next(datasets(chart)["bars"] for chart in charts(app) if "bars" in datasets(chart)).to_pandas()
    assert set(bars["part"]) == {"failed or cut off"}
    assert bars["tip"].iloc[0] == "request 0: HTTP 500"


def test_an_engine_that_is_gone_keeps_its_results(filled):
    stage = loadtest_rows.stage(
        0, "20261201T100000Z-0003", engine_id="sglang-30000", label="Old SGLang", engine="sglang", concurrency=4,
        output_tokens_per_second=250.0,
    )  # fmt: skip
    filled(stage, loadtest_rows.run("20261201T100000Z-0003"))
    app = opened(run="20261201T100000Z-0003")
    assert "Old SGLang" in words(app)
    assert list(datasets(the(app, "Output throughput"))["curve"].to_pandas()["s"]) == ["s2"]  # after the known two


def test_names_from_outside_are_only_text(filled):
    hostile = '<img src=x onerror="alert(1)">'
    rows = demo_loadtest.finished(NOW - timedelta(hours=5), name=hostile)
    rows = [replace(row, label=hostile) if isinstance(row, LoadtestStage) else row for row in rows]
    filled(*rows)
    html = "".join(element.proto.body for element in opened(run=RUN).get("html"))
    assert hostile not in html
    assert "&lt;img src=x" in html


# ---- past runs ---------------------------------------------------------------------------------


def test_past_runs_stand_by_name_state_and_trust(filled):
    filled(*demo_loadtest.past(NOW))
    frame = next(element.value for element in opened().dataframe if "trust" in element.value.columns)
    assert list(frame["name"]) == [
        "Short one",
        "Sweep while the laptop was busy",
        "Evening sweep",
        "qwen3-8b 8qps.json",
    ]
    assert list(frame["trust"]) == ["trusted", "not trusted", "trusted", "not judged"]
    assert list(frame["source"]) == ["own", "own", "own", "vllm bench serve"]
    # An imported file tells nothing of what was asked for: its engines are those of its stages.
    assert list(frame["engines"])[-1] == "Qwen3-8B (vllm bench serve)"


def test_a_link_to_a_run_that_is_gone_says_so_and_shows_the_others(filled):
    filled(*demo_loadtest.finished(NOW - timedelta(hours=5)))
    app = opened(run=["20200101T000000Z-dead", RUN])
    assert "There is no load test `20200101T000000Z-dead` here." in app.warning[0].value
    assert "Evening sweep" in words(app)


def test_a_run_is_deleted_after_a_question_and_the_second_browser_is_told(filled):
    store = filled(*demo_loadtest.finished(NOW - timedelta(hours=5)))
    first, second = opened(run=RUN), opened(run=RUN)
    for browser in (first, second):
        browser.button(key="delete-r0").click().run()
        assert "Evening sweep** with its 36 stages" in words(browser)
    first.button(key="confirm-delete").click().run()
    assert "Evening sweep is deleted." in first.success[0].value
    assert "run" not in first.query_params
    second.button(key="confirm-delete").click().run()
    assert "was gone already: somebody else deleted it" in second.success[0].value
    store.writer.flush()
    st.cache_resource.clear()
    assert "No load test has been run or imported yet." in words(opened())


def test_stages_and_requests_leave_as_csv(filled):
    """In full precision, with times in UTC; what was not measured is empty."""
    rows = demo_loadtest.finished(NOW - timedelta(hours=5))
    filled(*rows)
    app = opened(run=RUN)
    assert [button.label for button in app.get("download_button")] == [
        "Stages",
        "Requests",
        "Judgements",
        "Memory and energy",
    ]
    lines = loadtest_results.csv("loadtest_stages", RUN).decode().splitlines()
    header, first = lines[0].split(","), lines[1].split(",")
    found = dict(zip(header, first, strict=False))
    (stage,) = (row for row in rows if isinstance(row, LoadtestStage) and row.stage_id == 0)
    assert len(lines) == 37
    assert float(found["output_tokens_per_second"]) == stage.output_tokens_per_second
    assert found["window_end"].endswith("Z")
    assert len(loadtest_results.csv("loadtest_requests", RUN).decode().splitlines()) == 1 + sum(
        isinstance(row, LoadtestRequest) for row in rows
    )


def test_a_result_file_of_another_tool_becomes_a_run(filled):
    """A real file of `vllm bench serve` 0.32.0 (tests/fixtures/README.md)."""
    filled()
    file = dashboard.ROOT / "tests" / "fixtures" / "loadtest" / "vllm_bench_0.32.0_detailed.json"
    told = json.loads(file.read_text(encoding="utf-8"))
    app = opened()
    app.get("file_uploader")[0].upload(file.name, file.read_bytes(), "application/json").run()
    app.text_input(key="import_name").set_value("From vLLM").run()
    app.button(key="import").click().run()
    assert app.success[0].value.startswith("1 run imported.")
    assert "From vLLM" in words(app)
    curve = datasets(the(app, "Output throughput"))["curve"].to_pandas()
    assert list(curve["x"]) == [told["max_concurrency"]]
    assert "imported from vllm bench serve" in words(app)


def test_a_file_of_no_known_tool_is_refused_in_the_collectors_words(filled):
    filled()
    app = opened()
    app.get("file_uploader")[0].upload("notes.json", b'{"shopping": ["milk"]}', "application/json").run()
    app.button(key="import").click().run()
    assert "**Not imported.**" in app.error[0].value
    assert "notes.json" in app.error[0].value


def test_a_file_that_is_no_text_is_refused_by_name(filled):
    filled()
    app = opened()
    app.get("file_uploader")[0].upload("picture.json", b"\x89PNG\xff", "application/json").run()
    app.button(key="import").click().run()
    assert "picture.json is no text in UTF-8" in app.error[0].value
