import pytest
from hypothesis import given
from hypothesis import strategies as st
from ingest.sentences import sentences

# ruff: noqa: RUF001  # signs that are meant


def split(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. Faye met Mr. Odell at 3 p.m. on deck.", ["Dr. Faye met Mr. Odell at 3 p.m. on deck."]),
        ("J. S. Bach wrote it. Nobody knew.", ["J. S. Bach wrote it.", "Nobody knew."]),
        ("It costs 3.50 euros. Cheap!", ["It costs 3.50 euros.", "Cheap!"]),
        ("1. Safety first. 2. Then speed.", ["1. Safety first.", "2. Then speed."]),
        ("She said: “Stop.” Then he left.", ["She said: “Stop.”", "Then he left."]),
        ("Siehe z.B. Abs. 3 dort. Ende.", ["Siehe z.B. Abs. 3 dort.", "Ende."]),
        ("Wait ... what? No", ["Wait ... what?", "No"]),
        ("渡轮每天出发。儿童免费！可以吗？可以", ["渡轮每天出发。", "儿童免费！", "可以吗？", "可以"]),
        ("「行きます。」と言った。", ["「行きます。」", "と言った。"]),
        ("A title\nA line\n\nA paragraph", ["A title", "A line", "A paragraph"]),
        (" \n\t ", []),
        ("", []),
    ],
)
def test_sentences_of_many_kinds(text: str, expected: list[str]) -> None:
    """Ends of sentences are found; abbreviations, initials, numbers and quotes do not end one."""
    assert split(text) == expected


@given(st.text(alphabet=st.sampled_from("aB1 .!?。\n\t\"'”)…म।é"), max_size=80))
def test_nothing_is_lost(text: str) -> None:
    """Spans are in order, apart, trimmed, and hold every character that is not white space."""
    spans = sentences(text)
    last = 0
    for start, end in spans:
        assert last <= start < end
        assert not text[start].isspace()
        assert not text[end - 1].isspace()
        assert not text[last:start].strip()
        last = end
    assert not text[last:].strip()
