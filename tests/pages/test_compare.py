"""
The Compare page in its states.

Expected figures are worked out from the formulas of `tests.support.demo`: vLLM generates 600 tok/s plus a wave of 60,
computes 3,100 prompt tokens/s and 16 to 20 % of its cache; llama.cpp generates 88 tok/s, restarts at second 120.
"""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from store.loadtest_rows import LoadtestStage
from store.model import Event
from tests.pages.conftest import open_page, words
from tests.support import demo_loadtest
from tests.support.demo import HOST, LABELS, LLAMA, SGLANG, VLLM
from views import compare_charts, compare_runs, compare_sides, compare_table, compare_windows
from views.compare_windows import EngineWindow

PAGE = "compare.py"


def window(store, engine_id: str, first: float, last: float) -> EngineWindow:
    """Seconds of the demo's story as a window."""
    return EngineWindow(
        engine_id, store.demo.start + timedelta(seconds=first), store.demo.start + timedelta(seconds=last)
    )


def compared(*windows: EngineWindow | str):
    texts = [one if isinstance(one, str) else one.text() for one in windows]
    return open_page(PAGE, w=texts)


def html(app) -> str:
    return "\n".join(element.proto.body for element in app.get("html"))


def table(app) -> dict[str, list[str]]:
    """The cells of each row of all tables of the page, without markup, by the row's heading."""
    found = {}
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", html(app), flags=re.S):
        head = re.search(r'<th scope="row">(.*?)</th>', row, flags=re.S)
        if head:
            cells = re.findall(r"<td>(.*?)</td>", row, flags=re.S)
            found[_bare(head.group(1))] = [_bare(cell) for cell in cells]
    return found


def _bare(markup: str) -> str:
    plain = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", markup)).strip()
    return plain.replace("\N{MINUS SIGN}", "-").replace("\N{MULTIPLICATION SIGN}", "x")


def datasets(app, place: int = 0) -> dict[str, pa.Table]:
    chart = app.get("vega_lite_chart")[place].proto
    return {item.name: pa.ipc.open_stream(item.data.data).read_all() for item in chart.datasets}


def test_two_engines_side_by_side_with_difference_ratio_and_interval(serve):
    store = serve("usual", seconds=1100)
    rows = table(compared(window(store, VLLM, 140, 1040), window(store, LLAMA, 140, 1040)))
    vllm, llama = rows["Generation"]
    # Ten whole waves of 90 s: exactly 600 tokens/s on average.
    assert vllm == "600 tok/s"
    # 88 - 600 = -512, 88 / 600 = 0.147.
    assert re.fullmatch(r"88\.0 tok/s -512 tok/s · 0\.147x \(0\.1\d+ to 0\.1\d+\) worse", llama)
    assert rows["Prompt, computed"][0] == "3,100 tok/s"
    assert rows["KV cache in use, most"][1].startswith("81 %")
    assert rows["GPU memory, peak"][0] == "65.6 GiB"
    assert rows["GPU memory, peak"][1].startswith("7.7 GiB -57.9 GiB · 0.117x")


def test_a_window_too_short_for_an_interval_says_why(serve):
    """Two waves of 90 s in 180 s: each block follows the one before it."""
    store = serve("usual")
    app = compared(window(store, VLLM, 140, 320), window(store, LLAMA, 140, 320))
    assert table(app)["Generation"][1] == "88.0 tok/s -512 tok/s · 0.147x"
    assert "no interval: the baseline: it drifted through the window" in html(app)


def test_what_an_engine_does_not_offer_is_said_and_never_zero(serve):
    store = serve("usual")
    app = compared(window(store, VLLM, 140, 320), window(store, LLAMA, 140, 320))
    rows = table(app)
    # Exponential with mean 0.3 s: the median is 0.208 s.
    assert rows["TTFT p50"][0].endswith(" ms")
    assert 180 < float(rows["TTFT p50"][0].removesuffix(" ms")) < 240
    assert rows["TTFT p50"][1] == "not offered by llama.cpp"
    assert "llama.cpp has no histogram of the time to first token. Run a load test: the client measures it." in html(
        app
    )
    assert rows["ITL mean"][1].startswith("45.5 ms")  # 4 streams at 88 tokens/s: 4 / 88 s
    assert rows["ITL p95"][1] == "not offered by llama.cpp"
    assert "No window has" in words(app)


def test_unfair_differences_are_named_before_any_figure(serve):
    store = serve("usual")
    app = compared(window(store, VLLM, 140, 320), window(store, LLAMA, 140, 320))
    (warning,) = [element.value for element in app.warning]
    assert "Weights: BF16 in A; Q4_K_M in B." in warning
    order = [element.value for element in app.subheader]
    assert order[:2] == ["What differs", "Figures"]
    rows = table(app)
    assert rows["engine"] == ["vLLM", "llama.cpp"]
    assert rows["context per request"] == ["32,768 tokens", "8,192 tokens"]
    assert rows["requests at once"] == ["not told", "4"]


def test_energy_of_a_shared_gpu_is_not_compared(serve):
    store = serve("usual")
    app = compared(window(store, VLLM, 140, 320), window(store, LLAMA, 140, 320))
    cell = table(app)["Energy per output token"][1]
    assert cell.endswith("J shared not comparable")
    assert "GPU 0 was shared with Qwen3-8B on vLLM, which was not idle" in html(app)


def test_one_engine_at_two_times_keeps_its_colour_and_the_second_takes_another(serve):
    store = serve("usual")
    app = compared(window(store, VLLM, 0, 90), window(store, VLLM, 90, 180))
    assert "Nothing that is known differs between the configurations." in words(app)
    first, second = re.findall(r"er-swatch (er-c\d)", html(app))[:2]
    assert first != second
    line = datasets(app)["engine"].to_pandas()
    assert line.groupby("s", observed=True)["ts"].min().tolist() == [0.0, 0.0]  # both begin at elapsed time 0
    assert line["ts"].max() == 90_000


def test_what_happened_in_each_window_is_marked_at_its_elapsed_time(serve):
    """The demo's llama.cpp stops at second 120 and is back, restarted, at 132; vLLM is given new arguments here."""
    store = serve("usual")
    changed = store.demo.start + timedelta(seconds=200)
    details = json.dumps({"changes": {"arguments": ['["--max-num-seqs", "64"]', '["--max-num-seqs", "128"]']}})
    text = "Qwen3-8B on vLLM: arguments changed"
    events = [
        Event(changed, HOST, VLLM, f"{VLLM}-1", None, "configuration_changed", text, details),
        Event(changed, HOST, None, None, None, "collector_stopped", "the collector stopped"),
        Event(changed, HOST, SGLANG, f"{SGLANG}-1", None, "restarted", "another engine restarted"),
    ]
    store.writer.put(events)
    store.writer.flush()
    app = compared(window(store, LLAMA, 100, 300), window(store, VLLM, 150, 300))
    rules = datasets(app)["events"].to_pandas()
    told = {(row.name, row.ts): row.text for row in rules.itertuples(index=False, name="Rule") if row.text}
    labels = {name[0]: name for name, _ in told}
    assert told == {
        (labels["A"], 32_000.0): f"{LABELS[LLAMA]} restarted with 4 slots, was 2",
        (labels["A"], 100_000.0): "the collector stopped",
        (
            labels["B"],
            50_000.0,
        ): f"{text.removesuffix(' changed')}: --max-num-seqs 64 \N{RIGHTWARDS ARROW} 128; the collector stopped",
    }
    assert rules["s"].nunique() == 2  # each in the colour of its window
    states = datasets(app)["states"].to_pandas()
    stopped = states[states["what"] == "stopped"]
    assert stopped["ts"].tolist() == [20_000.0]
    assert stopped["te"].tolist() == pytest.approx([32_000.0])


def test_a_restart_and_what_is_missing_are_told_before_the_figures(serve):
    store = serve("usual")
    text = words(compared(window(store, LLAMA, 0, 320), window(store, LLAMA, 140, 320)))
    assert "It was restarted once: figures are over 2 lives of one configuration." in text
    assert "It was ready in 97 % of its samples." in text or "It was ready in 96 % of its samples." in text
    assert "<b>A and B</b> share some time" in text


def test_an_engine_that_did_not_answer_has_reasons_in_place_of_figures(serve):
    store = serve("usual")
    app = compared(window(store, VLLM, 140, 320), window(store, SGLANG, 140, 320))
    rows = table(app)
    assert rows["Generation"] == ["600 tok/s", "not known"]
    assert rows["GPU memory, mean"][1] == "none held"
    assert "It was ready in 0 % of its samples." in words(app)


def test_a_window_without_samples_says_so(serve):
    store = serve("usual")
    app = compared(window(store, VLLM, 140, 320), window(store, VLLM, -4000, -3700))
    assert "Nothing was sampled: the engine was not there, or no collector ran." in words(app)
    assert table(app)["Generation"] == ["600 tok/s", "not sampled"]


def test_one_window_invites_to_add_a_second_and_offers_the_days_before(serve):
    store = serve("usual")
    one = window(store, VLLM, 140, 320)
    app = compared(one)
    assert "Add a second window to compare this one with." in words(app)
    assert table(app)["Generation"] == ["600 tok/s"]
    button = next(one for one in app.button if one.label == "same hours yesterday")
    button.click().run()
    assert app.query_params["w"] == [one.shifted(timedelta(days=1)).text(), one.text()]


def test_without_windows_likely_comparisons_are_offered(serve):
    serve("usual")
    app = open_page(PAGE)
    assert "Choose two or more windows to compare." in words(app)
    labels = [one.label for one in app.button]
    assert "all engines, last hour" in labels
    lives = next(one for one in app.button if one.label.endswith("this life and the last"))
    assert lives.label == "Qwen3-8B Q4_K_M on llama.cpp: this life and the last"
    lives.click().run()
    assert not app.exception
    before, after = app.query_params["w"]
    assert before.split("~")[2] == after.split("~")[1]  # the one ends where the other begins
    # 4 requests of 88 tokens/s together in both lives.
    assert [cell.split(" tok/s")[0] for cell in table(app)["Generation while working"]] == ["88.0", "88.0"]


def test_the_form_adds_a_window(serve):
    serve("two")
    app = open_page(PAGE)
    app.selectbox(key="add-engine").select(LLAMA)
    app.segmented_control(key="add-range").set_value("last 15 min").run()
    app.button(key="add").click().run()
    assert not app.exception
    (text,) = app.query_params["w"] if isinstance(app.query_params["w"], list) else [app.query_params["w"]]
    chosen, _ = compare_windows.parse(text, datetime.now(UTC))
    assert (chosen.engine_id, chosen.seconds) == (LLAMA, 900)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nope~2026-11-30T09:00:00Z~2026-11-30T10:00:00Z", "No engine “nope” was ever seen"),
        ("run:20200101T000000Z-0000~vLLM~8", "There is no load test"),
        ("vllm-8000~2026-11-30T10:00:00Z~2026-11-30T09:00:00Z", "is not after"),
        ("vllm-8000~2126-11-30T10:00:00Z~2126-11-30T11:00:00Z", "lies in the future"),
        ("vllm-8000~1026-11-30T10:00:00Z~2026-11-30T09:00:00Z", "longer than ten years"),
    ],
)
def test_a_window_that_cannot_be_shown_leaves_the_others(serve, text, says):
    store = serve("usual")
    app = compared(window(store, VLLM, 140, 320), text)
    shown = words(app).replace("\\", "")
    assert says in shown
    assert table(app)["Generation"] == ["600 tok/s"]


def test_an_engine_may_be_named_by_its_label(serve):
    store = serve("usual")
    named = window(store, "Qwen3-8B on vLLM", 140, 320)
    assert table(compared(named))["Generation"] == ["600 tok/s"]


def test_the_csv_has_full_precision_units_and_what_is_missing(serve):
    store = serve("usual", seconds=1100)
    sides = [compare_sides.of_engine(window(store, engine, 140, 1040)) for engine in (VLLM, LLAMA)]
    rows = list(csv.DictReader(io.StringIO(compare_table.csv_bytes(sides).decode())))
    vllm, llama = (row for row in rows if row["figure"] == "Generation")
    summary = compare_sides.data.records(
        "window_summary", start=sides[0].chosen.start, end=sides[0].chosen.end, engine_id=VLLM
    )[0]
    assert float(vllm["value"]) == summary["generation_tokens_per_second"]  # to the last digit
    assert (vllm["unit"], vllm["window"], vllm["baseline"], vllm["ratio"]) == ("tok/s", "A", "True", "")
    assert float(llama["ratio"]) == pytest.approx(88 / 600, rel=1e-9)
    assert float(llama["ratio_low"]) < 88 / 600 < float(llama["ratio_high"])
    assert llama["confidence"] == "0.95"
    assert "t interval of the log ratio" in llama["method"]
    (ttft,) = [row for row in rows if row["figure"] == "TTFT p50" and row["window"] == "B"]
    assert (ttft["value"], ttft["missing"]) == ("", "not offered by llama.cpp")
    lines = list(csv.DictReader(io.StringIO(compare_charts.overlay_csv(sides).decode())))
    assert {row["quantity"]: row["unit"] for row in lines}["Generation throughput"] == "tok/s"
    assert {row["window"] for row in lines} == {"A", "B"}


def test_totals_of_windows_of_different_lengths_are_not_compared(serve):
    store = serve("two")
    rows = table(compared(window(store, LLAMA, 0, 100), window(store, LLAMA, 140, 320)))
    assert rows["GPU energy"][1].endswith("not comparable")


@pytest.fixture
def runs(serve):
    """The demo with the past load tests of `tests.support.demo_loadtest`."""
    store = serve("two")
    store.writer.put(demo_loadtest.past(store.end))
    store.writer.flush()
    return store


def _stage(label: str, level: int, run: str = demo_loadtest.RUN) -> str:
    return f"run:{run}~{label}~{level}"


def test_a_level_of_a_load_test_is_a_window(runs):
    app = compared(_stage(LABELS[VLLM], 8), _stage(LABELS[LLAMA], 8))
    stages = [
        row
        for row in compare_sides.data.records("loadtest_stages", run_id=demo_loadtest.RUN)
        if row["concurrency"] == 8 and row["engine_id"] == VLLM
    ]
    rates = [row["output_tokens_per_second"] for row in stages]
    assert len(rates) == demo_loadtest.REPEATS
    rows = table(app)
    assert rows["Generation"][0] == f"{sum(rates) / len(rates):,.0f} tok/s"
    assert rows["Generation"][1].endswith("worse")
    assert "3 repeats each" in html(app)
    # llama.cpp has 4 slots and gets 8 requests.
    assert "Requests at once: 4 in B. With 8 requests in flight, B lets some wait in its queue." in words(app)
    titles = [json.loads(one.proto.spec)["title"] for one in app.get("vega_lite_chart")]
    assert "TTFT" in titles


def test_every_repeat_of_a_load_test_has_its_own_line(serve):
    """Three repeats in the demo's story, in which llama.cpp always has 4 requests and 3 to 5 that wait."""
    store = serve("two", seconds=900)
    run_id = "20261201T120000Z-aaaa"
    began = store.demo.start + timedelta(seconds=300)
    made = demo_loadtest.stages(began, run_id, levels=(4,))
    stages = [row for rows in made for row in rows if isinstance(row, LoadtestStage) and row.engine_id == LLAMA]
    assert max(row.ended for row in stages) < store.end
    store.writer.put([row for rows in made for row in rows])
    store.writer.put([demo_loadtest.run(began, run_id, ended=stages[-1].ended)])
    hurt = stages[1].ts + timedelta(seconds=5)
    store.writer.put([Event(hurt, HOST, LLAMA, f"{LLAMA}-2", None, "restarted", "it restarted")])
    store.writer.flush()
    app = compared(_stage(LABELS[LLAMA], 4, run_id), window(store, VLLM, 300, 340))
    line = datasets(app)["engine"].to_pandas()
    key = next(key for key, rows in line.groupby("s", observed=True) if rows["r"].max() > 0)
    mine = line[line["s"] == key]
    assert sorted(set(mine["r"])) == [1.0, 2.0, 3.0]
    for stage in stages:
        ended = (stage.ended - stage.ts).total_seconds() * 1000
        times = mine.loc[mine["r"] == stage.repeat + 1, "ts"]
        assert 0 <= times.min() < 2000  # the demo samples engines every two seconds
        assert ended - 2500 < times.max() <= ended
    assert set(line.loc[line["s"] != key, "r"]) == {0.0}
    assert "<b>A</b> A thin line for each of 3 repeats, from its own beginning" in words(app)
    (text,) = [text for text in datasets(app)["events"].column("text").to_pylist() if text]
    assert text == "repeat 2: it restarted"
    side = compare_sides_of(_stage(LABELS[LLAMA], 4, run_id))
    rows = list(csv.DictReader(io.StringIO(compare_charts.overlay_csv([side]).decode())))
    assert {row["repeat"] for row in rows} == {"1", "2", "3"}


def compare_sides_of(text: str) -> compare_sides.Side:
    chosen, _ = compare_windows.parse(text, datetime.now(UTC))
    return compare_runs.of_run(chosen)


def test_load_tests_are_offered_with_whom_they_loaded_and_where_they_come_from(runs):
    app = open_page(PAGE)
    app.segmented_control(key="add-way").set_value("load test").run()
    offered = app.selectbox(key="add-run").options
    assert f"Evening sweep · {LABELS[VLLM]}, {LABELS[LLAMA]} · {demo_loadtest.RUN}" in offered
    (imported,) = [one for one in offered if "imported" in one]
    assert imported.startswith("qwen3-8b 8qps.json · Qwen3-8B (vllm bench serve) · imported from vllm bench serve · ")
    app.selectbox(key="add-run").select(imported).run()
    assert app.selectbox(key="add-stage").options == ["Qwen3-8B (vllm bench serve) at 8"]


def test_a_load_test_that_is_not_trusted_is_shown_and_not_compared(runs):
    untrusted = next(row["run_id"] for row in compare_sides.data.records("loadtest_runs") if row["trusted"] is False)
    app = compared(_stage(LABELS[VLLM], 8), _stage(LABELS[VLLM], 8, untrusted))
    (error,) = [element.value for element in app.error]
    assert "is not trusted, and its figures are not compared" in error
    cell = table(app)["Generation"][1]
    assert cell.endswith("not trusted not comparable")


def test_an_engine_and_a_load_test_are_told_apart(runs):
    app = compared(window(runs, VLLM, 140, 320), _stage(LABELS[VLLM], 8))
    assert "An engine tells its own latencies, a load test those that its client saw" in words(app)
    assert table(app)["KV cache in use, mean"][1] == "not measured"
    assert table(app)["Speed for one user"][0] == "needs a load test"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (_stage("nobody", 8), f"has no stage of “nobody” at 8. It has “{LABELS[VLLM]}” at 1, 2, 4, 8, 16, 32; “"),
        (_stage(LABELS[VLLM], 7), f"It has “{LABELS[VLLM]}” at 1, 2, 4, 8, 16, 32."),
    ],
)
def test_a_level_that_was_not_run_names_those_that_were(runs, text, says):
    assert says in words(compared(window(runs, VLLM, 140, 320), text)).replace("\\", "")


def test_without_a_collector_the_page_says_so(use_folder, tmp_path):
    use_folder(tmp_path / "nothing")
    app = open_page(PAGE, w="vllm-8000~2026-11-30T09:00:00Z~2026-11-30T10:00:00Z")
    assert "No collector answers." in words(app)
