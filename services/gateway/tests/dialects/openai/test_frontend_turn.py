"""Requests on OpenAI-compatible routes use the index, the prompt and the overrides of their profile."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings

PROFILES = """
frontends:
  - name: help
    mount: help
    index: docs
    system_prompt: Be kind.
    overrides: {top: 1, temperature: 0.5, max_tokens: 40, language: pt-BR}
  - {name: plain, mount: plain, index: docs, hosts: [plain.example.com]}
  - {name: modest, mount: modest, index: docs, retrieval: {with_tools: false}}
  - {name: bare, mount: bare, system_prompt: Be kind., overrides: {temperature: 0.5}, allow: {indexes: any}}
  - {name: nothing, mount: nothing, index: "", system_prompt: Be kind.}
  - {name: default, index: docs, system_prompt: Be kind., allow: {indexes: any}}
"""
QUESTION = "When does the ferry leave?"
USER = {"role": "user", "content": QUESTION}
CALL = {"id": "1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
CALLING = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "eight"}
TOOLS = [{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}]
PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
PATHS = ["/v1/chat/completions", "/openai/deployments/fake/chat/completions", "/api/v2/chat/completions-detection"]
NEAR = {"retrieval": {"similarity_threshold": -1}}


@pytest.fixture
async def client(fakes: Any, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    (tmp_path / "frontends.yaml").write_text(PROFILES)
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    transport = httpx.ASGITransport(build_app(Settings(default_index="docs"), fakes.services()))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


async def ask(client: httpx.AsyncClient, path: str, **more: Any) -> dict[str, Any]:
    wire: dict[str, Any] = {"detectors": {"output": {"words": {}}}} if path.endswith("detection") else {}
    response = await client.post(path, json={"model": "fake", "messages": [USER]} | wire | more)
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


def roles(fakes: Any) -> list[str]:
    return [message.role for message in fakes.generator.prompts[-1].messages]


@pytest.mark.parametrize("path", PATHS)
async def test_a_chat_without_an_index_name_searches_the_profiles_index(
    client: httpx.AsyncClient, fakes: Any, path: str
) -> None:
    """The gateway searches the profile's index, on every OpenAI-compatible route.

    The model gets the profile's prompt and overrides. A parameter of the request replaces that of the profile.
    """
    body = await ask(client, f"/help{path}", temperature=0.9)
    assert fakes.retriever.queries == [QUESTION]
    if not path.endswith("detection"):  # its answers have the guardrails orchestrator's members
        assert [node["sourcefile"] for node in body["source_nodes"]] == ["guide-1.pdf"]
    [prompt] = fakes.generator.prompts
    assert [message.role for message in prompt.messages] == ["system", "user"]
    first = prompt.messages[0].text
    assert first.startswith("Be kind.\n")
    assert "pt-BR" in first
    assert first.endswith("\n\nguide-1.pdf#page=1: The ferry leaves at nine.")
    assert json.loads(prompt.parameters_json) == {"temperature": 0.9, "max_tokens": 40}


async def test_a_profile_is_chosen_by_host(client: httpx.AsyncClient, fakes: Any) -> None:
    """The gateway searches the index of the profile that it chooses by the host."""
    body = {"messages": [USER]}
    response = await client.post(PATHS[0], json=body, headers={"host": "plain.example.com"})
    assert response.json()["source_nodes"]
    assert fakes.retriever.queries == [QUESTION]


async def test_an_empty_name_switches_retrieval_off(client: httpx.AsyncClient, fakes: Any) -> None:
    """An empty index name disables retrieval. The profile's prompt and overrides still apply.

    The request's limit of tokens replaces that of the profile, even if it has the other name.
    """
    body = await ask(client, f"/help{PATHS[0]}", index_name="", max_completion_tokens=7)
    assert body.get("source_nodes") is None
    assert fakes.retriever.queries == []
    [prompt] = fakes.generator.prompts
    assert prompt.messages[0].text.startswith("Be kind.\n")
    assert json.loads(prompt.parameters_json) == {"temperature": 0.5, "max_completion_tokens": 7}


async def test_without_passages_the_prompt_of_the_profile_applies(client: httpx.AsyncClient, fakes: Any) -> None:
    """If no passage reaches the similarity threshold, the model gets the profile's prompt. If the profile has no
    prompt, the model gets the request unchanged.
    """
    far = {"retrieval": {"similarity_threshold": 1}}
    assert (await ask(client, f"/help{PATHS[0]}", **far))["source_nodes"] == []
    assert roles(fakes) == ["system", "user"]
    await ask(client, f"/plain{PATHS[0]}", **far)
    assert json.loads(fakes.generator.prompts[-1].passthrough_json) == {"model": "fake", "messages": [USER]}


@pytest.mark.parametrize("mount", ["", "/bare", "/nothing"])
async def test_profiles_without_an_index_pass_requests_through(
    client: httpx.AsyncClient, fakes: Any, mount: str
) -> None:
    """A request to a profile without an index, or to the default profile, is passed through."""
    await ask(client, f"{mount}{PATHS[0]}")
    [prompt] = fakes.generator.prompts
    assert json.loads(prompt.passthrough_json) == {"model": "fake", "messages": [USER]}
    assert fakes.retriever.queries == []


async def test_an_index_that_the_profile_does_not_offer_is_refused(client: httpx.AsyncClient, fakes: Any) -> None:
    """An index outside the profile's list causes a 403."""
    response = await client.post(f"/help{PATHS[0]}", json={"messages": [USER], "index_name": "empty"})
    assert response.status_code == 403
    assert fakes.generator.prompts == []


@pytest.mark.parametrize("tools", [{"tools": TOOLS}, {"functions": [TOOLS[0]["function"]]}])
async def test_the_model_gets_tools_and_passages(
    client: httpx.AsyncClient, fakes: Any, tools: dict[str, Any]
) -> None:
    """The model gets passages and tools, and the prompt's length includes the tools."""
    body = await ask(client, f"/plain{PATHS[0]}", **tools, **NEAR)
    assert body["source_nodes"]
    [prompt] = fakes.generator.prompts
    assert "The ferry leaves at nine." in prompt.messages[0].text
    assert json.loads(prompt.parameters_json) == tools
    fakes.generator.window = len(QUESTION.split())
    response = await client.post(f"/plain{PATHS[0]}", json={"messages": [USER]} | tools | NEAR)
    assert (response.status_code, response.json()["detail"]) == (400, "Prompt length exceeds context window.")


@pytest.mark.parametrize("index", [{}, {"index_name": "docs"}])
async def test_tool_results_remain_in_order(client: httpx.AsyncClient, fakes: Any, index: dict[str, Any]) -> None:
    """The gateway searches for the latest question. The model gets the conversation and its tool calls in order."""
    earlier = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]
    body = await ask(client, f"/plain{PATHS[0]}", messages=[*earlier, USER, CALLING, RESULT], tools=TOOLS, **index)
    assert body["source_nodes"]
    assert fakes.retriever.queries == [QUESTION]
    [prompt] = fakes.generator.prompts
    assert [message.role for message in prompt.messages] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "tool",
    ]
    assert json.loads(prompt.messages[4].extra_json) == {"tool_calls": [CALL]}
    assert prompt.question == QUESTION


async def test_the_text_beside_a_picture_is_searched_for(client: httpx.AsyncClient, fakes: Any) -> None:
    """The gateway searches for the text beside a picture, and the model gets the picture unchanged."""
    content = [{"type": "text", "text": QUESTION}, PICTURE]
    await ask(client, f"/plain{PATHS[0]}", messages=[{"role": "user", "content": content}])
    assert fakes.retriever.queries == [QUESTION]
    [prompt] = fakes.generator.prompts
    assert [message.role for message in prompt.messages] == ["system", "user"]
    assert json.loads(prompt.messages[1].content_json) == content


@pytest.mark.parametrize(
    "messages", [[{"role": "user", "content": [PICTURE]}], [USER, {"role": "assistant", "content": "At"}]]
)
async def test_a_chat_without_a_question_is_passed_through(
    client: httpx.AsyncClient, fakes: Any, messages: list[Any]
) -> None:
    """The model gets a chat without a question unchanged."""
    await ask(client, f"/plain{PATHS[0]}", messages=messages)
    assert fakes.retriever.queries == []
    assert json.loads(fakes.generator.prompts[0].passthrough_json)["messages"] == messages


async def test_without_retrieval_with_tools_the_request_is_passed_through(
    client: httpx.AsyncClient, fakes: Any
) -> None:
    """With `with_tools: false`, a request with tools is passed through."""
    await ask(client, f"/modest{PATHS[0]}", tools=TOOLS)
    assert fakes.retriever.queries == []
    assert json.loads(fakes.generator.prompts[0].passthrough_json)["tools"] == TOOLS
    await ask(client, f"/modest{PATHS[0]}")
    assert fakes.retriever.queries == [QUESTION]


async def test_tools_switch_retrieval_off_for_a_profile_without_an_index(
    client: httpx.AsyncClient, fakes: Any
) -> None:
    """If the profile has no index, tools disable the search in the request's index."""
    await ask(client, f"/bare{PATHS[0]}", tools=TOOLS, index_name="docs")
    assert fakes.retriever.queries == []
    assert fakes.generator.prompts[0].passthrough_json
