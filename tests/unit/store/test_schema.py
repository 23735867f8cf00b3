"""Tables agree with the row types, and files of other versions are treated with care."""

import types
import typing
from dataclasses import fields
from datetime import datetime
from pathlib import Path

import duckdb
import pytest

from settings import StoreSettings
from store.database import open_for_writing, open_read_only
from store.migrations import migrate, migrations, schema_version
from store.model import ROW_TYPES, Row
from store.protocol import NewerStoreError, StoreError
from store.writer import Writer
from tests.support.rows import engine

SQL_TYPES = {datetime: "TIMESTAMP WITH TIME ZONE", str: "VARCHAR", float: "DOUBLE", int: "BIGINT", bool: "BOOLEAN"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "telemetry.duckdb"


@pytest.mark.parametrize("row", ROW_TYPES, ids=lambda row: row.table)
def test_a_table_has_the_fields_of_its_row_type_in_order(path: Path, row: type[Row]) -> None:
    expected = []
    hints = typing.get_type_hints(row)
    for field in fields(row):
        hint = hints[field.name]
        optional = isinstance(hint, types.UnionType)
        base = next(part for part in typing.get_args(hint) if part is not type(None)) if optional else hint
        expected.append((field.name, SQL_TYPES[base], optional))
    connection = open_for_writing(path, StoreSettings())
    found = connection.execute(
        "SELECT column_name, data_type, is_nullable, comment FROM duckdb_columns() "
        "WHERE table_name = ? ORDER BY column_index",
        [row.table],
    ).fetchall()
    connection.close()
    assert [column[:3] for column in found] == expected
    assert all(column[3] for column in found), "every column has a comment"


def test_every_table_and_view_has_a_comment_and_none_a_key_or_index(path: Path) -> None:
    connection = open_for_writing(path, StoreSettings())
    named = connection.execute(
        "SELECT table_name, comment FROM duckdb_tables() WHERE table_name <> 'schema_version' "
        "UNION ALL SELECT view_name, comment FROM duckdb_views() WHERE NOT internal"
    ).fetchall()
    keys = connection.execute(
        "SELECT table_name FROM duckdb_constraints() WHERE constraint_type <> 'NOT NULL' "
        "UNION ALL SELECT table_name FROM duckdb_indexes()"
    ).fetchall()
    connection.close()
    assert {name for name, _ in named} >= {row.table for row in ROW_TYPES} | {"engine_rate"}
    assert [name for name, comment in named if not comment] == []
    assert keys == []


def test_a_file_of_a_newer_version_is_refused_and_left_untouched(path: Path) -> None:
    Writer(path, StoreSettings()).close()
    with duckdb.connect(str(path)) as connection:
        connection.execute("INSERT INTO schema_version VALUES (999, 'from_the_future', now())")
    before = path.read_bytes()
    with pytest.raises(NewerStoreError, match=r"schema 999.*left\s+untouched"):
        Writer(path, StoreSettings())
    assert path.read_bytes() == before


def test_a_newer_file_with_a_pending_log_is_left_untouched_too(path: Path, python: typing.Any) -> None:
    Writer(path, StoreSettings()).close()
    crash = (
        "import duckdb, os, sys; c = duckdb.connect(sys.argv[1]); "
        "c.execute(\"INSERT INTO schema_version VALUES (999, 'x', now())\"); os._exit(0)"
    )
    assert python(crash, path).wait(20) == 0
    wal = path.with_name(path.name + ".wal")
    before = path.read_bytes(), wal.read_bytes()
    assert before[1]
    with pytest.raises(NewerStoreError):
        Writer(path, StoreSettings())
    assert (path.read_bytes(), wal.read_bytes()) == before
    assert list(path.parent.glob("*.kept-*")) == []


def test_a_migration_that_fails_leaves_the_file_at_the_step_before(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "schema"
    folder.mkdir()
    (folder / "0001_first.sql").write_text("CREATE TABLE kept (a BIGINT);")
    (folder / "0002_second.sql").write_text("CREATE TABLE undone (a BIGINT); SELECT * FROM no_such_table;")
    connection = duckdb.connect(str(path))
    with pytest.raises(StoreError, match="0002_second"):
        migrate(connection, path, folder)
    assert schema_version(connection) == 1
    (folder / "0002_second.sql").write_text("ALTER TABLE kept ADD COLUMN b BIGINT;")
    assert migrate(connection, path, folder) == 2
    assert migrate(connection, path, folder) == 2
    tables = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
    assert tables == [("kept",), ("schema_version",)]
    connection.close()


def test_migrations_are_numbered_without_holes(tmp_path: Path) -> None:
    assert [step.version for step in migrations()] == list(range(1, len(migrations()) + 1))
    (tmp_path / "0002_lonely.sql").write_text("SELECT 1")
    with pytest.raises(StoreError, match="numbered"):
        migrations(tmp_path)


def test_a_migrated_file_has_nothing_left_in_its_log(path: Path) -> None:
    connection = open_for_writing(path, StoreSettings())
    assert not path.with_name(path.name + ".wal").exists()
    connection.close()


def test_a_person_s_own_sql_sees_the_rates(path: Path) -> None:
    writer = Writer(path, StoreSettings())
    writer.put([engine()])
    writer.close()
    connection = open_read_only(path, StoreSettings())
    assert connection.execute("SELECT label FROM engine_latest").fetchall() == [("model on vllm-8000",)]
    assert connection.execute("SELECT count(*) FROM engine_rate").fetchall() == [(0,)]
    connection.close()


@pytest.mark.parametrize("content", [b"ts,host\n", b"\0" * 20_000, b"SQLite format 3\0" * 2000])
def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    with pytest.raises(StoreError, match="move it aside"):
        Writer(path, StoreSettings())
    assert path.read_bytes() == content


def test_a_data_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match=r"data folder .*cannot be made.*ENGINE_ROOM_DATA"):
        Writer(tmp_path / "file" / "data" / "telemetry.duckdb", StoreSettings())


def test_a_missing_file_is_not_made_by_a_reader(path: Path) -> None:
    with pytest.raises(StoreError, match="start a collector"):
        open_read_only(path, StoreSettings())
    assert not path.exists()
