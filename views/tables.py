"""Query answers as the tables of the Sources page: words instead of codes, units in the headings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import pandas as pd

from store.model import QUANTITIES, EngineState, Offer
from views import formatting, states

Row = Mapping[str, Any]
TITLES = {quantity.name: quantity.title for quantity in QUANTITIES}
OFFER_WORDS = {Offer.NOT_OFFERED: "not offered", Offer.DISABLED: "disabled", Offer.UNKNOWN: "not known yet"}
MISSED_SAMPLES, SHORTEST_SILENCE = 5, timedelta(seconds=15)
EVENT_COLUMNS = ("time (UTC)", "what", "engine or device", "text")


def source_frame(rows: Sequence[Row], now: datetime) -> pd.DataFrame:
    """One row a source: those in trouble first, those not sampled any more last. Units are in the headings."""
    ordered = sorted(
        rows,
        key=lambda row: (
            row["state"] == EngineState.STOPPED or _silent(row, now),
            states.look(row["state"]).tone == "good",
            str(row["source_id"]),
        ),
    )
    return pd.DataFrame(
        [
            {
                "source": row.get("label") or row["source_id"],
                "state": _state(row, now),
                "last sample": _last_sample(row, now),
                "took (ms)": _scaled(row.get("duration_seconds"), 1000),
                "late (ms)": _scaled(row.get("lateness_seconds"), 1000),
                "most late in 10 min (ms)": _scaled(row.get("lateness_max_10m_seconds"), 1000),
                "every (s)": row.get("interval_seconds"),
                "errors in 10 min": row.get("errors_10m"),
                "samples in 10 min": row.get("samples_10m"),
                "found by": row.get("found_by") or "",
                "detail": row.get("detail") or "",
            }
            for row in ordered
        ]
    )


def _silent(row: Row, now: datetime) -> bool:
    """Whether samples that were due did not come: what the last one said may not be so any more."""
    if row.get("ts") is None or row.get("interval_seconds") is None:
        return False
    due = timedelta(seconds=MISSED_SAMPLES * float(row["interval_seconds"]))
    return bool(now - row["ts"] > max(due, SHORTEST_SILENCE))


def _state(row: Row, now: datetime) -> str:
    if row["state"] == EngineState.STOPPED or not _silent(row, now):
        return states.with_symbol(row["state"])
    return f"{states.SYMBOLS['off']} not sampled any more, was {states.look(row['state']).word}"


def attention(rows: Sequence[Row]) -> list[Row]:
    """
    Sources in trouble that have something to say about it. An engine that stopped is no trouble of its source:
    it stands in the table and among the events.
    """
    return [
        row
        for row in rows
        if states.look(row["state"]).tone != "good" and row["state"] != EngineState.STOPPED and row.get("detail")
    ]


def _last_sample(row: Row, now: datetime) -> str:
    moment = row.get("ts")
    if moment is None:
        return "never"
    return f"{formatting.age((now - moment).total_seconds())} ago, {formatting.clock(moment, now)}"


def _scaled(value: float | None, factor: float) -> float | None:
    return value * factor if value is not None else None


def missing_quantities(rows: Sequence[Row], labels: Mapping[str, str]) -> dict[str, pd.DataFrame]:
    """
    For each engine of `labels` (engine_id -> label) the quantities that it should have and has not, by label,
    with reason and remedy.
    """
    found: dict[str, list[dict[str, str]]] = {}
    for row in rows:
        engine = labels.get(str(row["engine_id"]))
        if row["offer"] == Offer.OFFERED or engine is None:
            continue
        found.setdefault(engine, []).append(
            {
                "quantity": TITLES.get(str(row["quantity"]), str(row["quantity"])),
                "why": OFFER_WORDS.get(row["offer"], str(row["offer"])),
                "reason": str(row.get("reason") or formatting.MISSING),
                "what to do": str(row.get("remedy") or formatting.MISSING),
            }
        )
    return {engine: pd.DataFrame(lines) for engine, lines in sorted(found.items())}


def event_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Events, newest first."""
    return pd.DataFrame(
        [
            (
                f"{row['ts']:%Y-%m-%d %H:%M:%S}",
                str(row["kind"]).replace("_", " "),
                row.get("label") or row.get("engine_id") or row.get("device_id") or "",
                row["text"],
            )
            for row in sorted(rows, key=lambda row: row["ts"], reverse=True)
        ],
        columns=list(EVENT_COLUMNS),
    )
