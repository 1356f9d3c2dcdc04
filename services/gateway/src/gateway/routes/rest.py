"""The routes that are no chats, in FastAPI."""

import errno
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
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
from starlette.routing import Mount, Route

from gateway import openapi
from gateway.responses import ErrorBody, error_headers
from gateway.routes.indexes import misnamed

VERSION = "0.1.0"


def paths(*routers: FastAPI | APIRouter) -> list[str]:
    """The paths of all their routes."""
    return [route.path for router in routers for route in router.routes if isinstance(route, Route | Mount)]


def rest(routers: Sequence[APIRouter], error_body: ErrorBody) -> FastAPI:
    """The application that serves routers; its errors are those of the one tree.

    Args:
        routers: The routes.
        error_body: Writes the errors.
    """
    # With the page's scripts in the package: FastAPI's own page loads them from elsewhere.
    app = FastAPIOffline(
        title="Causeway",
        version=VERSION,
        description="Retrieval-augmented generation behind every chat protocol.",
        exception_handlers=_refusals(error_body),
        redoc_url=None,
        # `Tracing` makes the one span of a request; FastAPI's own would be a second one beside it.
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    for router in routers:
        app.include_router(router)
    openapi.describe(app)
    return app


def _refusals(error_body: ErrorBody) -> dict[int | type[Exception], Callable[..., Coroutine[Any, Any, Response]]]:
    """What FastAPI and Starlette raise in their routes, as errors of the one tree."""

    async def refused(request: Request, error: CausewayError) -> Response:
        response = Response(error_body(request.scope, error), http_status(error), media_type="application/json")
        response.raw_headers += error_headers(error)
        return response

    async def refused_by_routing(request: Request, error: HTTPException) -> Response:
        failure: CausewayError
        if isinstance(error.__cause__, CausewayError):
            # A body that a limit stopped while a form was read.
            failure = error.__cause__
        elif error.status_code == 404 and (name := misnamed(request.scope)):
            failure = InvalidRequest(f"Invalid index name: {name[:200]!r}.", field="index")
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

    async def refused_by_a_defect(request: Request, error: Exception) -> Response:
        # It is raised on, and so gets to the log.
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            # Large forms, and texts that wait to be sent, are on the disk.
            return await refused(
                request, Unavailable("The gateway's disk is full. Try again later.", retry_after=60)
            )
        return await refused(request, Internal())

    return {
        Exception: refused_by_a_defect,
        CausewayError: refused,
        HTTPException: refused_by_routing,
        RequestValidationError: refused_by_validation,
    }
