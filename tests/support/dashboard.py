"""Fixtures that point the dashboard's code at a served demo. Assign them in a module or conftest to use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import streamlit as st

import settings
from tests.support.demo_server import DemoStore, served

ROOT = Path(__file__).parents[2]


@contextmanager
def pointed_at(folder: Path) -> Iterator[None]:
    """Point the dashboard at a data folder, as ENGINE_ROOM_DATA does, with nothing cached from before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ENGINE_ROOM_DATA", str(folder))
        patch.chdir(ROOT)
        _forget()
        yield
    _forget()


def _forget() -> None:
    settings.load.cache_clear()
    st.cache_resource.clear()


@pytest.fixture
def use_folder() -> Iterator[Callable[[Path], None]]:
    """`pointed_at` as a function, until the end of the test."""
    with ExitStack() as stack:
        yield lambda folder: stack.enter_context(pointed_at(folder))


@pytest.fixture
def serve(use_folder, tmp_path) -> Iterator[Callable[..., DemoStore]]:
    """Serve a scenario of the demo and point the dashboard at it."""
    with ExitStack() as stack:

        def start(scenario: str = "usual", **options) -> DemoStore:
            store = stack.enter_context(served(tmp_path / "data", scenario, **options))
            use_folder(store.settings.data)
            return store

        yield start
