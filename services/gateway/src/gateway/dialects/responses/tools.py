"""The tools of a Responses request: functions, custom tools, namespaces and file search."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from servicekit import keys
from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields
from gateway.dialects.ragengine.documents import conditions
from gateway.dialects.responses.offered_tools import OfferedTool, function_name
from gateway.domain.text_documents import Equals

CUSTOM_INPUT = "input"
"""The name of the only argument of the function that replaces a custom tool."""

_KIND = re.compile(r"[a-z0-9_.-]{1,64}")
_MAX_RESULTS = 50
_MODES = ("none", "auto", "required")
FILE_SEARCH = "file_search"


@dataclass(frozen=True, slots=True)
class FileSearch:
    """The search of the tool ``file_search``.

    Attributes:
        indexes: Names of the indexes, which the request calls vector stores.
        path: The path of these names in the request.
        top: The maximum number of passages, or None for as many passages as fit into the prompt.
        minimum_score: The minimum score of a passage, or None for no minimum.
        metadata: The conditions on a document's metadata. A document must meet all conditions.
        dense_weight: The weight of the dense score in a hybrid search, 0 to 1, or None for the default.
    """

    indexes: tuple[str, ...]
    path: str
    top: int | None = None
    minimum_score: float | None = None
    metadata: tuple[Equals, ...] = ()
    dense_weight: float | None = None


@dataclass(slots=True)
class Tools:
    """The tools of one request.

    Attributes:
        chat_tools: The tools for the model, as functions of chat completions.
        response_tools: All offered tools in the format of the response.
        functions: Custom tools and tools in namespaces, by the names of their functions.
        search: The file search, or None if the request has no file search.
        dropped: The types of the unsupported tools.
        choice: ``tool_choice`` of the response.
        chat_choice: ``tool_choice`` for the model, or None if the model receives no ``tool_choice``.
        first_choice: The tool that the model must call first if the model itself searches. ``required`` means any
            tool. Empty means that the model may answer without a call.
        refuse_unknown: Whether to refuse unsupported tools. Otherwise, the gateway drops them.
    """

    chat_tools: list[dict[str, Any]] = field(default_factory=list)
    response_tools: list[dict[str, Any]] = field(default_factory=list)
    functions: dict[str, OfferedTool] = field(default_factory=dict)
    search: FileSearch | None = None
    dropped: list[str] = field(default_factory=list)
    choice: Any = "auto"
    chat_choice: Any = None
    first_choice: str = ""
    refuse_unknown: bool = False

    def offer(self, listed: Sequence[Any], path: str) -> list[dict[str, Any]]:
        """Offer tools, and return them in the format of the response.

        Args:
            listed: The tools of the request.
            path: The path of the tools in the request.

        Raises:
            InvalidRequest: A tool is invalid or not supported.
        """
        before = len(self.response_tools)
        for tool in _objects(listed, path):
            _add_tool(tool, self)
        return self.response_tools[before:]


def _objects(listed: Sequence[Any], path: str) -> list[Fields]:
    """Return the members of each object of a list.

    Args:
        listed: The list.
        path: The path of the list in the request.

    Raises:
        InvalidRequest: An item is not an object.
    """
    for at, item in enumerate(listed):
        if not isinstance(item, dict):
            raise InvalidRequest(f"{path}[{at}] must be an object.", field=f"{path}[{at}]")
    return [Fields(item, f"{path}[{at}]") for at, item in enumerate(listed)]


def _add_tool(tool: Fields, tools: Tools) -> None:
    kind = tool.text("type")
    if kind == "function":
        tools.response_tools.append(_function(tool, tools))
    elif kind == "custom":
        tools.response_tools.append(_custom(tool, tools))
    elif kind == "namespace":
        tools.response_tools.append(_namespace(tool, tools))
    elif kind == FILE_SEARCH:
        if tools.search is not None:
            raise tool.invalid("type", f"must not be {FILE_SEARCH}: an earlier tool has this type")
        tools.search = _file_search(tool)
        known = ("type", "vector_store_ids", "max_num_results", "filters", "ranking_options")
        tools.response_tools.append({name: value for name, value in tool.members() if name in known})
    elif tools.refuse_unknown or not kind:
        raise tool.invalid("type", f"is not supported: {kind[:100]!r}")
    else:
        tools.dropped.append(kind if _KIND.fullmatch(kind) else "unknown")


def _function(tool: Fields, tools: Tools, namespace: str = "", preamble: str = "") -> dict[str, Any]:
    """Offer a function, and return it in the format of the response.

    Args:
        tool: The function of the request.
        tools: Receives the function.
        namespace: The name of the namespace, or empty if the function has no namespace.
        preamble: The text that precedes the function's description for the model.
    """
    function: dict[str, Any] = {"name": _name(tool)}
    if description := tool.text("description"):
        function["description"] = description
    if tool.get("parameters") is not None:
        tool.object("parameters")
        function["parameters"] = tool.get("parameters")
    if tool.get("strict") is not None:
        function["strict"] = tool.flag("strict")
    _offer(function, OfferedTool(function["name"], namespace), tools, preamble)
    return {"type": "function", "parameters": None, "strict": None, **function}


def _namespace(tool: Fields, tools: Tools) -> dict[str, Any]:
    """Offer the tools of a namespace, each as a function whose name begins with the name of the namespace.

    The description of the first function begins with the description of the namespace.
    """
    name, description = _name(tool), tool.text("description")
    preamble, inner_tools = description, []
    for inner_tool in _objects(tool.items("tools") or (), tool.path("tools")):
        kind = inner_tool.one_of("type", ("function", "custom"))
        if not kind:
            raise inner_tool.invalid("type", "must be function or custom")
        inner_tools.append((_function if kind == "function" else _custom)(inner_tool, tools, name, preamble))
        preamble = ""
    return {"type": "namespace", "name": name, "description": description, "tools": inner_tools}


def _offer(function: dict[str, Any], tool: OfferedTool, tools: Tools, preamble: str) -> None:
    """Offer a tool to the model in the form of this function."""
    called = function_name(tool.namespace, tool.name)
    if called != tool.name or tool.is_custom:
        tools.functions[called] = tool
    if preamble:
        function = function | {"description": f"{preamble}\n{function.get('description', '')}".strip()}
    # A later tool replaces an earlier tool of the same name.
    tools.chat_tools = [earlier for earlier in tools.chat_tools if earlier["function"]["name"] != called]
    tools.chat_tools.append({"type": "function", "function": function | {"name": called}})


def _custom(tool: Fields, tools: Tools, namespace: str = "", preamble: str = "") -> dict[str, Any]:
    """Offer a custom tool as a function with one string argument; see `_function`."""
    name, description, form = _name(tool), tool.text("description"), tool.object("format")
    response_tool: dict[str, Any] = {"type": "custom", "name": name}
    if description:
        response_tool["description"] = description
    if kind := form.one_of("type", ("text", "grammar")):
        response_tool["format"] = {"type": kind}
    if kind == "grammar":
        syntax, definition = form.one_of("syntax", ("lark", "regex")), form.text("definition")
        if not syntax or not definition:
            raise form.invalid("definition", "must be present, and syntax must be lark or regex")
        response_tool["format"] |= {"syntax": syntax, "definition": definition}
        # Model servers accept no grammar with the functions of a chat, so the description contains it.
        description += f"\nThe input must follow this {syntax} grammar:\n{definition}"
    parameters = {
        "type": "object",
        "properties": {CUSTOM_INPUT: {"type": "string"}},
        "required": [CUSTOM_INPUT],
        "additionalProperties": False,
    }
    function = {"name": name, "description": description.strip(), "parameters": parameters}
    _offer(function, OfferedTool(name, namespace, is_custom=True), tools, preamble)
    return response_tool


def _file_search(tool: Fields) -> FileSearch:
    path = tool.path("vector_store_ids")
    names = tool.texts("vector_store_ids")
    if not names:
        raise tool.invalid("vector_store_ids", "must name at least one index")
    ranking = tool.object("ranking_options")
    weights = ranking.object("hybrid_search")
    dense, sparse = weights.number("embedding_weight", 0, 1e6), weights.number("text_weight", 0, 1e6)
    weight = None if not (dense or sparse) else (dense or 0) / ((dense or 0) + (sparse or 0))
    return FileSearch(
        tuple(keys.index_name(name, path) for name in names),
        path,
        tool.integer("max_num_results", 1, _MAX_RESULTS),
        ranking.number("score_threshold", 0, 1) or None,
        _filters(tool.object("filters")),
        weight,
    )


def _filters(filter_: Fields) -> tuple[Equals, ...]:
    """Return the conditions of a filter on the metadata: an ``eq`` filter, or an ``and`` of several filters.

    Raises:
        InvalidRequest: A filter is invalid or of another type.
    """
    equals: list[Equals] = []
    pending = [filter_]  # a client chooses the depth of nested filters, so this function is not recursive
    while pending:
        fields = pending.pop()
        kind = fields.text("type")
        if kind == "and":
            pending += reversed(_objects(fields.items("filters") or (), fields.path("filters")))
        elif kind == "eq":
            key, value = fields.text("key"), fields.get("value")
            if not key or not isinstance(value, str | int | float | bool):
                raise fields.invalid("value", "must be a string, a number or a boolean. The filter must have a key")
            equals += conditions({key: value}, fields.path("key"))
        elif kind:
            raise fields.invalid("type", "must be eq or and: no other filter is supported")
    return tuple(equals)


def choose(fields: Fields, tools: Tools) -> None:
    """Read ``tool_choice``, and record it in the tools.

    Raises:
        InvalidRequest: The choice is invalid, or requires a tool that the request does not offer.
    """
    choice = fields.get("tool_choice")
    if choice is None:
        return
    if isinstance(choice, str):
        tools.choice = fields.one_of("tool_choice", _MODES) or "auto"
        if choice == "required" and not tools.response_tools:
            raise fields.invalid("tool_choice", "requires a tool, but the gateway supports no tool of the request")
        tools.chat_choice = choice if tools.chat_tools and choice != "auto" else None
        tools.first_choice = choice if choice == "required" else ""
        if choice == "none":
            tools.search = None
        return
    chosen = fields.object("tool_choice")
    kind = chosen.text("type")
    if kind == "allowed_tools":
        _allow(chosen, tools)
    elif kind in ("function", "custom"):
        name, namespace = _name(chosen), chosen.text("namespace")
        called = function_name(namespace, name)
        _check_offered(chosen, tools, called)
        tools.choice = {"type": kind, "name": name}
        tools.chat_choice = {"type": "function", "function": {"name": called}}
    elif kind == FILE_SEARCH and tools.search is not None:
        # If the platform searches before the model answers, the model must not call other tools.
        tools.first_choice = FILE_SEARCH
        tools.choice, tools.chat_choice = {"type": kind}, "none" if tools.chat_tools else None
    elif kind == FILE_SEARCH:
        raise chosen.invalid("type", f"requires the tool {FILE_SEARCH}, which the request does not offer")
    else:
        raise chosen.invalid("type", f"is not supported: {kind[:100]!r}")


def _allow(chosen: Fields, tools: Tools) -> None:
    """Remove the tools that a choice of the type ``allowed_tools`` does not name.

    Raises:
        InvalidRequest: The choice is invalid, or names a tool that the request does not offer.
    """
    mode = chosen.one_of("mode", ("auto", "required")) or "auto"
    listed = chosen.items("tools") or []
    names = set()
    for fields in _objects(listed, chosen.path("tools")):
        if fields.text("type") in ("function", "custom"):
            called = function_name(fields.text("namespace"), fields.text("name"))
            _check_offered(fields, tools, called)
            names.add(called)
        elif fields.text("type") == "namespace":
            names |= {called for called, tool in tools.functions.items() if tool.namespace == fields.text("name")}
    if all(item.get("type") != FILE_SEARCH for item in listed):
        tools.search = None
    tools.chat_tools = [tool for tool in tools.chat_tools if tool["function"]["name"] in names]
    tools.choice = {"type": "allowed_tools", "mode": mode, "tools": listed}
    tools.chat_choice = "required" if mode == "required" and tools.chat_tools else None
    tools.first_choice = "required" if mode == "required" else ""


def _check_offered(chosen: Fields, tools: Tools, name: str) -> None:
    """Check that the model receives a function of this name.

    Raises:
        InvalidRequest: The request does not offer the function.
    """
    if all(tool["function"]["name"] != name for tool in tools.chat_tools):
        raise chosen.invalid("name", f"names no tool of the request: {name[:100]!r}")


def _name(fields: Fields) -> str:
    name = fields.text("name")
    if not name:
        raise fields.invalid("name", "must be a string that is not empty")
    return name


def parameters(tools: Tools, fields: Fields) -> dict[str, Any]:
    """Return the members of a chat request that offer the tools to the model. Without tools, return no members."""
    if not tools.chat_tools:
        return {}
    members: dict[str, Any] = {"tools": tools.chat_tools}
    if tools.chat_choice is not None:
        members["tool_choice"] = tools.chat_choice
    if fields.get("parallel_tool_calls") is not None:
        members["parallel_tool_calls"] = fields.flag("parallel_tool_calls")
    return members
