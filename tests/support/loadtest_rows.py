"""Rows of load tests with believable defaults, so that a test names only what it is about."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestResource, LoadtestRun, LoadtestStage
from tests.support.rows import ENGINE, EPOCH, HOST, T0, at

RUN = "20261130T120000Z-0001"


def run(run_id: str = RUN, state: str = "finished", **values: Any) -> LoadtestRun:
    """A load test of our own that began at T0."""
    known: dict[str, Any] = dict.fromkeys(field.name for field in fields(LoadtestRun))
    known |= {"ts": T0, "host": HOST, "name": f"run {run_id[-4:]}", "source": "engine-room", "started_by": "page"}
    return LoadtestRun(**(known | {"run_id": run_id, "state": state, "began": T0} | values))


def stage(stage_id: int = 0, run_id: str = RUN, seconds: float = 0, **values: Any) -> LoadtestStage:
    """A stage of ten seconds that began `seconds` after T0; nothing measured."""
    known: dict[str, Any] = dict.fromkeys(field.name for field in fields(LoadtestStage))
    known |= {
        "ts": at(seconds), "ended": at(seconds + 10), "host": HOST, "url": "http://127.0.0.1:8000", "label": "vLLM",
        "engine": "vllm", "engine_id": ENGINE, "epoch_id": EPOCH, "mode": "closed", "concurrency": 1, "repeat": 0,
    }  # fmt: skip
    return LoadtestStage(**(known | {"run_id": run_id, "stage_id": stage_id} | values))


def request(number: int, stage_id: int = 0, run_id: str = RUN, **values: Any) -> LoadtestRequest:
    """A request that succeeded."""
    known: dict[str, Any] = dict.fromkeys(field.name for field in fields(LoadtestRequest))
    known |= {"ts": at(number), "host": HOST, "status": "ok", "in_window": True}
    return LoadtestRequest(**(known | {"run_id": run_id, "stage_id": stage_id, "request": number} | values))


def judgement(
    code: str, severity: str = "ok", stage_id: int | None = None, run_id: str = RUN, text: str = "as it should be"
) -> LoadtestJudgement:
    """What a run says of itself."""
    return LoadtestJudgement(T0, HOST, run_id, stage_id, code, severity, text)


def resource(stage_id: int = 0, run_id: str = RUN, device_id: str | None = None, **values: Any) -> LoadtestResource:
    """What the engine used in a stage; nothing known but the number of samples."""
    known: dict[str, Any] = dict.fromkeys(field.name for field in fields(LoadtestResource))
    known |= {"ts": T0, "host": HOST, "engine_id": ENGINE, "epoch_id": EPOCH, "samples": 5}
    return LoadtestResource(**(known | {"run_id": run_id, "stage_id": stage_id, "device_id": device_id} | values))
