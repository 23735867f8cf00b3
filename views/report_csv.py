"""Text of CSV files with names hidden: headers, numbers and times stay, and so does how cells are written."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

import pyarrow as pa
import pyarrow.csv

from views.report_scrub import Scrub, Scrubber

QUOTED_TEXT = re.compile(r'"[^"]*(?:""[^"]*)*"')  # of an export, where all text is in quotes, and so are times
ANY_TEXT = re.compile(rf'{QUOTED_TEXT.pattern}|[^",\n]+')
_TIME = re.compile(r'"\d{4}-\d\d-\d\dT[\d:.]+Z"')


def hidden(chunks: Iterable[bytes], scrub: Scrub, cells: re.Pattern[str] = QUOTED_TEXT) -> Iterator[bytes]:
    """
    A CSV file with what `scrub` hides replaced in its cells; the same bytes when it hides nothing.

    Addresses and folders in it, and hosts in its column `host`, are hidden even where `scrub` did not know them.
    """
    if not isinstance(scrub, Scrubber):
        yield from chunks
        return
    hide = _cells(scrub)
    columns: list[str] | None = None
    for piece in _whole_rows(chunks):
        text = piece.decode()
        if columns is None:
            head, _, text = text.partition("\n")
            yield f"{head}\n".encode()
            columns = head.split(",")
        if text and "host" in columns:
            scrub.learn_hosts(_column(text, columns, "host"))
        yield cells.sub(lambda cell: hide(cell[0]), text).encode()


def _column(text: str, columns: list[str], name: str) -> list[str]:
    """The different texts of one column, in their order."""
    table = pyarrow.csv.read_csv(
        io.BytesIO(text.encode()),
        pyarrow.csv.ReadOptions(column_names=columns),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(include_columns=[name], column_types={name: pa.string()}),
    )
    return [str(value) for value in table.column(name).unique().to_pylist() if value]


def _cells(scrub: Scrubber) -> Callable[[str], str]:
    """What hides names in one cell as it is written; most cells come many times."""

    @lru_cache(maxsize=10_000)
    def hide(cell: str) -> str:
        quoted = cell[0] == '"'
        if _TIME.fullmatch(cell) or (not quoted and _is_number(cell)):
            return cell
        text = cell[1:-1].replace('""', '"') if quoted else cell
        scrub.learn(text)
        told = scrub(text)
        escaped = told.replace('"', '""')
        return cell if told == text else f'"{escaped}"' if quoted else told

    return hide


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _whole_rows(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The same bytes, cut at ends of rows; a line break within quotes ends none."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        end = rest.rfind(b"\n")
        while end >= 0 and rest.count(b'"', 0, end) % 2:
            end = rest.rfind(b"\n", 0, end)
        if end >= 0:
            yield rest[: end + 1]
            rest = rest[end + 1 :]
    if rest:
        yield rest
