"""Pages run against a real DuckDB file behind the real read API, filled by `tests.support.demo`."""

from __future__ import annotations

from streamlit.testing.v1 import AppTest

from tests.support import dashboard

use_folder = dashboard.use_folder
serve = dashboard.serve
# Pages whose address is not the name of their file: the router has to run once before they are found.
ADDRESSED_OTHERWISE = {"load_test.py"}


def open_page(name: str = "", **query: str | list[str]) -> AppTest:
    """Run the router and one page, with a query string; exceptions of the page fail the test."""
    app = AppTest.from_file(str(dashboard.ROOT / "pages" / "main.py"), default_timeout=60)
    for key, value in query.items():
        app.query_params[key] = value
    if name in ADDRESSED_OTHERWISE:
        app.run()
    if name:
        app.switch_page(name)
    app.run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def words(app: AppTest) -> str:
    """All text of the page: HTML, Markdown, messages and code."""
    kinds = ("markdown", "caption", "info", "warning", "error", "code")
    parts = [element.proto.body for element in app.get("html")]
    parts += [element.value for kind in kinds for element in app.get(kind)]
    return "\n".join(str(part) for part in parts)
