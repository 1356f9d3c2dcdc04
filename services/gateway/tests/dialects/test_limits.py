"""The limits for messages and for the answer's length, in every dialect."""

from typing import Any

import httpx
import pytest
from gateway.dialects.rag_chat.registration import Stages
from gateway.main import build_app
from gateway.settings import Settings

STAGES = (*Stages().single_stage_paths(), *Stages().bare_paths())
OPENAI = "/v1/chat/completions"


@pytest.fixture
def limited(fakes: Any) -> httpx.AsyncClient:
    settings = Settings(default_index="docs", max_messages=4, max_answer_tokens=100)
    transport = httpx.ASGITransport(build_app(settings, fakes.services()), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


def conversation(count: int) -> list[dict[str, str]]:
    earlier = [{"role": ("assistant", "user")[at % 2], "content": f"Number {at}."} for at in range(count - 1)]
    return [*earlier, {"role": "user", "content": "When?"}]


@pytest.mark.parametrize("path", [*STAGES, OPENAI])
async def test_the_number_of_messages_is_limited(limited: httpx.AsyncClient, fakes: Any, path: str) -> None:
    """The error names the field, and neither the retriever nor the model is called."""
    assert (await limited.post(path, json={"messages": conversation(4)})).status_code == 200
    fakes.generator.prompts.clear()
    fakes.retriever.queries.clear()
    refused = await limited.post(path, json={"messages": conversation(5)})
    assert refused.status_code == 400
    assert "messages: a request may have at most 4 messages." in refused.text
    assert fakes.generator.prompts == fakes.retriever.queries == []


async def test_responses_are_limited(limited: httpx.AsyncClient, fakes: Any) -> None:
    """The error has the field names of the Responses API. Instructions do not count as an item."""
    path, instructions = "/v1/responses", {"instructions": "Be brief."}
    assert (await limited.post(path, json={"input": conversation(4), **instructions})).status_code == 200
    fakes.generator.prompts.clear()
    for wrong, name in (({"input": conversation(5)}, "input"), ({"max_output_tokens": 101}, "max_output_tokens")):
        refused = await limited.post(path, json={"input": "When?", **instructions, **wrong})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, name)
    assert fakes.generator.prompts == fakes.retriever.queries == []


@pytest.mark.parametrize("more", [{"index_name": "docs"}, {"tools": [{}]}, {"detectors": {"input": {"x": {}}}}])
async def test_every_kind_of_request_is_limited(limited: httpx.AsyncClient, more: dict[str, Any]) -> None:
    """The limit also applies to requests that pass through and to empty messages."""
    empty: list[dict[str, str]] = [{}] * 5
    for messages in (conversation(5), empty):
        refused = await limited.post(OPENAI, json={"messages": messages, **more})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize("path", STAGES)
async def test_the_length_of_answers_is_limited(limited: httpx.AsyncClient, path: str) -> None:
    """The error names the field of a limit that is too high."""
    for limit, status in ((100, 200), (101, 400)):
        body = {"messages": conversation(1), "context": {"overrides": {"max_tokens": limit}}}
        response = await limited.post(path, json=body)
        assert response.status_code == status
    assert "context.overrides.max_tokens: an answer may have at most 100 tokens." in response.text


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("more", [{}, {"index_name": "docs"}])
async def test_openai_answers_are_limited(limited: httpx.AsyncClient, field: str, more: dict[str, Any]) -> None:
    """Both names are checked, with or without an index. The model server checks the type of the value."""
    for limit, status in ((100, 200), (101, 400)):
        response = await limited.post(OPENAI, json={"messages": conversation(1), field: limit, **more})
        assert response.status_code == status
    assert response.json()["error"]["param"] == field
    assert (await limited.post(OPENAI, json={"messages": conversation(1), field: "many"})).status_code == 200


async def test_without_a_limit_any_length_is_accepted(client: httpx.AsyncClient) -> None:
    """Without a configured limit, the model server alone limits the answer."""
    assert (await client.post(OPENAI, json={"messages": conversation(1), "max_tokens": 10**6})).status_code == 200
