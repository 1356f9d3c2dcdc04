"""Answers cut as a request wants them."""

import pytest
from generator.extractive.wording import Wanted, worded

TEXT = "one two three. four"


@pytest.mark.parametrize(
    ("wanted", "text", "reason"),
    [
        (Wanted(), TEXT, "stop"),
        (Wanted(max_tokens=2), "one two", "length"),
        (Wanted(max_tokens=4), TEXT, "stop"),
        (Wanted(max_tokens=9, max_completion_tokens=1), "one", "length"),
        (Wanted(stop="two"), "one ", "stop"),
        (Wanted(stop=["four", " thr", ""]), "one two", "stop"),
        (Wanted(stop=["nowhere"]), TEXT, "stop"),
        (Wanted(stop="four", max_tokens=2), "one two", "length"),
        (Wanted(stop="one"), "", "stop"),
    ],
)
def test_an_answer_ends_at_a_stop_string_or_after_so_many_tokens(wanted: Wanted, text: str, reason: str) -> None:
    """Whichever comes first says why; the stop string itself is not said."""
    said = worded(TEXT, wanted)
    assert ("".join(said.pieces), said.finish_reason) == (text, reason)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (Wanted(max_tokens=0), "max_tokens"),
        (Wanted(max_completion_tokens=-1), "max_completion_tokens"),
        (Wanted(n=129), "n"),
        (Wanted(n=0), "n"),
    ],
)
def test_parameters_out_of_range_are_named(wanted: Wanted, name: str) -> None:
    """So that the caller can mend them."""
    problem = wanted.problem()
    assert problem is not None
    assert problem[0] == name
    assert name in problem[1]
    assert Wanted(max_tokens=1, n=2).problem() is None
