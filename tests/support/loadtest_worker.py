"""A load test carried out by its real worker process, as the collector and the command line do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtest.records import Progress, RunBegan, RunEnded, StageBegan, from_line
from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestStage

ROOT = Path(__file__).parents[2]


@dataclass
class Told:
    """All that a worker said."""

    text: str
    began: RunBegan | None = None
    ended: RunEnded | None = None
    stages_began: list[StageBegan] = field(default_factory=list)
    progress: list[Progress] = field(default_factory=list)
    requests: list[LoadtestRequest] = field(default_factory=list)
    stages: list[LoadtestStage] = field(default_factory=list)
    judgements: list[LoadtestJudgement] = field(default_factory=list)

    @property
    def stage(self) -> LoadtestStage:
        """The only one."""
        assert len(self.stages) == 1, self.text[-2000:]
        return self.stages[0]

    def severities(self, code: str) -> set[str]:
        """Of all judgements with this code."""
        return {judgement.severity for judgement in self.judgements if judgement.code == code}

    def sentences(self, code: str) -> str:
        """Of all judgements with this code."""
        return " ".join(judgement.text for judgement in self.judgements if judgement.code == code)

    def details(self) -> dict[str, Any]:
        """Of the only stage."""
        return dict(json.loads(self.stage.details or "{}"))


def read(lines: str) -> Told:
    """What the lines of a worker say."""
    told = Told(lines)
    for line in lines.splitlines():
        record = from_line(line, "host", "run")
        match record:
            case RunBegan():
                told.began = record
            case RunEnded():
                told.ended = record
            case StageBegan():
                told.stages_began.append(record)
            case Progress():
                told.progress.append(record)
            case LoadtestRequest():
                told.requests.append(record)
            case LoadtestStage():
                told.stages.append(record)
            case LoadtestJudgement():
                told.judgements.append(record)
    return told


def spec(url: str, **changes: Any) -> dict[str, Any]:
    """A small closed loop against one endpoint: one user, eight requests of 20 prompt and 5 output tokens."""
    return {
        "endpoints": [{"url": url, "label": "scripted"}],
        "levels": [1],
        "repeats": 1,
        "requests": 8,
        "input": {"tokens": 20},
        "output": {"tokens": 5},
        "warmup": {"most_batches": 0},
        **changes,
    }


def start(given: Mapping[str, Any], folder: Path, **environment: str) -> subprocess.Popen[str]:
    """The worker, with its spec sent."""
    process = subprocess.Popen(
        [sys.executable, "-m", "loadtest.worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "ENGINE_ROOM_DATA": str(folder), **environment},
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(given))
    process.stdin.close()
    return process


def run(given: Mapping[str, Any], folder: Path, **environment: str) -> Told:
    """Let the worker carry out a spec to its end."""
    with start(given, folder, **environment) as process:
        assert process.stdout is not None
        lines = process.stdout.read()
        assert process.wait(60) == 0, lines[-2000:]
    return read(lines)


def exit_status(against: Iterable[str]) -> int:
    """
    Of `loadtest run`, by what it says in `failed` judgements.

    A busy machine may make its own client too slow, and then it has to say so; nothing else may stand against it.
    """
    failed = list(against)
    assert all("The client was a bottleneck" in text for text in failed), failed
    return 4 if failed else 0
