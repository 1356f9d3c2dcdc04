"""Encrypted reasoning, which clients store and send with their next request."""

import json
from typing import Any

import httpx
import pytest
from causeway_testing import responses
from gateway.domain import Action, Delta, Detector, Detectors, Finish, Start

PATH = "/v1/responses"
INCLUDE = ["reasoning.encrypted_content"]


def thinking(text: str) -> list[list[Any]]:
    return [
        [Start(b"{}"), Delta(0, "", json.dumps({"reasoning_content": text}).encode())],
        [Delta(0, "At nine."), Finish(0, "stop")],
    ]


async def ask(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post(PATH, json={"store": False, **body})
    assert answer.status_code == 200, answer.text
    responses.response(answer.json())
    return answer.json()


def thought(fakes: Any) -> Any:
    """Return the model's earlier reasoning in the latest prompt."""
    extras = [message.extra_json for message in fakes.generator.prompts[-1].messages if message.extra_json]
    return [json.loads(extra).get("earlier_reasoning") for extra in extras]


async def test_reasoning_is_returned_to_the_model(client: httpx.AsyncClient, fakes: Any) -> None:
    """The reasoning is unreadable for the client, and the model gets it with the next request."""
    fakes.generator.script = thinking("The timetable.")
    first = await ask(client, input="When?", include=INCLUDE)
    encrypted = first["output"][0]["encrypted_content"]
    assert "timetable" not in encrypted
    for item in first["output"]:
        item.pop("content" if item["type"] == "reasoning" else "status")
    items = [{"role": "user", "content": "When?"}, *first["output"], {"role": "user", "content": "Sure?"}]
    await ask(client, input=items, include=INCLUDE)
    assert thought(fakes) == ["The timetable."]
    assert "encrypted_content" not in (await ask(client, input="When?"))["output"][0]


async def test_the_event_has_the_encrypted_reasoning(client: httpx.AsyncClient, fakes: Any) -> None:
    """In a stream, the event that ends the item has the encrypted reasoning."""
    fakes.generator.script = thinking("The timetable.")
    answer = await client.post(PATH, json={"input": "When?", "include": INCLUDE, "stream": True})
    done = [event for event in responses.events(answer.text) if event.type == "response.output_item.done"]
    assert done[0].item.encrypted_content


async def test_a_stored_response_has_its_reasoning(client: httpx.AsyncClient, fakes: Any) -> None:
    """The model gets the reasoning of a stored response without the client's help."""
    fakes.generator.script = thinking("The timetable.")
    first = await ask(client, input="When?", store=True)
    await ask(client, input="Sure?", previous_response_id=first["id"])
    assert thought(fakes) == ["The timetable."]


@pytest.mark.parametrize("content", ["abc", "cwe1.1.AAAA", "cwe1.x", "cwe1.99999999999.é"])
async def test_unreadable_content_is_refused(client: httpx.AsyncClient, content: str) -> None:
    """The error names the position of the item."""
    item = {"type": "reasoning", "summary": [], "encrypted_content": content}
    refused = await client.post(PATH, json={"input": [item, {"role": "user", "content": "When?"}]})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input[0].encrypted_content")


async def test_missing_keys(client: httpx.AsyncClient, fakes: Any) -> None:
    """Without keys, an answer has no encrypted content, and encrypted input causes a 503."""
    fakes.generator.script = thinking("The timetable.")
    item = (await ask(client, input="When?", include=INCLUDE))["output"][0]
    fakes.content_keys.replace({})
    assert "encrypted_content" not in (await ask(client, input="When?", include=INCLUDE))["output"][0]
    answer = await client.post(PATH, json={"input": [item, {"role": "user", "content": "When?"}]})
    assert answer.status_code == 503


async def test_detectors_judge_the_reasoning(client: httpx.AsyncClient, fakes: Any) -> None:
    """Redacted reasoning reaches neither the model nor the store."""
    fakes.generator.script = thinking("It is secret.")
    first = await ask(client, input="When?", include=INCLUDE)
    fakes.policy = Detectors(input=(Detector("words", Action.REDACT),))
    items = [*first["output"], {"role": "user", "content": "Sure?"}]
    second = await ask(client, input=items, store=True)
    assert all("secret" not in text for text in thought(fakes))
    listed = (await client.get(f"{PATH}/{second['id']}/input_items")).text
    assert "secret" not in listed
    assert "encrypted_content" not in listed
