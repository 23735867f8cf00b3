"""Numbered schema migrations: `schema/NNNN_name.sql`, each applied once, in its own transaction."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from store.protocol import NewerStoreError, StoreError

SCHEMA_FOLDER = Path(__file__).parent / "schema"


@dataclass(frozen=True, slots=True)
class Migration:
    """One step of the schema."""

    version: int
    name: str
    sql: str


def migrations(folder: Path = SCHEMA_FOLDER) -> tuple[Migration, ...]:
    """All steps in order. Raises `StoreError` when their numbers have a hole or a double."""
    steps = tuple(
        Migration(int(path.stem.split("_", 1)[0]), path.stem, path.read_text(encoding="utf-8"))
        for path in sorted(folder.glob("[0-9]*.sql"))
    )
    if [step.version for step in steps] != list(range(1, len(steps) + 1)):
        raise StoreError(f"the migrations in {folder} are not numbered 1, 2, 3 ...: reinstall Engine Room")
    return steps


def schema_version(connection: duckdb.DuckDBPyConnection) -> int:
    """The newest step that was applied to the file; 0 for an empty file."""
    known = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE schema_name = 'main' AND table_name = 'schema_version'"
    ).fetchall()
    if not known:
        return 0
    rows = connection.execute("SELECT coalesce(max(version), 0) FROM schema_version").fetchall()
    return int(rows[0][0])


def refuse_newer(connection: duckdb.DuckDBPyConnection, path: Path, folder: Path = SCHEMA_FOLDER) -> None:
    """Raise `NewerStoreError` when the file has steps that this version does not know."""
    found, known = schema_version(connection), len(migrations(folder))
    if found > known:
        raise NewerStoreError(
            f"{path} was written by a newer Engine Room (schema {found}; this one knows up to {known}). It was left "
            "untouched. Update Engine Room, or point ENGINE_ROOM_DATA to another folder."
        )


def migrate(connection: duckdb.DuckDBPyConnection, path: Path, folder: Path = SCHEMA_FOLDER) -> int:
    """
    Bring the file to the newest schema and return its version.

    A step that fails leaves the file at the step before. A checkpoint follows at once, so that no
    schema change is ever replayed from the write-ahead log.
    """
    refuse_newer(connection, path, folder)
    found = schema_version(connection)
    steps = [step for step in migrations(folder) if step.version > found]
    for step in steps:
        connection.begin()
        try:
            connection.execute(
                "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL, name VARCHAR NOT NULL, "
                "applied TIMESTAMPTZ NOT NULL)"
            )
            connection.execute(step.sql)
            connection.execute("INSERT INTO schema_version VALUES (?, ?, now())", [step.version, step.name])
            connection.commit()
        except duckdb.Error as error:
            connection.rollback()
            raise StoreError(f"{path}: migration {step.name} failed and was undone: {error}") from error
    if steps:
        connection.execute("CHECKPOINT")
    return found + len(steps)
