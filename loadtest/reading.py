"""From what came back to the timing of one request."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from time import perf_counter

from collectors.redaction import HIDDEN
from loadtest import answer as answers
from loadtest.answer import Answer
from loadtest.connection import Exchange
from loadtest.prompts import Prompt
from loadtest.timing import RequestTiming, Status

_PIECES_AT_ONCE = 100


def read_at_once(exchange: Exchange, prompt: Prompt, key: str | None) -> RequestTiming:
    """The timing of a request, its clock beginning when it was sent."""
    reading = Reading(exchange, key)
    for _ in reading.steps():
        pass
    return reading.timing(0, prompt, exchange.sent_at, exchange.sent_at)


class Reading:
    """Turns what came back into a timing, in steps between which other work may be done. `key` must not get out."""

    def __init__(self, exchange: Exchange, key: str | None) -> None:
        self.exchange = exchange
        self.answer = Answer()
        self._key = key

    @property
    def cancelled(self) -> bool:
        """Whether the client itself ended the request, for no fault of it."""
        return not self.exchange.done and self.exchange.error is None

    def steps(self) -> Iterator[None]:
        """Read the answer; pauses every hundred pieces."""
        exchange = self.exchange
        if exchange.status is None or (exchange.error is not None and exchange.encoding not in ("", "identity")):
            return
        if exchange.status != 200:
            self.answer.fail(_not_ok(exchange))
        elif "json" in exchange.content_type and "event-stream" not in exchange.content_type:
            if exchange.done and exchange.arrivals:
                answers.read_document(self.answer, exchange.arrivals[-1], exchange.body())
        else:
            for number, _ in enumerate(answers.read_events(self.answer, exchange.arrivals, exchange.pieces), start=1):
                if number % _PIECES_AT_ONCE == 0:
                    yield
        exchange.pieces.clear()  # the text is not needed any more

    def timing(self, number: int, prompt: Prompt, scheduled_at: float | None, origin: float) -> RequestTiming:
        """What came out, on a clock that began at `origin`."""
        exchange, answer, counts = self.exchange, self.answer, self.answer.counts
        error = None if self.cancelled else self._error(prompt)
        chunk_at = answer.chunk_at

        def since(at: float | None) -> float | None:
            return None if at is None else at - origin

        status: Status = "cancelled" if self.cancelled else "error" if error else "ok"
        output, source = counts.output_tokens, counts.source
        if output is None and status == "ok":
            output, source = len(chunk_at), "chunks"
        return RequestTiming(
            request=number,
            status=status,
            error=error,
            finish_reason=answer.finish_reason,
            http_status=exchange.status,
            scheduled_seconds=since(scheduled_at),
            sent_seconds=since(exchange.sent_at),
            headers_seconds=since(exchange.headers_at),
            first_data_seconds=since(exchange.arrivals[0] if exchange.arrivals else None),
            first_token_seconds=since(chunk_at[0] if chunk_at else None),
            first_visible_seconds=since(answer.first_visible_at),
            last_token_seconds=since(chunk_at[-1] if chunk_at else None),
            done_seconds=since(exchange.done_at),
            asked_input_tokens=prompt.input_tokens,
            asked_output_tokens=prompt.output_tokens,
            input_tokens=counts.input_tokens,
            cached_input_tokens=counts.cached_input_tokens,
            output_tokens=output,
            first_chunk_tokens=answer.chunk_tokens[0] if answer.chunk_tokens else None,
            tokens_source=source,
            chunk_seconds=array("d", (at - origin for at in chunk_at)),
            chunk_tokens=answer.chunk_tokens,
        )

    def _error(self, prompt: Prompt) -> str | None:
        """Why the request failed; what quotes the prompt or the key is not kept."""
        exchange, answer = self.exchange, self.answer
        error = answer.error or exchange.error
        if error is None and not answer.done and answer.finish_reason is None:
            error = "the answer ended without [DONE] and without a finish_reason"
        if error is None and not answer.chunk_at:
            error = "the answer holds no text"
        if error is not None and self._key:
            error = error.replace(self._key, HIDDEN)
        if error is not None and prompt.nonce and prompt.nonce[:20] in error:
            error = "the server refused the request with a message that quotes its prompt"
        return error


def failed_to_connect(number: int, prompt: Prompt, error: OSError, scheduled: float, origin: float) -> RequestTiming:
    """A request that was never sent."""
    return RequestTiming(
        request=number,
        status="error",
        error=f"no connection ({error.strerror or error})",
        scheduled_seconds=scheduled - origin,
        done_seconds=perf_counter() - origin,
        asked_input_tokens=prompt.input_tokens,
        asked_output_tokens=prompt.output_tokens,
    )


def _not_ok(exchange: Exchange) -> str:
    if exchange.status is not None and 300 <= exchange.status < 400:
        return f"HTTP {exchange.status}: redirects are not followed; give the address that answers itself"
    return answers.refusal(exchange.status or 0, exchange.body())
