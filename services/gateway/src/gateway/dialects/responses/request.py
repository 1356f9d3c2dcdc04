"""Checks a Responses request and translates it into a chat for the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest

from gateway.dialects import json_fields, turn_settings
from gateway.dialects.json_fields import Fields
from gateway.dialects.openai.chat import PLATFORM_MEMBERS
from gateway.dialects.responses import items, moderation, service_options
from gateway.dialects.responses import tools as tool_kinds
from gateway.dialects.responses.conversation import Conversation, Item
from gateway.dialects.responses.item_cipher import ItemCipher
from gateway.dialects.responses.tools import Tools
from gateway.domain import CompactionOptions

READ = (
    *(
        "background",
        "context_management",
        "conversation",
        "include",
        "input",
        "instructions",
        "max_output_tokens",
        "max_tool_calls",
    ),
    *(
        "metadata",
        "model",
        "moderation",
        "parallel_tool_calls",
        "previous_response_id",
        "reasoning",
        "service_tier",
        "store",
    ),
    *("stream", "stream_options", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p"),
    "truncation",
    *service_options.READ,
)
"""Members of the API reference that the gateway reads."""

IGNORED = ("client_metadata",)
"""Members without an effect."""

_PARSED = ("index_name", "detectors", *READ)
_KNOWN = frozenset((*READ, *IGNORED, *PLATFORM_MEMBERS))

DROPPED_TOOLS = b"x-causeway-dropped-tools"
DROPPED_ITEMS = b"x-causeway-dropped-items"

ENCRYPTED_REASONING = "reasoning.encrypted_content"
"""A value of `INCLUDABLE`: the reasoning, encrypted for the next request."""

# The allowed values of ``include``.
INCLUDABLE = (
    *("file_search_call.results", "message.output_text.logprobs", ENCRYPTED_REASONING),
    *("message.input_image.image_url", "web_search_call.results", "web_search_call.action.sources"),
    *("computer_call_output.output.image_url", "code_interpreter_call.outputs"),
)

_SUMMARIES = ("auto", "concise", "detailed")
_FORMATS = ("text", "json_schema", "json_object")
_TIERS = ("auto", "default", "flex", "scale", "priority", "fast", "ultrafast")
_MAX_METADATA, _MAX_KEY_LENGTH, _MAX_VALUE_LENGTH = 16, 64, 512
_MAX_CALLS = 1000
_MAX_TOKENS = 10**9
_MAX_LOGPROBS = 20
_encode = msgspec.json.encode


@dataclass(slots=True)
class CheckedRequest:
    """A checked request, and its translation.

    Attributes:
        fields: The members of the request.
        model: The name of the requested model or assistant, or empty if the request names neither.
        body: The chat for the model, as the body of a request for OpenAI's chat completions.
        paths: The paths of the chat's messages in the request.
        item_count: The number of items, including the items that the request continues.
        input_items: The items of the input in their stored form, or None for each omitted item.
        tools: The tools.
        include: The values of ``include``.
        summarises: Whether the client receives the model's reasoning as a summary.
        logprobs: Whether the client receives the tokens' log probabilities.
        response_members: The members of the response that repeat the request.
        dropped: The types of the omitted items.
        obfuscates: Whether pieces of the answer have random padding, which hides their lengths.
        compaction: When the model summarises the conversation, or None if it does not.
        moderation: The detector whose results the response contains, or empty.
    """

    fields: Fields
    model: str
    body: bytes
    paths: list[str]
    item_count: int
    input_items: list[Item | None]
    tools: Tools
    include: frozenset[str]
    summarises: bool
    logprobs: bool
    response_members: dict[str, Any]
    dropped: list[str]
    obfuscates: bool
    compaction: CompactionOptions | None = None
    moderation: str = ""

    @property
    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return the headers of the response, which name the types of omitted tools and items."""
        dropped = ((DROPPED_TOOLS, self.tools.dropped), (DROPPED_ITEMS, self.dropped))
        return tuple((name, ", ".join(dict.fromkeys(kinds)).encode()) for name, kinds in dropped if kinds)


def read(body: bytes, before: Sequence[Item], cipher: ItemCipher, *, refuse_unknown: bool) -> CheckedRequest:
    """Check a request and translate it.

    Args:
        body: The body of the request. Stored items have replaced their references.
        before: The items that the request continues.
        cipher: Decrypts encrypted contents.
        refuse_unknown: Whether to refuse unsupported tools and their items. Otherwise, the gateway drops them.

    Raises:
        InvalidRequest: A member is invalid. The error names the member.
        Unavailable: The gateway has no keys yet to decrypt an item.
    """
    raw = json_fields.members(body)
    for name in raw:
        if name not in _KNOWN:
            raise InvalidRequest(f"{name[:100]} is not a parameter of this request.", field=name[:100])
    fields = json_fields.pick(raw, _PARSED)
    tools = Tools(refuse_unknown=refuse_unknown)
    tools.offer(fields.items("tools") or (), "tools")
    include = _include(fields)
    conversation = Conversation(drops_unsupported=not refuse_unknown, cipher=cipher, tools=tools)
    if instructions := fields.text("instructions"):
        conversation.add({"role": "system", "content": instructions}, "instructions")
    items.read(before, conversation, "")
    listed = items.listed(fields.get("input"))
    if not (listed or before):
        raise fields.invalid("input", "must be a string that is not empty, or a list of items")
    input_items = items.read(listed, conversation)
    tool_kinds.choose(fields, tools)
    fields = _configured(fields, conversation.configuration)
    summarises = _summarises_reasoning(fields)
    logprobs = "message.output_text.logprobs" in include or bool(fields.get("top_logprobs"))
    chat = {
        **{name: msgspec.Raw(bytes(raw[name])) for name in PLATFORM_MEMBERS if name in raw},
        "messages": conversation.messages,
        **_parameters(fields, logprobs=logprobs),
        **service_options.forwarded(fields),
        **tool_kinds.parameters(tools, fields),
    }
    if moderates := fields.get("moderation") is not None:
        chat["detectors"] = moderation.detectors(fields)
    if "stream" in raw:
        chat["stream"] = msgspec.Raw(bytes(raw["stream"]))
    if model := service_options.prompt_name(fields) or fields.text("model"):
        chat["model"] = model
    response_members = _response_members(fields, tools)
    obfuscates = fields.object("stream_options").flag("include_obfuscation")
    body = _encode(chat)
    compaction = _compaction(fields)
    if conversation.compacts:
        compaction = CompactionOptions(summary_only=True)
    return CheckedRequest(
        fields=fields,
        model=model,
        body=body,
        paths=conversation.paths,
        item_count=len(before) + len(listed),
        input_items=input_items,
        tools=tools,
        include=include,
        summarises=summarises,
        logprobs=logprobs,
        response_members=response_members,
        dropped=conversation.dropped,
        obfuscates=obfuscates,
        compaction=compaction,
        moderation=fields.object("moderation").text("model") if moderates else "",
    )


def _compaction(fields: Fields) -> CompactionOptions | None:
    """Return when the model summarises the conversation before it answers, or None for never."""
    options = None
    for at, entry in enumerate(fields.items("context_management") or ()):
        members = Fields(entry if isinstance(entry, dict) else {}, f"context_management[{at}]")
        if not members.one_of("type", ("compaction",)):
            raise members.invalid("type", "must be compaction")
        options = CompactionOptions(members.integer("compact_threshold", 1, _MAX_TOKENS))
    return options


def _configured(fields: Fields, update: Item) -> Fields:
    """Return the members of a request with the settings from items of the conversation, which have priority."""
    changed = {}
    for name, value in update.items():
        fields.object(name)
        changed[name] = {**(fields.get(name) or {}), **value}
    return Fields(dict(fields.members()) | changed) if changed else fields


def _include(fields: Fields) -> frozenset[str]:
    named = fields.texts("include")
    for name in named:
        if name not in INCLUDABLE:
            raise fields.invalid("include", f"has an unknown value: {name[:100]!r}")
    return frozenset(named)


def _summarises_reasoning(fields: Fields) -> bool:
    """Return whether the client receives the model's reasoning as a summary."""
    reasoning = fields.object("reasoning")
    summaries = [reasoning.one_of(name, _SUMMARIES) for name in ("summary", "generate_summary")]
    return any(summaries)


def _parameters(fields: Fields, *, logprobs: bool) -> dict[str, Any]:
    """Return the members of the chat that are parameters of the model."""
    text = fields.object("text")
    parameters = {
        "temperature": fields.number("temperature", 0, 2),
        "top_p": fields.number("top_p", 0, 1),
        "max_completion_tokens": fields.integer("max_output_tokens", 1, turn_settings.MAX_ANSWER_TOKENS),
        "reasoning_effort": fields.object("reasoning").one_of("effort", items.EFFORTS) or None,
        "verbosity": text.one_of("verbosity", ("low", "medium", "high")) or None,
        "response_format": _format(text.object("format")),
        "logprobs": logprobs or None,
        "top_logprobs": fields.integer("top_logprobs", 0, _MAX_LOGPROBS) if logprobs else None,
    }
    fields.integer("max_tool_calls", 1, _MAX_CALLS)
    fields.one_of("truncation", ("auto", "disabled"))
    fields.one_of("service_tier", _TIERS)
    return {name: value for name, value in parameters.items() if value is not None}


def _format(fields: Fields) -> dict[str, Any] | None:
    kind = fields.one_of("type", _FORMATS)
    if kind != "json_schema":
        return {"type": kind} if kind == "json_object" else None
    name, schema = fields.text("name"), fields.get("schema")
    if not name or not isinstance(schema, dict):
        raise fields.invalid("schema", "must be an object, and the format must have a name")
    known = {
        "name": name,
        "schema": schema,
        "strict": fields.flag("strict"),
        "description": fields.text("description"),
    }
    return {"type": kind, "json_schema": {name: value for name, value in known.items() if value}}


def metadata(fields: Fields) -> dict[str, str]:
    """Return the metadata of a response or a conversation: pairs of short strings.

    Raises:
        InvalidRequest: There are too many pairs, or a key or a value is too long, or a value is not a string.
    """
    pairs = dict(fields.members())
    if len(pairs) > _MAX_METADATA:
        raise InvalidRequest(f"metadata may have at most {_MAX_METADATA} pairs.", field="metadata")
    for key, value in pairs.items():
        if not isinstance(value, str) or len(value) > _MAX_VALUE_LENGTH or len(key) > _MAX_KEY_LENGTH:
            raise InvalidRequest(
                f"metadata: a key may have at most {_MAX_KEY_LENGTH} characters, and a value must be a string of "
                f"at most {_MAX_VALUE_LENGTH} characters.",
                field="metadata",
            )
    return pairs


def _response_members(fields: Fields, tools: Tools) -> dict[str, Any]:
    """Return the members of the request that the response repeats."""
    text = fields.object("text")
    form = text.object("format")
    kind = form.text("type") or "text"
    format_: dict[str, Any] = {"type": kind}
    if kind == "json_schema":
        format_ |= {"name": form.text("name"), "schema": form.get("schema"), "strict": form.flag("strict")}
        if description := form.text("description"):
            format_["description"] = description
    reasoning = fields.object("reasoning")
    summary = reasoning.text("summary") or reasoning.text("generate_summary")
    parallel = fields.get("parallel_tool_calls")
    return {
        "background": fields.flag("background"),
        "instructions": fields.text("instructions") or None,
        "max_output_tokens": fields.get("max_output_tokens"),
        "max_tool_calls": fields.get("max_tool_calls"),
        "metadata": metadata(fields.object("metadata")),
        "parallel_tool_calls": parallel is None or fields.flag("parallel_tool_calls"),
        "previous_response_id": fields.text("previous_response_id") or None,
        "reasoning": {"effort": reasoning.text("effort") or None, "summary": summary or None},
        "service_tier": "default",
        "temperature": fields.get("temperature"),
        "text": {"format": format_, **({"verbosity": verbosity} if (verbosity := text.text("verbosity")) else {})},
        "tool_choice": tools.choice,
        "tools": tools.response_tools,
        "top_logprobs": fields.get("top_logprobs") or 0,
        "top_p": fields.get("top_p"),
        "truncation": fields.text("truncation") or "disabled",
        **service_options.response_members(fields),
    }
