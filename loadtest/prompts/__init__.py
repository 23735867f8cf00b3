"""
Prompts: synthetic, from the shipped book, or a person's own.

`sherlock.txt` holds the first four stories of "The Adventures of Sherlock Holmes" by Arthur Conan Doyle (1892), in the
public domain; paragraphs are one line each, letters with accents are written without. `words.txt` holds 512 frequent
words of it, each one token in the vocabularies of common models.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from loadtest import lengths
from loadtest.prompt_file import FilePrompt, read_prompts
from loadtest.spec import InputSpec, SpecError

_FOLDER = Path(__file__).parent
NONCE_WORDS = 7  # of 512: no two of 10^9 prompts begin alike, with a chance of one in a thousand
CACHED_SHARE = 0.9


@cache
def words() -> tuple[str, ...]:
    """The words of synthetic prompts."""
    return tuple((_FOLDER / "words.txt").read_text("ascii").split())


@cache
def book() -> tuple[str, ...]:
    """The shipped book, word by word."""
    return tuple((_FOLDER / "sherlock.txt").read_text("ascii").split())


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one request asks. `input_tokens`: the length that was aimed at; None: it is the person's own."""

    messages: tuple[dict[str, Any], ...]  # of one message with the text, where it is no chat
    input_tokens: int | None
    output_tokens: int
    nonce: str = ""

    @property
    def text(self) -> str:
        """The prompt of a completion."""
        return str(self.messages[0]["content"])


@dataclass(frozen=True, slots=True)
class TokenModel:
    """How many tokens a prompt of so many words has on one endpoint: `fixed` (template, begin) and so many a word."""

    fixed: float = 0.0
    per_word: float = 1.0

    def words_for(self, tokens: int) -> int:
        """The number of words that comes nearest to `tokens`, at least one."""
        return max(1, round((tokens - self.fixed) / self.per_word))

    @classmethod
    def through(cls, first: tuple[int, int], second: tuple[int, int]) -> TokenModel:
        """The line through two (words, tokens) observations."""
        per_word = (second[1] - first[1]) / (second[0] - first[0])
        if per_word <= 0:
            raise ValueError("the server counts no more tokens for a longer prompt")
        return cls(first[1] - per_word * first[0], per_word)


class Prompts:
    """
    The prompts of one run.

    What a request asks, but for its first words, follows from `seed`, level, repeat and number alone: every endpoint
    gets the same work. Its first words follow from `run_key`, which no other run has, and from the stage.
    """

    def __init__(self, spec: InputSpec, output_tokens: int, seed: int, run_key: bytes) -> None:
        self._spec = spec
        self._output_tokens = output_tokens
        self._seed = seed
        self._run_key = run_key
        self._file: tuple[FilePrompt, ...] = read_prompts(spec.path) if spec.kind == "file" and spec.path else ()
        self._source = book() if spec.kind == "text" else words()
        self._shared = Random(f"{seed}-shared")  # noqa: S311
        self._shared_words: list[str] = []

    @property
    def from_file(self) -> bool:
        """Whether lengths are the person's own."""
        return bool(self._file)

    def check_api(self, api: str) -> None:
        """Raises `SpecError` when the prompts can't be asked through `api`."""
        if api == "completions" and any(prompt.messages for prompt in self._file):
            raise SpecError("the file of prompts holds messages, which need the chat API: set api to chat")

    def make(self, stage: str, work: str, number: int, model: TokenModel) -> Prompt:
        """The prompt of one request; `stage` makes its beginning unique, `work` says whose work it repeats."""
        nonce = self._nonce(f"{stage}/{number}")
        if self._file:
            return self._own(self._file[number % len(self._file)], nonce)
        random = Random(f"{self._seed}/{work}/{number}")  # noqa: S311
        tokens = lengths.draw(self._spec, random)
        return self.of_length(nonce, random, model.words_for(tokens), tokens)

    def of_length(self, nonce: str, random: Random, count: int, tokens: int | None) -> Prompt:
        """A prompt of `count` words."""
        if self._spec.cached:
            same = int(count * CACHED_SHARE)
            chosen = self._same(same) + self._body(random, count - same)
        else:
            chosen = (nonce.split() + self._body(random, max(0, count - NONCE_WORDS)))[:count]
        message = {"role": "user", "content": " ".join(chosen)}
        return Prompt((message,), tokens, self._output_tokens, "" if self._spec.cached else nonce)

    def trial(self, name: str, count: int) -> Prompt:
        """A prompt of `count` words to learn from; no measured one begins like it."""
        return self.of_length(self._nonce(f"trial/{name}"), Random(f"{self._seed}/{name}"), count, None)  # noqa: S311

    def _nonce(self, name: str) -> str:
        digest = hashlib.blake2b(name.encode(), key=self._run_key, digest_size=2 * NONCE_WORDS).digest()
        chosen = words()
        return " ".join(
            chosen[int.from_bytes(digest[i : i + 2], "big") % len(chosen)] for i in range(0, len(digest), 2)
        )

    def _body(self, random: Random, count: int) -> list[str]:
        if self._spec.kind != "text":
            return random.choices(self._source, k=count)
        begin = random.randrange(len(self._source))
        twice = count // len(self._source) + 2
        return list((self._source * twice)[begin : begin + count])

    def _same(self, count: int) -> list[str]:
        if len(self._shared_words) < count:
            self._shared_words += self._body(self._shared, count - len(self._shared_words))
        return self._shared_words[:count]

    def _own(self, own: FilePrompt, nonce: str) -> Prompt:
        messages = own.messages or ({"role": "user", "content": own.prompt},)
        if not self._spec.cached:
            first = {**messages[0], "content": f"{nonce}\n{messages[0]['content']}"}
            messages = (first, *messages[1:])
        return Prompt(messages, None, own.output_tokens or self._output_tokens, "" if self._spec.cached else nonce)
