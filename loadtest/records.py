"""
What a worker says while it runs: one JSON object a line (NDJSON) on its standard output.

Three kinds are rows of the store (`request`, `stage`, `judgement`). A worker knows neither under which id its run is
stored nor on whose behalf, so lines carry no `run_id` and no `host`; who reads them adds both. Requests of a stage come
at its end, because only then is its steady window known. No line holds a prompt, an answer or a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from typing import Any, TypeAlias, get_type_hints

import orjson

from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestStage

_ADDED_BY_READER = ("host", "run_id")


class RecordError(ValueError):
    """A line is no record of a worker; the message says why."""


@dataclass(frozen=True, slots=True)
class RunBegan:
    """The first record: the spec is accepted and the endpoints are about to be asked what they are."""

    ts: datetime
    seed: int
    stages: int  # planned
    spec: Mapping[str, Any]  # as it is run: level 1 added, seed chosen


@dataclass(frozen=True, slots=True)
class StageBegan:
    """A stage begins with its warm-up."""

    ts: datetime
    stage_id: int
    endpoint: int  # index in the spec
    label: str
    level: float
    repeat: int
    planned: int | None  # requests; None: as many as its duration allows


@dataclass(frozen=True, slots=True)
class Progress:
    """About once a second. `phase`: warm-up | measuring."""

    ts: datetime
    stage_id: int
    phase: str
    done: int
    planned: int | None
    failed: int
    in_flight: int
    output_tokens_per_second: float | None  # of the requests done in this stage; None: none is yet
    seconds_left: float | None  # of the run, estimated from what its stages took; None: no basis yet


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The last record. `state`: finished | stopped | failed; `client`: `timing.ClientFigures` of the whole run."""

    ts: datetime
    state: str
    detail: str | None
    client: Mapping[str, Any] | None


Record: TypeAlias = RunBegan | StageBegan | Progress | LoadtestRequest | LoadtestStage | LoadtestJudgement | RunEnded

_KINDS: Mapping[str, type[Record]] = {
    "run_began": RunBegan,
    "stage_began": StageBegan,
    "progress": Progress,
    "request": LoadtestRequest,
    "stage": LoadtestStage,
    "judgement": LoadtestJudgement,
    "run_ended": RunEnded,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_TIMES = {
    kind: tuple(name for name, hint in get_type_hints(kind).items() if hint in (datetime, datetime | None))
    for kind in _KINDS.values()
}
_FIELDS = {kind: tuple(field.name for field in fields(kind)) for kind in _KINDS.values()}


def to_line(record: Record) -> str:
    """The record as one line, without its end."""
    content = {name: value for name, value in asdict(record).items() if name not in _ADDED_BY_READER}
    return orjson.dumps({"record": _NAMES[type(record)], **content}).decode()


def from_line(line: str | bytes, host: str, run_id: str) -> Record:
    """The record of a line, with what only its reader knows. Raises `RecordError`."""
    try:
        content = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise RecordError(f"a line of a load test is no JSON ({error})") from error
    kind = _KINDS.get(content.pop("record", "")) if isinstance(content, dict) else None
    if kind is None:
        raise RecordError("a line of a load test is of no known kind: is its worker of another version?")
    given = {"host": host, "run_id": run_id, **content}
    try:
        values = {name: given[name] for name in _FIELDS[kind]}
        for name in _TIMES[kind]:
            if values[name] is not None:
                values[name] = datetime.fromisoformat(values[name])
    except (KeyError, TypeError, ValueError) as error:
        raise RecordError(f"a {_NAMES[kind]!r} line of a load test lacks or misstates {error}") from error
    return kind(**values)
