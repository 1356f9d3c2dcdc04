"""detectors.patterns.view: the text as people read it, with the positions in the original text."""

import unicodedata

import pytest
from detection.detectors.patterns.partial import SENTINEL
from detection.detectors.patterns.view import View, canonical, is_plain, readable
from hypothesis import given
from hypothesis import strategies as st

_TEXTS = st.text(
    st.one_of(st.characters(), st.sampled_from("a1-\u200b\u0332\u0301\uff11\ufb00\u2013\u00a0\u1100\u1161"))
)


@pytest.mark.parametrize(
    ("text", "view"),
    [
        ("\uff11\uff12\u200b\uff13", "123"),
        ("\ufb01\u2026\u2460", "fi...1"),
        ("1\u0332e\u0332", "1e"),
        ("e\u0301 1\u0301", "e\u0301 1"),  # Unicode has a composed character for the first only
        ("\u0915\u093f\u0902", "\u0915\u093f\u0902"),  # vowels of scripts that write them as marks stay
        ("\u00e9 \u65e5\u672c", "\u00e9 \u65e5\u672c"),
        ("a\u2011b\u2212c\u00a0d\u3000e\u00b7f", "a-b-c d e.f"),
    ],
)
def test_the_view_unifies_look_alike_characters(text: str, view: str) -> None:
    """Compatible characters become one, characters without a width are dropped, and so are marks on ASCII
    characters.
    """
    assert readable(text) == view


@given(st.lists(_TEXTS, max_size=5))
def test_positions_are_mapped_to_the_original_text(pieces: list[str]) -> None:
    """The view does not depend on the split of the text. Positions ascend, and each character has its original
    position.
    """
    text = "".join(pieces)
    view = View("")
    read = "".join(map(view.feed, pieces))
    assert read == readable(text)
    assert (view.length, view.text_length) == (len(read), len(text))
    starts = [view.start(place) for place in range(len(read))]
    ends = [view.end(place + 1) for place in range(len(read))]
    assert starts == sorted(starts)
    assert all(end == start + 1 for start, end in zip(starts, ends, strict=True))
    for place, start in enumerate(starts):
        assert read[place] in readable(text[start]) or unicodedata.combining(text[start])
        assert view.is_same_from(place) <= (read[place:] == text[start:])


@given(_TEXTS)
def test_the_view_of_plain_text_is_the_text(text: str) -> None:
    """The view of plain text is the text itself, after any character. ASCII is plain."""
    if is_plain(text):
        assert View("1").feed(text) == text
    assert is_plain("plain\n\x00")
    assert not is_plain("\u0332")  # removed after a digit


def test_forgetting_text_keeps_later_positions() -> None:
    """If the view forgets the text before a position, later positions stay the same."""
    view = View("", 5)  # five characters that are the same in both
    view.feed("a\u200b\uff11 b\u200bc")
    places = range(7, view.length)
    before = [(view.start(place), view.end(place + 1)) for place in places]
    view.forget(7)
    assert [(view.start(place), view.end(place + 1)) for place in places] == before == [(8, 9), (9, 10), (11, 12)]


def test_a_canonical_pattern_matches_both_spellings() -> None:
    """A pattern matches both spellings of letters with marks. The rest of the pattern stays the same."""
    assert canonical(r"a\d[é]{2}") == r"a\d[é]{2}"
    assert canonical("é?b") == "(?:é|e\u0301)?b"
    assert canonical(r"\Qé.\E") == r"(?:é|é)\.".replace("|é", "|e\u0301")
    assert SENTINEL not in canonical("é").encode()
