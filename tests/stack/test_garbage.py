"""External servers that send invalid answers: model servers, embedding servers, detectors and rerankers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.links import FixedResponseServer
from servicekit.errors import Internal

pytestmark = pytest.mark.timeout(600)

ANSWERED_WITHIN = 30.0
HTML = b"<html><body>It works!</body></html>"


def http(body: bytes, content_type: str = "application/json", length: int | None = None) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {length or len(body)}\r\n\r\n"
    return head.encode() + body


ANSWERS = {
    "nothing": b"",
    "bytes": bytes(range(256)) * 64,
    "another protocol": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "half a head": b"HTTP/1.1 200 OK\r\nContent-Ty",
    "an endless head": b"HTTP/1.1 200 OK\r\n" + b"x-a: " + b"y" * 200_000,
    "a page": http(HTML, "text/html"),
    "half a body": http(b'{"choices": [', length=1000),
    "a broken chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "no JSON": http(b"{]"),
    "an error": http(b'{"error": {"message": "no", "code": 500}, "code": 500}'),
    "null": http(b"null"),
    "a deep one": http(b"[" * 50_000),
    "no UTF-8": http(b'{"choices": [{"message": {"content": "\xff\xfe"}}]}'),
    "not a number": http(b'{"data": [{"index": 0, "embedding": [NaN, 1e999]}], "results": [{"index": NaN}]}'),
    "events of nothing": http(b"data: \n\ndata: 7\n\ndata: {}\n\n", "text/event-stream"),
}
"""Responses of servers that are broken, or that are not the expected kind of server."""

QUESTION = [{"role": "user", "content": "When is high water at Kelsay?"}]
DETECTED = {"content": "mail ann@example.org", "detectors": {"judge": {}}}
RERANKED = {"messages": QUESTION, "context": {"overrides": {"index": "tides", "semantic_ranker": True}}}
FAILS: dict[str, tuple[str, Any]] = {
    "model": ("/v1/chat/completions", {"model": "garbage", "messages": QUESTION}),
    "model, with passages": (
        "/v1/chat/completions",
        {"model": "garbage", "index_name": "tides", "messages": QUESTION},
    ),
    "model, streamed": ("/v1/chat/completions", {"model": "garbage", "messages": QUESTION, "stream": True}),
    "embedding model": ("/v1/embeddings", {"model": "e5", "input": "a ferry"}),
    "detector": ("/api/v2/text/detection/content", DETECTED),
}
MODELS = """
servers: {{garbage: {{kind: openai, url: "http://127.0.0.1:{port}/v1"}}}}
models:
  - {{name: garbage, context_window: 4096, tokenizer: words, deployments: [{{server: garbage}}]}}
  - {{name: extractive, deployments: [{{server: own}}]}}
circuit: {{failures: 1000, seconds: 0.1}}
retries: {{most: 0, within: 1}}
"""
EMBEDDINGS = """
models:
  - kind: minilm
  - {{name: e5, kind: openai, url: "http://127.0.0.1:{port}/v1", dimension: 2, tries: 1, timeout: 5}}
"""
DETECTORS = """
detectors:
  judge: {{kind: text_contents, url: "http://127.0.0.1:{port}", timeout: 5}}
"""
RERANKERS = """
rerankers:
  - {{name: words, kind: http, url: "http://127.0.0.1:{port}/v1", timeout: 5, required: false}}
"""


@pytest.fixture
async def garbage_server() -> AsyncIterator[FixedResponseServer]:
    """Start a server that sends a given response to every request."""
    async with FixedResponseServer.started() as server:
        yield server


@pytest.fixture
async def stack_with_garbage_server(
    start_stack: Any, tmp_path: Path, garbage_server: FixedResponseServer
) -> AsyncIterator[Any]:
    """Start a stack with one document and the bundled model. All its external servers are the garbage server."""
    files = {
        "CAUSEWAY_MODELS_FILE": MODELS.replace("servers: {{", "servers: {{own: {{kind: extractive}}, "),
        "CAUSEWAY_EMBEDDINGS_FILE": EMBEDDINGS,
        "CAUSEWAY_GUARDRAILS_DETECTORS_FILE": DETECTORS,
        "CAUSEWAY_RERANKERS_FILE": RERANKERS,
    }
    environment = {"CAUSEWAY_MODEL": "extractive"}
    for name, text in files.items():
        file = tmp_path / f"{name}.yaml"
        file.write_text(text.format(port=garbage_server.port))
        environment[name] = str(file)
    async with start_stack(tmp_path / "data", **environment) as running:
        assert (await running.ingest())["state"] == "succeeded"
        yield running


async def test_external_servers_that_send_invalid_answers(
    stack_with_garbage_server: Any,
    garbage_server: FixedResponseServer,
    record_property: Callable[[str, object], None],
) -> None:
    """For each invalid answer, the client gets an error of the platform in limited time. If an optional reranker
    fails, the passages keep the order of the search. Repetitions leak no resources.
    """
    stack = stack_with_garbage_server
    services = ("gateway", "retriever", "generator", "guardrails")

    async def ask(answer: str, call: str) -> None:
        path, body = FAILS[call]
        requests, begin = garbage_server.requests, time.monotonic()
        raw = b""
        async with stack.http.stream("POST", path, json=body, timeout=2 * ANSWERED_WITHIN) as response:
            streamed = response.headers["content-type"].startswith("text/event-stream")
            try:
                async for piece in response.aiter_bytes():
                    raw += piece
            except httpx.RemoteProtocolError:
                assert streamed  # the stream ends abruptly after the event with the error
        text = raw.decode()
        context = (answer, call, response.status_code, text[:300])
        assert response.status_code in (500, 502, 503, 504) or streamed, context
        assert "error" in text or "code" in text, context
        assert "Traceback" not in text, context
        assert Internal.MESSAGE not in text, context  # a failure of the server is not an internal error
        assert time.monotonic() - begin < ANSWERED_WITHIN, context
        assert garbage_server.requests > requests, context

    async def run_round() -> None:
        for name, answer in ANSWERS.items():
            garbage_server.response = answer
            await asyncio.gather(*(ask(name, call) for call in FAILS))
            response = await stack.http.post("/2024-04/chat", json=RERANKED, timeout=2 * ANSWERED_WITHIN)
            chat = response.raise_for_status().json()
            assert "six in the morning" in chat["message"]["content"], name
            results = next(each for each in chat["context"]["thoughts"] if each["title"] == "Results")
            assert "The reranker 'words'" in results["props"]["notes"][0], name

    begin = time.monotonic()
    await run_round()
    record_property("seconds for each round", round(time.monotonic() - begin, 1))
    before = {name: stack.resources(name) for name in services}
    for _ in range(3):
        await run_round()
    await stack.wait_for_release(before)


async def test_an_embedding_server_that_sends_invalid_answers(
    start_stack: Any, tmp_path: Path, garbage_server: FixedResponseServer
) -> None:
    """While the embedding server sends invalid answers, the job waits and shows the reason. Afterwards it
    succeeds.
    """
    file = tmp_path / "embeddings.yaml"
    file.write_text(EMBEDDINGS.replace("  - kind: minilm\n", "").format(port=garbage_server.port))
    environment = {"CAUSEWAY_EMBEDDINGS_FILE": str(file), "CAUSEWAY_INGEST_RETRY_SECONDS": "0.1"}
    garbage_server.response = http(HTML, "text/html")
    async with start_stack(tmp_path / "data", CAUSEWAY_INGEST_MAX_ATTEMPTS="1", **environment) as stack:
        files = {"file": ("tides.md", b"# Tides\n\nHigh water is at six.\n")}
        response = await stack.http.post("/documents", data={"index": "tides"}, files=files)
        [job] = response.raise_for_status().json()["jobs"]
        end = time.monotonic() + 60
        while job["stage"] != "waiting":
            assert time.monotonic() < end, job
            await asyncio.sleep(0.05)
            job = (await stack.http.get(f"/jobs/{job['id']}")).json()
        assert "'e5'" in job["error"]["message"]
        assert garbage_server.requests
        garbage_server.response = http(b'{"data": [{"index": 0, "embedding": [0.6, 0.8]}]}')
        assert (await stack.wait_for_job(job["id"]))["state"] == "succeeded"
