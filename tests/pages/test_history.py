"""
The History page without a browser: the real page code on a real store behind the real read API.

Expected figures are those that `tests.support.demo` writes: a vLLM of 600 tok/s and a wave of 60, a llama.cpp of
88 tok/s that restarts after two minutes, an SGLang that nothing answers for.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

from tests.pages.conftest import open_page, words
from tests.support.demo import LABELS, LLAMA, VLLM

PAGE = "history.py"


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def datasets(app) -> dict[str, list[dict[str, object]]]:
    """What the page sent to its stack of charts."""
    (chart,) = app.get("vega_lite_chart")
    return {
        dataset.name: pa.ipc.open_stream(dataset.data.data).read_all().to_pylist() for dataset in chart.proto.datasets
    }


def titles(app) -> list[str]:
    (chart,) = app.get("vega_lite_chart")
    return [panel["title"] for panel in json.loads(chart.proto.spec)["vconcat"]]


def ends(app) -> tuple[str, ...]:
    """The range in the address; `AppTest` keeps a value of one as it was set, as text or as a list."""
    found = (app.query_params[name] for name in ("from", "to"))
    return tuple(value if isinstance(value, str) else value[0] for value in found)


@pytest.fixture
def story(serve):
    """Some minutes of the demo, and the query of exactly these."""
    store = serve("usual", seconds=400)
    return store, {"from": iso(store.demo.start), "to": iso(store.end)}


def test_a_range_is_drawn_with_its_resolution_in_words(story):
    _, span = story
    app = open_page(PAGE, **span)
    text = words(app)
    assert "(6 min 39 s)" in text
    assert "from raw samples" in text
    drawn = datasets(app)
    assert any(row["gen"] is not None for row in drawn["engine"])
    assert "Generation throughput" in titles(app)
    assert "KV cache in use" in titles(app)
    assert "TTFT: p50 solid, p95 dashed" in titles(app)


def test_the_resolution_names_what_differs_from_the_rest(story):
    """The demo samples engines every 2 s, the host and GPUs every second: 400 s of the latter are 400 rows."""
    _, span = story
    whole = words(open_page(PAGE, **span))
    assert "every sample; from raw samples" in whole
    store, _ = story
    store.advance(800)  # 1,200 s: too many of both, so that they are put together; latencies are not
    later = {"from": span["from"], "to": iso(store.end)}
    text = words(open_page(PAGE, **later))
    means = "one point = 5 s, mean with a band from lowest to highest"
    assert f"{means}; latencies: every sample, as they are sampled less often; from raw samples" in text
    alone = words(open_page(PAGE, **later, engines=LLAMA))  # it tells no histograms
    assert "latencies: every" not in alone
    assert f"{means}; from raw samples" in alone


def test_the_legend_tells_chosen_engines_from_those_that_hold_memory_too(story):
    _, span = story
    (legend,) = re.findall(r'<div class="er-legend">.*?</div>', words(open_page(PAGE, **span, engines=LLAMA)))
    chosen, others = legend.split("in memory also:")
    assert (LABELS[LLAMA] in chosen, LABELS[VLLM] in chosen, LABELS[VLLM] in others) == (True, False, True)
    (legend,) = re.findall(
        r'<div class="er-legend">.*?</div>',
        words(open_page(PAGE, **span, engines=LLAMA, show="Throughput")),
    )
    assert LABELS[VLLM] not in legend
    assert "in memory also" not in words(open_page(PAGE, **span))


def test_figures_are_those_of_the_story(story):
    _, span = story
    drawn = datasets(open_page(PAGE, **span))
    by_name = {row["name"]: row["row"] for row in drawn["states"]}
    llama = [row["gen"] for row in drawn["engine"] if row["s"] == by_name[LABELS[LLAMA]] and row["gen"] is not None]
    assert llama == pytest.approx([88.0] * len(llama), rel=1e-6)
    kv = [row["kv"] for row in drawn["engine"] if row["s"] == by_name[LABELS[LLAMA]] and row["kv"] is not None]
    assert kv == pytest.approx([81.0] * len(kv), rel=1e-6)
    for row in drawn["engine"]:
        if row["s"] == by_name[LABELS[VLLM]] and row["gen"] is not None:
            assert 539 <= row["gen"] <= 661
            assert row["gen_lo"] <= row["gen"] <= row["gen_hi"]


def test_percentiles_lie_in_the_bucket_they_name(story):
    """TTFT is exponential with mean 0.3 s: its median is 0.208 s, in the bucket from 0.1 to 0.25 s."""
    _, span = story
    drawn = datasets(open_page(PAGE, **span, show="Latency"))
    medians = [row for row in drawn["latency"] if row["q"] == "ttft_seconds" and row["p50"] is not None]
    assert medians
    for row in medians:
        assert (row["p50_lo"], row["p50_hi"]) == pytest.approx((0.1, 0.25))
        assert row["p50_lo"] <= row["p50"] <= row["p50_hi"]


def test_states_and_gaps_come_with_their_reason(story):
    _, span = story
    drawn = datasets(open_page(PAGE, **span))
    states = {(row["name"], row["what"]): row["why"] for row in drawn["states"]}
    assert (LABELS[LLAMA], "ready") in states
    assert (LABELS[LLAMA], "stopped") in states
    assert "Nothing answers at the engine's address" in states["Qwen3-8B on SGLang", "unreachable"]
    assert any("restarted with 4 slots, was 2" in row["text"] for row in drawn["marks"])


def test_what_was_before_the_first_sample_is_no_data_and_not_zero(story):
    store, _ = story
    before = {"from": iso(store.demo.start - timedelta(minutes=10)), "to": iso(store.end)}
    drawn = datasets(open_page(PAGE, **before))
    (gap,) = [row for row in drawn["gaps"] if row["te"] > row["ts"]]
    assert gap["ts"] == (store.demo.start - timedelta(minutes=10)).timestamp() * 1000
    assert abs(gap["te"] - store.demo.start.timestamp() * 1000) <= 5000
    assert "Nothing was recorded" in gap["text"]
    first = store.demo.start.timestamp() * 1000
    assert all(row["ts"] >= first for row in drawn["engine"])


def test_a_range_without_data_says_which_has(story):
    store, _ = story
    app = open_page(PAGE, **{"from": "2024-01-01", "to": "2024-01-02"})
    text = words(app)
    assert "No data from 2024-01-01" in text
    assert f"{store.demo.start:%Y-%m-%d %H:%M:%S} UTC" in text
    app.button(key="to-newest").click().run()
    assert not app.exception
    assert "from raw samples" in words(app)


def test_the_future_has_no_data_yet(story):
    text = words(open_page(PAGE, **{"from": "2036-01-01", "to": "2036-01-02"}))
    assert "It lies in the future." in text


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"from": "2026-12-02", "to": "2026-12-01"}, "to=2026-12-01 is not after from=2026-12-02"),
        ({"from": "1926-01-01", "to": "2026-01-01"}, "longer than ten years"),
        ({"from": "tomorrow", "to": "2026-01-01"}, "from=tomorrow is not a time"),
        ({"from": "2026-12-01"}, "only one of from= and to="),
        ({"range": "2w"}, "range=2w is not one of 1h, 6h, 24h, 7d, 30d, all"),
    ],
)
def test_a_bad_range_is_told_and_the_last_day_shown_instead(story, query, says):
    app = open_page(PAGE, **query)
    text = words(app)
    assert says in text
    assert "last 24 hours instead" in text
    assert app.get("vega_lite_chart")


def test_a_device_that_a_link_names_and_is_not_there_is_said(story):
    _, span = story
    assert "so left out:** GPU 7." in words(open_page(PAGE, **span, devices=["GPU 7"]))


def test_only_the_chosen_engine_is_drawn(story):
    _, span = story
    app = open_page(PAGE, **span)
    app.multiselect(key="engines").set_value([VLLM]).run()
    drawn = datasets(app)
    rows = {row["name"]: row["row"] for row in drawn["states"] if row["name"]}
    assert rows.keys() == {LABELS[VLLM], "host and collector"}
    assert {row["s"] for row in drawn["engine"]} == {rows[LABELS[VLLM]]}


def test_only_the_chosen_charts_are_drawn_and_offered_as_csv(story):
    _, span = story
    app = open_page(PAGE, **span, show=["Requests", "Host"])
    assert titles(app)[1:] == [
        "Requests: running solid, waiting dashed",
        "Host memory by holder; engines: resident set",
        "Host CPU, all cores",
    ]
    names = [button.label for button in app.get("download_button")]
    assert names == ["Requests", "Host memory", "Host", "Events"]


def test_moving_around_and_the_way_back(story):
    store, _ = story
    middle = store.demo.start + timedelta(minutes=3)
    start = {"from": iso(middle), "to": iso(middle + timedelta(minutes=2))}
    app = open_page(PAGE, **start)
    assert app.button(key="back").disabled
    app.button(key="earlier").click().run()
    assert ends(app) == (iso(middle - timedelta(minutes=1)), iso(middle + timedelta(minutes=1)))
    app.button(key="wider").click().run()
    # two minutes become six around the same middle
    assert ends(app) == (iso(middle - timedelta(minutes=3)), iso(middle + timedelta(minutes=3)))
    app.button(key="back").click().run()
    app.button(key="back").click().run()
    assert ends(app) == (start["from"], start["to"])
    assert app.button(key="back").disabled


def test_a_link_brings_back_the_same_view(story):
    _, span = story
    app = open_page(PAGE, **span, show=["Throughput"], percentiles=["p99"])
    app.multiselect(key="engines").set_value([LLAMA])
    app.session_state["share"] = True
    app.run()
    (link,) = [element.value for element in app.get("code")]
    query = parse_qs(urlsplit(link).query)
    assert query == {
        "engines": [LLAMA],
        "show": ["Throughput"],
        "percentiles": ["p99"],
        "from": [span["from"]],
        "to": [span["to"]],
    }


def test_an_empty_store_says_so(serve):
    serve("empty", seconds=0)
    assert "Nothing has been recorded yet" in words(open_page(PAGE))


def test_a_host_without_gpu_has_no_gpu_charts(serve):
    store = serve("cpu", seconds=120)
    app = open_page(PAGE, **{"from": iso(store.demo.start), "to": iso(store.end)})
    assert not [title for title in titles(app) if title.startswith("GPU")]
    assert "No GPU was sampled in this range." in words(app)


def test_no_collector_is_a_state_of_its_own(use_folder, tmp_path):
    use_folder(tmp_path / "nothing")
    assert "No collector answers" in words(open_page(PAGE))


def choose(app, start: datetime, end: datetime) -> None:
    """Fill the form of a fixed range and send it."""
    for place, moment in enumerate((start, end)):
        app.date_input[place].set_value(moment.date())
        app.time_input[place].set_value(moment.time())
    (send,) = [button for button in app.button if button.label == "Show this range"]
    send.click().run()


def test_a_range_is_chosen_by_its_two_ends_and_can_be_left_again(story):
    store, span = story
    app = open_page(PAGE, **span)
    start = store.demo.start.replace(second=0, microsecond=0) + timedelta(minutes=1)  # the form takes whole minutes
    choose(app, start, start + timedelta(minutes=3))
    assert ends(app) == (iso(start), iso(start + timedelta(minutes=3)))
    assert "(3 min)" in words(app)
    app.button(key="back").click().run()
    assert ends(app) == (span["from"], span["to"])


def test_a_range_that_ends_before_it_begins_is_told_and_changes_nothing(story):
    store, span = story
    app = open_page(PAGE, **span)
    start = store.demo.start.replace(microsecond=0)
    choose(app, start, start - timedelta(minutes=3))
    assert "is not after the beginning" in " ".join(error.value for error in app.error)
    assert ends(app) == (span["from"], span["to"])
