"""Opening the DuckDB file: settings, migrations, and errors that say what to do."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb

from settings import StoreSettings
from store.migrations import migrate, refuse_newer
from store.protocol import NewerStoreError, StoreError, StoreLockedError

# The write-ahead log is folded in by the writer in a quiet second; at this size DuckDB does it by
# itself in the middle of a transaction, which stalls it.
_AUTOMATIC_CHECKPOINT = "256MB"


def wal_path(path: Path) -> Path:
    """DuckDB's write-ahead log beside the file."""
    return path.with_name(path.name + ".wal")


def file_bytes(path: Path) -> int:
    """Size of a file; 0 when there is none, or none that this user may see (opening it then says why)."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def wal_bytes(path: Path) -> int:
    """Size of the write-ahead log of the DuckDB file `path`; 0 after a checkpoint."""
    return file_bytes(wal_path(path))


def translate(path: Path, error: duckdb.Error) -> StoreError:
    """What an error of DuckDB on opening means to a person, as the store's own kind of error."""
    text = str(error)
    if "Could not set lock" in text or "Conflicting lock" in text:
        holder = re.search(r"\(PID (\d+)\)", text)
        who = f"process {holder[1]}" if holder else "another process"
        return StoreLockedError(
            f"{path} is held by {who}, and only one process can write it. Is a collector running already? "
            "Stop it (python -m collectors stop), or close the DuckDB shell that has the file open."
        )
    if "version number" in text or "newer version" in text:
        return NewerStoreError(
            f"{path} was written by a newer DuckDB than {duckdb.__version__} and was left untouched. "
            f"Update Engine Room's requirements. DuckDB said: {text}"
        )
    # A file of SQLite makes DuckDB ask for the extension that would read it.
    if isinstance(error, duckdb.IOException) and ("not a valid DuckDB database file" in text or "xtension" in text):
        return StoreError(
            f"{path} is no DuckDB database, or its beginning is damaged. It was left as it is: move it aside "
            f"(Engine Room then starts a new file) or bring back a copy. DuckDB said: {text}"
        )
    if isinstance(error, duckdb.IOException):
        return StoreError(
            f"{path} cannot be opened. Check that the folder exists, is writable for this user and that the disk "
            f"is not full, or set ENGINE_ROOM_DATA to another folder. DuckDB said: {text}"
        )
    return StoreError(
        f"{path} cannot be read; it may be damaged. It was left as it is: move it aside (Engine Room then starts a "
        f"new file) or bring back a copy. DuckDB said: {text}"
    )


def _configuration(path: Path, settings: StoreSettings) -> dict[str, str | bool | int | float | list[str]]:
    return {
        "memory_limit": settings.memory_limit,
        "threads": settings.threads,
        "temp_directory": str(path.parent / "spill"),
        "max_temp_directory_size": "2GB",
        "checkpoint_threshold": _AUTOMATIC_CHECKPOINT,
        "allocator_flush_threshold": "16MB",  # freed memory goes back to the system sooner than at 128 MB
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }


def _connect(path: Path, settings: StoreSettings, *, read_only: bool) -> duckdb.DuckDBPyConnection:
    try:
        connection = duckdb.connect(str(path), read_only=read_only, config=_configuration(path, settings))
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
    except duckdb.Error as error:
        raise translate(path, error) from error
    return connection


def open_read_only(path: Path, settings: StoreSettings) -> duckdb.DuckDBPyConnection:
    """
    Open an existing file for reading, while no collector runs.

    Raises `StoreLockedError` while one does, `NewerStoreError`, or `StoreError` for a file that is not there.
    """
    if not path.is_file():
        raise StoreError(f"there is no {path}: start a collector first, or set ENGINE_ROOM_DATA to the right folder")
    connection = _connect(path, settings, read_only=True)
    try:
        refuse_newer(connection, path)
        connection.execute("SET lock_configuration = true")
    except StoreError:
        connection.close()
        raise
    except duckdb.Error as error:
        connection.close()
        raise translate(path, error) from error
    return connection


def open_for_writing(path: Path, settings: StoreSettings) -> duckdb.DuckDBPyConnection:
    """
    Open or create the file, bring it to the newest schema and lock its configuration.

    Raises `StoreLockedError`, `NewerStoreError` (the file is then byte for byte what it was), or
    `StoreError` when the folder cannot be used or the file is damaged.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"the data folder {path.parent} cannot be made ({error.strerror or error}). Make it writable for this "
            "user, or set ENGINE_ROOM_DATA to another folder."
        ) from error
    if file_bytes(path) > 0:
        # A read-only look first: opening for writing would fold the write-ahead log into a file that is not ours.
        open_read_only(path, settings).close()
    connection = _connect(path, settings, read_only=False)
    try:
        migrate(connection, path)
        connection.execute("SET lock_configuration = true")
    except StoreError:
        connection.close()
        raise
    except duckdb.Error as error:
        connection.close()
        raise translate(path, error) from error
    return connection
