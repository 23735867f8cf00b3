"""
The Live page in a real browser: the real server, the real read API, figures that move.

Expected text is what `tests.support.demo` writes: a vLLM of about 600 tok/s and a llama.cpp of 88.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import NEEDS_CHROMIUM, demo_dashboard
from tests.support.wait import until

pytestmark = NEEDS_CHROMIUM
VLLM, LLAMA = "Qwen3-8B on vLLM", "Qwen3-8B Q4_K_M on llama.cpp"


@pytest.fixture(scope="module")
def url(tmp_path_factory) -> Iterator[str]:
    """The dashboard's address, on a demo that goes on."""
    with demo_dashboard(tmp_path_factory.mktemp("browser") / "data") as address:
        yield address


@dataclass
class Watched:
    """A browser page and what it did that it should not."""

    page: Page
    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


@pytest.fixture
def watched(browser) -> Iterator[Watched]:
    """A fresh page that notes errors in the console and requests that leave this host."""
    context = browser.new_context(viewport={"width": 1440, "height": 1400})
    seen = Watched(context.new_page())
    seen.page.on("console", lambda message: seen.errors.append(message.text) if message.type == "error" else None)
    seen.page.on("pageerror", lambda error: seen.errors.append(str(error)))
    seen.page.on("request", lambda request: seen.outside.append(request.url) if _leaves(request.url) else None)
    yield seen
    context.close()


def _leaves(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in ("http", "https", "ws", "wss") and parts.hostname not in ("127.0.0.1", "localhost")


def card(page: Page, title: str):
    return page.locator(f'section.er-card[aria-label="{title}"]')


def generation(page: Page, title: str) -> float:
    text = card(page, title).locator(".er-big").first.inner_text()
    return float(re.match(r"[\d,.]+", text)[0].replace(",", ""))


def test_both_engines_show_and_their_figures_move(watched, url):
    page = watched.page
    page.goto(url)
    expect(card(page, VLLM)).to_be_visible(timeout=30_000)
    expect(card(page, LLAMA)).to_contain_text("not offered by llama.cpp")
    assert 540 <= generation(page, VLLM) <= 660  # 600 tok/s and a wave of 60
    assert generation(page, LLAMA) == pytest.approx(88.0, abs=0.5)
    first = page.locator(".er-updated").inner_text(), generation(page, VLLM)
    until(
        lambda: page.locator(".er-updated").inner_text() != first[0] and generation(page, VLLM) != first[1],
        20,
        "the figures to change",
    )
    assert watched.errors == []
    assert watched.outside == []


def test_the_crosshair_reads_out_all_engines(watched, url):
    page = watched.page
    page.goto(f"{url}/?refresh=off")
    chart = page.locator("[data-testid=stVegaLiteChart] svg").first
    expect(chart).to_be_visible(timeout=30_000)
    box = chart.bounding_box()

    def readout() -> str:
        page.mouse.move(box["x"] + box["width"] * 0.70, box["y"] + 60)
        page.mouse.move(box["x"] + box["width"] * 0.71, box["y"] + 62)
        tooltip = page.locator("#vg-tooltip-element")
        return tooltip.inner_text() if tooltip.count() else ""

    text = until(readout, 20, "the crosshair's readout")
    assert VLLM in text
    assert LLAMA in text
    assert "88 tok/s" in text
    assert "UTC" in text


def test_a_link_shows_the_same_view_to_somebody_else(watched, url, browser):
    page = watched.page
    page.goto(f"{url}/?engines=llama.cpp-8080&window=15m&refresh=off")
    expect(card(page, LLAMA)).to_be_visible(timeout=30_000)
    expect(card(page, VLLM)).to_have_count(0)
    assert parse_qs(urlsplit(page.url).query) == {
        "engines": ["llama.cpp-8080"],
        "window": ["15m"],
        "refresh": ["off"],
    }
    page.get_by_text("Copy link").click()
    code = page.locator("[data-testid=stCode]")
    expect(code).to_be_visible(timeout=20_000)
    link = code.inner_text().strip().replace("\n", "")
    query = parse_qs(urlsplit(link).query)
    assert query["engines"] == ["llama.cpp-8080"]

    other = browser.new_context().new_page()
    other.goto(link)
    expect(card(other, LLAMA)).to_be_visible(timeout=30_000)
    expect(card(other, VLLM)).to_have_count(0)
    expect(other.locator(".er-updated")).to_contain_text("frozen")
    expect(other.locator(".er-updated")).to_contain_text(query["to"][0][11:19])
    other.context.close()
    assert watched.errors == []
    assert watched.outside == []


def test_the_data_of_a_chart_leaves_as_csv(watched, url):
    page = watched.page
    page.goto(f"{url}/?engines=llama.cpp-8080&refresh=off")
    expect(card(page, LLAMA)).to_be_visible(timeout=30_000)
    with page.expect_download(timeout=30_000) as download:
        page.locator(".st-key-csv-Generation button").click()
    assert download.value.suggested_filename == "engine-room_generation.csv"
    with Path(download.value.path()).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["engine_id"] for row in rows if row["engine_id"]} == {"llama.cpp-8080"}
    rates = [float(row["generation_tokens_per_second"]) for row in rows if row["generation_tokens_per_second"]]
    assert len(rates) > 50
    assert rates == pytest.approx([88.0] * len(rates))  # the demo's llama.cpp never does anything else
    assert all(row["time_utc"].endswith("Z") for row in rows)


@pytest.mark.parametrize("width", [390, 1440])
def test_nothing_is_wider_than_the_screen(watched, url, width):
    page = watched.page
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{url}/?refresh=off")
    expect(card(page, VLLM)).to_be_visible(timeout=30_000)
    expect(page.locator("[data-testid=stVegaLiteChart] svg").first).to_be_visible(timeout=30_000)
    overflow = (
        "() => { const m = document.querySelector('[data-testid=stMain]'); return m.scrollWidth - m.clientWidth }"
    )
    until(lambda: page.evaluate(overflow) <= 1, 20, "the page to fit")


def test_the_sources_page_opens_by_its_own_address(watched, url):
    """The router runs on the first deep link too: the page has the navigation and its title."""
    page = watched.page
    page.goto(f"{url}/sources")
    expect(page.get_by_role("heading", name="Sources")).to_be_visible(timeout=30_000)
    expect(page.get_by_role("link", name="Live")).to_be_visible()
    assert watched.outside == []
