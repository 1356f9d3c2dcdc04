import re

import pytest
from gateway.followups import LONGEST_QUESTION, FollowUpSplitter
from hypothesis import given
from hypothesis import strategies as st

# Marks, line ends and words, so that all that can meet does meet.
texts = st.lists(
    st.sampled_from(
        [
            "<",
            "<<",
            "<<Why?>>",
            ">",
            ">>",
            "\n",
            " ",
            "Why?",
            "It is so.",
            "a",
            "<<a",
            "\n- ",
            "\n 1. ",
            "2",
            ")",
            "\r\n",
        ]
    ),
    max_size=12,
).map("".join)
# A question as the specification of it says: a bullet before it, two marks or some more, words on one line.
_WORDS = rf"(?:(?!<<|>>)[^\n\0]){{1,{LONGEST_QUESTION}}}"
_BREAK = r"[\r\n]{1,2}"
_OPEN = r"(?:(?<=\n)[ \t]{0,8}(?:[-*\u2022]|\d{1,2}[.)])[ \t]{1,8})?<{2,4}"


def split(*pieces: str) -> tuple[str, list[str]]:
    splitter = FollowUpSplitter()
    shown = "".join(splitter.feed(piece) for piece in pieces)
    return shown + splitter.end(), splitter.questions


@pytest.mark.parametrize(
    ("text", "shown", "questions"),
    [
        ("An answer.", "An answer.", []),
        ("An answer.\n", "An answer.\n", []),
        ("An answer.\n\n<<Why?>>\n<<Who else?>>\n", "An answer.", ["Why?", "Who else?"]),
        ("An answer. << Why? >>", "An answer.", ["Why?"]),
        ("<<Why?>> An answer.", " An answer.", ["Why?"]),
        ("One <<Why?>> two", "One  two", ["Why?"]),
        ("a << b\nc", "a << b\nc", []),
        ("if a < b > c", "if a < b > c", []),
        ("An answer. <<Is it cut sh", "An answer.", []),
        ("An answer. <", "An answer. <", []),
        ("<<Why>?>>", "", ["Why>?"]),
        ("<<<Why?>>>", "", ["Why?"]),
        ("An answer. <<\nWhy?\n>>", "An answer.", ["Why?"]),
        ("An answer.\n\n1. <<Why?>>\n 2) <<Who?>>\n- <<Where?>>", "An answer.", ["Why?", "Who?", "Where?"]),
        ("A list:\n- one\n42\n<<Why?>>", "A list:\n- one\n42", ["Why?"]),
        ("An answer.\n- <<Is it cut sh", "An answer.", []),
        ("A list:\n- ", "A list:\n- ", []),
        ("One\n- <<Why?>> two", "One\n two", ["Why?"]),
        ("<<<<<<< HEAD\n", "<<<<<<< HEAD\n", []),
        ("<<a <<Why?>>", "<<a", ["Why?"]),
        ("<<>>", "<<>>", []),
        ("<<" + "x" * LONGEST_QUESTION + ">>", "", ["x" * LONGEST_QUESTION]),
        ("<<" + "x" * (LONGEST_QUESTION + 1) + ">>", "<<" + "x" * (LONGEST_QUESTION + 1) + ">>", []),
    ],
)
def test_questions_are_cut_out(text: str, shown: str, questions: list[str]) -> None:
    """With their marks and the white space around them; what is no question stays."""
    assert split(text) == (shown, questions)
    assert split(*text) == (shown, questions)


@given(texts, st.data())
def test_it_does_not_matter_how_the_text_is_cut(text: str, data: st.DataObject) -> None:
    """The same text and the same questions, from one piece, from any pieces, from single characters."""
    whole = split(text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    ends = [*cuts, len(text)]
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], ends, strict=True)]
    assert split(*pieces) == whole
    assert split(*text) == whole


@given(texts)
def test_nothing_but_questions_is_missing(text: str) -> None:
    """Each that is whole, the one that is begun at the end, and white space; everything else is shown, in order."""
    shown, questions = split(text)
    whole = re.compile(f"{_OPEN}(?!<)({_WORDS}|{_BREAK}{_WORDS}{_BREAK})>>+")
    begun = rf"{_OPEN}(?:(?!<)(?:{_WORDS}>?|{_BREAK}(?:{_WORDS}(?:{_BREAK}>?)?)?))?\Z"
    rest = re.sub(begun, "", whole.sub("\0", text)).replace("\0", "")
    assert "".join(shown.split()) == "".join(rest.split())
    assert questions == [match[1].strip() for match in whole.finditer(text) if match[1].strip()]


@given(texts)
def test_what_is_shown_is_shown_early(text: str) -> None:
    """Without a mark nothing is held back but the white space at the end, and a bullet that stands there."""
    plain = text.replace("<", "")
    early = re.sub(r"\n[ \t]{0,8}(?:\d{1,2}|(?:-|\d{1,2}[.)])[ \t]{0,8})\Z", "", plain).rstrip()
    splitter = FollowUpSplitter()
    assert "".join(splitter.feed(character) for character in plain) == early
    assert splitter.end() == plain[len(early) :]
