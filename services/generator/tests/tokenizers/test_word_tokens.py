"""The tokens of the extractive model."""

from generator.domain import ChatMessage
from generator.tokenizers.word_tokens import PieceCounter, pieces, text_of
from hypothesis import given
from hypothesis import strategies as st


@given(st.text())
def test_the_pieces_join_to_the_text(text: str) -> None:
    """The pieces join to the text, none is empty, and the count is their number."""
    cut = pieces(text)
    assert "".join(cut) == text
    assert all(cut)
    assert PieceCounter().count(text) == len(cut)


def test_a_piece_is_a_word_or_a_character() -> None:
    """A piece is a word with the space before it, or a Chinese character."""
    assert pieces("Up to 900 kg.\n[a.md]") == ["Up", " to", " 900", " kg.", "\n[a.md]"]
    assert pieces("票价 5元") == ["票", "价", " 5", "元"]


def test_the_text_of_a_message_is_that_of_its_parts() -> None:
    """The text of a message consists of its text parts."""
    parts = b'[{"type":"text","text":"a b"},{"type":"image_url","image_url":{}},{"type":"text","text":"c"}]'
    assert text_of(ChatMessage("user", content_json=parts)) == "a b\nc"
    messages = [ChatMessage("user", content_json=parts), ChatMessage("system", "d")]
    assert PieceCounter().count_messages(messages) == 4
