"""Predicted against measured: the scores of the collector as a table, and one sentence about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from views import cards, formatting

Row = Mapping[str, Any]
METHODS = {**cards.METHODS, "engine": "the engine's own figure", "llama-fit-params": "llama.cpp's own estimator"}
COLUMNS = (
    "engine", "model", "part", "predicted", "measured", "error", "measured by", "what it leaves out", "version",
    "compared (UTC)",
)  # fmt: skip


def score_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """One row a part, in the order of the query; figures with their unit, errors in percent with a sign."""
    return pd.DataFrame(
        [
            (
                row.get("label") or row["engine_id"],
                row.get("model") or formatting.MISSING,
                row["part"],
                amounts(row["predicted_low"], row["predicted_high"], row["unit"]),
                amount(row["measured"], row["unit"]),
                error(row["error_fraction"], row),
                METHODS.get(str(row["measured_method"]), row["measured_method"] or formatting.MISSING),
                row.get("reason") or "",
                f"{cards.title_of(str(row['engine']))} {row.get('engine_version') or ''}".strip(),
                f"{row['ts']:%Y-%m-%d %H:%M:%S}",
            )
            for row in rows
        ],
        columns=list(COLUMNS),
    )


def amount(value: float | None, unit: str) -> str:
    """A figure in the unit of its row: bytes in binary units, anything else counted."""
    if not formatting.known(value):
        return formatting.MISSING
    if value is None or unit == "bytes":
        return formatting.size(value)
    return f"{formatting.count(value) if value == round(value) else formatting.number(value, 4)} {unit}"


def amounts(low: float | None, high: float | None, unit: str) -> str:
    """One figure, or both bounds of a range."""
    if low == high or high is None:
        return amount(low, unit)
    return f"{amount(low, unit)} to {amount(high, unit)}"


def error(value: float | None, row: Row) -> str:
    """The signed error; a measurement inside a predicted range says so instead of 0 %."""
    if value is None or not formatting.known(value):
        return formatting.MISSING
    if value == 0 and row["predicted_low"] != row["predicted_high"]:
        return "within the range"
    return f"{value * 100:+.1f} %" if value else "0.0 %"


def summary(rows: Sequence[Row]) -> str:
    """How many parts were compared and how large the errors are; empty when nothing could be compared."""
    errors = sorted(abs(float(row["error_fraction"])) for row in rows if formatting.known(row["error_fraction"]))
    if not errors:
        return ""
    close = sum(value <= 0.05 for value in errors)
    return (
        f"{len(errors)} comparisons, {close} of them within 5 %. Median error "
        f"{errors[len(errors) // 2] * 100:.1f} %, largest {errors[-1] * 100:.1f} %. A measurement inside a predicted "
        "range counts as no error."
    )


def csv(rows: Sequence[Row]) -> bytes:
    """The rows as they are stored, times in ISO 8601 UTC."""
    frame = pd.DataFrame([dict(row) for row in rows])
    if "ts" in frame:
        frame = frame.rename(columns={"ts": "time_utc"})
        frame["time_utc"] = [f"{moment:%Y-%m-%dT%H:%M:%S.%f}Z" for moment in frame["time_utc"]]
    return frame.to_csv(index=False).encode()
