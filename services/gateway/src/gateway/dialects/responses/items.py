"""Converts the input items of a Responses request to messages of a chat."""

from collections.abc import Sequence
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields
from gateway.dialects.responses.conversation import Conversation, Item
from gateway.dialects.responses.item_cipher import COMPACTION, REASONING
from gateway.dialects.responses.offered_tools import function_name
from gateway.dialects.responses.tools import CUSTOM_INPUT

ROLES = ("user", "assistant", "system", "developer")
FOUND_BEFORE = "These passages were found before, by a search for {}:"
"""The line that precedes the passages of an earlier search in the prompt."""

UNSUPPORTED = (
    *("apply_patch_call", "apply_patch_call_output", "code_interpreter_call", "computer_call"),
    *("computer_call_output", "image_generation_call", "local_shell_call", "local_shell_call_output"),
    *("mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools", "program", "program_output"),
    *("shell_call", "shell_call_output", "tool_search_call", "tool_search_output", "web_search_call"),
)
"""The types of the items of OpenAI's built-in tools that the gateway does not support."""

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The values of ``reasoning.effort``: how much a model may reason."""

_OUTPUTS = ("function_call_output", "custom_tool_call_output")
_DETAILS = ("auto", "low", "high", "original")
_encode = msgspec.json.encode


def listed(value: Any) -> list[Any]:
    """Return the items of an ``input``. A text is one message of the user, and None has no items.

    Raises:
        InvalidRequest: The value is neither a text nor a list.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": value}]
    if not isinstance(value, list):
        raise InvalidRequest("input must be a string or a list of items.", field="input")
    return value


def read(items: Sequence[Any], conversation: Conversation, path: str = "input") -> list[Item | None]:
    """Add items to a conversation.

    Args:
        items: The items of the request. Stored items have replaced their references.
        conversation: Receives the messages.
        path: The path of the items in the request, or empty if the items are not in the request.

    Returns:
        For each item, its stored form, or None if it is omitted. The stored form has the type, and only members of
        the API reference.

    Raises:
        InvalidRequest: An item is invalid. The error names the item.
        Unavailable: The gateway has no keys yet to decrypt an item.
    """
    stored: list[Item | None] = []
    for at, item in enumerate(items):
        if conversation.compacts:
            raise InvalidRequest(f"{path}[{at}] must not follow a compaction_trigger.", field=f"{path}[{at}]")
        item_path = f"{path}[{at}]" if path else ""
        stored.append(_read(item, conversation, item_path))
        if item_path and item.get("type") == COMPACTION:
            # Detectors do not judge the messages that the summary replaces, so the gateway does not store them.
            remaining = {
                *conversation.paths,
                *(f"{path}[{number}]" for number, earlier in enumerate(stored) if _is_setting(earlier)),
            }
            stored = [
                earlier if f"{path}[{number}]" in remaining else None for number, earlier in enumerate(stored)
            ]
    return stored


def _is_setting(item: Item | None) -> bool:
    return item is not None and item["type"] in ("additional_tools", "configuration_update")


def _read(item: Any, conversation: Conversation, path: str) -> Item | None:
    """Add an item to the conversation. Return its stored form, or None if it is omitted."""
    if not isinstance(item, dict):
        raise InvalidRequest(f"{path} must be an object.", field=path)
    fields = Fields(item, path)
    kind = fields.text("type") or "message"
    if kind == "message":
        return _message(fields, conversation, path)
    if kind == "function_call":
        call_id, name = _required(fields, "call_id"), _required(fields, "name")
        called = function_name(fields.text("namespace"), name)
        conversation.add_call(call_id, called, arguments := fields.text("arguments"), path)
        return {"type": kind, "call_id": call_id, "name": name, **_namespace(fields), "arguments": arguments}
    if kind == "custom_tool_call":
        call_id, name = _required(fields, "call_id"), _required(fields, "name")
        text = fields.text("input")
        called = function_name(fields.text("namespace"), name)
        conversation.add_call(call_id, called, _encode({CUSTOM_INPUT: text}).decode(), path)
        return {"type": kind, "call_id": call_id, "name": name, **_namespace(fields), "input": text}
    if kind in _OUTPUTS:
        call_id = _required(fields, "call_id")
        content, output = _content(fields, "output", path)
        conversation.add({"role": "tool", "tool_call_id": call_id, "content": content}, path)
        return {"type": kind, "call_id": call_id, "output": output}
    if kind == "reasoning":
        return _reasoning(fields, conversation)
    if kind == "file_search_call":
        return _file_search(fields, conversation, path)
    if kind == "additional_tools":
        return _additional_tools(fields, conversation)
    if kind == "configuration_update":
        return _configuration(fields, conversation)
    if kind == COMPACTION:
        return _compaction(fields, conversation, path)
    if kind == "compaction_trigger":
        conversation.compacts = True
        return None
    if kind in UNSUPPORTED and conversation.drops_unsupported:
        conversation.dropped.append(kind)
        return None
    raise fields.invalid("type", f"is not supported: {kind[:100]!r}")


def _namespace(members: Fields) -> Item:
    return {"namespace": namespace} if (namespace := members.text("namespace")) else {}


def _message(members: Fields, conversation: Conversation, path: str) -> Item:
    role = members.text("role")
    if role not in ROLES:
        raise members.invalid("role", f"must be one of {', '.join(ROLES)}")
    content, stored = _content(members, "content", path)
    # The chat templates of models know only one role for instructions.
    conversation.add({"role": "system" if role == "developer" else role, "content": content}, path)
    if isinstance(stored, str):
        stored = [{"type": "output_text" if role == "assistant" else "input_text", "text": stored}]
    return {"type": "message", "role": role, "content": stored}


def _content(members: Fields, name: str, path: str) -> tuple[Any, Any]:
    """Return a text or a list of parts in two formats: the format of chats, and the stored form.

    Raises:
        InvalidRequest: The value is neither a text nor a list, or a part is not supported.
    """
    value = members.get(name)
    if isinstance(value, str):
        return value, value
    if not isinstance(value, list):
        raise members.invalid(name, "must be a string or a list of parts")
    if not value:
        return "", ""
    parts = [_part(part, f"{path}.{name}[{at}]") for at, part in enumerate(value)]
    return [chat for chat, _ in parts], [stored for _, stored in parts]


def _part(part: Any, path: str) -> tuple[Item, Item]:
    if not isinstance(part, dict):
        raise InvalidRequest(f"{path} must be an object.", field=path)
    members = Fields(part, path)
    kind = members.text("type")
    if kind in ("input_text", "output_text", "text"):
        text = members.text("text")
        return {"type": "text", "text": text}, {"type": "input_text" if kind == "text" else kind, "text": text}
    if kind == "refusal":
        refusal = members.text("refusal")
        return {"type": "text", "text": refusal}, {"type": kind, "refusal": refusal}
    if kind == "input_image":
        return _image(members)
    if kind == "input_file":
        return _file(members)
    raise members.invalid("type", f"is not supported: {kind[:100]!r}")


def _image(members: Fields) -> tuple[Item, Item]:
    if members.text("file_id"):
        raise members.invalid("file_id", "is not supported: send the picture as image_url")
    url, detail = _required(members, "image_url"), members.one_of("detail", _DETAILS) or "auto"
    chat_image = {"url": url} if detail == "auto" else {"url": url, "detail": detail}
    stored = {"type": "input_image", "image_url": url, "detail": detail}
    return {"type": "image_url", "image_url": chat_image}, stored


def _file(members: Fields) -> tuple[Item, Item]:
    for name in ("file_id", "file_url"):
        if members.text(name):
            raise members.invalid(name, "is not supported: send the file as file_data")
    data, filename = _required(members, "file_data"), members.text("filename")
    file = {"file_data": data, **({"filename": filename} if filename else {})}
    return {"type": "file", "file": file}, {"type": "input_file", **file}


def _reasoning(members: Fields, conversation: Conversation) -> Item:
    """Add earlier reasoning of a model. It belongs to the answer that follows."""
    texts = {"summary": "summary_text", "content": "reasoning_text"}
    item: Item = {"type": "reasoning", "summary": []}
    reasoning = "" if conversation.cipher is None else conversation.cipher.decrypt(REASONING, members)
    for name, kind in texts.items():
        parts = [part for part in members.items(name) or () if isinstance(part, dict)]
        if parts or name == "summary":
            item[name] = [{"type": kind, "text": str(part.get("text", ""))} for part in parts]
    parts = item.get("content") or item["summary"]
    if reasoning := reasoning or "\n".join(part["text"] for part in parts):
        conversation.add_reasoning(reasoning)
    if encrypted := members.text("encrypted_content"):
        item["encrypted_content"] = encrypted
    return item


def _compaction(members: Fields, conversation: Conversation, path: str) -> Item:
    """Add a summary, which replaces earlier messages; see `Conversation.compact`."""
    item = {"type": COMPACTION, "encrypted_content": _required(members, "encrypted_content")}
    conversation.compact(members, path)
    return item


def _file_search(members: Fields, conversation: Conversation, path: str) -> Item:
    """Add an earlier search. The model receives the passages of the item, except for a stored item."""
    queries = [query for query in members.items("queries") or () if isinstance(query, str)]
    item: Item = {"type": "file_search_call", "queries": queries, "status": "completed", "results": None}
    results = []
    for at, result in enumerate(members.items("results") or ()):
        fields = Fields(result if isinstance(result, dict) else {}, f"{members.path('results')}[{at}]")
        results.append({name: fields.text(name) for name in ("file_id", "filename", "text")})
    # The user may have lost access to the passages of a stored search.
    if results and path:
        heading = FOUND_BEFORE.format(", ".join(map(repr, queries)) or "nothing")
        passages = "\n".join(f"{result['filename']}: {result['text']}" for result in results)
        conversation.add_replaceable(f"{heading}\n{passages}", path)
        item["results"] = results
    return item


def _additional_tools(members: Fields, conversation: Conversation) -> Item:
    """Add tools. The model receives them for the whole conversation."""
    members.one_of("role", ("developer",))
    listed = members.items("tools") or []
    tools = conversation.tools.offer(listed, members.path("tools")) if conversation.tools is not None else listed
    return {"type": "additional_tools", "role": "developer", "tools": tools}


def _configuration(members: Fields, conversation: Conversation) -> Item:
    """Add settings of the answer. They apply until later settings replace them."""
    item: Item = {"type": "configuration_update"}
    if effort := members.object("reasoning").one_of("effort", EFFORTS):
        item["reasoning"] = {"effort": effort}
    form = members.object("text").object("format")
    if kind := form.one_of("type", ("text", "json_schema")):
        schema = {name: form.get(name) for name in ("name", "description", "schema", "strict") if form.get(name)}
        item["text"] = {"format": {"type": kind, **(schema if kind == "json_schema" else {})}}
    conversation.configuration |= {name: value for name, value in item.items() if name != "type"}
    return item


def _required(members: Fields, name: str) -> str:
    text = members.text(name)
    if not text:
        raise members.invalid(name, "must be a string that is not empty")
    return text
