"""The composition root: every collaborator is made here and handed down."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from servicekit import principal
from servicekit.channel import open_channel
from servicekit.errors import CausewayError, InvalidRequest, MethodNotAllowed, NotFound, http_status
from servicekit.reloadable import Reloadable
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.routing import Route

from gateway import openapi, policy
from gateway.clients import generator, guardrails, ingest, retriever
from gateway.clients.link import NatsLink
from gateway.clients.probes import GrpcProbe, NatsProbe
from gateway.domain import Detectors
from gateway.middleware import BodyLimit, Identity, Tracing
from gateway.pipeline import Pipeline
from gateway.ports import Generator, Guardrails, Ingest, Probe, Retriever
from gateway.protocols.chat_2024_04 import Chat202404
from gateway.protocols.openai_chat import OpenAiChat
from gateway.protocols.problem import problem
from gateway.routes import documents, health
from gateway.routes.chat import ChatEndpoint
from gateway.settings import Settings


@dataclass(frozen=True, slots=True)
class Services:
    """What the gateway works with: the real adapters, or fakes in tests."""

    retriever: Retriever
    generator: Generator
    guardrails: Guardrails
    ingest: Ingest
    probes: Sequence[Probe] = ()
    policy: Callable[[], Detectors] = Detectors


def build_app(settings: Settings, services: Services) -> FastAPI:
    """The ASGI application."""
    app = FastAPI(
        title="Causeway",
        version="0.1.0",
        description="Retrieval-augmented generation behind every chat protocol.",
        middleware=[
            # Outermost first. Authentication and quotas are further layers here.
            Middleware(Tracing),
            Middleware(Identity, principal=principal.LOCAL),
            Middleware(
                BodyLimit, limit=settings.max_body_bytes, exceptions={"/documents": settings.max_upload_bytes}
            ),
        ],
        exception_handlers={
            CausewayError: _refused,
            HTTPException: _refused_by_routing,
            RequestValidationError: _refused_by_validation,
        },
        redoc_url=None,
    )
    pipeline = Pipeline(
        services.retriever,
        services.generator,
        services.guardrails,
        blocked_message=settings.blocked_message,
    )
    openai_chat = OpenAiChat(services.policy)
    chat = Chat202404(settings.default_index, services.policy)

    def endpoint(dialect: OpenAiChat | Chat202404, streaming: bool | None) -> ChatEndpoint:
        return ChatEndpoint(dialect, pipeline, timeout=settings.answer_timeout, streaming=streaming)

    chats = {
        "/v1/chat/completions": endpoint(openai_chat, None),
        # The fixed mount never changes its meaning; the bare paths are the default dialect's.
        "/2024-04/chat": endpoint(chat, False),
        "/2024-04/chat/stream": endpoint(chat, True),
        "/chat": endpoint(chat, False),
        "/chat/stream": endpoint(chat, True),
    }
    for path, answer in chats.items():
        app.router.routes.append(Route(path, answer, methods=["POST"], include_in_schema=False))
    app.include_router(documents.router(services.ingest, timeout=settings.upload_timeout))
    app.include_router(health.router(services.probes))
    openapi.describe(app)
    return app


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, CausewayError)
    headers = {}
    if error.retry_after is not None:
        headers["retry-after"] = str(max(1, round(error.retry_after)))
    return Response(problem(error), http_status(error), headers, "application/json")


async def _refused_by_routing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    failure: CausewayError
    if error.status_code == 404:
        failure = NotFound(f"There is nothing at {request.url.path}.", resource=request.url.path)
    elif error.status_code == 405:
        failure = MethodNotAllowed(f"{request.url.path} does not take {request.method}.")
    else:
        failure = InvalidRequest(str(error.detail))
    response = await _refused(request, failure)
    response.headers.update(error.headers or {})
    return response


async def _refused_by_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"][1:])
    return await _refused(request, InvalidRequest(f"{field}: {first['msg']}.", field=field))


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
            file = await stack.enter_async_context(Reloadable(settings.policy_file, policy.parse))
            detectors = lambda: file.current  # noqa: E731  # a name would say no more
        yield Services(
            retriever.GrpcRetriever(channels["retriever"]),
            generator.GrpcGenerator(channels["generator"]),
            guardrails.GrpcGuardrails(channels["guardrails"]),
            ingest.NatsIngest(link.ingest),
            (*(GrpcProbe(name, channel) for name, channel in channels.items()), NatsProbe(link)),
            detectors,
        )


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: the process has one pair for all."""

    @contextlib.contextmanager
    def capture_signals(self):  # type: ignore[no-untyped-def]  # as in the base class
        yield


async def serve(settings: Settings, stop: asyncio.Event) -> None:
    """Serves until the event; running answers then get the grace of the settings."""
    async with _connected(settings) as services:
        server = _Server(
            uvicorn.Config(
                build_app(settings, services),
                host=settings.host,
                port=settings.gateway_port,
                http="httptools",
                loop="none",
                log_config=None,
                access_log=False,
                server_header=False,
                limit_concurrency=settings.max_connections,
                timeout_graceful_shutdown=max(1, int(settings.shutdown_grace)),
            )
        )
        serving = asyncio.create_task(server.serve())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((serving, stopping), return_when=asyncio.FIRST_COMPLETED)
        server.should_exit = True
        stopping.cancel()
        await serving
