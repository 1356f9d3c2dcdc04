"""Objects and events of the Responses API, checked with the types of the ``openai`` package."""

import json
from collections.abc import Mapping
from typing import Any

from openai.types.conversations import Conversation, ConversationItem
from openai.types.responses import CompactedResponse, Response, ResponseItem, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

OURS = frozenset(("store", "source_nodes", "detections", "warnings"))
"""Members of a response that the types do not have."""

_EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
_RESPONSE: TypeAdapter[Any] = TypeAdapter(Response)
_ITEM: TypeAdapter[Any] = TypeAdapter(ResponseItem)
_COMPACTED: TypeAdapter[Any] = TypeAdapter(CompactedResponse)
_CONVERSATION: TypeAdapter[Any] = TypeAdapter(Conversation)
_CONVERSATION_ITEM: TypeAdapter[Any] = TypeAdapter(ConversationItem)


def response(said: Mapping[str, Any]) -> Any:
    """Return a response with the exact types of its members."""
    return _strict(_RESPONSE, said)


def item(said: Mapping[str, Any]) -> Any:
    """Return an item of a list of input items with its exact types."""
    return _strict(_ITEM, said)


def conversation(said: Mapping[str, Any]) -> Any:
    """Return a conversation with its exact types."""
    return _strict(_CONVERSATION, said)


def conversation_item(said: Mapping[str, Any]) -> Any:
    """Return an item of a conversation with its exact types."""
    return _strict(_CONVERSATION_ITEM, said)


def compacted(said: Mapping[str, Any]) -> Any:
    """Return a summary of a conversation, likewise. The user's messages in it are items of an input."""
    for each in said["output"]:
        if each["type"] == "message":
            item(each)
    kept = [each for each in said["output"] if each["type"] != "message"]
    return _strict(_COMPACTED, {**said, "output": kept})


def events(body: str) -> list[Any]:
    """Return the events of a stream with their exact types, after a check of their names and numbers."""
    found: list[Any] = []
    *blocks, rest = body.split("\n\n")
    assert rest == ""
    for block in blocks:
        if block.startswith(":"):
            continue
        name, _, data = block.partition("\n")
        said = json.loads(data.removeprefix("data: "))
        assert name == f"event: {said['type']}"
        assert said["sequence_number"] == len(found)
        found.append(_strict(_EVENT, said))
    return found


def _strict(adapter: TypeAdapter[Any], said: Mapping[str, Any]) -> Any:
    parsed = adapter.validate_python(said, strict=True)
    assert isinstance(parsed, BaseModel), parsed
    _check(parsed)
    return parsed


def _check(parsed: Any) -> None:
    """Check that no object has a member that its type does not have."""
    if isinstance(parsed, BaseModel):
        extra = set(parsed.model_extra or {}) - (OURS if isinstance(parsed, Response) else set())
        assert not extra, (type(parsed).__name__, extra)
        for name in type(parsed).model_fields:
            _check(getattr(parsed, name))
    elif isinstance(parsed, list):
        for each in parsed:
            _check(each)
