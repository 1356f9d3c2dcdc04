"""The FastAPI application of all routes except the chats."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from servicekit.disk import is_full
from servicekit.errors import (
    CausewayError,
    Internal,
    InvalidRequest,
    MethodNotAllowed,
    Unavailable,
    http_status,
)
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route
from starlette.types import Scope

from gateway.dialects.registration import Registration
from gateway.routing.table import RouteTable
from gateway.server import openapi
from gateway.server.not_found import no_route_error
from gateway.server.responses import ErrorBody, error_headers

_log = structlog.get_logger(__name__)

VERSION = "0.1.0"


def rest(
    routers: Sequence[APIRouter], error_body: ErrorBody, dialects: Sequence[Registration], routes: RouteTable
) -> FastAPI:
    """Return the FastAPI application. It renders all errors in the format of the route.

    Args:
        routers: The routers with the routes.
        error_body: Renders the errors.
        dialects: The registrations of the dialects, which describe their routes in the OpenAPI document.
        routes: The table of all routes.
    """
    # FastAPIOffline serves the scripts of `/docs` itself. FastAPI's page loads them from another host.
    app = FastAPIOffline(
        title="Causeway",
        version=VERSION,
        description="Retrieval-augmented generation for every chat protocol.",
        exception_handlers=_error_handlers(error_body),
        redoc_url=None,
        # `Tracing` creates the span of a request. FastAPI would create a second span.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for router in routers:
        app.include_router(router)
    app.router.routes += _heads(app, *routers)
    openapi.describe(app, dialects, routes)
    return app


class _Head(Route):
    """A route that answers HEAD requests like GET requests (RFC 9110, 9.3.2), which FastAPI does not do.

    The server sends no body. Both routes share one application, because a second registration would build the
    models again and double the startup time.

    Args:
        route: The route for GET.
    """

    def __init__(self, route: APIRoute) -> None:
        super().__init__(route.path, route.endpoint, methods=["HEAD"], include_in_schema=False)
        self.app = route.app

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match a request, and set the scope's route as FastAPI does."""
        match, found = super().matches(scope)
        return match, {**found, "route": self}


def _heads(*routers: FastAPI | APIRouter) -> Iterator[_Head]:
    """Yield a HEAD route for each GET route, except streams, because a stream may never end."""
    for route in [route for router in routers for route in router.routes]:
        if not isinstance(route, APIRoute) or route.response_class is StreamingResponse:
            continue
        if "GET" in (route.methods or ()):
            yield _Head(route)


def _disk_full() -> Unavailable:
    # Large forms and large responses are in temporary files.
    return Unavailable("The gateway's disk is full. Try again later.", retry_after=60)


def _error_handlers(
    error_body: ErrorBody,
) -> dict[int | type[Exception], Callable[..., Coroutine[Any, Any, Response]]]:
    """Return the handlers that render errors, and convert those of FastAPI and Starlette to `CausewayError`."""

    async def refused(request: Request, error: CausewayError) -> Response:
        response = Response(error_body(request.scope, error), http_status(error), media_type="application/json")
        response.raw_headers += error_headers(error)
        return response

    async def refused_by_routing(request: Request, error: HTTPException) -> Response:
        failure: CausewayError
        if isinstance(error.__cause__, CausewayError):
            # A layer refused the body while FastAPI read a form.
            failure = error.__cause__
        elif is_full(error.__cause__):
            # While FastAPI reads a form, it reports every error as an invalid form.
            _log.error("the disk is full", path=request.url.path, error=str(error.__cause__))
            failure = _disk_full()
        elif error.status_code == 404:
            failure = no_route_error(request.scope)
        elif error.status_code == 405:
            failure = MethodNotAllowed(f"{request.url.path} does not accept {request.method}.")
        else:
            failure = InvalidRequest(str(error.detail))
        response = await refused(request, failure)
        response.headers.update(error.headers or {})
        return response

    async def refused_by_validation(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][1:])
        # FastAPI's message names its class `UploadFile`, which clients do not know.
        message = "A file needs a file name" if "UploadFile" in first["msg"] else first["msg"]
        return await refused(request, InvalidRequest(f"{field}: {message}.", field=field))

    async def refused_by_exception(request: Request, error: Exception) -> Response:
        # FastAPI raises the error again, and `Tracing` logs it.
        if is_full(error):
            return await refused(request, _disk_full())
        return await refused(request, Internal())

    return {
        Exception: refused_by_exception,
        CausewayError: refused,
        HTTPException: refused_by_routing,
        RequestValidationError: refused_by_validation,
    }
