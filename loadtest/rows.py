"""
From a measured stage to rows of the store.

Rows have neither host nor run id here: who reads a worker's lines adds them (see `loadtest.records`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from loadtest import counted
from loadtest.facts import StageFacts
from loadtest.preparation import Identified
from loadtest.spec import EndpointSpec, Spec
from loadtest.timing import Judgement, RequestTiming, Window
from store.loadtest_rows import LoadtestJudgement, LoadtestRequest, LoadtestStage

_ADDED_BY_READER = ""


def request_row(timing: RequestTiming, stage_id: int, began: datetime, window: Window | None) -> LoadtestRequest:
    """One request of a stage whose clock began at `began`."""
    at = timing.sent_seconds if timing.sent_seconds is not None else timing.scheduled_seconds or 0.0
    return LoadtestRequest(
        ts=began + timedelta(seconds=at),
        host=_ADDED_BY_READER,
        run_id=_ADDED_BY_READER,
        stage_id=stage_id,
        request=timing.request,
        status=timing.status,
        error=timing.error,
        finish_reason=timing.finish_reason,
        http_status=timing.http_status,
        in_window=window is not None and window.holds(timing),
        scheduled_seconds=timing.scheduled_seconds,
        sent_seconds=timing.sent_seconds,
        headers_seconds=timing.headers_seconds,
        first_data_seconds=timing.first_data_seconds,
        first_token_seconds=timing.first_token_seconds,
        first_visible_seconds=timing.first_visible_seconds,
        last_token_seconds=timing.last_token_seconds,
        done_seconds=timing.done_seconds,
        input_tokens=timing.input_tokens,
        cached_input_tokens=timing.cached_input_tokens,
        output_tokens=timing.output_tokens,
        first_chunk_tokens=timing.first_chunk_tokens,
        chunks=timing.chunks,
        tokens_source=timing.tokens_source,
        ttft_seconds=timing.ttft_seconds,
        tpot_seconds=timing.tpot_seconds,
        e2e_seconds=timing.e2e_seconds,
        from_schedule_seconds=timing.from_schedule_seconds,
        longest_gap_seconds=max(timing.gaps_seconds, default=None),
    )


def stage_row(
    facts: StageFacts,
    spec: Spec,
    endpoint: EndpointSpec,
    identified: Identified,
    *,
    repeat: int,
    model: str | None,
    began: datetime,
    ended: datetime,
    details: Mapping[str, Any],
) -> LoadtestStage:
    """A stage with its figures; `details` adds to those of the summary."""
    window = facts.window
    closed = spec.mode == "closed"
    return LoadtestStage(
        ts=began,
        ended=ended,
        host=_ADDED_BY_READER,
        run_id=_ADDED_BY_READER,
        stage_id=facts.stage_id,
        url=endpoint.url,
        label=endpoint.name,
        engine=identified.engine,
        engine_id=endpoint.engine_id,
        epoch_id=None,
        engine_version=identified.version,
        model_id=model,
        mode=spec.mode,
        concurrency=int(facts.level) if closed else spec.max_in_flight,
        offered_requests_per_second=None if closed else facts.level,
        repeat=repeat,
        window_begin=began + timedelta(seconds=window.begin_seconds) if window else None,
        window_end=began + timedelta(seconds=window.end_seconds) if window else None,
        counters=json.dumps(counted.document(facts.before, facts.after)),
        details=json.dumps(facts.summary.details() | {"client": asdict(facts.client)} | dict(details)),
        **facts.summary.columns(),
    )


def judgement_row(judgement: Judgement, at: datetime) -> LoadtestJudgement:
    """A judgement that was made at `at`."""
    return LoadtestJudgement(
        ts=at,
        host=_ADDED_BY_READER,
        run_id=_ADDED_BY_READER,
        stage_id=judgement.stage_id,
        code=judgement.code,
        severity=judgement.severity,
        text=judgement.text,
    )
