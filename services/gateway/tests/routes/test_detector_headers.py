"""The request headers that detectors get (`CAUSEWAY_DETECTOR_HEADERS`), on each kind of route."""

import json
from typing import Any

import httpx
import pytest
from gateway.dialects.orchestrator.registration import STREAM_CONTENT
from gateway.domain import Action, Detector, Detectors
from gateway.main import build_app
from gateway.settings import Settings

TEXT = {"content": "x", "detectors": {"words": {}}}
TOOL = {"name": "search", "arguments": {"query": "the bridge"}}
SEARCH = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": TOOL}


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "When?"}]}, {}),
        ("/api/v2/text/detection/content", TEXT, {}),
        (STREAM_CONTENT, TEXT, {"content-type": "application/x-ndjson"}),
        ("/mcp", SEARCH, {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}),
    ],
)
async def test_detectors_get_only_the_named_headers(
    fakes: Any, path: str, body: Any, headers: dict[str, str]
) -> None:
    """Detectors get the headers that the setting names, in any case, and no other headers."""
    fakes.policy = Detectors(input=(Detector("words", Action.BLOCK),), context=(Detector("words", Action.REDACT),))
    app = build_app(Settings(default_index="docs", detector_headers="X-Team, x-missing"), fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        sent = {"content-type": "application/json", "x-team": "harbour", "x-secret": "s", **headers}
        response = await client.post(path, content=json.dumps(body), headers=sent)
    assert response.status_code == 200, response.text
    contexts = fakes.guardrails.context
    assert contexts
    assert [context.headers for context in contexts] == [{"x-team": "harbour"}] * len(contexts)
