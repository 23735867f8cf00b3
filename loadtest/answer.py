"""
What one answer was: when its tokens came, how many they were, how it ended.

Reading is put off until an answer is complete, so that the arrival of others is stamped on time: the connection
keeps (arrival, bytes) pairs and this module walks them later.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from collectors.redaction import redact_text
from loadtest.sse import EventReader
from loadtest.tokens import TokenCounts

MOST_MESSAGE = 200  # characters of a server's error message that are kept
_VISIBLE = ("content", "refusal")
_UNSEEN = ("reasoning_content", "reasoning", "tool_calls", "function_call")
_FAILED = ("error", "abort")  # finish reasons


@dataclass(slots=True)
class Answer:
    """Filled by `read_events` or `read_document`. Times are those of the pieces that brought the events."""

    counts: TokenCounts = field(default_factory=TokenCounts)
    chunk_at: array[float] = field(default_factory=lambda: array("d"))
    chunk_tokens: list[int | None] = field(default_factory=list)
    first_visible_at: float | None = None
    finish_reason: str | None = None
    done: bool = False  # the server said that this was all
    error: str | None = None
    _told: int = 0  # output tokens that the server had told with the newest chunk with text
    _all_told: bool = True  # whether that chunk told them

    def fail(self, why: str) -> None:
        """Keep the first reason for which it failed."""
        self.error = self.error or why

    def take(self, at: float, chunk: Mapping[str, Any], part: str) -> None:
        """One chunk that arrived at `at`; `part` holds the text of a chat's choice: delta | message."""
        output = self.counts.read(chunk)
        if chunk.get("error"):
            self.fail(f"the server reported an error within its answer: {error_message(chunk)}")
            return
        choices = chunk.get("choices")
        if not isinstance(choices, list):
            return
        for choice in choices[:1]:
            if isinstance(choice, dict):
                self._choice(at, choice, part, output)

    def _choice(self, at: float, choice: Mapping[str, Any], part: str, output: int | None) -> None:
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self.finish_reason = reason[:40]
            if reason in _FAILED:
                self.fail(f"the server ended the answer with finish_reason {reason!r}")
        text = choice.get(part)
        if isinstance(text, dict):
            visible = any(text.get(name) for name in _VISIBLE)
            some = visible or any(text.get(name) for name in _UNSEEN)
        else:
            some = visible = bool(choice.get("text"))
        if not some:
            return
        self.chunk_at.append(at)
        if visible and self.first_visible_at is None:
            self.first_visible_at = at
        if output is None:
            self.chunk_tokens.append(None)
            self._all_told = False
            return
        self.chunk_tokens.append(output - self._told if self._all_told and output >= self._told else None)
        self._told, self._all_told = output, True


def read_events(answer: Answer, arrivals: array[float], pieces: list[bytes]) -> Iterator[None]:
    """Read a streamed answer. Pauses after every piece, so that long ones can be read between other work."""
    events = EventReader()
    at = 0.0
    for at, piece in zip(arrivals, pieces, strict=True):
        for data in events.feed(piece):
            _event(answer, at, data)
        yield
    for data in events.finish():
        _event(answer, at, data)
    if events.failed:
        answer.fail("the server sent an event named 'error'")


def read_document(answer: Answer, arrived: float, body: bytes) -> None:
    """Read an answer that is one JSON document: the whole of it arrived at once."""
    document = _json(body)
    if document is None:
        answer.fail("the answer is neither an event stream nor a JSON object")
        return
    answer.take(arrived, document, "message")
    answer.done = True


def error_message(document: Mapping[str, Any] | None, body: bytes = b"") -> str:
    """A server's error in short, without what looks like a secret."""
    if document is not None:
        message: Any = document.get("error") or document.get("message") or document.get("detail")
        if isinstance(message, list) and message:  # FastAPI's list of what was wrong, which quotes the request
            message = message[0]
        if isinstance(message, dict):
            message = message.get("message") or message.get("msg") or message.get("type")
        text = message if isinstance(message, str) else "no message"
    else:
        text = body.decode("utf-8", "replace") or "no message"
    text = redact_text(" ".join(text.split()))
    return text if len(text) <= MOST_MESSAGE else text[: MOST_MESSAGE - 3] + "..."


def refusal(status: int, body: bytes) -> str:
    """Why an answer with an HTTP error failed."""
    return f"HTTP {status}: {error_message(_json(body), body)}"


def _event(answer: Answer, at: float, data: bytes) -> None:
    if data == b"[DONE]":
        answer.done = True
        return
    chunk = _json(data)
    if chunk is None:
        answer.fail("an event of the stream is no JSON object")
    else:
        answer.take(at, chunk, "delta")


def _json(body: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None
