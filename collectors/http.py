"""
HTTP towards engines: GET and nothing else, bounded in time and size.

Built on httpcore2 (the transport below httpx2) rather than on httpx2 itself, because only there
can every read be held to one deadline: httpx2's timeouts begin anew with each received byte, so a
server that drips its headers would hold a sampler for hours. It also follows no redirects and
reads no proxy variables. A keep-alive GET of a 52 kB body takes about 0.25 ms of CPU (httpx2
0.33 ms, http.client 0.11 to 0.17 ms; `python -m benchmarks.scrape`): 8 engines every 2 s cost 0.2 % of a
core, a fraction of the budget of 3 %, so the library is kept.
"""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterable
from types import TracebackType
from typing import Any

import httpcore2

from collectors.engines.base import Endpoint, Response
from collectors.http_errors import (
    ConnectFailedError,
    HttpError,
    ProtocolError,
    RedirectedError,
    TimedOutError,
    TooLargeError,
)
from collectors.redaction import redact_url
from settings import CollectorSettings

__all__ = [
    "ConnectFailedError",
    "HttpClient",
    "HttpError",
    "ProtocolError",
    "RedirectedError",
    "TimedOutError",
    "TooLargeError",
]


class _Deadline(threading.local):
    """The moment (monotonic seconds) at which this thread's current request must be done."""

    at: float = float("inf")

    def clamp(self, timeout: float | None) -> float:
        """Seconds this operation may take. Raises httpcore2's ReadTimeout when none are left."""
        left = self.at - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout
        return left if timeout is None else min(left, timeout)


class _DeadlineStream(httpcore2.NetworkStream):
    """A connection whose every operation ends at the thread's deadline."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: _Deadline) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, self._deadline.clamp(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, self._deadline.clamp(timeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: Any, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        stream = self._stream.start_tls(ssl_context, server_hostname, self._deadline.clamp(timeout))
        return _DeadlineStream(stream, self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class _DeadlineBackend(httpcore2.NetworkBackend):
    """Opens connections that obey the thread's deadline."""

    def __init__(self, deadline: _Deadline) -> None:
        self._backend = httpcore2.SyncBackend()
        self._deadline = deadline

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        stream = self._backend.connect_tcp(host, port, self._deadline.clamp(timeout), local_address, socket_options)
        return _DeadlineStream(stream, self._deadline)


class HttpClient:
    """
    GETs of engine endpoints over kept-alive connections. May be shared by threads.

    A request takes at most `request_timeout_seconds` of the settings from connecting to the last byte
    (plus the resolver's time for host names), of which `connect_timeout_seconds` may go to connecting;
    a body over `max_body_bytes`, counted after decompression, is refused.
    """

    def __init__(self, settings: CollectorSettings, *, connect_timeout_seconds: float = 3.0) -> None:
        self._timeout_seconds = settings.request_timeout_seconds
        self._connect_timeout_seconds = connect_timeout_seconds
        self._max_body_bytes = settings.max_body_bytes
        self._deadline = _Deadline()
        self._pool = httpcore2.ConnectionPool(
            max_connections=None,
            max_keepalive_connections=64,
            keepalive_expiry=60.0,
            network_backend=_DeadlineBackend(self._deadline),
        )

    def __enter__(self) -> HttpClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.close()

    def get(self, endpoint: Endpoint, path: str, *, accept: str = "application/json") -> Response:
        """
        Fetch `endpoint.url + path` and return the complete answer, whatever its status.

        Raises `ConnectFailedError` (refused, no route, DNS), `TimedOutError`, `TooLargeError`,
        `RedirectedError` or `ProtocolError`. No message contains the API key.
        """
        headers = [
            (b"Accept", accept.encode("ascii")),
            (b"Accept-Encoding", b"identity"),
            (b"User-Agent", b"engine-room"),
        ]
        if endpoint.api_key:
            headers.append((b"Authorization", b"Bearer " + endpoint.api_key.encode("utf-8")))
        url = endpoint.url + path
        self._deadline.at = time.monotonic() + self._timeout_seconds
        try:
            return self._get(url, headers, may_retry=True)
        except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
            raise self._connect_failed(endpoint.url, error) from error
        except (httpcore2.TimeoutException, TimeoutError) as error:
            raise TimedOutError(f"no complete answer to GET {path} within {self._timeout_seconds:g} s") from error
        except httpcore2.LocalProtocolError:
            # Its message quotes the offending header, which may be the API key: raised without its cause.
            raise ProtocolError(
                "the request could not be sent: the URL or the API key contains characters that HTTP does not allow"
            ) from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.UnsupportedProtocol) as error:
            reason = str(error)[:100] or type(error).__name__
            raise ProtocolError(f"the answer to GET {path} broke off or is not HTTP ({reason})") from error
        finally:
            self._deadline.at = float("inf")

    def _get(self, url: str, headers: list[tuple[bytes, bytes]], *, may_retry: bool) -> Response:
        timeouts = {"connect": self._connect_timeout_seconds}
        received_headers = False
        try:
            with self._pool.stream("GET", url, headers=headers, extensions={"timeout": timeouts}) as response:
                received_headers = True
                fields = {k.decode("latin-1").lower(): v.decode("latin-1") for k, v in response.headers}
                if 300 <= response.status < 400 and "location" in fields:
                    raise RedirectedError(
                        f"{url} redirects to {redact_url(fields['location'][:200])!r}; redirects are not followed, "
                        "so configure the address that answers itself"
                    )
                body = self._read(response, fields)
        except (httpcore2.RemoteProtocolError, httpcore2.ReadError, httpcore2.WriteError):
            # A server may close an idle connection in the moment in which it is used again. A GET may
            # be repeated; once is enough, because the second attempt opens a new connection.
            if received_headers or not may_retry:
                raise
            return self._get(url, headers, may_retry=False)
        return Response(response.status, fields.get("content-type", ""), body, fields)

    def _read(self, response: httpcore2.Response, fields: dict[str, str]) -> bytes:
        encoding = fields.get("content-encoding", "identity").strip().lower()
        if encoding not in ("identity", "", "gzip"):
            raise ProtocolError(f"the answer is encoded as {encoding[:40]!r}, which was not asked for")
        inflate = zlib.decompressobj(16 + zlib.MAX_WBITS) if encoding == "gzip" else None
        chunks: list[bytes] = []
        left_bytes = self._max_body_bytes
        for received in response.iter_stream():
            data = received
            if inflate is not None:
                try:
                    data = inflate.decompress(received, left_bytes + 1)
                except zlib.error as error:
                    raise ProtocolError("the answer claims to be gzip and is not") from error
            left_bytes -= len(data)
            if left_bytes < 0:
                raise TooLargeError(
                    f"the answer is larger than {self._max_body_bytes:,} bytes; this is no engine's metrics, "
                    "or max_body_bytes must be raised"
                )
            chunks.append(data)
        if inflate is not None and not inflate.eof:
            raise ProtocolError("the gzip answer is cut off")
        return b"".join(chunks)

    def _connect_failed(self, url: str, error: Exception) -> ConnectFailedError:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, OSError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, ConnectionRefusedError):
            return ConnectFailedError(f"nothing listens at {url}: connection refused", refused=True)
        if isinstance(error, httpcore2.ConnectTimeout):
            return ConnectFailedError(f"no connection to {url} within {self._connect_timeout_seconds:g} s")
        return ConnectFailedError(f"no connection to {url}: {cause or error}")
