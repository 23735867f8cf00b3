"""
The Memory page in a real browser: controls write the link, the link restores the page, the plan leaves as CSV.

Qwen3-8B's cache takes 147,456 bytes a token (36 layers x 8 KV heads x 256 x 2 bytes; its config.json).
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import NEEDS_CHROMIUM, dashboard
from tests.support.wait import until

pytestmark = NEEDS_CHROMIUM


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    """The dashboard without any collector: the calculator needs none."""
    with dashboard(tmp_path_factory.mktemp("memory") / "data") as address:
        yield address


@pytest.fixture(scope="module")
def page(browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 1000}, accept_downloads=True)
    yield context.new_page()
    context.close()


def query(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_a_changed_control_is_in_the_link_and_the_link_restores_it(page: Page, url: str) -> None:
    page.goto(f"{url}/memory?context=8k&users=4")
    expect(page.get_by_text("llama-server -m Qwen3-8B-Q4_K_M.gguf -c 32768 -np 4 -ngl all")).to_be_visible(
        timeout=30000
    )
    flags = page.get_by_label("Further flags").nth(1)
    flags.fill("-ub 1024")
    flags.press("Enter")
    expect(page.get_by_text("-ub 1024 -ngl all").or_(page.get_by_text("-ngl all -ub 1024"))).to_be_visible()
    until(lambda: query(page).get("llamacpp_flags") == ["-ub 1024"], 10, "the flags to be in the link")
    assert query(page)["users"] == ["4"]
    link = page.url
    page.goto("about:blank")
    page.goto(link)
    expect(page.get_by_text("-ub 1024 -ngl all").or_(page.get_by_text("-ngl all -ub 1024"))).to_be_visible(
        timeout=30000
    )


def test_the_plan_that_is_downloaded_is_the_one_that_is_shown(page: Page, url: str) -> None:
    page.goto(f"{url}/memory?context=8k&users=4&device=h100")
    expect(page.get_by_text("holds 32,768 tokens")).to_be_visible(timeout=30000)
    with page.expect_download() as download:
        page.get_by_role("button", name="Plan as CSV").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text().splitlines()))
    (cache,) = [
        row for row in rows if (row["engine"], row["part"], row["place"]) == ("llama.cpp", "kv", "H100 80 GB 0")
    ]
    assert int(cache["low_bytes"]) == int(cache["high_bytes"]) == 32768 * 147_456
    assert {row["engine"] for row in rows} == {"vllm", "llama.cpp"}
