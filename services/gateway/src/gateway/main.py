"""The composition root: every collaborator is made here and handed down."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import structlog
from fastapi import APIRouter
from servicekit import metrics as measuring
from servicekit.allowed_urls import AllowedUrls
from servicekit.errors import CausewayError
from starlette.types import ASGIApp, Scope

from gateway.adapters import Services, connected
from gateway.admission import Admission
from gateway.cors import CorsHeaders, Preflight
from gateway.frontends import Frontend, FrontendsNow
from gateway.frontends_file import Profiles, Served
from gateway.http_server import HeadLimits, HttpServer, listen
from gateway.identity.access import Access, table
from gateway.identity.layers import Authentication, Identity
from gateway.metrics import Measured, Metrics
from gateway.middleware import HEALTH, BodyLimit, Tracing
from gateway.page_headers import PageHeaders
from gateway.pipeline import Pipeline
from gateway.profiles import ProfileLayer, Reach, first_segments
from gateway.protocols import overrides
from gateway.protocols.lines import error_text
from gateway.protocols.openai_chat import OpenAiChat
from gateway.protocols.problem import problem
from gateway.quotas.layer import QuotaLayer
from gateway.recording import AuditRequired, Recording
from gateway.routes import (
    application,
    content,
    detectors,
    documents,
    embeddings,
    health,
    history,
    index_settings,
    indexes,
    indexing,
    jobs,
    models,
    orchestrator,
    retrieve,
    stream_content,
)
from gateway.routes import metrics as metrics_route
from gateway.routes.detector_health import DetectorHealth
from gateway.routes.dispatch import ChatRoutes, Stages, chat_endpoints
from gateway.routes.rest import VERSION, paths, rest
from gateway.routes.stream_content import StreamContent
from gateway.routes.uploads import Turns
from gateway.settings import Settings

_log = structlog.get_logger(__name__)
_UPLOADS_AT_ONCE = 4
_UPLOADS = re.compile("/documents|/upload|/index|/indexes/[^/]+/documents")
_BATCH = re.compile(f"{_UPLOADS.pattern}|{embeddings.PATH}")


def build_app(settings: Settings, services: Services, metrics: Metrics | None = None) -> ASGIApp:
    """The ASGI application: the chat routes raw, the others in FastAPI, and around both what holds for all.

    Args:
        settings: What the gateway was told.
        services: What it works with.
        metrics: Counted in, and what ``/metrics`` shows.
    """
    pipeline = Pipeline(
        services.retriever,
        services.generator,
        services.guardrails,
        services.pictures,
        node_tokens=settings.node_token_approximation,
    )
    stages = Stages()
    metrics = metrics or Metrics()
    passed = frozenset(name.strip().lower() for name in settings.detector_headers.split(",")) - {""}
    openai, timeout = OpenAiChat(settings.similarity_threshold), settings.answer_timeout
    chats = chat_endpoints(pipeline, openai, stages, timeout=timeout, passed_headers=passed)
    chats |= orchestrator.chats(pipeline, openai, timeout=timeout, passed_headers=passed)
    contents = StreamContent(services.guardrails, timeout=timeout, passed_headers=passed)

    def error_body(scope: Scope, error: CausewayError) -> bytes:
        path = scope["path"]
        if path in chats:
            return chats[path].dialect(scope).error(error)
        if (body := orchestrator.error_body(scope, error)) is not None:
            return body
        if stage := stages.below(path):
            return stage.error(error)
        return error_text(error) if path[1:].partition("/")[0] in of_front_ends else problem(error)

    turns = Turns(_UPLOADS_AT_ONCE)
    front_end_routers = _front_end_routers(settings, services, turns)
    routers = [*_routers(settings, services, turns, metrics), *front_end_routers]
    routers += [
        orchestrator.router(services.guardrails, timeout=timeout, passed_headers=passed),
        detectors.router(services.guardrails, timeout=timeout),
    ]
    others = rest(routers, error_body)
    of_front_ends = first_segments(paths(*front_end_routers))
    served = Served(first_segments([*chats, *paths(others, *routers)]), stages.names(), overrides.check)
    app: ASGIApp = ChatRoutes({**chats, stream_content.PATH: contents}, PageHeaders(others))
    profiles = _profiles(settings, services, served)
    # Innermost first.
    app = BodyLimit(
        app,
        limit=settings.max_body_bytes,
        exceptions=[(_UPLOADS, settings.max_upload_bytes)],
        pause=settings.body_pause,
    )
    app = AuditRequired(app, services.records)
    if services.ledger is not None:
        app = QuotaLayer(app, services.ledger, [*chats, embeddings.PATH], _UPLOADS)
    # Within the identity: who is nobody learns of no path.
    app = Reach(app, first_segments([*chats, *HEALTH]) | of_front_ends)
    app = _identity(app, settings, services, profiles)
    app = Admission(
        app,
        metrics,
        limit=settings.max_requests,
        places=settings.max_answers,
        wait=settings.answer_wait,
        timeout=settings.answer_timeout,
        answers=chats,
        batch=_BATCH,
    )
    app = Recording(Tracing(Preflight(app), error_body), services.records, services.prices, HEALTH)
    app = CorsHeaders(Measured(app, metrics, HEALTH))
    return ProfileLayer(app, profiles)


def _identity(app: ASGIApp, settings: Settings, services: Services, profiles: FrontendsNow) -> ASGIApp:
    if settings.auth == "none":
        return Identity(app)
    access = Access(table(metrics_open=settings.metrics_open))
    return Authentication(app, access, profiles, services.keys if settings.takes_keys else None, services.tokens)


def _profiles(settings: Settings, services: Services, served: Served) -> FrontendsNow:
    default = Frontend(
        default_index=settings.default_index,
        blocked_message=settings.blocked_message,
        max_messages=settings.max_messages,
        max_answer_tokens=settings.max_answer_tokens,
    )
    if services.frontends is None:
        return Profiles(default, services.policy)
    file = services.frontends.load(default, served)
    return Profiles(default, services.policy, file, services.service_policy)


def _routers(settings: Settings, services: Services, turns: Turns, metrics: Metrics) -> list[APIRouter]:
    """The routes besides the chats, for those who run the platform."""
    return [
        documents.router(
            services.ingest,
            services.catalogue,
            turns,
            AllowedUrls.of(settings.ingest_urls),
            timeout=settings.upload_timeout,
        ),
        jobs.router(services.ingest, services.jobs, timeout=settings.upload_timeout, watch=settings.watch_timeout),
        indexing.router(
            services.texts,
            services.retriever,
            turns,
            upload_timeout=settings.upload_timeout,
            index_timeout=settings.index_timeout,
        ),
        indexes.router(
            services.indexes,
            services.catalogue,
            services.pictures,
            services.originals,
            timeout=settings.answer_timeout,
        ),
        index_settings.router(services.indexes, timeout=settings.answer_timeout),
        retrieve.router(services.retriever, timeout=settings.answer_timeout),
        models.router(services.generator, services.embedder, timeout=settings.answer_timeout),
        embeddings.router(services.embedder, timeout=settings.answer_timeout),
        metrics_route.router(metrics, tenants=settings.auth == "none" or settings.metrics_open),
        health.router(services.probes),
    ]


def _front_end_routers(settings: Settings, services: Services, turns: Turns) -> list[APIRouter]:
    """The routes besides the chats that every front end has."""
    return [
        application.router(
            services.ingest,
            services.catalogue,
            services.pictures,
            services.originals,
            services.generator,
            turns,
            timeout=settings.upload_timeout,
            login=_login(settings),
        ),
        content.router(services.catalogue, services.originals, timeout=settings.upload_timeout),
        history.router(services.history, timeout=settings.answer_timeout),
    ]


def _login(settings: Settings) -> application.Login | None:
    if not settings.takes_tokens or not settings.oidc_client_id:
        return None
    # Entra ID's issuers end with a version that its login library adds by itself.
    authority = settings.oidc_issuer.removesuffix("/v2.0")
    return application.Login(settings.oidc_client_id, authority, settings.oidc_scopes)


@contextlib.asynccontextmanager
async def _detector_health(settings: Settings, services: Services, head: HeadLimits) -> AsyncIterator[None]:
    """The guardrails orchestrator's health API, where it has a port."""
    if settings.detector_health_port is None:
        yield
        return
    app = DetectorHealth(services.guardrails, services.probes, version=VERSION)
    with listen(settings.host, settings.detector_health_port) as listener:
        server = HttpServer(app, settings.shutdown_grace, head)
        serving = asyncio.create_task(server.serve([listener]))
        _log.info("serving health", host=settings.host, port=listener.getsockname()[1])
        try:
            yield
        finally:
            server.should_exit = True
            await serving


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serves until the event; running answers then get the grace of the settings.

    Raises:
        CausewayError: The address is taken, or a configuration file is wrong.
    """
    with listen(settings.host, settings.gateway_port) as listener:
        async with connected(settings) as services, contextlib.AsyncExitStack() as watches:
            metrics = Metrics()
            measuring.install(metrics.registry)
            watches.enter_context(measuring.served(metrics.registry, settings.host, settings.metrics_port))
            app = build_app(settings, services, metrics)
            if services.frontends is not None:
                await watches.enter_async_context(services.frontends)
            head = HeadLimits(
                settings.max_header_bytes, settings.max_headers, settings.header_timeout, settings.body_pause
            )
            await watches.enter_async_context(_detector_health(settings, services, head))
            server = HttpServer(app, settings.shutdown_grace, head)
            serving = asyncio.create_task(server.serve([listener]))
            stopping = asyncio.create_task(stop.wait())
            _log.info("serving", host=settings.host, port=listener.getsockname()[1])
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            _log.info("draining", grace=settings.shutdown_grace)
            server.should_exit = True
            stopping.cancel()
            await serving
