"""A real store that is filled by hand with what a collector would have sampled just now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collectors.engines.base import Reading
from collectors.memory_parts import MemoryParts
from collectors.newest import NewestRows
from collectors.registry import Registry
from collectors.scoring import MemoryScoring
from store.local import LocalStore
from store.model import Engine, EngineSample, Epoch, MemoryScore, ProcessMemory, Row
from store.writer import Writer


@dataclass
class Sampled:
    """A store that is filled with what a collector would have sampled just now."""

    store: LocalStore
    writer: Writer
    started: datetime

    def __post_init__(self) -> None:
        self.newest = NewestRows(self.writer)

    def put(self, *rows: Row) -> None:
        self.newest.put(list(rows))
        self.writer.flush()

    def scoring(
        self,
        fit_params: Path | None = None,
        environments: Mapping[str, Mapping[str, str]] | None = None,
        told: Mapping[str, Mapping[str, Reading]] | None = None,
    ) -> MemoryScoring:
        """A scoring as a collector that starts now makes it."""
        return MemoryScoring(
            Registry("host-a", self.store.query("latest_epochs").to_pylist()),
            self.newest,
            lambda: environments or {},
            fit_params,
            lambda: told or {},
            MemoryParts("host-a", self.store.query("memory_parts").to_pylist()),
            self.store.query("memory_scores").to_pylist(),
        )

    def engine(self, engine_id: str, arguments: list[str] | None, **facts: Any) -> None:
        """An engine in its first life."""
        kind = engine_id.rsplit("-", 1)[0]
        known: dict[str, Any] = {
            "version": "b11434-0123abc" if kind == "llama.cpp" else "0.32.0",
            "model_id": "smollm2",
            "model_path": None,
            "quantization": None,
            "max_context_tokens": None,
            "slots": None,
            "arguments": json.dumps(arguments) if arguments else None,
            "facts": None,
        }
        self.put(
            Engine("host-a", engine_id, kind, f"{kind} here", "http://127.0.0.1:8080", "a test", self.started),
            Epoch("host-a", engine_id, f"{engine_id}@1", self.started, True, self.started, None, **(known | facts)),
        )

    def sample(self, engine_id: str, rss_bytes: int | None, capacity: float | None, state: str = "ready") -> None:
        """What was sampled of it now."""
        now = datetime.now(UTC)
        self.put(
            EngineSample(now, 1000.0, "host-a", engine_id, f"{engine_id}@1", state, None, kv_capacity_tokens=capacity),
            ProcessMemory(now, "host-a", engine_id, f"{engine_id}@1", None, 1, "engine", "rss", rss_bytes, 0.1, 4),
        )

    def score(self, scoring: MemoryScoring, kind: type[Row] = MemoryScore) -> list[dict[str, Any]]:
        """Compare once and store it; the rows of one kind that were written."""
        outcome = scoring.run(datetime.now(UTC), 1000.0)
        self.put(*outcome.rows)
        rows = [row for row in outcome.rows if isinstance(row, kind)]
        return [{name: getattr(row, name) for name in type(row).__slots__} for row in rows]
