from typing import Any

import pytest
from gateway.dialects.json_fields import Fields
from gateway.dialects.rag_chat import conversation
from gateway.domain import Message
from gateway.frontends.profiles import Frontend
from servicekit.errors import InvalidRequest

ROLES = ("assistant", "user")
MAX_MESSAGES = 50
HELLO = {"role": "user", "content": "Hello."}
DAY = {"role": "assistant", "content": "Good day."}
WHEN = {"role": "user", "content": "When?"}


def read(body: dict[str, Any], **more: Any) -> list[tuple[str, str]]:
    messages = conversation.messages(Fields(body), ROLES, Frontend(max_messages=MAX_MESSAGES), **more)
    return [(message.role, message.text) for message in messages]


def test_messages_in_their_order() -> None:
    """The last message is the question, and a message without a text remains in the history."""
    assert read({"messages": [HELLO, DAY | {"content": None}, WHEN]}) == [
        ("user", "Hello."),
        ("assistant", ""),
        ("user", "When?"),
    ]


@pytest.mark.parametrize(
    "body",
    [{"input": "When?"}, {"input": [WHEN]}, {"messages": "When?"}, {"messages": None, "input": "When?"}],
)
def test_other_forms_of_messages(body: dict[str, Any]) -> None:
    """The messages are in `messages` or in `input`, as a list or as one text."""
    assert read(body) == [("user", "When?")]


def test_a_single_turn_has_the_users_last_message() -> None:
    """A single turn has only the last message of the user, even if an answer follows it."""
    assert read({"messages": [HELLO, WHEN, DAY]}, single_turn=True) == [("user", "When?")]
    assert read({"input": "When?"}, single_turn=True) == [("user", "When?")]


def test_attachments_precede_their_message() -> None:
    """Attachments precede their message in their order. An attachment without a message is refused."""
    files = {1: [Message("user", "one"), Message("user", "two")]}
    assert read({"messages": [DAY, WHEN]}, attached=files) == [
        ("assistant", "Good day."),
        ("user", "one"),
        ("user", "two"),
        ("user", "When?"),
    ]
    with pytest.raises(InvalidRequest, match=r"files for input\[1\], but no such message"):
        read({"input": "When?"}, attached=files)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": 7}, "messages"),
        ({"messages": [7]}, "messages[0]"),
        ({"input": [None]}, "input[0]"),
        ({"input": 7}, "input"),
        ({"messages": ""}, "messages[0].content"),
        ({"messages": [{"content": "x"}]}, "messages[0].role"),
        ({"messages": [HELLO | {"role": "system"}]}, "messages[0].role"),
        ({"messages": [HELLO | {"role": 7}]}, "messages[0].role"),
        ({"messages": [HELLO | {"content": ["x"]}]}, "messages[0].content"),
        ({"messages": [HELLO, DAY]}, "messages[1].role"),
        ({"messages": [HELLO | {"content": " \n"}]}, "messages[0].content"),
    ],
)
def test_invalid_messages_are_refused(body: dict[str, Any], field: str) -> None:
    """The error names the path of the message."""
    with pytest.raises(InvalidRequest) as caught:
        read(body)
    assert caught.value.field == field
    assert caught.value.message.startswith(field)
