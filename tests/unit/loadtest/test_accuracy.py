"""With scripted timing, what is measured is what the server did, by its own record on the same clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.loadtest_worker import run, spec
from tests.support.scripted_server import Call, Reply, ScriptedServer, answer

FIRST, EACH, TOKENS = 0.4, 0.04, 26  # seconds, seconds, tokens: 1.4 s a request
WITHIN = 0.02


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.parametrize("users", [1, 8])
def test_ttft_tpot_and_throughput_are_recovered_within_2_percent(tmp_path: Path, users: int) -> None:
    number = max(4, 3 * users)

    def reply(call: Call) -> Reply:
        # the stage of one user that goes before the one of several is of no interest here
        if users > 1 and len(server.measured()) <= number:
            return answer(call)
        return answer(call, first=FIRST, each=EACH)

    with ScriptedServer(reply) as server:
        told = run(spec(server.url, levels=[users], requests=number, output={"tokens": TOKENS}), tmp_path)
        calls = server.measured()[-number:]
    stage = told.stages[-1]
    requests = [request for request in told.requests if request.stage_id == stage.stage_id]
    assert len(calls) == len(requests) == stage.succeeded

    # The server's record of each request: from its arrival to its first piece, then 25 pieces to the last token.
    ttft = mean([call.sent_at[0] - call.received_at for call in calls])
    tpot = mean([(call.sent_at[TOKENS - 1] - call.sent_at[0]) / (TOKENS - 1) for call in calls])
    seconds = max(call.sent_at[-1] for call in calls) - min(call.received_at for call in calls)
    assert mean([request.ttft_seconds or 0 for request in requests]) == pytest.approx(ttft, rel=WITHIN)
    assert mean([request.tpot_seconds or 0 for request in requests]) == pytest.approx(tpot, rel=WITHIN)
    assert stage.whole_output_tokens_per_second == pytest.approx(len(calls) * TOKENS / seconds, rel=WITHIN)

    # Tokens of the steady window, counted by hand from the server's record in the window that the run states: it began
    # with the last user's first request, and ended when the first user had no more to send.
    begin = sorted(call.received_at for call in calls)[users - 1]
    end = begin + (stage.window_seconds or 0)
    inside = sum(begin <= at <= end for call in calls for at in call.sent_at[:TOKENS])
    assert stage.output_tokens_per_second == pytest.approx(inside / (stage.window_seconds or 1), rel=WITHIN)


def test_an_open_loop_recovers_latency_from_the_schedule_within_2_percent(tmp_path: Path) -> None:
    rate, number = 5.0, 10

    with ScriptedServer(lambda call: answer(call, first=FIRST, each=EACH)) as server:
        told = run(
            spec(server.url, mode="constant", levels=[rate], requests=number, output={"tokens": TOKENS}), tmp_path
        )
        calls = server.measured()[-number:]
    # What a user waits who came on time: from the due time to the last token. By the server's clock the stage began as
    # long before a request arrived as the client says that it sent it; the least of these holds no delay of transport.
    begin = min(c.received_at - (r.sent_seconds or 0) for c, r in zip(calls, told.requests, strict=True))
    waited = mean([call.sent_at[TOKENS - 1] - (begin + n / rate) for n, call in enumerate(calls)])
    assert mean([request.from_schedule_seconds or 0 for request in told.requests]) == pytest.approx(waited, rel=WITHIN)
