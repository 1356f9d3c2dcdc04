import json
from typing import Any

import httpx
import structlog
from gateway.accounting import Account
from gateway.identity.caller import Caller
from gateway.log_line import fields, pseudonym
from servicekit.principal import Principal

SECRET = "Does anybody know of the ferry's treasure?"


async def test_what_a_chats_line_says(client: httpx.AsyncClient, fakes: Any) -> None:
    """What it was, how it went, what it took; not a word of question or answer."""
    body = {"messages": [{"role": "user", "content": SECRET}], "index_name": "docs"}
    with structlog.testing.capture_logs() as logs:
        response = await client.post("/v1/chat/completions", json=body)
    [line] = [entry for entry in logs if entry["event"] == "request"]
    assert line["trace_id"] == response.headers["x-trace-id"]
    assert {name: line[name] for name in ("method", "route", "status", "tenant", "frontend", "index")} == {
        "method": "POST",
        "route": "/v1/chat/completions",
        "status": 200,
        "tenant": "local",
        "frontend": "default",
        "index": "docs",
    }
    assert line["dialect"]
    assert line["nodes_kept"] > 0
    assert line["request_bytes"] == len(response.request.content)
    for name in ("duration_ms", "first_token_ms", "input_tokens", "output_tokens"):
        assert line[name] > 0, name
    text = json.dumps(line)
    assert "treasure" not in text
    assert response.json()["choices"][0]["message"]["content"] not in text


async def test_what_is_refused_is_logged_by_its_dialect(client: httpx.AsyncClient) -> None:
    """Also what could not be read; what has no value is left out."""
    with structlog.testing.capture_logs() as logs:
        await client.post("/2024-04/chat", content=b"{")
        await client.get("/nowhere/at/all")
    lines = [entry for entry in logs if entry["event"] == "request"]
    assert [(line["route"], line["status"]) for line in lines] == [("/2024-04/chat", 400), ("", 404)]
    assert lines[0]["dialect"]
    assert not lines[0].keys() & {"model", "input_tokens", "detections", "nodes_kept"}


async def test_a_retrieval_says_where_and_how_much(client: httpx.AsyncClient) -> None:
    """The index, and the number of passages."""
    with structlog.testing.capture_logs() as logs:
        response = await client.post("/retrieve", json={"index_name": "docs", "query": "ferry"})
    assert response.status_code == 200
    [line] = [entry for entry in logs if entry["event"] == "request"]
    assert (line["route"], line["index"]) == ("/retrieve", "docs")
    assert line["nodes_kept"] > 0


def test_who_asked() -> None:
    """An API key by its id; a user by a name that tells nothing, the same each time, another for each tenant's."""

    def line(caller: Caller) -> dict[str, Any]:
        state = {"caller": caller, "log": {"key": caller.key_id} if caller.key_id else {}}
        return fields(Account(state, "/chat", 0.1), "POST", "/chat", state)

    ada = line(Caller(Principal("north", user="ada@example.org")))
    assert ada["user"] == pseudonym("north", "ada@example.org") != pseudonym("south", "ada@example.org")
    assert "ada" not in json.dumps(ada)
    key = line(Caller(Principal("north", user="ada@example.org"), key_id="k1"))
    assert (key["key"], "user" in key) == ("k1", False)
    assert pseudonym("north", "") == ""
