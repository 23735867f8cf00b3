"""
The windows of the Compare page as its URL says them: `w=` repeated, the first is the baseline.

    w=vllm-8000~2026-12-01T09:00:00Z~2026-12-01T10:00:00Z     an engine and a time range
    w=run:20261201T091500Z-4f2a~Qwen3-8B on vLLM~8            a load test: label of an endpoint, level

`run=<run_id>~<label>~<level>` is understood too, so that other pages can link to a run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from urllib.parse import urlencode, urlsplit, urlunsplit

from views import formatting
from views.urlstate import BadRangeError, frozen_window, iso

MOST_WINDOWS = 6
SHORTEST = timedelta(seconds=1)
SHIFTS = {"same hours yesterday": timedelta(days=1), "same hours last week": timedelta(days=7)}
_RUN = "run:"


class BadWindowError(ValueError):
    """A window of the link that can't be shown; the message says why."""


@dataclass(frozen=True, slots=True)
class EngineWindow:
    """One engine from `start` to `end`, aware UTC datetimes."""

    engine_id: str
    start: datetime
    end: datetime

    @property
    def seconds(self) -> float:
        """Length of the window in seconds."""
        return (self.end - self.start).total_seconds()

    def text(self) -> str:
        """As it stands in the URL."""
        return f"{self.engine_id}~{iso(self.start)}~{iso(self.end)}"

    def shifted(self, back: timedelta) -> EngineWindow:
        """The same engine and length, earlier by `back`."""
        return replace(self, start=self.start - back, end=self.end - back)


@dataclass(frozen=True, slots=True)
class RunWindow:
    """All repeats of one level of a load test against one endpoint. `level`: users at once, or requests per second."""

    run_id: str
    label: str
    level: str

    def text(self) -> str:
        """As it stands in the URL."""
        return f"{_RUN}{self.run_id}~{self.label}~{self.level}"


Chosen = EngineWindow | RunWindow


def literal(text: str) -> str:
    """Text from outside for a message in Markdown: nothing in it is formatting or a link."""
    return re.sub(r"([\\`*_{}\[\]()#+!~|<>$:&-])", r"\\\1", text[:300])


def parse(text: str, now: datetime) -> tuple[Chosen, str | None]:
    """One window of the URL, and what had to be changed about it. Raises `BadWindowError`."""
    if text.startswith(_RUN):
        run_id, _, rest = text.removeprefix(_RUN).partition("~")
        label, _, level = rest.rpartition("~")
        if not (run_id and label and level):
            raise BadWindowError(f"{literal(text)} is not a load test: `run:ID~endpoint~level` is expected")
        return RunWindow(run_id, label, level), None
    parts = text.rsplit("~", 2)
    if len(parts) != 3 or not all(parts):
        raise BadWindowError(f"{literal(text)} is not a window: `engine~from~to` is expected")
    try:
        window = frozen_window({"from": parts[1], "to": parts[2]})
    except BadRangeError as error:
        raise BadWindowError(f"{literal(text)}: {literal(str(error))}") from error
    if window is None or window.start >= now:
        raise BadWindowError(f"{literal(text)} lies in the future: nothing has been sampled there yet")
    end = min(window.end, max(now.replace(microsecond=0), window.start + SHORTEST))
    cut = f"{literal(text)} ends in the future: it is shown until now." if window.end > end else None
    return EngineWindow(parts[0], window.start, end), cut


def read(values: Sequence[str], runs: Sequence[str], now: datetime) -> tuple[list[Chosen], list[str]]:
    """The windows of a link, in its order, and what was left out of it as sentences."""
    found: list[Chosen] = []
    problems: list[str] = []
    for text in [*values, *(_RUN + run for run in runs)]:
        try:
            window, changed = parse(text, now)
        except BadWindowError as error:
            problems.append(f"{error}.")
            continue
        if changed is not None:
            problems.append(changed)
        if window in found:
            problems.append(f"{literal(text)} is there twice and shown once.")
        elif len(found) == MOST_WINDOWS:
            problems.append(f"{literal(text)} is left out: at most {MOST_WINDOWS} windows can be told apart.")
        else:
            found.append(window)
    return found, problems


def texts(windows: Sequence[Chosen]) -> list[str]:
    """The windows as values of `w`."""
    return [window.text() for window in windows]


def link(page_url: str, windows: Sequence[Chosen]) -> str:
    """An absolute URL that shows these windows to whoever opens it."""
    parts = urlsplit(page_url)
    query = urlencode([("w", text) for text in texts(windows)], safe="~:")
    return urlunsplit((parts.scheme, parts.netloc, parts.path or "/", query, ""))


def overlaps(windows: Sequence[Chosen]) -> list[tuple[int, int]]:
    """Pairs of places whose windows are of one engine and share some time."""
    return [
        (first, second)
        for second, later in enumerate(windows)
        for first, sooner in enumerate(windows[:second])
        if isinstance(sooner, EngineWindow)
        and isinstance(later, EngineWindow)
        and sooner.engine_id == later.engine_id
        and sooner.start < later.end
        and later.start < sooner.end
    ]


def span_words(start: datetime, end: datetime) -> str:
    """A time range in words: `2026-12-01 09:00:00 to 10:00:00 UTC, 1 h`."""
    last = f"{end:%H:%M:%S}" if start.date() == end.date() else f"{end:%Y-%m-%d %H:%M:%S}"
    return f"{start:%Y-%m-%d %H:%M:%S} to {last} UTC, {length_words((end - start).total_seconds())}"


def length_words(seconds: float) -> str:
    """A length of time to two units: `1 h`, `2 d 3 h`, `90 s`."""
    whole = round(seconds)
    units = (("d", 86400), ("h", 3600), ("min", 60), ("s", 1))
    for place, (name, size) in enumerate(units):
        if whole >= size and (size > 1 or place == 3):
            rest = whole % size
            following = units[place + 1] if place < 3 else None
            count = rest // following[1] if following else 0
            return f"{whole // size} {name}" + (f" {count} {following[0]}" if following and count else "")
    return formatting.duration(seconds)


def letter(place: int) -> str:
    """What a window is called: A is the baseline."""
    return chr(ord("A") + place)


def moved(windows: Sequence[Chosen], place: int, to: int) -> list[Chosen]:
    """The windows with one of them at another place."""
    rest = [window for position, window in enumerate(windows) if position != place]
    return [*rest[:to], windows[place], *rest[to:]]


def of_run(run: Mapping[str, object], stage: Mapping[str, object]) -> RunWindow:
    """The window of one stage (a row of `loadtest_stages`) of a run (a row of `loadtest_runs`)."""
    return RunWindow(str(run["run_id"]), str(stage["label"]), level_of(stage))


def level_of(stage: Mapping[str, object]) -> str:
    """The level of a stage as links carry it: users at once in a closed loop, else requests per second with `/s`."""
    if stage.get("mode") == "closed" or stage.get("offered_requests_per_second") is None:
        return str(stage.get("concurrency") if stage.get("concurrency") is not None else "all")
    return f"{float(str(stage['offered_requests_per_second'])):g}/s"
