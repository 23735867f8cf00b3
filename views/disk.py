"""Room on the disk, for the Sources page: what the store takes, what is left, and what happens when none is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd
import streamlit as st

from views import formatting

Row = Mapping[str, Any]
PROBLEMS_SHOWN = 5


def warn(disk: Row) -> None:
    """What a person should act on: little room, or archived days that cannot be read. Nothing when all is well."""
    if disk["state"] == "full":
        st.error(f"**{disk['detail']}**")
    elif disk["state"] == "low":
        st.warning(disk["detail"])
    problems = disk["archive_problems"]
    if problems:
        more = len(problems) - PROBLEMS_SHOWN
        st.warning(
            "\n\n".join([*problems[:PROBLEMS_SHOWN], *([f"{more} more files are affected."] if more > 0 else [])])
        )


def draw(disk: Row, tables: Sequence[Row] | None) -> None:
    """The sizes with what they mean, what happens on a full disk, and the tables where they were asked for."""
    lines = "".join(
        f"<dt>{escape(label)}</dt><dd><b>{escape(value)}</b> <span class='er-note'>{escape(note)}</span></dd>"
        for label, value, note in figures(disk)
    )
    # What is wrong stands above the sources already, see `warn`.
    then = f'<p class="er-sentence">{escape(disk["detail"])}</p>' if disk["state"] in ("ok", "unknown") else ""
    st.html(f'<div class="er-card"><dl>{lines}</dl>{then}</div>')
    st.toggle("Rows and bytes by table", key="disk_tables_shown")
    if tables is not None:
        st.dataframe(table_frame(tables), hide_index=True, height="content", key="disk_tables")


def figures(disk: Row) -> list[tuple[str, str, str]]:
    """Heading, figure and explanation of each size; what is not known yet says so."""
    growth, seconds = disk["growth_bytes_per_day"], disk["growth_over_seconds"]
    if growth is None:
        grows, note = "not known yet", "Read from an hour of sizes at least."
    else:
        sign = "" if growth >= 0 else "\N{MINUS SIGN}"
        grows = f"{sign}{formatting.size(abs(growth))} a day"
        note = f"Slope of the store's size over the last {formatting.age(seconds)}, archive included."
    if not disk["archive_on"] and not disk["archive_files"]:
        archive, about = "off", "Switched on by ENGINE_ROOM_STORE__ARCHIVE=true."
    else:
        archive = formatting.size(disk["archive_bytes"])
        about = f"{formatting.count(disk['archive_files'])} Parquet files of raw rows that left the store" + (
            f", from {disk['archive_oldest_day']} on." if disk["archive_oldest_day"] else "."
        )
    return [
        ("Store", formatting.size(disk["file_bytes"]), f"telemetry.duckdb in {disk['folder']}"),
        ("Write-ahead log", formatting.size(disk["wal_bytes"]), "Folded into the file in a quiet second."),
        ("Archive", archive, about),
        ("Free", _free(disk), "What this user may still fill on the data folder's disk."),
        ("Growth", grows, note),
        ("Full in", _full_in(disk), "Free bytes by the store's own growth; what others write is not in it."),
    ]


def table_frame(tables: Sequence[Row]) -> pd.DataFrame:
    """One row a table, the largest first."""
    return pd.DataFrame(
        [
            {
                "table": row["table_name"],
                "rows": formatting.count(row["rows"]),
                "size, by the blocks it lies in": formatting.size(row["bytes_estimate"]),
            }
            for row in tables
        ]
    )


def _free(disk: Row) -> str:
    if disk["free_bytes"] is None:
        return "not told"
    return f"{formatting.size(disk['free_bytes'])} of {formatting.size(disk['total_bytes'])}"


def _full_in(disk: Row) -> str:
    if disk["growth_bytes_per_day"] is None or disk["free_bytes"] is None:
        return "not known yet"
    days = disk["days_until_full"]
    if days is None:
        return "not growing"
    return f"{days:,.1f} days" if days < 10 else f"{days:,.0f} days" if days < 3650 else "over 10 years"
