"""
What a report is made of, as it is saved: windows and load tests, a title, a note, and what is left out of it.

The document names what to show and holds no figure: a saved report is answered anew from what the store still has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from views.compare_windows import MOST_WINDOWS

MOST_RUNS = 6
MOST_TITLE_CHARACTERS, MOST_NOTE_CHARACTERS = 200, 10_000


class BadReportError(ValueError):
    """A report that can't be made; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class ReportDocument:
    """`windows` as the link of the Compare page has them, `runs` ids of load tests."""

    title: str
    note: str = ""
    windows: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    scrub: bool = False  # host names, addresses and folders are replaced by placeholders
    raw: bool = False  # the ZIP has every sample of the windows, too

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {**asdict(self), "windows": list(self.windows), "runs": list(self.runs)}


def from_json(content: Mapping[str, Any]) -> ReportDocument:
    """A stored document. Raises `BadReportError` for one that is none, or too large."""
    return checked(
        ReportDocument(
            title=str(content.get("title") or "Report"),
            note=str(content.get("note") or ""),
            windows=_texts(content, "windows"),
            runs=_texts(content, "runs"),
            scrub=content.get("scrub") is True,
            raw=content.get("raw") is True,
        )
    )


def checked(document: ReportDocument) -> ReportDocument:
    """The document itself. Raises `BadReportError` when it is too large or has nothing to show."""
    if not document.windows and not document.runs:
        raise BadReportError("A report needs a window or a load test: choose one.")
    for what, values, most in (("windows", document.windows, MOST_WINDOWS), ("load tests", document.runs, MOST_RUNS)):
        if len(values) > most:
            raise BadReportError(f"{len(values)} {what} are too many for one report: choose at most {most}.")
    for what, text, most in (
        ("title", document.title, MOST_TITLE_CHARACTERS), ("note", document.note, MOST_NOTE_CHARACTERS),
    ):  # fmt: skip
        if len(text) > most:
            raise BadReportError(f"The {what} has {len(text):,} characters: shorten it to at most {most:,}.")
    return document


def _texts(content: Mapping[str, Any], name: str) -> tuple[str, ...]:
    values = content.get(name)
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise BadReportError(f"The saved report can't be read: its {name} are no list of text.")
    return tuple(values)
