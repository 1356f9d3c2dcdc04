"""Random messages of agents: the gateway answers or refuses each of them.

CAUSEWAY_FUZZ_EXAMPLES is the number of messages; `make fuzz` sends many.
"""

import asyncio
import json
import os
from typing import Any

import httpx
import pytest
from gateway.main import build_app
from gateway.settings import Settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("CAUSEWAY_FUZZ_EXAMPLES", "200"))
STATUSES = {200, 202, 400, 404, 406, 413, 415}
VERSION = "io.modelcontextprotocol/protocolVersion"
ARGUMENTS = {
    "search": ("query", "index", "top", "filters"),
    "fetch": ("id", "offset", "length", "first_page", "last_page"),
    "ask": ("question", "index", "language"),
    "list_indexes": (),
}
METHODS = (
    *("initialize", "ping", "server/discover", "tools/list", "resources/list", "resources/templates/list"),
    *("resources/read", "prompts/list", "prompts/get", "completion/complete", "logging/setLevel", "tools/call"),
    *("resources/subscribe", "subscriptions/listen/x", "tasks/get"),
    *("notifications/initialized", "notifications/cancelled", "notifications/progress"),
)

texts = st.text(st.characters(codec=None), max_size=8)  # lone surrogates, too
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)


def mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any] = values) -> st.SearchStrategy[Any]:
    """Return a strategy of the usual values, with another value one time in ten."""
    return st.integers(0, 9).flatmap(lambda number: other if number == 7 else usual)


argument_values = {
    "query": st.sampled_from(["ferry", " "]),
    "question": st.sampled_from(["When does the ferry leave?", ""]),
    "index": st.sampled_from(["docs", "empty", "none", "../x"]),
    "top": st.integers(-1, 60),
    "filters": st.dictionaries(texts, scalars, max_size=2),
    "id": st.sampled_from(["docs/d1", "docs/d9", "docs/", "/", "empty/d1", "docs/\0"]),
    "offset": st.integers(-1, 40),
    "length": st.integers(-1, 40),
    "first_page": st.integers(-1, 3),
    "last_page": st.integers(-1, 3),
    "language": st.sampled_from(["en", "7"]),
}


def arguments(name: str) -> st.SearchStrategy[Any]:
    """Return a strategy of arguments of a tool, mostly valid ones."""
    known = st.fixed_dictionaries(
        {}, optional={argument: mostly(argument_values[argument]) for argument in ARGUMENTS[name]}
    )
    return mostly(known, st.dictionaries(texts, values, max_size=3))


calls = st.sampled_from(sorted(ARGUMENTS)).flatmap(
    lambda name: st.fixed_dictionaries({"name": mostly(st.just(name)), "arguments": mostly(arguments(name))})
)
others = st.fixed_dictionaries(
    {},
    optional={
        "uri": mostly(
            st.sampled_from(["causeway://docs/d1", "causeway://docs/d1?offset=9", "causeway://[", "x:y"])
        ),
        "cursor": mostly(st.just("WyJkb2NzIiwiZDEiXQ==")),
        "name": values,
        "requestId": values,
        "protocolVersion": mostly(st.sampled_from(["2025-11-25", "2026-07-28", "1"])),
        "capabilities": mostly(st.just({})),
        "clientInfo": mostly(st.just({"name": "c", "version": "1"})),
    },
)
meta = st.fixed_dictionaries(
    {},
    optional={
        VERSION: mostly(st.just("2026-07-28")),
        "io.modelcontextprotocol/clientCapabilities": mostly(st.just({})),
        "progressToken": mostly(st.integers() | texts),
    },
)
methods = mostly(st.sampled_from(METHODS) | st.just("tools/call"))
messages = st.builds(
    lambda method, call, other, meta, number, version: {
        "jsonrpc": version,
        "method": method,
        "params": {**(call if method == "tools/call" else other), **({"_meta": meta} if meta is not None else {})},
        **({"id": number} if number != "" else {}),
    },
    methods,
    calls,
    others,
    mostly(st.none() | meta),
    mostly(st.integers(0, 9) | st.just("")),
    mostly(st.just("2.0")),
)
bodies = mostly(messages.map(json.dumps), (values | st.lists(messages, max_size=2)).map(json.dumps) | texts)
headers = st.fixed_dictionaries(
    {},
    optional={
        "accept": mostly(
            st.sampled_from(
                ["application/json", "application/json, text/event-stream", "*/*", "text/event-stream"]
            ),
            st.just("x/y"),
        ),
        "content-type": mostly(st.just("application/json"), st.sampled_from(["text/plain", ""])),
        "mcp-protocol-version": st.sampled_from(["2025-11-25", "2025-06-18", "2026-07-28", "2026-07-28", "1", ""]),
        "mcp-method": st.just("tools/call"),
        "mcp-name": st.sampled_from(["search", "ask", "=?base64?eA==?="]),
        "mcp-session-id": st.sampled_from(["s", "x" * 300]),
    },
)


@pytest.mark.timeout(0)  # the number of examples determines the time
def test_any_message_is_answered_or_refused(fakes: Any) -> None:
    """A message is answered or refused with a documented status, and no message causes an unexpected error."""
    app = build_app(Settings(default_index="docs", max_body_bytes=20_000), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=transport, base_url="http://gateway")

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck), deadline=None)
        @given(bodies, headers)
        def ask(body: str, http_headers: dict[str, str]) -> None:
            content = body.encode(errors="surrogatepass")
            response = runner.run(client.post("/mcp", content=content, headers=http_headers))
            fakes.generator.prompts.clear()
            assert response.status_code in STATUSES, response.text
            if response.content and response.headers.get("content-type", "").startswith("application/json"):
                answer = response.json()
                assert answer["jsonrpc"] == "2.0"
                assert answer.get("error", {}).get("code") != -32603, answer
                text = json.dumps(answer)
            else:
                text = response.text
            assert "unexpected error" not in text

        ask()
        runner.run(client.aclose())
