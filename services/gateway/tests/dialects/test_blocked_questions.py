"""In every protocol, the gateway refuses a blocked question or answers it with the profile's message."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from gateway.domain import Action, Detector, Detectors
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings

BLOCKED_MESSAGE = "Please ask the harbour office."
PROFILES = f"""
frontends:
  - {{name: own, mount: own, blocked_message: "{BLOCKED_MESSAGE}", allow: {{indexes: any}}}}
  - {{name: js, mount: js, dialect: "2024-01", client: azure-js-component, blocked_message: "{BLOCKED_MESSAGE}"}}
  - {{name: none, mount: none, allow: {{indexes: any}}}}
"""
BODY = {"messages": [{"role": "user", "content": "my secret?"}]}
CASES = [
    ("own", "/v1/chat/completions", {"index_name": "docs"}, "openai"),
    ("own", "/v1/chat/completions", {}, "openai"),
    ("own", "/2024-01/chat", {}, "choices"),
    ("own", "/2024-01/ask", {}, "choices"),
    ("own", "/2024-01-28/chat", {}, "choices"),
    ("own", "/2024-04/chat", {}, "lines"),
    ("own", "/2024-05-29/chat", {}, "lines"),
    ("own", "/2026-04-10/chat", {}, "lines"),
    ("js", "/chat", {}, "choices"),
]
every_protocol = pytest.mark.parametrize(("mount", "path", "more", "shape"), CASES)


@pytest.fixture
async def client(fakes: Any, tmp_path: Path) -> Any:
    (tmp_path / "frontends.yaml").write_text(PROFILES)
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    fakes.policy = Detectors(input=(Detector("words", Action.BLOCK),))
    transport = httpx.ASGITransport(build_app(Settings(default_index="docs"), fakes.services()))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


def answer_parts(body: Any) -> tuple[str, Any, Any]:
    """Return the text, the finish reason and the findings of a complete answer."""
    inside = body["choices"][0] if "choices" in body else body
    message = inside.get("message", {})
    context = inside.get("context") or message.get("context") or body
    text = message["content"] if message else body["output_text"]
    return text, inside.get("finish_reason"), context["detections"]["input"]


@every_protocol
async def test_a_blocked_question_is_answered_with_the_message_in_one_piece(
    client: httpx.AsyncClient, fakes: Any, mount: str, path: str, more: dict[str, Any], shape: str
) -> None:
    """The profile's message is the answer, the findings are listed, and the model is not called."""
    response = await client.post(f"/{mount}{path}", json=BODY | more)
    assert response.status_code == 200, response.text
    text, end, findings = answer_parts(response.json())
    assert text == BLOCKED_MESSAGE
    assert end == (None if shape == "lines" else "content_filter")
    assert [result["detection"] for result in findings[0]["results"]] == ["secret"]
    if shape != "lines":
        assert response.json()["usage"] == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert fakes.generator.prompts == []


@every_protocol
async def test_a_blocked_question_is_answered_with_the_message_in_a_stream(
    client: httpx.AsyncClient, fakes: Any, mount: str, path: str, more: dict[str, Any], shape: str
) -> None:
    """The stream has the profile's message in the protocol's lines, and ends as the protocol defines."""
    path_selects_stream = shape == "lines"
    body = BODY | more | ({} if path_selects_stream else {"stream": True})
    response = await client.post(f"/{mount}{path}{'/stream' if path_selects_stream else ''}", json=body)
    assert response.status_code == 200, response.text
    sent = [line.removeprefix("data: ") for line in response.text.splitlines() if line]
    if shape == "openai":
        assert sent.pop() == "[DONE]"
    lines = [json.loads(line) for line in sent]
    assert all("error" not in line for line in lines)
    if path.startswith("/2026"):
        text = "".join(line.get("delta", "") for line in lines)
    else:
        deltas = [(line["choices"][0] if "choices" in line else line)["delta"] for line in lines]
        text = "".join(delta.get("content") or "" for delta in deltas)
    assert text == BLOCKED_MESSAGE
    if shape != "lines":
        assert lines[-1]["choices"][0]["finish_reason"] == "content_filter"
    assert fakes.generator.prompts == []


@pytest.mark.parametrize("path", sorted({path for mount, path, _, _ in CASES if mount == "own"}))
async def test_without_a_message_the_question_is_refused(client: httpx.AsyncClient, fakes: Any, path: str) -> None:
    """A profile without a message refuses a blocked question with 400."""
    response = await client.post(f"/none{path}", json=BODY)
    assert response.status_code == 400
    assert "secret" in json.dumps(response.json()["error"])
    assert fakes.generator.prompts == []


async def test_other_questions_are_answered(client: httpx.AsyncClient) -> None:
    """A question that is not blocked gets the model's answer."""
    response = await client.post("/own/chat", json={"messages": "When does the ferry leave?"})
    assert response.json()["message"]["content"] == "At nine."
