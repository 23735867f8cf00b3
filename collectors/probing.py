"""Who answers at an endpoint: probes in a small pool, with a memory of what was there before."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import PurePath
from urllib.parse import urlsplit

import structlog

from collectors.discovery import CONFIGURED
from collectors.engines.answers import state_of_error
from collectors.engines.base import Adapter, Endpoint, Http, Identity
from collectors.http_errors import ConnectFailedError, HttpError, TimedOutError
from store.model import EngineState

log = structlog.get_logger(__name__)

_PASSING = (EngineState.LOADING, EngineState.BUSY, EngineState.UNREACHABLE)  # asked again soon
_Key = tuple[int | None, float | None, str]


@dataclass(frozen=True, slots=True)
class Found:
    """
    An endpoint with the engine that answers there, or that is going to (state ``loading``).

    `models`: the further engines behind it (models that a router has loaded).
    """

    endpoint: Endpoint
    adapter: Adapter
    identity: Identity
    models: tuple[tuple[Endpoint, Identity], ...] = ()

    def all(self, endpoint: Endpoint) -> list[Found]:
        """This one at `endpoint`, as discovery sees it now, and those behind it."""
        behind = [Found(at, self.adapter, identity) for at, identity in self.models]
        return [replace(self, endpoint=endpoint), *behind]


@dataclass(frozen=True, slots=True)
class Miss:
    """An endpoint where no engine was identified, and what was observed."""

    endpoint: Endpoint
    detail: str


@dataclass(slots=True)
class _Memory:
    """What is known of one (process, start, URL)."""

    due: float  # monotonic seconds of the next probe
    found: Found | None = None
    failures: int = 0
    detail: str = "no answer yet"
    probe: Future[Found | str] | None = None


class Prober:
    """
    Identifies endpoints, each at most once at a time, and remembers the outcome for one life of a process.

    What was identified is asked again every `identity_seconds`, and in each call where its models come and
    go. What was refused is asked again after `retry_seconds`, doubling up to `retry_limit_seconds`; an endpoint
    that is configured or whose process looks like an engine is never put off for longer than
    `likely_limit_seconds`. When another process takes a port over, nothing that was remembered holds for it.
    """

    def __init__(
        self,
        *,
        threads: int = 8,
        wait_seconds: float = 2.0,
        identity_seconds: float = 30.0,
        retry_seconds: float = 5.0,
        retry_limit_seconds: float = 300.0,
        likely_limit_seconds: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pool = ThreadPoolExecutor(max_workers=threads, thread_name_prefix="probe")
        self._unlikely_slots = threading.BoundedSemaphore(max(1, threads // 2))
        self._wait_seconds = wait_seconds
        self._identity_seconds = identity_seconds
        self._retry_seconds = retry_seconds
        self._retry_limit_seconds = retry_limit_seconds
        self._likely_limit_seconds = likely_limit_seconds
        self._clock = clock
        self._memory: dict[_Key, _Memory] = {}
        self._misses: tuple[Miss, ...] = ()

    def find(self, endpoints: Sequence[Endpoint], adapters: Sequence[Adapter], http: Http) -> list[Found]:
        """
        What answers at `endpoints`. Takes at most `wait_seconds`: a probe that is not done by then goes on,
        and its outcome is in a later call; a port that hangs delays no other.

        An endpoint identified before keeps its identity with state ``busy`` or ``unreachable`` when it
        stops answering, until its process or socket is no longer in `endpoints`.
        """
        previous, self._memory = self._memory, {}
        started: list[Future[Found | str]] = []
        likely = {_key(endpoint): _likely(endpoint, adapters) for endpoint in endpoints}
        for endpoint in sorted(endpoints, key=lambda e: not likely[_key(e)]):
            key = _key(endpoint)
            memory = self._memory[key] = previous.get(key) or _Memory(due=self._clock())
            self._settle(memory, likely[key])
            if memory.probe is None and self._clock() >= memory.due:
                memory.probe = self._submit(endpoint, adapters, http, memory.found, likely[key])
            if memory.probe is not None:
                started.append(memory.probe)
        wait(started, timeout=self._wait_seconds)
        result, misses = [], []
        for endpoint in endpoints:
            memory = self._memory[_key(endpoint)]
            self._settle(memory, likely[_key(endpoint)])
            if memory.found is not None:
                result += memory.found.all(endpoint)
            else:
                misses.append(Miss(endpoint, memory.detail))
        self._misses = tuple(misses)
        return result

    def misses(self) -> tuple[Miss, ...]:
        """The endpoints of the newest `find` where no engine was identified, with the reason."""
        return self._misses

    def close(self) -> None:
        """Start no further probes. Those under way end with their time limit."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _submit(
        self, endpoint: Endpoint, adapters: Sequence[Adapter], http: Http, before: Found | None, likely: bool
    ) -> Future[Found | str] | None:
        if likely:
            return self._pool.submit(_probe, endpoint, adapters, http, before)
        # strangers that hang may hold half of the threads, never all
        if not self._unlikely_slots.acquire(blocking=False):
            return None
        probe = self._pool.submit(_probe, endpoint, adapters, http, before)
        probe.add_done_callback(lambda _: self._unlikely_slots.release())
        return probe

    def _settle(self, memory: _Memory, likely: bool) -> None:
        """Take in the outcome of a probe that is done."""
        if memory.probe is None or not memory.probe.done():
            return
        outcome, memory.probe = memory.probe.result(), None
        if isinstance(outcome, Found):
            settled = outcome.identity.state not in _PASSING
            memory.found, memory.failures, memory.detail = outcome, 0, ""
            again = self._identity_seconds if settled else self._retry_seconds
            memory.due = self._clock() + (0.0 if settled and outcome.identity.models_come_and_go else again)
            return
        memory.failures += 1
        memory.found, memory.detail = None, outcome
        limit = self._likely_limit_seconds if likely else self._retry_limit_seconds
        memory.due = self._clock() + min(limit, self._retry_seconds * 2 ** min(memory.failures - 1, 16))


def _key(endpoint: Endpoint) -> _Key:
    return endpoint.pid, endpoint.process_start, endpoint.url


def _looks_like(adapter: Adapter, endpoint: Endpoint) -> bool:
    name = PurePath(endpoint.arguments[0]).name if endpoint.arguments else ""
    return bool(endpoint.arguments) and adapter.looks_like(endpoint.arguments, name)


def _likely(endpoint: Endpoint, adapters: Sequence[Adapter]) -> bool:
    return endpoint.found_by == CONFIGURED or any(_looks_like(adapter, endpoint) for adapter in adapters)


def _order(endpoint: Endpoint, adapters: Sequence[Adapter], found: Found | None) -> list[Adapter]:
    """What it was before, then what the process looks like, then whose usual port it is, then the others."""
    port = urlsplit(endpoint.url).port
    return sorted(
        adapters,
        key=lambda adapter: (
            found is None or adapter is not found.adapter,
            not _looks_like(adapter, endpoint),
            port not in adapter.usual_ports,
        ),
    )


def _probe(endpoint: Endpoint, adapters: Sequence[Adapter], http: Http, before: Found | None) -> Found | str:
    """The engine at `endpoint`, or why none was identified."""
    faults = []
    for adapter in _order(endpoint, adapters, before):
        try:
            identity = adapter.identify(endpoint, http)
        except (ConnectFailedError, TimedOutError) as error:  # no other adapter would hear more
            return _silent(endpoint, adapters, before, error)
        except HttpError as error:
            faults.append(f"{adapter.title}: {error}")
        except Exception as error:
            log.warning("adapter failed", kind=adapter.kind, url=endpoint.url, exc_info=True)
            faults.append(f"{adapter.title}: {type(error).__name__} in its adapter; see the collector's log")
        else:
            if identity is not None:
                return Found(endpoint, adapter, identity, _models(endpoint, adapter, identity, http, before))
    if faults:
        return "no engine was identified: " + "; ".join(dict.fromkeys(faults))
    return "something answers, but not as " + ", ".join(adapter.title for adapter in adapters)


def _models(
    endpoint: Endpoint, adapter: Adapter, identity: Identity, http: Http, before: Found | None
) -> tuple[tuple[Endpoint, Identity], ...]:
    """The engines behind an endpoint; those of before when it does not tell now."""
    try:
        return tuple(adapter.expand(endpoint, identity, http))
    except HttpError as error:
        log.info("models not listed", url=endpoint.url, reason=str(error))
        return before.models if before is not None else ()


def _silent(
    endpoint: Endpoint, adapters: Sequence[Adapter], before: Found | None, error: ConnectFailedError | TimedOutError
) -> Found | str:
    """What to make of no answer: what was there before, or the process, tells which engine is silent."""
    expected = before.adapter if before else next((a for a in adapters if _looks_like(a, endpoint)), None)
    if expected is None:
        return str(error)
    state, detail = state_of_error(endpoint, error, expected.title)
    known = before.identity if before else Identity(kind=expected.kind, state=state)
    models = before.models if before and state is EngineState.BUSY else ()
    return Found(endpoint, expected, replace(known, state=state, detail=detail), models)
