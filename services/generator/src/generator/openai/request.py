"""Renders a conversation as a chat completion request, and a plain prompt as a text completion request."""

from typing import Any

import msgspec
from msgspec import Raw
from servicekit import keys

from generator.domain import ChatMessage, Conversation

_object = msgspec.json.Decoder(dict[str, Raw])
_encode = msgspec.json.encode
_TRUE = Raw(b"true")


def request_body(prompt: Conversation, model: str, reasoning: str = "") -> bytes:
    """Return the body of the request, with the caller's parameters unchanged.

    If the prompt is neither ``in_one_piece`` nor ``unary``, the request asks for a stream with usage at its end.
    The request keeps the caller's other ``stream_options``.

    Args:
        prompt: The conversation.
        model: The name of the model on the server.
        reasoning: The name of the message member for the model's earlier reasoning; empty: omit the reasoning.
    """
    parameters = _object.decode(prompt.parameters_json)
    options = parameters.pop("stream_options", None)
    request = {"model": model, **_messages(prompt, reasoning)}
    if not (prompt.in_one_piece or prompt.unary):
        streaming = {} if options in (None, Raw(b"null")) else _object.decode(options)
        request |= {"stream": True, "stream_options": {**streaming, "include_usage": _TRUE}}
    return _encode(request | parameters)


def _messages(prompt: Conversation, reasoning: str) -> dict[str, Any]:
    if prompt.plain:
        return {"prompt": prompt.messages[0].text}
    return {"messages": [_message(message, reasoning) for message in prompt.messages]}


def _message(message: ChatMessage, reasoning: str) -> dict[str, object]:
    extra = _object.decode(message.extra_json) if message.extra_json else {}
    earlier_reasoning = extra.pop(keys.EARLIER_REASONING, None)
    if earlier_reasoning is not None and reasoning:
        extra[reasoning] = earlier_reasoning
    content: object = message.text
    if message.content_json:
        content = Raw(message.content_json)
    elif not message.text and ("tool_calls" in extra or "function_call" in extra):
        content = None  # a message with calls has no content
    return {**extra, "role": message.role, "content": content}
