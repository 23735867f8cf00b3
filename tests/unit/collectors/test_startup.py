"""How long an engine took to start, from samples of it that are a few seconds apart."""

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import timedelta

import psutil
import pytest

from collectors.startup import NOT_SEEN, RAN_ALREADY, TOKEN_NOT_SEEN, StartupWatch, start_error
from store.model import EngineState, Epoch, Row, Startup
from tests.support.rows import at, epoch, sample

BEGAN = at(-60)  # the collector began to look a minute before the engine's process started


class Rows:
    """A sink that keeps what it gets."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def put(self, rows: Sequence[Row]) -> None:
        self.rows += rows

    @property
    def startups(self) -> list[Startup]:
        return [row for row in self.rows if isinstance(row, Startup)]


def look(*samples: Row, life: Epoch | None = None, known: Sequence[Startup] = (), began: float = -60) -> list[Startup]:
    sink = Rows()
    rows: Sequence[Mapping[str, object]] = [asdict(row) for row in known]
    watch = StartupWatch(sink, lambda _: life or epoch(), at(began), rows)
    for one in samples:
        watch.put([one])
    assert [row for row in sink.rows if not isinstance(row, Startup)] == list(samples)  # all are passed on
    return sink.startups


def loading(seconds: float) -> Row:
    return sample(seconds, state=EngineState.LOADING)


def ready(seconds: float, tokens: float | None = 0.0, live: float | None = None) -> Row:
    return sample(seconds, generation_tokens_total=tokens, generation_live_tokens_total=live)


def figures(row: Startup) -> tuple[float | None, float | None, float | None, str | None]:
    return row.ready_seconds, row.first_token_seconds, row.resolution_seconds, row.note


def test_ready_is_the_first_sample_that_found_it_so_and_the_sample_before_bounds_it() -> None:
    # The process started at T0. Loading at 3 s and 5 s, ready at 7 s: it became ready between 5 s and 7 s.
    told = look(loading(3), loading(5), ready(7), ready(9))
    assert [figures(row) for row in told] == [(7.0, None, 2.0, None)]


def test_the_first_token_is_told_when_a_counter_moves_whichever_moves_first() -> None:
    # Tokens are counted live at 13 s while the settled counter still says 0; samples are 2 s apart, then 4 s.
    told = look(loading(5), ready(7), ready(9), ready(13, 0.0, live=5.0), ready(15, 20.0, live=20.0))
    assert [figures(row) for row in told] == [(7.0, None, 2.0, None), (7.0, 13.0, 4.0, None)]


def test_an_engine_that_was_ready_at_the_first_look_became_so_since_its_process_started() -> None:
    assert [figures(row) for row in look(ready(4, 3.0))] == [(4.0, 4.0, 4.0, None)]


def test_an_engine_that_ran_already_has_no_figures_and_says_why() -> None:
    told = look(ready(100, 3.0), ready(102, 5.0), began=50)
    assert [figures(row) for row in told] == [(None, None, None, RAN_ALREADY)]


def test_a_collector_that_began_while_the_engine_was_loading_saw_it_become_ready() -> None:
    assert [figures(row) for row in look(loading(52), ready(54), began=50)] == [(54.0, None, 2.0, None)]


def test_a_process_that_cannot_be_seen_has_no_start_to_count_from() -> None:
    hidden = replace(epoch(), started_is_process_start=False)
    assert [figures(row) for row in look(loading(3), ready(7), life=hidden)] == [(None, None, None, NOT_SEEN)]


def test_a_busy_or_locked_engine_is_neither_ready_nor_loading() -> None:
    told = look(loading(3), sample(5, state=EngineState.BUSY), sample(7, state=EngineState.UNAUTHORISED), ready(9))
    assert [figures(row) for row in told] == [(9.0, None, 6.0, None)]


def test_a_start_that_the_system_tells_too_early_or_late_is_put_right() -> None:
    # The process is said to have started at T0; it did so 0.8 s later. Ready at 7 s: 6.2 s after its start.
    sink = Rows()
    watch = StartupWatch(sink, lambda _: epoch(), BEGAN, (), timedelta(seconds=-0.8))
    watch.put([loading(5), ready(7)])
    (row,) = sink.startups
    assert (row.started, row.ready_seconds, row.resolution_seconds) == (at(0.8), pytest.approx(6.2), 2.0)


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux tells the start since boot")
def test_the_start_of_a_process_is_told_to_a_tenth_of_a_second() -> None:
    before = time.time()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        after = time.time()
        started = psutil.Process(child.pid).create_time() - start_error().total_seconds()
        assert before - 0.1 <= started <= after + 0.1


def test_another_life_is_told_anew() -> None:
    watch_rows = look(ready(4), sample(64, "vllm-8000@2"), life=epoch("vllm-8000@2", started=60))
    # the sample of the life that is over tells nothing; the new one was ready 4 s after its start
    assert [(row.epoch_id, row.ready_seconds) for row in watch_rows] == [("vllm-8000@2", 4.0)]


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        (ready(100, 0.0), [(7.0, 104.0, 4.0, None)]),
        (ready(100, 9.0), [(7.0, None, 2.0, TOKEN_NOT_SEEN)]),
    ],
)
def test_a_collector_that_starts_again_goes_on_where_it_was(
    first: Row, expected: list[tuple[float | None, float | None, float | None, str | None]]
) -> None:
    known = look(loading(5), ready(7))
    assert [figures(row) for row in look(first, ready(104, 9.0), known=known, began=90)] == expected


def test_what_is_complete_is_never_written_again() -> None:
    known = look(loading(5), ready(7), ready(9, 3.0))
    assert look(ready(100, 0.0), ready(102, 9.0), known=known, began=90) == []
    unknown = look(ready(100), began=50)
    assert look(ready(200), known=unknown, began=150) == []
