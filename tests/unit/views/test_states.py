"""Every state has a word, a tone and one sentence: what was observed; what the person can do."""

import re

import pytest

from store.model import EngineState, SourceState
from views import states


@pytest.mark.parametrize("state", [*EngineState, *SourceState])
def test_a_state_says_what_was_observed_and_what_can_be_done(state):
    shown = states.look(state)
    assert shown.word == state.value.replace("_", " ")
    assert re.fullmatch(r"[A-Z][^.;]+; [^.;]+\.", shown.meaning), "two halves of one sentence"
    assert states.with_symbol(state).endswith(shown.word)


def test_no_two_states_say_the_same():
    meanings = [states.look(state).meaning for state in (*EngineState, *SourceState)]
    assert len(set(meanings)) == len(meanings)


def test_a_state_that_a_newer_collector_wrote_keeps_its_own_name():
    assert states.look("half_asleep").word == "half asleep"
    assert states.look(None).word == "not sampled yet"
