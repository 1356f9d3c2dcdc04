"""guardrails.sentences: where sentences end, however a text is cut into pieces."""

from itertools import pairwise

import pytest
from guardrails.sentences import Sentences
from hypothesis import given
from hypothesis import strategies as st


def _sentences(pieces: list[str]) -> list[str]:
    chunker, ends = Sentences(), [0]
    for index, piece in enumerate(pieces):
        ends += chunker.feed(piece, index == len(pieces) - 1)
    text = "".join(pieces)
    return [text[start:end] for start, end in pairwise(ends)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", " Two!", " Three?"]),
        (
            "Dr. Smith paid Mr. J. Doe, e.g. on Monday. Good.",
            ["Dr. Smith paid Mr. J. Doe, e.g. on Monday.", " Good."],
        ),
        ("It costs $3.14 at example.org, v1.2.3. Yes.", ["It costs $3.14 at example.org, v1.2.3.", " Yes."]),
        ("We waited... and left. So.", ["We waited... and left.", " So."]),
        ('"Really?" he asked. "Yes."', ['"Really?" he asked.', ' "Yes."']),
        ("List:\n\n1. First thing\n2. Second thing.", ["List:", "\n\n1. First thing", "\n2. Second thing."]),
        ("- One item\n- Another", ["- One item", "\n- Another"]),
        ("A line\ngoes on. End", ["A line\ngoes on.", " End"]),
        ("今日は。元気です。。「はい。」終わり", ["今日は。", "元気です。。", "「はい。」", "終わり"]),
        ("中文.中文!中文", ["中文.", "中文!", "中文"]),
        ("यह एक है। दूसरा।", ["यह एक है।", " दूसरा।"]),
        ("withoutspaces.andmore!stillone", ["withoutspaces.andmore!stillone"]),
        ("Trailing.  \n", ["Trailing.  \n"]),
        ("", []),
        ("   ", ["   "]),
    ],
)
def test_where_sentences_end(text: str, sentences: list[str]) -> None:
    """Full stops of abbreviations, numbers, names and lists end nothing; marks without spaces behind them may."""
    assert _sentences([text]) == sentences


@given(st.lists(st.text('aAé.!?。 \n"1」', max_size=5), min_size=1, max_size=8))
def test_pieces_change_nothing(pieces: list[str]) -> None:
    """However a text is cut into pieces, its sentences are the same, and together they are the text."""
    text = "".join(pieces)
    assert _sentences(pieces) == _sentences([text])
    assert "".join(_sentences(pieces)) == text


def test_a_sentence_is_told_with_the_next_word() -> None:
    """A sentence is complete as soon as what follows it is known, not with the next one's end."""
    chunker = Sentences()
    assert chunker.feed("Hello there.", last=False) == []
    assert chunker.feed(" N", last=False) == [12]
