"""
A load test from the page: a real llama.cpp, a real collector with its worker, the real dashboard, a browser.

What is expected is what was asked for: so many requests, so many tokens each, and what the engine itself counted.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.support.browser import NEEDS_CHROMIUM, dashboard
from tests.support.collector import RunningCollector, running_collector
from tests.support.llamacpp import get, llamacpp_server
from tests.support.wait import until

pytestmark = [*NEEDS_CHROMIUM, pytest.mark.engine, pytest.mark.timeout(600)]
INPUT_TOKENS, OUTPUT_TOKENS, REQUESTS = 20, 8, 6


@pytest.fixture(scope="module")
def engine() -> Iterator[str]:
    with llamacpp_server(context=1024, slots=2, threads=1) as url:
        yield url


def only(engine: str) -> dict[str, str]:
    """Settings of a collector that looks at this engine and at no other one of the machine."""
    return {
        "ENGINE_ROOM_COLLECTOR__DISCOVER": "false",
        "ENGINE_ROOM_TARGET": json.dumps([{"url": engine}]),
    }


@pytest.fixture(scope="module")
def collector(engine, tmp_path_factory) -> Iterator[RunningCollector]:
    data = tmp_path_factory.mktemp("loadtest") / "data"
    with running_collector(data, **only(engine)) as running:
        until(lambda: (found := running.engine(engine)) and found["state"] == "ready", 60, "the engine to be found")
        yield running


@pytest.fixture(scope="module")
def url(collector, engine) -> Iterator[str]:
    with dashboard(collector.settings.data, **only(engine)) as address:
        yield address


@pytest.fixture
def page(browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1440, "height": 1200}, accept_downloads=True)
    context.set_default_timeout(30_000)
    yield context.new_page()
    context.close()


def counted_tokens(engine: str) -> int:
    """`llamacpp:tokens_predicted_total`, the engine's own counter."""
    text = get(f"{engine}/metrics").decode()
    return int(float(next(line.split()[1] for line in text.splitlines() if "tokens_predicted_total " in line)))


def start(page: Page, url: str, name: str, **query: object) -> str:
    """Open the set-up, name the run, press Start; returns the id of the run, which is in the link by then."""
    asked = "&".join(f"{key}={value}" for key, value in query.items())
    page.goto(f"{url}/loadtest?{asked}")
    button = page.get_by_role("button", name="Start", exact=True)
    expect(button).to_be_enabled(timeout=60_000)
    field = page.locator(".st-key-test_name input")
    field.fill(name)
    field.press("Enter")
    button.click()
    page.wait_for_url(re.compile(r"[?&]run="))
    return parse_qs(urlsplit(page.url).query)["run"][0]


def stored(collector: RunningCollector, run_id: str) -> dict:
    return next(row for row in collector.rows("loadtest_runs") if row["run_id"] == run_id)


def test_a_sweep_is_started_watched_read_and_deleted(page, url, engine, collector, browser):
    run_id = start(
        page, url, "From the page", levels="1, 2", repeats=1, tokens_in=INPUT_TOKENS, tokens_out=OUTPUT_TOKENS,
        each="a number of requests", requests=REQUESTS, warmup=0,
    )  # fmt: skip
    expect(page.get_by_text("stage 1 of 2")).to_be_visible(timeout=60_000)
    expect(page.get_by_role("button", name="Stop")).to_be_enabled()

    # Somebody else sees the same, without knowing of it.
    other = browser.new_context().new_page()
    other.goto(f"{url}/loadtest")
    expect(other.get_by_text("of 2").first).to_be_visible(timeout=60_000)
    other.context.close()

    until(lambda: stored(collector, run_id)["state"] == "finished", 400, "the run to finish")
    expect(page.get_by_text("finished", exact=True)).to_be_visible(timeout=60_000)
    expect(page.locator("[data-testid=stVegaLiteChart]").first).to_be_visible(timeout=60_000)
    stages = collector.rows("loadtest_stages", run_id=run_id)
    assert [(row["concurrency"], row["repeat"]) for row in stages] == [(1, 0), (2, 0)]
    for stage in stages:
        assert (stage["requests"], stage["succeeded"]) == (REQUESTS, REQUESTS)
        assert stage["output_tokens"] == REQUESTS * OUTPUT_TOKENS
        assert stage["tokens_source"] == "usage"
    expect(page.get_by_text("answers as long as asked")).to_be_visible()

    with page.expect_download() as download:
        page.locator(".st-key-csv-Requests-r0 button").click()
    rows = list(csv.DictReader(Path(download.value.path()).read_text(encoding="utf-8").splitlines()))
    assert len(rows) == len(stages) * REQUESTS
    assert {row["output_tokens"] for row in rows} == {str(OUTPUT_TOKENS)}

    page.get_by_role("button", name="Delete", exact=True).click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("From the page with its 2 stages")
    dialog.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("From the page is deleted.")).to_be_visible(timeout=30_000)
    assert all(row["run_id"] != run_id for row in collector.rows("loadtest_runs"))
    assert collector.rows("loadtest_stages", run_id=run_id) == []


def test_a_run_that_is_stopped_keeps_what_it_measured(page, url, collector):
    run_id = start(
        page, url, "Cut short", levels="1, 2, 4", repeats=9, tokens_in=INPUT_TOKENS, tokens_out=OUTPUT_TOKENS,
        each="a number of requests", requests=REQUESTS, warmup=0,
    )  # fmt: skip
    until(lambda: collector.rows("loadtest_stages", run_id=run_id), 300, "the first stage to end")
    page.get_by_role("button", name="Stop").click()
    # On a busy machine a run may find its own client too slow and not be trusted: what it is stands there all the same.
    expect(page.get_by_text("stopped", exact=True)).to_be_visible(timeout=60_000)
    assert stored(collector, run_id)["state"] == "stopped"
    assert collector.rows("loadtest_stages", run_id=run_id)[0]["succeeded"] == REQUESTS
    expect(page.locator("[data-testid=stVegaLiteChart]").first).to_be_visible(timeout=60_000)
