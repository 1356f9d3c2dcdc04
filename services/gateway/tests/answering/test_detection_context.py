import json

from gateway.answering import detection_context
from gateway.domain import Message, OriginalRequest, Passage, Turn
from servicekit.principal import LOCAL

CALLS = b'{"tool_calls":[{"id":"c"}]}'
PARTS = b'[{"type":"image_url"}]'
TURN = Turn(
    LOCAL,
    "And now?",
    (Message("system", "Be brief."), Message("assistant", "", b"", CALLS), Message("user", "", PARTS)),
    parameters_json=b'{"temperature":1,"tools":[{"type":"function"}]}',
    headers={"x-tenant": "t"},
    original=OriginalRequest(question_extra_json=b'{"name":"ann"}'),
)


def test_the_context_of_a_turn_is_its_conversation() -> None:
    """The context has all messages with their members, the question last, the tools, headers and passages."""
    passage = Passage("p", "docs", "d", "a.md", "a.md", "It is noon.", 1.0)
    context = detection_context.of_turn(TURN, (passage,))
    assert json.loads(context.messages_json) == [
        {"role": "system", "content": "Be brief."},
        {"role": "assistant", "content": "", "tool_calls": [{"id": "c"}]},
        {"role": "user", "content": [{"type": "image_url"}]},
        {"role": "user", "content": "And now?", "name": "ann"},
    ]
    assert json.loads(context.tools_json) == [{"type": "function"}]
    assert (context.passages, context.prompt, context.headers) == (("It is noon.",), "And now?", {"x-tenant": "t"})


def test_the_users_latest_message_is_the_prompt() -> None:
    """The latest message of the user is the prompt if the last message is a tool's."""
    turn = Turn(LOCAL, "", (Message("user", "Why?"), Message("tool", "{}")), parameters_json=b'{"tools":null}')
    context = detection_context.of_turn(turn)
    assert (context.prompt, context.tools_json) == ("Why?", b"")
    assert [message["role"] for message in json.loads(context.messages_json)] == ["user", "tool"]


def test_the_context_of_a_search_query_is_the_conversation() -> None:
    """The context of a search query has the earlier messages as its passages."""
    assert detection_context.of_query(TURN).passages == ("Be brief.", "And now?")
