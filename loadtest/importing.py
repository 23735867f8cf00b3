"""`python -m loadtest import`: files to the collector that answers, or only to the screen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from loadtest import results
from loadtest.importers import ImportFailedError, load
from settings import Settings
from store.client import StoreClient
from store.loadtest_rows import LoadtestJudgement, LoadtestStage
from store.protocol import StoreUnavailableError

_MOST_FILE_BYTES = 200_000_000
_OTHERS = "the file does not tell what else was at work"


@dataclass(frozen=True, slots=True)
class ReadRun:
    """One run that a file became."""

    run_id: str
    stages: tuple[LoadtestStage, ...]
    judgements: tuple[LoadtestJudgement, ...]


@dataclass(frozen=True, slots=True)
class ImportedFiles:
    """What came of it. `stored_as` is empty when no collector answers."""

    runs: tuple[ReadRun, ...]
    notes: tuple[str, ...]
    stored_as: tuple[str, ...]

    def json_document(self) -> str:
        """One JSON document: each run as `loadtest run` prints it."""
        runs = [results.document(run.run_id, run.stages, run.judgements, None, _OTHERS) for run in self.runs]
        return json.dumps({"runs": runs, "notes": self.notes, "stored_as": self.stored_as}, indent=2)


def import_files(paths: Sequence[Path], name: str, settings: Settings) -> ImportedFiles:
    """
    Read the files here and have the collector keep them.

    Raises `ImportFailedError` for a file that is no result, `OSError` for one that can't be read, and `StoreError` when
    the collector refuses.
    """
    files = [{"name": path.name, "text": _text(path)} for path in paths]
    imported = [load(file["name"], file["text"], datetime.now(UTC), settings.host) for file in files]
    runs = tuple(
        ReadRun(
            one.run_id,
            tuple(row for row in one.rows if isinstance(row, LoadtestStage)),
            tuple(row for row in one.rows if isinstance(row, LoadtestJudgement)),
        )
        for one in imported
    )
    client = StoreClient(settings)
    try:
        answer = client.command("loadtest_import", {"files": files} | ({"name": name} if name else {}))
        stored = tuple(str(run_id) for run_id in answer["run_ids"])
    except StoreUnavailableError:
        stored = ()
    finally:
        client.close()
    return ImportedFiles(runs, tuple(note for one in imported for note in one.notes), stored)


def _text(path: Path) -> str:
    if path.stat().st_size > _MOST_FILE_BYTES:
        raise ImportFailedError(f"{path}: a result file may hold {_MOST_FILE_BYTES // 1_000_000} MB at most")
    return path.read_text("utf-8", "replace")
