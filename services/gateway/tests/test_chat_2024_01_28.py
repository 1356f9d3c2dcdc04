from typing import Any

import httpx


async def test_it_is_the_stage_before_it_less_a_role_and_a_path(client: httpx.AsyncClient, fakes: Any) -> None:
    """No system messages, no questions without a conversation."""
    body = {"messages": [{"role": "system", "content": "x"}, {"role": "user", "content": "hi"}]}
    assert (await client.post("/2024-01/chat", json=body)).status_code == 200
    response = await client.post("/2024-01-28/chat", json=body)
    assert response.status_code == 400
    assert response.json() == {"error": "messages[0].role must be one of assistant, user, not 'system'."}
    assert (await client.post("/2024-01-28/ask", json=body)).status_code == 404
    assert (await client.post("/2024-01-28/chat/stream", json=body)).status_code == 404


async def test_the_examples_request_is_answered(client: httpx.AsyncClient) -> None:
    """The specification's own, whose context is empty."""
    body = {
        "messages": [{"content": "What is included in my plan?", "role": "user"}],
        "stream": False,
        "context": {},
        "session_state": None,
    }
    answer = (await client.post("/2024-01-28/chat", json=body)).json()
    assert answer["choices"][0]["message"]["content"] == "At nine."
