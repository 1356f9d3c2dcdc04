"""Stop sequences in a text that arrives in pieces."""

from generator.triton.stops import StopCutter
from hypothesis import given
from hypothesis import strategies as st


def cut(pieces: list[str], stops: list[str]) -> str:
    cutter = StopCutter(stops)
    return "".join([cutter.feed(piece) for piece in pieces]) + cutter.close()


def expected(text: str, stops: list[str]) -> str:
    """Return the text up to the first complete stop sequence, or the longest of several with the same end."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


LETTERS = st.text("abc", max_size=6)


@given(st.lists(LETTERS, max_size=12), st.lists(st.text("abc", min_size=1, max_size=5), max_size=4))
def test_the_result_does_not_depend_on_the_pieces(pieces: list[str], stops: list[str]) -> None:
    """For every split into pieces, the text ends before the first complete stop sequence."""
    text = "".join(pieces)
    assert cut(pieces, stops) == cut(list(text), stops) == expected(text, stops)


@given(st.lists(LETTERS, max_size=12), st.lists(st.text("abc", min_size=1, max_size=5), max_size=4))
def test_nothing_of_a_stop_sequence_leaks(pieces: list[str], stops: list[str]) -> None:
    """The text so far is always the beginning of the final text."""
    whole = expected("".join(pieces), stops)
    cutter, released = StopCutter(stops), ""
    for piece in pieces:
        released += cutter.feed(piece)
        assert whole.startswith(released)


def test_only_what_may_be_a_stop_sequence_is_held_back() -> None:
    """Only a possible beginning of a stop sequence is held back."""
    cutter = StopCutter(["END.", "\n\n"])
    assert cutter.feed("at the EN") == "at the "
    assert cutter.feed("TRANCE\n") == "ENTRANCE"
    assert cutter.feed("x") == "\nx"
    assert StopCutter([]).feed("anything") == "anything"


def test_nothing_comes_after_a_stop_sequence() -> None:
    """After a stop sequence, further text is dropped."""
    cutter = StopCutter(["."])
    assert (cutter.feed("a.b"), cutter.feed("c"), cutter.close(), cutter.stopped) == ("a", "", "", True)
