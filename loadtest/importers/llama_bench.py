"""
Results of `llama-bench -o json | jsonl | csv`: one stage a test.

Read in tools/llama-bench/llama-bench.cpp; fields change between builds and are read by name. It calls the library in
its own process, without a server, without HTTP, without sampling and for one sequence at a time: there is no latency,
no concurrency and no queue in it, and its speed is not what a client of llama-server gets (llama.cpp#25121).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from loadtest.importers.reading import (
    DEFINITIONS,
    IMPORTED,
    MOST_STAGES,
    File,
    iso_moment,
    last_part,
    listed,
    positive,
    text_of,
    whole,
)
from store.loadtest_rows import LoadtestStage
from store.model import Row

SOURCE = "llama-bench"
_MARKS = ("build_commit", "avg_ts", "n_prompt", "n_gen")
_SETTINGS = (
    "backends", "cpu_info", "gpu_info", "model_type", "model_size", "model_n_params", "n_batch", "n_ubatch",
    "n_threads", "type_k", "type_v", "n_gpu_layers", "n_cpu_moe", "split_mode", "flash_attn", "no_kv_offload",
    "use_mmap", "embeddings", "n_depth",
)  # fmt: skip


def recognises(document: Any) -> bool:
    """Whether it is one test."""
    return isinstance(document, dict) and all(mark in document for mark in _MARKS)


def is_csv(text: str) -> bool:
    """Whether a text begins with the head of its CSV."""
    head = next(csv.reader([text[:20_000].lstrip("\ufeff").split("\n", 1)[0]]), [])
    return all(mark in head for mark in _MARKS)


def from_csv(text: str, file: File) -> list[dict[str, Any]]:
    """The tests in its CSV. Raises `ImportFailedError`."""
    reader = csv.DictReader(text.lstrip("\ufeff").splitlines(), strict=True)
    try:
        tests = list(reader)
    except csv.Error as wrong:
        raise file.fail(f"line {reader.line_num} is not CSV ({wrong})") from None
    for number, test in enumerate(tests, 2):
        if None in test or None in test.values():
            raise file.fail(f"line {number} has another number of fields than the head: was the file cut off?")
    return tests


def load(tests: Sequence[Mapping[str, Any]], file: File) -> list[Row]:
    """Rows of all tests of a file. Raises `ImportFailedError`."""
    if not tests:
        raise file.fail("it holds no test: did llama-bench fail?")
    if len(tests) > MOST_STAGES:
        raise file.fail(f"it holds {len(tests)} tests, at most {MOST_STAGES} are taken")
    stages = list(_stages(tests, file))
    lacks = (
        "llama-bench has no latency, no concurrency and no requests: it measures prefill and decode of one sequence."
    )
    where = (
        "It runs the model in its own process, with no server, no HTTP and no sampling: its tokens per second are not "
    )
    where += "those that a client of llama-server gets, and no level of concurrency belongs to them."
    began = [stage.ts for stage in stages if stage.ts != file.now]
    ended = [stage.ended for stage in stages if stage.ended != file.now]
    return [
        file.run(SOURCE, began=min(began, default=None), ended=max(ended, default=None), trusted=None),
        *stages,
        file.judgement(IMPORTED, "note", lacks),
        file.judgement(DEFINITIONS, "note", where),
    ]


def _stages(tests: Sequence[Mapping[str, Any]], file: File) -> Iterator[LoadtestStage]:
    repeats: dict[str, int] = {}
    for stage_id, test in enumerate(tests):
        speed = positive(test.get("avg_ts")) if recognises(test) else None
        if speed is None:
            raise file.fail(f"test {stage_id + 1} is not one of llama-bench, or has no avg_ts: is it complete?")
        yield _stage(test, file, stage_id, speed, repeats)


def _stage(test: Mapping[str, Any], file: File, stage_id: int, speed: float, repeats: dict[str, int]) -> LoadtestStage:
    prompt, generated = whole(test.get("n_prompt")) or 0, whole(test.get("n_gen")) or 0
    depth = whole(test.get("n_depth"))
    model = last_part(f"./{test.get('model_filename') or 'unnamed model'}")  # always the path of a file
    name = (f"pp{prompt}" if prompt else "") + (f"{'+' if prompt else ''}tg{generated}" if generated else "")
    name += f" @ d{depth}" if depth else ""
    samples = [value for value in map(positive, listed(test.get("samples_ns"))) if value is not None]
    average = positive(test.get("avg_ns"))
    elapsed = sum(samples) / 1e9 if samples else None
    times = len(samples) or None
    label = f"{model} {name} (llama-bench, in process)"
    settings = {key: text_of(str(test[key])) for key in _SETTINGS if test.get(key) not in (None, "")}
    kind = json.dumps([label, settings], sort_keys=True)
    repeats[kind] = repeats.get(kind, -1) + 1
    began = iso_moment(test.get("test_time"))
    moments = {} if began is None else {"ts": began, "ended": began + timedelta(seconds=elapsed or 0.0)}
    build, commit = text_of(str(test.get("build_number") or "")), text_of(test.get("build_commit"))
    decode = generated and not prompt
    return file.stage(
        stage_id,
        **moments,
        label=label,
        engine="llama.cpp",
        engine_version=f"b{build}-{commit}" if build and commit else commit,
        model_id=model,
        repeat=repeats[kind],
        whole_seconds=elapsed,
        input_tokens=float(prompt * times) if times else None,
        output_tokens=float(generated * times) if times else None,
        whole_output_tokens_per_second=speed if decode else None,
        details={
            "test": name,
            "in_process": True,
            "tokens_per_second": speed,
            "tokens_per_second_stddev": positive(test.get("stddev_ts")),
            "prefill_tokens_per_second": speed if prompt and not generated else None,
            "test_seconds": None if average is None else average / 1e9,
            "samples": times,
            "settings": settings or None,
        },
    )
