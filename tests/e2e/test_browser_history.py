"""
The History page in a real browser: what only a browser does, dragging over a chart above all.

Expected figures are those of `tests.support.demo`: a llama.cpp of 88 tok/s that restarts two minutes into the story.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import NEEDS_CHROMIUM, demo_dashboard
from tests.support.wait import until

pytestmark = NEEDS_CHROMIUM
LLAMA = "Qwen3-8B Q4_K_M on llama.cpp"


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    """The dashboard's address, on a demo of half an hour that goes on."""
    with demo_dashboard(tmp_path_factory.mktemp("browser") / "data", arguments=("--minutes", "30")) as address:
        yield f"{address}/history"


@pytest.fixture
def page(browser) -> Iterator[Page]:
    """A fresh page that must not run into an error."""
    context = browser.new_context(viewport={"width": 1440, "height": 1600})
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    context.close()
    assert errors == []


@pytest.fixture(scope="module")
def span(url, browser) -> tuple[datetime, datetime]:
    """From when to when the demo has data, as the page itself says where it has none."""
    opened = browser.new_page()
    opened.goto(f"{url}?from=2020-01-01&to=2020-01-02")
    told = opened.get_by_text("There is data from")
    expect(told).to_be_visible(timeout=60_000)
    times = re.findall(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", told.inner_text())
    opened.close()
    first, last = (datetime.fromisoformat(f"{text}+00:00") for text in times[-2:])
    return first, last


def chart(page: Page):
    """The stack, as soon as it is drawn."""
    drawn = page.locator("[data-testid=stVegaLiteChart] .marks").first
    expect(drawn).to_be_visible(timeout=60_000)
    return page.locator("[data-testid=stVegaLiteChart]").first


def shown(page: Page) -> dict[str, str]:
    """The query string, asked of the browser: what Playwright knows of it may be older."""
    return {name: values[0] for name, values in parse_qs(page.evaluate("location.search.slice(1)")).items()}


def ends(page: Page) -> tuple[datetime, datetime]:
    query = shown(page)
    return datetime.fromisoformat(query["from"]), datetime.fromisoformat(query["to"])


def drag(page: Page, first: float, last: float) -> None:
    """Drag over the second chart of the stack, between two shares of the width of the whole."""
    box = chart(page).bounding_box()
    height = box["y"] + 160
    page.mouse.move(box["x"] + box["width"] * first, height)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * last, height + 4, steps=6)
    page.mouse.up()


def opened(page: Page, url: str, **query: str) -> None:
    page.goto(f"{url}?{urlencode(query)}")
    chart(page)
    settled(page)


def settled(page: Page) -> None:
    """Wait until the page has drawn itself to its end: a click before may meet what is about to be replaced."""
    expect(page.locator(".st-key-csv-Events button")).to_be_visible(timeout=60_000)
    expect(page.locator("[data-testid=stStatusWidget]")).to_have_count(0, timeout=60_000)
    expect(page.locator("[data-stale=true]")).to_have_count(0, timeout=60_000)


def test_dragging_over_a_chart_zooms_and_refines_and_the_ways_back_work(page, url, span):
    first, last = span
    opened(page, url, **{"from": first.isoformat(), "to": last.isoformat(), "show": "Throughput"})
    before = page.locator(".er-range").inner_text()
    assert "one point = " in before  # half an hour of samples every 2 s is more than 400
    drag(page, 0.5, 0.6)
    until(lambda: ends(page) != (first, last), 60, "the range in the address to change")
    start, end = ends(page)
    whole = last - first
    # A tenth of the stack's width, of which the axes take less than a fifth.
    assert whole * 0.09 <= end - start <= whole * 0.13
    assert first + whole * 0.4 < start < first + whole * 0.6
    expect(page.locator(".er-range")).to_contain_text(f"{start:%H:%M:%S}", timeout=60_000)
    expect(page.locator(".er-range")).to_contain_text("every sample", timeout=60_000)

    settled(page)
    page.locator(".st-key-back button").first.click()
    until(lambda: ends(page) == (first, last), 60, "the range before")
    expect(page.locator(".er-range")).to_have_text(before, timeout=60_000)
    page.go_back()
    until(lambda: ends(page) != (first, last), 60, "the browser's own way back")


def readout(page: Page, share: float, height: float) -> str:
    box = chart(page).bounding_box()
    page.mouse.move(box["x"] + box["width"] * share, box["y"] + height)
    page.mouse.move(box["x"] + box["width"] * share + 2, box["y"] + height + 1)
    tooltip = page.locator("#vg-tooltip-element")
    return tooltip.inner_text() if tooltip.count() and tooltip.is_visible() else ""


def test_pointing_tells_values_states_and_why_there_is_nothing(page, url, span):
    first, _ = span
    query = {"from": (first - timedelta(minutes=10)).isoformat(), "to": (first + timedelta(minutes=10)).isoformat()}
    opened(page, url, **query, show="Throughput", engines="llama.cpp-8080")
    value = until(lambda: readout(page, 0.9, 130), 30, "the crosshair's readout")
    assert "88 tok/s" in value
    assert LLAMA in value
    state = until(lambda: readout(page, 0.9, 28), 30, "the state's readout")
    assert "ready" in state
    gap = until(lambda: readout(page, 0.3, 130), 30, "the reason of the gap")
    assert "Nothing was recorded" in gap


def test_a_preset_replaces_a_fixed_range(page, url, span):
    first, last = span
    opened(page, url, **{"from": first.isoformat(), "to": last.isoformat(), "show": "Host"})
    page.locator(".st-key-preset").get_by_text("6h", exact=True).click()
    until(lambda: shown(page).get("range") == "6h", 60, "the preset in the address")
    assert "from" not in shown(page)
    expect(page.locator(".er-range")).to_contain_text("(6 h)", timeout=60_000)


def test_a_link_names_what_is_not_there(page, url, span):
    first, last = span
    opened(page, url, **{"from": first.isoformat(), "to": last.isoformat(), "show": "Host", "engines": "vllm-9999"})
    expect(page.get_by_text("Not in this store, so left out: vllm-9999")).to_be_visible(timeout=60_000)


def test_the_rows_of_a_chart_leave_as_they_are_drawn(page, url, span):
    first, last = span
    opened(page, url, **{"from": first.isoformat(), "to": last.isoformat(), "engines": "llama.cpp-8080"})
    with page.expect_download(timeout=60_000) as download:
        page.locator(".st-key-csv-Generation button").click()
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    rates = [float(row["generation_tokens_per_second"]) for row in rows if row["generation_tokens_per_second"]]
    assert rates == pytest.approx([88.0] * len(rates))
    assert len(rows) <= 400
    assert {row["engine_id"] for row in rows} == {"llama.cpp-8080"}


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_screen(page, url, width):
    page.set_viewport_size({"width": width, "height": 900})
    opened(page, url, range="1h")
    overflow = (
        "() => { const m = document.querySelector('[data-testid=stMain]'); return m.scrollWidth - m.clientWidth }"
    )
    until(lambda: page.evaluate(overflow) <= 1, 30, "the page to fit")
