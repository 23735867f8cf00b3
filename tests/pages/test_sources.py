"""The Sources page. Expected values: what `tests.support.demo` writes, and the reasons it gives."""

from __future__ import annotations

import re

from tests.pages.conftest import open_page, words


def table(app, key: int = 0):
    return app.dataframe[key].value


def test_every_source_is_there_with_its_state_in_words(serve):
    serve("usual")
    shown = table(open_page("sources.py")).set_index("source")
    assert set(shown.index) == {
        "host", "device:nvidia", "discovery", "store", "Qwen3-8B on vLLM", "Qwen3-8B Q4_K_M on llama.cpp",
        "Qwen3-8B on SGLang", "Qwen3-32B on vLLM",
    }  # fmt: skip
    assert shown.loc["host", "state"].endswith("ok")
    assert shown.loc["Qwen3-8B on SGLang", "state"].endswith("unreachable")
    assert shown.loc["Qwen3-8B on vLLM", "took (ms)"] == 12.0
    assert shown.loc["Qwen3-8B on vLLM", "every (s)"] == 2.0
    assert shown.loc["Qwen3-8B on vLLM", "found by"] == "process 4711 listens on 127.0.0.1:8000"
    assert shown.loc["Qwen3-8B on SGLang", "errors in 10 min"] == shown.loc["Qwen3-8B on SGLang", "samples in 10 min"]
    assert shown.loc["host", "last sample"].endswith("UTC")


def test_what_needs_attention_is_said_in_full(serve):
    serve("usual")
    app = open_page("sources.py")
    assert any("Nothing accepts connections" in error.value for error in app.error)
    assert any("loading" in info.value for info in app.info)


def test_missing_quantities_come_with_reason_and_remedy(serve):
    serve("usual")
    app = open_page("sources.py")
    (missing,) = app.table
    frame = missing.value
    assert list(frame.index) == ["E2E latency", "ITL", "TTFT"]
    assert set(frame["why"]) == {"not offered"}
    assert frame.loc["TTFT", "reason"] == "llama.cpp has no histogram of the time to first token."
    assert frame.loc["TTFT", "what to do"] == "Run a load test: the client measures it."


def test_where_no_engine_runs_none_is_said_to_offer_all(serve):
    serve("empty")
    assert "No engine runs now." in words(open_page("sources.py"))


def test_events_are_newest_first(serve):
    serve("usual")
    events = table(open_page("sources.py"), 1)
    assert events.iloc[0]["what"] == "restarted"
    assert events.iloc[0]["text"].endswith("restarted with 4 slots, was 2")
    assert list(events["time (UTC)"]) == sorted(events["time (UTC)"], reverse=True)


def test_room_on_the_disk_is_told_with_what_happens_when_there_is_none(serve):
    store = serve("two")
    app = open_page("sources.py")
    told = words(app)
    shown = dict(re.findall(r"<dt>(.*?)</dt><dd><b>(.*?)</b>", told))
    assert shown["Archive"] == "off"
    assert shown["Growth"] == shown["Full in"] == "not known yet"
    assert re.fullmatch(r"[\d.]+ [KMGT]iB of [\d.]+ [KMGT]iB", shown["Free"])
    assert f"telemetry.duckdb in {store.settings.data}" in told
    assert "sampling goes on in memory for about" in told
    assert "the oldest rows are dropped and counted" in told
    app.toggle(key="disk_tables_shown").set_value(True).run()
    assert {"engine_sample", "host_sample"} <= set(table(app, 1)["table"])


def test_a_disk_with_little_room_is_a_warning_above_the_sources(serve, monkeypatch):
    monkeypatch.setenv("ENGINE_ROOM_STORE__LOW_FREE_BYTES", str(10**18))
    serve("two")
    app = open_page("sources.py")
    assert any("The disk is nearly full" in warning.value for warning in app.warning)


def test_no_collector_is_a_state_of_the_page(use_folder, tmp_path):
    use_folder(tmp_path / "nothing")
    app = open_page("sources.py")
    assert "No collector answers" in app.warning[0].value
    assert "python -m collectors run" in words(app)


def test_a_host_without_driver_says_so(serve):
    serve("cpu")
    app = open_page("sources.py")
    assert any("driver missing" in info.value and "libnvidia-ml.so.1" in info.value for info in app.info)
