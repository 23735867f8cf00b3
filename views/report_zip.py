"""
A report as a ZIP: the HTML file, its figures and the rows behind them as CSV, and what each column means.

The rows of a file are those of `GET /export/<table>.csv` for the parameters that README.txt names, byte for byte
unless names are hidden. Names of files are made of letters of windows, numbers of load tests and names of tables.
"""

from __future__ import annotations

import io
import re
import textwrap
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from urllib.parse import urlencode

from store.protocol import Export, UnknownQueryError
from views import compare_table, data, formatting, loadtest_data, report_csv, report_dictionary, report_scrub
from views.compare_series import POINTS
from views.compare_windows import EngineWindow, RunWindow, letter
from views.report_contents import Contents
from views.report_dictionary import DICTIONARY, FIGURES, LINES
from views.report_document import BadReportError
from views.report_scrub import Scrub, Scrubber
from views.urlstate import iso

MOST_CSV_BYTES = 256 * 2**20
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same report gives the same bytes
_SERIES_OF_ENGINE = ("engine_series", "latency_series", "engine_memory_series", "device_memory_series")
_SERIES_OF_HOST = ("device_series", "host_series")
_EVENTS = ("event",)
_SAMPLES = ("engine_sample", "engine_rate", "latency_bucket")
_OF_RUN = ("loadtest_run", "loadtest_stage", "loadtest_request", "loadtest_judgement", "loadtest_resource")
_ANY_LESS = "Choose shorter windows, or fewer load tests."
_NO_SAMPLES = "Leave out the samples, or choose shorter windows or fewer load tests."
_RULES = """\
CSV files are UTF-8 with a header; units are in the names of columns, dictionary.csv says what each holds. Times are
ISO 8601 in UTC. Numbers have full precision. An empty cell is "not known" or "not told", never 0. Text is as it was
stored: open files of engines that you do not trust in a program that does not run formulas.
Files of a window have the rows of its engine alone, where rows are of engines; those of devices and of the host are of
all that runs there. Engine Room gives the same rows at the addresses below as long as it keeps them.
"""
_HIDDEN = """\
Host names, network addresses and folders are replaced by placeholders, such as host-1 and folder-1, the same in all
files. Titles, notes and names that somebody typed stay. In all else the rows are those that are stored.
"""


def zip_bytes(contents: Contents, html: str, scrub: Scrub, most_bytes: int = MOST_CSV_BYTES) -> bytes:
    """
    The whole archive. `html` is the report, `scrub` what hides names in all of it.

    Raises `StoreError`, and `BadReportError` when the CSV files have more than `most_bytes` together.
    """
    out = io.BytesIO()
    scrub = scrub.copy() if isinstance(scrub, Scrubber) else scrub
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        files = _Files(archive, scrub, most_bytes, _ANY_LESS if not contents.document.raw else _NO_SAMPLES)
        if contents.sides:
            from views import compare_charts  # Altair is needed for charts only

            files.add(f"{FIGURES}.csv", FIGURES, [compare_table.csv_bytes(contents.sides)], "figures")
            files.add(f"{LINES}.csv", LINES, [compare_charts.overlay_csv(contents.sides)], "lines")
        for place, side in enumerate(contents.sides):
            if isinstance(side.chosen, EngineWindow):
                _window(files, place, side.chosen, raw=contents.document.raw)
        runs = _run_ids(contents)
        for number, run_id in enumerate(runs, 1):
            _run(files, number, run_id)
        archive.writestr(_member(f"{DICTIONARY}.csv"), report_dictionary.csv_bytes(set(files.tables.values())))
        archive.writestr(_member("report.html"), scrub(html))
        archive.writestr(_member("README.txt"), _readme(contents, files, runs))
    return out.getvalue()


def figures_bytes(contents: Contents) -> bytes:
    """The table of figures alone, the same file as in the archive. For a report with windows."""
    scrub = contents.scrub.copy() if isinstance(contents.scrub, Scrubber) else contents.scrub
    return b"".join(report_csv.hidden([compare_table.csv_bytes(contents.sides)], scrub, report_csv.ANY_TEXT))


class _Files:
    """The CSV files of an archive: what was written, how much of it, and what could not be."""

    def __init__(self, archive: zipfile.ZipFile, scrub: Scrub, most_bytes: int, remedy: str) -> None:
        self.tables: dict[str, str] = {}  # by name of the file
        self.queries: dict[str, str] = {}  # the export that gives the same rows, by name of the file
        self.problems: list[str] = []
        self.scrub = scrub
        self._archive = archive
        self._most_bytes, self._remedy = most_bytes, remedy
        self._sizes: Counter[str] = Counter()

    def add(self, name: str, table: str, chunks: Iterable[bytes], part: str) -> None:
        """Write a file; `part` is what a person would leave out of the report to be rid of it."""
        cells = report_csv.ANY_TEXT if table in (FIGURES, LINES) else report_csv.QUOTED_TEXT
        if not self._written(name, chunks, part, cells):
            largest = self._sizes.most_common(1)[0][0]
            raise BadReportError(
                f"The CSV files of this report have more than {formatting.size(self._most_bytes)}, most of it of "
                f"{largest}. {self._remedy}"
            )
        self.tables[name] = table

    def export(self, name: str, table: str, part: str, parameters: Mapping[str, str], export: Export) -> None:
        """Write an export under the name of its table after `name`; what is missing from it is a problem."""
        file = f"{name}_{table}.csv"
        self.queries[file] = f"/export/{table}.csv?{urlencode(parameters, safe=':')}"
        self.add(file, table, export, part)
        self.problems += [f"{file}: {note}" for note in export.notes]

    def _written(self, name: str, chunks: Iterable[bytes], part: str, cells: re.Pattern[str]) -> bool:
        """Whether all of it was written; False: it is too much."""
        with self._archive.open(_member(name), "w", force_zip64=True) as member:
            for piece in report_csv.hidden(self._counted(chunks, part), self.scrub, cells):
                if self._sizes.total() > self._most_bytes:
                    return False
                member.write(piece)
        return self._sizes.total() <= self._most_bytes

    def _counted(self, chunks: Iterable[bytes], part: str) -> Iterator[bytes]:
        for chunk in chunks:
            self._sizes[part] += len(chunk)
            yield chunk


def _member(name: str) -> zipfile.ZipInfo:
    member = zipfile.ZipInfo(name, _EPOCH)
    member.compress_type = zipfile.ZIP_DEFLATED
    member.external_attr = 0o644 << 16
    return member


def _window(files: _Files, place: int, chosen: EngineWindow, *, raw: bool) -> None:
    """The rows of one engine and time range. An engine that is no longer known is a problem and has none."""
    name, part = f"window-{letter(place)}", f"window {letter(place)}"
    for table in (*_SERIES_OF_ENGINE, *_SERIES_OF_HOST, *_EVENTS, *(_SAMPLES if raw else ())):
        engine = None if table in _SERIES_OF_HOST else chosen.engine_id
        points = POINTS if table in _SERIES_OF_ENGINE + _SERIES_OF_HOST else None
        try:
            export = data.client().export_csv(table, chosen.start, chosen.end, engine, points=points)
        except UnknownQueryError as error:
            files.problems.append(f"Window {letter(place)} has no rows: {error}.")
            return
        parameters = {"from": iso(chosen.start), "to": iso(chosen.end)}
        parameters |= {"engine": engine} if engine else {}
        parameters |= {"points": str(points)} if points else {}
        files.export(name, table, part, parameters, export)


def _run(files: _Files, number: int, run_id: str) -> None:
    """The rows of one load test; one that was deleted is a problem and has none."""
    if all(row["run_id"] != run_id for row in loadtest_data.runs()):
        files.problems.append(f"The load test {run_id} was deleted since: it has no rows.")
        return
    for table in _OF_RUN:
        export = data.client().export_csv(table, run=run_id)
        files.export(f"run-{number}", table, f"the load test {run_id}", {"run": run_id}, export)


def _run_ids(contents: Contents) -> list[str]:
    """The load tests of the report, and those that its windows are levels of."""
    windows = [side.chosen.run_id for side in contents.sides if isinstance(side.chosen, RunWindow)]
    return list(dict.fromkeys([*(run.run_id for run in contents.runs), *windows]))


def _readme(contents: Contents, files: _Files, runs: list[str]) -> str:
    """What is in the archive, in words."""
    scrub, meanings = files.scrub, report_dictionary.meanings()
    lines = [scrub(contents.document.title), "", f"Made by Engine Room, {_moment(contents.made)}.", ""]
    for place, side in enumerate(contents.sides):
        lines.append(f"Window {letter(place)}: {scrub(side.title)}, {scrub(side.when)}.{_of_run(side.chosen, runs)}")
        lines += [f"    {scrub(text)}" for text in (*side.notes, side.warning) if text]
    names = {run.run_id: f" “{run.name}”" for run in contents.runs}
    lines += [f"Load test {n}: {scrub(run_id + names.get(run_id, ''))}." for n, run_id in enumerate(runs, 1)]
    problems = [*contents.problems, *files.problems]
    if problems:
        lines += ["", "Not in this archive:", *(f"- {scrub(text)}" for text in problems)]
    lines += ["", _RULES + (_HIDDEN if scrub is not report_scrub.nothing else "")]
    lines += ["report.html", "    the report; it needs nothing but a browser", "dictionary.csv"]
    lines += [f"    {meanings[DICTIONARY]}"]
    for name, table in files.tables.items():
        lines += [name, *textwrap.wrap(meanings[table], 116, initial_indent="    ", subsequent_indent="    ")]
        if name in files.queries:
            lines.append(f"    rows of {scrub(files.queries[name])}")
    return "\n".join(lines) + "\n"


def _of_run(chosen: EngineWindow | RunWindow, runs: list[str]) -> str:
    if isinstance(chosen, EngineWindow):
        return ""
    return f" Its rows are those of load test {1 + runs.index(chosen.run_id)}."


def _moment(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
