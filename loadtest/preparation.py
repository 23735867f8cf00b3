"""
Before a run: who answers at each endpoint, what it takes, and how it counts tokens.

Two short requests with prompts of two lengths tell how many tokens a word is and how many the server adds by itself.
Where it tells no prompt tokens, a word of the shipped list counts as one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from collectors.probe import Probed, probe
from loadtest import lengths
from loadtest.caller import Caller, EndpointError
from loadtest.dialect import Dialect
from loadtest.prompts import Prompts, TokenModel
from loadtest.spec import Spec
from settings import Settings, Target

_SHORT_WORDS, _LONG_WORDS = 40, 440
_TRIAL_OUTPUT_TOKENS = 2


@dataclass(frozen=True, slots=True)
class Identified:
    """What is known of an endpoint; all None for an OpenAI-compatible server of unknown kind."""

    engine: str | None = None
    version: str | None = None
    model_id: str | None = None
    max_context_tokens: int | None = None


async def identify(caller: Caller, settings: Settings) -> Identified:
    """Ask the collector's adapters who answers. Reads only."""
    target = Target(url=caller.endpoint.url, api_key_env=caller.endpoint.api_key_env)
    found = await asyncio.get_running_loop().run_in_executor(None, probe, target, settings)
    if not isinstance(found, Probed):
        return Identified()
    identity = found.identity
    return Identified(identity.kind, identity.version, identity.model_id, identity.max_context_tokens)


async def prepare(
    caller: Caller, spec: Spec, prompts: Prompts, settings: Settings, note: Callable[[str], None]
) -> Identified:
    """
    Make `caller` fit to send the run's requests. `note` gets a sentence for each thing that is not as asked.

    Raises `EndpointError` when the endpoint does not answer, refuses, or can't hold the prompts.
    """
    prompts.check_api(caller.endpoint.api)
    identified = await identify(caller, settings)
    if caller.model is None:
        caller.model = await caller.first_model() or identified.model_id
    caller.dialect = Dialect.of(identified.engine, ignore_eos=spec.output.ignore_eos, cached=spec.input.cached)
    if spec.output.ignore_eos and "ignore_eos" not in caller.dialect.features:
        note(f"{caller.endpoint.name}: {identified.engine} has no ignore_eos: answers may end before the asked length")
    _check_context(caller.endpoint.name, identified, spec, prompts)
    await _learn_tokens(caller, identified, spec, prompts, note)
    return identified


def _check_context(name: str, identified: Identified, spec: Spec, prompts: Prompts) -> None:
    most, wanted = identified.max_context_tokens, lengths.greatest(spec.input) + spec.output.tokens
    if most is not None and not prompts.from_file and spec.input.distribution != "lognormal" and wanted > most:
        raise EndpointError(
            f"{name}: prompts of {lengths.greatest(spec.input)} and answers of {spec.output.tokens} tokens need a "
            f"context of {wanted}, but this engine has {most}. Ask for shorter ones, or start it with a longer context"
        )


async def _learn_tokens(
    caller: Caller, identified: Identified, spec: Spec, prompts: Prompts, note: Callable[[str], None]
) -> None:
    # The longer, the better the slope is known; a third of the context holds a word of three tokens.
    room = (identified.max_context_tokens or 3 * lengths.greatest(spec.input)) // 3
    long = min(_LONG_WORDS, max(2 * _SHORT_WORDS, room))
    seen = []
    for words in (_SHORT_WORDS, long):
        prompt = prompts.trial(f"{caller.endpoint.name}/{words}", words)
        timing = await caller.ask(prompt, _TRIAL_OUTPUT_TOKENS, note)
        if timing.input_tokens is not None:
            seen.append((words, timing.input_tokens))
    if prompts.from_file:
        return
    try:
        caller.tokens = TokenModel.through(*seen)
    except (TypeError, ValueError):
        note(
            f"{caller.endpoint.name}: the server does not tell how long a prompt is in tokens, so a word of it is "
            "taken for one token"
        )
