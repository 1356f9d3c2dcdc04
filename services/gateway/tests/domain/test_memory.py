from gateway.domain import Message
from gateway.domain.memory import MAX_CHARACTERS, MAX_MESSAGES, is_name, new_name, trim_messages


def turns(count: int, size: int = 1) -> list[Message]:
    return [
        message for _ in range(count) for message in (Message("user", "q" * size), Message("assistant", "a" * size))
    ]


def test_session_names_are_unique_and_recognized() -> None:
    """Names are random and unique, and a text of another form is not a name."""
    names = {new_name() for _ in range(100)}
    assert len(names) == 100
    assert all(map(is_name, names))
    assert not any(map(is_name, ("", "my-session", "f" * 31, "F" * 32, "f" * 33, f"{'f' * 32}\n")))


def test_only_texts_are_kept() -> None:
    """A session contains only texts of the user and the model, without other members."""
    messages = [
        Message("system", "Be kind."),
        Message("user", "", b'[{"type":"image_url"}]'),
        Message("user", "Hi", extra_json=b'{"name":"Ann"}'),
        Message("assistant", "Hello"),
    ]
    assert trim_messages(messages) == (Message("user", "Hi"), Message("assistant", "Hello"))


def test_the_memory_is_bounded() -> None:
    """A session contains the latest messages within both limits, and no answer without its question."""
    assert len(trim_messages(turns(MAX_MESSAGES))) == MAX_MESSAGES
    assert [message.role for message in trim_messages([*turns(MAX_MESSAGES), Message("user", "?")])][:2] == [
        "user",
        "assistant",
    ]
    kept = trim_messages(turns(30, 10_000))
    assert sum(len(message.text) for message in kept) == MAX_CHARACTERS
    assert trim_messages(turns(1, MAX_CHARACTERS)) == ()
