"""
A report as one HTML file: styles and drawings are inside, nothing is fetched, and it prints on A4.

All text from outside is escaped here or by the views that the blocks come from; with `scrub` every text passes
through it before it is drawn, and the whole file once more at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from comparison import configurations
from views import (
    compare_charts,
    compare_table,
    formatting,
    loadtest_curves,
    loadtest_tables,
    loadtest_words,
    palette,
    report_findings,
    report_svg,
)
from views.compare_table import figure_of, shown_measures
from views.compare_windows import letter
from views.loadtest_data import OWN, Run
from views.report_contents import Contents

STYLE = Path(__file__).parent / "report.css"
_ASIDES = ("memory by", "energy by", "note")  # columns of whole sentences
_DISTRIBUTIONS = ("generation", "ttft", "itl", "tpot", "e2e")


def document(contents: Contents) -> str:
    """The whole report. Shown in a browser without any network, and by itself."""
    title = contents.document.title
    body = "".join(
        (
            _head(contents),
            _problems(contents),
            _findings(contents),
            _windows(contents),
            _differences(contents),
            _figures(contents),
            _lines(contents),
            *(_run(contents, run) for run in contents.runs),
            _method(contents),
        )
    )
    style = f"{STYLE.read_text(encoding='utf-8')}\n{palette.style_classes()}"
    whole = (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body><main>{body}</main></body></html>\n"
    )
    return contents.scrub(whole)


def _head(contents: Contents) -> str:
    hosts = ", ".join(map(contents.scrub, contents.hosts)) or "not told"
    note = "".join(f"<p>{escape(part)}</p>" for part in contents.document.note.split("\n") if part.strip())
    made = formatting.clock(contents.made)
    return (
        f"<header><h1>{escape(contents.document.title)}</h1>"
        f'<p class="facts">Engine Room, made {made}. Host: {escape(hosts)}. Times are UTC; every figure has its unit, '
        f"its window and its source.</p>{note}</header>"
    )


def _problems(contents: Contents) -> str:
    if not contents.problems:
        return ""
    told = "".join(f"<li>{escape(text)}</li>" for text in contents.problems)
    return f'<section class="warn"><h2>Not shown</h2><ul>{told}</ul></section>'


def _findings(contents: Contents) -> str:
    found = report_findings.findings(contents)
    if not found:
        return ""
    told = "".join(f"<li>{escape(text)}</li>" for text in found)
    return f"<section><h2>Findings</h2><ul>{told}</ul></section>"


def _windows(contents: Contents) -> str:
    if not contents.sides:
        return ""
    rows = "".join(
        f'<tr><th scope="row">{palette.swatch(colour)} {letter(place)}</th><td>{escape(side.title)}</td>'
        f"<td>{escape(side.when)}</td><td>{escape(' '.join(side.notes)) or 'nothing to remark'}</td></tr>"
        for place, (side, colour) in enumerate(zip(contents.sides, contents.colours, strict=True))
    )
    head = "<thead><tr><td></td><th>engine</th><th>window</th><th>to be known about it</th></tr></thead>"
    warnings = "".join(f'<p class="warn">{escape(side.warning)}</p>' for side in contents.sides if side.warning)
    return f"<section><h2>What was looked at</h2><table>{head}<tbody>{rows}</tbody></table>{warnings}</section>"


def _differences(contents: Contents) -> str:
    if not contents.sides:
        return ""
    named = [replace(side.configuration, name=letter(place)) for place, side in enumerate(contents.sides)]
    most = max((side.concurrency for side in contents.sides if side.concurrency), default=None)
    aspects = configurations.compare(named, most)
    unfair = [aspect.text for aspect in configurations.unfair(aspects) if aspect.text] if len(named) > 1 else []
    told = "".join(f"<li>{escape(text)}</li>" for text in unfair)
    warning = f'<div class="warn"><p>Read the figures with this in mind:</p><ul>{told}</ul></div>' if told else ""
    title = "What differs" if len(named) > 1 else "Configuration"
    differing = configurations.differing(aspects) if len(named) > 1 else list(aspects)
    table = compare_table.aspect_table(differing, contents.sides, contents.colours) if differing else ""
    nothing = "" if differing else "<p>Nothing that is known differs between the configurations.</p>"
    same = [aspect for aspect in aspects if aspect not in differing]
    rest = ""
    if same:
        rest = (
            f"<details><summary>{len(same)} aspects that do not differ, or that no window tells</summary>"
            f"{compare_table.aspect_table(same, contents.sides, contents.colours)}</details>"
        )
    return f"<section><h2>{title}</h2>{warning}{table}{nothing}{rest}</section>"


def _figures(contents: Contents) -> str:
    if not contents.sides:
        return ""
    words = (
        '<p class="facts">Below each figure: its difference from A, its ratio to A, and the interval of the ratio '
        "in brackets. Where each figure is from stands at the end.</p>"
        if len(contents.sides) > 1
        else ""
    )
    return (
        f"<section><h2>Figures</h2>{words}{compare_table.table(contents.sides, contents.colours)}"
        f"{compare_table.none_there(contents.sides)}</section>"
    )


def _lines(contents: Contents) -> str:
    if not contents.sides:
        return ""
    parts = []
    spec, datasets, words = compare_charts.overlay(contents.sides, contents.colours)
    if spec:
        legend = compare_table.legend(contents.sides, contents.colours)
        parts.append(
            f"<section><h2>Over time</h2>{legend}"
            f"<figure>{report_svg.svg(spec, datasets, words, contents.scrub)}</figure></section>"
        )
    drawn = []
    for key in _DISTRIBUTIONS:
        one, rows, text = compare_charts.spread(key, contents.sides, contents.colours)
        if one:
            drawn.append(f"<figure>{report_svg.svg(one, rows, text, contents.scrub, half=True)}</figure>")
    if drawn:
        parts.append(
            "<section><h2>How the values are distributed</h2>"
            '<p class="facts">Share of values at or below each. A steep line is a steady engine, a long flat end a '
            f'slow tail.</p><div class="pair">{"".join(drawn)}</div></section>'
        )
    return "".join(parts)


def _run(contents: Contents, run: Run) -> str:
    said = loadtest_words.banner(run)
    banner = f'<p class="warn">{escape(said[1].replace("**", ""))}</p>' if said else ""
    owners = {key: contents.run_series[key] for key in contents.run_series}
    alone = replace(run, key="r0")
    drawn = "".join(
        f"<figure>{report_svg.svg(one.spec, one.datasets, one.words, contents.scrub, half=True)}</figure>"
        for one in loadtest_curves.drawings([alone], owners)
    )
    curves = (
        f'<div class="pair">{drawn}</div><p class="facts">Small hollow marks are single repeats; throughput: line '
        "through their mean with its 95 % interval; latency: line through the middle repeat's p50, shaded up to the "
        "worst repeat's p95.</p>"
        if drawn
        else "<p>Its stages tell no load, so that there is no curve.</p>"
    )
    used = loadtest_tables.used_frame(run, contents.devices)
    epochs = frozenset(str(stage["epoch_id"]) for stage in run.stages if stage["epoch_id"])
    startup = loadtest_tables.startup_frame(contents.startups, epochs)
    stages = loadtest_tables.stage_frame([run])
    missing = "not measurable" if run.row["source"] == OWN else "not told"
    return (
        f'<section class="run">{loadtest_words.header(run)}{banner}{loadtest_words.judged(run)}'
        f"{loadtest_words.engines_of(run, owners)}{curves}"
        f"{_table('Stages', stages, missing)}{_table('Memory and energy', used, formatting.MISSING)}"
        f"{_table('Startup of the engines', startup, 'not known')}</section>"
    )


def _table(title: str, frame: pd.DataFrame, missing: str) -> str:
    """
    A frame as an HTML table. What is missing everywhere, and long texts, stand below it and take no column.
    """
    if frame.empty:
        return ""
    empty = [name for name in frame.columns if frame[name].isna().all()]
    asides = [name for name in _ASIDES if name in frame.columns]
    shown = frame.drop(columns=[*empty, *asides])
    head = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in shown.columns)
    rows = "".join(
        f"<tr>{''.join(_cell(value, missing) for value in row)}</tr>" for row in shown.itertuples(index=False)
    )
    notes = [f"{name}: {'; '.join(texts)}" for name in asides if (texts := _distinct(frame[name]))]
    notes += [f"{missing}: {', '.join(empty)}"] if empty else []
    told = f'<p class="facts">{escape(". ".join(notes))}.</p>' if notes else ""
    return (
        f'<h3>{escape(title)}</h3><div class="wide"><table class="small data"><thead><tr>{head}</tr></thead>'
        f"<tbody>{rows}</tbody></table></div>{told}"
    )


def _distinct(values: pd.Series[Any]) -> list[str]:
    """The texts of a column, each once; signs that stand for none are left out."""
    return [str(value) for value in values.dropna().unique() if value not in ("", formatting.MISSING)]


def _cell(value: object, missing: str) -> str:
    if value is None or (isinstance(value, float) and not formatting.known(value)):
        return f'<td class="none">{escape(missing)}</td>'
    if isinstance(value, str):
        return f"<td>{escape(value)}</td>"
    number = float(str(value))
    shown = f"{number:,.0f}" if number.is_integer() else formatting.number(number, 4)
    return f'<td class="number">{shown}</td>'


def _method(contents: Contents) -> str:
    """What the figures mean and where each is from."""
    parts = []
    if contents.sides:
        there, _ = shown_measures(contents.sides)
        rows = "".join(
            f'<tr><th scope="row">{escape(measure.title)}</th><td>{escape(measure.meaning)}</td>'
            f"<td>{_sources(contents, [figure_of(side, measure).source for side in contents.sides])}</td></tr>"
            for measure in there
        )
        head = "<thead><tr><th>figure</th><th>what it is</th><th>where it is from</th></tr></thead>"
        parts.append(f'<table class="small">{head}<tbody>{rows}</tbody></table>')
    if contents.runs:
        rows = "".join(
            f'<tr><th scope="row">{name}</th><td>{escape(meaning)}</td></tr>' for name, meaning in _LOAD_TEST
        )
        parts.append(f'<h3>Load tests</h3><table class="small"><tbody>{rows}</tbody></table>')
    return f"<section><h2>Where the figures are from</h2>{''.join(parts)}</section>"


def _sources(contents: Contents, told: Sequence[str]) -> str:
    by_text: dict[str, list[str]] = {}
    for place, text in enumerate(told):
        by_text.setdefault(text, []).append(letter(place))
    if len(by_text) == 1 and len(contents.sides) == 1:
        return escape(told[0])
    return "<br>".join(f"<b>{', '.join(letters)}</b> {escape(text)}" for text, letters in by_text.items())


_LOAD_TEST = (
    ("TTFT", "from sending a request to its first non-empty content, reasoning or tool-call delta"),
    ("TPOT", "time per output token after the first chunk: (last token - first token) / (tokens - tokens of the first "
             "chunk); not measurable for a reply of one chunk"),
    ("ICL", "gap between two chunks of a reply; a chunk may hold several tokens"),
    ("E2E", "from sending a request to its last token"),
    ("tok/s, steady", "output tokens that arrived in the steady window, in which all users were busy, over its length; "
                      "warm-up and tail are not in it"),
    ("tok/s, whole", "all output tokens over the time from the first request sent to the last one done"),
    ("goodput", "requests that met every stated SLO"),
    ("p50, p95, p99", "of the requests of one stage; percentiles are never averaged over stages"),
    ("interval", "95 %, over repeats of the same load, by Student's t"),
)  # fmt: skip
