"""A conversation as the body of a chat completion request, a text to go on with as that of a text completion."""

from typing import Any

import msgspec
from msgspec import Raw
from servicekit import keys

from generator.domain import ChatMessage, Conversation

_object = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.encode
_TRUE = Raw(b"true")


def request_body(prompt: Conversation, model: str, reasoning: str = "") -> bytes:
    """The request; the caller's parameters stand in it as they came.

    It asks for a stream with usage at its end, whatever else ``stream_options`` say, because events are what the
    platform passes on; unless the answer is wanted in one piece, or all events at once.

    Args:
        model: The name that the model server knows.
        reasoning: The member of a message in which the server takes what the model thought before; empty: none.
    """
    parameters = _object.decode(prompt.parameters_json)
    options = parameters.pop("stream_options", None)
    asked = {"model": model, **_said(prompt, reasoning)}
    if not (prompt.in_one_piece or prompt.unary):
        streaming = {} if options in (None, Raw(b"null")) else _object.decode(options)
        asked |= {"stream": True, "stream_options": {**streaming, "include_usage": _TRUE}}
    return _encode(asked | parameters)


def _said(prompt: Conversation, reasoning: str) -> dict[str, Any]:
    if prompt.plain:
        return {"prompt": prompt.messages[0].text}
    return {"messages": [_message(message, reasoning) for message in prompt.messages]}


def _message(message: ChatMessage, reasoning: str) -> dict[str, object]:
    extra = _object.decode(message.extra_json) if message.extra_json else {}
    thought = extra.pop(keys.EARLIER_REASONING, None)
    if thought is not None and reasoning:
        extra[reasoning] = thought
    content: object = message.text
    if message.content_json:
        content = Raw(message.content_json)
    elif not message.text and ("tool_calls" in extra or "function_call" in extra):
        content = None  # a call says nothing beside itself
    return {**extra, "role": message.role, "content": content}
