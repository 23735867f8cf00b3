"""Prompts and their lengths: unique where they must be, the same work for all, and a person's own file."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from statistics import median

import pytest

from loadtest import lengths
from loadtest.prompt_file import read_prompts
from loadtest.prompts import NONCE_WORDS, Prompts, TokenModel, book, words
from loadtest.spec import InputSpec, SpecError

KEY, OTHER_KEY = b"a" * 32, b"b" * 32
A_WORD_A_TOKEN = TokenModel()


def prompts(key: bytes = KEY, seed: int = 1, **spec: object) -> Prompts:
    return Prompts(InputSpec(**{"tokens": 50, **spec}), 10, seed, key)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["synthetic", "text"])
def test_a_prompt_has_the_words_asked_for_and_a_beginning_of_its_own(kind: str) -> None:
    made = prompts(kind=kind)
    texts = [made.make(f"{stage}", "1/0", n, A_WORD_A_TOKEN).text.split() for stage in (0, 1) for n in range(50)]
    assert all(len(text) == 50 for text in texts)
    assert len({tuple(text[:NONCE_WORDS]) for text in texts}) == 100
    # The same number in another stage (another endpoint at the same level) is the same work.
    assert [text[NONCE_WORDS:] for text in texts[:50]] == [text[NONCE_WORDS:] for text in texts[50:]]


def test_another_run_with_the_same_seed_begins_its_prompts_differently() -> None:
    first, second = (prompts(key).make("0", "1/0", 0, A_WORD_A_TOKEN).text.split() for key in (KEY, OTHER_KEY))
    assert first[:NONCE_WORDS] != second[:NONCE_WORDS]
    assert first[NONCE_WORDS:] == second[NONCE_WORDS:]


def test_a_long_prompt_goes_round_the_book() -> None:
    made = prompts(kind="text", tokens=100_000).make("0", "1/0", 0, A_WORD_A_TOKEN)
    assert len(made.text.split()) == 100_000 > len(book())


def test_words_are_different_and_plain() -> None:
    assert len(set(words())) == 512
    assert all(word.isalpha() and word.islower() for word in words())


def test_two_observations_tell_tokens_a_word_and_those_of_the_template() -> None:
    # 40 words were 90 tokens and 440 words 890: 2 a word, 10 of the template. 1000 tokens then are 495 words.
    model = TokenModel.through((40, 90), (440, 890))
    assert (model.per_word, model.fixed, model.words_for(1000)) == (2, 10, 495)
    with pytest.raises(ValueError, match="no more tokens"):
        TokenModel.through((40, 90), (440, 90))


def test_lengths_of_each_distribution() -> None:
    random = Random(1)
    fixed = [lengths.draw(InputSpec(tokens=7), random) for _ in range(5)]
    uniform = InputSpec(distribution="uniform", tokens_min=10, tokens_max=20)
    even = [lengths.draw(uniform, random) for _ in range(2000)]
    normal = InputSpec(distribution="lognormal", tokens=1000, sigma=0.5)
    skewed = [lengths.draw(normal, random) for _ in range(4000)]
    bounded = InputSpec(distribution="lognormal", tokens=1000, tokens_min=900, tokens_max=1100)
    assert fixed == [7] * 5
    assert (min(even), max(even)) == (10, 20)
    assert sum(even) / len(even) == pytest.approx(15, abs=0.3)  # 4 sigma of the mean of 2000
    assert median(skewed) == pytest.approx(1000, rel=0.05)
    # The mean of a log-normal is median * exp(sigma^2 / 2) = 1000 * exp(0.125) = 1133.
    assert sum(skewed) / len(skewed) == pytest.approx(1133, rel=0.05)
    assert {900 <= lengths.draw(bounded, random) <= 1100 for _ in range(100)} == {True}
    assert lengths.greatest(uniform) == 20


def test_own_prompts_are_read_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    chat = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Why?"}]
    file.write_text(
        json.dumps({"prompt": "Hello"}) + "\n\n" + json.dumps({"messages": chat, "output_tokens": 4}) + "\n"
    )
    made = prompts(kind="file", path=str(file))
    first, second, third = (made.make("0", "1/0", n, A_WORD_A_TOKEN) for n in range(3))
    assert first.text.partition("\n")[2] == third.text.partition("\n")[2] == "Hello"
    assert first.text != third.text
    assert [message["role"] for message in second.messages] == ["system", "user"]
    assert second.messages[0]["content"].endswith("\nBe short.")
    assert (first.output_tokens, second.output_tokens, first.input_tokens) == (10, 4, None)
    with pytest.raises(SpecError, match="chat"):
        made.check_api("completions")
    as_they_are = prompts(kind="file", path=str(file), cached=True)
    assert as_they_are.make("0", "1/0", 0, A_WORD_A_TOKEN).text == "Hello"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("{", "line 2: not JSON"),
        ("[1]", "line 2: a JSON object"),
        ('{"text": "secret"}', "line 2: give either prompt or messages"),
        ('{"prompt": ""}', "line 2: prompt must be text"),
        ('{"messages": [{"role": "user"}]}', "line 2: messages must be"),
        ('{"prompt": "secret", "output_tokens": 0}', "line 2: output_tokens"),
    ],
)
def test_a_wrong_line_is_named_and_not_quoted(tmp_path: Path, line: str, why: str) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text('{"prompt": "good"}\n' + line + "\n")
    with pytest.raises(SpecError) as refused:
        read_prompts(file)
    assert why in str(refused.value)
    assert "secret" not in str(refused.value)


def test_an_empty_file_and_one_that_is_not_there_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    with pytest.raises(SpecError, match="no prompts"):
        read_prompts(tmp_path / "empty")
    with pytest.raises(SpecError, match="cannot be read"):
        read_prompts(tmp_path / "none")
