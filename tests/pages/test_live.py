"""
The Live page in its states.

Expected figures are worked out from the demo's own formulas (see `tests.support.demo`): vLLM generates
600 tok/s plus a wave of 60, prompt 3,100 tok/s; llama.cpp 88 and 410 tok/s, 81 % of 32,768 KV tokens.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
import streamlit as st

from store.model import EngineState, Epoch, Startup
from tests.pages.conftest import open_page, words
from tests.support.demo import GIB, HOST, LLAMA, VLLM, VLLM_POOL_BYTES, vllm_tokens


def cards(app) -> dict[str, str]:
    """The text of each engine's card, by its title."""
    html = "".join(element.proto.body for element in app.get("html"))
    found = re.findall(r'<section class="er-card[^>]*aria-label="([^"]*)">(.*?)</section>', html, flags=re.S)
    return dict(found)


def big_figures(card: str) -> list[str]:
    return re.findall(r'class="er-big">.*?>([\d,.]+)</span>', card)


def chart(app):
    (element,) = app.get("vega_lite_chart")
    return element.proto


def datasets(app) -> dict[str, pa.Table]:
    return {item.name: pa.ipc.open_stream(item.data.data).read_all() for item in chart(app).datasets}


def test_every_engine_has_its_card_with_rates_from_the_counters(serve):
    store = serve("usual")
    shown = cards(open_page())
    assert set(shown) == {"Qwen3-8B Q4_K_M on llama.cpp", "Qwen3-8B on vLLM", "Qwen3-8B on SGLang", "Qwen3-32B on vLLM"}
    generation, prompt = big_figures(shown["Qwen3-8B on vLLM"])
    # Over the last 10 s or a little less: 600 +- 60 tokens/s whatever the phase of the wave.
    newest = store.written - 1 - (store.written - 1) % 2
    steady = (vllm_tokens(newest) - vllm_tokens(newest - 10)) / 10
    assert float(generation) == pytest.approx(steady, abs=12)
    assert prompt == "3,100"
    assert big_figures(shown["Qwen3-8B Q4_K_M on llama.cpp"]) == ["88.0", "410"]


def test_what_an_engine_does_not_offer_is_said_and_is_never_zero(serve):
    serve("usual")
    llama = cards(open_page())["Qwen3-8B Q4_K_M on llama.cpp"]
    row = re.search(r"<dt>TTFT</dt><dd>(.*?)</dd>", llama, flags=re.S).group(1)
    assert ">not offered by llama.cpp</span>" in row
    assert "llama.cpp has no histogram of the time to first token. Run a load test: the client measures it." in row
    itl = re.search(r"<dt>ITL</dt><dd>(.*?)</dd>", llama, flags=re.S).group(1)
    # 4 streams at 88 tokens/s together: 4 / 88 s = 45.45 ms between tokens of one stream.
    assert itl.startswith("mean <b>")
    assert ">45.5 ms</span>" in itl


def test_latencies_carry_the_bucket_they_lie_in(serve):
    serve("usual")
    vllm = cards(open_page())["Qwen3-8B on vLLM"]
    row = re.search(r"<dt>TTFT</dt><dd>(.*?)</dd>", vllm, flags=re.S).group(1)
    # Exponential with mean 0.3 s: the median is 0.3 ln 2 = 0.208 s, in the bucket from 0.1 to 0.25 s;
    # the 95th percentile is 0.3 ln 20 = 0.899 s, between 0.75 and 1 s.
    assert "in bucket 0.1\N{EN DASH}0.25 s" in row
    assert "in bucket 0.75\N{EN DASH}1 s" in row


def test_kv_use_states_its_capacity_and_that_it_is_an_estimate(serve):
    serve("usual")
    shown = cards(open_page())
    assert "81 % of 33k tokens" in shown["Qwen3-8B Q4_K_M on llama.cpp"]
    assert "(estimated)" in shown["Qwen3-8B Q4_K_M on llama.cpp"]
    assert "of 218k tokens" in shown["Qwen3-8B on vLLM"]
    assert "(estimated)" not in shown["Qwen3-8B on vLLM"]


def test_a_card_tells_what_its_memory_is_made_of_and_from_where(serve):
    """The demo's own figures: vLLM holds 65.6 GiB; pool and weights as in PARTS; 16 to 20 % of the pool in use."""
    serve("usual")
    shown = cards(open_page())
    vllm = re.search(r'<div class="er-parts">(.*?)</div>', shown["Qwen3-8B on vLLM"], flags=re.S).group(1)
    text = re.sub(r"<[^>]*>", "", vllm)
    pool, weights = VLLM_POOL_BYTES / GIB, 16_381_470_720 / GIB
    assert re.fullmatch(
        rf"holds 65.6 GiB on the GPU, of it {pool:.1f} GiB KV pool, (1[6-9]|20) % of the pool in use, "
        rf"{weights:.1f} GiB weights, {65.6 - pool - weights:.1f} GiB everything else",
        text,
    )
    assert "derived: 13,625 blocks x page bytes" in vllm
    widths = [float(width) for width in re.findall(r'<i style="width:([\d.]+)%', vllm)]
    assert sum(widths) == pytest.approx(100, abs=0.1)
    assert widths[0] == pytest.approx(weights / 65.6 * 100, abs=0.1)
    llama = shown["Qwen3-8B Q4_K_M on llama.cpp"]
    assert "81 % of the cache in use" in llama
    assert "the engine&#x27;s own figure: /v1/models meta.size" in llama
    assert "er-parts" not in shown["Qwen3-32B on vLLM"]  # it loads: nothing is known yet


def test_eight_engines_on_two_gpus_each_say_what_they_are(serve):
    serve("mixed")
    shown = cards(open_page())
    assert len(shown) == 8
    assert "tok/s" not in shown["llama.cpp router"]  # its models have cards of their own
    assert "the driver lists the processes" in shown["Ollama · llama3.2:3b"]
    assert "There are no rules for the memory of tgi yet." in shown["TGI · Mistral-7B-Instruct-v0.3"]
    assert "3.1 % of the pool in use" in shown["SGLang · Llama-3.1-8B-Instruct"]
    assert "GiB models with their cache" in shown["Ollama · llama3.2:3b"]


@pytest.mark.parametrize(
    ("scenario", "title", "badge", "says"),
    [
        ("usual", "Qwen3-8B on SGLang", "unreachable", "Look into the engine&#x27;s own log"),
        ("usual", "Qwen3-32B on vLLM", "loading", "the model is being loaded"),
        ("stopped", "Qwen3-8B on SGLang", "stopped", "was Qwen/Qwen3-8B"),
        ("unauthorised", "Qwen3-8B Q4_K_M on llama.cpp", "unauthorised", "api_key_env"),
        ("busy", "Qwen3-8B Q4_K_M on llama.cpp", "busy", "No answer within 10 s"),
    ],
)
def test_a_state_says_what_was_observed_and_what_to_do(serve, scenario, title, badge, says):
    serve(scenario)
    card = cards(open_page())[title]
    assert f">{badge}</span>" in card
    assert says in card
    assert not big_figures(card)


def test_the_charts_span_exactly_the_window_and_leave_gaps(serve):
    store = serve("usual")
    app = open_page(window="5m", refresh="off")
    data = datasets(app)
    start, end = data["window"].column("ts").to_pylist()
    assert end - start == 300_000
    engine = data["engine"].to_pandas()
    assert engine["ts"].between(start, end).all()
    # llama.cpp was away between its 120th and 132nd second.
    away = [(store.demo.start + timedelta(seconds=s)).timestamp() * 1000 for s in (121, 131)]
    llama = engine[(engine["s"] == "s0") & engine["ts"].between(*away)]
    assert len(llama)
    assert llama["gen"].isna().all()


def test_gpu_memory_parts_add_up_to_what_the_driver_reports(serve):
    serve("usual")
    parts = datasets(open_page())["parts"].to_pandas()
    tops = parts[(parts["d"] == "d1") & (parts["s"] == "driver")]["hi"].dropna()
    assert tops.to_numpy() == pytest.approx(62.0, abs=1e-3)  # the demo's second GPU always has 62 GiB in use
    total = parts[(parts["d"] == "d1") & (parts["s"] == "total")]["hi"]
    assert set(total) == {80.0}


def test_host_memory_parts_add_up_to_what_is_in_use(serve):
    """The demo's host: 512 GiB installed, 430 GiB available; vLLM 2.9 GiB resident, llama.cpp 1.2 GiB."""
    serve("usual")
    parts = datasets(open_page())["parts"].to_pandas()
    tops = parts[(parts["d"] == "h") & (parts["s"] == "other")]["hi"].dropna()
    assert tops.to_numpy() == pytest.approx(512 - 430, abs=1e-3)
    sizes = {
        key: rows["hi"].iloc[-1] - rows["lo"].iloc[-1]
        for key, rows in parts[parts["d"] == "h"].groupby("s", observed=True)
    }
    assert sizes["s2"] == pytest.approx(2.9, abs=1e-3)
    assert sizes["s0"] == pytest.approx(1.2, abs=1e-3)
    assert sizes["total"] == pytest.approx(512)


def test_the_specification_is_the_same_at_the_next_refresh(serve):
    store = serve("two", end=datetime.now(UTC) - timedelta(seconds=30))
    first = open_page()
    spec, before = chart(first).spec, datasets(first)
    store.advance(20)
    st.cache_resource.clear()  # answers are kept for a second
    again = first.run()
    assert chart(again).spec == spec
    assert not before["engine"].equals(datasets(again)["engine"])
    assert chart(again).alt.startswith("9 charts over 5 minutes")


def test_a_host_without_gpu_is_told_in_one_line(serve):
    serve("cpu")
    app = open_page()
    assert "No GPU on this host:" in words(app)
    assert "libnvidia-ml.so.1" in words(app)
    assert set(datasets(app)) == {"window", "engine", "host", "events", "parts"}
    assert "GiB" in json.dumps(json.loads(chart(app).spec))


def test_a_gpu_in_trouble_is_told_above_the_charts(serve):
    store = serve("two", end=datetime.now(UTC) - timedelta(seconds=10))
    lost = [row for row in store.demo.second(store.written) if type(row).__name__ == "DeviceSample"][1]
    detail = "the device does not answer (GPU is lost); see dmesg for Xid messages."
    store.writer.put([replace(lost, state="device_lost", detail=detail, memory_used_bytes=None)])
    store.writer.flush()
    assert f"GPU 1: device lost.</b> {detail}" in "".join(element.proto.body for element in open_page().get("html"))


def test_no_engine_says_what_was_looked_for(serve):
    serve("empty")
    text = words(open_page())
    assert "No engine found on this host yet" in text
    assert "ports 8000" in text
    assert "llama-server -m Qwen3-8B-Q4_K_M.gguf --port 8080 --metrics --slots" in text


def test_no_collector_says_how_to_start_one(use_folder, tmp_path):
    use_folder(tmp_path / "nothing")
    app = open_page()
    assert "No collector answers" in app.warning[0].value
    assert f"ENGINE_ROOM_DATA={tmp_path / 'nothing'} python -m collectors run" in app.code[0].value
    assert not app.get("vega_lite_chart")


def test_the_url_decides_what_is_shown(serve):
    serve("usual")
    app = open_page(engines=[VLLM], window="15m", refresh="off")
    assert set(cards(app)) == {"Qwen3-8B on vLLM"}
    start, end = datasets(app)["window"].column("ts").to_pylist()
    assert end - start == 900_000
    assert set(datasets(app)["engine"].column("s").to_pylist()) == {"s2"}


def test_a_frozen_link_shows_its_own_time(serve):
    store = serve("two")
    first, last = (store.demo.start + timedelta(seconds=s) for s in (60, 100))
    app = open_page(**{"from": first.isoformat(), "to": last.isoformat()})
    assert "frozen" in words(app)
    assert datasets(app)["window"].column("ts").to_pylist() == [first.timestamp() * 1000, last.timestamp() * 1000]
    assert app.button(key="back").label == "Back to live"
    app.button(key="back").click().run()
    assert "frozen" not in words(app)


def test_a_range_before_the_first_engine_says_so(serve):
    serve("two")
    app = open_page(**{"from": "2020-01-01T00:00:00Z", "to": "2020-01-01T01:00:00Z"})
    assert "No engine had been seen" in app.info[0].value
    assert not cards(app)


def test_the_choice_of_a_link_outlives_a_collector_that_is_not_there_yet(use_folder, tmp_path):
    use_folder(tmp_path / "nothing")
    app = open_page(engines=[VLLM])
    assert app.multiselect(key="engines").value == [VLLM]


def test_an_engine_that_comes_can_be_chosen(serve):
    store = serve("empty", seconds=30)
    app = open_page()
    assert app.multiselect(key="engines").options == []
    store.writer.put([row for row in replace(store.demo, engines=(VLLM,)).facts() if not hasattr(row, "device_id")])
    store.writer.flush()
    st.cache_resource.clear()
    app.run()
    assert app.multiselect(key="engines").options == [VLLM]


def test_a_bad_link_is_told_and_the_live_view_shown(serve):
    serve("two")
    app = open_page(**{"from": "yesterday", "to": "2026-12-01T00:00:00Z"})
    assert "from=yesterday is not a time" in app.warning[0].value
    assert len(cards(app)) == 2


def test_how_long_an_engine_took_to_start_is_told_where_it_was_seen(serve):
    store = serve("two")
    lives = {row.engine_id: row.epoch_id for row in store.demo.facts() if isinstance(row, Epoch)}
    start = store.demo.start
    store.writer.put([Startup(start, HOST, VLLM, lives[VLLM], start, 41.0, 55.0, 2.0, None)])
    store.writer.put([Startup(start, HOST, LLAMA, lives[LLAMA], start, None, None, None, "it ran already")])
    store.writer.flush()
    shown = cards(open_page())
    vllm = shown["Qwen3-8B on vLLM"]
    assert "ready in 41.0 s" in vllm
    assert "first token served after 55.0 s. Up to 2.00 s less" in vllm
    assert "ready in" not in shown["Qwen3-8B Q4_K_M on llama.cpp"]


def test_names_from_outside_are_only_text(serve):
    store = serve("two")
    hostile = '<img src=x onerror="alert(1)">'
    engine = next(row for row in store.demo.facts() if type(row).__name__ == "Engine" and row.engine_id == LLAMA)
    store.writer.put([replace(engine, label=hostile)])
    store.writer.flush()
    html = "".join(element.proto.body for element in open_page().get("html"))
    assert hostile not in html
    assert "&lt;img src=x" in html


def test_engines_that_stopped_long_ago_are_out_of_the_way(serve):
    store = serve("stopped", seconds=30)
    old = [
        row
        for row in store.demo.second(0)
        if getattr(row, "state", None) == EngineState.STOPPED and hasattr(row, "epoch_id")
    ]
    store.writer.put([replace(row, ts=row.ts - timedelta(hours=30)) for row in old])
    store.writer.flush()
    app = open_page()
    assert "1 stopped more than a day ago" in [expander.label for expander in app.expander]
