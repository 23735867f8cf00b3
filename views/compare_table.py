"""
The table of the Compare page: a row a figure, a column a window; below each figure its difference from the baseline,
its ratio, and how sure both are. As HTML and, in full precision, as CSV.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from html import escape

from comparison.configurations import Aspect
from comparison.intervals import Estimate
from comparison.measures import MEASURES, Measure
from comparison.windows import Compared, Figure, compare, missing
from views import compare_absences, formatting
from views.compare_sides import Side
from views.compare_windows import EngineWindow, letter
from views.palette import Series, swatch
from views.tips import tip
from views.urlstate import iso

FROM_CLIENT = missing("needs a load test", "Only the client of a load test measures it.")
FROM_ENGINE = missing("not measured", "A load test does not measure it.")
DOT = " \N{MIDDLE DOT} "
TIMES = "\N{MULTIPLICATION SIGN}"
MINUS = "\N{MINUS SIGN}"
ALIKE = 1.02  # lengths of windows whose totals may be compared
VERDICTS = {True: ("good", "better"), False: ("bad", "worse")}
_COLUMNS = (
    "figure", "unit", "window", "engine", "from_utc", "to_utc", "load_test", "value", "missing", "source", "baseline",
    "difference", "difference_low", "difference_high", "ratio", "ratio_low", "ratio_high", "confidence", "method",
    "no_interval_because",
)  # fmt: skip


def figure_of(side: Side, measure: Measure) -> Figure:
    """The figure of a window, or why it has none."""
    found = side.figures.get(measure.key)
    if found is not None:
        return found
    return FROM_CLIENT if measure.key in compare_absences.CLIENT_ONLY else FROM_ENGINE


def shown_measures(sides: Sequence[Side]) -> tuple[list[Measure], list[Measure]]:
    """The measures that a window has, and those that none has."""
    there = [measure for measure in MEASURES if any(figure_of(side, measure).value is not None for side in sides)]
    return there, [measure for measure in MEASURES if measure not in there]


def table(sides: Sequence[Side], series: Sequence[Series]) -> str:
    """The whole table as HTML. `series` are the colours of the windows."""
    there, _ = shown_measures(sides)
    body: list[str] = []
    group = None
    for measure in there:
        if measure.group != group:
            group = measure.group
            body.append(
                f'<tr class="er-group"><th colspan="{len(sides) + 1}" scope="rowgroup">{escape(group)}</th></tr>'
            )
        first = figure_of(sides[0], measure)
        cells = [_cell(measure, first, None)]
        cells += [
            _cell(measure, figure_of(side, measure), first, _unlike(measure, sides[0], side)) for side in sides[1:]
        ]
        name = tip(measure.title, measure.meaning)
        body.append(f'<tr><th scope="row">{name}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>')
    return _framed("er-compare", _head(sides, series), body)


def none_there(sides: Sequence[Side]) -> str:
    """Which figures no window has and why, in one paragraph of HTML; empty where there is none."""
    _, nowhere = shown_measures(sides)
    wanted = [measure for measure in nowhere if measure.key not in compare_absences.CLIENT_ONLY]
    if not wanted:
        return ""
    told = []
    for measure in wanted:
        reasons = dict.fromkeys(f"{letter(n)}: {figure_of(side, measure).source}" for n, side in enumerate(sides))
        told.append(tip(measure.title, " ".join(reasons)))
    return f'<p class="er-note">No window has {", ".join(told)}.</p>'


def aspect_table(aspects: Sequence[Aspect], sides: Sequence[Side], series: Sequence[Series]) -> str:
    """What the configurations are, as HTML: a row an aspect, a column a window."""
    rows = []
    for aspect in aspects:
        cells = "".join(
            f"<td>{escape(value) if value is not None else '<span class=er-none>not told</span>'}</td>"
            for value in aspect.values
        )
        name = tip(aspect.name, aspect.text) if aspect.text and aspect.state != "unfair" else escape(aspect.name)
        rows.append(f'<tr class="er-{aspect.state.replace(" ", "-")}"><th scope="row">{name}</th>{cells}</tr>')
    return _framed("er-compare er-aspects", _head(sides, series), rows)


def _framed(classes: str, head: str, rows: Sequence[str]) -> str:
    return f'<div class="er-scroll"><table class="{classes}">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _head(sides: Sequence[Side], series: Sequence[Series]) -> str:
    cells = "".join(
        f'<th scope="col">{swatch(colour)} <b>{letter(n)}</b> {escape(side.title)}'
        f"<small>{escape(side.when)}{', baseline' if n == 0 else ''}</small></th>"
        for n, (side, colour) in enumerate(zip(sides, series, strict=True))
    )
    return f"<thead><tr><td></td>{cells}</tr></thead>"


def _unlike(measure: Measure, first: Side, other: Side) -> str | None:
    """Why a total of one window is not to be compared with that of another; None where it is."""
    if not measure.total or not (isinstance(first.chosen, EngineWindow) or isinstance(other.chosen, EngineWindow)):
        return None
    if isinstance(first.chosen, EngineWindow) and isinstance(other.chosen, EngineWindow):
        lengths = first.chosen.seconds, other.chosen.seconds
        if max(lengths) <= ALIKE * min(lengths):
            return None
    return "A total grows with the length of its window, and these windows are not equally long."


def _cell(measure: Measure, figure: Figure, baseline: Figure | None, unlike: str | None = None) -> str:
    if figure.value is None:
        return f'<span class="er-none">{tip(figure.absent or "not known", figure.source)}</span>'
    source = f"{figure.source}. {figure.caution or ''}".strip()
    shown = f"<b>{tip(value_words(measure, figure.value), source)}</b>"
    if figure.flag:
        shown += f" {tip(figure.flag, figure.caution or '')}"
    if baseline is None:
        return shown
    found = compare(baseline, figure) if unlike is None else None
    if found is None:
        why = unlike or figure.caution or baseline.caution
        return shown + (f"<small>{tip('not comparable', why)}</small>" if why and baseline.value is not None else "")
    return f"{shown}<small>{_against(measure, found)}</small>"


def _against(measure: Measure, found: Compared) -> str:
    """Difference, ratio with its interval, and what they come to, as HTML."""
    difference = found.difference.estimate
    if difference == 0 and not found.ratio.has_interval:
        return tip("the same", found.ratio.reason or "no difference")
    parts = [difference_words(measure, difference)] if difference is not None else []
    ratio = found.ratio
    if ratio.estimate is not None:
        parts.append(tip(_ratio_words(ratio), interval_words(found, measure)))
    elif found.difference.has_interval:
        parts.append(
            tip(_span(found.difference, lambda value: signed_words(measure, value)), interval_words(found, measure))
        )
    else:
        parts.append(tip("no ratio", ratio.reason or "not known"))
    return f"{DOT.join(parts)} {_verdict(measure, found)}"


def _verdict(measure: Measure, found: Compared) -> str:
    """Better, worse, or not decided; where neither way is better, nothing."""
    if found.direction is None:
        return ""
    if found.direction == "undecided":
        return '<i class="er-off">undecided</i>'
    if measure.better is None:
        return ""
    tone, word = VERDICTS[found.direction == measure.better]
    return f'<i class="er-{tone}">{word}</i>'


def interval_words(found: Compared, measure: Measure) -> str:
    """How the intervals of a comparison were made, or why there is none, for a tooltip."""
    ratio, difference = found.ratio, found.difference
    if not ratio.has_interval and not difference.has_interval:
        return f"no interval: {ratio.reason or difference.reason}"
    made = ratio if ratio.has_interval else difference
    words = f"{made.confidence:.0%} confidence, {made.method}" if made.confidence is not None else made.method
    if difference.has_interval:
        words += f"; difference {_span(difference, lambda value: signed_words(measure, value))}"
    if not ratio.has_interval and ratio.reason:
        words += f"; no interval of the ratio: {ratio.reason}"
    return words


def _ratio_words(ratio: Estimate) -> str:
    shown = f"{_factor(ratio.estimate)}{TIMES}"
    return f"{shown} ({_factor(ratio.low)} to {_factor(ratio.high)})" if ratio.has_interval else shown


def _factor(value: float | None) -> str:
    """A ratio to three digits, its zeros kept."""
    if value is None:
        return formatting.MISSING
    if not 0.0995 <= value < 9.995:
        return formatting.number(value, 3)
    return f"{value:.2f}" if value >= 0.9995 else f"{value:.3f}"


def _span(estimate: Estimate, words: Callable[[float], str]) -> str:
    low, high = estimate.low, estimate.high
    return f"{words(low)} to {words(high)}" if low is not None and high is not None else formatting.MISSING


def value_words(measure: Measure, value: float) -> str:
    """A figure with its unit."""
    match measure.unit:
        case "tok/s":
            return f"{formatting.rate(value)} tok/s"
        case "s":
            return formatting.duration(value)
        case "bytes":
            return formatting.size(value)
        case "fraction":
            return formatting.fraction(value)
        case "cores":
            return f"{formatting.cores(value)} cores"
        case "count":
            return formatting.count(value)
        case "requests":
            return formatting.number(value, 3)
        case "J" if abs(value) >= 1e6:
            return f"{formatting.number(value / 1e6, 3)} MJ"
        case "J" if abs(value) >= 1e3:
            return f"{formatting.number(value / 1e3, 3)} kJ"
        case "J/token":
            return f"{formatting.number(value, 3)} J"
        case unit:
            return f"{formatting.number(value, 3)} {unit}"


def difference_words(measure: Measure, value: float) -> str:
    """As `signed_words`; one that is smaller than what is shown of the figures has no sign worth reading."""
    words = signed_words(measure, value)
    return "nearly the same" if words[1:].startswith(("<", "0 ")) else words


def signed_words(measure: Measure, value: float) -> str:
    """A difference with its sign and unit; shares differ in percentage points."""
    if value == 0:
        return "no difference"
    if measure.unit == "fraction":
        words = f"{formatting.number(abs(value) * 100, 2)} points"
    else:
        words = value_words(measure, abs(value))
    return f"{MINUS if value < 0 else '+'}{words}"


def csv_bytes(sides: Sequence[Side]) -> bytes:
    """Every figure of every window as CSV: full precision, base units, UTC; a row a figure and window."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for measure in MEASURES:
        first = figure_of(sides[0], measure)
        for place, side in enumerate(sides):
            figure = figure_of(side, measure)
            unlike = _unlike(measure, sides[0], side) if place else None
            found = compare(first, figure) if place and unlike is None else None
            writer.writerow([_text(value) for value in _row(measure, place, side, figure, found)])
    return out.getvalue().encode()


def _row(measure: Measure, place: int, side: Side, figure: Figure, found: Compared | None) -> list[object]:
    chosen = side.chosen
    range_utc = (
        [iso(chosen.start), iso(chosen.end), None] if isinstance(chosen, EngineWindow) else [None, None, chosen.run_id]
    )
    row: list[object] = [
        measure.title, measure.unit, letter(place), side.title, *range_utc, figure.value, figure.absent, figure.source,
        place == 0,
    ]  # fmt: skip
    if found is None:
        return [*row, *[None] * 8, figure.caution]
    difference, ratio = found.difference, found.ratio
    made = ratio if ratio.has_interval or not difference.has_interval else difference
    return [
        *row, difference.estimate, difference.low, difference.high, ratio.estimate, ratio.low, ratio.high,
        made.confidence, made.method if made.has_interval else None, ratio.reason or difference.reason,
    ]  # fmt: skip


def _text(value: object) -> object:
    return "" if value is None else repr(value) if isinstance(value, float) else value


def legend(sides: Sequence[Side], series: Sequence[Series]) -> str:
    """Which line is which window, as HTML."""
    entries = (
        f"<span>{swatch(colour)}{letter(n)} {escape(side.title)}</span>"
        for n, (side, colour) in enumerate(zip(sides, series, strict=True))
    )
    return f'<div class="er-legend">{"".join(entries)}</div>'
