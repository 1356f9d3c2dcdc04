import errno
import json
import resource
from typing import Any

import httpx
import pytest
from fastapi import APIRouter, UploadFile
from fastapi.responses import StreamingResponse
from gateway.routes.rest import rest
from gateway.routes.table import ROUTES
from gateway.routing.table import RouteTable
from servicekit.errors import CausewayError, http_status
from starlette.types import Scope


def error_body(scope: Scope, error: CausewayError) -> bytes:
    return json.dumps({"error": error.message, "status": http_status(error)}).encode()


@pytest.mark.parametrize(
    ("failure", "status", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 503, "disk is full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), 503, "disk is full"),
        (OSError(errno.EIO, "Input/output error"), 500, "unexpected error"),
        (ZeroDivisionError("internal details"), 500, "unexpected error"),
    ],
)
async def test_unexpected_errors_hide_their_details(failure: Exception, status: int, message: str) -> None:
    """A full disk causes a 503, any other exception a 500. Both hide the details. The exception is raised again."""
    router = APIRouter()

    @router.get("/")
    async def fails() -> None:
        raise failure

    app = rest([router], error_body, (), RouteTable(ROUTES))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        response = await http.get("/")
    assert response.status_code == status
    assert message in response.text
    assert ("retry-after" in response.headers) == (status == 503)
    assert str(failure.args[-1]) not in response.text
    with pytest.raises(type(failure)):
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as http:
            await http.get("/")


async def test_a_form_on_a_full_disk_gets_503() -> None:
    """A form gets the status 503 and Retry-After while the disk is full."""
    router = APIRouter()

    @router.post("/")
    async def take(file: UploadFile) -> None:
        raise AssertionError

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))
    try:
        transport = httpx.ASGITransport(rest([router], error_body, (), RouteTable(ROUTES)))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
            response = await http.post("/", files={"file": ("a.md", b"x" * 2 * 1024 * 1024)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert response.status_code == 503
    assert "disk is full" in response.text
    assert response.headers["retry-after"] == "60"


async def test_get_routes_support_head(client: httpx.AsyncClient) -> None:
    """HEAD has the status and the type of GET (RFC 9110, 9.3.2), and is not in the OpenAPI document."""
    paths = [
        *("/health", "/healthz", "/readyz", "/config", "/auth_setup", "/docs", "/openapi.json", "/metrics"),
        *("/indexes", "/indexes/docs/documents", "/documents?index=docs", "/jobs", "/v1/models", "/list_uploaded"),
    ]
    for path in paths:
        read, head = await client.get(path), await client.head(path)
        assert (head.status_code, head.headers["content-type"]) == (200, read.headers["content-type"]), path
    described = (await client.get("/openapi.json")).json()
    assert not any("head" in operations for operations in described["paths"].values())


async def test_streams_do_not_support_head() -> None:
    """HEAD is refused with 405 for a stream and for a route without GET."""
    router = APIRouter()

    @router.get("/stream", response_class=StreamingResponse)
    async def stream() -> Any:
        raise AssertionError

    @router.post("/written")
    async def written() -> None:
        raise AssertionError

    transport = httpx.ASGITransport(rest([router], error_body, (), RouteTable(ROUTES)), raise_app_exceptions=False)
    async with httpx.AsyncClient(transport=transport, base_url="http://test") as http:
        for path in ("/stream", "/written"):
            assert (await http.head(path)).status_code == 405
