"""
Launcher of the dashboard: `streamlit run app.py`.

The server makes sure that a collector runs, serves the pages and the routes of `api`, and releases a
collector that it started when it ends. The router is `pages/main.py`: a router beside a `pages/` folder
would be skipped on the first deep link after a start.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st

import api
import settings
from collectors.lifecycle import ensure_collector


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """Hold a collector while the server runs. Starting one blocks, so it happens beside the event loop."""
    # What draws charts takes a second to load, which the first visitor need not wait for.
    asyncio.get_running_loop().run_in_executor(None, importlib.import_module, "views.history_picture")
    collector = await asyncio.to_thread(ensure_collector, settings.load())
    try:
        yield
    finally:
        await asyncio.to_thread(collector.release)


app = st.App("pages/main.py", lifespan=lifespan, routes=api.routes())
