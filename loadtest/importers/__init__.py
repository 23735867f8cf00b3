"""
Result files of other tools as runs beside our own.

A file is told by what is in it, never by its name. Its measures are translated to the definitions of
`loadtest.statistics`; one that has no counterpart here keeps its own name in a stage's `details`, and what a file lacks
stays None with a judgement that says so. Nothing in a file is executed or fetched, and no prompt or answer is taken.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath
from typing import Any

from loadtest.importers import aiperf, guidellm, llama_bench, llama_benchy, vllm_bench
from loadtest.importers.reading import MOST_CHARACTERS, File, ImportFailedError, parse
from store.loadtest_rows import LoadtestJudgement, LoadtestRun, LoadtestStage
from store.model import Row

__all__ = ["FORMATS", "ImportFailedError", "Imported", "load"]

FORMATS = (
    "vllm bench serve (JSON, or one result a line)",
    "guidellm (JSON)",
    "AIPerf (profile_export_aiperf.json, or profile_export.jsonl)",
    "llama-bench (JSON, JSONL, CSV)",
    "llama-benchy (JSON)",
)
_MOST_NAME = 120


@dataclass(frozen=True, slots=True)
class Imported:
    """What a file became: one run with its stages, requests and judgements, and `notes` for who imported it."""

    run_id: str
    rows: Sequence[Row]
    notes: tuple[str, ...]


def load(name: str, text: str, now: datetime, host: str) -> Imported:
    """
    The rows of one result file. `now` is when it is imported, `host` who imports it.

    Raises `ImportFailedError`, whose message names the file and says what is wrong with it.
    """
    plain = "".join(c for c in PurePath(name.replace("\\", "/")).name if c.isprintable())[:_MOST_NAME] or "unnamed file"
    digest = hashlib.sha256(f"{plain}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
    file = File(plain, now, host, f"{now:%Y%m%dT%H%M%SZ}-{digest[:8]}")
    if len(text) > MOST_CHARACTERS:
        raise file.fail(f"it has {len(text):,} characters, at most {MOST_CHARACTERS:,} are taken")
    if not text.strip():
        raise file.fail("it is empty")
    rows = _rows(text, file)
    run = next(row for row in rows if isinstance(row, LoadtestRun))
    stages = sum(isinstance(row, LoadtestStage) for row in rows)
    judged = [row.text for row in rows if isinstance(row, LoadtestJudgement) and row.severity != "ok"]
    first = f"{plain}: {stages} {'stage' if stages == 1 else 'stages'} of {run.source}."
    return Imported(file.run_id, rows, (first, *dict.fromkeys(judged)))


def _rows(text: str, file: File) -> list[Row]:
    if llama_bench.is_csv(text):
        return llama_bench.load(llama_bench.from_csv(text, file), file)
    document = parse(text, file)
    several: list[Any] = document if isinstance(document, list) else [document]
    if not several:
        raise file.fail("it holds an empty list: did the benchmark fail?")
    first = several[0]
    if llama_bench.recognises(first):
        return llama_bench.load(several, file)
    if vllm_bench.recognises(first):
        return vllm_bench.load(several, file)
    if aiperf.recognises_records(first):
        return aiperf.load_records(several, file)
    if len(several) == 1 and guidellm.recognises(first):
        return guidellm.load(first, file)
    if len(several) == 1 and aiperf.recognises(first):
        return aiperf.load(first, file)
    if len(several) == 1 and llama_benchy.recognises(first):
        return llama_benchy.load(first, file)
    keys = ", ".join(sorted(first)[:6]) if isinstance(first, dict) and first else "none"
    raise file.fail(f"it is no result of a known tool (its first keys: {keys}). Known are {'; '.join(FORMATS)}")
