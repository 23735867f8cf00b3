"""
The Compare page in a real browser: by link and by hand, and that its link and its CSV say the same.

Expected figures are those of `tests.support.demo`: a vLLM of 600 tok/s and a wave of 60 in 90 s, and a llama.cpp of
88 that restarts with 4 slots after 132 s of the story.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlencode

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.support.browser import NEEDS_CHROMIUM, demo_dashboard
from tests.support.demo import LABELS, LLAMA, VLLM
from tests.support.wait import until

pytestmark = [*NEEDS_CHROMIUM, pytest.mark.timeout(240)]
STORY = timedelta(minutes=20)
PATIENCE = 60_000  # milliseconds


@pytest.fixture(scope="module")
def begun() -> datetime:
    """The story begins then, or as much later as the demo takes to come up: some seconds."""
    return datetime.now(UTC).replace(microsecond=0) - STORY


@pytest.fixture(scope="module")
def url(tmp_path_factory, begun) -> Iterator[str]:
    """The dashboard's address, on a demo of twenty minutes that goes on."""
    folder = tmp_path_factory.mktemp("browser") / "data"
    with demo_dashboard(folder, arguments=("--minutes", f"{STORY.total_seconds() / 60:g}")) as address:
        yield f"{address}/compare"


@pytest.fixture
def page(browser) -> Iterator[Page]:
    """A fresh page that must not run into an error. What Streamlit itself looks for beside a deep link is not there."""
    context = browser.new_context(viewport={"width": 1440, "height": 1600}, accept_downloads=True)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on(
        "console",
        lambda message: (
            errors.append(f"{message.text} {message.location['url']}")
            if message.type == "error" and "/_stcore/" not in message.location["url"]
            else None
        ),
    )
    yield opened
    context.close()
    assert errors == []


@pytest.fixture
def windows(begun) -> list[str]:
    """Ten waves of vLLM, and a quarter of an hour of llama.cpp in which it restarts."""
    first = [(VLLM, begun + timedelta(seconds=240)), (LLAMA, begun + timedelta(seconds=60))]
    return [f"{engine}~{_iso(start)}~{_iso(start + timedelta(seconds=900))}" for engine, start in first]


def _iso(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def opened(page: Page, url: str, windows: Sequence[str]) -> None:
    page.goto(f"{url}?{urlencode([('w', text) for text in windows])}")
    expect(page.get_by_role("heading", name="Figures")).to_be_visible(timeout=PATIENCE)


def figure(page: Page, name: str) -> Locator:
    """The cells of a row of the table of figures, a window each."""
    return page.locator(f"xpath=//tr[normalize-space(th) = '{name}']/td")


def shown(page: Page) -> list[str]:
    """The windows in the address, asked of the browser: what Playwright knows of it may be older."""
    return parse_qs(page.evaluate("location.search.slice(1)")).get("w", [])


def top(place: Locator) -> float:
    box = place.bounding_box()
    assert box
    return box["y"]


def test_windows_of_a_link_are_compared_and_what_differs_stands_above_the_figures(url, page, windows):
    opened(page, url, windows)
    expect(figure(page, "Generation")).to_have_count(2)
    expect(figure(page, "Generation").nth(0)).to_have_text("600 tok/s")
    # 88 - 600 = -512, 88 / 600 = 0.147
    told = re.compile(
        "^88.0 tok/s\N{MINUS SIGN}512 tok/s · 0.147\N{MULTIPLICATION SIGN} \\(0.1\\d+ to 0.1\\d+\\) worse$"
    )
    expect(figure(page, "Generation").nth(1)).to_have_text(told)
    expect(figure(page, "TTFT p95").nth(1)).to_contain_text("not offered by llama.cpp")
    unfair = page.get_by_text("Weights: BF16 in A; Q4_K_M in B.")
    assert top(unfair) < top(page.get_by_role("heading", name="Figures")) < top(figure(page, "Generation").first)


def test_a_restart_in_a_window_is_marked_and_told_on_hover(url, page, windows):
    opened(page, url, windows)
    chart = page.locator("[data-testid=stVegaLiteChart]").first
    expect(chart.locator("svg")).to_be_visible(timeout=PATIENCE)
    baseline, colour = swatch_colour(page, 0), swatch_colour(page, 1)
    assert baseline != colour
    marks = chart.locator(".mark-symbol.role-mark path").all()
    (mark,) = [mark for mark in marks if mark.evaluate("mark => getComputedStyle(mark).fill") == colour and wide(mark)]
    mark.hover()
    expect(page.locator("#vg-tooltip-element")).to_contain_text(f"{LABELS[LLAMA]} restarted with 4 slots, was 2")


def wide(mark: Locator) -> bool:
    """Whether a mark can be aimed at: where nothing happened there is one of no size."""
    box = mark.bounding_box()
    return box is not None and box["width"] > 5


def swatch_colour(page: Page, place: int) -> str:
    """The colour of a window in the legend of the lines."""
    swatch = page.locator(".st-key-charts .er-legend .er-swatch").nth(place)
    return str(swatch.evaluate("mark => getComputedStyle(mark).backgroundColor"))


def test_a_window_is_added_by_the_form_and_removed_by_its_menu(url, page, windows):
    opened(page, url, windows)
    page.get_by_role("button", name="Add a window").click()
    page.get_by_role("radio", name="last 15 min").click()
    page.get_by_role("button", name="Add", exact=True).click()
    until(lambda: len(shown(page)) == 3, 60, "the added window to be in the address")
    assert shown(page)[:2] == windows
    expect(figure(page, "Generation")).to_have_count(3, timeout=PATIENCE)
    menus = page.locator("button[aria-haspopup=menu]").filter(visible=True)
    menus.nth(2).click()  # of the third window
    page.get_by_role("menuitem", name="remove").click()
    until(lambda: shown(page) == windows, 60, "the added window to leave the address")
    expect(figure(page, "Generation")).to_have_count(2, timeout=PATIENCE)


def test_what_is_wrong_with_a_link_is_told_and_the_rest_is_shown(url, page, windows):
    opened(page, url, [windows[0], "nobody~2026", windows[1]])
    told = page.get_by_role("alert").filter(has_text="Part of the link was ignored:")
    expect(told).to_contain_text("is not a window: engine~from~to is expected")
    expect(figure(page, "Generation")).to_have_count(2)


def test_the_copied_link_and_the_csv_say_what_is_shown(url, page, browser, windows, tmp_path: Path):
    opened(page, url, windows)
    with page.expect_download(timeout=PATIENCE) as waiting:
        page.get_by_role("button", name="Figures as CSV").click()
    file = tmp_path / waiting.value.suggested_filename
    waiting.value.save_as(file)
    rows = [row for row in csv.DictReader(file.open(encoding="utf-8")) if row["figure"] == "Generation"]
    assert [float(row["value"]) for row in rows] == pytest.approx([600, 88], rel=1e-3)
    assert [row["window"] for row in rows] == ["A", "B"]
    page.get_by_role("button", name="Copy link").click()
    link = page.locator("[data-testid=stCode]").inner_text(timeout=PATIENCE).strip()
    assert link.startswith(f"{url}?")
    other = browser.new_page()
    other.goto(link)
    expect(figure(other, "Generation").first).to_have_text("600 tok/s", timeout=PATIENCE)
    assert shown(other) == windows
    other.close()
