import pytest
from gateway.domain.chat_history import Conversation, page
from hypothesis import given
from hypothesis import strategies as st
from servicekit.errors import InvalidRequest

CONVERSATIONS = st.lists(
    st.builds(Conversation, st.text(min_size=1, max_size=5), st.just(""), st.integers(0, 3)),
    unique_by=lambda conversation: conversation.id,
    max_size=12,
)


@given(CONVERSATIONS, st.integers(1, 5))
def test_pages_have_each_conversation_once(conversations: list[Conversation], count: int) -> None:
    """The pages have each conversation once, the latest first, for any page size and equal times."""
    seen: list[Conversation] = []
    token = ""
    while True:
        part = page(conversations, count, token)
        assert len(part.conversations) <= count
        seen += part.conversations
        token = part.next_token
        if not token:
            break
        assert len(part.conversations) == count
    assert seen == sorted(conversations, key=lambda conversation: (-conversation.timestamp, conversation.id))


def test_a_deleted_conversation_does_not_shift_pages() -> None:
    """The token identifies the last conversation, so that a deletion does not skip a conversation."""
    conversations = [Conversation(str(number), "", 10 - number) for number in range(4)]
    first = page(conversations, 2, "")
    assert [conversation.id for conversation in first.conversations] == ["0", "1"]
    rest = page([conversation for conversation in conversations if conversation.id != "1"], 2, first.next_token)
    assert [conversation.id for conversation in rest.conversations] == ["2", "3"]


@pytest.mark.parametrize("token", ["x", "é", "W10=", "WzEsMl0=", "eyJhIjoxfQ==", "[1]", "A" * 5000])
def test_an_invalid_token_is_refused(token: str) -> None:
    """An invalid token is refused, and the error names the parameter."""
    with pytest.raises(InvalidRequest) as caught:
        page([], 1, token)
    assert caught.value.field == "continuationToken"
