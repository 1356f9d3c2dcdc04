import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from causeway_testing.gateway.answering import FakeGenerator

QUESTION = "What is included in my plan?"
# The specification's own example of a request.
EXAMPLE: dict[str, Any] = {
    "messages": [{"content": QUESTION, "role": "user"}],
    "stream": False,
    "context": {
        "overrides": {
            "top": 3,
            "retrieval_mode": "text",
            "semantic_ranker": False,
            "semantic_captions": False,
            "suggest_followup_questions": False,
            "use_oid_security_filter": False,
            "use_groups_security_filter": False,
            "vector_fields": ["embedding"],
            "use_gpt4v": False,
            "gpt4v_input": "textAndImages",
        }
    },
    "session_state": None,
}
PATHS = ["/2024-01/chat", "/2024-01/ask", "/ask", "/2024-01-28/chat"]
Check = Callable[[Any, dict[str, Any]], None]


@pytest.mark.parametrize("path", PATHS)
async def test_the_examples_answer_in_one_piece(
    client: httpx.AsyncClient, path: str, has: Check, check_context: Callable[[Any], None]
) -> None:
    """The answer has exactly the keys and types of the specification's example."""
    body = (await client.post(path, json=EXAMPLE)).json()
    none = type(None)
    shape: dict[str, Any] = {
        "choices": list,
        "created": int,
        "id": str,
        "model": str,
        "object": str,
        "prompt_filter_results": list,
        "system_fingerprint": (str, none),
        "usage": dict,
    }
    assert set(body) == set(shape)
    has(body, shape)
    has(body["usage"], {"completion_tokens": int, "prompt_tokens": int, "total_tokens": int})
    [choice] = body["choices"]
    shape = {
        "content_filter_results": dict,
        "context": dict,
        "finish_reason": str,
        "index": int,
        "message": dict,
        "session_state": str,  # a null becomes a name
    }
    assert set(choice) == set(shape)
    has(choice, shape)
    assert choice["message"] == {
        "content": "At nine.",
        "function_call": None,
        "role": "assistant",
        "tool_calls": None,
    }
    assert (choice["finish_reason"], choice["index"]) == ("stop", 0)
    assert body["object"] == "chat.completion"
    check_context(choice["context"])


@pytest.mark.parametrize("path", PATHS)
async def test_the_examples_streamed_answer(
    client: httpx.AsyncClient, path: str, has: Check, check_context: Callable[[Any], None]
) -> None:
    """The chunks have exactly the keys of the specification's example, with their types."""
    response = await client.post(path, json=EXAMPLE | {"stream": True})
    assert response.headers["content-type"] == "application/json-lines"
    first, *middle, last = [json.loads(line) for line in response.text.splitlines()]
    assert set(first) == {"choices", "object"}
    assert set(first["choices"][0]) == {"delta", "context", "session_state", "finish_reason", "index"}
    assert first["choices"][0]["finish_reason"] is None
    check_context(first["choices"][0]["context"])
    assert len(middle) == 3
    for line in middle:
        assert set(line) == {"id", "choices", "created", "model", "object", "system_fingerprint"}
        has(line, {"id": str, "created": int, "model": str, "object": str})
        [choice] = line["choices"]
        assert set(choice) == {"delta", "finish_reason", "index", "content_filter_results"}
        assert set(choice["delta"]) == {"content", "function_call", "role", "tool_calls"}
        assert choice["finish_reason"] is None
    [choice] = last["choices"]
    assert choice["delta"] == {}
    assert choice["finish_reason"] == "stop"
    assert {line["id"] for line in (*middle, last)} == {last["id"]}
    assert {line["object"] for line in (first, *middle, last)} == {"chat.completion.chunk"}


async def test_the_body_decides_on_streaming(client: httpx.AsyncClient) -> None:
    """Without `stream`, or with null or false, the answer is one object. A value of another type is refused."""
    for stream in ({}, {"stream": None}, {"stream": False}):
        response = await client.post("/2024-01/chat", json={"messages": "hi"} | stream)
        assert response.headers["content-type"] == "application/json"
    response = await client.post("/2024-01/chat", json={"messages": "hi", "stream": "yes"})
    assert response.status_code == 400
    assert response.json() == {"error": "stream must be a boolean."}


async def test_ask_is_a_single_turn(client: httpx.AsyncClient, fakes: Any) -> None:
    """The last message of the user is the question, and other messages of users and assistants are ignored."""
    conversation = [("system", "Be brief."), ("user", "Hello."), ("user", "When?"), ("assistant", "At nine.")]
    messages = [{"role": role, "content": content} for role, content in conversation]
    assert (await client.post("/ask", json={"messages": messages})).status_code == 200
    prompt = fakes.generator.prompts[0]
    assert prompt.question == "When?"
    assert [message.role for message in prompt.messages] == ["system", "user"]
    for wrong in ([{"role": "assistant", "content": "x"}], [{"role": "user", "content": " "}], []):
        assert (await client.post("/ask", json={"messages": wrong})).status_code == 400


async def test_a_system_message_is_part_of_the_history(client: httpx.AsyncClient, fakes: Any) -> None:
    """The request's system message follows the platform's own."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "When?"}]
    await client.post("/2024-01/chat", json={"messages": messages})
    roles = [message.role for message in fakes.generator.prompts[0].messages]
    assert roles == ["system", "system", "user"]


async def test_ids_are_generated_if_the_model_server_sends_none(client: httpx.AsyncClient, fakes: Any) -> None:
    """Two answers have two ids, and the model is the requested one."""
    fakes.generator.script = FakeGenerator.saying("x").script[1:]
    body = {"messages": "hi", "context": {"overrides": {"model": "m"}}}
    one, two = [(await client.post("/2024-01/chat", json=body)).json() for _ in range(2)]
    assert one["id"] != two["id"]
    assert one["id"].startswith("chatcmpl-")
    assert one["model"] == "m"
    assert one["system_fingerprint"] is None


async def test_2024_01_28_has_fewer_roles_and_paths(client: httpx.AsyncClient, fakes: Any) -> None:
    """The stage 2024-01-28 has no system messages, no `/ask` and no `/chat/stream`."""
    body = {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}]}
    assert (await client.post("/2024-01/chat", json=body)).status_code == 200
    response = await client.post("/2024-01-28/chat", json=body)
    assert response.status_code == 400
    assert response.json() == {"error": "messages[0].role must be one of assistant, user, not 'system'."}
    assert (await client.post("/2024-01-28/ask", json=body)).status_code == 404
    assert (await client.post("/2024-01-28/chat/stream", json=body)).status_code == 404


async def test_the_examples_request_is_answered(client: httpx.AsyncClient) -> None:
    """The specification's example request with an empty context is answered."""
    body = {
        "messages": [{"content": "What is included in my plan?", "role": "user"}],
        "stream": False,
        "context": {},
        "session_state": None,
    }
    answer = (await client.post("/2024-01-28/chat", json=body)).json()
    assert answer["choices"][0]["message"]["content"] == "At nine."
