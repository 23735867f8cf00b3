"""
What the load generator hands to the statistics: the times of each request, the steady window, and how it fared itself.

Every time is in seconds on one monotonic clock (`time.perf_counter`), counted from the beginning of its stage.
``None`` means "did not happen", "not told" or "not measurable", never 0. The definitions of the measures are those of
`vllm bench serve` where it is right, with the corrections that its users reported since: a role or an empty chunk is
no token, a chunk is not a token, and a reply in one chunk has no TPOT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "error", "cancelled"]
Severity = Literal["ok", "note", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Window:
    """The steady part of a stage: all users busy, until the first of them finds no more work."""

    begin_seconds: float
    end_seconds: float

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end_seconds - self.begin_seconds

    def holds(self, timing: RequestTiming) -> bool:
        """Whether a request was sent and done inside it."""
        return (
            timing.sent_seconds is not None
            and timing.done_seconds is not None
            and timing.sent_seconds >= self.begin_seconds
            and timing.done_seconds <= self.end_seconds
        )


@dataclass(frozen=True, slots=True)
class RequestTiming:
    """
    One request as the client saw it; fields as in `store.loadtest_rows.LoadtestRequest`.

    `chunk_seconds` holds the arrival of each chunk that carried content, reasoning or a tool call. `chunk_tokens` is
    as long and says how many tokens each of them brought, ``None`` where the server did not tell.
    """

    request: int
    status: Status
    error: str | None = None
    finish_reason: str | None = None
    http_status: int | None = None
    scheduled_seconds: float | None = None
    sent_seconds: float | None = None
    headers_seconds: float | None = None
    first_data_seconds: float | None = None
    first_token_seconds: float | None = None
    first_visible_seconds: float | None = None
    last_token_seconds: float | None = None
    done_seconds: float | None = None
    asked_input_tokens: int | None = None
    asked_output_tokens: int | None = None
    input_tokens: int | None = None
    cached_input_tokens: int | None = None
    output_tokens: int | None = None
    first_chunk_tokens: int | None = None
    tokens_source: str | None = None
    chunk_seconds: Sequence[float] = ()
    chunk_tokens: Sequence[int | None] = ()

    @property
    def chunks(self) -> int | None:
        """Chunks that carried text; ``None`` when no answer was streamed."""
        return len(self.chunk_seconds) if self.first_data_seconds is not None else None

    @property
    def ttft_seconds(self) -> float | None:
        """Time to the first token: sent to the first non-empty content, reasoning or tool-call delta."""
        return _difference(self.first_token_seconds, self.sent_seconds)

    @property
    def ttfv_seconds(self) -> float | None:
        """Time to the first visible token: as TTFT, but reasoning and tool calls do not count."""
        return _difference(self.first_visible_seconds, self.sent_seconds)

    @property
    def e2e_seconds(self) -> float | None:
        """Sent to the last token; the chunk with only the usage does not count."""
        return _difference(self.last_token_seconds, self.sent_seconds)

    @property
    def from_schedule_seconds(self) -> float | None:
        """Due to the last token: what a user waits who came on time."""
        return _difference(self.last_token_seconds, self.scheduled_seconds)

    @property
    def tpot_seconds(self) -> float | None:
        """
        Time per output token after the first chunk: (last - first) / (tokens - tokens of the first chunk).

        ``None`` for a reply in one chunk, and where the tokens are not known. A first chunk of unknown size counts as
        one token.
        """
        if self.first_token_seconds is None or self.last_token_seconds is None or self.output_tokens is None:
            return None
        later = self.output_tokens - (self.first_chunk_tokens or 1)
        if later <= 0 or len(self.chunk_seconds) < 2:
            return None
        return (self.last_token_seconds - self.first_token_seconds) / later

    @property
    def gaps_seconds(self) -> list[float]:
        """Times between successive chunks that carried text (ICL): gaps between chunks, not between tokens."""
        return [later - earlier for earlier, later in zip(self.chunk_seconds[:-1], self.chunk_seconds[1:], strict=True)]


@dataclass(frozen=True, slots=True)
class ClientFigures:
    """
    How the load generator itself fared, over one stage or a whole run.

    Lag is how much later than asked the event loop woke up a timer; lateness is from the moment at which a request was
    due (in a closed loop: its user was free) to the moment at which it was written to its connection.
    """

    seconds: float  # that the figures cover
    cpu_fraction: float  # CPU time of the process over `seconds`; it has one busy thread, so 1 is its ceiling
    lag_p99_seconds: float | None
    lag_max_seconds: float | None
    lateness_p99_seconds: float | None
    lateness_max_seconds: float | None
    connections: int  # most that were open at once
    connection_limit: int | None  # that the operating system allows this process; None: no limit
    chunks_per_second: float | None  # streamed chunks that it took in
    ceiling_chunks_per_second: float | None  # what it takes in at most, measured on this machine before the run
    held_back: int = 0  # open loop: requests that were due while the most allowed were in flight


@dataclass(frozen=True, slots=True)
class Judgement:
    """What a run says against itself or in its own favour. `stage_id` None: about the whole run."""

    code: str
    severity: Severity
    text: str
    stage_id: int | None = None


def _difference(later: float | None, earlier: float | None) -> float | None:
    return None if later is None or earlier is None else later - earlier
