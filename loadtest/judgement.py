"""
What a run says against itself, and in its own favour. Pure.

Each check has a code, a severity and a sentence. `failed` means that the figures of the stage are not those of the
engine under the load that was asked for: such a stage enters no comparison, and its run no verdict. `warning` means
that they are, but for something that a careful reader must know. `note` explains a figure or its absence. `ok` is a
check that found nothing.

Thresholds are the constants below, each with the reason for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from loadtest.facts import StageFacts
from loadtest.judgement_client import client_saturated, idle, kept_rate
from loadtest.judgement_engine import counters_agree, engine, prefix_cache
from loadtest.judgement_words import counted, number, share
from loadtest.timing import Judgement, Severity

# Share of failed requests from which a point is not trusted (the usual 95 % success rate).
ERRORS_FAILED = 0.05
# Tokens produced against tokens asked for, over all replies (vllm#9349, TGI#1944: `ignore_eos` dropped).
OUTPUT_LENGTH_FAILED = 0.05
# Prompt tokens as the server counted them against those asked for, on average (vllm#17408, sglang#15732).
INPUT_LENGTH_WARNING, INPUT_LENGTH_FAILED = 0.05, 0.20
# Whole requests in the steady window: with fewer, one slow request moves a mean by more than an eighth.
FEW_REQUESTS = 8
# A p99 of fewer requests lies between the two slowest ones.
REQUESTS_FOR_P99 = 100
# Two endpoints of a run do the same work when their mean lengths agree to within this.
SAME_WORK = 0.05


def judge_stage(facts: StageFacts) -> list[Judgement]:
    """All judgements of one stage, `ok` ones included."""
    found = [
        *_cut_short(facts),
        *_errors(facts),
        *_steady_window(facts),
        *client_saturated(facts.client, facts.summary),
        *kept_rate(facts.mode, facts.level, facts.requests, facts.client, facts.summary, facts.window),
        *_output_length(facts),
        *_input_length(facts),
        *prefix_cache(facts),
        *_tokens(facts),
        *engine(facts),
        *counters_agree(facts),
    ]
    return [Judgement(each.code, each.severity, each.text, facts.stage_id) for each in found]


def judge_run(stages: Sequence[StageFacts], judged: Sequence[Judgement], mode: str) -> list[Judgement]:
    """
    The judgements of a run from those of its stages: what is of the whole run, then what was found in a stage.

    A check that found nothing in any stage is said once, for the run.
    """
    found: list[Judgement] = []
    if not stages:
        return [Judgement("no_stage", "failed", "No stage was measured.")]
    if not any(facts.summary.succeeded + facts.summary.failed for facts in stages):
        found.append(Judgement("no_stage", "failed", "No request of any stage was answered or refused."))
    if mode == "closed" and not any(facts.level == 1 for facts in stages):
        text = "No stage with one user was measured, so nothing tells what a single user gets."
        found.append(Judgement("level_1_missing", "warning", text))
    found += [*_same_work(stages), *_few_for_p99(stages)]
    wrong = {each.code for each in judged if each.severity != "ok"}
    passed: dict[str, list[Judgement]] = {}
    for each in judged:
        if each.severity == "ok" and each.code not in wrong:
            passed.setdefault(each.code, []).append(each)
    for code, of_stages in passed.items():
        text = of_stages[-1].text
        if code == "client_saturated":
            text = idle(max(facts.client.cpu_fraction for facts in stages))
        where = f" ({counted(len(of_stages), 'stage')} checked)" if len(stages) > 1 else ""
        found.append(Judgement(code, "ok", text.removesuffix(".") + where + "." if where else text))
    return [*found, *(each for each in judged if each.severity != "ok")]


def trusted(judged: Iterable[Judgement]) -> bool:
    """Whether no judgement of severity `failed` stands against a run."""
    return all(each.severity != "failed" for each in judged)


def untrusted_stages(judged: Iterable[Judgement], stage_ids: Iterable[int]) -> set[int]:
    """The stages that no comparison may use: those that failed, and all when the run itself did."""
    failed = [each.stage_id for each in judged if each.severity == "failed"]
    return set(stage_ids) if None in failed else {stage for stage in failed if stage is not None}


def _cut_short(facts: StageFacts) -> Iterator[Judgement]:
    if facts.cut_short is not None:
        text = f"The stage ended before its plan: {facts.cut_short.rstrip('.')}. What was measured until then holds."
        yield Judgement("stage_cut_short", "warning", text)
    if facts.warmed_up is False:
        text = "Speed was still changing when warm-up ended: give it more batches, or repeat the run and compare."
        yield Judgement("warmup_unstable", "warning", text)


def _errors(facts: StageFacts) -> Iterator[Judgement]:
    summary = facts.summary
    ended = summary.succeeded + summary.failed
    if not ended:
        # Cut off before its first answer, the stage has nothing to say against itself, nor a figure to offer.
        severity: Severity = "failed" if facts.cut_short is None else "note"
        yield Judgement("errors", severity, "No request was answered or refused: there is nothing to measure.")
        return
    failed = [request for request in facts.requests if request.status == "error"]
    if not failed:
        yield Judgement("errors", "ok", "Every request succeeded.")
        return
    within = sum(request.http_status == 200 for request in failed)
    reason, times = Counter(request.error or "no reason told" for request in failed).most_common(1)[0]
    text = f"{number(len(failed))} of {counted(ended, 'request')} failed ({share(len(failed) / ended)})"
    text += f", {number(times)} of them with: {reason.rstrip('.')}."
    yield Judgement("errors", "failed" if len(failed) / ended > ERRORS_FAILED else "note", text)
    if within:
        text = f"{counted(within, 'request')} failed although HTTP said 200: an error within the stream, or its early "
        text += "end. They count as failures; a client that looks at the status only would have counted successes."
        yield Judgement("errors_in_200", "warning", text)


def _steady_window(facts: StageFacts) -> Iterator[Judgement]:
    summary = facts.summary
    if not summary.succeeded:
        return
    if summary.window_seconds is None:
        text = "There was no time in which all users were busy, so nothing steady was measured: send more requests."
        yield Judgement("window_short", "failed", text)
    elif not summary.in_window:
        text = f"No request began and ended inside the steady window of {summary.window_seconds:.3g} s, so latencies "
        yield Judgement("window_short", "failed", text + "were not measured in it: send more requests.")
    elif summary.in_window < FEW_REQUESTS:
        lie = "lies" if summary.in_window == 1 else "lie"
        text = f"Only {counted(summary.in_window, 'request')} {lie} inside the steady window of "
        text += f"{summary.window_seconds:.3g} s: one slow request moves the means. Send more requests."
        yield Judgement("window_short", "warning", text)


def _output_length(facts: StageFacts) -> Iterator[Judgement]:
    told = [
        request
        for request in facts.requests
        if request.status == "ok" and request.output_tokens is not None and request.tokens_source != "chunks"
    ]
    asked = sum(request.asked_output_tokens or facts.output.tokens for request in told)
    if not told or not asked:
        return
    produced = sum(request.output_tokens or 0 for request in told)
    other = [r for r in told if r.output_tokens != (r.asked_output_tokens or facts.output.tokens)]
    if not facts.output.ignore_eos:
        text = f"Replies were allowed to end by themselves: {produced / len(told):.0f} tokens on average, at most "
        yield Judgement("output_length", "note", text + f"{facts.output.tokens} asked for.")
        return
    if not other:
        yield Judgement("output_length", "ok", "Every answer had as many tokens as were asked for.")
        return
    reasons = Counter(request.finish_reason or "none told" for request in other).most_common(1)[0][0]
    text = f"{number(len(other))} of {counted(len(told), 'reply', 'replies')} did not have the tokens asked for "
    text += f"({produced} in all, {asked} asked; finish reason mostly {reasons!r}): the server did not honour "
    text += "ignore_eos. Shorter replies are cheaper, so throughput and latency are those of another load."
    severe = abs(produced - asked) / asked > OUTPUT_LENGTH_FAILED
    yield Judgement("output_length", "failed" if severe else "warning", text)


def _input_length(facts: StageFacts) -> Iterator[Judgement]:
    told = [
        (request.input_tokens, request.asked_input_tokens)
        for request in facts.requests
        if request.status == "ok" and request.input_tokens is not None and request.asked_input_tokens
    ]
    if not told:
        if facts.summary.succeeded and all(request.input_tokens is None for request in facts.requests):
            text = "The server does not say how many prompt tokens it read, so their number could not be checked."
            yield Judgement("input_length", "note", text)
        return
    asked = sum(asked or 0 for _, asked in told)
    off = sum(read or 0 for read, _ in told) / asked - 1
    mean_read, mean_asked = sum(read or 0 for read, _ in told) / len(told), asked / len(told)
    text = f"Prompts had {mean_read:.0f} tokens on average as the server counts them, {mean_asked:.0f} were asked for"
    if abs(off) <= INPUT_LENGTH_WARNING:
        yield Judgement(
            "input_length", "ok", f"Prompts were as long as asked for, within {share(INPUT_LENGTH_WARNING)}."
        )
        return
    severe = abs(off) > INPUT_LENGTH_FAILED
    yield Judgement("input_length", "failed" if severe else "warning", f"{text} ({off:+.0%}).")


def _tokens(facts: StageFacts) -> Iterator[Judgement]:
    good = [request for request in facts.requests if request.status == "ok"]
    chunks_only = sum(request.tokens_source == "chunks" for request in good)
    if chunks_only:
        text = f"The server did not tell the tokens of {counted(chunks_only, 'reply', 'replies')}: their chunks were "
        text += (
            "counted instead. A chunk may hold several tokens, so throughput is a lower bound and TPOT an upper one."
        )
        yield Judgement("tokens_by_chunks", "warning", text)
    single = [r for r in good if r.chunks == 1 and (r.output_tokens is None or r.output_tokens > 1)]
    if single:
        text = (
            f"{number(len(single))} of {counted(len(good), 'reply', 'replies')} came in one chunk: they have no TPOT, "
        )
        text += "and their TTFT is the time to the whole reply."
        yield Judgement("one_chunk_replies", "warning" if len(single) > len(good) / 2 else "note", text)


def _same_work(stages: Sequence[StageFacts]) -> Iterator[Judgement]:
    """Whether the endpoints of a run did the same work for a request, on average over their stages."""
    prompts = [(facts.label, facts.summary.input_tokens, facts.summary.succeeded) for facts in stages]
    outputs = [(facts.label, facts.summary.output_tokens, facts.summary.succeeded) for facts in stages]
    for name, told in (("prompt", prompts), ("output", outputs)):
        means: dict[str, float] = {}
        for label in dict.fromkeys(label for label, _, _ in told):
            mine = [(tokens, requests) for whose, tokens, requests in told if whose == label and tokens is not None]
            requests = sum(requests for _, requests in mine)
            if requests:
                means[label] = sum(tokens for tokens, _ in mine) / requests
        if len(means) < 2 or not min(means.values()):
            continue
        least, most = min(means, key=means.__getitem__), max(means, key=means.__getitem__)
        if means[most] / means[least] - 1 > SAME_WORK:
            text = f"The endpoints did not do the same work: {means[most]:.0f} {name} tokens a request at {most}, "
            text += f"{means[least]:.0f} at {least}. Their tokens per second can't be compared as they are."
            yield Judgement("unequal_work", "warning", text)


def _few_for_p99(stages: Sequence[StageFacts]) -> Iterator[Judgement]:
    """Said once for all stages, since a sweep of usual length has few requests in most of them."""
    few = [facts.summary.in_window for facts in stages if 0 < facts.summary.in_window < REQUESTS_FOR_P99]
    if few:
        span = f"{min(few)} to {max(few)}" if min(few) < max(few) else f"{few[0]}"
        text = (
            f"In {number(len(few))} of {counted(len(stages), 'stage')} p99 rests on {span} requests: it lies between "
        )
        yield Judgement("few_for_p99", "note", f"{text}the two slowest ones.")
