"""The store as seen from another process: named queries and commands over the collector's socket."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa

from settings import Settings
from store import address, protocol
from store.address import Address
from store.protocol import (
    NOTES_HEADER,
    READ_TURN_WAIT_SECONDS,
    Export,
    Parameter,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    UnknownQueryError,
)

CONNECT_TIMEOUT_SECONDS = 2.0
COMMAND_TIMEOUT_SECONDS = 120.0  # an import reads large files before it answers
KEEP_ALIVE_SECONDS = 15.0  # well under the server's, so that it never closes a connection we are about to use
_START_HINT = "Start it with: python -m collectors run"
_KINDS: Mapping[str, type[StoreError]] = {
    kind.__name__: kind
    for kind in (
        StoreError,
        protocol.NewerStoreError,
        protocol.StoreLockedError,
        StoreBusyError,
        StoreUnavailableError,
        UnknownQueryError,
        protocol.RefusedError,
    )
}


class StoreClient:
    """
    Reads through the collector of `settings`' data folder, wherever it says that it answers. Thread-safe.

    A collector that was restarted is found again at the next call.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._address: Address | None = None
        self._http: httpx2.Client | None = None

    def query(self, name: str, parameters: Mapping[str, Parameter] | None = None) -> pa.Table:
        """Answer one named query. Raises `StoreError` in one of its kinds."""
        content = {
            key: value.isoformat() if isinstance(value, datetime) else value
            for key, value in (parameters or {}).items()
        }
        try:
            body = json.dumps(content, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UnknownQueryError(f"query {name!r}: parameters must be times, text or numbers ({error})") from error
        with self._errors():
            answer = self._client().post(f"/query/{_segment(name)}", content=body)
            _raise_for(answer)
            return pa.ipc.open_stream(answer.content).read_all()

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
        given = {"from": start, "to": end, "engine": engine, "run": run, "points": points}
        parameters = {
            key: value.isoformat() if isinstance(value, datetime) else str(value)
            for key, value in given.items()
            if value is not None
        }

        def chunks() -> Iterator[bytes]:
            with (
                self._errors(),
                self._client().stream("GET", f"/export/{_segment(table)}.csv", params=parameters) as answer,
            ):
                if answer.status_code != 200:
                    answer.read()
                _raise_for(answer)
                yield answer.headers.get(NOTES_HEADER, "[]").encode()
                yield from answer.iter_bytes()

        begun = chunks()
        return Export(tuple(json.loads(next(begun))), begun)

    def snapshot(self) -> Iterator[bytes]:
        """Stream the whole store as it is now, for `store.snapshot.write`. Errors come with the first chunk."""
        with self._errors(), self._client().stream("GET", "/snapshot") as answer:
            if answer.status_code != 200:
                answer.read()
            _raise_for(answer)
            yield from answer.iter_raw()

    def command(self, name: str, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """
        Have the collector change something, see `store.protocol` for what there is.

        Raises `RefusedError` when it is not done, and `StoreError` in its other kinds.
        """
        try:
            body = json.dumps(dict(parameters or {}), allow_nan=False)
        except (TypeError, ValueError) as error:
            raise UnknownQueryError(f"command {name!r}: parameters must be JSON ({error})") from error
        with self._errors():
            answer = self._client().post(f"/command/{_segment(name)}", content=body, timeout=COMMAND_TIMEOUT_SECONDS)
            _raise_for(answer)
            content: dict[str, Any] = answer.json()
            return content

    def health(self) -> dict[str, Any]:
        """What the collector says of itself. Raises `StoreUnavailableError` when none answers."""
        with self._errors():
            answer = self._client().get("/healthz")
            _raise_for(answer)
            content: dict[str, Any] = answer.json()
            return content

    def close(self) -> None:
        """Let go of the connections."""
        with self._lock:
            if self._http is not None:
                self._http.close()
            self._http = self._address = None

    def _client(self) -> httpx2.Client:
        found = address.read(self._settings.run_folder)
        if found is None:
            raise StoreUnavailableError(self._absent("runs"))
        with self._lock:
            if self._http is None or found != self._address:
                # The old one is left to the threads that still use it.
                self._http, self._address = _connect(found, self._settings), found
            return self._http

    def _absent(self, verb: str) -> str:
        """Why there is no collector, as far as it is known, and what to do."""
        failure = address.read_failure(self._settings.run_folder)
        reason = f"The last one could not start: {failure} " if failure else ""
        return f"no collector {verb} on {self._settings.data}. {reason}{_START_HINT}"

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
            raise StoreUnavailableError(self._absent("answers")) from error
        except httpx2.TimeoutException as error:
            raise StoreBusyError(f"the collector did not answer in time ({error}); try again") from error
        except httpx2.HTTPError as error:
            raise StoreUnavailableError(
                f"the collector went away before its answer was complete ({error}). Is it being stopped or restarted?"
            ) from error
        except pa.ArrowInvalid as error:
            raise StoreError(f"the collector's answer cannot be read ({error}): restart it after an update") from error


def _connect(found: Address, settings: Settings) -> httpx2.Client:
    timeout = httpx2.Timeout(
        settings.store.read_timeout_seconds + READ_TURN_WAIT_SECONDS + 5.0, connect=CONNECT_TIMEOUT_SECONDS
    )
    headers = {}
    if found.token_file is not None:
        try:
            headers["Authorization"] = f"Bearer {Path(found.token_file).read_text(encoding='utf-8')}"
        except OSError as error:
            raise StoreUnavailableError(f"{found.token_file} cannot be read ({error}). {_START_HINT}") from error
    return httpx2.Client(
        base_url="http://collector" if found.socket else f"http://127.0.0.1:{found.port}",
        transport=httpx2.HTTPTransport(
            uds=found.socket, retries=1, limits=httpx2.Limits(keepalive_expiry=KEEP_ALIVE_SECONDS)
        ),
        headers=headers,
        timeout=timeout,
        trust_env=False,
    )


def _segment(name: str) -> str:
    """A name as one path segment; names of queries and tables are plain words."""
    if not name.isidentifier():
        raise UnknownQueryError(f"{name!r} is not a name of a query or table")
    return name


def _raise_for(answer: httpx2.Response) -> None:
    if answer.status_code == 200:
        return
    try:
        content = answer.json()
        kind, message = _KINDS.get(content["error"], StoreError), str(content["message"])
    except (ValueError, KeyError, TypeError):
        kind, message = StoreError, f"the collector answered {answer.status_code}: {answer.text[:200]}"
    raise kind(message)
