"""Input items of a Responses request as the messages of a chat."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields
from gateway.dialects.responses.offered_tools import function_name

Item = dict[str, Any]

ROLES = ("user", "assistant", "system", "developer")
CUSTOM_INPUT = "input"
"""The one argument of the function that replaces a custom tool."""

NOT_READ = ("reasoning", "file_search_call", "compaction")
"""Kinds of items that are accepted and tell the model nothing: what they led to is in the items behind them."""

HOSTED = (
    *("apply_patch_call", "apply_patch_call_output", "code_interpreter_call", "computer_call"),
    *("computer_call_output", "image_generation_call", "local_shell_call", "local_shell_call_output"),
    *("mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools", "program", "program_output"),
    *("shell_call", "shell_call_output", "tool_search_call", "tool_search_output", "web_search_call"),
)
"""Kinds of items of tools that are not offered here."""

_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_DETAILS = ("auto", "low", "high", "original")
_encode = msgspec.json.encode


@dataclass(slots=True)
class Conversation:
    """Messages of a chat that were made from items.

    Attributes:
        messages: The messages, as OpenAI's chat completions have them.
        paths: Of each message, the place of its first item in the request; empty: it is not the request's.
        drops: Items of tools that are not offered here are left out; else they are refused.
        dropped: Kinds of those that were left out.
    """

    messages: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    drops: bool = False
    dropped: list[str] = field(default_factory=list)

    def add(self, message: dict[str, Any], path: str) -> None:
        """Append a message."""
        self.messages.append(message)
        self.paths.append(path)

    def call(self, call_id: str, name: str, arguments: str, path: str) -> None:
        """Append a call of a tool to the answer that it belongs to: the message right before it, if that is one."""
        call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
        if self.messages and self.messages[-1]["role"] == "assistant":
            self.messages[-1].setdefault("tool_calls", []).append(call)
        else:
            self.add({"role": "assistant", "content": None, "tool_calls": [call]}, path)


def listed(said: Any, path: str = "input") -> list[Any]:
    """Return the items of an input: a list of them, or a text, which is one message of the user.

    Raises:
        InvalidRequest: It is neither.
    """
    if isinstance(said, str):
        return [{"type": "message", "role": "user", "content": said}]
    if not isinstance(said, list):
        raise InvalidRequest(f"{path} must be a string or a list of items.", field=path)
    return said


def read(items: Sequence[Any], into: Conversation, path: str = "input") -> list[Item | None]:
    """Add items to a conversation.

    Args:
        items: As the request has them, references replaced by what they name.
        into: Gets the messages.
        path: Where the items stand in the request; empty: elsewhere.

    Returns:
        The items as they are stored: with their kind, and without what the reference does not know; None for those
        that were left out.

    Raises:
        InvalidRequest: Names the item that is wrong.
    """
    return [_read(item, into, f"{path}[{at}]" if path else "") for at, item in enumerate(items)]


def _read(item: Any, into: Conversation, path: str) -> Item | None:
    if not isinstance(item, dict):
        raise InvalidRequest(f"{path} must be an object.", field=path)
    said = Fields(item, path)
    kind = said.text("type") or "message"
    if kind == "message":
        return _message(said, into, path)
    if kind == "function_call":
        call_id, name = _required(said, "call_id"), _required(said, "name")
        called = function_name(said.text("namespace"), name)
        into.call(call_id, called, arguments := said.text("arguments"), path)
        return {"type": kind, "call_id": call_id, "name": name, **_namespace(said), "arguments": arguments}
    if kind == "custom_tool_call":
        call_id, name = _required(said, "call_id"), _required(said, "name")
        text = said.text("input")
        called = function_name(said.text("namespace"), name)
        into.call(call_id, called, _encode({CUSTOM_INPUT: text}).decode(), path)
        return {"type": kind, "call_id": call_id, "name": name, **_namespace(said), "input": text}
    if kind in _OUTPUTS:
        call_id = _required(said, "call_id")
        content, output = _content(said, "output", path)
        into.add({"role": "tool", "tool_call_id": call_id, "content": content}, path)
        return {"type": kind, "call_id": call_id, "output": output}
    if kind == "reasoning":
        return _reasoning(said)
    if kind in NOT_READ:
        return item
    if kind in HOSTED and into.drops:
        into.dropped.append(kind)
        return None
    raise said.wrong("type", f"is not supported here: {kind[:100]!r}")


def _namespace(said: Fields) -> Item:
    return {"namespace": namespace} if (namespace := said.text("namespace")) else {}


def _message(said: Fields, into: Conversation, path: str) -> Item:
    role = said.text("role")
    if role not in ROLES:
        raise said.wrong("role", f"must be one of {', '.join(ROLES)}")
    content, shown = _content(said, "content", path)
    # Templates of models know one name for what comes before the user.
    into.add({"role": "system" if role == "developer" else role, "content": content}, path)
    if isinstance(shown, str):
        shown = [{"type": "output_text" if role == "assistant" else "input_text", "text": shown}]
    return {"type": "message", "role": role, "content": shown}


def _content(said: Fields, name: str, path: str) -> tuple[Any, Any]:
    """A text or a list of parts: as chats have it, and as it is stored.

    Raises:
        InvalidRequest: It is neither, or a part is not supported.
    """
    value = said.get(name)
    if isinstance(value, str):
        return value, value
    if not isinstance(value, list):
        raise said.wrong(name, "must be a string or a list of parts")
    if not value:
        return "", ""
    parts = [_part(part, f"{path}.{name}[{at}]") for at, part in enumerate(value)]
    return [chat for chat, _ in parts], [stored for _, stored in parts]


def _part(part: Any, path: str) -> tuple[Item, Item]:
    if not isinstance(part, dict):
        raise InvalidRequest(f"{path} must be an object.", field=path)
    said = Fields(part, path)
    kind = said.text("type")
    if kind in ("input_text", "output_text", "text"):
        text = said.text("text")
        return {"type": "text", "text": text}, {"type": "input_text" if kind == "text" else kind, "text": text}
    if kind == "refusal":
        refusal = said.text("refusal")
        return {"type": "text", "text": refusal}, {"type": kind, "refusal": refusal}
    if kind == "input_image":
        return _image(said)
    if kind == "input_file":
        return _file(said)
    raise said.wrong("type", f"is not supported here: {kind[:100]!r}")


def _image(said: Fields) -> tuple[Item, Item]:
    if said.text("file_id"):
        raise said.wrong("file_id", "is not supported: send the picture as image_url")
    url, detail = _required(said, "image_url"), said.one_of("detail", _DETAILS) or "auto"
    shown = {"url": url} if detail == "auto" else {"url": url, "detail": detail}
    stored = {"type": "input_image", "image_url": url, "detail": detail}
    return {"type": "image_url", "image_url": shown}, stored


def _file(said: Fields) -> tuple[Item, Item]:
    for name in ("file_id", "file_url"):
        if said.text(name):
            raise said.wrong(name, "is not supported: send the file as file_data")
    data, filename = _required(said, "file_data"), said.text("filename")
    file = {"file_data": data, **({"filename": filename} if filename else {})}
    return {"type": "file", "file": file}, {"type": "input_file", **file}


def _reasoning(said: Fields) -> Item:
    """What a model thought before: it goes to no model again, as with chat completions."""
    texts = {"summary": "summary_text", "content": "reasoning_text"}
    item: Item = {"type": "reasoning", "summary": []}
    for name, kind in texts.items():
        parts = [part for part in said.items(name) or () if isinstance(part, dict)]
        if parts or name == "summary":
            item[name] = [{"type": kind, "text": str(part.get("text", ""))} for part in parts]
    if encrypted := said.text("encrypted_content"):
        item["encrypted_content"] = encrypted
    return item


def _required(said: Fields, name: str) -> str:
    text = said.text(name)
    if not text:
        raise said.wrong(name, "must be a string that is not empty")
    return text
