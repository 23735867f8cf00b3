"""The store inside the process that writes it: the same answers as over the socket."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

import pyarrow as pa

from settings import StoreSettings
from store.export import csv_chunks
from store.protocol import Parameter
from store.reads import Reader
from store.writer import Writer


class LocalStore:
    """Reads over cursors of a writer's connection. Thread-safe."""

    def __init__(self, writer: Writer, settings: StoreSettings) -> None:
        self._reader = Reader(writer.path, settings, writer.cursor)

    def query(self, name: str, parameters: Mapping[str, Parameter] | None = None) -> pa.Table:
        """Answer one named query. Raises `StoreError` in one of its kinds."""
        return self._reader.query(name, parameters)

    def export_csv(
        self, table: str, start: datetime | None, end: datetime | None, engine: str | None
    ) -> Iterator[bytes]:
        """Stream a table as CSV, see `store.export`. A wrong name is reported here, not at the first chunk."""
        return start_export(self._reader, table, start, end, engine)


def start_export(
    reader: Reader, table: str, start: datetime | None, end: datetime | None, engine: str | None
) -> Iterator[bytes]:
    """An export that has begun: errors of its parameters are raised here."""

    def chunks() -> Iterator[bytes]:
        with reader.export_cursor(f"export of {table!r}") as cursor:
            rows = csv_chunks(cursor, table, start, end, engine)
            header = next(rows)
            yield b""
            yield header
            yield from rows

    begun = chunks()
    next(begun)
    return begun
