"""What the columns of the CSV files in a report mean: those of the store as it tells them, and those of the pages."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection

from views import data

_COLUMNS = ("table_name", "column_name", "type", "comment")
FIGURES, LINES, DICTIONARY = "figures", "lines", "dictionary"
_OWN = {
    FIGURES: (
        "the figures of the windows and how each compares with window A, the baseline; a row a figure and window",
        ("figure", "VARCHAR", "name of the figure"),
        ("unit", "VARCHAR", "unit of value and of difference; fraction: 0..1"),
        ("window", "VARCHAR", "letter of the window"),
        ("engine", "VARCHAR", "label of the engine or endpoint"),
        ("from_utc", "TIMESTAMP WITH TIME ZONE", "beginning of the window, UTC; empty for a load test"),
        ("to_utc", "TIMESTAMP WITH TIME ZONE", "end of the window, UTC; empty for a load test"),
        ("load_test", "VARCHAR", "run_id where the window is a level of a load test"),
        ("value", "DOUBLE", "the figure; empty: there is none, missing says why"),
        ("missing", "VARCHAR", "why there is no value"),
        ("source", "VARCHAR", "where the value is from, or more on why it is missing"),
        ("baseline", "BOOLEAN", "whether this is window A"),
        ("difference", "DOUBLE", "value less that of window A"),
        ("difference_low", "DOUBLE", "lower end of the interval of the difference"),
        ("difference_high", "DOUBLE", "upper end of the interval of the difference"),
        ("ratio", "DOUBLE", "value over that of window A"),
        ("ratio_low", "DOUBLE", "lower end of the interval of the ratio"),
        ("ratio_high", "DOUBLE", "upper end of the interval of the ratio"),
        ("confidence", "DOUBLE", "0..1, confidence of the intervals"),
        ("method", "VARCHAR", "how the intervals were made"),
        ("no_interval_because", "VARCHAR", "why there is no interval, or what to be careful about"),
    ),
    LINES: (
        "the lines of the charts, windows laid over each other; a row a window, moment and quantity",
        ("window", "VARCHAR", "letter of the window"),
        ("engine", "VARCHAR", "label of the engine or endpoint"),
        ("repeat", "BIGINT", "repeat of a load test's stage, from 1; empty for a window of an engine"),
        ("elapsed_seconds", "DOUBLE", "seconds since the beginning of the window"),
        ("quantity", "VARCHAR", "name of the chart"),
        ("unit", "VARCHAR", "unit of value, lowest and highest"),
        ("value", "DOUBLE", "the sample, or the mean of the bucket of samples"),
        ("lowest", "DOUBLE", "least sample of the bucket"),
        ("highest", "DOUBLE", "greatest sample of the bucket"),
    ),
    DICTIONARY: (
        "what every file and column of this archive holds",
        ("table_name", "VARCHAR", "what the rows are of: the end of a file's name"),
        ("column_name", "VARCHAR", "name of the column; empty: the row is about the file itself"),
        ("type", "VARCHAR", "type of the values; of a whole file: table, view, series, or made for the report"),
        ("comment", "VARCHAR", "what it is and its unit"),
    ),
}  # fmt: skip


def csv_bytes(tables: Collection[str]) -> bytes:
    """The dictionary of these tables and of itself as CSV. Raises `StoreError`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for name in (DICTIONARY, FIGURES, LINES):
        if name in tables or name == DICTIONARY:
            meaning, *columns = _OWN[name]
            writer.writerow((name, "", "made for the report", meaning))
            writer.writerows((name, *column) for column in columns)
    for row in data.records("dictionary"):
        if row["table_name"] in tables:
            writer.writerow(row[name] or "" for name in _COLUMNS)
    return out.getvalue().encode()


def meanings() -> dict[str, str]:
    """What each table, view and series holds, by name. Raises `StoreError`."""
    own = {name: str(entries[0]) for name, entries in _OWN.items()}
    return own | {
        str(row["table_name"]): str(row["comment"]) for row in data.records("dictionary") if row["column_name"] is None
    }
