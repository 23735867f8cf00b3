"""
A load test in words, as HTML: what it is, what it says against itself, and how its engines are drawn.

All text from outside is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import PurePath
from typing import Any

from views import cards, formatting, loadtest_data, memory_bar, palette
from views.loadtest_data import Row, Run
from views.palette import Series
from views.states import Look
from views.tips import tip

STATES: Mapping[str, Look] = {
    "waiting": Look("waiting", "work", "It waits until another run on one of its engines is over."),
    "running": Look("running", "work", "Requests are being sent."),
    "finished": Look("finished", "good", "All its stages ran."),
    "stopped": Look("stopped", "warn", "Somebody stopped it; what was measured until then is valid."),
    "failed": Look("failed", "bad", "It ended by itself before its time; the detail says why."),
    "interrupted": Look("interrupted", "bad", "Its collector or its command line went away meanwhile."),
    "imported": Look("imported", "off", "Read from a result file of another tool."),
}
SEVERITIES: Mapping[str, tuple[str, str]] = {  # severity -> (word, tone), those first that matter most
    "failed": ("failed", "bad"),
    "warning": ("warning", "warn"),
    "note": ("note", "work"),
    "ok": ("passed", "good"),
}
TOKEN_SOURCES = {
    "usage": "counted by the server (usage)",
    "timings": "counted by the server (timings)",
    "tokenize": "the answer's text counted again by the server's tokeniser",
    "chunks": "chunks counted: a lower bound",
    "file": "as the imported file tells",
}
SHAPE_SYMBOLS = ("\N{BLACK CIRCLE}", "\N{BLACK SQUARE}", "\N{BLACK UP-POINTING TRIANGLE}", "\N{BLACK DIAMOND}")
MODES = {"closed": "closed loop", "constant": "open loop, constant rate", "poisson": "open loop, Poisson"}


def state_look(state: str) -> Look:
    """The look of a run's state; an unknown one keeps its own name."""
    return STATES.get(state, Look(state, "warn", ""))


def badge(look: Look) -> str:
    """A state as a coloured word with its meaning on hover."""
    return f'<span class="er-badge er-{look.tone}">{tip(look.word, look.meaning)}</span>'


def trust_look(row: Row) -> Look:
    """Whether the run may be relied on."""
    if row["trusted"] is None:
        return Look("not judged", "off", "Nothing has been judged yet, or the file tells too little.")
    if row["trusted"]:
        return Look("trusted", "good", "No judgement of severity 'failed' stands against it.")
    return Look("not trusted", "bad", "A judgement of severity 'failed' stands against it; see below.")


def header(run: Run) -> str:
    """Name, state, trust and the facts of a run."""
    return (
        f'<div class="er-run"><h2>{escape(run.name)}</h2>{badge(state_look(str(run.row["state"])))}'
        f'{badge(trust_look(run.row))}</div><p class="er-facts">{_facts(run)}</p>'
    )


def _facts(run: Run) -> str:
    row = run.row
    parts = [
        "own measurement" if row["source"] == loadtest_data.OWN else f"imported from {row['source']}",
        _began(run),
        _took(row),
        workload(run.spec),
        tokens_from(run.stages),
        f"id {row['run_id']}",
    ]
    return " \N{MIDDLE DOT} ".join(escape(part) for part in parts if part)


def _began(run: Run) -> str:
    if run.row["began"]:
        return f"began {formatting.clock(run.row['began'])}"
    return "has not begun" if run.row["source"] == loadtest_data.OWN else "the beginning is not told"


def _took(row: Row) -> str:
    if row["began"] is None or row["ended"] is None:
        return ""
    return f"took {formatting.age((row['ended'] - row['began']).total_seconds())}"


def workload(spec: Mapping[str, Any]) -> str:
    """What was asked for, in a few words; empty for an imported file."""
    given, output = spec.get("input"), spec.get("output")
    if not isinstance(given, Mapping) or not isinstance(output, Mapping):
        return ""
    lengths = {"fixed": "", "uniform": " (uniform)", "lognormal": " (log-normal)"}
    text = f"{_length(given)} in{lengths.get(str(given.get('distribution')), '')}"
    text += f", {formatting.count(output.get('tokens'))} out, {MODES.get(str(spec.get('mode')), '')}"
    text += f", {spec.get('repeats')} repeat{'' if spec.get('repeats') == 1 else 's'}"
    return text + (", prefix cache wanted" if given.get("cached") else "")


def _length(given: Mapping[str, Any]) -> str:
    if given.get("kind") == "file":
        return "prompts of a file"
    if given.get("distribution") == "uniform":
        return f"{formatting.count(given.get('tokens_min'))} to {formatting.count(given.get('tokens_max'))}"
    return formatting.count(given.get("tokens"))


def tokens_from(stages: Sequence[Row]) -> str:
    """Where the token counts are from."""
    found = dict.fromkeys(str(row["tokens_source"]) for row in stages if row["tokens_source"])
    if not found:
        return "tokens: not told" if stages else ""
    return "tokens: " + "; ".join(TOKEN_SOURCES.get(source, source) for source in found)


def engines_of(run: Run, series: Mapping[str, Series]) -> str:
    """The engines of a run with their line, version and model, as a legend."""
    found: dict[str, Row] = {}
    for stage in run.stages:
        found.setdefault(loadtest_data.owner(stage), stage)
    entries = []
    for key, first in found.items():
        kind = cards.title_of(str(first["engine"])) if first["engine"] else "engine not known"
        facts = " ".join(str(part) for part in (kind, first["engine_version"], _model(first["model_id"])) if part)
        entries.append(
            f"<span>{palette.swatch(series[key])}<b>{escape(str(first['label']))}</b> {escape(facts)}</span>"
        )
    return f'<div class="er-legend">{"".join(entries)}</div>'


def _model(model_id: str | None) -> str:
    """A model's name; of one that is served by its file's path the file."""
    if not model_id:
        return "model not told"
    return PurePath(model_id).name if model_id.startswith("/") else model_id


def made_of(run: Run, parts: Sequence[Row], series: Mapping[str, Series]) -> str:
    """
    What the memory of its engines was made of, reserved cache and weights, from rows of the query `memory_parts`.

    Only for the lives of the engines that the run met; empty where nothing is known.
    """
    told = []
    for key, stage in {loadtest_data.owner(stage): stage for stage in run.stages}.items():
        mine = [row for row in parts if row["epoch_id"] is not None and row["epoch_id"] == stage["epoch_id"]]
        if drawn := memory_bar.bars(mine, str(stage["engine"])):
            name = f"<p class='er-plan'><b>{escape(str(stage['label']))}</b></p>"
            told.append(f'<div class="{series[key].css_class}">{name}{drawn}</div>')
    return f'<div class="er-made">{"".join(told)}</div>' if told else ""


def legend(runs: Sequence[Run], series: Mapping[str, Series]) -> str:
    """The engines of several runs, and which shape is which run."""
    entries = [f"<span>{palette.swatch(each)}{escape(each.label)}</span>" for each in series.values()]
    if len(runs) > 1:
        entries += [
            f"<span>{symbol} {escape(run.name)}{'' if run.trusted else ' (not trusted, grey)'}</span>"
            for symbol, run in zip(SHAPE_SYMBOLS, runs, strict=False)
        ]
    return f'<div class="er-legend">{"".join(entries)}</div>'


def judged(run: Run) -> str:
    """
    What the run says of itself: what failed, what is to be known, and what is in order, in this order.

    A judgement that several stages share stands once, with the first stage and the number of the others.
    """
    sentences, chips = [], []
    for severity in SEVERITIES:
        for code, rows in _by_code(row for row in run.judgements if row["severity"] == severity).items():
            word, tone = SEVERITIES[severity]
            text = _where(run, rows[0]) + str(rows[0]["text"])
            text += f" (and in {len(rows) - 1} more stages)" if len(rows) > 1 else ""
            if severity == "ok":
                chips.append(f'<span class="er-badge er-{tone}">{tip(IN_ORDER.get(code, _plain(code)), text)}</span>')
            else:
                title = f"{word}: {escape(_plain(code))}"
                sentences.append(f'<li><span class="er-badge er-{tone}">{title}</span> {escape(text)}</li>')
    listed = f"<ul>{''.join(sentences)}</ul>" if sentences else ""
    passed = f'<p class="er-chips">in order: {" ".join(chips)}</p>' if chips else ""
    return f'<div class="er-judged">{listed}{passed}</div>' if listed or passed else ""


IN_ORDER = {
    "client_saturated": "client idle enough",
    "output_length": "answers as long as asked",
    "input_length": "prompts as long as asked",
    "prefix_cache_hits": "prefix cache as asked",
    "counters_disagree": "engine's counters agree",
    "errors": "no errors",
    "other_engine_busy": "no other engine busy",
    "host_busy": "host otherwise idle",
    "device_shared": "GPU not shared",
    "rate_not_kept": "rate kept",
}


def _plain(code: str) -> str:
    return code.replace("_", " ")


def _by_code(rows: Iterable[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(str(row["code"]), []).append(row)
    return found


def _where(run: Run, row: Row) -> str:
    """The stage that a judgement is about, as the beginning of its sentence; empty for the whole run."""
    stage = next((stage for stage in run.stages if stage["stage_id"] == row["stage_id"]), None)
    if row["stage_id"] is None or stage is None:
        return ""
    return f"{stage_title(stage)}: "


def load_heading(mode: str) -> str:
    """What a level is called."""
    return "users" if mode == "closed" else "requests/s offered"


def stage_title(stage: Row) -> str:
    """A stage in words: engine, load, repeat."""
    level, load = loadtest_data.level_of(stage), load_heading(str(stage["mode"]))
    load = "user" if level == 1 and load == "users" else load
    where = f"{level:g} {load}" if level is not None else f"stage {stage['stage_id']}"
    return f"{stage['label']}, {where}, repeat {int(stage['repeat']) + 1}"


def banner(run: Run) -> tuple[str, str] | None:
    """`(tone, Markdown)` of what has to be said above a run's figures; None where all is well."""
    detail = f" {run.row['detail']}" if run.row["detail"] else ""
    if not run.trusted:
        early = {"failed": "It failed", "stopped": "It was stopped", "interrupted": "It was interrupted"}
        ended = early.get(str(run.row["state"]))
        why = f" {ended}:{detail.rstrip('.')}." if ended and detail else ""
        return (
            "error",
            f"**This run can't be relied on.**{why} It did not pass its own checks, so its curves are grey and nothing "
            "is concluded from it. What failed stands below; measure again when it is put right.",
        )
    match run.row["state"]:
        case "stopped":
            return "warning", f"**Stopped before its end.**{detail} What was measured until then is shown."
        case "failed":
            return "error", f"**The run failed.**{detail} What was measured until then is shown."
        case "interrupted":
            return "warning", f"**The run was interrupted.**{detail} What was measured until then is shown."
        case "imported":
            return "info", "**From a result file.** What the file does not tell is not shown; the notes below name it."
    return None
