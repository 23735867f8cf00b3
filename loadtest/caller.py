"""One endpoint as the load generator talks to it: its connections, its dialect, its answers."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

import orjson

from loadtest.connection import Exchange
from loadtest.dialect import Dialect
from loadtest.pool import Pool
from loadtest.prompts import Prompt, TokenModel
from loadtest.reading import read_at_once
from loadtest.spec import EndpointSpec, Limits
from loadtest.timing import RequestTiming

_REFUSED = (400, 422)  # what servers answer to parameters that they do not know


class EndpointError(Exception):
    """An endpoint can't be tested; the message says why and what to do."""


class Caller:
    """
    Sends requests to one endpoint. `dialect` and `tokens` are what `loadtest.preparation` learned.

    The API key is read from its environment variable once and goes nowhere but into the requests.
    """

    def __init__(self, endpoint: EndpointSpec, limits: Limits) -> None:
        self.endpoint = endpoint
        self.pool = Pool(endpoint.url, limits.answer_bytes, limits.stall_seconds)
        self.model = endpoint.model
        self.dialect = Dialect(frozenset())
        self.tokens = TokenModel()
        self.key = _key(endpoint)
        base = urlsplit(endpoint.url)
        path = "/v1/chat/completions" if endpoint.api == "chat" else "/v1/completions"
        self._head = self._header("POST", base.path + path, base.netloc) + b"Content-Type: application/json\r\n"
        self._models = self._header("GET", f"{base.path}/v1/models", base.netloc) + b"\r\n"

    def request(self, prompt: Prompt, output_tokens: int) -> bytes:
        """A whole request, ready to be written."""
        body = orjson.dumps(self.dialect.document(self.endpoint.api, self.model, prompt, output_tokens))
        return self._head + b"Content-Length: %d\r\n\r\n" % len(body) + body

    async def ask(self, prompt: Prompt, output_tokens: int, note: Callable[[str], None]) -> RequestTiming:
        """
        One request outside of a stage.

        What the server refuses is left out of the dialect, with a note, and the request is made again. Raises
        `EndpointError` when it fails nevertheless.
        """
        while True:
            exchange = await self._connected(self.request(prompt, output_tokens))
            timing = read_at_once(exchange, prompt, self.key)
            if timing.status == "ok":
                return timing
            refused = exchange.status in _REFUSED
            left = self.dialect.without_refused(timing.error or "") if refused else None
            if left is None:
                raise EndpointError(f"{self.endpoint.name}: {timing.error or 'the request was cut off'}")
            self.dialect, meaning = left
            note(f"{self.endpoint.name}: {meaning}")

    def correct_tokens(self, read: int, asked: int, requests: int) -> None:
        """Adjust tokens a word so that prompts of `asked` tokens in sum would not have come out as `read`."""
        words = (asked - self.tokens.fixed * requests) / self.tokens.per_word
        own = read - self.tokens.fixed * requests
        if requests and words > 0 and own > 0:
            self.tokens = TokenModel(self.tokens.fixed, own / words)

    async def first_model(self) -> str | None:
        """The model that the server lists first; None where it lists none."""
        exchange = await self._connected(self._models)
        if exchange.status in (401, 403):
            variable = self.endpoint.api_key_env
            hint = f"the key in {variable} is not accepted" if variable else "name the key's variable in api_key_env"
            raise EndpointError(f"{self.endpoint.name}: the server wants an API key; {hint}")
        with suppress(orjson.JSONDecodeError, LookupError, TypeError):
            return str(orjson.loads(exchange.body())["data"][0]["id"])
        return None

    async def _connected(self, request: bytes) -> Exchange:
        try:
            return await self.pool.exchange(request)
        except OSError as error:
            reason = error.strerror or error
            raise EndpointError(
                f"{self.endpoint.name}: no connection to {self.endpoint.url} ({reason}); is it running?"
            ) from error

    def _header(self, method: str, path: str, host: str) -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            f"Host: {host}",
            "User-Agent: engine-room",
            "Accept: */*",
            "Accept-Encoding: identity",
        ]
        if self.key:
            lines.append(f"Authorization: Bearer {self.key}")
        return ("\r\n".join(lines) + "\r\n").encode("ascii")


def _key(endpoint: EndpointSpec) -> str | None:
    """The API key from the environment. Raises `EndpointError` when it is missing or can't be a header."""
    if endpoint.api_key_env is None:
        return None
    key = os.environ.get(endpoint.api_key_env, "").strip()
    if not key:
        raise EndpointError(f"{endpoint.name}: the environment variable {endpoint.api_key_env} holds no API key")
    if not key.isascii() or not key.isprintable():
        raise EndpointError(
            f"{endpoint.name}: the API key in {endpoint.api_key_env} holds characters that HTTP refuses"
        )
    return key
