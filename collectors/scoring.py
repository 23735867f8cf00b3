"""
Prediction against measurement: the memory plan of every engine that runs here, beside what was sampled.

One comparison is a handful of `memory_plan` rows. It is stored once for each life of an engine, as soon as both
sides are known, and again when a figure moved by more than a hundredth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
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
from collectors.prediction import Prediction, predict
from collectors.scheduler import Outcome
from store.model import EngineState, MemoryScore, Row, SourceState
from store.protocol import Parameter, Store, StoreError

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
        self, store: Store, host: str, environments: Environments, fit_params: Path | None, told: Told = dict
    ) -> None:
        """`fit_params`: llama.cpp's own estimator, or None; `told`: memory by engine_id, as the engines say."""
        self._store = store
        self._host = host
        self._environments = environments
        self._told = told
        self._parts: MemoryParts | None = None
        self._fit_params = fit_params
        self._predictions: dict[tuple[Any, ...], Prediction] = {}
        self._fits: dict[str, list[Compared]] = {}
        self._written: dict[str, dict[str, tuple[float | None, ...]]] | None = None
        self._runs = 0
        self._seen: dict[str, int] = {}  # epoch -> the run that saw it serve first

    def run(self, ts: datetime, monotonic_seconds: float) -> Outcome:
        """Compare once."""
        try:
            known = self._store.query("overview").to_pylist()
            if self._written is None:
                self._written = _stored(self._store.query("memory_scores").to_pylist())
            if self._parts is None:
                self._parts = MemoryParts(self._host, self._store.query("memory_parts").to_pylist())
            devices = self._store.query("devices").to_pylist()
            held = _held(self._store, ts)
        except StoreError as error:
            return Outcome(rows=(), state=SourceState.ERROR, detail=f"Nothing was compared: {error}")
        engines = [row for row in known if row["state"] in SERVING]
        rows: list[Row] = []
        without = []
        told = self._told()
        for engine in engines:
            prediction = self._predict(engine, _devices_of(engine, devices, held))
            if prediction.plan is None:
                without.append(f"{engine['label']}: {prediction.reason}")
            compared = self._compare(engine, prediction, held)
            if compared and self._is_news(str(engine["epoch_id"]), compared):
                rows += self._rows(ts, engine, prediction, compared)
            parts = parts_of(engine, prediction, told.get(str(engine["engine_id"]), {}))
            rows += self._parts.rows(ts, engine, parts)
        detail = f"{len(engines) - len(without)} of {len(engines)} engine(s) that serve have a plan"
        if without:
            detail += ". Without one: " + " ".join(without)
        self._runs += 1
        fresh = [self._seen.setdefault(str(row["epoch_id"]), self._runs) for row in engines]
        soon = SOON_SECONDS if self._runs - max([0, *fresh]) < SOON_RUNS else None
        return Outcome(rows=rows, state=SourceState.OK, detail=detail, next_in_seconds=soon)

    def _predict(self, engine: Mapping[str, Any], devices: Sequence[tuple[str, Device]]) -> Prediction:
        facts = tuple(
            engine.get(name)
            for name in ("epoch_id", "arguments", "model_path", "version", "slots", "max_context_tokens", "facts")
        )
        capacities = tuple(device.capacity_bytes for _, device in devices)
        key = (*facts, engine.get("kv_capacity_tokens"), capacities)
        if key not in self._predictions:
            environment = self._environments().get(str(engine["engine_id"]), {})
            host = Device("host", psutil.virtual_memory().total)
            self._predictions = {k: v for k, v in self._predictions.items() if k[0] != engine.get("epoch_id")}
            self._predictions[key] = predict(engine, [device for _, device in devices], host, environment)
        return self._predictions[key]

    def _compare(
        self, engine: Mapping[str, Any], prediction: Prediction, held: Mapping[tuple[str, str], Mapping[str, Any]]
    ) -> list[Compared]:
        """All parts of one engine; empty while nothing has been measured yet."""
        if prediction.plan is None:
            return [Compared("plan", "bytes", None, None, None, prediction.reason)]
        made = prediction.plan
        found = []
        host = _host_total(engine, made)
        if host is not None and engine.get("host_memory_bytes") is not None:
            found.append(
                Compared(
                    "host memory", "bytes", host, float(engine["host_memory_bytes"]),
                    engine.get("host_memory_method"), _host_note(prediction, made.host),
                )
            )  # fmt: skip
        mine = sorted(
            (row for (owner, _), row in held.items() if owner == engine["engine_id"]), key=lambda row: int(row["index"])
        )
        for place, row in zip(made.devices, mine, strict=False):
            found.append(
                Compared(
                    f"memory of GPU {row['index']}", "bytes", place.total_bytes,
                    row["memory_bytes"], row["method"], prediction.reason,
                )
            )  # fmt: skip
        if made.kv_capacity_tokens is not None and engine.get("kv_capacity_tokens") is not None:
            tokens = Interval.exactly(made.kv_capacity_tokens)
            found.append(
                Compared("KV cache", "tokens", tokens, float(engine["kv_capacity_tokens"]), "engine", prediction.reason)
            )
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
        written = self._written if self._written is not None else {}
        before = written.get(epoch_id)
        if before is not None and before.keys() == now.keys() and not any(_moved(before[p], now[p]) for p in now):
            return False
        written[epoch_id] = now
        return True

    def _rows(
        self, ts: datetime, engine: Mapping[str, Any], prediction: Prediction, compared: Sequence[Compared]
    ) -> list[MemoryScore]:
        whole = json.dumps(document(prediction.plan)) if prediction.plan else None
        return [
            MemoryScore(
                ts=ts,
                host=self._host,
                engine_id=str(engine["engine_id"]),
                epoch_id=str(engine["epoch_id"]),
                engine=str(engine["kind"]),
                engine_version=engine.get("version"),
                model=prediction.model.name if prediction.model else engine.get("model_id"),
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


def _host_total(engine: Mapping[str, Any], made: MemoryPlan) -> Interval | None:
    """
    What the engine's processes should hold in host memory; None where there is no rule for it.

    vLLM's plan has no process of its own in it but, on a CPU, the worker's; one of its tree is a small helper
    (multiprocessing's resource tracker), so the lower bound leaves one out.
    """
    if engine["kind"] != "vllm":
        return made.host.total_bytes
    count = int(engine.get("process_count") or 0) - (0 if made.devices else 1)
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


def _held(store: Store, ts: datetime) -> dict[tuple[str, str], Mapping[str, Any]]:
    """The newest device memory of each engine on each device, by (engine_id, device_id), with the device's index."""
    span: dict[str, Parameter] = {"start": ts - timedelta(seconds=60), "end": ts, "points": 100}
    indexes = {row["device_id"]: row["index"] for row in store.query("devices").to_pylist()}
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    for row in store.query("device_memory_series", span).to_pylist():
        if row["part"] == "engine" and row["memory_bytes"] is not None and row["device_id"] in indexes:
            found[row["engine_id"], row["device_id"]] = {**row, "index": indexes[row["device_id"]]}
    return found


def _devices_of(
    engine: Mapping[str, Any], devices: Sequence[Mapping[str, Any]], held: Mapping[tuple[str, str], Mapping[str, Any]]
) -> list[tuple[str, Device]]:
    """The devices that the engine holds memory on, in the driver's order; CUDA's total is NVML's less its reserve."""
    found = []
    for row in sorted(devices, key=lambda row: int(row["index"])):
        mine = held.get((str(engine["engine_id"]), str(row["device_id"])))
        if mine is None or row["memory_total_bytes"] is None:
            continue
        reserved = int(row["memory_reserved_bytes"] or 0)
        others = int(row["memory_used_bytes"] or 0) - reserved - int(mine["memory_bytes"])
        name = f"GPU {row['index']} {row['name']}"
        found.append((str(row["device_id"]), Device(name, int(row["memory_total_bytes"]) - reserved, max(0, others))))
    return found


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
