"""Answers that are none, broken off, late or hostile: each is a failure that says why, and costs no other request."""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.loadtest_worker import Told, run, spec
from tests.support.scripted_server import (
    DONE,
    Call,
    Reply,
    ScriptedServer,
    answer,
    delta,
    document,
    event,
    stream,
    text,
    usage,
    usage_chunk,
)

KEY = "quite-plain-word"


def measured_only(reply: Callable[[Call], Reply]) -> Callable[[Call], Reply]:
    return lambda call: reply(call) if call.max_tokens > 2 else answer(call)


def ran(reply: Callable[[Call], Reply], folder: Path, **changes: object) -> Told:
    with ScriptedServer(measured_only(reply)) as server:
        return run(spec(server.url, **changes), folder)


def whole(call: Call) -> bytes:
    """A complete answer of five tokens."""
    return b"".join([text("w")] * 5) + usage_chunk(usage(call.prompt_tokens, 5)) + DONE


ERROR = {"error": {"message": "CUDA error: an illegal memory access was encountered", "code": 500}}


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (lambda call: stream(event(ERROR), DONE), "illegal memory access"),
        (lambda call: stream(text("w"), text("w"), event(ERROR)), "illegal memory access"),
        (lambda call: stream(text("w"), b'event: error\ndata: {"detail": "gone"}\n\n', DONE), "named 'error'"),
        (lambda call: stream(text("w", finish_reason="abort"), DONE), "'abort'"),
        (lambda call: document(ERROR), "illegal memory access"),
    ],
    ids=["at once", "after two tokens", "by its name", "by its finish reason", "instead of a stream"],
)
def test_17_an_error_inside_http_200_is_a_failure(tmp_path: Path, reply: Callable[[Call], Reply], why: str) -> None:
    # guidellm: HTTP 200 with an error in the stream was a success with zero latency.
    told = ran(reply, tmp_path)
    assert (told.stage.succeeded, told.stage.failed) == (0, 8)
    assert why in (told.requests[0].error or "")
    assert told.requests[0].http_status == 200
    assert told.stage.ttft_mean_seconds is None
    assert told.severities("errors") == {"failed"}
    assert told.severities("errors_in_200") == {"warning"}


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (lambda call: stream(text("w"), text("w"), end="close"), "closed by the server before the answer was complete"),
        (lambda call: stream(text("w"), text("w")), "without [DONE]"),
        (lambda call: stream(delta(role="assistant"), DONE), "no text"),
        (lambda call: stream(DONE), "no text"),
        (lambda call: stream(text("w"), b"data: {not json\n\n", DONE), "no JSON object"),
        (lambda call: stream(b"<html>busy</html>", content_type="text/html"), "without [DONE]"),
        (lambda call: document([1, 2]), "neither an event stream nor a JSON object"),
        (lambda call: document({"detail": "too many requests"}, 429), "HTTP 429: too many requests"),
        (lambda call: document({}, 503), "HTTP 503"),
        (lambda call: Reply([], 307, headers={"Location": "http://elsewhere/"}), "redirects are not followed"),
        (lambda call: stream(text("w"), headers={"Content-Encoding": "gzip"}), "encoded as 'gzip'"),
    ],
    ids=[
        "closed early", "no end", "a role only", "nothing", "no JSON", "a web page", "a list", "too many",
        "unavailable", "a redirect", "compressed",
    ],
)  # fmt: skip
def test_an_answer_that_is_none_is_a_failure_that_says_why(
    tmp_path: Path, reply: Callable[[Call], Reply], why: str
) -> None:
    told = ran(reply, tmp_path)
    assert (told.stage.succeeded, told.stage.failed) == (0, 8)
    assert why in (told.requests[0].error or "")
    assert told.ended is not None
    assert told.ended.state == "finished"


def test_failures_among_successes_leave_the_successes_as_they_are(tmp_path: Path) -> None:
    count = 0

    def reply(call: Call) -> Reply:
        nonlocal count
        count += 1
        return stream(whole(call)) if count % 4 else stream(text("w"), end="close")

    told = ran(reply, tmp_path)
    assert (told.stage.succeeded, told.stage.failed, told.stage.output_tokens) == (6, 2, 30)
    assert [request.status for request in told.requests] == ["ok", "ok", "ok", "error"] * 2
    assert told.severities("errors") == {"failed"}  # a quarter is more than 5 %


def test_a_stage_in_which_most_requests_fail_is_given_up(tmp_path: Path) -> None:
    told = ran(lambda call: document({"detail": "no"}, 500), tmp_path, requests=1000)
    assert told.stage.failed is not None
    assert 10 <= told.stage.failed < 100
    assert "requests failed" in told.sentences("stage_cut_short")


def test_a_stall_ends_after_the_limit_and_the_others_go_on(tmp_path: Path) -> None:
    count = 0

    def reply(call: Call) -> Reply:
        nonlocal count
        count += 1
        return stream(text("w"), end="stall") if count == 3 else stream(whole(call))

    told = ran(reply, tmp_path, limits={"stall_seconds": 1.0})
    assert (told.stage.succeeded, told.stage.failed) == (7, 1)
    assert "nothing was received for 1 s" in (told.requests[2].error or "")
    # No longer than the limit and the interval at which it is looked at, with room for a busy machine.
    assert (told.requests[2].done_seconds or 99) - (told.requests[2].sent_seconds or 0) < 3


def test_an_answer_without_end_is_given_up(tmp_path: Path) -> None:
    told = ran(lambda call: stream(*[text("w" * 4000)] * 10), tmp_path, limits={"answer_bytes": 10_000})
    assert told.stage.failed == 8
    assert "longer than 10,000 bytes" in (told.requests[0].error or "")


@pytest.mark.parametrize("cut", [1, 7, 50])
def test_events_may_be_split_anywhere_and_end_in_crlf(tmp_path: Path, cut: int) -> None:
    def reply(call: Call) -> Reply:
        lines = b": a comment\r\n\r\n" + whole(call).replace(b"\n", b"\r\n")
        return stream(*[lines[at : at + cut] for at in range(0, len(lines), cut)])

    told = ran(reply, tmp_path, requests=2)
    assert (told.stage.succeeded, told.stage.output_tokens) == (2, 10)
    assert told.requests[0].chunks == 5


def test_a_value_may_have_several_lines(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        several = json.dumps({"choices": [{"text": "w"}]}, indent=1).replace("\n", "\ndata: ")
        return stream(f"data: {several}\n\n".encode() * 5, usage_chunk(usage(call.prompt_tokens, 5)), DONE)

    told = ran(reply, tmp_path)
    assert told.stage.succeeded == 8
    assert told.requests[0].chunks == 5


def test_a_body_that_lasts_until_the_connection_ends_is_complete(tmp_path: Path) -> None:
    told = ran(lambda call: stream(whole(call), end="until_close"), tmp_path)
    assert told.stage.succeeded == 8


def test_a_connection_that_was_closed_while_idle_costs_no_request(tmp_path: Path) -> None:
    # uvicorn closes idle connections after five seconds, perhaps in the moment in which the next request is sent.
    told = ran(lambda call: stream(whole(call), headers={"Connection": "close"}), tmp_path)
    assert (told.stage.succeeded, told.stage.failed) == (8, 0)


def test_stream_options_are_left_out_for_a_server_that_refuses_them(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        if "stream_options" in call.body:
            return document(
                {"detail": [{"loc": ["body", "stream_options"], "msg": "Extra inputs: stream_options"}]}, 422
            )
        return stream(*[text("w")] * call.max_tokens, DONE)

    with ScriptedServer(reply) as server:
        told = run(spec(server.url), tmp_path)
    assert told.stage.succeeded == 8
    assert told.stage.tokens_source == "chunks"
    assert "does not tell token counts" in told.sentences("not_as_asked")


def test_the_key_goes_to_the_endpoint_and_nowhere_else(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        if call.headers.get("authorization") != f"Bearer {KEY}":
            return document({"error": {"message": "no key"}}, 401)
        if call.max_tokens > 2:
            return document({"error": {"message": f"the key {KEY} has no credit left"}}, 402)
        return answer(call)

    with ScriptedServer(reply) as server:
        given = spec(server.url)
        given["endpoints"][0]["api_key_env"] = "TEST_ENDPOINT_KEY"
        told = run(given, tmp_path, TEST_ENDPOINT_KEY=KEY)
    assert told.stage.failed == 8
    assert KEY not in told.text
    assert "has no credit left" in (told.requests[0].error or "")


def test_an_endpoint_that_wants_a_key_says_so(tmp_path: Path) -> None:
    with ScriptedServer(lambda call: document({"error": {"message": "no key"}}, 401)) as server:
        given = spec(server.url)
        told = run(given, tmp_path)
        given["endpoints"][0]["api_key_env"] = "NO_SUCH_VARIABLE"
        without = run(given, tmp_path)
    assert told.ended is not None
    assert (told.ended.state, told.stages) == ("failed", [])
    assert "HTTP 401" in (told.ended.detail or "")
    assert without.ended is not None
    assert "NO_SUCH_VARIABLE holds no API key" in (without.ended.detail or "")


def test_neither_prompts_nor_answers_are_told(tmp_path: Path) -> None:
    def reply(call: Call) -> Reply:
        quoting = {"detail": f"cannot parse: {call.prompt}"}
        return document(quoting, 400) if len(server.measured()) % 2 else stream(text("secret answer"), whole(call))

    with ScriptedServer(measured_only(reply)) as server:
        told = run(spec(server.url), tmp_path)
        prompts = [call.prompt for call in server.calls]
    assert told.stage.failed == 4
    assert "secret answer" not in told.text
    assert not any(prompt[:15] in told.text for prompt in prompts)


def test_no_server_is_a_failed_run_that_says_where(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        url = server.url
    told = run(spec(url), tmp_path)
    assert told.ended is not None
    assert told.ended.state == "failed"
    assert url in (told.ended.detail or "")
    assert "is it running?" in (told.ended.detail or "")
    assert told.severities("no_stage") == {"failed"}


def test_a_wrong_spec_is_a_failed_run_that_says_what_is_wrong(tmp_path: Path) -> None:
    told = run({"endpoints": [{"url": "ftp://x"}], "levels": [0]}, tmp_path)
    assert told.ended is not None
    assert told.ended.state == "failed"
    assert "not a base URL" in (told.ended.detail or "")
    assert "levels" in (told.ended.detail or "")


def test_tls_with_a_certificate_that_is_trusted_and_one_that_is_not(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run([*command, *more], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("no openssl to make a certificate with")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with ScriptedServer(tls=context) as server:
        trusted = run(spec(server.url), tmp_path, SSL_CERT_FILE=str(certificate))
        stranger = run(spec(server.url), tmp_path)
    assert trusted.stage.succeeded == 8
    assert stranger.ended is not None
    assert stranger.ended.state == "failed"
    assert "certificate" in (stranger.ended.detail or "")


def test_proxies_of_the_environment_are_ignored(tmp_path: Path) -> None:
    with ScriptedServer() as server:
        told = run(spec(server.url), tmp_path, HTTP_PROXY="http://127.0.0.1:9", http_proxy="http://127.0.0.1:9")
    assert told.stage.succeeded == 8


def test_a_server_that_never_answers_fails_the_run_before_it_begins(tmp_path: Path) -> None:
    with ScriptedServer(lambda call: stream(end="stall")) as server:
        told = run(spec(server.url, limits={"stall_seconds": 1.0}), tmp_path)
    assert told.ended is not None
    assert told.ended.state == "failed"
    assert "nothing was received for 1 s" in (told.ended.detail or "")
