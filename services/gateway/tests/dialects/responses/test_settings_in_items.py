"""Input items that add tools and settings."""

import json
from typing import Any

import httpx
import pytest
from causeway_testing import responses

PATH = "/v1/responses"
FIND = {"type": "function", "name": "find", "parameters": {"type": "object", "properties": {}}}
QUESTION = {"role": "user", "content": "When?"}


def additional_tools(*tools: Any) -> dict[str, Any]:
    return {"type": "additional_tools", "role": "developer", "tools": list(tools)}


def update(**members: Any) -> dict[str, Any]:
    return {"type": "configuration_update", **members}


async def ask(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post(PATH, json=body)
    assert answer.status_code == 200, answer.text
    return responses.response(answer.json())


async def test_additional_tools(client: httpx.AsyncClient, fakes: Any) -> None:
    """The model gets the tools of items and of the request, also in later turns.

    Of two tools with one name, it gets the later one.
    """
    better = FIND | {"description": "Find a ferry."}
    first = await ask(
        client, input=[additional_tools(better, {"type": "custom", "name": "run"}), QUESTION], tools=[FIND]
    )
    await ask(client, input="And now?", previous_response_id=first.id)
    for prompt in fakes.generator.prompts:
        functions = [tool["function"] for tool in json.loads(prompt.parameters_json)["tools"]]
        assert [(function["name"], function.get("description")) for function in functions] == [
            ("find", "Find a ferry."),
            ("run", ""),
        ]
    listed = (await client.get(f"{PATH}/{first.id}/input_items", params={"order": "asc"})).json()["data"]
    assert [responses.item(item).type for item in listed] == ["additional_tools", "message"]
    chosen = {"type": "function", "name": "find"}
    assert (
        await ask(client, input=[additional_tools(FIND), QUESTION], tool_choice=chosen)
    ).tool_choice.name == "find"


async def test_an_invalid_tool_of_an_item_is_refused(client: httpx.AsyncClient) -> None:
    """The error names the position in the request."""
    refused = await client.post(PATH, json={"input": [QUESTION, additional_tools(FIND, {"type": "function"})]})
    assert refused.json()["error"]["param"] == "input[1].tools[1].name"


async def test_a_configuration_update(client: httpx.AsyncClient, fakes: Any) -> None:
    """The latest update has priority over the request. It replaces only the settings that it contains."""
    form = {"type": "json_schema", "name": "time", "schema": {"type": "object"}}
    items = [update(reasoning={"effort": "low"}), update(text={"format": form}), QUESTION]
    first = await ask(client, input=items, reasoning={"effort": "high", "summary": "auto"})
    assert (first.reasoning.effort, first.reasoning.summary, first.text.format.name) == ("low", "auto", "time")
    await ask(client, input=[update(text={"format": {"type": "text"}}), QUESTION], previous_response_id=first.id)
    one, other = (json.loads(prompt.parameters_json) for prompt in fakes.generator.prompts)
    assert (one["reasoning_effort"], one["response_format"]["json_schema"]["name"]) == ("low", "time")
    assert (other["reasoning_effort"], "response_format" in other) == ("low", False)


@pytest.mark.parametrize(
    ("item", "path"),
    [
        (update(reasoning={"effort": "endless"}), "input[0].reasoning.effort"),
        (update(text={"format": {"type": "xml"}}), "input[0].text.format.type"),
    ],
)
async def test_an_invalid_update_is_refused(client: httpx.AsyncClient, item: Any, path: str) -> None:
    """The error names the position in the request."""
    refused = await client.post(PATH, json={"input": [item, QUESTION]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, path)
