"""The composition root: every collaborator is made here and handed down."""

import asyncio
import contextlib
import re
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
import uvicorn
from fastapi import APIRouter
from servicekit import principal
from servicekit.channel import open_channel
from servicekit.errors import CausewayError, Unavailable
from starlette.types import ASGIApp, Scope

from gateway import policy
from gateway.clients import generator, guardrails, ingest, retriever
from gateway.clients.embedder import GrpcEmbedder
from gateway.clients.history import NatsHistory
from gateway.clients.indexes import GrpcIndexes
from gateway.clients.link import NatsLink
from gateway.clients.originals import NatsOriginals
from gateway.clients.pictures import NatsPictures
from gateway.clients.probes import GrpcProbe, NatsProbe
from gateway.clients.texts import NatsTexts
from gateway.cors import CorsHeaders, Preflight
from gateway.domain import Detectors
from gateway.file_cache import FileCache
from gateway.frontends import Frontend, FrontendsNow
from gateway.frontends_file import FrontendsFile, Profiles, Served
from gateway.metrics import Measured, Metrics
from gateway.middleware import HEALTH, Admission, BodyLimit, Identity, Tracing
from gateway.pipeline import Pipeline
from gateway.ports import Catalogue, Generator, Guardrails, History, Ingest, Originals, Pictures, Probe, Retriever
from gateway.ports_index import Embedder, Indexes, Texts
from gateway.profiles import ProfileLayer, Reach, first_segments
from gateway.protocols import overrides
from gateway.protocols.lines import error_text
from gateway.protocols.openai_chat import OpenAiChat
from gateway.protocols.problem import problem
from gateway.routes import (
    application,
    content,
    documents,
    embeddings,
    health,
    history,
    indexes,
    indexing,
    models,
    retrieve,
)
from gateway.routes import metrics as metrics_route
from gateway.routes.dispatch import ChatRoutes, Stages, chat_endpoints
from gateway.routes.rest import paths, rest
from gateway.routes.uploads import Turns
from gateway.settings import Settings

_log = structlog.get_logger(__name__)
_UPLOADS_AT_ONCE = 4
_UPLOADS = re.compile("/documents|/upload|/index|/indexes/[^/]+/documents")


@dataclass(frozen=True, slots=True)
class Services:
    """What the gateway works with: the real adapters, or fakes in tests."""

    retriever: Retriever
    generator: Generator
    guardrails: Guardrails
    ingest: Ingest
    catalogue: Catalogue
    originals: Originals
    pictures: Pictures
    history: History
    texts: Texts
    indexes: Indexes
    embedder: Embedder
    probes: Sequence[Probe] = ()
    policy: Callable[[], Detectors] = Detectors
    frontends: FrontendsFile | None = None


def build_app(settings: Settings, services: Services) -> ASGIApp:
    """The ASGI application: the chat routes raw, the others in FastAPI, and around both what holds for all."""
    pipeline = Pipeline(
        services.retriever,
        services.generator,
        services.guardrails,
        services.pictures,
        node_tokens=settings.node_token_approximation,
    )
    stages = Stages()
    metrics = Metrics()
    chats = chat_endpoints(
        pipeline, OpenAiChat(settings.similarity_threshold), stages, timeout=settings.answer_timeout
    )

    def error_body(scope: Scope, error: CausewayError) -> bytes:
        path = scope["path"]
        if path in chats:
            return chats[path].dialect(scope).error(error)
        if stage := stages.below(path):
            return stage.error(error)
        return error_text(error) if path[1:].partition("/")[0] in of_front_ends else problem(error)

    turns = Turns(_UPLOADS_AT_ONCE)
    front_end_routers = _front_end_routers(settings, services, turns)
    routers = [*_routers(settings, services, turns, metrics), *front_end_routers]
    others = rest(routers, error_body)
    of_front_ends = first_segments(paths(*front_end_routers))
    served = Served(first_segments([*chats, *paths(others, *routers)]), stages.names(), overrides.check)
    app: ASGIApp = ChatRoutes(chats, others)
    # Innermost first. Authentication and quotas are further layers here.
    app = BodyLimit(
        app,
        limit=settings.max_body_bytes,
        exceptions=[(_UPLOADS, settings.max_upload_bytes)],
        pause=settings.body_pause,
    )
    app = Identity(app, principal=principal.LOCAL)
    app = Admission(app, limit=settings.max_requests)
    app = Preflight(Reach(app, first_segments([*chats, *HEALTH]) | of_front_ends))
    app = CorsHeaders(Measured(Tracing(app, error_body), metrics, HEALTH))
    return ProfileLayer(app, _profiles(settings, services, served))


def _profiles(settings: Settings, services: Services, served: Served) -> FrontendsNow:
    default = Frontend(default_index=settings.default_index, blocked_message=settings.blocked_message)
    if services.frontends is None:
        return Profiles(default, services.policy)
    return Profiles(default, services.policy, services.frontends.load(default, served))


def _routers(settings: Settings, services: Services, turns: Turns, metrics: Metrics) -> list[APIRouter]:
    """The routes besides the chats, for those who run the platform."""
    return [
        documents.router(services.ingest, turns, timeout=settings.upload_timeout),
        indexing.router(
            services.texts,
            services.retriever,
            turns,
            upload_timeout=settings.upload_timeout,
            index_timeout=settings.index_timeout,
        ),
        indexes.router(services.indexes, services.catalogue, services.pictures, timeout=settings.answer_timeout),
        retrieve.router(services.retriever, timeout=settings.answer_timeout),
        models.router(services.generator, services.embedder, timeout=settings.answer_timeout),
        embeddings.router(services.embedder, timeout=settings.answer_timeout),
        metrics_route.router(metrics),
        health.router(services.probes),
    ]


def _front_end_routers(settings: Settings, services: Services, turns: Turns) -> list[APIRouter]:
    """The routes besides the chats that every front end has."""
    return [
        application.router(
            services.ingest,
            services.catalogue,
            services.pictures,
            services.generator,
            turns,
            timeout=settings.upload_timeout,
        ),
        content.router(services.catalogue, services.originals, timeout=settings.upload_timeout),
        history.router(services.history, timeout=settings.answer_timeout),
    ]


@contextlib.asynccontextmanager
async def _connected(settings: Settings) -> AsyncIterator[Services]:
    """The real adapters, closed at the end."""
    async with contextlib.AsyncExitStack() as stack:
        channels = {
            "retriever": open_channel(settings.retriever_target, [retriever.DESCRIPTOR]),
            "generator": open_channel(settings.generator_target, [generator.DESCRIPTOR]),
            "guardrails": open_channel(settings.guardrails_target, [guardrails.DESCRIPTOR]),
        }
        for channel in channels.values():
            await stack.enter_async_context(channel)
        link = await stack.enter_async_context(
            NatsLink(settings.nats_url, replicas=settings.nats_replicas, history_days=settings.history_days)
        )
        cache = FileCache(
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="causeway-originals-"))),
            settings.content_cache_bytes,
        )
        detectors: Callable[[], Detectors] = Detectors
        if settings.policy_file is not None:
            file = await stack.enter_async_context(policy.load(settings.policy_file))
            detectors = lambda: file.current  # noqa: E731  # a name would say no more
        passages = retriever.GrpcRetriever(channels["retriever"])
        yield Services(
            passages,
            generator.GrpcGenerator(channels["generator"]),
            guardrails.GrpcGuardrails(channels["guardrails"]),
            ingest.NatsIngest(link.ingest),
            passages,
            NatsOriginals(link.ingest, cache),
            NatsPictures(link.ingest),
            NatsHistory(link.history),
            NatsTexts(link.ingest),
            GrpcIndexes(channels["retriever"]),
            GrpcEmbedder(channels["retriever"]),
            (*(GrpcProbe(name, channel) for name, channel in channels.items()), NatsProbe(link)),
            detectors,
            FrontendsFile(settings.frontends_file) if settings.frontends_file is not None else None,
        )


class HttpServer(uvicorn.Server):
    """uvicorn as the gateway runs it: without signal handlers of its own, the process has one pair for all.

    Args:
        app: The ASGI application.
        grace: Seconds that running answers get when the server stops.
    """

    def __init__(self, app: ASGIApp, grace: float) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                loop="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, int(grace)),
            )
        )

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # as in the base class
        """Leaves the signals alone."""
        yield


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serves until the event; running answers then get the grace of the settings.

    Raises:
        CausewayError: The address is taken, or a configuration file is wrong.
    """
    with listen(settings.host, settings.gateway_port) as listener:
        async with _connected(settings) as services, contextlib.AsyncExitStack() as watches:
            app = build_app(settings, services)
            if services.frontends is not None:
                await watches.enter_async_context(services.frontends)
            server = HttpServer(app, settings.shutdown_grace)
            serving = asyncio.create_task(server.serve([listener]))
            stopping = asyncio.create_task(stop.wait())
            _log.info("serving", host=settings.host, port=listener.getsockname()[1])
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            _log.info("draining", grace=settings.shutdown_grace)
            server.should_exit = True
            stopping.cancel()
            await serving


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one.

    Raises:
        Unavailable: The address is taken, or is none of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise Unavailable(f"Cannot listen on {host}, port {port}: {error.strerror or error}.") from None
