from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from text.sentences import SentenceSplitter, sentence_spans, sentences

# ruff: noqa: RUF001  # full-width marks are what is tested

TEXTS = st.lists(st.sampled_from([*"aBé1$-.!?。… \n\t\"')”」*म।", "Dr", "approx", "No", "Jan"]), max_size=30).map(
    "".join
)


def pieces(parts: list[str]) -> list[str]:
    """Return the text of each sentence that a splitter finds in parts, with the white space before it."""
    splitter, ends = SentenceSplitter(), [0]
    for index, part in enumerate(parts):
        ends += splitter.feed(part, last=index == len(parts) - 1)
    text = "".join(parts)
    return [text[start:end] for start, end in pairwise(ends)]


@pytest.mark.parametrize(
    "expected",
    [
        ["One.", "Two!", "Three?", "Four"],
        ["It costs £18.40 in 2024.", "The rest is free."],
        ["It costs $3.14 at example.org, v1.2.3.", "Yes."],
        ["The fee is approx. 3.50 EUR.", "Children pay half."],
        ["The fee is approx. EUR 3.50.", "Children pay half."],
        ["Dr. Smith paid Mr. J. Doe, e.g. on Monday.", "Good."],
        ["Dr. Imke Sorley met Mr. J. R. Moy at 5 p.m. on Tuesday.", "They spoke."],
        ["J. S. Bach wrote it.", "Nobody knew."],
        ["See Fig. 3 and No. 7, e.g. on p. 12.", "No.", "That is all!"],
        ["She was born on Jan. 5 in the U.S. and left.", "So did I.", "Done."],
        ["Call tel. +44 20 7946 or ext. 12.", "Nobody answers on the ext.", "Wait."],
        ["The boat leaves at 5 p.m.", "It is late."],
        ["The prices are set by Skerry Line Ltd. and the board.", "Done."],
        ["We sell bread, cakes, etc.", "The shop is open."],
        ["Version 2.5.1 is out.", "Is it good?", "Yes…", "Very."],
        ["Wait ... what?", "No"],
        ["We waited... and left.", "So."],
        ['"Really?" he asked.', '"Yes."'],
        ['He said "Stop!" and left.', '"Why?"', "(Nobody knew.)", "So it goes."],
        ["She said: “Stop.”", "Then he left."],
        ["Der Preis beträgt ca. 5 Euro, d.h. wenig.", "Gut."],
        ["Siehe z.B. Abs. 3 dort.", "Ende."],
        ["1. Safety first.", "2. Then speed."],
        ["Visit example.org/a.html today.", "Then rest."],
        ["withoutspaces.andmore!stillone"],
        ["नाव छह बजे चलती है।", "किराया कितना है?"],
    ],
)
def test_abbreviations_and_numbers_end_no_sentence(expected: list[str]) -> None:
    """Full stops of abbreviations, numbers, names and list items end no sentence. A closing quote stays with its
    sentence.
    """
    assert sentences(" ".join(expected)) == expected


@pytest.mark.parametrize(
    "expected",
    [
        ["渡轮每天出发。", "儿童免费！", "可以吗？", "可以"],
        ["今日は。", "元気です。。", "「はい。」", "終わり"],
        ["中文.", "中文!", "中文"],
        ["यह एक है।", "दूसरा।"],
        ["「行きます。」", "と言った。"],
    ],
)
def test_marks_of_scripts_without_spaces_end_a_sentence(expected: list[str]) -> None:
    """In scripts without spaces, a mark ends a sentence without a space after it."""
    assert sentences("".join(expected)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A title\nA line\n\nA paragraph", ["A title", "\nA line", "\n\nA paragraph"]),
        ("A line\ngoes on. End", ["A line\ngoes on.", " End"]),
        ("A line\n\ngoes nowhere", ["A line", "\n\ngoes nowhere"]),
        ("List:\n\n1. First thing\n2. Second thing.", ["List:", "\n\n1. First thing", "\n2. Second thing."]),
        ("- One item\n- Another", ["- One item", "\n- Another"]),
        ("Trailing.  \n", ["Trailing.  \n"]),
        ("   ", ["   "]),
        ("", []),
    ],
)
def test_line_breaks_end_a_sentence_unless_lower_case_follows(text: str, expected: list[str]) -> None:
    """A line break ends a sentence unless lower case follows. White space belongs to the next sentence."""
    assert pieces([text]) == expected


@given(st.lists(TEXTS, min_size=1, max_size=8))
def test_the_division_of_a_text_changes_nothing(parts: list[str]) -> None:
    """For every division of a text, the sentences are the same, and together they are the text."""
    text = "".join(parts)
    assert pieces(parts) == pieces([text])
    assert pieces(list(text) or [""]) == pieces([text])
    assert "".join(pieces(parts)) == text


@given(TEXTS)
def test_spans_contain_all_text_except_white_space(text: str) -> None:
    """Spans are ordered, separate and trimmed, and contain every character that is not white space."""
    last = 0
    for start, end in sentence_spans(text):
        assert last <= start < end
        assert text[start:end] == text[start:end].strip()
        assert not text[last:start].strip()
        last = end
    assert not text[last:].strip()


def test_a_sentence_is_certain_with_the_next_word() -> None:
    """A sentence is reported as soon as the next word begins, not when the next sentence ends."""
    splitter = SentenceSplitter()
    assert splitter.feed("Hello there.") == []
    assert splitter.feed(" N") == [12]


def test_only_the_unfinished_sentence_is_kept() -> None:
    """A splitter holds no text of sentences that it has reported."""
    splitter = SentenceSplitter()
    for _ in range(1000):
        splitter.feed("One more sentence. ")
    assert len(splitter._text) < 40
