"""The model gets functions and custom tools. The platform runs file search. Other tools are dropped or refused."""

from typing import Any

import pytest
from gateway.dialects.json_fields import Fields
from gateway.dialects.responses import tools
from gateway.dialects.responses.offered_tools import OfferedTool, function_name
from gateway.dialects.responses.tools import Tools
from gateway.domain.text_documents import Equals
from servicekit.errors import InvalidRequest

FIND = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": True}
RUN = {"type": "custom", "name": "run", "format": {"type": "grammar", "syntax": "regex", "definition": "[a-z]+"}}
SEARCH = {"type": "file_search", "vector_store_ids": ["docs"]}


def read(*listed: Any, refuse_unknown: bool = False, **more: Any) -> Tools:
    read = tools.Tools(refuse_unknown=refuse_unknown)
    read.offer(listed, "tools")
    tools.choose(Fields({"tools": list(listed), **more}), read)
    return read


def test_functions_and_custom_tools_go_to_the_model() -> None:
    """A custom tool is a function with one string, and its description contains the grammar."""
    parsed = read(FIND, RUN)
    find, run = parsed.chat_tools
    assert find == {"type": "function", "function": {k: v for k, v in FIND.items() if k != "type"}}
    assert run["function"]["parameters"]["required"] == ["input"]
    assert "[a-z]+" in run["function"]["description"]
    assert (parsed.functions, parsed.dropped, parsed.search) == (
        {"run": OfferedTool("run", is_custom=True)},
        [],
        None,
    )
    assert [tool["type"] for tool in parsed.response_tools] == ["function", "custom"]


CRM = {"type": "namespace", "name": "crm", "description": "Customers.", "tools": [FIND, RUN]}


def test_a_namespace() -> None:
    """Each tool is a function whose name begins with the namespace.

    The first one has the namespace's description.
    """
    parsed = read(CRM, FIND, tool_choice={"type": "function", "name": "find", "namespace": "crm"})
    assert [tool["function"]["name"] for tool in parsed.chat_tools] == ["crm__find", "crm__run", "find"]
    assert parsed.chat_tools[0]["function"]["description"] == "Customers."
    assert "Customers." not in parsed.chat_tools[1]["function"]["description"]
    assert parsed.functions == {
        "crm__find": OfferedTool("find", "crm"),
        "crm__run": OfferedTool("run", "crm", is_custom=True),
    }
    assert [tool["type"] for tool in parsed.response_tools] == ["namespace", "function"]
    assert [tool["name"] for tool in parsed.response_tools[0]["tools"]] == ["find", "run"]
    assert parsed.chat_choice == {"type": "function", "function": {"name": "crm__find"}}
    only = read(CRM, FIND, tool_choice={"type": "allowed_tools", "tools": [{"type": "namespace", "name": "crm"}]})
    assert [tool["function"]["name"] for tool in only.chat_tools] == ["crm__find", "crm__run"]


def test_names_of_functions() -> None:
    """Names have at most 64 characters, and different tools have different names."""
    assert function_name("", "find") == "find"
    assert function_name("mcp__crm__", "find") == "mcp__crm__find"
    first, second = (function_name("crm", "x" * 70 + end) for end in "ab")
    assert first != second
    assert len(first) == len(second) == 64


def test_file_search_names_indexes() -> None:
    """The search has the tool's indexes, filters and ranking options."""
    equal = [{"type": "eq", "key": key, "value": value} for key, value in (("a", "x"), ("b", 2))]
    both = {"type": "and", "filters": equal}
    ranking = {"score_threshold": 0.25, "hybrid_search": {"embedding_weight": 3, "text_weight": 1}}
    search = read(SEARCH | {"max_num_results": 5, "filters": both, "ranking_options": ranking}).search
    assert search is not None
    assert (search.indexes, search.top, search.minimum_score, search.dense_weight) == (("docs",), 5, 0.25, 0.75)
    assert search.metadata == (Equals("a", '"x"'), Equals("b", "2"))


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        (SEARCH | {"vector_store_ids": []}, "tools[0].vector_store_ids"),
        (SEARCH | {"vector_store_ids": ["../x"]}, "tools[0].vector_store_ids"),
        (SEARCH | {"filters": {"type": "gt", "key": "a", "value": 1}}, "tools[0].filters.type"),
        (SEARCH | {"filters": {"type": "eq", "key": "a", "value": [1]}}, "tools[0].filters.value"),
        (SEARCH | {"filters": {"type": "and", "filters": [{"type": "gt"}]}}, "tools[0].filters.filters[0].type"),
        (SEARCH | {"filters": {"type": "eq", "key": " ", "value": 1}}, "tools[0].filters.key"),
        ({"type": "function"}, "tools[0].name"),
        ({"type": "namespace", "tools": []}, "tools[0].name"),
        (CRM | {"tools": [SEARCH]}, "tools[0].tools[0].type"),
        (CRM | {"tools": [{"type": "function"}]}, "tools[0].tools[0].name"),
        ({}, "tools[0].type"),
        (7, "tools[0]"),
    ],
)
def test_invalid_tools_are_refused(tool: Any, field: str) -> None:
    """The error names the position in the request."""
    with pytest.raises(InvalidRequest) as refused:
        read(tool)
    assert refused.value.field == field


def test_unsupported_tools_are_dropped_or_refused() -> None:
    """Unsupported tools are refused if the profile requires this, or if the request requires one of the tools."""
    assert read({"type": "web_search"}, {"type": "Ünknown\n"}, FIND).dropped == ["web_search", "unknown"]
    with pytest.raises(InvalidRequest, match="web_search"):
        read({"type": "web_search"}, refuse_unknown=True)
    with pytest.raises(InvalidRequest, match="web_search"):
        read({"type": "web_search"}, tool_choice={"type": "web_search"})
    with pytest.raises(InvalidRequest, match="requires a tool"):
        read({"type": "web_search"}, tool_choice="required")
    with pytest.raises(InvalidRequest, match="requires the tool file_search"):
        read(FIND, tool_choice={"type": "file_search"})


@pytest.mark.parametrize(
    ("choice", "chosen"),
    [
        ("auto", None),
        ("none", "none"),
        ("required", "required"),
        ({"type": "function", "name": "find"}, {"type": "function", "function": {"name": "find"}}),
        ({"type": "custom", "name": "run"}, {"type": "function", "function": {"name": "run"}}),
        ({"type": "file_search"}, "none"),
    ],
)
def test_the_tool_choice(choice: Any, chosen: Any) -> None:
    """The model gets the choice in the format of a chat, and the response repeats the request's choice."""
    parsed = read(FIND, RUN, SEARCH, tool_choice=choice)
    assert (parsed.chat_choice, parsed.choice) == (chosen, choice)


def test_allowed_tools() -> None:
    """The model gets only the allowed tools."""
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "find"}]}
    parsed = read(FIND, RUN, SEARCH, tool_choice=choice)
    assert [tool["function"]["name"] for tool in parsed.chat_tools] == ["find"]
    assert (parsed.chat_choice, parsed.search) == ("required", None)
    other = {"type": "function", "name": "other"}
    for invalid, field in (
        (other, "tool_choice.name"),
        ({"type": "allowed_tools", "tools": [other]}, "tool_choice.tools[0].name"),
    ):
        with pytest.raises(InvalidRequest, match="names no tool") as refused:
            read(FIND, tool_choice=invalid)
        assert refused.value.field == field
    with pytest.raises(InvalidRequest, match=r"^tool_choice\.tools\[0\] must be an object"):
        read(FIND, tool_choice={"type": "allowed_tools", "tools": ["find", other]})


def test_nested_filters_have_no_limit_of_their_own() -> None:
    """Filters may be nested more deeply than Python functions."""
    filters: dict[str, Any] = {"type": "eq", "key": "a", "value": 1}
    for _ in range(2000):
        filters = {"type": "and", "filters": [filters]}
    search = read(SEARCH | {"filters": filters}).search
    assert search is not None
    assert search.metadata == (Equals("a", "1"),)
