"""Several front ends of one gateway do not affect each other."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.model_server import ModelServer

StartStack = Callable[..., AbstractAsyncContextManager[Any]]

STREAMS = 64
QUESTION = "What is the code of the gate?"
# The dialect of each front end, and the word that its policy redacts.
PROFILES = {"alpha": ("2024-01", "word7"), "beta": ("2024-04", "word8"), "gamma": ("2026-04-10", "word9")}
WORDS = [word for _, word in PROFILES.values()]


def profile(name: str) -> dict[str, Any]:
    dialect, word = PROFILES[name]
    detector = {"id": "ban_substrings", "action": "redact", "params": {"substrings": [word]}}
    return {
        "name": name,
        "mount": name,
        "hosts": [f"{name}.example.com"],
        "dialect": dialect,
        "index": f"index-{name}",
        "system_prompt": f"You are the voice of {name}.",
        "detectors": {"output": [detector]},
    }


@pytest.fixture
async def stack(tmp_path: Path, start_stack: StartStack) -> AsyncIterator[tuple[Any, ModelServer]]:
    """Start a stack with three front ends, each with its own index, and a model that gives all of them the same
    answer.
    """
    file = tmp_path / "frontends.yaml"
    file.write_text(json.dumps({"frontends": [profile(name) for name in PROFILES]}))  # JSON is YAML
    async with ModelServer.started(tokens=40, pace=0.01) as model:
        environment = {
            "CAUSEWAY_OPENAI_BASE_URL": model.url,
            "CAUSEWAY_OPENAI_MODELS": "stub",
            "CAUSEWAY_MODEL": "stub",
            "CAUSEWAY_FRONTENDS_FILE": str(file),
        }
        async with start_stack(tmp_path / "data", **environment) as running:
            for name in PROFILES:
                content = f"# The gate\n\nThe code of the gate is secret-of-{name}.\n".encode()
                job = await running.ingest(f"index-{name}", "gate.md", content)
                assert job["state"] == "succeeded", job
            yield running, model


async def ask(http: httpx.AsyncClient, name: str, route: str) -> httpx.Response:
    """Send a question to a front end at its mount, at its host name, or at OpenAI's route. The answer is a
    stream.
    """
    dialect = PROFILES[name][0]
    body: dict[str, Any] = {"messages": [{"role": "user", "content": QUESTION}]}
    if route == "openai":
        body |= {"stream": True, "index_name": f"index-{name}"}
        return await http.post(f"/{name}/v1/chat/completions", json=body)
    path = "/chat/stream"
    if dialect == "2024-01":
        path, body["stream"] = "/chat", True
    if route == "host":
        return await http.post(path, json=body, headers={"host": f"{name}.example.com"})
    return await http.post(f"/{name}{path}", json=body)


def text_of(body: str) -> str:
    """Return the text of a streamed answer in any dialect."""
    text = []
    for line in body.splitlines():
        payload = line.removeprefix("data: ")
        if not payload or payload == "[DONE]":
            continue
        found = json.loads(payload)
        assert "error" not in found, found
        delta = found["choices"][0]["delta"] if found.get("choices") else found.get("delta", {})
        text.append(delta if isinstance(delta, str) else delta.get("content") or "")
    return "".join(text)


async def test_front_ends_do_not_mix(stack: tuple[Any, ModelServer]) -> None:
    """In 64 concurrent streams, each front end uses only its own index, prompt and detectors."""
    running, model = stack
    requests = [(name, route) for name in PROFILES for route in ("mount", "host", "openai")]
    turns = [requests[number % len(requests)] for number in range(STREAMS)]
    limits = httpx.Limits(max_connections=STREAMS)
    async with httpx.AsyncClient(base_url=running.http.base_url, timeout=60, limits=limits) as http:
        answers = await asyncio.gather(*(ask(http, *turn) for turn in turns))
    for (name, route), answer in zip(turns, answers, strict=True):
        assert answer.status_code == 200, (name, route, answer.text)
        text, own = text_of(answer.text), PROFILES[name][1]
        assert f"secret-of-{name}" in answer.text, (name, route)
        for other in PROFILES.keys() - {name}:
            assert f"secret-of-{other}" not in answer.text, (name, route)
            assert f"voice of {other}" not in answer.text, (name, route)
        assert [word for word in WORDS if word in text] == [word for word in WORDS if word != own], (name, route)
    prompts = [
        json.dumps(request.json()["messages"]) for request in model.requests if request.path.endswith("completions")
    ]
    assert len(prompts) == STREAMS
    for prompt in prompts:
        secrets = [name for name in PROFILES if f"secret-of-{name}" in prompt]
        voices = [name for name in PROFILES if f"voice of {name}" in prompt]
        assert len(secrets) == 1, prompt
        assert voices in (secrets, []), prompt  # OpenAI's clients send their own prompt
    assert all(any(f"voice of {name}" in prompt for prompt in prompts) for name in PROFILES)


async def test_a_front_end_cannot_use_another_index(stack: tuple[Any, ModelServer]) -> None:
    """The gateway refuses the index of another front end at the mount, at the host name and on fixed paths, in
    every dialect. It does not call the model.
    """
    running, model = stack
    context = {"context": {"overrides": {"index": "index-beta"}}}
    body = {"messages": [{"role": "user", "content": QUESTION}]}
    host = {"host": "alpha.example.com"}
    before = len(model.requests)
    refused = [
        await running.http.post("/alpha/chat", json=body | context),
        await running.http.post("/alpha/2024-04/chat", json=body | context),
        await running.http.post("/chat", json=body | context, headers=host),
        await running.http.post("/2024-04/chat/stream", json=body | context, headers=host),
        await running.http.post("/alpha/v1/chat/completions", json=body | {"index_name": "index-beta"}),
        await running.http.get("/alpha/content/gate.md", params={"index": "index-beta"}),
    ]
    assert [response.status_code for response in refused] == [403] * 6, [each.text for each in refused]
    assert [each for each in list(model.requests)[before:] if each.path.endswith("completions")] == []
    assert (await running.http.get("/alpha/indexes")).status_code == 404
    assert "secret-of-alpha" in (await running.http.get("/alpha/content/gate.md")).text
