"""Objects and events of the Responses API, checked with the types of the ``openai`` package."""

import json
from collections.abc import Mapping
from typing import Any

from openai.types.conversations import Conversation, ConversationItem
from openai.types.responses import CompactedResponse, Response, ResponseItem, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

OURS = frozenset(("store", "source_nodes", "detections", "warnings"))
"""Causeway's own members of a response, which the types of the package do not have."""

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_RESPONSE: TypeAdapter[Any] = TypeAdapter(Response)
_ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
_COMPACTED: TypeAdapter[Any] = TypeAdapter(CompactedResponse)
_CONVERSATION: TypeAdapter[Any] = TypeAdapter(Conversation)
_CONVERSATION_ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)


def response(document: Mapping[str, Any]) -> Any:
    """Check a response strictly, and return it as an object of the package."""
    return _strict(_RESPONSE, document)


def item(document: Mapping[str, Any]) -> Any:
    """Check an item of a list of input items strictly, and return it."""
    return _strict(_ITEM, document)


def conversation(document: Mapping[str, Any]) -> Any:
    """Check a conversation strictly, and return it."""
    return _strict(_CONVERSATION, document)


def conversation_item(document: Mapping[str, Any]) -> Any:
    """Check an item of a conversation strictly, and return it."""
    return _strict(_CONVERSATION_ITEM, document)


def compacted(document: Mapping[str, Any]) -> Any:
    """Check a compacted conversation strictly, and return it without messages.

    The package's type does not allow the user's messages in the output, so they are checked as input items.
    """
    for each in document["output"]:
        if each["type"] == "message":
            item(each)
    kept = [each for each in document["output"] if each["type"] != "message"]
    return _strict(_COMPACTED, {**document, "output": kept})


def events(body: str) -> list[Any]:
    """Check the events of a stream strictly, with their names and sequence numbers, and return them."""
    found: list[Any] = []
    *blocks, rest = body.split("\n\n")
    assert rest == ""
    for block in blocks:
        if block.startswith(":"):
            continue
        name, _, data = block.partition("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == len(found)
        found.append(_strict(_EVENT, event))
    return found


def _strict(adapter: TypeAdapter[Any], document: Mapping[str, Any]) -> Any:
    parsed = adapter.validate_python(document, strict=True)
    assert isinstance(parsed, BaseModel), parsed
    _check(parsed)
    return parsed


def _check(parsed: Any) -> None:
    """Check that no object has a member that its type does not define."""
    if isinstance(parsed, BaseModel):
        extra = set(parsed.model_extra or {}) - (OURS if isinstance(parsed, Response) else set())
        assert not extra, (type(parsed).__name__, extra)
        for name in type(parsed).model_fields:
            _check(getattr(parsed, name))
    elif isinstance(parsed, list):
        for each in parsed:
            _check(each)
