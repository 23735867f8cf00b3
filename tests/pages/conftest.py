"""Pages run against a real DuckDB file behind the real read API, filled by `tests.support.demo`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import settings
from tests.support.demo_server import DemoStore, served

ROOT = Path(__file__).parents[2]


@pytest.fixture
def use_folder(monkeypatch) -> Iterator[Callable[[Path], None]]:
    """Point the dashboard at a data folder, as ENGINE_ROOM_DATA does, with nothing cached from before."""

    def use(folder: Path) -> None:
        monkeypatch.setenv("ENGINE_ROOM_DATA", str(folder))
        monkeypatch.chdir(ROOT)
        settings.load.cache_clear()
        st.cache_resource.clear()

    yield use
    settings.load.cache_clear()
    st.cache_resource.clear()


@pytest.fixture
def serve(use_folder, tmp_path) -> Iterator[Callable[..., DemoStore]]:
    """Serve a scenario of the demo and point the dashboard at it."""
    with ExitStack() as stack:

        def start(scenario: str = "usual", **options) -> DemoStore:
            store = stack.enter_context(served(tmp_path / "data", scenario, **options))
            use_folder(store.settings.data)
            return store

        yield start


def open_page(name: str = "", **query: str | list[str]) -> AppTest:
    """Run the router and one page, with a query string; exceptions of the page fail the test."""
    app = AppTest.from_file(str(ROOT / "pages" / "main.py"), default_timeout=60)
    for key, value in query.items():
        app.query_params[key] = value
    app.run()
    if name:
        app.switch_page(name).run()
    assert not app.exception, [error.value for error in app.exception]
    return app


def words(app: AppTest) -> str:
    """All text of the page: HTML, Markdown, messages and code."""
    parts = [element.proto.body for element in app.get("html")]
    parts += [
        element.value
        for kind in ("markdown", "caption", "info", "warning", "error", "code")
        for element in app.get(kind)
    ]
    return "\n".join(str(part) for part in parts)
