"""The commands of load tests on a demo: the real ones, with workers that follow a script of `scripted_worker`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from loadtest.commands import LoadtestCommands
from loadtest.endpoints import known_endpoints
from loadtest.manager import Manager
from settings import Settings
from store.local import LocalStore
from store.model import Engine, Epoch, Row
from store.protocol import Command
from store.writer import Writer


@contextmanager
def loadtest_commands(
    settings: Settings, writer: Writer, facts: list[Row], script: str
) -> Iterator[Mapping[str, Command]]:
    """The commands of a collector that knows the engines of `facts`; what runs is stopped afterwards."""
    engines = [row for row in facts if isinstance(row, Engine)]
    epochs = {row.engine_id: row for row in facts if isinstance(row, Epoch)}
    manager = Manager(
        settings,
        writer,
        epochs.get,
        lambda run, stage: [],
        [sys.executable, "-m", "tests.support.scripted_worker", script],
    )
    commands = LoadtestCommands(
        settings,
        writer,
        LocalStore(writer, settings.store),
        manager,
        lambda: known_endpoints([(engine, epochs.get(engine.engine_id)) for engine in engines], []),
    )
    try:
        yield commands.commands
    finally:
        commands.close()
