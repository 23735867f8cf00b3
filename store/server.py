"""
The collector's API: named queries, exports and commands over a Unix socket that only this user can open.

Where there are no Unix sockets: 127.0.0.1 with a bearer token from a file that only this user can read.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import structlog
import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from settings import Settings
from store import edits
from store.address import Address, version, write_private
from store.local import start_export
from store.parameters import parse_time
from store.protocol import (
    NOTES_HEADER,
    Command,
    ExportRequest,
    RefusedError,
    StoreBusyError,
    StoreError,
    UnknownQueryError,
)
from store.reads import Reader
from store.snapshot import live
from store.writer import Writer

_LOG = structlog.get_logger(__name__)

ARROW_STREAM = "application/vnd.apache.arrow.stream"
UNIX_SOCKETS = hasattr(socket, "AF_UNIX")
MAX_SOCKET_PATH_BYTES = 100  # sun_path holds 104 bytes on macOS, 108 on Linux
MAX_QUERY_BYTES = 64_000
MAX_COMMAND_BYTES = 50_000_000  # result files of other tools come in one command
KEEP_ALIVE_SECONDS = 75
_STATUS_OF = {UnknownQueryError: 400, RefusedError: 409, StoreBusyError: 503}


class ReadServer:
    """A read API that runs in a thread of its own until `stop`."""

    def __init__(
        self, server: uvicorn.Server, listener: socket.socket, path: Path | None, token_file: Path | None
    ) -> None:
        self._server = server
        self._listener = listener
        self._path = path
        self._token_file = token_file
        self._thread = threading.Thread(
            target=lambda: asyncio.run(server.serve(sockets=[listener])), name="store-server", daemon=True
        )

    def address(self, *, started: datetime, started_by: str) -> Address:
        """Where it answers, for `store.address.write`."""
        return Address(
            pid=os.getpid(),
            version=version(),
            started=started,
            started_by=started_by,
            socket=str(self._path) if self._path else None,
            port=None if self._path else self._listener.getsockname()[1],
            token_file=str(self._token_file) if self._token_file else None,
        )

    def start(self) -> None:
        """Begin to answer. Raises `StoreError` when the server does not come up."""
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise StoreError("the read API did not start; the collector's log says why")
            time.sleep(0.005)

    def stop(self, timeout_seconds: float = 5.0) -> None:
        """Let running reads end for a moment, then stop answering and remove the socket."""
        self._server.should_exit = True
        self._thread.join(timeout_seconds)
        self._listener.close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)
            if self._path.parent.name.startswith("engine-room-"):
                shutil.rmtree(self._path.parent, ignore_errors=True)
        if self._token_file is not None:
            self._token_file.unlink(missing_ok=True)


def serve(
    writer: Writer,
    settings: Settings,
    extra_status: Callable[[], Mapping[str, Any]],
    commands: Mapping[str, Command] | None = None,
) -> ReadServer:
    """
    Answer reads of `writer`'s file and run commands, in a background thread.

    `extra_status` adds to what `/healthz` tells, `commands` to the store's own (`store.edits`). Each command runs in
    a thread of its own. Raises `StoreError` when the socket cannot be made.
    """
    folder = settings.run_folder
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)
        listener, path = _listen(folder)
        token_file = None if path else folder / "token"
        token = secrets.token_urlsafe(32) if token_file else None
        if token_file is not None and token is not None:
            write_private(token_file, token)
    except OSError as error:
        raise StoreError(
            f"the read API cannot listen in {folder}: {error}. Check that the folder is writable"
        ) from error
    config = uvicorn.Config(
        _application(
            writer, settings, extra_status, token, {**edits.commands(writer, settings.host), **(commands or {})}
        ),
        log_config=None,
        access_log=False,
        lifespan="off",
        loop="asyncio",
        http="h11",
        ws="none",
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=2,
    )
    server = ReadServer(uvicorn.Server(config), listener, path, token_file)
    server.start()
    return server


def _listen(folder: Path) -> tuple[socket.socket, Path | None]:
    if not UNIX_SOCKETS:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        return listener, None
    path = folder / "store.sock"
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        path = Path(tempfile.mkdtemp(prefix="engine-room-")) / "store.sock"  # mode 0700
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))  # the folder is closed to others already
    path.chmod(0o600)
    listener.listen()
    return listener, path


def _application(
    writer: Writer,
    settings: Settings,
    extra_status: Callable[[], Mapping[str, Any]],
    token: str | None,
    commands: Mapping[str, Command],
) -> Starlette:
    reader = Reader(writer.path, settings.store, writer.cursor)
    started = datetime.now(UTC)

    def allowed(request: Request) -> bool:
        return token is None or secrets.compare_digest(
            request.headers.get("authorization", "").encode(), f"Bearer {token}".encode()
        )

    async def healthz(request: Request) -> Response:
        if not allowed(request):
            return _refused()
        state, detail = writer.health()
        statistics = {
            name: value.isoformat() if isinstance(value, datetime) else value
            for name, value in asdict(writer.statistics()).items()
        }
        return JSONResponse(
            {
                "version": version(),
                "pid": os.getpid(),
                "started": started.isoformat(),
                "writer": {"state": state, "detail": detail, **statistics},
            }
            | await run_in_threadpool(lambda: dict(extra_status()))
        )

    async def query(request: Request) -> Response:
        if not allowed(request):
            return _refused()
        try:
            parameters = _json_object(await _body(request, MAX_QUERY_BYTES))
            table = await run_in_threadpool(reader.query, request.path_params["name"], parameters)
        except StoreError as error:
            return _failed(error)
        return Response(await run_in_threadpool(_arrow, table), media_type=ARROW_STREAM)

    async def command(request: Request) -> Response:
        if not allowed(request):
            return _refused()
        name = request.path_params["name"]
        try:
            run = commands.get(name)
            if run is None:
                raise UnknownQueryError(f"there is no command {name!r}; there are {', '.join(sorted(commands))}")
            body = await _body(request, MAX_COMMAND_BYTES)
            answer = await run_in_threadpool(lambda: run(_json_object(body)))
        except StoreError as error:
            return _failed(error)
        return JSONResponse(answer)

    async def export(request: Request) -> Response:
        if not allowed(request):
            return _refused()
        try:
            wanted = _export_request(request.path_params["table"], request.query_params)
            begun = await run_in_threadpool(start_export, reader, wanted)
        except StoreError as error:
            return _failed(error)
        return StreamingResponse(
            begun, media_type="text/csv; charset=utf-8", headers={NOTES_HEADER: json.dumps(begun.notes)}
        )

    async def snapshot(request: Request) -> Response:
        if not allowed(request):
            return _refused()
        chunks = live(writer)
        try:
            first = await run_in_threadpool(next, chunks)
        except StoreError as error:
            return _failed(error)
        return StreamingResponse(chain((first,), chunks), media_type="application/octet-stream")

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/query/{name}", query, methods=["POST"]),
            Route("/command/{name}", command, methods=["POST"]),
            Route("/export/{table}.csv", export),
            Route("/snapshot", snapshot),
        ]
    )


def _export_request(table: str, given: Mapping[str, str]) -> ExportRequest:
    span = {name: parse_time(given[name], name) if name in given else None for name in ("from", "to")}
    points = given.get("points")
    if points is not None and not points.isdecimal():
        raise UnknownQueryError(f"points must be a whole number, not {points!r}")
    return ExportRequest(
        table, span["from"], span["to"], given.get("engine"), given.get("run"), int(points) if points else None
    )


async def _body(request: Request, most_bytes: int) -> bytes:
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most_bytes:
            raise UnknownQueryError(f"what was sent is larger than {most_bytes:,} bytes; send less at once")
    return bytes(body)


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body or b"{}")
    except ValueError as error:
        raise UnknownQueryError(f"parameters must be a JSON object: {error}") from error
    if not isinstance(content, dict):
        raise UnknownQueryError("parameters must be a JSON object")
    return content


def _arrow(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def _refused() -> Response:
    return JSONResponse({"error": "StoreError", "message": "the bearer token is missing or wrong"}, 401)


def _failed(error: StoreError) -> Response:
    code = _STATUS_OF.get(type(error), 500)
    if code == 500:
        _LOG.error("request_failed", error=str(error))
    return JSONResponse({"error": type(error).__name__, "message": str(error)}, code)
