"""
What chooses the windows of the Compare page: the row of windows with their menus, the form that adds one, quick starts.

All of it changes only the query string: `w=`, in the order of the windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from typing import Any

import streamlit as st

from store.protocol import StoreError
from views import data, formatting, loadtest_data
from views.cards import title_of
from views.compare_sides import Side
from views.compare_windows import (
    MOST_WINDOWS,
    SHIFTS,
    Chosen,
    EngineWindow,
    RunWindow,
    letter,
    moved,
    of_run,
    texts,
)
from views.palette import Series, swatch

Row = Mapping[str, Any]
RANGES = {"last 15 min": timedelta(minutes=15), "last hour": timedelta(hours=1), "last 24 h": timedelta(hours=24)}
FIXED = "from … to"
BASELINE, LEFT, RIGHT, PREVIOUS, REMOVE = (
    "make it the baseline",
    "move left",
    "move right",
    "add its life before",
    "remove",
)
WAYS = ("engine and time", "life of an engine", "load test")
LIVES_OFFERED = 50


def show(windows: Sequence[Chosen]) -> None:
    """Put windows into the query string; the page then draws them."""
    for name in ("w", "run"):
        st.query_params.pop(name, None)
    if windows:
        st.query_params["w"] = texts(windows)


def draw_windows(windows: Sequence[Chosen], sides: Sequence[Side | str], colours: Mapping[int, Series]) -> None:
    """The windows in their order, each with its menu; a string in place of a side says why it can't be shown."""
    with st.grid(min_column_width=300, gap="small"):
        for place, (window, side) in enumerate(zip(windows, sides, strict=True)):
            with st.container(
                border=True, horizontal=True, wrap=False, vertical_alignment="center", gap="small", height="stretch"
            ):
                key = f"menu-{place}-{window.text()}"
                st.html(_heading(place, window, side, colours.get(place)), width="stretch")
                st.menu_button(
                    "",
                    _actions(windows, place),
                    icon=":material/more_vert:",
                    key=key,
                    help=f"Move, shift or remove window {letter(place)}",
                    type="tertiary",
                    on_click=_act,
                    args=(list(windows), place, key),
                )


def _heading(place: int, window: Chosen, side: Side | str, colour: Series | None) -> str:
    title, words = (side.title, side.when) if isinstance(side, Side) else (window.text().split("~")[0], side)
    mark = swatch(colour) if colour else ""
    base = " · baseline" if place == 0 else ""
    return (
        f'<div class="er-window">{mark}<b>{letter(place)}</b> {escape(title)}<small>{escape(words)}{base}</small></div>'
    )


def _actions(windows: Sequence[Chosen], place: int) -> list[str]:
    actions = [] if place == 0 else [BASELINE, LEFT]
    if place < len(windows) - 1:
        actions.append(RIGHT)
    if isinstance(windows[place], EngineWindow) and len(windows) < MOST_WINDOWS:
        actions += [f"add {name}" for name in SHIFTS]
        actions.append(PREVIOUS)
    return [*actions, REMOVE]


def _act(windows: list[Chosen], place: int, key: str) -> None:
    action, window = st.session_state[key], windows[place]
    shift = SHIFTS.get(str(action).removeprefix("add "))
    if action == REMOVE:
        show([one for position, one in enumerate(windows) if position != place])
    elif action == BASELINE:
        show(moved(windows, place, 0))
    elif action in (LEFT, RIGHT):
        show(moved(windows, place, place + (1 if action == RIGHT else -1)))
    elif isinstance(window, EngineWindow) and shift is not None:
        show([*windows, window.shifted(shift)])
    elif isinstance(window, EngineWindow):
        try:
            before = life_before(data.records("epochs", engine_id=window.engine_id), window)
        except StoreError:
            return  # the page asks again and says why
        if before is None:
            st.toast("No earlier life of this engine is known.")
        else:
            show([*windows, before])


def life_window(lives: Sequence[Row], place: int, now: datetime) -> EngineWindow:
    """The window of one life out of all of an engine, newest first: until the next began, or until now."""
    life = lives[place]
    end = lives[place - 1]["first_seen"] if place else now
    start = life["first_seen"].astimezone(UTC).replace(microsecond=0)
    return EngineWindow(str(life["engine_id"]), start, max(end.astimezone(UTC), start + timedelta(seconds=10)))


def life_before(lives: Sequence[Row], window: EngineWindow) -> EngineWindow | None:
    """The life before the one that a window ends in; None where there is none. `lives`: newest first."""
    begun = [place for place, life in enumerate(lives) if life["first_seen"] < window.end]
    return life_window(lives, begun[1], window.end) if len(begun) > 1 else None


def draw_form(windows: Sequence[Chosen], engines: Mapping[str, str], now: datetime) -> None:
    """The form that adds a window. `engines`: label by engine_id. Raises `StoreError`."""
    if len(windows) >= MOST_WINDOWS:
        st.caption(f"At most {MOST_WINDOWS} windows can be told apart. Remove one first.")
        return
    way = st.segmented_control("What", WAYS, default=WAYS[0], required=True, key="add-way")
    match way:
        case "load test":
            window = _pick_run()
        case "life of an engine":
            window = _pick_life(engines, now)
        case _:
            window = _pick_range(engines, now)
    st.button(
        "Add", type="primary", key="add", disabled=window is None, on_click=show, args=([*windows, window],)
    )  # fmt: skip


def _pick_range(engines: Mapping[str, str], now: datetime) -> Chosen | None:
    if not engines:
        st.caption("No engine has been seen yet.")
        return None
    engine_id = st.selectbox("Engine", list(engines), format_func=lambda key: engines[key], key="add-engine")
    range_name = st.segmented_control(
        "When (UTC)", [*RANGES, FIXED], default="last hour", required=True, key="add-range"
    )
    if range_name in RANGES:
        return EngineWindow(str(engine_id), now - RANGES[str(range_name)], now)
    first = st.datetime_input("From (UTC)", value=now - timedelta(hours=1), step=60, key="add-from")
    last = st.datetime_input("To (UTC)", value=now, step=60, key="add-to")
    if first is None or last is None:
        return None
    start, end = first.replace(tzinfo=UTC), last.replace(tzinfo=UTC)
    if end <= start:
        st.warning("The window ends before it begins.")
        return None
    if start >= now:
        st.warning("The window lies in the future: nothing has been sampled there yet.")
        return None
    return EngineWindow(str(engine_id), start, min(end, now))


def _pick_life(engines: Mapping[str, str], now: datetime) -> Chosen | None:
    every = [row for row in data.records("epochs") if row["engine_id"] in engines]
    if not every:
        st.caption("No life of any engine is known yet.")
        return None
    by_engine: dict[str, list[Row]] = {}
    for row in every:
        by_engine.setdefault(str(row["engine_id"]), []).append(row)
    offered = {
        str(row["epoch_id"]): life_window(lives, place, now)
        for lives in by_engine.values()
        for place, row in enumerate(lives)
    }
    names = {str(row["epoch_id"]): _life_words(row, engines) for row in every[:LIVES_OFFERED]}
    epoch = st.selectbox("Life", list(names), format_func=lambda key: names[key], key="add-life")
    return offered[str(epoch)]


def _life_words(row: Row, engines: Mapping[str, str]) -> str:
    version = f"{title_of(str(row['kind']))} {row['version'] or ''}".strip()
    return f"{engines[str(row['engine_id'])]}: from {formatting.clock(row['first_seen'])}, {version}"


def _pick_run() -> Chosen | None:
    runs = {str(row["run_id"]): row for row in loadtest_data.runs() if row["state"] not in loadtest_data.ACTIVE}
    if not runs:
        st.caption("There is no load test yet. Start one on the page Load test, or import its result there.")
        return None
    names = {run_id: _run_words(row) for run_id, row in runs.items()}
    run_id = st.selectbox("Load test", list(runs), format_func=lambda key: names[key], key="add-run")
    offered = {window.text(): window for window in windows_of(runs[str(run_id)])}
    if not offered:
        st.caption("This load test has no stage.")
        return None
    stages = {text: f"{window.label} at {window.level}" for text, window in offered.items()}
    chosen = st.selectbox("Endpoint and level", list(stages), format_func=lambda key: stages[key], key="add-stage")
    return offered.get(str(chosen))


def _run_words(row: Row) -> str:
    """A run in the list: its name, whom it loaded, where it comes from; its id, which makes the text unique."""
    run_id = str(row["run_id"])
    labels = loadtest_data.endpoint_names(row)
    origin = [] if row["source"] == loadtest_data.OWN else [f"imported from {row['source']}"]
    return " · ".join([str(row["name"]), ", ".join(labels) or "no endpoint known", *origin, run_id])


def windows_of(run: Row) -> list[RunWindow]:
    """Every endpoint and level of a load test. Raises `StoreError`."""
    stages = data.records("loadtest_stages", run_id=str(run["run_id"]))
    return list(dict.fromkeys(of_run(run, stage) for stage in stages))


def quick_starts(engines: Mapping[str, str], now: datetime) -> dict[str, list[Chosen]]:
    """Comparisons that are likely to be asked for, by what they are called. Raises `StoreError`."""
    found: dict[str, list[Chosen]] = {}
    hour, day = RANGES["last hour"], timedelta(days=1)
    overview = [row for row in data.records("overview", at=None) if row["engine_id"] in engines]
    recent = [str(row["engine_id"]) for row in overview if row["state_ts"] is not None and row["state_ts"] > now - hour]
    if len(recent) > 1:
        some = recent[:MOST_WINDOWS]
        name = "all engines" if len(some) == len(recent) else f"{MOST_WINDOWS} engines"
        found[f"{name}, last hour"] = [EngineWindow(one, now - hour, now) for one in some]
    for run in loadtest_data.runs()[:3]:
        stages = windows_of(run) if run["state"] not in loadtest_data.ACTIVE else []
        levels = {window.level: [one for one in stages if one.level == window.level] for window in stages}
        shared = [level for level, those in levels.items() if len(those) > 1]
        if shared:
            found[f"load test “{run['name']}” at {shared[-1]}"] = list(levels[shared[-1]])
    for one in recent[:3]:
        lives = data.records("epochs", engine_id=one)
        if len(lives) > 1:
            found[f"{engines[one]}: this life and the last"] = [life_window(lives, 1, now), life_window(lives, 0, now)]
        window = EngineWindow(one, now - hour, now)
        if any(row["first_seen"] < now - day for row in lives):
            found[f"{engines[one]}: last hour and the same hour yesterday"] = [window.shifted(day), window]
    return dict(list(found.items())[:6])
