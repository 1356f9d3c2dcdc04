import json
from typing import Any

import httpx


async def test_an_answer_in_one_piece(client: httpx.AsyncClient) -> None:
    """The answer's text is a string beside its context."""
    body = (await client.post("/2026-04-10/chat", json={"messages": "When?", "session_state": "s"})).json()
    assert list(body) == ["output_text", "context", "session_state"]
    assert body["output_text"] == "At nine."
    assert set(body["context"]) == {"data_points", "thoughts"}
    assert body["session_state"] == "s"


async def test_a_streamed_answer(client: httpx.AsyncClient) -> None:
    """Each line has its type, and the first and the last line have the complete context."""
    response = await client.post("/2026-04-10/chat/stream", json={"input": "When?", "session_state": "s"})
    first, *middle, last = [json.loads(line) for line in response.text.splitlines()]
    assert list(first) == list(last) == ["type", "context", "session_state"]
    assert middle == [
        {"type": "response.output_text.delta", "delta": "At "},
        {"type": "response.output_text.delta", "delta": "nine"},
        {"type": "response.output_text.delta", "delta": "."},
    ]
    assert last["context"]["data_points"] == first["context"]["data_points"]
    assert last["context"]["thoughts"][-1]["title"] == "Answer"


async def test_the_prompt_is_a_list_of_messages(client: httpx.AsyncClient, fakes: Any) -> None:
    """The prompt's thought lists messages. Earlier stages list strings."""
    body = (await client.post("/2026-04-10/chat", json={"messages": "When?"})).json()
    prompt = body["context"]["thoughts"][3]["description"]
    assert prompt == [
        {"role": message.role, "content": message.text} for message in fakes.generator.prompts[0].messages
    ]
