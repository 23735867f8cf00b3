"""
The HTTP routes beside the pages: `/healthz`, `/metrics` and `/export/<table>.csv`.

They read through the collector like the pages do, and check access themselves, since routes do not
pass through a login of the pages. No path parameter reaches the file system: a table is a name that the
store knows or does not.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import chain
from typing import Any

from prometheus_client.exposition import choose_encoder
from starlette.concurrency import iterate_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route

import access
from store.protocol import (
    NOTES_HEADER,
    ExportRequest,
    StoreBusyError,
    StoreError,
    StoreUnavailableError,
    UnknownQueryError,
)
from views import data, exposition

STALE_SECONDS = 30.0
_EXPORT_PARAMETERS = {"from", "to", "engine", "run", "points"}
_TABLE = re.compile(r"[a-z][a-z0-9_]{0,63}")


def routes() -> list[BaseRoute]:
    """The routes to hand to `st.App`."""
    return [
        Route("/healthz", healthz, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
        Route("/export/{table}.csv", export, methods=["GET"]),
    ]


async def healthz(request: Request) -> Response:
    """
    Whether figures arrive: 200 with status `ok`, else 503 with `down` (no collector), `busy`, or `stale`.

    `stale` means that the newest sample is older than 30 s; `newest_sample_age_seconds` is null when there is none.
    """
    if not _may_read(request):
        return _refused()
    now = datetime.now(UTC)
    try:
        collector, status = await asyncio.to_thread(_collector_and_status)
    except StoreError as error:
        word = "busy" if isinstance(error, StoreBusyError) else "down"
        body = {"status": word, "collector": None, "newest_sample_age_seconds": None, "message": str(error)}
        return JSONResponse(body, status_code=503)
    newest = status.get("newest_ts")
    age = (now - newest).total_seconds() if newest is not None else None
    stale = age is None or age > STALE_SECONDS
    return JSONResponse(
        {
            "status": "stale" if stale else "ok",
            "collector": collector,
            "newest_sample_age_seconds": age,
            "schema_version": status.get("schema_version"),
            "store_file_bytes": status.get("file_bytes"),
        },
        status_code=503 if stale else 200,
    )


def _collector_and_status() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    rows = data.records("status")
    return data.health(), rows[0] if rows else {}


async def metrics(request: Request) -> Response:
    """Our normalised values as Prometheus or OpenMetrics text, as the scraper asks for."""
    if not _may_read(request):
        return _refused()
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    body = await asyncio.to_thread(lambda: encode(exposition.registry()))
    return Response(body, headers={"content-type": content_type})


async def export(request: Request) -> Response:
    """
    A table, or the series of a chart, as CSV, streamed.

    `from` and `to` are ISO 8601 times, `engine` an engine_id or label, `run` the run_id of a load test, `points` how
    many rows each line of a series may have. Archived rows that could not be read are told in a header.
    """
    if not _may_read(request):
        return _refused()
    table = request.path_params["table"]
    unknown = set(request.query_params) - _EXPORT_PARAMETERS
    if unknown:
        told = f"Unknown parameter {', '.join(sorted(unknown))}: use from, to, engine, run, points.\n"
        return PlainTextResponse(told, 400)
    if not _TABLE.fullmatch(table):
        return PlainTextResponse("No such table. Table names look like engine_sample.\n", 404)
    try:
        wanted = _wanted(request, table)
    except ValueError as error:
        return PlainTextResponse(f"{error}\n", 400)
    if wanted.start is not None and wanted.end is not None and wanted.end <= wanted.start:
        return PlainTextResponse("to must be after from.\n", 400)
    try:
        notes, chunks = await asyncio.to_thread(_opened, wanted)
    except UnknownQueryError as error:
        return PlainTextResponse(f"{error}\n", 404)
    except (StoreBusyError, StoreUnavailableError) as error:
        return PlainTextResponse(f"{error}\n", 503, headers={"retry-after": "5"})
    except StoreError as error:
        return PlainTextResponse(f"{error}\n", 500)
    return StreamingResponse(
        iterate_in_threadpool(chunks),
        media_type="text/csv; charset=utf-8",
        headers={
            "content-disposition": f'attachment; filename="engine-room_{table}.csv"',
            **({NOTES_HEADER: json.dumps(notes)} if notes else {}),
        },
    )


def _wanted(request: Request, table: str) -> ExportRequest:
    start, end = (_moment(request, name) for name in ("from", "to"))
    given = request.query_params
    points = given.get("points")
    if points is not None and not points.isdecimal():
        raise ValueError(f"points={points} is not a whole number.")
    return ExportRequest(table, start, end, given.get("engine"), given.get("run"), int(points) if points else None)


def _opened(wanted: ExportRequest) -> tuple[tuple[str, ...], Iterator[bytes]]:
    """The export with its first chunk read, so that a refusal becomes a status code and not half a file."""
    begun = data.client().export_csv(
        wanted.table, wanted.start, wanted.end, wanted.engine, run=wanted.run, points=wanted.points
    )
    first = next(begun, b"")
    return begun.notes, chain((first,), begun)


def _moment(request: Request, name: str) -> datetime | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}={text} is not an ISO 8601 time such as 2026-12-01T12:00:00Z.") from error


def _may_read(request: Request) -> bool:
    return access.may_read(request.client.host if request.client else None, request.headers)


def _refused() -> Response:
    return PlainTextResponse("This address may not read here.\n", 403)
