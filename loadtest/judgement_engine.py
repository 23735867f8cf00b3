"""The engine's side of a stage: its prefix cache, its life, and its counters against the client's account. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from loadtest.facts import StageFacts
from loadtest.judgement_words import counted, number, share
from loadtest.timing import Judgement, Severity

# Engine and client count the same tokens. 2 % leaves room for what they see differently at the end of a reply (one stop
# token in 50); 5 % is more than any of that.
COUNTERS_WARNING, COUNTERS_FAILED = 0.02, 0.05
# A cached share h of the prompt tokens makes prefill about h shorter. Up to 2 % (a chat template, the same for all
# prompts) is within the tolerance above; at 20 % TTFT is another measurement (vllm#54227: 49 times lower).
CACHE_WARNING, CACHE_FAILED = 0.02, 0.20


def prefix_cache(facts: StageFacts) -> Iterator[Judgement]:
    """Whether prompts were served from a prefix cache, wanted or not."""
    hit, of, by = _cache_hits(facts)
    if hit is None or not of:
        text = f"Neither {facts.label} nor its answers tell whether prompts came from a prefix cache. The prompts of a "
        text += "run have beginnings of their own, so that they could not."
        if facts.input.cached:
            text = "Prompts were made to hit a prefix cache, but the server does not tell whether they did."
        yield Judgement("prefix_cache_hits", "note", text)
        return
    part = hit / of
    text = f"{share(part)} of the prompt tokens came from the prefix cache, as {by}"
    if facts.input.cached:
        severity = "note" if part > CACHE_FAILED else "warning"
        yield Judgement(
            "prefix_cache_hits", "note" if severity == "note" else "warning", f"{text}; hits were asked for."
        )
    elif part > CACHE_FAILED:
        text += "; none were wanted. Prefill was that much shorter than with prompts that are new."
        yield Judgement("prefix_cache_hits", "failed", text)
    elif part > CACHE_WARNING:
        text += ", such as the part of a chat template that all prompts share; none were wanted."
        yield Judgement("prefix_cache_hits", "warning", text)
    else:
        few = "No prompt token" if hit == 0 else f"Less than {share(CACHE_WARNING)} of the prompt tokens"
        yield Judgement("prefix_cache_hits", "ok", f"{few} came from a prefix cache.")


def _cache_hits(facts: StageFacts) -> tuple[float | None, float | None, str]:
    """Prompt tokens from the cache, prompt tokens in all, and who says so: the engine's counters, else the answers."""
    hits = facts.counted.counted.get("prefix_cache_hit_tokens_total")
    queries = facts.counted.counted.get("prefix_cache_query_tokens_total")
    if hits is not None and queries:
        return hits, queries, "the engine counts"
    told = [r for r in facts.requests if r.status == "ok" and r.cached_input_tokens is not None and r.input_tokens]
    if not told:
        return None, None, ""
    cached = sum(request.cached_input_tokens or 0 for request in told)
    return float(cached), float(sum(request.input_tokens or 0 for request in told)), "its answers say"


def engine(facts: StageFacts) -> Iterator[Judgement]:
    """Whether one life of one engine served this stage, and nothing but it."""
    if facts.counted.restarted is not None:
        code = "engine_gone" if facts.after.kind is None else "engine_restarted"
        yield Judgement(code, "failed", f"{facts.label}: {facts.counted.restarted}")
    if facts.counted.changed is not None:
        yield Judgement("engine_changed", "failed", f"{facts.label}: {facts.counted.changed}")
    busy = (facts.before.running or 0) + (facts.before.waiting or 0)
    if busy and not facts.before.settled:
        text = (
            f"{facts.label} was busy with {counted(int(busy), 'request')} before the stage began: it served others too."
        )
        yield Judgement("other_load", "failed", text)
    preempted = facts.counted.counted.get("preemptions_total")
    if preempted:
        text = f"The engine put back {counted(int(preempted), 'running request')} because its KV cache ran out: "
        text += "its throughput at this level includes doing their work again."
        yield Judgement("preemptions", "note", text)


def counters_agree(facts: StageFacts) -> Iterator[Judgement]:
    """The engine's counters against the client's account."""
    if facts.counted.restarted is not None:
        return
    if not facts.counted.counted:
        why = facts.counted.absent or "The engine keeps no counters."
        yield Judgement("counters_missing", "note", f"The client's account could not be checked. {why}")
        return
    summary, failed = facts.summary, False
    ended = summary.succeeded + summary.failed + summary.cancelled
    requests = facts.counted.counted.get("requests_finished_total")
    if requests is not None and requests > ended + max(1, COUNTERS_WARNING * ended):
        text = f"{facts.label} finished {counted(int(requests), 'request')} during the stage, this run sent "
        yield Judgement("other_load", "failed", f"{text}{number(ended)}: it served others too.")
        failed = True
    agree: list[str] = []
    for each in _compared(facts):
        theirs = facts.counted.counted[each.quantity]
        beyond = max(each.least - theirs, theirs - each.most, 0.0) - facts.counted.uncertain.get(each.quantity, 0.0)
        gap = max(beyond, 0.0) / each.least
        if gap <= COUNTERS_WARNING:
            agree.append(each.name)
            continue
        more = theirs > each.most
        if failed and more:
            continue  # said already: others' requests are in it
        ours = number(each.least) if each.least == each.most else f"{number(each.least)} to {number(each.most)}"
        text = f"{facts.label} counted {number(theirs)} {each.name}, the client {ours} ({gap if more else -gap:+.1%})"
        severity: Severity = "failed" if gap > COUNTERS_FAILED else "warning"
        if more and not facts.counted.settled:
            text += ", and it was not idle before and after the stage: it served others too"
            yield Judgement("other_load", severity, f"{text}.")
        else:
            text += ": it served others too, or one of the two miscounts" if more else ": one of the two miscounts"
            yield Judgement("counters_disagree", severity, f"{text}.")
        failed = True
    if agree and not failed:
        text = f"Engine and client agree on {' and '.join(agree)}, within {share(COUNTERS_WARNING)}."
        yield Judgement("counters_disagree", "ok", text)


@dataclass(frozen=True, slots=True)
class _Compared:
    """What both sides count. The client knows it between `least` and `most`."""

    name: str
    quantity: str
    least: float
    most: float


def _compared(facts: StageFacts) -> Iterator[_Compared]:
    """
    What both sides count.

    Nobody knows how far the engine got with requests that failed or were cut off: between nothing and what they asked.
    """
    summary, counted_there = facts.summary, facts.counted.counted
    open_ended = [request for request in facts.requests if request.status != "ok"]
    if "generation_tokens_total" in counted_there and summary.output_tokens and summary.tokens_source != "chunks":
        more = sum(request.asked_output_tokens or facts.output.tokens for request in open_ended)
        least = summary.output_tokens
        yield _Compared("output tokens", "generation_tokens_total", least, least + more)
    if summary.input_tokens and not open_ended:
        if "prompt_with_cached_tokens_total" in counted_there:
            read = summary.input_tokens
            yield _Compared("prompt tokens", "prompt_with_cached_tokens_total", read, read)
        elif "prompt_tokens_total" in counted_there and summary.cached_input_tokens is not None:
            computed = summary.input_tokens - summary.cached_input_tokens
            if computed > 0:
                yield _Compared("computed prompt tokens", "prompt_tokens_total", computed, computed)
