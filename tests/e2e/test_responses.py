"""The Responses API, called with the `openai` package on a running stack."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

QUESTION = "What should the crew do when an electric car is burning on the car deck?"
FILE = "safety-manual.pdf"


@pytest.fixture
def client(base_url: str, api_key: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{base_url}/v1", api_key=api_key, max_retries=0) as openai_client:
        yield openai_client


def search(index: str) -> Any:
    return [{"type": "file_search", "vector_store_ids": [index]}]


def test_file_search_cites_the_document(client: OpenAI, corpus: str) -> None:
    """The platform searches for a model that cannot call tools, and the citations name the file."""
    answer = client.responses.create(
        model="extractive", input=QUESTION, tools=search(corpus), include=["file_search_call.results"]
    )
    found, message = answer.output
    assert found.type == "file_search_call"
    assert found.queries == [QUESTION]
    assert FILE in [result.filename for result in found.results or ()]
    assert message.type == "message"
    [part] = message.content
    assert part.type == "output_text"
    cited = {each.filename for each in part.annotations if each.type == "file_citation"}
    assert FILE in cited
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0


def test_a_stream_in_a_conversation(client: OpenAI, corpus: str) -> None:
    """The events of each streamed turn are numbered without gaps, and the conversation has both turns."""
    conversation = client.conversations.create(metadata={"topic": "fire"})
    texts = []
    for question in (QUESTION, "Who wrote that?"):
        with client.responses.stream(
            model="extractive", input=question, tools=search(corpus), conversation=conversation.id
        ) as stream:
            events = list(stream)
            final = stream.get_final_response()
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert final.conversation is not None
        assert final.conversation.id == conversation.id
        texts.append(final.output_text)
    items: Any = list(client.conversations.items.list(conversation.id, order="asc"))
    assert [item.type for item in items] == ["message", "file_search_call", "message"] * 2
    assert [item.content[0].text for item in items if item.type == "message" and item.role == "assistant"] == texts
    client.conversations.delete(conversation.id)
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(conversation.id)


def test_a_response_is_stored_until_it_is_deleted(client: OpenAI, http: httpx.Client) -> None:
    """A response can be read and continued until it is deleted. A user's responses can be deleted together."""
    first = client.responses.create(model="extractive", input="Hello?", metadata={"a": "b"})
    assert client.responses.retrieve(first.id).output_text == first.output_text
    [item] = client.responses.input_items.list(first.id).data
    assert item.type == "message"
    second = client.responses.create(model="extractive", input="And now?", previous_response_id=first.id)
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="extractive", input="x", previous_response_id=second.id)
    assert client.responses.retrieve(second.id).previous_response_id == first.id
    deleted = http.delete("/users/unknown").raise_for_status().json()
    assert deleted["deleted"] == {"responses": 0, "chats": 0, "sessions": 0}


def test_detectors_redact_a_streamed_response(client: OpenAI, ingest: Any) -> None:
    """Neither the client nor the stored response contains the e-mail address of a document."""
    ingest("e2e-responses", {"noise.md": b"# Noise\n\nSend complaints about the noise to noise@kelsay.example.\n"})
    detectors = {"output": {"regex": {"regex": ["email"], "action": "redact"}}}
    with client.responses.stream(
        model="extractive",
        input="Which address takes complaints about the noise?",
        tools=search("e2e-responses"),
        extra_body={"detectors": detectors},
    ) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert "noise@kelsay.example" not in str(events)
    assert "complaints" in final.output_text
    assert "noise@kelsay.example" not in client.responses.retrieve(final.id).to_json()
