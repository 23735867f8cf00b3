"""
What the collector's own samples say of a stage that is over: memory, power, energy, and who else was at work.

The span is that of the measured requests, first sent to last done, so that energy and tokens are of the same seconds.
The figures are stored with the run, because raw samples are deleted after some days.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from loadtest.ingest import Run, Stage
from loadtest.judgement_host import device_shared, host_busy
from store.loadtest_rows import LoadtestJudgement, LoadtestResource
from store.model import Epoch, Row
from store.protocol import Parameter, Store

SAMPLES_WAIT_SECONDS = 15.0  # for the samples that tell the end of a stage to be stored
_PAUSE_SECONDS = 0.5
_SHARED = {
    "device": ("on the same GPU", "failed"),
    "cpu": ("on the same CPUs", "failed"),
    "host": ("on this host, though not on the same GPU", "warning"),
    "unknown": ("and whether it shares the hardware is not known", "warning"),
}


def after_stage(reads: Store, epoch_of: Callable[[str], Epoch | None], host: str, run: Run, stage: Stage) -> list[Row]:
    """Rows about a stage from the samples of its engine and of the others. Raises `StoreError`."""
    engine_id = stage.row.engine_id
    if engine_id is None or stage.begin is None or stage.end is None:
        return []
    _wait_for_samples(reads, engine_id, max(stage.end, stage.row.ended))
    rows: list[Row] = []
    epoch = epoch_of(engine_id)
    if epoch is not None and _ran_at_begin(epoch, stage) and epoch.epoch_id != stage.row.epoch_id:
        # the stage began before the collector had learnt of this life: its row is written anew
        stage = replace(stage, epoch=epoch, row=replace(stage.row, epoch_id=epoch.epoch_id))
        rows.append(stage.row)
    span: dict[str, Parameter] = {"start": stage.begin, "end": stage.end, "engine_id": engine_id}
    resources = [_resource(host, stage, used) for used in reads.query("stage_resources", span).to_pylist()]
    rows += resources
    found = [
        *_restart(stage, epoch),
        *_others(reads.query("stage_others", span).to_pylist(), stage),
        *_host(reads.query("stage_host", span).to_pylist(), stage),
        *_devices(reads, resources, stage),
    ]
    now = datetime.now(UTC)
    rows += [
        LoadtestJudgement(now, host, run.run_id, stage.row.stage_id, code, severity, text)
        for code, severity, text in found
    ]
    return rows


def _wait_for_samples(reads: Store, engine_id: str, moment: datetime) -> None:
    """Until a sample of the engine from after `moment` is stored, or it has none for a while."""
    deadline = time.monotonic() + SAMPLES_WAIT_SECONDS
    while time.monotonic() < deadline:
        newest = [row["state_ts"] for row in reads.query("overview").to_pylist() if row["engine_id"] == engine_id]
        if newest and newest[0] is not None and newest[0] > moment:
            return
        time.sleep(_PAUSE_SECONDS)


def _resource(host: str, stage: Stage, used: Mapping[str, Any]) -> LoadtestResource:
    joules, row = used["energy_joules"], stage.row
    return LoadtestResource(
        ts=datetime.now(UTC),
        host=host,
        run_id=row.run_id,
        stage_id=row.stage_id,
        engine_id=str(row.engine_id),
        epoch_id=row.epoch_id,
        joules_per_output_token=_per(joules, row.output_tokens),
        joules_per_request=_per(joules, row.succeeded),
        **used,
    )


def _per(joules: float | None, count: float | None) -> float | None:
    return joules / count if joules is not None and count else None


def _ran_at_begin(epoch: Epoch, stage: Stage) -> bool:
    return epoch.started_is_process_start and stage.begin is not None and epoch.started < stage.begin


def _restart(stage: Stage, now: Epoch | None) -> Iterator[tuple[str, str, str]]:
    before = stage.epoch
    if before is None or now is None or now.epoch_id == before.epoch_id:
        return
    yield (
        "engine_restarted",
        "failed",
        f"{stage.row.label} restarted or changed between the beginning of this stage and its end "
        f"({before.epoch_id} → {now.epoch_id}): it measured two engines, or half of one. Measure again.",
    )


def _others(others: list[dict[str, Any]], stage: Stage) -> Iterator[tuple[str, str, str]]:
    busy = [other for other in others if other["busy_samples"] or (other["generation_tokens"] or 0) > 0]
    for other in busy:
        tokens = other["generation_tokens"]
        did = (
            f"generated {tokens:,.0f} tokens"
            if tokens
            else f"had up to {other['requests_running_max']:,.0f} requests running"
        )
        where, severity = _SHARED[other["shares"]]
        yield (
            "other_engine_busy",
            severity,
            f"{other['label']} {did} {where} while {stage.row.label} was measured. Keep it idle and measure again.",
        )
    if others and not busy:
        names = ", ".join(sorted(str(other["label"] or other["engine_id"]) for other in others))
        yield ("other_engine_busy", "ok", f"No other engine that is known worked meanwhile (looked at: {names}).")


def _host(used: list[dict[str, Any]], stage: Stage) -> Iterator[tuple[str, str, str]]:
    client = json.loads(stage.row.details or "{}").get("client")
    if client is None or stage.begin is None or stage.end is None:
        return
    seconds = (stage.end - stage.begin).total_seconds()
    for row in used:
        yield from host_busy(row, client["cpu_fraction"], seconds, stage.row.label)


def _devices(reads: Store, resources: Sequence[LoadtestResource], stage: Stage) -> Iterator[tuple[str, str, str]]:
    held = {used.device_id: used.others_memory_bytes for used in resources if used.device_id is not None}
    if not held:
        return
    names = {device["device_id"]: f"GPU {device['index']}" for device in reads.query("devices").to_pylist()}
    for device_id, others_bytes in held.items():
        yield from device_shared(others_bytes, names.get(device_id, device_id), stage.row.label)
