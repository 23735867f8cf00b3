"""Names that are hidden in a report. Which texts hold a name of a place is said beside each case."""

import json
from html import escape

import pytest
from hypothesis import given
from hypothesis import strategies as st

from views.report_csv import ANY_TEXT, hidden
from views.report_scrub import nothing, scrubber

MODEL = "/home/kim/models/Qwen3-8B.gguf"
IN_PATH = {"model_path": MODEL}


def test_the_example_of_the_module():
    scrub = scrubber(["gpu-box-7"], [IN_PATH])
    assert scrub("gpu-box-7") == "host-1"
    assert scrub(MODEL) == "folder-1/Qwen3-8B.gguf"
    assert scrub("/home/kim") == "home-1"


@pytest.mark.parametrize(
    ("row", "text", "becomes"),
    [
        ({"url": "http://gpu-9:8080"}, "gpu-9 went away", "host-1 went away"),
        ({"url": "http://GPU-9:8080"}, "GPU-9 and gpu-9", "host-1 and host-1"),  # names of hosts know no case
        ({"url": "http://kim:pw@gpu-9/v1"}, "http://gpu-9/v1", "http://host-1/v1"),
        ({"arguments": '["serve", "--host", "gpu-9.lan"]'}, "at gpu-9.lan:80", "at host-1:80"),
        ({"arguments": '["serve", "--host=gpu-9.lan"]'}, "gpu-9", "host-1"),  # its first part alone
        ({"arguments": '["server", "--rpc", "gpu-8:50052,gpu-9:50052"]'}, "gpu-8, gpu-9", "host-1, host-2"),
        ({"client": '{"host": "laptop"}'}, "laptop", "host-1"),
        ({"detail": "10.1.2.3 refused"}, "http://10.1.2.3:80/, 10.1.2.3.", "http://host-1:80/, host-1."),
        ({"url": "http://[fd00::12]:80"}, "[fd00::12]:80 fd00::12", "[host-1]:80 host-1"),
        ({"path": "/srv/My Models/a b.gguf"}, "/srv/My Models/a b.gguf", "folder-1/a b.gguf"),
        ({"arguments": '["-m", "/srv/x/a.gguf"]'}, "-m /srv/x/a.gguf", "-m folder-1/a.gguf"),
        ({"arguments": '["--model=/srv/x/a.gguf"]'}, "--model=/srv/x/a.gguf", "--model=folder-1/a.gguf"),
        ({"arguments": '["-v", "/srv/x/a:/models/b/c"]'}, "/srv/x/a:/models/b/c", "folder-1/a:folder-2/c"),
        ({"path": "/srv/x/a.gguf"}, "all of /srv/x. It", "all of folder-1. It"),
        ({"path": "~/models/a.gguf"}, "~/models/a.gguf", "folder-1/a.gguf"),
        ({"path": "~kim/a.gguf"}, "~kim/a.gguf", "home-1/a.gguf"),
        ({"path": "/Users/kim"}, "/Users/kim", "home-1"),
        (IN_PATH, "/home/kim/other/x.gguf", "home-1/other/x.gguf"),
        ({"path": "C:\\Users\\kim\\a.gguf"}, "C:\\Users\\kim\\a.gguf", "folder-1/a.gguf"),
        ({"spec": json.dumps({"input": {"path": "/srv/größe/a.txt"}})}, "/srv/größe/a.txt", "folder-1/a.txt"),
    ],
)
def test_names_are_found_where_rows_tell_them(row, text, becomes):
    assert scrubber([], [row])(text) == becomes


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000/v1/models and [::1]:8000, 0.0.0.0, localhost",
        "GET /v1/chat/completions answered 503; /proc/12/fdinfo, /sys/class/drm",
        "412 tok/s/user, and/or, a / b / c, 2026/12/01, 10:20:30",
        "Qwen/Qwen3-8B on vLLM 0.33.0, driver 580.95.05, models/a.gguf",
        "~100 tok/s, ~5/6 of it, / 5 requests",
        "/metrics, /models",  # one part: nothing before it to hide
    ],
)
def test_what_names_no_place_stays(text):
    assert scrubber(["gpu-box-7"], [{"text": text}])(text) == text


def test_a_name_is_no_part_of_a_longer_one():
    scrub = scrubber(["gpu-box-7", "lab"], [{"path": "/srv/x/a", "url": "http://10.0.0.1:80"}])
    for text in (
        "gpu-box-78",
        "my7gpu-box-7x",
        "label",
        "lab-notes",
        "/mnt/srv/x/a",
        "/srv/xy",
        "110.0.0.1",
        "10.0.0.12",
    ):
        assert scrub(text) == text
    # One that is no common word is hidden beside _ and -, too.
    assert scrub("sweep-gpu-box-7_evening") == "sweep-host-1_evening"


def test_names_are_hidden_however_they_are_written():
    folder = "/srv/größe & co/"
    scrub = scrubber([], [{"path": f"{folder}a.gguf"}])
    for written in (folder, escape(folder), json.dumps(folder)[1:-1], json.dumps(folder, ensure_ascii=False)[1:-1]):
        assert scrub(f"in {written}a.gguf") == "in folder-1/a.gguf"


def test_placeholders_are_numbered_by_first_appearance_and_stay():
    scrub = scrubber(["bree", "abel"], [{"url": "http://cleo:80"}, {"path": "/srv/two/x"}, {"path": "/srv/one/x"}])
    assert scrub("abel bree cleo") == "host-2 host-1 host-3"
    scrub.learn("http://dora:80 /srv/three/x")
    assert scrub("abel bree cleo dora") == "host-2 host-1 host-3 host-4"
    assert scrub("/srv/one/x /srv/two/x /srv/three/x") == "folder-2/x folder-1/x folder-3/x"


def test_a_host_that_is_called_like_a_placeholder_is_told_apart():
    scrub = scrubber(["lab", "host-1"], [])
    assert scrub("lab host-1") == "host-2 host-3"


@given(st.lists(st.sampled_from(["gpu", "host-1", "node-3.lan", "10.0.0.7", "h1", "fd00::7"]), unique=True))
def test_what_was_hidden_once_stays_when_it_is_hidden_again(hosts):
    scrub = scrubber(hosts, [IN_PATH])
    text = " ".join([*hosts, MODEL, "/home/kim", "http://node-3.lan:80/x"])
    assert scrub(scrub(text)) == scrub(text)


def test_a_host_that_is_called_like_a_common_word_is_hidden_where_it_can_be_nothing_else():
    scrub = scrubber(["data"], [])
    assert scrub("data") == "host-1"
    assert scrub("http://data:8000/data") == "http://host-1:8000/data"
    assert scrub('{"host": "data", "data": 1}') == '{"host": "host-1", "data": 1}'
    assert scrub('the data of {"data": {"name": "data"}}') == 'the data of {"data": {"name": "data"}}'


def test_tags_of_a_page_stay_when_a_host_is_called_like_one():
    page = '<!doctype html><style>h1 {color: red}</style><h1 class="h1">h1</h1>'
    assert scrubber(["h1"], [])(page) == page.replace(">h1<", ">host-1<")


def test_without_a_scrub_the_text_is_the_same():
    assert nothing(MODEL) == MODEL
    assert scrubber([], [])(MODEL) == MODEL


STORED = """ts,host,engine_id,count,text
"2026-12-01T10:00:00.000000Z","box","e",7,"said ""hi"" in\n/srv/x/a, {""p"": ""/srv/y/b""}"
"2026-12-01T10:00:01.000000Z","box","e",,
"2026-12-01T10:00:02.000000Z","other","e",0.5,"other"
"""


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_cells_of_a_file_are_hidden_and_the_rest_is_as_it_was(size):
    content = STORED.encode()
    chunks = [content[place : place + size] for place in range(0, len(content), size)]
    assert b"".join(hidden(chunks, nothing)) == content
    told = b"".join(hidden(chunks, scrubber(["box"], [])))
    expected = STORED.replace('"box"', '"host-1"').replace('"other"', '"host-2"')
    assert told.decode() == expected.replace("/srv/x/", "folder-1/").replace("/srv/y/", "folder-2/")


def test_numbers_and_headers_stay_when_a_host_is_called_like_one():
    content = b"7,text,value\n7,seven is 7,7.5\n"
    assert (
        b"".join(hidden([content], scrubber(["7", "value"], []), ANY_TEXT)) == b"7,text,value\n7,seven is host-1,7.5\n"
    )
