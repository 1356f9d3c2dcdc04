"""The stored form of a request: its items and members, as the detectors changed them."""

from collections.abc import Sequence
from typing import Any

import msgspec
from servicekit import keys

from gateway.dialects.responses.item_cipher import COMPACTION
from gateway.dialects.responses.offered_tools import function_name
from gateway.dialects.responses.tools import CUSTOM_INPUT
from gateway.domain import Message, Turn
from gateway.domain.responses import Item

_object = msgspec.json.Decoder(dict[str, Any])
_WITHHELD = "withheld"


def redacted_input(
    items: Sequence[Item | None], paths: list[str], original: Turn, checked_turn: Turn | None
) -> tuple[Item, ...]:
    """Return the items of an input as the detectors changed them.

    Args:
        items: The items of the request, or None for each omitted item.
        paths: The paths of the chat's messages in the request.
        original: The turn before the checks of the detectors.
        checked_turn: The turn after these checks, or None if a detector blocked the turn. In this case, no item
            remains.
    """
    if checked_turn is None:
        return ()
    stored: list[Item | None] = list(items)
    before, after = _messages(original), _messages(checked_turn)
    positions = original.original.places or range(len(before))
    count = len(original.history)
    for at, (old, new) in enumerate(zip(before[:count], after[:count], strict=True)):
        if old != new:
            _replace(stored, paths, positions[at], new)
    if original.question != checked_turn.question:
        # The question may consist of several messages. The detectors return it as one message.
        first, *others = list(positions)[count:] or [len(before) - 1]
        _replace(stored, paths, first, after[-1])
        for position in others:
            if (number := _item_position(paths, position)) is not None:
                stored[number] = None
    if original.parameters_json != checked_turn.parameters_json:
        _replace_settings(stored, _object.decode(checked_turn.parameters_json))
    return tuple(item for item in stored if item is not None)


def redacted_members(response_members: dict[str, Any], original: Turn, checked_turn: Turn | None) -> dict[str, Any]:
    """Return new values for members of a response that repeat the request, as the detectors changed them.

    The members that the result does not contain keep their values.

    Args:
        response_members: The members before the detectors changed them.
        original: The turn before the checks of the detectors.
        checked_turn: The turn after these checks, or None if a detector blocked the turn.
    """
    if checked_turn is None:
        return {"instructions": None, "tools": [], "tool_choice": "auto"}
    members: dict[str, Any] = {}
    if response_members.get("instructions"):
        instructions = next((message.text for message in checked_turn.history if message.role == "system"), None)
        members["instructions"] = instructions
    if original.parameters_json != checked_turn.parameters_json:
        parameters = _object.decode(checked_turn.parameters_json)
        tools = [tool["function"] for tool in parameters.get("tools", ())]
        by_name = {tool.get("name"): tool for tool in tools}
        members["tools"] = [_tool(tool, by_name) for tool in response_members["tools"]]
        if isinstance(form := parameters.get("response_format"), dict) and "json_schema" in form:
            format_ = {"type": "json_schema", **form["json_schema"]}
            members["text"] = response_members["text"] | {"format": format_}
    return members


def _tool(offered: Item, functions: dict[str, Item], namespace: str = "") -> Item:
    """Return a tool as the model received it.

    Args:
        offered: The tool in the format of the response.
        functions: The functions that the model received, by name.
        namespace: The name of the tool's namespace, or empty if the tool has no namespace.
    """
    if offered["type"] == "namespace":
        tools = [_tool(tool, functions, offered["name"]) for tool in offered["tools"]]
        # The names of the functions contain the name of the namespace. The description of the first function
        # contains the description of the namespace.
        name = _WITHHELD if all(tool["name"] == _WITHHELD for tool in tools) else offered["name"]
        return {"type": "namespace", "name": name, "description": "", "tools": tools}
    function = functions.get(function_name(namespace, offered.get("name", "")))
    if function is None:
        # The platform runs file search itself. For any other tool, a detector has changed the name.
        is_file_search = offered["type"] == "file_search"
        return offered if is_file_search else {"type": offered["type"], "name": _WITHHELD} | _NO_SCHEMA
    if offered["type"] == "custom":
        return {"type": "custom", "name": offered["name"], "description": function.get("description", "")}
    return offered | {name: value for name, value in function.items() if name in offered and name != "name"}


_NO_SCHEMA: Item = {"parameters": None, "strict": None}


def _messages(turn: Turn) -> list[Message]:
    return [*turn.history, *([Message("user", turn.question)] if turn.question else [])]


def _item_position(paths: list[str], position: int) -> int | None:
    """Return the position of the input item that a message was built from, or None if it has no such item.

    Args:
        paths: The paths of the chat's messages in the request.
        position: The position of the message in the chat.
    """
    path = paths[position] if position < len(paths) else ""
    return int(path.rpartition("[")[2][:-1]) if path.endswith("]") else None


def _replace(stored: list[Item | None], paths: list[str], position: int, new: Message) -> None:
    number = _item_position(paths, position)
    if number is None:
        return
    item = stored[number]
    if item is None:
        return
    if item["type"] == "message":
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        stored[number] = {**item, "content": [{"type": kind, "text": new.text}] if new.text else item["content"]}
        if not new.text and new.content_json:
            stored[number] = {**item, "content": [{"type": kind, "text": new.joined_text}]}
    elif "output" in item:
        stored[number] = {**item, "output": new.joined_text}
    elif item["type"] == COMPACTION:
        # The encrypted content still has the text that the detectors removed.
        parts = [{"type": "input_text", "text": new.text}]
        stored[number] = {"type": "message", "role": "developer", "content": parts}
    elif item["type"] == "file_search_call":
        stored[number] = {**item, "results": None}
    extra = _object.decode(new.extra_json) if new.extra_json else {}
    _replace_reasoning(stored, number, str(extra.get(keys.EARLIER_REASONING, "")))
    for call in extra.get("tool_calls", ()):
        _replace_call(stored, number, call)


def _replace_reasoning(stored: list[Item | None], end: int, text: str) -> None:
    """Replace the model's reasoning.

    Args:
        stored: The items.
        end: The position of an item. The function replaces the reasoning items directly before it.
        text: The new text of the reasoning, or empty to remove the text.
    """
    content = [{"type": "reasoning_text", "text": text}] if text else []
    for number in range(end - 1, -1, -1):
        item = stored[number]
        if item is None or item["type"] != "reasoning":
            return
        # The encrypted content still has the text that the detectors removed.
        stored[number] = {"type": "reasoning", "summary": [], **({"content": content} if content else {})}
        content = []


def _replace_settings(stored: list[Item | None], parameters: dict[str, Any]) -> None:
    """Replace the tools and the format of the answer with those that the model got."""
    by_name = {tool["function"].get("name"): tool["function"] for tool in parameters.get("tools", ())}
    for number, item in enumerate(stored):
        if item is None:
            continue
        if item["type"] == "additional_tools":
            stored[number] = {**item, "tools": [_tool(tool, by_name) for tool in item["tools"]]}
        elif item["type"] == "configuration_update" and "text" in item:
            form = parameters.get("response_format") or {}
            schema = form.get("json_schema") or {}
            stored[number] = {**item, "text": {"format": {"type": form.get("type", "text"), **schema}}}


def _replace_call(stored: list[Item | None], begin: int, call: Item) -> None:
    arguments = call.get("function", {}).get("arguments", "")
    for number, item in enumerate(stored[begin:], begin):
        if item is None or item.get("call_id") != call.get("id"):
            continue
        if item["type"] == "function_call":
            stored[number] = {**item, "arguments": arguments}
        elif item["type"] == "custom_tool_call":
            values = _object.decode(arguments) if arguments.startswith("{") else {}
            stored[number] = {**item, "input": str(values.get(CUSTOM_INPUT, ""))}
