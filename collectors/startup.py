"""
How long engines take to start: from the start of their process to the first sample that finds them ready, and to the
first that finds a generated token.

Both are upper bounds: what happened came after the sample before, which is `resolution_seconds` earlier. A life whose
beginning nobody saw has no figures, and the note says why.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

import psutil

from store.model import EngineSample, EngineState, Epoch, Row, Startup
from store.protocol import Sink

_NOT_YET = (EngineState.LOADING, EngineState.UNREACHABLE)
_SERVES = (EngineState.READY, EngineState.METRICS_DISABLED)
NOT_SEEN = "its process can't be seen, so when it started is not known"
RAN_ALREADY = "it ran already when the collector began to look"
CLOCK = "the clock was set meanwhile"
TOKEN_NOT_SEEN = "its first token came while nobody looked"  # noqa: S105 - a token of a model


@dataclass(slots=True)
class _Life:
    epoch_id: str
    told: Startup | None
    not_ready: datetime | None = None  # newest sample that found it not ready yet
    no_token: datetime | None = None  # newest sample that found no token yet
    over: bool = False  # nothing more will be told


class StartupWatch:
    """A `Sink` that passes everything on and adds a row when an engine becomes ready or generates its first token."""

    def __init__(
        self,
        sink: Sink,
        epoch_of: Callable[[str], Epoch | None],
        began: datetime,
        known: Iterable[Mapping[str, Any]] = (),
        starts_late_by: timedelta = timedelta(0),
    ) -> None:
        """
        `began`: when this collector began to look. `known`: the rows of the query `startups`. `starts_late_by`: how
        much too late the system tells the start of a process (see `start_error`).
        """
        self._sink, self._epoch_of, self._began, self._late = sink, epoch_of, began, starts_late_by
        self._lock = threading.Lock()
        names = [column.name for column in fields(Startup)]
        self._known = {row["epoch_id"]: Startup(**{name: row[name] for name in names}) for row in known}
        self._lives: dict[str, _Life] = {}

    def put(self, rows: Sequence[Row]) -> None:
        """Look at samples and pass on."""
        with self._lock:
            more = [self._look(row) for row in rows if isinstance(row, EngineSample)]
        self._sink.put([*rows, *(row for row in more if row is not None)])

    def _look(self, sample: EngineSample) -> Startup | None:
        life = self._lives.get(sample.engine_id)
        if life is None or life.epoch_id != sample.epoch_id:
            life = _Life(sample.epoch_id, self._known.get(sample.epoch_id))
            life.over = life.told is not None and (life.told.note or life.told.first_token_seconds) is not None
            self._lives[sample.engine_id] = life
        if life.over:
            return None
        if sample.state in _NOT_YET:
            life.not_ready = sample.ts
            return None
        epoch = self._epoch_of(sample.engine_id)
        if sample.state not in _SERVES or epoch is None or epoch.epoch_id != sample.epoch_id:
            return None
        before = life.told
        if life.told is None:
            life.told = self._ready(sample, epoch, life)
        if life.told.note is None:
            self._token(sample, life, life.told)
        life.over = (life.told.note or life.told.first_token_seconds) is not None
        return life.told if life.told is not before else None

    def _ready(self, sample: EngineSample, epoch: Epoch, life: _Life) -> Startup:
        row = Startup(sample.ts, sample.host, sample.engine_id, sample.epoch_id, epoch.started, None, None, None, None)
        if not epoch.started_is_process_start:
            return replace(row, note=NOT_SEEN)
        started = epoch.started - self._late
        if life.not_ready is None and started < self._began:
            return replace(row, note=RAN_ALREADY)
        life.not_ready = max(life.not_ready or started, started)
        life.no_token = life.not_ready
        if sample.ts < life.not_ready:
            return replace(row, note=CLOCK)
        return replace(
            row,
            started=started,
            ready_seconds=_seconds(sample.ts, started),
            resolution_seconds=_seconds(sample.ts, life.not_ready),
        )

    def _token(self, sample: EngineSample, life: _Life, told: Startup) -> None:
        counts = [c for c in (sample.generation_live_tokens_total, sample.generation_tokens_total) if c is not None]
        if not counts:
            return
        if max(counts) <= 0:
            life.no_token = sample.ts
        elif life.no_token is None or sample.ts < life.no_token:
            life.told = replace(told, ts=sample.ts, note=TOKEN_NOT_SEEN if life.no_token is None else CLOCK)
        else:
            life.told = replace(
                told,
                ts=sample.ts,
                first_token_seconds=_seconds(sample.ts, told.started),
                resolution_seconds=max(told.resolution_seconds or 0.0, _seconds(sample.ts, life.no_token)),
            )


def _seconds(later: datetime, earlier: datetime) -> float:
    return (later - earlier).total_seconds()


def start_error() -> timedelta:
    """
    How much too late the system tells when a process started; below 0: too early.

    Linux keeps the start in hundredths of a second since boot, but the moment of boot only as a whole second (btime in
    /proc/stat), which psutil adds. Elsewhere, and where the clocks of boot and wall disagree by more: 0.
    """
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    if clock is None:
        return timedelta(0)
    error = psutil.boot_time() - (time.time() - time.clock_gettime(clock))
    return timedelta(seconds=error) if abs(error) <= 1.5 else timedelta(0)
