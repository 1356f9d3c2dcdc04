"""Assistants: a client that can only choose a model selects an index, a prompt and detectors by a model name."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.domain import Model
from gateway.frontends.profiles_file import FrontendsFile
from gateway.identity.caller import Caller
from gateway.main import build_app
from gateway.settings import Settings
from servicekit.principal import Principal

FILE = """
assistants:
  - name: harbour
    indexes: [docs]
    model: large
    system_prompt: You know the harbour.
    overrides: {top: 1, temperature: 0.5}
    detectors: {output: [{id: words, action: redact}]}
  - {name: bridge, indexes: [docs, empty], allow: {groups: [masons]}}
frontends:
  - name: help
    mount: help
    index: empty
    system_prompt: Be kind.
    overrides: {seed: 7}
    assistants: [{name: own}]
"""
USER = {"role": "user", "content": "When does the ferry leave?"}
MODELS = (
    Model("small", 8192, "tests", 5, ready=True),
    Model("large", 1000, "tests", 6, ready=True),
    Model("away", 1000, "tests", 7, ready=False),
)
ANN = Principal("local", user="ann", roles=("ask",))
BOB = Principal("local", user="bob", groups=("masons",), roles=("ask",))


class TokensOfPeople:
    """A fake of `Tokens` that accepts the names of people as tokens."""

    def cached(self, token: str) -> Caller | None:
        return Caller({"ann": ANN, "bob": BOB}[token])


def bearer(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


@pytest.fixture
async def client(fakes: Any, tmp_path: Path) -> AsyncIterator[httpx.AsyncClient]:
    (tmp_path / "frontends.yaml").write_text(FILE)
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    fakes.generator.offered = MODELS
    fakes.tokens = TokensOfPeople()
    settings = Settings(
        default_index="docs", auth="oidc", oidc_issuer="https://id.example.com", oidc_audience=["causeway"]
    )
    transport = httpx.ASGITransport(build_app(settings, fakes.services()))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway", headers=bearer("ann")) as client:
        yield client


def answer_of(response: httpx.Response) -> Any:
    assert response.status_code == 200, response.text
    return response.json()


@pytest.mark.parametrize(
    ("path", "more"),
    [
        ("/v1/chat/completions", {"model": "harbour"}),
        ("/openai/deployments/harbour/chat/completions", {"model": "ignored"}),
        ("/api/v2/chat/completions-detection", {"model": "harbour", "detectors": {"output": {"words": {}}}}),
        ("/2024-01/chat", {"context": {"overrides": {"model": "harbour"}}}),
        ("/help/v1/chat/completions", {"model": "harbour"}),
    ],
)
async def test_an_assistant_answers_under_its_name(
    client: httpx.AsyncClient, fakes: Any, path: str, more: dict[str, Any]
) -> None:
    """The answer uses the assistant's indexes, model, prompt, parameters and detectors, and shows its name."""
    body = answer_of(await client.post(path, json={"messages": [USER]} | more))
    assert body["model"] == "harbour"
    [prompt] = fakes.generator.prompts
    assert (prompt.model, prompt.passthrough_json) == ("large", b"")
    assert prompt.messages[0].text.startswith("You know the harbour.")
    assert json.loads(prompt.parameters_json)["temperature"] == 0.5
    assert [source.sourcefile for source in prompt.sources] == ["guide-1.pdf"]
    assert fakes.guardrails.judged_texts


async def test_a_streamed_answer_has_the_assistants_name(client: httpx.AsyncClient) -> None:
    """Every chunk has the assistant's name instead of the model server's."""
    response = await client.post(
        "/v1/chat/completions", json={"model": "harbour", "messages": [USER], "stream": True}
    )
    chunks = [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: {")]
    assert len(chunks) > 2
    assert {chunk["model"] for chunk in chunks} == {"harbour"}


async def test_the_profile_supplies_missing_settings(client: httpx.AsyncClient, fakes: Any) -> None:
    """The profile supplies settings that the assistant omits. Without indexes, nothing is searched."""
    body = answer_of(
        await client.post("/help/v1/chat/completions", json={"model": "own", "messages": [USER], "tools": []})
    )
    assert body["model"] == "own"
    [prompt] = fakes.generator.prompts
    assert prompt.messages[0].text == "Be kind."
    assert json.loads(prompt.parameters_json)["seed"] == 7
    assert fakes.retriever.queries == []


@pytest.mark.parametrize("index", ["empty", "other"])
async def test_another_index_is_refused(client: httpx.AsyncClient, fakes: Any, index: str) -> None:
    """An index that the assistant does not search causes a 403, even if the profile offers it."""
    body = {"model": "harbour", "messages": [USER], "index_name": index}
    assert (await client.post("/v1/chat/completions", json=body)).status_code == 403
    assert fakes.retriever.queries == []


async def test_an_assistant_is_hidden_from_other_callers(client: httpx.AsyncClient, fakes: Any) -> None:
    """Callers outside its groups do not see the assistant. The gateway treats its name as the name of a model."""
    chat = {"model": "bridge", "messages": [USER]}
    listed = answer_of(await client.get("/v1/models"))["data"]
    assert [model["id"] for model in listed] == ["small", "large", "harbour"]
    assert (await client.get("/v1/models/bridge")).status_code == 404
    await client.post("/v1/chat/completions", json=chat)
    assert fakes.generator.prompts[-1].model == "bridge"
    assert fakes.retriever.queries == []
    client.headers.update(bearer("bob"))
    listed = answer_of(await client.get("/help/v1/models"))["data"]
    assert [model["id"] for model in listed] == ["small", "harbour", "bridge", "own"]
    shown = answer_of(await client.get("/v1/models/bridge"))
    assert (shown["max_model_len"], shown["owned_by"]) == (8192, "causeway")
    assert answer_of(await client.post("/v1/chat/completions", json=chat))["source_nodes"]
    assert fakes.retriever.queries == [USER["content"]]


async def test_cited_documents_can_be_opened(client: httpx.AsyncClient) -> None:
    """A caller may read the index of an assistant. A missing document is a 404, and another index a 403."""
    document = "/help/content/guide.pdf"
    assert (await client.get(document, params={"index": "docs"})).status_code == 404
    assert (await client.get(document, params={"index": "other"})).status_code == 403
