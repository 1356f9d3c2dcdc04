"""Agents read no secrets from the gateway, which runs with the real guardrails service.

With CAUSEWAY_LEAKS=all, which `make test-leaks` sets, the tests read a document in parts that begin and end at
every position inside each secret. Otherwise they use one position.
"""

import contextlib
import itertools
import json
import logging
import os
from collections.abc import AsyncIterator
from dataclasses import fields, replace
from typing import Any, cast

import httpx
import pytest
import pytest_asyncio
import structlog
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.indexes import FakeIndexes
from causeway_testing.gateway.records import FakeRecords
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.servers import grpc_service
from detection.detectors.patterns.matching import Limits
from detection.detectors.regex import regex
from detection.moderation.catalogue import Catalogue
from detection.moderation.thread_pool import ThreadPool
from detection.shared import JudgingLimits
from gateway.adapters import Services
from gateway.clients.guardrails import GrpcGuardrails
from gateway.dialects.mcp.tools import DEFINITIONS
from gateway.domain import Delta, Finish, Passage, Start, Usage
from gateway.frontends.profiles_file import FrontendsFile
from gateway.main import build_app
from gateway.settings import Settings
from guardrails.detectors.secrets import secrets
from guardrails.servicer import GuardrailsServicer

pytestmark = pytest.mark.asyncio(loop_scope="module")
ALL = os.environ.get("CAUSEWAY_LEAKS") == "all"
MESSAGE = "The harbour office cannot say."
BEFORE, AFTER = "Nothing of note, then ", " and so on."
SECRETS = ["123-45-6789", "4111111111111111", "ann@kelp.org", "AKIAIOSFODNN7EXAMPLE"]
ACTIONS = ("report", "redact", "block")
SIDES = ("context", "output")
DETECTORS = "[{id: regex, action: ACTION, params: {regex: [us-social-security-number, credit-card, email]}}, "
DETECTORS += "{id: secrets, action: ACTION}]"
PROFILES = "frontends:" + "".join(
    f"\n  - {{name: {side}-{action}, mount: {side}-{action}, index: docs, blocked_message: {MESSAGE}, "
    f"detectors: {{{side}: {DETECTORS.replace('ACTION', action)}}}}}"
    for side, action in itertools.product(SIDES, ACTIONS)
)
PASSAGE = Passage("p", "docs", "d", "a.md", "a.md", "", 1.0, dense_score=0.9)
SIDE = pytest.mark.parametrize("side", SIDES)
SECRET = pytest.mark.parametrize("secret", SECRETS)
HEADERS = {"accept": "application/json, text/event-stream"}


class World:
    """A gateway, and the content of its document and of its model's answer."""

    def __init__(self, client: httpx.AsyncClient, generator: FakeGenerator, retriever: FakeRetriever) -> None:
        self._client = client
        self.generator = generator
        self._retriever = retriever

    def set_document(self, secret: str) -> None:
        """Set the document to a text that contains the secret."""
        self._retriever.indexes["docs"] = [replace(PASSAGE, text=BEFORE + secret + AFTER)]

    def set_answer(self, secret: str) -> None:
        """Set the model's answer to a text that contains the secret, with one token for each character."""
        words = [[Delta(0, each)] for each in BEFORE + secret + AFTER]
        self.generator.script = [[Start(b'{"id":"x","model":"m"}')], *words, [Finish(0, "stop"), Usage(1, 1)]]

    async def send(self, mount: str, method: str, **params: Any) -> tuple[str, dict[str, Any]]:
        """Send a request, and return all text that the client receives, and the last message."""
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        response = await self._client.post(f"/{mount}/mcp", json=message, headers=HEADERS)
        assert response.status_code == 200, response.text
        text = response.text
        if response.headers["content-type"].startswith("text/event-stream"):
            lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: {")]
            return "\n".join(lines), json.loads(lines[-1])
        return text, json.loads(text)

    async def call_tool(self, mount: str, name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
        """Call a tool, and return all text that the client receives, and the result."""
        meta = {"_meta": {"progressToken": 1}} if name == "ask" else {}
        text, answer = await self.send(mount, "tools/call", name=name, arguments=arguments, **meta)
        return text, answer["result"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    """Start a gateway with a real guardrails service."""
    path = tmp_path_factory.mktemp("front-ends") / "frontends.yaml"
    path.write_text(PROFILES)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    workers = ThreadPool(1)
    servicer = GuardrailsServicer(Catalogue([regex(Limits()), secrets(Limits())]), workers, JudgingLimits())
    service = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
    async with contextlib.AsyncExitStack() as stack:
        channel = await stack.enter_async_context(
            grpc_service(
                service, lambda to: guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(servicer, to)
            )
        )
        generator, retriever = FakeGenerator(), FakeRetriever({"docs": [PASSAGE]})
        others = {each.name: object() for each in fields(Services) if each.default is each.default_factory}
        known = {
            "retriever": retriever,
            "catalogue": retriever,
            "generator": generator,
            "guardrails": GrpcGuardrails(channel),
            "indexes": FakeIndexes({"docs": {}}),
            "records": FakeRecords(),
            "frontends": FrontendsFile(path),
        }
        app = build_app(Settings(default_index="docs"), Services(**cast("Any", others | known)))
        client = await stack.enter_async_context(
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")
        )
        yield World(client, generator, retriever)
    workers.close()
    structlog.reset_defaults()


async def test_every_tool_is_tested() -> None:
    """These tests cover every tool that returns texts."""
    assert {each.name for each in DEFINITIONS} - {"list_indexes"} == {"search", "fetch", "ask"}


@SIDE
@SECRET
async def test_passages(world: World, side: str, secret: str) -> None:
    """A search returns a passage unchanged with the action report, redacted with redact, and not at all with
    block.
    """
    world.set_document(secret)
    text, result = await world.call_tool(f"{side}-report", "search", query="note")
    assert secret in text
    text, result = await world.call_tool(f"{side}-redact", "search", query="note")
    [found] = result["structuredContent"]["results"]
    assert (found["text"], secret in text) == (f"{BEFORE}[REDACTED]{AFTER}", False)
    text, result = await world.call_tool(f"{side}-block", "search", query="note")
    assert (result["structuredContent"], secret in text) == ({"results": []}, False)


@SIDE
@SECRET
async def test_documents_in_parts(world: World, side: str, secret: str) -> None:
    """A part of a document contains no piece of the secret, for every begin and end of the part. This holds for the
    tool and the resource.
    """
    world.set_document(secret)
    positions = range(len(BEFORE), len(BEFORE) + len(secret))
    tested = positions if ALL else [len(BEFORE) + len(secret) // 2]
    for at in tested:
        for offset, length in ((0, at), (at, 100), (at, 1), (max(at - 2, 0), 4)):
            _, result = await world.call_tool(f"{side}-redact", "fetch", id="docs/d", offset=offset, length=length)
            shown = result["structuredContent"]["text"]
            assert not set(pieces(secret)) & set(pieces(shown)), (offset, length, shown)
            _, result = await world.call_tool(f"{side}-block", "fetch", id="docs/d", offset=offset, length=length)
            assert (result["isError"], result["content"][0]["text"]) == (True, MESSAGE)
            uri = f"causeway://docs/d?offset={offset}&length={length}"
            _, answer = await world.send(f"{side}-redact", "resources/read", uri=uri)
            assert not set(pieces(secret)) & set(pieces(answer["result"]["contents"][0]["text"]))
            _, answer = await world.send(f"{side}-block", "resources/read", uri=uri)
            assert answer["error"]["message"] == MESSAGE


def pieces(text: str) -> list[str]:
    """Return all substrings of three characters that contain a digit or an @."""
    found = [text[at : at + 3] for at in range(len(text) - 2)]
    return [each for each in found if any(character in "0123456789@" for character in each)]


@SECRET
async def test_answers(world: World, secret: str) -> None:
    """Neither the result nor the progress messages of an answer contain text that the output detectors remove."""
    world.set_document("nothing")
    world.set_answer(secret)
    text, result = await world.call_tool("output-report", "ask", question="What?")
    assert result["structuredContent"]["answer"] == BEFORE + secret + AFTER
    text, result = await world.call_tool("output-redact", "ask", question="What?")
    assert result["structuredContent"]["answer"] == f"{BEFORE}[REDACTED]{AFTER}"
    assert not set(pieces(secret)) & set(pieces(text))
    text, result = await world.call_tool("output-block", "ask", question="What?")
    assert (result["isError"], result["content"]) == (True, [{"type": "text", "text": MESSAGE}])
    assert not set(pieces(secret)) & set(pieces(text))


@SECRET
async def test_citations(world: World, secret: str) -> None:
    """A citation has the text of its passage after the context detectors have changed it."""
    world.set_document(secret)
    world.generator.script = FakeGenerator.words("So it is [a.md].")
    text, result = await world.call_tool("context-redact", "ask", question="What?")
    [citation] = result["structuredContent"]["citations"]
    assert (citation["text"], secret in text) == (f"{BEFORE}[REDACTED]{AFTER}", False)
    assert secret not in repr(world.generator.prompts[-1])
    text, result = await world.call_tool("context-block", "ask", question="What?")
    assert (result["structuredContent"]["citations"], secret in text) == ([], False)
