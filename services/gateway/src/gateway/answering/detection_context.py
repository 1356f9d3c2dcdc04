"""Build the context of a turn's texts for detectors that judge a text together with its conversation."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from gateway.domain import DetectionContext, Message, Passage, Turn

_parameters = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.encode


def of_turn(turn: Turn, passages: Sequence[Passage] = ()) -> DetectionContext:
    """Return the context of a turn's texts: conversation, tools, question and passages.

    Args:
        turn: The turn after the checks so far.
        passages: The sources of the answer.
    """
    last_question = turn.question or next(
        (message.text for message in reversed(turn.history) if message.role == "user"), ""
    )
    question = (Message("user", turn.question, b"", turn.original.question_extra_json),) if turn.question else ()
    return DetectionContext(
        passages=tuple(passage.text for passage in passages),
        prompt=last_question,
        messages_json=_encode([_message(message) for message in (*turn.history, *question)]),
        tools_json=_tools(turn.parameters_json),
        headers=turn.headers,
    )


def of_query(turn: Turn) -> DetectionContext:
    """Return the context of a search query that a model wrote. The conversation is the query's source."""
    texts = tuple(message.text for message in turn.history if message.text)
    context = of_turn(turn)
    return replace(context, passages=(*texts, turn.question))


def _message(message: Message) -> dict[str, object]:
    content: object = msgspec.Raw(message.content_json) if message.content_json else message.text
    members: dict[str, object] = {"role": message.role, "content": content}
    if message.extra_json:
        members |= _parameters.decode(message.extra_json)
    return members


def _tools(parameters_json: bytes) -> bytes:
    if b'"tools"' not in parameters_json:
        return b""
    tools = bytes(_parameters.decode(parameters_json).get("tools", b""))
    return tools if tools.startswith(b"[") else b""
