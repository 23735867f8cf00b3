from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from settings import Settings
from store import address
from store.client import StoreClient
from store.local import LocalStore
from store.model import Row
from store.protocol import Store
from store.server import serve
from store.writer import Writer


@dataclass
class Filled:
    """A store that is read through one of its implementations, and the writer that fills it."""

    store: Store
    writer: Writer
    settings: Settings

    def put(self, *rows: Row) -> None:
        self.writer.put(rows)
        self.writer.flush()


@pytest.fixture(params=["local", "socket"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filled]:
    settings = Settings(data=tmp_path / "data", host="host-a")
    writer = Writer(settings.store_path, settings.store, host="host-a")
    if request.param == "local":
        yield Filled(LocalStore(writer, settings.store), writer, settings)
    else:
        server = serve(writer, settings, dict)
        address.write(settings.run_folder, server.address(started=datetime.now(UTC), started_by="test"))
        client = StoreClient(settings)
        yield Filled(client, writer, settings)
        client.close()
        server.stop()
    writer.close()
