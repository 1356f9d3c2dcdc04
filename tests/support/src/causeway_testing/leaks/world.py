"""A gateway with the real guardrails service, whose profiles report, redact or block secrets."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, cast

from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from detection.detectors.ban_substrings import ban_substrings
from detection.detectors.factory import BuiltIn
from detection.detectors.params import Params
from detection.detectors.patterns.matching import Limits
from detection.detectors.regex import regex
from detection.domain import DetectorKind
from detection.moderation.catalogue import Catalogue
from detection.moderation.thread_pool import ThreadPool
from detection.shared import JudgingLimits
from embedding.port import Embedder
from gateway.adapters import Services
from gateway.clients.guardrails import GrpcGuardrails
from gateway.domain import Delta, Finish, Passage, Start, Usage
from gateway.frontends.profiles_file import FrontendsFile
from gateway.identity.content_sealing import ContentKeys
from gateway.main import build_app
from gateway.settings import Settings
from guardrails.detectors.groundedness.detector import groundedness
from guardrails.detectors.secrets import secrets
from guardrails.servicer import GuardrailsServicer
from starlette.types import ASGIApp, Message

from causeway_testing.gateway.answering import FakeGenerator
from causeway_testing.gateway.application import FakeResponses
from causeway_testing.gateway.records import FakeRecords
from causeway_testing.gateway.response_log import FakeResponseLog
from causeway_testing.gateway.retrieval import FakeRetriever
from causeway_testing.guardrails.fake import ScriptedJudge
from causeway_testing.leaks.routes import Route
from causeway_testing.servers import grpc_service

MESSAGE = "The harbour office cannot say."
DETECTORS = """
      - {id: regex, action: ACTION, params: {regex: [us-social-security-number, credit-card, email]}}
      - {id: secrets, action: ACTION}
      - {id: ban_substrings, action: ACTION, params: {substrings: [project tern]}}
"""
ACTIONS = ("report", "redact", "block")
PROFILES = (
    "policies:"
    + "".join(
        f"\n  {each}:\n    blocked_message: {MESSAGE}"
        f"\n    input: {DETECTORS.replace('ACTION', each)}\n    output: {DETECTORS.replace('ACTION', each)}"
        for each in ACTIONS
    )
    + "\nfrontends:"
    + "".join(
        f"\n  - {{name: {each}, mount: {each}, policy: {each}, allow: {{indexes: any, models: any}}}}"
        for each in ACTIONS
    )
)
PASSAGE = Passage("p", "docs", "d", "a.md", "a.md", "What the harbour knows.", 1.0, dense_score=0.9)
QUESTION = [{"role": "user", "content": "What do you know?"}]


@dataclass
class World:
    """The gateway, its fakes, and the keys of encrypted content."""

    app: ASGIApp
    generator: FakeGenerator
    retriever: FakeRetriever
    responses: FakeResponses
    keys: ContentKeys

    async def ask(self, route: Route, mount: str, tokens: Sequence[str], **members: Any) -> tuple[int, bytes]:
        """Send a request, and return the status and the bytes of the answer. The model generates the given
        tokens.
        """
        script: list[Any] = [[Start(b'{"id":"x","model":"m"}')], *([Delta(0, token)] for token in tokens)]
        return await self.ask_with_events(route, mount, [*script, [Finish(0, "stop"), Usage(1, 1)]], **members)

    async def ask_with_events(
        self, route: Route, mount: str, script: list[Any], **members: Any
    ) -> tuple[int, bytes]:
        """Send a request, and return the status and the bytes of the answer. The model server sends the given
        events.
        """
        self.generator.script = script
        body = json.dumps(route.body(members.pop("messages", QUESTION), members)).encode()
        scope = {
            "type": "http",
            "http_version": "1.1",
            "scheme": "http",
            "method": "POST",
            "path": f"/{mount}{route.path}",
            "raw_path": b"",
            "query_string": b"",
            "headers": [(b"content-type", b"application/json"), (b"host", b"localhost")],
            "state": {},
        }
        requests = iter([{"type": "http.request", "body": body}])
        status, pieces = 0, []

        async def receive() -> Message:
            if (request := next(requests, None)) is not None:
                return request
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            pieces.append(message.get("body", b""))

        await self.app(scope, receive, send)
        return status, b"".join(pieces)


async def _no_embedder() -> Embedder:
    raise AssertionError("the test needs no embeddings")


@contextlib.asynccontextmanager
async def open_world(directory: Path) -> AsyncIterator[World]:
    """Start a gateway with a real guardrails service. The directory gets the file of the profiles."""
    workers = ThreadPool(1)
    grounded = groundedness(_no_embedder, 1.0)
    relevance = BuiltIn(
        "relevance",
        "",
        Params,
        lambda _: ScriptedJudge("?", kind=DetectorKind.GENERATION),
        kind=DetectorKind.GENERATION,
    )
    catalogue = Catalogue([regex(Limits()), secrets(Limits()), ban_substrings(Limits()), grounded, relevance])
    servicer = GuardrailsServicer(catalogue, workers, JudgingLimits(100_000))
    service = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
    (directory / "frontends.yaml").write_text(PROFILES)
    async with contextlib.AsyncExitStack() as stack:
        channel = await stack.enter_async_context(
            grpc_service(
                service, lambda to: guardrails_pb2_grpc.add_GuardrailsServiceServicer_to_server(servicer, to)
            )
        )
        generator = FakeGenerator()
        retriever = FakeRetriever({"docs": [PASSAGE]})
        # The chats call only the services of `known`. The others are placeholders.
        others = {each.name: object() for each in fields(Services) if each.default is each.default_factory}
        known = {
            "retriever": retriever,
            "generator": generator,
            "guardrails": GrpcGuardrails(channel),
            "records": FakeRecords(),
            "responses": (stored := FakeResponses()),
            "response_log": FakeResponseLog(),
            "frontends": FrontendsFile(directory / "frontends.yaml"),
            "content_keys": (keys := ContentKeys.of(b"c" * 32)),
        }
        services = Services(**cast("Any", others | known))
        yield World(build_app(Settings(default_index="docs"), services), generator, retriever, stored, keys)
    workers.close()
