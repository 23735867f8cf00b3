"""A person's own prompts: JSONL, one object a line with `prompt` or `messages`, optionally `output_tokens`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from loadtest.spec import SpecError

MOST_FILE_BYTES = 200_000_000
MOST_OUTPUT_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True)
class FilePrompt:
    """One line. Exactly one of `prompt` and `messages` is given."""

    prompt: str | None
    messages: tuple[dict[str, Any], ...] | None
    output_tokens: int | None


def read_prompts(path: str | Path) -> tuple[FilePrompt, ...]:
    """All prompts of a file. Raises `SpecError` that names the line; no message quotes a prompt."""
    path = Path(path)
    try:
        if path.stat().st_size > MOST_FILE_BYTES:
            raise SpecError(f"{path}: a file of prompts may hold {MOST_FILE_BYTES // 1_000_000} MB at most")
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise SpecError(f"{path}: the file of prompts cannot be read ({error.strerror})") from error
    prompts = tuple(_lines(path, lines))
    if not prompts:
        raise SpecError(f'{path}: no prompts in it; one JSON object a line is expected, such as {{"prompt": "..."}}')
    return prompts


def _lines(path: Path, lines: list[bytes]) -> Iterator[FilePrompt]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            yield _prompt(orjson.loads(line))
        except orjson.JSONDecodeError as error:
            raise SpecError(f"{path}, line {number}: not JSON ({error.msg})") from None
        except SpecError as wrong:
            raise SpecError(f"{path}, line {number}: {wrong}") from None


def _prompt(document: Any) -> FilePrompt:
    if not isinstance(document, dict):
        raise SpecError('a JSON object is expected, such as {"prompt": "..."}')
    prompt, messages, tokens = document.get("prompt"), document.get("messages"), document.get("output_tokens")
    if (prompt is None) == (messages is None):
        raise SpecError("give either prompt or messages")
    if prompt is not None and (not isinstance(prompt, str) or not prompt):
        raise SpecError("prompt must be text and not empty")
    if messages is not None and not _is_chat(messages):
        raise SpecError("messages must be a list of objects with a role and a content that is text")
    if tokens is not None and (not isinstance(tokens, int) or not 1 <= tokens <= MOST_OUTPUT_TOKENS):
        raise SpecError("output_tokens must be a whole number of at least 1")
    return FilePrompt(prompt, tuple(messages) if messages is not None else None, tokens)


def _is_chat(messages: Any) -> bool:
    return (
        isinstance(messages, list)
        and bool(messages)
        and all(
            isinstance(message, dict)
            and isinstance(message.get("role"), str)
            and isinstance(message.get("content"), str)
            for message in messages
        )
    )
