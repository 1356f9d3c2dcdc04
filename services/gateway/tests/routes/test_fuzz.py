"""Random requests: the gateway answers or refuses each of them.

CAUSEWAY_FUZZ_EXAMPLES is the number of requests for each path; `make fuzz` sends many.
"""

import asyncio
import json
import os
from typing import Any

import httpx
import pytest
from causeway_testing import responses
from gateway.dialects.rag_chat.overrides import KNOWN
from gateway.dialects.rag_chat.registration import Stages
from gateway.identity.content_sealing import ContentKeys
from gateway.main import build_app
from gateway.settings import Settings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from servicekit.principal import Principal

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("CAUSEWAY_FUZZ_EXAMPLES", "100"))
PATHS = ["/v1/chat/completions", *Stages().single_stage_paths(), *Stages().bare_paths()]
STATUSES = {200, 400, 404, 413, 415}
ORCHESTRATOR = [
    "/api/v2/chat/completions-detection",
    "/api/v2/text/completions-detection",
    "/api/v2/text/generation-detection",
    "/api/v2/text/detection/stream-content",
]
BOUNDARY = "edge"

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def mostly(usual: st.SearchStrategy[Any], other: st.SearchStrategy[Any] = values) -> st.SearchStrategy[Any]:
    """Return a strategy of the usual values, with another value one time in ten."""
    # `one_of` would merge equal strategies. The number 7 is arbitrary, but 0 would be generated too often.
    return st.integers(0, 9).flatmap(lambda number: other if number == 7 else usual)


words = st.sampled_from(["When does the ferry leave?", "Hello.", " ", ""]) | st.text(max_size=20)
messages = st.fixed_dictionaries(
    {
        "role": mostly(st.sampled_from(["user", "assistant", "system", "tool", "developer"])),
        "content": mostly(words | st.just([{"type": "text", "text": "x"}])),
    },
    optional={"context": values, "tool_calls": values},
)
settings_of_a_turn = st.dictionaries(
    mostly(st.sampled_from(sorted(KNOWN))).filter(lambda name: isinstance(name, str)),
    values | st.sampled_from(["docs", "text", 3, 0.5, True, {"input": {"words": {}}}, ">>>x"]),
    max_size=4,
)
bodies = st.fixed_dictionaries(
    {"messages": mostly(st.lists(mostly(messages), min_size=1, max_size=3) | words)},
    optional={
        "context": mostly(st.fixed_dictionaries({"overrides": mostly(settings_of_a_turn)}) | settings_of_a_turn),
        "input": values,
        "stream": mostly(st.booleans()),
        "session_state": values,
        "sessionState": values,
        "index_name": mostly(st.sampled_from(["docs", "empty"])),
        "context_token_ratio": values,
        "retrieval": values,
        "detectors": values,
        "tools": values,
        "model": mostly(st.just("m")),
        "max_tokens": mostly(st.integers(1, 100)),
        "stream_options": values,
    },
)


def damaged(body: bytes, at: int, replacement: bytes) -> bytes:
    """Return the body with other bytes at a position."""
    at %= len(body) + 1
    return body[:at] + replacement + body[at + len(replacement) :]


encoded = bodies.map(lambda body: json.dumps(body).encode())
contents = mostly(
    encoded, st.builds(damaged, encoded, st.integers(0, 1000), st.binary(max_size=6)) | st.binary(max_size=60)
)
names = st.sampled_from(["json", "messages[0].files[0]", "messages[1].files[0]", "messages[0].files[1]", "x", ""])
media = st.sampled_from(["text/plain", "image/png", "application/pdf", "", "\x00/;=", "text/plain; charset=\x80"])


def form(parts: list[tuple[str, str, bytes]]) -> bytes:
    written = b"".join(
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\nContent-Type: {kind}\r\n\r\n'.encode()
        + content
        + b"\r\n"
        for name, kind, content in parts
    )
    return written + f"--{BOUNDARY}--\r\n".encode()


forms = st.builds(
    lambda body, files: form([("json", "application/json", body), *files]),
    contents,
    st.lists(st.tuples(names, media, st.binary(max_size=20)), max_size=3),
)
JSON = st.tuples(st.sampled_from(["application/json", "", "application/x+json"]), contents)
FORM = st.tuples(
    st.just(f"multipart/form-data; boundary={BOUNDARY}"),
    mostly(forms, st.builds(damaged, forms, st.integers(0, 1000), st.binary(max_size=6)) | contents),
)
OTHER = st.tuples(st.sampled_from(["multipart/form-data", "text/plain", "multipart/x", "\x00"]), forms | contents)


def requests(path: str) -> st.SearchStrategy[tuple[str, bytes]]:
    """Return a strategy of media types and contents, mostly valid for the path."""
    accepts_forms = not path.startswith(("/v1", "/2024-01", "/2024-04", "/2026")) and path != "/ask"
    return mostly(JSON | FORM if accepts_forms else JSON, FORM | OTHER)


@pytest.mark.timeout(0)  # the number of examples determines the time
@pytest.mark.parametrize("path", PATHS)
def test_any_chat_is_answered_or_refused(path: str, fakes: Any) -> None:
    """A chat request is answered, or refused with a reason. Each line of a JSON answer is valid JSON."""
    app = build_app(Settings(default_index="docs", max_body_bytes=20_000), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=transport, base_url="http://gateway")

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(requests(path))
        def ask(request: tuple[str, bytes]) -> None:
            content_type, content = request
            headers = {"content-type": content_type} if content_type else {}
            response = runner.run(client.post(path, content=content, headers=headers))
            fakes.generator.prompts.clear()
            assert response.status_code in STATUSES, response.text
            if response.status_code != 200:
                assert response.json()["error"]
            elif response.headers["content-type"].startswith("application/json"):
                assert all(json.loads(line) for line in response.content.splitlines())

        ask()
        runner.run(client.aclose())


KEYS = ContentKeys.of(b"c" * 32)
CONTENTS = [
    KEYS.seal(Principal("local"), "default", kind, text)
    for kind, text in (("reasoning", "Hm."), ("compaction", '{"text":"So.","whole":true}'))
]
items = st.fixed_dictionaries(
    {
        "type": mostly(
            st.sampled_from(
                [
                    *("message", "function_call", "function_call_output", "custom_tool_call", "item_reference"),
                    *("reasoning", "file_search_call", "additional_tools", "configuration_update", "compaction"),
                    "compaction_trigger",
                ]
            )
        ),
        "role": mostly(st.sampled_from(["user", "assistant", "system", "developer"])),
        "content": mostly(words | st.just([{"type": "input_text", "text": "x"}])),
    },
    optional={
        "call_id": mostly(words),
        "name": mostly(words),
        "arguments": mostly(words),
        "output": mostly(words),
        "encrypted_content": mostly(st.sampled_from(CONTENTS)),
        "summary": values,
        "queries": values,
        "results": values | st.just([{"filename": "a.pdf", "text": "x"}]),
        "tools": values | st.just([{"type": "function", "name": "x"}]),
        "reasoning": values | st.just({"effort": "low"}),
        "text": values | st.just({"format": {"type": "text"}}),
        "id": mostly(st.sampled_from(["msg_1", "msg_00000000000000000000000000000000_0", "rs_1"])),
    },
)
response_bodies = st.fixed_dictionaries(
    {"input": mostly(words | st.lists(mostly(items), max_size=4))},
    optional={
        "instructions": mostly(words),
        "tools": mostly(
            st.lists(
                values
                | st.fixed_dictionaries(
                    {"type": st.sampled_from(["function", "custom", "file_search", "web_search"])},
                    optional={"name": words, "vector_store_ids": values, "filters": values, "format": values},
                ),
                max_size=3,
            )
        ),
        "tool_choice": values | st.sampled_from(["auto", "none", {"type": "file_search"}]),
        "text": values | st.just({"format": {"type": "json_schema", "name": "x", "schema": {}}}),
        "reasoning": values,
        "include": values,
        "metadata": values,
        "temperature": values,
        "max_output_tokens": values,
        "stream": mostly(st.booleans()),
        "store": mostly(st.booleans()),
        "previous_response_id": mostly(st.sampled_from(["resp_0", "resp_00000000000000000000000000000000"])),
        "conversation": values | st.just({"id": "conv_00000000000000000000000000000000"}),
        "index_name": mostly(st.sampled_from(["docs", "empty"])),
        "detectors": values,
        "truncation": values,
        "moderation": values | st.just({"model": "words", "policy": {"input": {"mode": "block"}}}),
        "context_management": values | st.just([{"type": "compaction", "compact_threshold": 1}]),
    },
)
responses_requests = response_bodies.map(lambda body: json.dumps(body).encode())


@pytest.mark.timeout(0)  # the number of examples determines the time
def test_any_response_is_answered_or_refused(fakes: Any) -> None:
    """The response has the format of the reference, or is an error with a message."""
    app = build_app(Settings(default_index="docs", max_body_bytes=20_000), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=transport, base_url="http://gateway")

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(mostly(responses_requests, contents))
        def ask(content: bytes) -> None:
            headers = {"content-type": "application/json"}
            response = runner.run(client.post("/v1/responses", content=content, headers=headers))
            fakes.generator.prompts.clear()
            assert response.status_code in STATUSES, response.text
            if response.status_code != 200:
                assert response.json()["error"]
            elif response.headers["content-type"].startswith("application/json"):
                responses.response(response.json())
            else:
                responses.events(response.text)

        ask()
        runner.run(client.aclose())


compaction_bodies = st.fixed_dictionaries(
    {"input": mostly(words | st.lists(mostly(items), max_size=4)), "model": mostly(st.just("m"))},
    optional={"instructions": mostly(words), "image": values, "service_tier": values, "detectors": values},
)


@pytest.mark.timeout(0)  # the number of examples determines the time
def test_any_compaction_is_answered_or_refused(fakes: Any) -> None:
    """The compacted conversation has the format of the reference, or the response is an error with a message."""
    app = build_app(Settings(default_index="docs", max_body_bytes=20_000), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=transport, base_url="http://gateway")

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(mostly(compaction_bodies.map(lambda body: json.dumps(body).encode()), contents))
        def ask(content: bytes) -> None:
            headers = {"content-type": "application/json"}
            response = runner.run(client.post("/v1/responses/compact", content=content, headers=headers))
            fakes.generator.prompts.clear()
            assert response.status_code in STATUSES, response.text
            if response.status_code == 200:
                assert responses.compacted(response.json()).output[-1].encrypted_content
            else:
                assert response.json()["error"]

        ask()
        runner.run(client.aclose())


orchestrator_bodies = st.fixed_dictionaries(
    {},
    optional={
        "model": mostly(st.just("m")),
        "model_id": mostly(st.just("m")),
        "messages": mostly(st.lists(mostly(messages), max_size=3)),
        "prompt": mostly(words),
        "content": mostly(words),
        "stream": mostly(st.booleans()),
        "detectors": mostly(
            st.fixed_dictionaries({}, optional={"input": mostly(st.just({"words": {}})), "output": values})
            | st.just({"words": {}})
        ),
        "detector_params": values,
        "text_gen_parameters": values,
        "max_tokens": values,
    },
)
lines = st.lists(orchestrator_bodies.map(lambda body: json.dumps(body).encode()), max_size=4).map(b"\n".join)


@pytest.mark.timeout(0)  # the number of examples determines the time
@pytest.mark.parametrize("path", ORCHESTRATOR)
def test_any_request_of_the_orchestrator_is_answered_or_refused(path: str, fakes: Any) -> None:
    """The orchestrator's routes respond with a documented status and a body."""
    app = build_app(Settings(default_index="docs", max_body_bytes=20_000), fakes.services())
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    kind = "application/x-ndjson" if path.endswith("stream-content") else "application/json"
    with asyncio.Runner() as runner:
        client = httpx.AsyncClient(transport=transport, base_url="http://gateway")

        @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
        @given(mostly(st.tuples(st.just(kind), lines | contents), OTHER))
        def ask(request: tuple[str, bytes]) -> None:
            response = runner.run(client.post(path, content=request[1], headers={"content-type": request[0]}))
            fakes.generator.prompts.clear()
            assert response.status_code in STATUSES | {422}, response.text
            if response.status_code != 200:
                assert response.json()

        ask()
        runner.run(client.aclose())
