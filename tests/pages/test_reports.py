"""
The Reports page in its states, and the HTML that it makes.

Expected figures are those of `tests.support.demo` (vLLM generates 600 tok/s plus a wave, llama.cpp 88 tok/s) and of
`tests.support.demo_loadtest` (32 users over 4 slots of llama.cpp, a crossover between 2 and 4 users).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

import pytest
import streamlit as st

from store.client import StoreClient
from tests.pages.conftest import open_page, words
from tests.support import demo_loadtest
from tests.support.demo import LLAMA, VLLM
from tests.support.demo_server import DemoStore
from views import report_contents, report_html, reports
from views.compare_windows import EngineWindow
from views.report_document import BadReportError, ReportDocument

PAGE = "reports.py"
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
VOID = {"meta", "br", "rect", "path", "line", "circle", "use"}


@pytest.fixture
def filled(serve) -> Callable[..., DemoStore]:
    """A served demo with the past load tests in it."""

    def start() -> DemoStore:
        store = serve("two", end=NOW)
        store.writer.put(demo_loadtest.past(NOW))
        store.writer.flush()
        return store

    return start


def windows(store: DemoStore) -> tuple[str, ...]:
    first, last = (store.demo.start + timedelta(seconds=second) for second in (130, 310))
    return tuple(EngineWindow(engine, first, last).text() for engine in (VLLM, LLAMA))


def written(document: ReportDocument) -> str:
    return report_html.document(report_contents.load(document, NOW))


class Reader(HTMLParser):
    """Text, tags and addresses of a document; fails on tags that are closed in another order than they were opened."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []
        self.tags: set[str] = set()
        self.addresses: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    assert reader.open == []
    return reader


def test_nothing_chosen_invites_to_choose(filled):
    filled()
    app = open_page(PAGE)
    assert "Choose what the report shows" in app.info[0].value
    assert "No report has been saved yet." in words(app)
    assert not app.get("iframe")


def test_windows_and_load_tests_of_the_link_are_previewed(filled):
    store = filled()
    app = open_page(PAGE, w=list(windows(store)), test=[demo_loadtest.RUN], title="For the board")
    assert app.multiselect(key="report_runs").value == [demo_loadtest.RUN]
    (preview,) = app.get("iframe")
    assert "For the board" in str(preview.proto)
    assert "overtakes" in str(preview.proto)
    assert [button.proto.label.split(" (")[0] for button in app.get("download_button")] == [
        "HTML", "ZIP: HTML and CSV", "Figures as one CSV",
    ]  # fmt: skip


def test_the_file_has_every_part_and_needs_nothing_else(filled):
    store = filled()
    html = written(ReportDocument("Board", "Why we ask.", windows(store), (demo_loadtest.RUN,)))
    found = read(html)
    text = re.sub(r"\s+", " ", " ".join(found.text))
    for part in (
        "Findings",
        "What was looked at",
        "What differs",
        "Figures",
        "Over time",
        "Where the figures are from",
    ):
        assert part in text
    assert "Why we ask." in text
    # Unfair differences stand above the figures: BF16 against Q4_K_M.
    assert text.index("Weights: BF16 in A; Q4_K_M in B") < text.index("Throughput")
    # 88 tok/s of llama.cpp in the demo, with its unit.
    assert "88.0 tok/s" in text
    # The demo's curves cross between 2 and 4 users.
    assert "overtakes" in text
    assert "between 2 and 4 users" in text
    assert "svg" in found.tags
    assert "script" not in found.tags
    assert found.addresses == []
    assert not re.search(r"url\((?!data:)", html)
    assert not re.search(r"https?://(?!www\.w3\.org/)", html)  # names of XML vocabularies, which nobody fetches


def test_an_untrusted_run_concludes_nothing(filled):
    filled()
    untrusted = next(row.run_id for row in demo_loadtest.past(NOW) if getattr(row, "trusted", None) is False)
    text = " ".join(read(written(ReportDocument("Board", runs=(untrusted,)))).text)
    assert "failed its own checks: nothing is concluded from it" in text
    assert "overtakes" not in text


def test_what_is_gone_is_named_and_the_rest_is_shown(filled):
    store = filled()
    never_seen = "vllm-9~2026-11-30T10:00:00Z~2026-11-30T11:00:00Z"
    document = ReportDocument(
        "Board", windows=(windows(store)[0], never_seen), runs=("20200101T000000Z-dead",)
    )  # fmt: skip
    text = " ".join(read(written(document)).text)
    assert "No engine “vllm-9” was ever seen on this host." in text
    assert "The load test 20200101T000000Z-dead was deleted since." in text
    assert "Qwen3-8B on vLLM" in text


def test_a_report_of_which_nothing_is_left_says_so(filled):
    filled()
    with pytest.raises(BadReportError, match="Nothing of this report can be shown"):
        report_contents.load(ReportDocument("Board", runs=("20200101T000000Z-dead",)), NOW)
    app = open_page(PAGE, w=["vllm-9~2026-11-30T10:00:00Z~2026-11-30T11:00:00Z"])
    assert "Nothing of this report can be shown" in "\n".join(warning.value for warning in app.warning)
    assert not app.get("iframe")


def test_text_from_outside_is_text(filled):
    store = filled()
    evil = "<script>alert(1)</script>"
    html = written(ReportDocument(evil, evil, windows(store)))
    assert "script" not in read(html).tags
    assert evil in " ".join(read(html).text)


def test_nothing_of_host_and_folders_is_left_where_they_are_to_be_hidden(filled):
    store = filled()
    host = store.demo.facts()[0].host
    shown = written(ReportDocument(f"On {host}", f"{host} under /home/kim/models/a.gguf", windows(store)))
    assert host in shown
    hidden = written(
        ReportDocument(f"On {host}", "", windows(store), (demo_loadtest.RUN,), scrub=True)
    )  # fmt: skip
    assert host not in hidden
    assert "On host-1" in hidden


# ---- saved reports -----------------------------------------------------------------------------


def test_what_was_typed_stays_and_the_form_says_so(filled):
    store = filled()
    open_form = open_page(PAGE, w=list(windows(store)), test=[demo_loadtest.RUN])
    assert not any("as they were typed" in caption.value for caption in open_form.caption)
    hiding = open_page(PAGE, w=list(windows(store)), test=[demo_loadtest.RUN], scrub="true")
    assert any("names of load tests" in caption.value for caption in hiding.caption)
    told = read(written(ReportDocument("For Ben", "", (), (demo_loadtest.RUN,), scrub=True))).text
    assert "For Ben" in told
    assert any("Evening sweep" in text for text in told)  # the name of the run


def saved(store: DemoStore, name: str = "For the board") -> str:
    document = ReportDocument(name, "A note.", windows(store), (demo_loadtest.RUN,)).to_json()
    return StoreClient(store.settings).command("report_save", {"name": name, "document": document})["report_id"]


def test_a_report_is_saved_and_found_again_by_its_address(filled):
    store = filled()
    app = open_page(PAGE, w=list(windows(store)), title="For the board")
    app.button(key="save").click().run()
    assert not app.exception
    (row,) = StoreClient(store.settings).query("reports").to_pylist()
    assert row["name"] == "For the board"
    assert json.loads(row["document"])["windows"] == list(windows(store))
    assert app.query_params["report"] == row["report_id"]
    again = open_page(PAGE, report=row["report_id"])
    assert "For the board" in words(again)
    assert again.get("iframe")


def test_a_saved_report_can_be_the_beginning_of_another(filled):
    store = filled()
    app = open_page(PAGE, report=saved(store))
    app.button(key="edit").click().run()
    assert not app.exception
    assert app.text_input(key="title").value == "For the board"
    assert app.text_area(key="note").value == "A note."
    assert app.multiselect(key="report_runs").value == [demo_loadtest.RUN]
    assert app.query_params["w"] == list(windows(store))
    assert "report" not in app.query_params


def test_of_two_who_delete_a_report_the_second_is_told(filled):
    store = filled()
    report_id = saved(store)
    first, second = open_page(PAGE, report=report_id), open_page(PAGE, report=report_id)
    for app in (first, second):
        app.button(key="delete").click().run()
    first.button(key="confirm-delete").click().run()
    assert "For the board is deleted." in first.success[0].value
    second.button(key="confirm-delete").click().run()
    assert "was gone already" in second.success[0].value
    assert StoreClient(store.settings).query("reports").num_rows == 0
    assert "There is no such report here" in open_page(PAGE, report=report_id).warning[0].value


def test_a_click_from_elsewhere_saves_and_deletes_nothing(filled, monkeypatch):
    store = filled()
    report_id = saved(store)
    app, other = open_page(PAGE, w=list(windows(store))), open_page(PAGE, report=report_id)
    other.button(key="delete").click().run()
    monkeypatch.setattr(st.context.__class__, "ip_address", property(lambda _: "192.0.2.7"))
    app.button(key="save").click().run()
    other.button(key="confirm-delete").click().run()
    assert "Not deleted" in other.error[0].value
    assert [row["report_id"] for row in StoreClient(store.settings).query("reports").to_pylist()] == [report_id]
    assert open_page(PAGE, report=report_id).button(key="delete").disabled


def test_a_saved_report_that_cannot_be_read_says_so(filled):
    store = filled()
    client = StoreClient(store.settings)
    report_id = client.command("report_save", {"name": "odd", "document": {"windows": "all of them"}})["report_id"]
    app = open_page(PAGE, report=report_id)
    assert "can't be read" in app.error[0].value.replace("\\", "")
    assert app.button(key="delete")


def test_no_collector_says_how_to_start_one(use_folder, tmp_path):
    use_folder(tmp_path / "nothing")
    assert "No collector answers" in open_page(PAGE).warning[0].value


def test_too_much_for_one_report_is_refused(filled):
    store = filled()
    with pytest.raises(BadReportError, match="at most 6"):
        reports.checked(ReportDocument("Board", windows=windows(store) * 4))
