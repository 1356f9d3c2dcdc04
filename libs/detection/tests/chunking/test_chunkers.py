"""detection.chunking.chunkers: the windows of growing texts."""

import pytest
from detection.chunking.chunkers import Chunking, TooLong, Window, Windows, windows_of
from hypothesis import given
from hypothesis import strategies as st


def test_the_kinds_of_chunkers_are_independent() -> None:
    """Each kind of chunker cuts the same text independently of the other kind."""
    sentences, whole = Windows(Chunking.SENTENCE.chunker(), 100), Windows(Chunking.WHOLE.chunker(), 100)
    assert sentences.feed("One. Two. Th", last=False) == [Window(0, "One."), Window(4, " Two.")]
    assert whole.feed("One. Two. Th", last=False) == []
    assert sentences.feed("ree", last=True) == [Window(9, " Three")]
    assert whole.feed("ree", last=True) == [Window(0, "One. Two. Three")]


@pytest.mark.parametrize("chunking", Chunking)
@given(pieces=st.lists(st.text("aA. \n。", max_size=6), min_size=1, max_size=6))
def test_the_windows_join_to_the_text(chunking: Chunking, pieces: list[str]) -> None:
    """Windows follow each other without gaps. They are the same as the windows of the whole text."""
    windows = Windows(chunking.chunker(), 100)
    found = [
        window for index, piece in enumerate(pieces) for window in windows.feed(piece, index == len(pieces) - 1)
    ]
    text = "".join(pieces)
    assert found == windows_of(text, chunking)
    assert "".join(window.text for window in found) == text
    assert all(text.startswith(window.text, window.start) for window in found)


@pytest.mark.parametrize("chunking", Chunking)
def test_a_window_has_a_limit(chunking: Chunking) -> None:
    """A window that grows beyond the limit is an error, both before the window is complete and after."""
    windows = Windows(chunking.chunker(), 10)
    assert windows.feed("a" * 10, last=False) == []
    with pytest.raises(TooLong):
        windows.feed("a", last=False)
    with pytest.raises(TooLong):
        Windows(chunking.chunker(), 10).feed("a" * 11, last=True)
