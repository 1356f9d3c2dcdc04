"""Every feature that needs a model, with a real small model.

The model is often wrong. The tests do not check the content of its texts, only what the platform does with them.
"""

import json
import time
from collections.abc import Iterator
from typing import Any

import httpx

INDEX = "llm"
NAME = "smollm2"
QUESTION = "How many weeks ahead can vehicle spaces be booked?"
SECONDS = 60.0
BRIEF = {"index": INDEX, "top": 2, "max_tokens": 60, "temperature": 0, "seed": 1}


def chat(http: httpx.Client, *texts: str, **overrides: Any) -> dict[str, Any]:
    """Send a conversation to the RAG chat, and return the answer. The texts are alternately of user and
    assistant.
    """
    roles = ("user", "assistant")
    messages = [{"role": roles[number % 2], "content": text} for number, text in enumerate(texts)]
    body = {"messages": messages, "context": {"overrides": {**BRIEF, **overrides}}}
    answer: dict[str, Any] = http.post("/2024-04/chat", json=body).raise_for_status().json()
    return answer


def completion(**members: Any) -> dict[str, Any]:
    body = {"model": NAME, "messages": [{"role": "user", "content": "Count from one to twenty."}], "seed": 1}
    return {**body, "max_tokens": 60, "temperature": 0, **members}


def events(response: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in response.iter_lines():
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def test_an_answer_has_its_source(http: httpx.Client) -> None:
    """The answer has the text of the model, the found source, and the number of tokens that the model server
    counted.
    """
    answer = chat(http, QUESTION)
    assert answer["message"]["content"].strip()
    assert answer["context"]["data_points"]["citations"] == ["fares-and-tickets.md"]
    props = [step.get("props") or {} for step in answer["context"]["thoughts"]]
    [usage] = [each["token_usage"] for each in props if "token_usage" in each]
    assert usage["prompt_tokens"] > 300  # the prompt has two passages
    assert 0 < usage["completion_tokens"] <= 60


def test_a_streamed_answer_equals_the_unary_answer(http: httpx.Client) -> None:
    """The joined tokens of a stream equal the unary answer, and so does the number of tokens in the usage."""
    whole = http.post("/v1/chat/completions", json=completion()).raise_for_status().json()
    body = completion(stream=True, stream_options={"include_usage": True})
    with http.stream("POST", "/v1/chat/completions", json=body) as response:
        chunks = list(events(response))
    assert text_of(chunks) == whole["choices"][0]["message"]["content"]
    assert len(chunks) > 10
    assert {each["id"] for each in chunks} == {chunks[0]["id"]}
    [usage] = [each["usage"] for each in chunks if each.get("usage")]
    assert usage["completion_tokens"] == whole["usage"]["completion_tokens"] > 10


def test_the_chat_protocol_streams_the_answer(http: httpx.Client) -> None:
    """The lines are JSON. The context comes first, and then the text."""
    body = {
        "messages": [{"role": "user", "content": QUESTION}],
        "context": {"overrides": BRIEF},
    }
    with http.stream("POST", "/2024-04/chat/stream", json=body) as response:
        lines = [json.loads(line) for line in response.iter_lines() if line]
    assert "data_points" in lines[0]["context"]
    assert "".join(line["delta"]["content"] or "" for line in lines if "content" in line.get("delta", {})).strip()
    assert not [line for line in lines if "error" in line]


def test_an_answer_ends_before_a_stop_string(http: httpx.Client) -> None:
    """An answer ends before a stop string, with the finish reason `stop`. At a token limit, the finish reason is
    `length`.
    """
    free = http.post("/v1/chat/completions", json=completion()).raise_for_status().json()
    text = free["choices"][0]["message"]["content"]
    stop = text[len(text) // 2 :].split()[0]
    stopped = http.post("/v1/chat/completions", json=completion(stop=[stop])).raise_for_status().json()
    [choice] = stopped["choices"]
    assert choice["finish_reason"] == "stop"
    assert stop not in choice["message"]["content"]
    assert text.startswith(choice["message"]["content"])
    [choice] = http.post("/v1/chat/completions", json=completion(max_tokens=3)).json()["choices"]
    assert choice["finish_reason"] == "length"


def test_the_model_rewrites_a_query(http: httpx.Client) -> None:
    """The model writes a search query from the conversation. For any query, there is an answer, and the thoughts
    have a step with the query.
    """
    answer = chat(http, "What does a bicycle cost?", "Three pounds.", "And a dog?", query_rewriting=True)
    assert answer["message"]["content"].strip()
    assert "rewrit" in json.dumps(answer["context"]["thoughts"]).lower()


def test_follow_up_questions_are_not_in_the_text(http: httpx.Client) -> None:
    """The text contains no follow-up questions. The context has at most three, or none if the model does not use
    the requested format.
    """
    answer = chat(http, QUESTION, suggest_followup_questions=True)
    found = answer["context"].get("followup_questions") or []
    assert len(found) <= 3
    assert "<<" not in answer["message"]["content"]
    assert all(question.strip() for question in found)


def test_a_client_that_disconnects_frees_the_model(http: httpx.Client, model_address: str) -> None:
    """More clients disconnect than the model server has slots. Afterwards all slots are free, and a question is
    answered.
    """
    body = completion(stream=True, max_tokens=1500, temperature=1, ignore_eos=True)
    for _ in range(4):
        with http.stream("POST", "/v1/chat/completions", json=body) as response:
            next(events(response))
    end = time.monotonic() + SECONDS
    slots = model_address.removesuffix("/v1") + "/slots"
    while any(slot["is_processing"] for slot in httpx.get(slots).raise_for_status().json()):
        assert time.monotonic() < end
        time.sleep(0.2)
    assert http.post("/v1/chat/completions", json=completion(max_tokens=3)).status_code == 200
