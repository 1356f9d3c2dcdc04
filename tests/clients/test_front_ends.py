"""The requests of the front ends in docs/clients.md, with the front end profile of the page."""

import json
from typing import Any

import httpx
import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUESTION = {"role": "user", "content": "When will the pivot bearing be renewed?"}
ANSWER = "4 January to 19 March 2027"
SOURCE = "brannoch-bridge-maintenance-plan.pdf#page=4"
TOOLS = [
    {"type": "function", "function": {"name": f"builtin_{number}", "parameters": {"type": "object"}}}
    for number in range(30)
]


async def test_the_azure_rag_demo(platform: Any) -> None:
    """The web page gets its options, a streamed answer, and the cited document from the host name of the
    profile.
    """
    headers = {"host": "rag.example.com", "api-key": platform.key}
    async with httpx.AsyncClient(base_url=platform.url, headers=headers, timeout=60) as http:
        login = (await http.get("/auth_setup")).raise_for_status().json()
        offered = (await http.get("/config")).raise_for_status().json()
        assert (login["useLogin"], offered["showUserUpload"]) == (False, False)
        body: dict[str, Any] = {"messages": [QUESTION], "context": {"overrides": {}}, "session_state": None}
        answer = (await http.post("/chat/stream", json=body)).raise_for_status()
        first, *lines = [json.loads(line) for line in answer.text.splitlines() if line]
        assert SOURCE in first["context"]["data_points"]["citations"]
        assert ANSWER in "".join(line.get("delta", {}).get("content") or "" for line in lines)
        opened = (await http.get(f"/content/{SOURCE}")).raise_for_status()
        assert opened.content.startswith(b"%PDF")


async def test_a_chat_with_many_tools_of_its_own(platform: Any) -> None:
    """Open WebUI and LibreChat list the models, and send their tools with each question."""
    headers = {"authorization": f"Bearer {platform.key}"}
    async with httpx.AsyncClient(base_url=f"{platform.url}/harbour/v1", headers=headers, timeout=60) as http:
        models = (await http.get("/models")).raise_for_status().json()
        assert "extractive" in [each["id"] for each in models["data"]]
        body = {"model": "extractive", "messages": [QUESTION], "tools": TOOLS, "stream": True}
        answer = (await http.post("/chat/completions", json=body)).raise_for_status()
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert ANSWER in text
    assert f"[{SOURCE}]" in text
