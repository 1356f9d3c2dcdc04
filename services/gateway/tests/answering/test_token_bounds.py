"""Bounds of the numbers of tokens, for each normal form of a text."""

import unicodedata
from typing import Literal

import pytest
from gateway.answering.token_bounds import max_tokens, upper_bounds
from gateway.domain import Message, TokenCounts
from hypothesis import given
from hypothesis import strategies as st

FORMS: tuple[Literal["NFC", "NFD", "NFKC", "NFKD"], ...] = ("NFC", "NFD", "NFKC", "NFKD")
KNOWN = TokenCounts((), 0, 8192, calls_tools=True)


@given(st.text())
def test_a_text_has_no_more_tokens_than_bytes(text: str) -> None:
    """The bound of a text is at least its bytes in every normal form."""
    forms = [text, *(unicodedata.normalize(form, text) for form in FORMS)]
    assert max_tokens(text) >= max(len(form.encode("utf-8", "replace")) for form in forms)


def test_bounds_replace_counts() -> None:
    """Each text has a bound, all messages have one together, and the properties of the model stay."""
    bounds = upper_bounds(KNOWN, ["ferry", "é"], [Message("user", "pier")])
    assert bounds is not None
    assert bounds.texts == (5, 5)
    assert bounds.messages > len("pier")
    assert (bounds.context_window, bounds.calls_tools) == (8192, True)


@pytest.mark.parametrize(
    "message",
    [Message("user", "", b'[{"type":"image_url"}]'), Message("user", "pier", b"", b'{"tool_calls":[]}')],
    ids=["parts", "extra"],
)
def test_messages_with_other_members_have_no_bound(message: Message) -> None:
    """Messages with pictures or other members have no bound."""
    assert upper_bounds(KNOWN, [], [message]) is None
