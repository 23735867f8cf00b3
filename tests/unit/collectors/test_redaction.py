"""Secrets in the forms in which engines take them (vllm/entrypoints/openai/cli_args.py, llama.cpp common/arg.cpp)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.redaction import HIDDEN, redact_arguments, redact_text, redact_url

R = HIDDEN


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vllm serve m --api-key s3cret --port 1", f"vllm serve m --api-key {R} --port 1"),
        ("vllm serve m --api-key a b c --port 1", f"vllm serve m --api-key {R} --port 1"),
        ("vllm serve m --api-key=a b --port 1", f"vllm serve m --api-key={R} --port 1"),
        ("vllm serve m --api_key a", f"vllm serve m --api_key {R}"),
        ("vllm serve m --hf-token=hf_x -tp 2", f"vllm serve m --hf-token={R} -tp 2"),
        (
            "vllm serve m --ssl-keyfile /k --ssl-keyfile-password p",
            f"vllm serve m --ssl-keyfile {R} --ssl-keyfile-password {R}",
        ),
        ("llama-server -hft hf_x -m a.gguf", f"llama-server -hft {R} -m a.gguf"),
        ("llama-server --api-key --looks-like-an-option -c 1", f"llama-server --api-key {R} -c 1"),
        ("env HF_TOKEN=a OPENAI_API_KEY=b X=c vllm", f"env HF_TOKEN={R} OPENAI_API_KEY={R} X=c vllm"),
        ("x --url http://u:p@h:1/a", f"x --url http://{R}@h:1/a"),
        ("x --url=http://u:p@h:1/a?token=b&c=d", f"x --url=http://{R}@h:1/a?token={R}&c=d"),
        ("x --secret-name v --db-password v", f"x --secret-name {R} --db-password {R}"),
    ],
)
def test_hidden(line: str, expected: str) -> None:
    assert redact_arguments(line.split()) == tuple(expected.split())


def test_hidden_within_a_word() -> None:
    assert (
        redact_arguments(("sh", "-c", "vllm serve m --api-key abc --port 1"))[2]
        == f"vllm serve m --api-key {R} --port 1"
    )
    assert "zz" not in redact_arguments(("vllm", "--kv-transfer-config", '{"api_key": "zz", "n": 1}'))[2]
    assert redact_arguments(("curl", "-H", "Authorization: Bearer abc"))[2] == f"Authorization: {R}"


@pytest.mark.parametrize(
    "line",
    [
        "vllm serve m --max-num-batched-tokens 8192 --tokenizer t --tokenizer-mode auto --max-num-seqs 4",
        "llama-server -m a.gguf --cache-type-v q8_0 -ctk q8_0 --keep 5 --api-key-file /etc/keys",
        "vllm serve m --long-prefill-token-threshold 3 --return-tokens-as-token-ids --num-speculative-tokens 2",
        "vllm serve org/keyboard-model --served-model-name token-model",
    ],
)
def test_kept(line: str) -> None:
    assert redact_arguments(line.split()) == tuple(line.split())


def test_cache_type_of_keys_is_no_secret() -> None:
    assert redact_arguments(("llama-server", "--cache-type-k", "q8_0")) == ("llama-server", "--cache-type-k", "q8_0")


def test_url_and_text() -> None:
    assert redact_url("https://me:pw@host:8000/v1?api_key=abc") == f"https://{R}@host:8000/v1?api_key={R}"
    assert redact_url("https://host:8000/v1?limit=3") == "https://host:8000/v1?limit=3"
    assert redact_text("401 for Bearer abc.def at http://h/") == f"401 for Bearer {R} at http://h/"
    assert redact_text("cannot load hf_abcdefghijkl") == f"cannot load {R}"


@pytest.mark.parametrize("text", ["a." * 20_000, "key" * 20_000, "-key " * 5_000, "x-x-" * 9_000, "a://" * 9_000])
def test_long_text_is_worked_through(text: str) -> None:
    # A pattern that backtracks would run into the test's time limit here.
    assert redact_text(text) is not None


secrets = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=12, max_size=40)
plain_secrets = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.~+/-]{11,30}", fullmatch=True)
names = st.sampled_from(
    ["--api-key", "--api_key", "--hf-token", "--ssl-keyfile-password", "--my-secret", "--x-access-token", "--password"]
)
others = st.lists(st.sampled_from(["vllm", "serve", "--port", "8000", "-tp", "2", "--tokenizer", "t"]), max_size=5)


@given(before=others, name=names, secret=secrets, after=others)
def test_value_after_equals_never_survives(before, name, secret, after) -> None:
    assert secret not in "\n".join(redact_arguments([*before, f"{name}={secret}", *after]))


@given(
    before=others, name=st.sampled_from(["--api-key", "--hf-token", "-hft", "--password"]), secret=secrets, after=others
)
def test_value_after_option_never_survives(before, name, secret, after) -> None:
    assert secret not in "\n".join(redact_arguments([*before, name, secret, *after]))


@given(before=others, several=st.lists(plain_secrets, min_size=2, max_size=4), after=others)
def test_none_of_several_keys_survives(before, several, after) -> None:
    redacted = "\n".join(redact_arguments([*before, "--api-key", *several, "--port", *after]))
    assert not any(secret in redacted for secret in several)


@given(name=st.sampled_from(["HF_TOKEN", "OPENAI_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"]), secret=secrets)
def test_environment_word_never_survives(name, secret) -> None:
    assert secret not in "\n".join(redact_arguments(["env", f"{name}={secret}", "vllm"]))


@given(secret=plain_secrets)
def test_secret_in_a_message_never_survives(secret) -> None:
    for text in (
        f"GET http://h/?api_key={secret} failed",
        f"Authorization: Bearer {secret}",
        f'{{"token": "{secret}"}}',
        f"sh -c 'vllm --api-key {secret}'",
        f"http://user:{secret.replace('/', '')}@host/",
    ):
        assert secret not in redact_text(text)
        assert secret.replace("/", "") not in redact_text(text)
