"""The parts of a model's output other than its text: tool calls, reasoning, refusals, annotations.

Models send these parts as pieces of OpenAI's JSON objects. The OpenAI dialects pass the pieces on unchanged. The
other dialects read the pieces as `Part`. `merge` joins the pieces as OpenAI's clients do.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from servicekit.errors import Unavailable

_encode = msgspec.json.encode
_object = msgspec.json.Decoder(dict[str, Any])
_NOT_APPENDED = frozenset(("id", "type", "role", "name"))
_FILTER_RESULTS = "content_filter_results"
_REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call, or the next piece of a tool call.

    Attributes:
        index: The number of the call in the choice. The pieces of one call have the same number. None means the
            legacy ``function_call``. A choice has at most one.
        id: The id of the call, or empty in later pieces.
        name: The name of the function, or empty in later pieces.
        arguments: The arguments of the function as JSON text, or the next piece of this text.
        raw_json: The JSON value as the model server sent it, with the members of other kinds of tools and vendors.
    """

    index: int | None
    id: str
    name: str
    arguments: str
    raw_json: bytes


@dataclass(frozen=True, slots=True)
class Reasoning:
    """The reasoning of the model before its answer, or the next piece of this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The text with which the model refuses to answer, or the next piece of this text."""

    text: str


@dataclass(frozen=True, slots=True)
class Annotation:
    """An annotation of the model server on a span of the text.

    Attributes:
        kind: ``url_citation``, or another kind that the model server defines.
        start: The first code point of the span, or None if it is not known.
        end: The first code point after the span, or None if it is not known.
        url: The address of the cited source, or empty if the source has no address.
        title: The title of the cited source.
        raw_json: The JSON value as the model server sent it.
    """

    kind: str
    start: int | None
    end: int | None
    url: str
    title: str
    raw_json: bytes


Part = ToolCall | Reasoning | Refusal | Annotation


def parts_of(members: Mapping[str, Any]) -> tuple[Part, ...]:
    """Return the parts other than the text in a delta or in a whole message.

    Source: the OpenAI API reference, the chat completion object and its chunk. ``reasoning_content`` and
    ``reasoning`` are members of DeepSeek's and vLLM's APIs.

    >>> parts_of({"refusal": "I cannot help with that."})
    (Refusal(text='I cannot help with that.'),)

    Args:
        members: The JSON members. The function ignores members of an unknown kind or shape.
    """
    return tuple(_parts(members))


def _parts(members: Mapping[str, Any]) -> Iterator[Part]:
    if reasoning := next((text for name in _REASONING if (text := _text(members, name))), ""):
        yield Reasoning(reasoning)
    if refusal := _text(members, "refusal"):
        yield Refusal(refusal)
    if (calls := members.get("tool_calls")) is not None:
        for at, call in enumerate(calls if isinstance(calls, list) else [calls]):
            call_members = _members(call)
            yield _tool_call(index_of(call_members, at), call, _members(call_members.get("function")))
    if (legacy := members.get("function_call")) is not None:
        yield _tool_call(None, legacy, _members(legacy))
    annotations = members.get("annotations")
    for annotation in annotations if isinstance(annotations, list) else ():
        yield _annotation(annotation)


def _tool_call(index: int | None, call: object, function: Mapping[str, Any]) -> ToolCall:
    name, arguments = _text(function, "name"), _text(function, "arguments")
    return ToolCall(index, _text(_members(call), "id"), name, arguments, _encode(call))


def _annotation(annotation: object) -> Annotation:
    kind = _text(_members(annotation), "type")
    detail = _members(_members(annotation).get(kind))
    start, end = (at if isinstance(at := detail.get(name), int) else None for name in ("start_index", "end_index"))
    return Annotation(kind, start, end, _text(detail, "url"), _text(detail, "title"), _encode(annotation))


def _members(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(members: Mapping[str, Any], name: str) -> str:
    return value if isinstance(value := members.get(name), str) else ""


def tool_calls_json(calls: Iterable[ToolCall]) -> bytes:
    """Return the members of a delta that contains only these tool calls, as a JSON object."""
    listed: list[msgspec.Raw] = []
    members: dict[str, Any] = {}
    for call in calls:
        raw = msgspec.Raw(call.raw_json)
        if call.index is None:
            members["function_call"] = raw
        else:
            listed.append(raw)
    return _encode({"tool_calls": listed, **members} if listed else members)


def drop_indexes(message: Mapping[str, Any]) -> None:
    """Remove the indexes of the tool calls. Only streamed pieces of calls have an index."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            call.pop("index", None)


def members_of(raw_json: bytes) -> dict[str, Any]:
    """Return the members of a JSON object that a model server sent.

    Raises:
        Unavailable: The bytes are not a JSON object.
    """
    try:
        members: dict[str, Any] = _object.decode(raw_json)
    except (ValueError, RecursionError) as error:
        raise Unavailable(
            "The model server sent a value that is not a valid JSON object. Check the model server."
        ) from error
    return members


def choices_of(completion: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the choices of a complete (not streamed) answer of a model server; an empty list if it has none.

    Raises:
        Unavailable: A choice, a message or a tool call is not a JSON object, or a text or an index has the wrong
            type. Detectors would not judge such a text.
    """
    choices = _objects(completion.get("choices"), "choices")
    for message in _objects([choice.get("message") or {} for choice in choices], "messages"):
        _objects(message.get("tool_calls"), "tool calls")
        _check_type(message, "content", (str, list))
    for choice in choices:
        _check_type(choice, "text", str)
        _check_type(choice, "index", int)
    return choices


def index_of(item: Mapping[str, Any], position: int) -> int:
    """Return the index of a choice or of a tool call.

    Args:
        item: The choice or the tool call.
        position: The position of the item in its list. It is the index of an item without a valid index.
    """
    index = item.get("index")
    return index if isinstance(index, int) else position


def as_chunk_choice(choice: Mapping[str, Any], position: int) -> dict[str, Any]:
    """Return a choice of `choices_of` as a choice of a chunk, which has indexes and a delta instead of the message.

    Args:
        choice: The choice.
        position: The position of the choice in the list.
    """
    delta = choice.get("message") or {}
    for at, call in enumerate(delta.get("tool_calls") or ()):
        call["index"] = index_of(call, at)
    others = {name: value for name, value in choice.items() if name != "message"}
    return others | {"index": index_of(choice, position), "delta": delta}


def _check_type(members: Mapping[str, Any], name: str, types: type | tuple[type, ...]) -> None:
    if members.get(name) is not None and not isinstance(members[name], types):
        raise Unavailable(f"The model server sent a choice with an invalid {name}. Check the model server.")


def _objects(values: Any, name: str) -> list[dict[str, Any]]:
    values = values or []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise Unavailable(f"The model server sent {name} that are not JSON objects. Check the model server.")
    return values


def merge(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Add a streamed piece of a choice to the earlier pieces, as OpenAI's clients do.

    The function appends texts, but replaces names and ids. It merges lists of numbered items (tool calls) item by
    item, and joins other lists (token log probabilities). Model servers repeat the results of a content filter.
    Therefore the latest result of each category replaces the earlier result.
    """
    for name, value in piece.items():
        before = whole.get(name)
        if name == _FILTER_RESULTS and isinstance(value, dict):
            whole[name] = {**(before if isinstance(before, dict) else {}), **value}
        elif isinstance(value, dict) and isinstance(before, dict):
            merge(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            _merge_lists(before, value)
        elif isinstance(value, str) and isinstance(before, str) and name not in _NOT_APPENDED:
            whole[name] = before + value
        elif value is not None or name not in whole:
            whole[name] = value


def _merge_lists(whole: list[Any], piece: list[Any]) -> None:
    for item in piece:
        same = None
        if isinstance(item, dict) and "index" in item:
            number = item["index"]
            same = next((old for old in whole if isinstance(old, dict) and old.get("index") == number), None)
        if same is None:
            whole.append(item)
        else:
            merge(same, item)
