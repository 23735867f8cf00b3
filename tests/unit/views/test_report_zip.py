"""
The ZIP of a report, over a served demo with past load tests.

What a file has to hold comes from `GET /export`, asked as README.txt of the same ZIP says; what must not be in it from
the rows that were written here.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import api
from store.model import Event
from tests.support import dashboard, demo_loadtest, loadtest_rows
from tests.support.demo import HOST, LABELS, LLAMA, VLLM
from tests.support.rows import epoch as epoch_row
from views import compare_table, data, report_contents, report_html
from views.compare_windows import EngineWindow, RunWindow
from views.report_document import BadReportError, ReportDocument
from views.report_scrub import nothing
from views.report_zip import zip_bytes

use_folder = dashboard.use_folder
serve = dashboard.serve

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
SERIES = (
    "engine_series",
    "latency_series",
    "engine_memory_series",
    "device_memory_series",
    "device_series",
    "host_series",
)
SAMPLES = ("engine_sample", "engine_rate", "latency_bucket")
RUN_TABLES = ("loadtest_run", "loadtest_stage", "loadtest_request", "loadtest_judgement", "loadtest_resource")
USER, SECRET_FOLDER, ADDRESS, OTHER_HOST = "kimberley", "project-nightjar", "10.11.12.13", "gpu-box-7.corp.example"
ODD_LABEL = '../../etc/"odd", label'


@pytest.fixture
def store(serve):
    """The demo, with rows that tell where things lie: in arguments, sentences, JSON and names that a person gave."""
    served = serve("two", end=NOW)
    path = f"/home/{USER}/{SECRET_FOLDER}/My Models/Qwen3-8B-Q4_K_M.gguf"
    told = f"{path} was loaded; see /home/{USER}/{SECRET_FOLDER}/logs/today.log and http://{OTHER_HOST}:8080/v1/models"
    moment = served.demo.start + timedelta(seconds=200)
    epoch = epoch_row(
        f"{LLAMA}-2", LLAMA, host=HOST, first_seen=moment, model_path=path, quantization="Q4_K_M",
        arguments=json.dumps(["llama-server", "-m", path, "--host", OTHER_HOST]),
        facts=json.dumps({"model_path": path, "rpc": f"{ADDRESS}:50052"}),
    )  # fmt: skip
    epoch = replace(epoch, started=moment)
    details = json.dumps({"log": f"/srv/größe-{SECRET_FOLDER}/{USER}/x.log", "peer": f"http://{ADDRESS}:9000/"})
    served.writer.put([epoch, Event(moment, HOST, LLAMA, f"{LLAMA}-2", None, "configured", told, details)])
    served.writer.put(demo_loadtest.past(NOW))
    served.writer.put(
        [
            loadtest_rows.stage(
                0, "20261201T110000Z-0dd0", ts=NOW, ended=NOW, host=OTHER_HOST, label=ODD_LABEL,
                url=f"http://{ADDRESS}:8000", engine_id=None, model_id=path,
            ),
            demo_loadtest.run(
                NOW, "20261201T110000Z-0dd0", host=OTHER_HOST, name=f"from {HOST} by ../{USER}",
                detail=f"/home/{USER} is full on {ADDRESS}.", spec=json.dumps({"input": {"path": path}}),
            ),
        ]
    )  # fmt: skip
    served.writer.flush()
    return served


def windows(store, *engines: str) -> tuple[str, ...]:
    first, last = (store.demo.start + timedelta(seconds=second) for second in (140, 320))
    return tuple(EngineWindow(engine, first, last).text() for engine in engines)


def loaded(store, *, runs: tuple[str, ...] = (demo_loadtest.RUN,), **values):
    document = {"title": "Which engine?", "windows": windows(store, VLLM, LLAMA), "runs": runs} | values
    return report_contents.load(ReportDocument(**document), NOW)


def members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


def zipped(contents, html: str = "<!doctype html>", **options) -> dict[str, bytes]:
    return members(zip_bytes(contents, html, contents.scrub, **options))


def rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def test_every_file_is_the_export_that_the_readme_names(store):
    found = zipped(loaded(store, raw=True))
    of_windows = {f"window-{letter}_{table}.csv" for letter in "AB" for table in (*SERIES, "event", *SAMPLES)}
    of_runs = {f"run-1_{table}.csv" for table in RUN_TABLES}
    made = {"report.html", "README.txt", "dictionary.csv", "figures.csv", "lines.csv"}
    assert set(found) == of_windows | of_runs | made
    named = dict(
        re.findall(r"^(\S+\.csv)\n(?:    .*\n)+?    rows of (/export/\S+)$", found["README.txt"].decode(), re.MULTILINE)
    )
    assert set(named) == of_windows | of_runs
    with TestClient(Starlette(routes=api.routes())) as http:
        for name, path in named.items():
            answer = http.get(path)
            assert answer.status_code == 200, path
            assert answer.content == found[name], name
    assert len(rows(found["window-A_engine_sample.csv"])) == 91  # seconds 140 to 320, every second one
    assert {row["engine_id"] for row in rows(found["window-B_engine_series.csv"])} == {LLAMA}
    assert {row["run_id"] for row in rows(found["run-1_loadtest_request.csv"])} == {demo_loadtest.RUN}


def test_without_the_samples_there_are_the_rows_of_charts_only(store):
    found = zipped(loaded(store))
    assert not [name for name in found for table in SAMPLES if name.endswith(f"{table}.csv")]
    assert "window-A_engine_series.csv" in found


def test_figures_are_those_of_the_compare_page(store):
    contents = loaded(store)
    assert zipped(contents)["figures.csv"] == compare_table.csv_bytes(contents.sides)


def test_the_dictionary_tells_every_column_of_every_file_and_no_other(store):
    found = zipped(loaded(store, raw=True))
    told: dict[str, list[str]] = {}
    for row in rows(found["dictionary.csv"]):
        assert row["comment"], row
        told.setdefault(row["table_name"], []).append(row["column_name"])
    there = {}
    for name, content in found.items():
        if name.endswith(".csv"):
            table = name.removesuffix(".csv").split("_", 1)[-1] if "-" in name else name.removesuffix(".csv")
            there[table] = ["", *content.decode().split("\n", 1)[0].split(",")]
    assert told == there


def _originals() -> list[bytes]:
    texts = [HOST, USER, SECRET_FOLDER, ADDRESS, OTHER_HOST, "gpu-box-7", "My Models", "größe", "gr\\u00f6\\u00dfe"]
    return [text.encode() for text in texts]


def test_nothing_that_is_hidden_is_left_in_any_byte(store):
    contents = loaded(store, runs=(demo_loadtest.RUN, "20261201T110000Z-0dd0"), scrub=True, raw=True)
    open_contents = replace(contents, scrub=nothing)
    plain = zipped(open_contents, report_html.document(open_contents))
    for original in _originals()[:6]:
        assert any(original in content for content in plain.values()), original  # else it proves nothing
    found = zipped(contents, report_html.document(contents))
    left = [
        (original, name)
        for original in _originals()
        for name, content in found.items()
        if original in content or original in name.encode()
    ]
    # One run is called after its user, outside of any folder: what a person typed stays.
    assert left == [
        (USER.encode(), "run-2_loadtest_run.csv"),
        (USER.encode(), "report.html"),
        (USER.encode(), "README.txt"),
    ]


def test_what_is_measured_stays_when_names_are_hidden(store):
    contents = loaded(store, scrub=True, raw=True)
    found, plain = zipped(contents), zipped(replace(contents, scrub=nothing))
    assert set(found) == set(plain)
    for name in ("window-A_engine_series.csv", "window-A_latency_bucket.csv", "run-1_loadtest_request.csv"):
        hidden, stored = rows(found[name]), rows(plain[name])
        assert [row | {"host": ""} for row in hidden] == [row | {"host": ""} for row in stored]
    assert {row["host"] for row in rows(found["window-B_host_series.csv"])} == {"host-1"}
    (event,) = [row for row in rows(found["window-B_event.csv"]) if row["kind"] == "configured"]
    assert re.match(
        r"folder-\d+/Qwen3-8B-Q4_K_M\.gguf was loaded; see folder-\d+/today\.log and http://host-\d:8080/v1/models",
        event["text"],
    )
    assert json.loads(event["details"])["log"].endswith("/x.log")


def test_names_of_files_are_made_of_nothing_from_outside(store):
    contents = loaded(store, windows=(), runs=("20261201T110000Z-0dd0",))
    found = zipped(contents)
    assert all(re.fullmatch(r"[A-Za-z0-9-]+(_[a-z_]+)?\.(csv|html|txt)", name) for name in found)
    assert ODD_LABEL in [row["label"] for row in rows(found["run-1_loadtest_stage.csv"])]
    assert "figures.csv" not in found


def test_a_level_of_a_load_test_brings_the_rows_of_its_run(store):
    text = RunWindow(demo_loadtest.RUN, LABELS[VLLM], "8").text()
    found = zipped(loaded(store, windows=(text, *windows(store, VLLM)), runs=()))
    assert {row["run_id"] for row in rows(found["run-1_loadtest_stage.csv"])} == {demo_loadtest.RUN}
    assert f"Window A: {LABELS[VLLM]}, load test" in found["README.txt"].decode()
    assert "Its rows are those of load test 1." in found["README.txt"].decode()
    assert "window-A_engine_series.csv" not in found
    assert "window-B_engine_series.csv" in found


def test_what_is_gone_since_is_skipped_and_said(store):
    contents = loaded(store)
    gone = replace(contents.sides[1], chosen=replace(contents.sides[1].chosen, engine_id="vllm-9999"))
    contents = replace(contents, sides=(contents.sides[0], gone))
    assert data.command("loadtest_delete", run_id=demo_loadtest.RUN) == {"deleted": True}
    found = zipped(contents)
    assert not [name for name in found if name.startswith(("run-1", "window-B"))]
    said = found["README.txt"].decode()
    assert f"- The load test {demo_loadtest.RUN} was deleted since: it has no rows." in said
    assert "- Window B has no rows: there is no engine 'vllm-9999'; there are" in said


def test_what_the_report_could_not_show_is_said(store):
    contents = loaded(store, windows=(*windows(store, VLLM), "nobody-1~2026-11-30T09:00:00Z~2026-11-30T10:00:00Z"))
    assert "- No engine “nobody-1” was ever seen on this host." in zipped(contents)["README.txt"].decode()


@pytest.mark.parametrize(
    ("raw", "remedy"),
    [(True, "Leave out the samples, or choose shorter windows"), (False, "Choose shorter windows, or")],
)
def test_too_much_is_refused_with_what_to_leave_out(store, raw, remedy):
    contents = loaded(store, windows=windows(store, VLLM), runs=(), raw=raw)
    found = zipped(contents)
    whole = sum(len(content) for name, content in found.items() if name.endswith(".csv") and name != "dictionary.csv")
    assert zipped(contents, most_bytes=whole) == found
    with pytest.raises(BadReportError, match=rf"have more than \d.* KiB, most of it of window A\. {remedy}"):
        zipped(contents, most_bytes=whole - 1)


def test_the_same_report_gives_the_same_bytes(store):
    contents = loaded(store, scrub=True, raw=True)
    first, second = (zip_bytes(contents, "<!doctype html>", contents.scrub) for _ in range(2))
    assert first == second
