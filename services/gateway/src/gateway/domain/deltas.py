"""What models send beside their text: tool calls, reasoning, refusals, annotations.

Models send them as pieces of OpenAI's JSON objects. OpenAI's own dialects pass the pieces on as they came; `merge`
puts pieces together as OpenAI's clients do. Everybody else reads them as `Part`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from servicekit.errors import Unavailable

_encode = msgspec.json.encode
_object = msgspec.json.Decoder(dict[str, Any])
_COME_ONCE = frozenset(("id", "type", "role", "name"))
_REPEATED = "content_filter_results"
_REASONING = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call, or the next piece of one.

    Attributes:
        index: Which call of the choice; pieces of one call have the same number. None: the legacy
            ``function_call``, of which a choice has one at most.
        id: Its id; empty in later pieces.
        name: The function's name; empty in later pieces.
        arguments: The function's arguments, JSON text; of a piece its share of that text.
        raw_json: The JSON value as the model server sent it; other kinds of tools and vendors have further members.
    """

    index: int | None
    id: str
    name: str
    arguments: str
    raw_json: bytes


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thinks before it answers, or the next piece of it."""

    text: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model's words for not answering, or the next piece of them."""

    text: str


@dataclass(frozen=True, slots=True)
class Annotation:
    """What the model server says about a stretch of the text.

    Attributes:
        kind: ``url_citation``, or another name that the model server has.
        start: First code point of the stretch; None where none is named.
        end: First code point behind it; likewise.
        url: What is cited; empty where that is no address.
        title: Its title.
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
    """Return what the members of a delta, or of a whole message, say beside the text.

    Source: the OpenAI API reference, the chat completion object and its chunk. ``reasoning_content`` and
    ``reasoning`` are DeepSeek's and vLLM's.

    >>> parts_of({"refusal": "I cannot help with that."})
    (Refusal(text='I cannot help with that.'),)

    Args:
        members: JSON members; those of other kinds and shapes are no parts.
    """
    return tuple(_parts(members))


def _parts(members: Mapping[str, Any]) -> Iterator[Part]:
    if thought := next((text for name in _REASONING if (text := _text(members, name))), ""):
        yield Reasoning(thought)
    if refusal := _text(members, "refusal"):
        yield Refusal(refusal)
    if (calls := members.get("tool_calls")) is not None:
        for at, call in enumerate(calls if isinstance(calls, list) else [calls]):
            named = _members(call)
            index = named.get("index")
            yield _tool_call(index if isinstance(index, int) else at, call, _members(named.get("function")))
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
    said = _members(_members(annotation).get(kind))
    start, end = (at if isinstance(at := said.get(name), int) else None for name in ("start_index", "end_index"))
    return Annotation(kind, start, end, _text(said, "url"), _text(said, "title"), _encode(annotation))


def _members(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(members: Mapping[str, Any], name: str) -> str:
    return value if isinstance(value := members.get(name), str) else ""


def tool_calls_json(calls: Iterable[ToolCall]) -> bytes:
    """Return the members of a delta that hold these tool calls and nothing else."""
    listed: list[msgspec.Raw] = []
    members: dict[str, Any] = {}
    for call in calls:
        raw = msgspec.Raw(call.raw_json)
        if call.index is None:
            members["function_call"] = raw
        else:
            listed.append(raw)
    return _encode({"tool_calls": listed, **members} if listed else members)


def drop_numbers(message: Mapping[str, Any]) -> None:
    """Remove the numbers of tool calls, which put streamed pieces together and are no members of a whole call."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        if isinstance(call, dict):
            call.pop("index", None)


def members_of(raw_json: bytes) -> dict[str, Any]:
    """The members of an object that a model server sent.

    Raises:
        Unavailable: It is none.
    """
    try:
        members: dict[str, Any] = _object.decode(raw_json)
    except (ValueError, RecursionError) as error:
        raise Unavailable("The model server sent something that cannot be read.") from error
    return members


def merge(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Adds a streamed piece of a choice to what came before it, as OpenAI's clients do.

    Text grows (but for names and ids, which come once), lists of numbered things (tool calls) grow item by item,
    other lists (token log probabilities) are joined; a filter's results come again and again, the latest of each
    category holds.
    """
    for name, value in piece.items():
        before = whole.get(name)
        if name == _REPEATED and isinstance(value, dict):
            whole[name] = {**(before if isinstance(before, dict) else {}), **value}
        elif isinstance(value, dict) and isinstance(before, dict):
            merge(before, value)
        elif isinstance(value, list) and isinstance(before, list):
            _merge_lists(before, value)
        elif isinstance(value, str) and isinstance(before, str) and name not in _COME_ONCE:
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
