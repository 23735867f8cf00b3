"""What the importers share: bounded parsing, careful look-ups, and rows in which nothing is known yet."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any

from collectors.redaction import redact_text
from loadtest.statistics import STATISTICS, Distribution
from loadtest.timing import Severity
from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestRun, LoadtestStage

MOST_CHARACTERS = 64_000_000  # of one file; a result with every request of a long run has about 20 million
MOST_STAGES, MOST_REQUESTS = 2_000, 1_000_000
_MOST_TEXT = 200
_GREATEST = 1e19  # no file has a greater number: that of nanoseconds since 1970 is 1.8e18
IMPORTED = "imported"  # code of the judgement that says what a file lacks
DEFINITIONS = "definitions"  # code of the judgement that says how its measures are defined


class ImportFailedError(ValueError):
    """A file can't be imported; the message names it and says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class File:
    """One result file as it came in, and what its rows have in common."""

    name: str
    now: datetime
    host: str
    run_id: str

    def fail(self, what: str) -> ImportFailedError:
        """The error to raise."""
        return ImportFailedError(f"{self.name}: {what}")

    def run(self, source: str, *, began: datetime | None, ended: datetime | None, trusted: bool | None) -> LoadtestRun:
        """The run that the file becomes."""
        return LoadtestRun(
            ts=self.now, host=self.host, run_id=self.run_id, name=self.name, state="imported", source=source,
            started_by="import", began=began, ended=ended, spec=None, client=None, detail=None, trusted=trusted,
        )  # fmt: skip

    def stage(self, stage_id: int, **known: Any) -> LoadtestStage:
        """A stage with what is known of it. `details` is a mapping here."""
        empty: dict[str, Any] = dict.fromkeys(field.name for field in fields(LoadtestStage))
        given: dict[str, Any] = {
            "ts": self.now, "ended": known.get("ts", self.now), "host": self.host, "run_id": self.run_id, "url": "file",
            "stage_id": stage_id, "mode": "closed", "repeat": 0, "tokens_source": "file",
        }  # fmt: skip
        details = {name: value for name, value in known.pop("details", {}).items() if value is not None}
        if details:
            given["details"] = json.dumps(details, allow_nan=False)
        return LoadtestStage(**(empty | given | known))

    def request(self, stage_id: int, number: int, **known: Any) -> LoadtestRequest:
        """A request with what is known of it."""
        empty: dict[str, Any] = dict.fromkeys(field.name for field in fields(LoadtestRequest))
        given: dict[str, Any] = {
            "ts": self.now, "host": self.host, "run_id": self.run_id, "stage_id": stage_id, "request": number,
            "in_window": False, "tokens_source": "file",
        }  # fmt: skip
        return LoadtestRequest(**(empty | given | known))

    def judgement(self, code: str, severity: Severity, text: str, stage_id: int | None = None) -> LoadtestJudgement:
        """Something to know about the file."""
        return LoadtestJudgement(self.now, self.host, self.run_id, stage_id, code, severity, text)


def parse(text: str, file: File) -> Any:
    """
    The JSON document in a text, or the list of the documents on its lines. NaN and infinity become None.

    Raises `ImportFailedError`.
    """
    try:
        return json.loads(text, parse_constant=_not_a_number)
    except RecursionError:
        raise file.fail("its JSON is nested too deeply for a result file") from None
    except ValueError as whole:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not lines[0].lstrip().startswith("{") or not lines[0].rstrip().endswith("}"):
            raise file.fail(f"it is neither JSON nor CSV of a known tool ({whole})") from None
    documents = []
    for number, line in enumerate(lines, 1):
        try:
            documents.append(json.loads(line, parse_constant=_not_a_number))
        except (ValueError, RecursionError) as wrong:
            raise file.fail(f"line {number} is not JSON ({wrong}); was the file cut off?") from None
    return documents


def mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: Any) -> list[Any]:
    """The value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """A number, or None; text that spells one is one (CSV), a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if abs(found) < _GREATEST else None


def positive(value: Any) -> float | None:
    """A number that is not negative, or None: times and counts are never less than nothing."""
    found = number(value)
    return found if found is not None and found >= 0 else None


def whole(value: Any) -> int | None:
    """A count, or None."""
    found = positive(value)
    return round(found) if found is not None and found < 2**53 else None


def seconds(milliseconds: Any) -> float | None:
    """Seconds from milliseconds."""
    found = positive(milliseconds)
    return None if found is None else found / 1000


def text_of(value: Any) -> str | None:
    """Text of one line in bounded length, without what looks like a secret; None for anything that is no text."""
    if not isinstance(value, str) or not value.strip():
        return None
    plain = redact_text(" ".join("".join(c if c.isprintable() else " " for c in value[: 20 * _MOST_TEXT]).split()))
    return plain if len(plain) <= _MOST_TEXT else plain[: _MOST_TEXT - 3] + "..."


def last_part(path: str | None) -> str | None:
    """The name of a model file or repository without the folders that it lies in on somebody's host."""
    if path is None or (not path.startswith(("/", "~", ".", "\\")) and ":\\" not in path):
        return path
    return path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def moment(unix_seconds: Any) -> datetime | None:
    """A time of day from Unix seconds; None for what is no time of this century."""
    found = number(unix_seconds)
    if found is None or not 946_684_800 <= found < 4_102_444_800:
        return None
    return datetime.fromtimestamp(found, UTC)


def iso_moment(value: Any) -> datetime | None:
    """A time of day from ISO 8601 that names its zone; without one it is nobody's time and None."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value.strip())
    except ValueError:
        return None
    return found.astimezone(UTC) if found.tzinfo is not None else None


def columns(name: str, values: Iterable[float | None]) -> dict[str, float | None]:
    """The columns of one latency from its values in seconds."""
    found = Distribution.of(values)
    return {f"{name}_{each}": None if found is None else getattr(found, each) for each in STATISTICS}


def failed_share(file: File, failed: int | None, ended: int | None, stage_id: int) -> list[LoadtestJudgement]:
    """The judgement of a stage of which too many requests failed."""
    if not failed or not ended or failed / ended <= 0.05:
        return []
    text = f"{failed} of {ended} requests failed ({failed / ended:.0%}).".replace("%", " %")
    return [file.judgement("errors", "failed", text, stage_id)]


def _not_a_number(name: str) -> None:
    return None
