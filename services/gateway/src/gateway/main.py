"""The composition root: every collaborator is made here and handed down."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import structlog
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from servicekit import principal
from servicekit.channel import open_channel
from servicekit.errors import (
    CausewayError,
    Internal,
    InvalidRequest,
    MethodNotAllowed,
    NotFound,
    Unavailable,
    http_status,
)
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from gateway import openapi, policy
from gateway.clients import generator, guardrails, ingest, retriever
from gateway.clients.link import NatsLink
from gateway.clients.probes import GrpcProbe, NatsProbe
from gateway.domain import Detectors
from gateway.frontends import Frontend
from gateway.middleware import Admission, BodyLimit, Identity, Tracing
from gateway.pipeline import Pipeline
from gateway.ports import Catalogue, Generator, Guardrails, Ingest, Probe, Retriever
from gateway.protocols.chat_2024_04 import Chat202404
from gateway.protocols.exchange import Dialect
from gateway.protocols.openai_chat import OpenAiChat
from gateway.protocols.problem import problem
from gateway.responses import ErrorBody, error_headers
from gateway.routes import documents, health, indexes
from gateway.routes.chat import ChatEndpoint, ChatRoutes
from gateway.settings import Settings

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Services:
    """What the gateway works with: the real adapters, or fakes in tests."""

    retriever: Retriever
    generator: Generator
    guardrails: Guardrails
    ingest: Ingest
    catalogue: Catalogue
    probes: Sequence[Probe] = ()
    policy: Callable[[], Detectors] = Detectors


def build_app(settings: Settings, services: Services) -> ASGIApp:
    """The ASGI application: the chat routes raw, the others in FastAPI, and around both what holds for all."""
    pipeline = Pipeline(services.retriever, services.generator, services.guardrails)
    openai_chat = OpenAiChat()
    chat = Chat202404()

    def frontend() -> Frontend:
        return Frontend(
            default_index=settings.default_index,
            detectors=services.policy(),
            blocked_message=settings.blocked_message,
        )

    def endpoint(dialect: Dialect, streaming: bool | None) -> ChatEndpoint:
        return ChatEndpoint(dialect, pipeline, frontend, timeout=settings.answer_timeout, streaming=streaming)

    chats = {
        "/v1/chat/completions": endpoint(openai_chat, None),
        # The fixed mount never changes its meaning; the bare paths are the default dialect's.
        "/2024-04/chat": endpoint(chat, False),
        "/2024-04/chat/stream": endpoint(chat, True),
        "/chat": endpoint(chat, False),
        "/chat/stream": endpoint(chat, True),
    }

    def error_body(path: str, error: CausewayError) -> bytes:
        return chats[path].dialect.error(error) if path in chats else problem(error)

    app: ASGIApp = ChatRoutes(chats, _other_routes(settings, services, error_body))
    # Innermost first. Authentication and quotas are further layers here.
    app = BodyLimit(
        app,
        limit=settings.max_body_bytes,
        exceptions={"/documents": settings.max_upload_bytes},
        pause=settings.body_pause,
    )
    app = Identity(app, principal=principal.LOCAL)
    app = Admission(app, limit=settings.max_requests)
    return Tracing(app, error_body)


def _other_routes(settings: Settings, services: Services, error_body: ErrorBody) -> FastAPI:
    # With the page's scripts in the package: FastAPI's own page loads them from elsewhere.
    app = FastAPIOffline(
        title="Causeway",
        version="0.1.0",
        description="Retrieval-augmented generation behind every chat protocol.",
        exception_handlers=_refusals(error_body),
        redoc_url=None,
        # `Tracing` makes the one span of a request; FastAPI's own would be a second one beside it.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    app.include_router(documents.router(services.ingest, timeout=settings.upload_timeout))
    app.include_router(indexes.router(services.catalogue, timeout=settings.answer_timeout))
    app.include_router(health.router(services.probes))
    openapi.describe(app)
    return app


def _refusals(error_body: ErrorBody) -> dict[int | type[Exception], Callable[..., Coroutine[Any, Any, Response]]]:
    """What FastAPI and Starlette raise in their routes, as errors of the one tree."""

    async def refused(request: Request, error: CausewayError) -> Response:
        response = Response(error_body(request.url.path, error), http_status(error), media_type="application/json")
        response.raw_headers += error_headers(error)
        return response

    async def refused_by_routing(request: Request, error: HTTPException) -> Response:
        failure: CausewayError
        if isinstance(error.__cause__, CausewayError):
            # A body that a limit stopped while a form was read.
            failure = error.__cause__
        elif error.status_code == 404:
            failure = NotFound(f"There is nothing at {request.url.path}.", resource=request.url.path)
        elif error.status_code == 405:
            failure = MethodNotAllowed(f"{request.url.path} does not take {request.method}.")
        else:
            failure = InvalidRequest(str(error.detail))
        response = await refused(request, failure)
        response.headers.update(error.headers or {})
        return response

    async def refused_by_validation(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        return await refused(request, InvalidRequest(f"{field}: {first['msg']}.", field=field))

    async def refused_by_a_defect(request: Request, _: Exception) -> Response:
        # It is raised on, and so gets to the log.
        return await refused(request, Internal())

    return {
        Exception: refused_by_a_defect,
        CausewayError: refused,
        HTTPException: refused_by_routing,
        RequestValidationError: refused_by_validation,
    }


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
        link = await stack.enter_async_context(NatsLink(settings.nats_url, replicas=settings.nats_replicas))
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
            (*(GrpcProbe(name, channel) for name, channel in channels.items()), NatsProbe(link)),
            detectors,
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
        CausewayError: The address is taken, or the policy file is wrong.
    """
    with listen(settings.host, settings.gateway_port) as listener:
        async with _connected(settings) as services:
            server = HttpServer(build_app(settings, services), settings.shutdown_grace)
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
