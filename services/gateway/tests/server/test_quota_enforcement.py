"""The effect of quotas on responses: refusals in each dialect's format, and OpenAI's headers."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from causeway_testing.servers import eventually, measured
from gateway.dialects.rag_chat.registration import Stages
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.quotas.ledger import Ledger
from gateway.quotas.limits import parse
from gateway.settings import Settings
from servicekit import api_keys

MESSAGES = [{"role": "user", "content": "When does the ferry leave?"}]
OPENAI = "/v1/chat/completions"
STAGES = sorted({*Stages().single_stage_paths(), *Stages().bare_paths()})
QUESTION: dict[str, Any] = {"messages": MESSAGES}

Limited = Callable[[str], httpx.AsyncClient]


@pytest.fixture
async def limited(fakes: Any) -> AsyncIterator[Limited]:
    """Return a function that creates a client of a gateway with the given quotas."""
    async with contextlib.AsyncExitStack() as stack:

        def make(text: str) -> httpx.AsyncClient:
            quotas = parse(text.encode(), "quotas.yaml")
            fakes.ledger = Ledger(lambda: quotas)
            transport = httpx.ASGITransport(build_app(Settings(default_index="docs"), fakes.services()))
            client = httpx.AsyncClient(transport=transport, base_url="http://gateway")
            stack.push_async_callback(client.aclose)
            return client

        yield make


@pytest.mark.parametrize("path", [*STAGES, OPENAI])
async def test_requests_above_the_quota_are_refused(limited: Limited, fakes: Any, path: str) -> None:
    """A request above the quota is refused with 429 before the model is called. All responses have the headers."""
    client = limited("defaults: {tenant: {requests_per_minute: 2, tokens_per_minute: 1000}}")
    answered = await client.post(path, json=QUESTION)
    assert answered.status_code == 200
    assert answered.headers["x-ratelimit-limit-requests"] == "2"
    assert answered.headers["x-ratelimit-remaining-requests"] == "1"
    assert answered.headers["x-ratelimit-reset-requests"].startswith("1m")
    assert answered.headers["x-ratelimit-limit-tokens"] == "1000"
    assert 0 < int(answered.headers["x-ratelimit-remaining-tokens"]) < 1000
    assert (await client.post(path, json=QUESTION)).status_code == 200
    fakes.generator.prompts.clear()
    refused = await client.post(path, json=QUESTION)
    assert refused.status_code == 429
    assert 50 <= int(refused.headers["retry-after"]) <= 65
    assert refused.headers["x-ratelimit-remaining-requests"] == "0"
    assert refused.headers["x-ratelimit-remaining-tokens"] == "980"
    assert len(refused.headers.get_list("x-ratelimit-limit-requests")) == 1
    error = refused.json()["error"]
    if path == OPENAI:
        assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limited")
        error = error["message"]
    assert "quota of 2 requests per minute" in str(error)
    assert not fakes.generator.prompts


async def test_the_tokens_of_the_answer_count(limited: Limited) -> None:
    """The tokens of the model's answer count: 7 of the prompt and 3 of the answer."""
    client = limited("defaults: {tenant: {tokens_per_minute: 25}}")
    statuses, remaining = [], []
    for stream in (False, True, False):
        response = await client.post(OPENAI, json=QUESTION | {"stream": stream, "index_name": "docs"})
        statuses.append(response.status_code)
        remaining.append(response.headers["x-ratelimit-remaining-tokens"])
    assert statuses == [200, 200, 429]
    assert remaining == ["0", "5", "5"]


async def test_reading_requests_do_not_count(limited: Limited) -> None:
    """Requests that only read do not count and get no quota headers."""
    client = limited("defaults: {tenant: {requests_per_minute: 1}}")
    assert (await client.post(OPENAI, json=QUESTION)).status_code == 200
    assert (await client.post(OPENAI, json=QUESTION)).status_code == 429
    for path in ("/v1/models", "/healthz", "/indexes", "/list_uploaded"):
        response = await client.get(path)
        assert response.status_code == 200
        assert not [name for name in response.headers if name.startswith("x-ratelimit")]


async def test_without_quotas_responses_have_no_headers(client: httpx.AsyncClient) -> None:
    """Without quotas, responses have no quota headers."""
    response = await client.post(OPENAI, json=QUESTION)
    assert not [name for name in response.headers if name.startswith("x-ratelimit")]


async def test_later_refusals_count_and_have_the_headers(limited: Limited) -> None:
    """A request that a later check refuses counts, and its response has the headers once."""
    client = limited("defaults: {tenant: {requests_per_minute: 10}}")
    for number, (path, body, status) in enumerate(
        [(OPENAI, b"{", 400), ("/nowhere", b"{}", 404), (OPENAI, b"x" * 5_000_000, 413), ("/documents", b"", 415)]
    ):
        refused = await client.post(path, content=body)
        assert refused.status_code == status
        assert refused.headers.get_list("x-ratelimit-remaining-requests") == [str(9 - number)]


async def test_a_running_request_counts_until_it_ends(limited: Limited, fakes: Any) -> None:
    """A running request counts as concurrent until it ends or its client leaves."""
    gate = fakes.generator.gate = asyncio.Event()
    client = limited("defaults: {tenant: {concurrent_requests: 1}}")
    first = asyncio.ensure_future(client.post(OPENAI, json=QUESTION))
    await eventually(lambda: bool(fakes.generator.prompts))
    refused = await client.post(OPENAI, json=QUESTION)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    first.cancel()
    await asyncio.wait([first])
    gate.set()
    assert (await client.post(OPENAI, json=QUESTION)).status_code == 200


async def test_documents_are_counted_by_their_bytes(limited: Limited, fakes: Any) -> None:
    """The bytes of documents count. An upload above the quota is refused, and a question is not."""
    client = limited("defaults: {tenant: {ingest_bytes_per_day: 1KiB}}")
    small, large = (("a.md", b"# A\n" + b"a" * size) for size in (300, 800))
    assert (await client.post("/documents", data={"index": "docs"}, files={"file": small})).status_code == 202
    refused = await client.post("/documents", data={"index": "docs"}, files={"file": large})
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) > 3600
    assert "1024 bytes of documents per day" in refused.json()["error"]["message"]
    assert len(fakes.ingest.uploads) == 1
    assert (await client.post(OPENAI, json=QUESTION)).status_code == 200


async def test_keys_have_their_own_quotas(fakes: Any, tmp_path: Path) -> None:
    """A key has its own quota on all front ends. A request without permission does not count."""
    (tmp_path / "frontends.yaml").write_text(
        "frontends: [{name: help, mount: help, index: docs, dialect: 2024-04}]"
    )
    fakes.frontends = FrontendsFile(tmp_path / "frontends.yaml")
    quotas = parse(b"keys: {loader: {requests_per_minute: 1}}", "quotas.yaml")
    fakes.ledger = Ledger(lambda: quotas)
    loader, loader_record = api_keys.create("loader", "north", roles=("ask",))
    other, other_record = api_keys.create("other", "north", roles=("ask",))
    fakes.keys.replace([loader_record, other_record])
    app = build_app(Settings(default_index="docs", auth="keys"), fakes.services())
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://g") as client:
        statuses = [
            (await client.post(path, json=QUESTION, headers={"api-key": key})).status_code
            for path, key in (
                (OPENAI, "cwk_unknown"),
                ("/documents", loader),
                ("/help/chat", loader),
                (OPENAI, loader),
                (OPENAI, other),
            )
        ]
    assert statuses == [401, 403, 200, 429, 200]


async def test_refusals_are_counted(limited: Limited) -> None:
    """Refusals are counted by tenant and quota."""

    def refusals() -> float:
        return sum(
            value
            for name, value in measured("causeway_quota_refusals_total")
            if name["causeway_reason"] == "requests"
        )

    measured("")
    client = limited("defaults: {tenant: {requests_per_minute: 1}}")
    before = refusals()
    for _ in range(3):
        await client.post(OPENAI, json=QUESTION)
    assert refusals() - before == 2
