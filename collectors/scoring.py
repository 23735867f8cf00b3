"""
Prediction against measurement: the memory plan of every engine that runs here, beside what was sampled.

One comparison is a handful of `memory_plan` rows. It is stored once for each life of an engine, as soon as both
sides are known, and again when a figure moved by more than a hundredth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import structlog

from calculator.document import document
from calculator.llamacpp_settings import LlamaCppSettings, arguments
from calculator.model import CalculatorError, Device, DevicePlan, Interval, MemoryPlan
from calculator.plan import plan
from collectors.engines.base import Reading
from collectors.fit_params import MIB, NAME, FitParamsError, estimate
from collectors.memory_parts import MemoryParts, parts_of
from collectors.newest import Held, NewestRows, Observed
from collectors.prediction import Prediction, predict
from collectors.registry import Registry
from collectors.scheduler import Outcome
from store.model import Engine, EngineState, Epoch, MemoryScore, Row, SourceState

log = structlog.get_logger(__name__)

INTERVAL_SECONDS = 30.0
SOON_SECONDS, SOON_RUNS = 5.0, 12  # after a start, and after an engine began to serve
CHANGE = 0.01  # a figure that moved by more than this share is stored again
# Python, PyTorch and vLLM's libraries, resident in each process: 640 to 750 MiB on vLLM 0.32.0 (CPU, x86-64, observed).
VLLM_PROCESS_BYTES = Interval(500 * MIB, 1000 * MIB)
SERVING = (EngineState.READY, EngineState.BUSY, EngineState.SLEEPING, EngineState.METRICS_DISABLED)
Environments = Callable[[], Mapping[str, Mapping[str, str]]]
Told = Callable[[], Mapping[str, Mapping[str, Reading]]]


@dataclass(frozen=True, slots=True)
class Compared:
    """One part before it becomes a row. Figures are in `unit`."""

    part: str
    unit: str
    predicted: Interval | None
    measured: float | None
    method: str | None
    reason: str | None = None
    slack: float = 0.0  # how much larger than `measured` the truth may be, where the source rounds down

    @property
    def error_fraction(self) -> float | None:
        """Distance of the measurement from the prediction, as `MemoryScore` defines it."""
        if self.predicted is None or self.measured is None or self.measured <= 0:
            return None
        if self.measured + self.slack < self.predicted.low:
            return (self.predicted.low - self.measured - self.slack) / self.measured
        if self.measured > self.predicted.high:
            return (self.predicted.high - self.measured) / self.measured
        return 0.0


class MemoryScoring:
    """`memory_plan` and `memory_part`, for every engine that serves. The plan of a life is made once."""

    kind = "plan"
    source_id = "memory plans"
    interval_seconds = INTERVAL_SECONDS
    found_by = "engines that serve, their arguments and model files"

    def __init__(
        self,
        registry: Registry,
        newest: NewestRows,
        environments: Environments,
        fit_params: Path | None,
        told: Told,
        parts: MemoryParts,
        scores: Sequence[Mapping[str, Any]] = (),
    ) -> None:
        """
        `fit_params`: llama.cpp's own estimator, or None; `told`: memory by engine_id, as the engines say; `scores`:
        the rows of the query `memory_scores`, so that what is written already is not written again.
        """
        self._registry = registry
        self._newest = newest
        self._environments = environments
        self._fit_params = fit_params
        self._told = told
        self._parts = parts
        self._predictions: dict[tuple[Any, ...], Prediction] = {}
        self._fits: dict[str, list[Compared]] = {}
        self._written = _stored(scores)
        self._runs = 0
        self._seen: dict[str, int] = {}  # epoch -> the run that saw it serve first

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        """Compare once."""
        rows: list[Row] = []
        without, serving, fresh = [], 0, [0]
        told = self._told()
        for known in self._registry.engines():
            observed, epoch = self._newest.of(known.engine_id), self._registry.epoch_of(known.engine_id)
            if epoch is None or observed is None or observed.sample.epoch_id != epoch.epoch_id:
                continue
            if observed.sample.state not in SERVING:
                continue
            serving += 1
            fresh.append(self._seen.setdefault(epoch.epoch_id, self._runs))
            engine = _facts(known, epoch, observed)
            prediction = self._predict(engine, observed)
            if prediction.plan is None:
                without.append(f"{known.label}: {prediction.reason}")
            # what sleeps is not in memory: there is nothing to compare
            asleep = observed.sample.state == EngineState.SLEEPING
            compared = [] if asleep else self._compare(engine, prediction, observed)
            if compared and self._is_news(epoch.epoch_id, compared):
                rows += _rows(ts, engine, prediction, compared)
            rows += self._parts.rows(ts, engine, parts_of(engine, prediction, told.get(known.engine_id, {})))
        detail = f"{serving - len(without)} of {serving} engine(s) that serve have a plan"
        if without:
            detail += ". Without one: " + " ".join(without)
        self._runs += 1
        soon = SOON_SECONDS if self._runs - max(fresh) < SOON_RUNS else None
        return Outcome(rows=rows, state=SourceState.OK, detail=detail, next_in_seconds=soon)

    def _predict(self, engine: Mapping[str, Any], observed: Observed) -> Prediction:
        devices = [_device(held) for held in observed.devices]
        names = ("epoch_id", "arguments", "model_path", "version", "slots", "max_context_tokens", "facts")
        capacities = tuple(device.capacity_bytes for device in devices)
        key = (*(engine[name] for name in names), engine["kv_capacity_tokens"], capacities)
        if key not in self._predictions:
            environment = self._environments().get(str(engine["engine_id"]), {})
            host = Device("host", psutil.virtual_memory().total)
            self._predictions = {k: v for k, v in self._predictions.items() if k[0] != engine["epoch_id"]}
            self._predictions[key] = predict(engine, devices, host, environment)
        return self._predictions[key]

    def _compare(self, engine: Mapping[str, Any], prediction: Prediction, observed: Observed) -> list[Compared]:
        """All parts of one engine; empty while nothing has been measured yet."""
        made = prediction.plan
        if made is None:
            return [Compared("plan", "bytes", None, None, None, prediction.reason)]
        found = []
        resident = observed.host
        host = _host_total(engine, made, resident.process_count if resident else None)
        if host is not None and resident is not None and resident.memory_bytes is not None:
            note = _host_note(prediction, made.host)
            found.append(Compared("host memory", "bytes", host, float(resident.memory_bytes), resident.method, note))
        for place, held in zip(made.devices, observed.devices, strict=False):
            if held.memory_bytes is not None:
                part, size = f"memory of GPU {held.device.index}", float(held.memory_bytes)
                found.append(Compared(part, "bytes", place.total_bytes, size, held.method, prediction.reason))
        capacity = observed.sample.kv_capacity_tokens
        if made.kv_capacity_tokens is not None and capacity is not None:
            tokens = Interval.exactly(made.kv_capacity_tokens)
            found.append(Compared("KV cache", "tokens", tokens, float(capacity), "engine", prediction.reason))
        return [*found, *self._own_estimate(engine, prediction)] if found else []

    def _own_estimate(self, engine: Mapping[str, Any], prediction: Prediction) -> list[Compared]:
        """What llama.cpp's own estimator says, asked once for each life; only where everything is in host memory."""
        settings, made = prediction.settings, prediction.plan
        if self._fit_params is None or made is None or made.devices or not isinstance(settings, LlamaCppSettings):
            return []
        epoch = str(engine["epoch_id"])
        if epoch not in self._fits:
            try:
                self._fits[epoch] = _fit(self._fit_params, prediction, settings)
            except FitParamsError as error:
                log.warning("fit_params_failed", engine=engine["engine_id"], error=str(error))
                self._fits[epoch] = [Compared(NAME, "bytes", None, None, NAME, str(error))]
        return self._fits[epoch]

    def _is_news(self, epoch_id: str, compared: Sequence[Compared]) -> bool:
        now = {part.part: _figures(part) for part in compared}
        before = self._written.get(epoch_id)
        if before is not None and before.keys() == now.keys() and not any(_moved(before[p], now[p]) for p in now):
            return False
        self._written[epoch_id] = now
        return True


def _facts(engine: Engine, epoch: Epoch, observed: Observed) -> dict[str, Any]:
    """What an engine told about itself and what was sampled of it, named as in the query `overview`."""
    sizes = [held.memory_bytes for held in observed.devices]
    known = [size for size in sizes if size is not None]
    return {
        **{column.name: getattr(epoch, column.name) for column in fields(Epoch)},
        "kind": engine.kind,
        "state": observed.sample.state,
        "kv_capacity_tokens": observed.sample.kv_capacity_tokens,
        "device_memory_bytes": sum(known) if known and len(known) == len(sizes) else None,
        "device_memory_method": observed.devices[0].method if observed.devices else None,
        "process_count": observed.host.process_count if observed.host else None,
    }


def _device(held: Held) -> Device:
    """A device as the planner takes it: CUDA's total is NVML's less its reserve; what others hold is in use."""
    reserved = held.sample.memory_reserved_bytes or 0
    total = held.device.memory_total_bytes or held.sample.memory_total_bytes or 0
    others = (held.sample.memory_used_bytes or 0) - reserved - (held.memory_bytes or 0)
    return Device(f"GPU {held.device.index} {held.device.name}", total - reserved, max(0, others))


def _rows(
    ts: datetime, engine: Mapping[str, Any], prediction: Prediction, compared: Sequence[Compared]
) -> list[MemoryScore]:
    whole = json.dumps(document(prediction.plan)) if prediction.plan else None
    return [
        MemoryScore(
            ts=ts,
            host=engine["host"],
            engine_id=engine["engine_id"],
            epoch_id=engine["epoch_id"],
            engine=engine["kind"],
            engine_version=engine["version"],
            model=prediction.model.name if prediction.model else engine["model_id"],
            model_file=prediction.model_file,
            part=part.part,
            unit=part.unit,
            predicted_low=float(part.predicted.low) if part.predicted else None,
            predicted_high=float(part.predicted.high) if part.predicted else None,
            measured=part.measured,
            measured_method=part.method,
            error_fraction=part.error_fraction,
            reason=part.reason,
            document=whole if place == 0 else None,
        )
        for place, part in enumerate(compared)
    ]


def _fit(binary: Path, prediction: Prediction, settings: LlamaCppSettings) -> list[Compared]:
    """
    The estimator's figures beside ours for the same question: it reserves logits for every token of a batch, which
    the server does not.
    """
    if prediction.model is None or prediction.model_file is None:
        return []
    if settings.unified:  # it knows no shared cache: one sequence with all of it is asked about instead
        settings = replace(settings, parallel=1, kv_unified=None)
    try:
        host = plan(prediction.model, replace(settings, all_outputs=True), ()).host
    except CalculatorError as error:
        raise FitParamsError(str(error)) from error
    ours = (
        ("weights", Interval.exactly(host.weights_bytes)),
        ("KV cache and state", Interval.exactly(host.kv_bytes + host.state_bytes)),
        ("compute buffers with logits for all tokens", host.compute_bytes),
    )
    found = estimate(binary, Path(prediction.model_file), _estimator_flags(settings))
    note = "whole MiB, rounded down"
    return [
        Compared(f"{name}, by {NAME}", "bytes", predicted, float(figure), NAME, note, slack=float(MIB - 1))
        for row in found
        if row.device == "Host"
        for (name, predicted), figure in zip(ours, (row.model_bytes, row.context_bytes, row.compute_bytes), strict=True)
    ]


# What the estimator takes of the server's flags (llama-fit-params --help of b11434).
_ESTIMATOR_VALUES = frozenset(
    ("-c", "-np", "-ctk", "-ctv", "-fa", "-b", "-ub", "-ngl", "-sm", "-mg", "-ts", "-ot", "--n-cpu-moe", "--n-cpu-ffn")
)
_ESTIMATOR_SWITCHES = frozenset(("--swa-full", "--cpu-moe", "--no-repack", "--no-kv-offload", "--no-op-offload"))


def _estimator_flags(settings: LlamaCppSettings) -> list[str]:
    words = list(arguments(settings))
    pairs = zip(words, [*words[1:], ""], strict=True)
    kept = [
        [word, following] if word in _ESTIMATOR_VALUES else [word]
        for word, following in pairs
        if word in _ESTIMATOR_VALUES or word in _ESTIMATOR_SWITCHES
    ]
    return [word for group in kept for word in group]


def _host_total(engine: Mapping[str, Any], made: MemoryPlan, processes: int | None) -> Interval | None:
    """
    What the engine's processes should hold in host memory; None where there is no rule for it.

    vLLM's plan has no process of its own in it but, on a CPU, the worker's; one of its tree is a small helper
    (multiprocessing's resource tracker), so the lower bound leaves one out.
    """
    if engine["kind"] != "vllm":
        return made.host.total_bytes
    count = (processes or 0) - (0 if made.devices else 1)
    if count < 1:
        return None
    own = Interval(VLLM_PROCESS_BYTES.low * (count - 1), VLLM_PROCESS_BYTES.high * count)
    return made.host.total_bytes + own


def _host_note(prediction: Prediction, host: DevicePlan) -> str | None:
    texts = [prediction.reason] if prediction.reason else []
    if isinstance(prediction.settings, LlamaCppSettings):
        if prediction.settings.mmap and host.weights_bytes:
            texts.append("Mapped weights count as soon as they have been read once.")
        if prediction.settings.cache_ram_mib:
            texts.append("The prompt cache (--cache-ram) grows in use and is not planned.")
    else:
        least, most = (round(bound / MIB) for bound in (VLLM_PROCESS_BYTES.low, VLLM_PROCESS_BYTES.high))
        texts.append(f"Python and libraries are taken as {least} to {most} MiB in each process (observed).")
    return " ".join(texts) or None


def _figures(part: Compared) -> tuple[float | None, ...]:
    bounds = (part.predicted.low, part.predicted.high) if part.predicted else (None, None)
    return (*bounds, part.measured)


def _moved(before: Sequence[float | None], now: Sequence[float | None]) -> bool:
    for old, new in zip(before, now, strict=True):
        if (old is None) != (new is None):
            return True
        if old is not None and new is not None and abs(new - old) > CHANGE * max(abs(old), 1.0):
            return True
    return False


def _stored(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, tuple[float | None, ...]]]:
    """What was written before this collector began, by epoch and part."""
    found: dict[str, dict[str, tuple[float | None, ...]]] = {}
    for row in rows:
        figures = (row["predicted_low"], row["predicted_high"], row["measured"])
        found.setdefault(str(row["epoch_id"]), {})[str(row["part"])] = figures
    return found
