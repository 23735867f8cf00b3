"""
What the History page costs: `python -m benchmarks.history_page [FOLDER]` (FOLDER as `benchmarks.month`
made it; made anew without one).

A real collector over a copy of that month, a real server, a real Chromium. For ranges from an hour to the month:
seconds from navigation until the charts are drawn, and what the server sent for it, raw and deflated. The first
view is told apart: the server loads what it draws with. Then how long the page is busy with one move of the
pointer over its charts.

Budget (design): under 200 kB sent a view.
"""

from __future__ import annotations

import time
import zlib
from datetime import datetime, timedelta
from urllib.parse import urlencode

from playwright.sync_api import Browser, Page, WebSocket, expect

from benchmarks.history import RANGES, collector, copied_month
from tests.support.browser import chromium, dashboard

BUDGET_BYTES = 200_000
WAIT_MILLISECONDS = 120_000
MOVES = 20


def view(browser: Browser, address: str, end: datetime, hours: float) -> tuple[Page, float, int, int]:
    """Open a range in a fresh page: seconds until it was drawn, bytes received raw and deflated."""
    page = browser.new_context(viewport={"width": 1440, "height": 1600}).new_page()
    sizes: list[tuple[int, int]] = []

    def received(payload: str | bytes) -> None:
        whole = payload if isinstance(payload, bytes) else payload.encode()
        sizes.append((len(whole), len(zlib.compress(whole))))

    def opened(socket: WebSocket) -> None:
        socket.on("framereceived", received)

    page.on("websocket", opened)
    span = {"from": (end - timedelta(hours=hours)).isoformat(), "to": end.isoformat()}
    began = time.perf_counter()
    page.goto(f"{address}/history?{urlencode(span)}")
    expect(page.locator("[data-testid=stVegaLiteChart] .marks").first).to_be_visible(timeout=WAIT_MILLISECONDS)
    expect(page.locator(".st-key-csv-Events button")).to_be_visible(timeout=WAIT_MILLISECONDS)
    seconds = time.perf_counter() - began
    return page, seconds, sum(raw for raw, _ in sizes), sum(deflated for _, deflated in sizes)


def move_seconds(page: Page) -> float:
    """Seconds of script that one move of the pointer costs the page, the best of some rounds."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    box = page.locator("[data-testid=stVegaLiteChart]").first.bounding_box()
    if box is None:
        raise RuntimeError("the charts are not on the screen")

    def script() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "ScriptDuration"))

    rounds = []
    for _ in range(3):
        before = script()
        for move in range(MOVES):
            page.mouse.move(box["x"] + 300 + 20 * move, box["y"] + box["height"] * 0.3)
        page.wait_for_timeout(500)
        rounds.append((script() - before) / MOVES)
    return min(rounds)


def main() -> None:
    """Measure and print."""
    with copied_month() as (folder, end), collector(folder), dashboard(folder) as address, chromium() as browser:
        longest = next(iter(reversed(RANGES)))
        for label in (longest, *RANGES):
            page, seconds, raw, deflated = view(browser, address, end, RANGES[label])
            over = "over" if deflated > BUDGET_BYTES else "under"
            print(
                f"{label:<8}{seconds:6.1f} s{raw / 1e3:8.0f} kB{deflated / 1e3:8.0f} kB deflated "
                f"({over} {BUDGET_BYTES / 1e3:.0f} kB)",
                flush=True,
            )
            if label != longest:
                page.context.close()
        print(f"one move of the pointer: {move_seconds(page) * 1e3:.1f} ms of script")


if __name__ == "__main__":
    main()
