"""
A report in a real browser: made on the page, downloaded, saved, and opened without any network.

The demo is that of `tests.support.demo_loadtest`: vLLM and llama.cpp, and a sweep whose curves cross between 2 and 4
users.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.support import demo_loadtest
from tests.support.browser import NEEDS_CHROMIUM, demo_dashboard

pytestmark = [*NEEDS_CHROMIUM, pytest.mark.timeout(300)]
PATIENCE = 90_000  # milliseconds: drawings are made by a renderer that starts with the first report


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    """The dashboard's address, on a demo with past load tests."""
    with demo_dashboard(tmp_path_factory.mktemp("browser") / "data", module="demo_loadtest") as address:
        yield f"{address}/reports"


@pytest.fixture
def page(browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 1200}, accept_downloads=True)
    yield context.new_page()
    context.close()


def downloaded(page: Page, button: str, folder: Path) -> Path:
    with page.expect_download(timeout=PATIENCE) as waiting:
        page.get_by_role("button", name=re.compile(f"^{re.escape(button)}")).click()
    target = folder / waiting.value.suggested_filename
    waiting.value.save_as(target)
    return target


def test_a_report_is_made_downloaded_and_read_without_a_network(url, page, browser, tmp_path):
    page.goto(f"{url}?test={demo_loadtest.RUN}&title=For+the+board")
    preview = page.frame_locator("iframe").first
    expect(preview.get_by_role("heading", name="For the board")).to_be_visible(timeout=PATIENCE)
    file = downloaded(page, "HTML", tmp_path)
    context = browser.new_context(offline=True, viewport={"width": 390, "height": 800})
    alone = context.new_page()
    asked: list[str] = []
    troubles: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    alone.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
    alone.goto(file.as_uri())
    expect(alone.get_by_role("heading", name="Findings")).to_be_visible()
    expect(alone.get_by_text("between 2 and 4 users")).to_be_visible()
    assert alone.locator("figure svg").count() >= 4  # throughput, Pareto, TTFT, TPOT
    assert all(box and box["height"] > 100 for box in (svg.bounding_box() for svg in alone.locator("figure svg").all()))
    assert alone.evaluate("document.documentElement.scrollWidth") <= 390
    assert [address for address in asked if not address.startswith(("file:", "data:"))] == []
    assert troubles == []
    context.close()


def test_the_zip_opens(url, page, tmp_path):
    page.goto(f"{url}?test={demo_loadtest.RUN}")
    expect(page.frame_locator("iframe").first.get_by_role("heading", name="Findings")).to_be_visible(timeout=PATIENCE)
    with zipfile.ZipFile(downloaded(page, "ZIP", tmp_path)) as found:
        assert found.testzip() is None
        assert {"report.html", "README.txt", "dictionary.csv"} <= set(found.namelist())


def test_a_saved_report_is_in_the_list_and_at_its_address(url, page, browser):
    page.goto(f"{url}?test={demo_loadtest.RUN}&title=Kept")
    page.get_by_role("button", name="Save").click(timeout=PATIENCE)
    expect(page.get_by_role("button", name="Copy link")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Copy link").click()
    link = page.get_by_text(re.compile(r"^http://127\.0\.0\.1:\d+/reports\?report=")).inner_text()
    other = browser.new_page()
    other.goto(link)
    expect(other.get_by_role("heading", name="Kept").first).to_be_visible(timeout=PATIENCE)
    other.goto(url)
    expect(other.get_by_role("button", name="Kept")).to_be_visible(timeout=PATIENCE)
    other.close()
