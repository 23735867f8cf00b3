"""What the command line shows of a run: progress on one line, results in a table."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TextIO

import humanize

from collectors.report import table_text
from loadtest.records import Progress, RunBegan, StageBegan
from loadtest.spec import Spec
from store.loadtest_rows import LoadtestJudgement, LoadtestStage

_PLAIN_EVERY_SECONDS = 15.0


class Ticker:
    """Live progress on `stream`: one line that is written anew on a terminal, a line now and then elsewhere."""

    def __init__(self, spec: Spec, stream: TextIO = sys.stderr) -> None:
        self._spec, self._stream = spec, stream
        self._terminal = stream.isatty()
        self._stages = 0
        self._stage: StageBegan | None = None
        self._width = 0
        self._told = 0.0

    def began(self, record: RunBegan) -> None:
        """The number of stages is known."""
        self._stages = record.stages

    def stage(self, record: StageBegan) -> None:
        """Another stage."""
        self._stage = record
        self._told = time.monotonic()
        self.line(f"{self._where()}: {'warming up' if self._spec.warmup.most_batches else 'begins'}")

    def progress(self, record: Progress) -> None:
        """A second later."""
        if not self._terminal and time.monotonic() - self._told < _PLAIN_EVERY_SECONDS:
            return
        self._told = time.monotonic()
        of = f" of {record.planned}" if record.planned is not None else ""
        parts = [f"{self._where()}: {record.phase}, {record.done}{of} done"]
        if record.failed:
            parts.append(f"{record.failed} failed")
        if record.output_tokens_per_second is not None:
            parts.append(f"{record.output_tokens_per_second:.1f} tok/s")
        if record.seconds_left is not None:
            parts.append(f"about {humanize.naturaldelta(timedelta(seconds=record.seconds_left))} left")
        self.line(", ".join(parts))

    def line(self, text: str) -> None:
        """Show `text` in place of what stood there."""
        if self._terminal:
            self._stream.write("\r" + text.ljust(self._width))
            self._width = len(text)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def say(self, text: str) -> None:
        """A line that stays."""
        self.end()
        self._stream.write(text + "\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the line as it is."""
        if self._terminal and self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._width = 0

    def _where(self) -> str:
        stage = self._stage
        if stage is None:
            return "starting"
        unit = "requests/s" if self._spec.mode != "closed" else "user" if stage.level == 1 else "users"
        return f"[{stage.stage_id + 1}/{self._stages}] {stage.label}, {stage.level:g} {unit}"


def stages_table(stages: Sequence[LoadtestStage]) -> str:
    """The figures of each stage, one row each; a dash where a figure was not measurable."""
    closed = all(stage.mode == "closed" for stage in stages)
    header = [
        "endpoint", "users" if closed else "offered req/s", "repeat", "failed", "tok/s (window)", "tok/s (whole)",
        "req/s", "TTFT p50 ms", "TTFT p99 ms", "TPOT p50 ms", "ICL p99 ms", "E2E p50 s", "goodput req/s",
    ]  # fmt: skip
    rows = [
        [
            stage.label,
            stage.concurrency if closed else _number(stage.offered_requests_per_second),
            f"{stage.repeat + 1}",
            "-" if stage.requests is None else f"{stage.failed} of {stage.requests}",
            _number(stage.output_tokens_per_second),
            _number(stage.whole_output_tokens_per_second),
            _number(stage.requests_per_second),
            _number(stage.ttft_p50_seconds, 1000),
            _number(stage.ttft_p99_seconds, 1000),
            _number(stage.tpot_p50_seconds, 1000),
            _number(stage.icl_p99_seconds, 1000),
            _number(stage.e2e_p50_seconds),
            _number(stage.goodput_requests_per_second),
        ]
        for stage in stages
    ]
    return table_text(header, rows)


def judgement_lines(judgements: Iterable[LoadtestJudgement], stages: Sequence[LoadtestStage]) -> list[str]:
    """
    What was found as lines, the worst first, with the stage that it is about.

    What was found in several stages is one line, in the words of the first of them.
    """
    names = {stage.stage_id: f"{stage.label} at {_level(stage)}, repeat {stage.repeat + 1}" for stage in stages}
    order = {"failed": 0, "warning": 1, "note": 2, "ok": 3}
    found: dict[tuple[str, str, bool], list[LoadtestJudgement]] = {}
    for judgement in sorted(judgements, key=lambda each: order.get(each.severity, 0)):
        of_run = judgement.stage_id is None
        found.setdefault((judgement.severity, judgement.code, of_run), []).append(judgement)
    lines = []
    for (severity, _, of_run), alike in found.items():
        for judgement in alike if of_run else alike[:1]:
            where = names.get(judgement.stage_id, "") if judgement.stage_id is not None else ""
            where += f" (and {len(alike) - 1} more of {len(stages)} stages)" if where and len(alike) > 1 else ""
            lines.append(f"{severity}: {where + ': ' if where else ''}{judgement.text}")
    return lines


def _level(stage: LoadtestStage) -> str:
    return str(stage.concurrency) if stage.mode == "closed" else f"{stage.offered_requests_per_second:g} requests/s"


def _number(value: float | None, factor: float = 1.0) -> str:
    return "-" if value is None else f"{value * factor:.4g}"
