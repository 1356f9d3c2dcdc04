from collections.abc import Iterator

import httpx
import openai
import pytest
from openai import OpenAI

QUESTION = "What should the crew do when an electric car is burning on the car deck?"
SOURCE = "safety-manual.pdf#page=3"


@pytest.fixture
def client(base_url: str, api_key: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{base_url}/v1", api_key=api_key, max_retries=0) as openai_client:
        yield openai_client


def test_an_index_turns_retrieval_on(client: OpenAI, corpus: str) -> None:
    """If the request has an index, the answer cites the page and has the sources with their scores."""
    answer = client.chat.completions.create(
        model="extractive",
        messages=[{"role": "user", "content": QUESTION}],
        extra_body={"index_name": corpus},
    )
    content = answer.choices[0].message.content
    assert content is not None
    assert f"[{SOURCE}]" in content
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0
    nodes = answer.model_extra["source_nodes"] if answer.model_extra else []
    best = next(node for node in nodes if node["sourcepage"] == SOURCE)
    assert best["dense_score"] is not None
    assert best["sparse_score"] is not None


def test_streaming_with_an_index(client: OpenAI, corpus: str) -> None:
    """The first chunk has the role and the sources. The last chunk has the usage and the timings."""
    stream = client.chat.completions.create(
        model="extractive",
        messages=[{"role": "user", "content": QUESTION}],
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"index_name": corpus},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[0].model_extra is not None
    assert chunks[0].model_extra["source_nodes"]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert f"[{SOURCE}]" in text
    last = chunks[-1]
    assert last.usage is not None
    assert last.model_extra is not None
    assert last.model_extra["timings"]["retrieve_ms"] > 0
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"


def test_without_an_index_the_request_goes_to_the_model(client: OpenAI) -> None:
    """If the request has no index, the model answers without retrieval. The streamed text equals the unary text."""
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": "Hello?"}]
    answer = client.chat.completions.create(model="extractive", messages=messages)
    assert answer.choices[0].message.content
    stream = client.chat.completions.create(model="extractive", messages=messages, stream=True)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert text == answer.choices[0].message.content


def test_the_client_raises_its_own_errors(client: OpenAI, http: httpx.Client, corpus: str) -> None:
    """An unknown index or model causes a 404. A request without a question gets a 400 with RAGEngine's message."""
    ask = {"messages": [{"role": "user", "content": "Hi"}]}
    with pytest.raises(openai.NotFoundError, match="No such index: 'nope' exists"):
        client.chat.completions.create(model="extractive", **ask, extra_body={"index_name": "nope"})  # type: ignore[call-overload]  # a plain dict
    with pytest.raises(openai.NotFoundError, match="no-such-model"):
        client.chat.completions.create(model="no-such-model", **ask)  # type: ignore[call-overload]  # a plain dict
    request = {
        "index_name": corpus,
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes?"}],
    }
    response = http.post("/v1/chat/completions", json=request)
    assert response.status_code == 400
    assert response.json()["detail"] == "There must be a user prompt since the latest assistant message."


def test_detectors_redact_a_streamed_answer(client: OpenAI, noise_index: str) -> None:
    """The client does not receive the e-mail address of a document. The answer reports the detection."""
    stream = client.chat.completions.create(
        model="extractive",
        messages=[{"role": "user", "content": "Which address takes complaints about the noise?"}],
        stream=True,
        extra_body={
            "index_name": noise_index,
            "detectors": {"output": {"regex": {"regex": ["email"], "action": "redact"}}},
        },
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "complaints" in text
    assert "noise.office@example.org" not in text
    detections = [
        chunk.model_extra["detections"]
        for chunk in chunks
        if chunk.model_extra and "detections" in chunk.model_extra
    ]
    assert detections[0]["output"][0]["results"][0]["detection"] == "email_address"


@pytest.fixture
def noise_index(ingest: object) -> str:
    text = b"# Noise\n\nSend complaints about the noise to noise.office@example.org; an answer takes a week.\n"
    [job] = ingest("e2e-noise", {"noise.md": text})  # type: ignore[operator]  # the fixture of conftest.py
    assert job["state"] in ("succeeded", "unchanged"), job
    return "e2e-noise"
