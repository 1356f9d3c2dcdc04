"""The composition root: it creates all collaborators and passes them on."""

import asyncio
import contextlib

import structlog
from servicekit import descriptors
from servicekit import metrics as measuring
from servicekit.errors import CausewayError
from servicekit.tasks import cancel_and_wait
from starlette.types import ASGIApp, Scope

from gateway.adapters import Services, open_services
from gateway.answering.document_reader import DocumentReader
from gateway.answering.pipeline import Pipeline
from gateway.background_runs import background_runs
from gateway.dialects.mcp.registration import PATH as MCP
from gateway.dialects.orchestrator.registration import STREAM_CONTENT
from gateway.dialects.problem import problem
from gateway.dialects.rag_chat import overrides
from gateway.dialects.registry import registrations
from gateway.dialects.responses.dialect import Responses
from gateway.frontends.profiles import Frontend
from gateway.frontends.profiles_file import GatewayProperties, Profiles
from gateway.frontends.response_policy import ResponsePolicy
from gateway.frontends.snapshot import CurrentFrontends
from gateway.response_runs.access import Access
from gateway.response_runs.background import BackgroundRuns
from gateway.response_runs.ending import Ending
from gateway.routers import front_end_routers, routers
from gateway.routes import (
    conversations,
    detectors,
    orchestrator,
    protected_resource,
    response_stream,
    responses,
    tenant_responses,
)
from gateway.routes.background import Acceptance
from gateway.routes.chat import ChatEndpoint
from gateway.routes.citation_links import CitationLinks
from gateway.routes.detector_health import DetectorHealth
from gateway.routes.dispatch import ChatRoutes
from gateway.routes.mcp import McpEndpoint
from gateway.routes.response_reading import ResponseReading
from gateway.routes.rest import VERSION, rest
from gateway.routes.session_memory import SessionMemory
from gateway.routes.stored_responses import StoredResponses
from gateway.routes.stream_content import StreamContent
from gateway.routes.table import route_table
from gateway.routes.uploads import UploadSlots
from gateway.server.admission import Admission
from gateway.server.authentication import Authentication, FixedCaller
from gateway.server.complete_forms import CompleteForms
from gateway.server.connections import Connections
from gateway.server.content_encoding import ContentDecoding
from gateway.server.cors import CorsHeaders, Preflight
from gateway.server.frontend_selection import ProfileLayer, ReachLimit
from gateway.server.http_protocol import HttpLimits
from gateway.server.http_server import HttpServer, listen, served
from gateway.server.metrics import Metrics, MetricsLayer
from gateway.server.middleware import HEALTH, BodyLimit, Tracing
from gateway.server.public_address import PublicAddress
from gateway.server.public_path import PublicPath
from gateway.server.quota_enforcement import QuotaLayer
from gateway.server.recording import AuditRequired, Recording
from gateway.server.request_state import state_of
from gateway.server.security_headers import PageHeaders
from gateway.server.signed_links import SignedLinks
from gateway.server.spool_limit import SpoolLimit
from gateway.server.web_pages import WebPages
from gateway.settings import Settings

_log = structlog.get_logger(__name__)
_MAX_UPLOADS = 4
"""The maximum number of uploads that the gateway stores concurrently."""


def build_app(settings: Settings, services: Services, *, draining: asyncio.Event | None = None) -> ASGIApp:
    """Return the ASGI application without the worker of background responses (see `build`)."""
    return build(settings, services, draining=draining)[0]


def build(
    settings: Settings,
    services: Services,
    metrics: Metrics | None = None,
    draining: asyncio.Event | None = None,
) -> tuple[ASGIApp, BackgroundRuns]:
    """Return the ASGI application, and the worker of background responses.

    The routes of chats, streams and MCP are raw ASGI applications. FastAPI serves the other routes. The middleware
    wraps both.

    Args:
        settings: The settings.
        services: The collaborators.
        metrics: The metrics for ``/metrics``. None means new metrics.
        draining: Set when the gateway begins to stop. None means a new event that is never set.
    """
    draining = draining or asyncio.Event()
    pipeline = Pipeline(
        services.retriever,
        services.generator,
        services.guardrails,
        services.pictures,
        node_tokens=settings.node_token_approximation,
    )
    dialect = Responses(settings.similarity_threshold, services.content_keys)
    dialects = registrations(settings.similarity_threshold, dialect)
    routes = route_table(dialects, metrics_open=settings.metrics_open, console=settings.console)
    metrics = metrics or Metrics()
    names = (name.strip().lower() for name in settings.detector_headers.split(","))
    detector_headers = frozenset(name.encode() for name in names if name)
    timeout = settings.answer_timeout
    address = PublicAddress(settings.public_url, settings.public_path)
    links = CitationLinks(services.link_keys, address)
    # Without authentication all requests have the same caller, so sessions are off by default.
    memory = SessionMemory(services.memory, default=settings.auth != "none")
    stored = StoredResponses(services.responses, services.response_log, services.peers)
    ending = Ending(services.responses, services.response_log, services.peers, timeout=timeout)
    access = Access(services.catalogue)
    reading = ResponseReading(
        services.responses,
        services.response_log,
        ending,
        access,
        services.calls,
        heartbeat=settings.stream_heartbeat,
    )
    metrics.readers.set_function(lambda: reading.feeds.readers)
    metrics.followed.set_function(lambda: reading.feeds.followed)
    acceptance = Acceptance(services.response_jobs, services.responses, services.response_log)
    chats = {
        chat.path: ChatEndpoint(
            chat,
            pipeline,
            timeout=timeout,
            heartbeat=settings.stream_heartbeat,
            memory=memory,
            stored=stored if chat.stores else None,
            acceptance=acceptance if chat.stores else None,
            reading=reading if chat.stores else None,
            links=links,
            passed_headers=detector_headers,
        )
        for registration in dialects
        for chat in registration.chats
    }
    contents = StreamContent(services.guardrails, timeout=timeout, passed_headers=detector_headers)

    profile_names = frozenset(name for dialect in dialects for name in dialect.profile_names)
    properties = GatewayProperties(
        frozenset(route.first_segment for route in routes), profile_names, overrides.check, services.model_names
    )
    profiles = _profiles(settings, services, properties)
    runs = background_runs(settings, services, dialect, pipeline, stored, ending, profiles)
    mcp = McpEndpoint(
        pipeline,
        DocumentReader(services.retriever, services.catalogue, services.guardrails),
        services.catalogue,
        services.indexes,
        address,
        services.calls,
        timeout=timeout,
        passed_headers=detector_headers,
    )

    def error_body(scope: Scope, error: CausewayError) -> bytes:
        errors = routes.errors(scope["path"])
        return problem(error) if errors is None else errors(state_of(scope).frontend, dict(scope["headers"]), error)

    upload_slots = UploadSlots(_MAX_UPLOADS)
    other_routers = [
        *routers(settings, services, upload_slots, draining, metrics),
        *front_end_routers(settings, services, upload_slots, draining),
        responses.router(dialect, stored, reading, services.generator, timeout=timeout),
        tenant_responses.router(services.responses, reading, ending, timeout=timeout),
        conversations.router(services.responses, services.guardrails, services.content_keys, timeout=timeout),
        orchestrator.router(services.guardrails, timeout=timeout, passed_headers=detector_headers),
        detectors.router(services.guardrails, timeout=timeout),
        protected_resource.router(profiles, address, _provider(settings)),
    ]
    others = rest(other_routers, error_body, dialects, routes)
    described = PublicPath(others, settings.public_path) if settings.public_path else others
    pages = PageHeaders(described)
    streams = response_stream.ResponseStream(reading, pages, timeout=timeout)
    raw: dict[str, ASGIApp] = {**chats, STREAM_CONTENT: contents, MCP: mcp, response_stream.PATH: streams}
    app: ASGIApp = ChatRoutes(routes, raw, pages)
    # Innermost first.
    app = BodyLimit(
        CompleteForms(app),
        limit=settings.max_body_bytes,
        upload_limit=settings.max_upload_bytes,
        pause=settings.body_pause,
    )
    app = SpoolLimit(app, settings.max_spool_bytes, settings.max_upload_bytes)
    # Outside the limits, which apply to the decoded body.
    app = ContentDecoding(app)
    app = AuditRequired(app, services.records)
    if services.ledger is not None:
        app = QuotaLayer(app, services.ledger)
    # Inside authentication, so that only identified callers learn which paths exist.
    app = ReachLimit(app, routes)
    app = _identity(app, settings, services, profiles, address)
    app = Admission(
        app,
        metrics,
        limit=settings.max_requests,
        slots=settings.max_answers,
        wait=settings.answer_wait,
        timeout=settings.answer_timeout,
    )
    app = Recording(Tracing(Preflight(app), error_body, draining), services.records, services.prices, HEALTH)
    app = CorsHeaders(MetricsLayer(app, metrics, chats, HEALTH))
    return ProfileLayer(app, profiles, routes), runs


def _identity(
    app: ASGIApp, settings: Settings, services: Services, profiles: CurrentFrontends, address: PublicAddress
) -> ASGIApp:
    keys = services.keys if settings.accepts_keys else None
    if settings.auth == "none":
        linked = SignedLinks(app, FixedCaller(app), services.link_keys, profiles, keys)
        return WebPages(linked, profiles, settings.allowed_hosts)
    identified = Authentication(app, profiles, keys, services.tokens, address)
    return SignedLinks(app, identified, services.link_keys, profiles, keys)


def _provider(settings: Settings) -> protected_resource.Provider | None:
    if not settings.accepts_tokens:
        return None
    return protected_resource.Provider(settings.oidc_issuer, tuple(settings.oidc_scopes))


def _profiles(settings: Settings, services: Services, properties: GatewayProperties) -> CurrentFrontends:
    default = Frontend(
        default_index=settings.default_index,
        blocked_message=settings.blocked_message,
        max_messages=settings.max_messages,
        max_answer_tokens=settings.max_answer_tokens,
        responses=ResponsePolicy(settings.responses),
    )
    if services.frontends is None:
        return Profiles(default, services.policy)
    file = services.frontends.load(default, properties)
    return Profiles(default, services.policy, file, services.service_policy)


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serve until the event ``stop`` is set. Running answers can then complete within the grace period.

    Raises:
        CausewayError: The address is in use, or a configuration file is invalid.
    """
    with listen(settings.host, settings.gateway_port) as listener:
        async with open_services(settings) as services, contextlib.AsyncExitStack() as watches:
            metrics = Metrics()
            measuring.install(metrics.registry)
            watches.enter_context(measuring.served(metrics.registry, settings.host, settings.metrics_port))
            app, runs = build(settings, services, metrics, stop)
            running = asyncio.create_task(runs.work(stop))
            watches.push_async_callback(runs.close)
            watches.push_async_callback(cancel_and_wait, running)
            if services.frontends is not None:
                await watches.enter_async_context(services.frontends)
            limits = HttpLimits(idle=settings.idle_timeout, pause=settings.body_pause)
            connections = Connections(descriptors.limit(settings.max_connections, "connections"))
            metrics.register_connections(connections)
            detector_health = DetectorHealth(services.guardrails, services.probes, version=VERSION)
            port, grace = settings.detector_health_port, settings.shutdown_grace
            await watches.enter_async_context(
                served(detector_health, settings.host, port, grace, limits, connections)
            )
            server = HttpServer(app, settings.shutdown_grace, limits, connections)
            serving = asyncio.create_task(server.serve([listener]))
            stopping = asyncio.create_task(stop.wait())
            _log.info("serving", host=settings.host, port=listener.getsockname()[1])
            await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
            _log.info("draining", grace=settings.shutdown_grace)
            server.should_exit = True
            stopping.cancel()
            await serving
