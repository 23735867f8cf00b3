"""The store inside the process that writes it: the same answers as over the socket."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime

import pyarrow as pa

from settings import StoreSettings
from store.export import csv_chunks
from store.protocol import Export, ExportRequest, Parameter
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
        self,
        table: str,
        start: datetime | None = None,
        end: datetime | None = None,
        engine: str | None = None,
        *,
        run: str | None = None,
        points: int | None = None,
    ) -> Export:
        """Stream a table or series as CSV, see `store.export`. A wrong name is told here, not at the first chunk."""
        return start_export(self._reader, ExportRequest(table, start, end, engine, run, points))


def start_export(reader: Reader, wanted: ExportRequest) -> Export:
    """An export that has begun: errors of its parameters are raised here."""

    def chunks() -> Iterator[bytes]:
        with reader.export_cursor(f"export of {wanted.table!r}") as cursor:
            yield from csv_chunks(cursor, reader.path, wanted)

    begun = chunks()
    return Export(tuple(json.loads(next(begun))), begun)
