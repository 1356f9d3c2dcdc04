from collections.abc import Callable
from typing import Any

import httpx2
import pytest
from causeway_testing.servers import free_ports
from gateway.identity.oidc import fetch


def responding(status: int, body: bytes, headers: Any = ()) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": list(headers)})
        await send({"type": "http.response.body", "body": body})

    return app


async def test_a_document_is_fetched(serve: Callable[[Any], int]) -> None:
    """The body of the document is returned unchanged."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        assert await fetch(http, f"http://127.0.0.1:{serve(responding(200, b'{}'))}/keys") == b"{}"


@pytest.mark.parametrize(
    ("status", "body", "headers", "message"),
    [
        (404, b"", (), "status 404"),
        (302, b"", [(b"location", b"http://127.0.0.1:1/keys")], "status 302"),
        (500, b"{}", (), "status 500"),
        (200, b" " * (1024 * 1024 + 1), (), "more than 1 MiB"),
    ],
)
async def test_other_responses_are_refused(
    serve: Callable[[Any], int], status: int, body: bytes, headers: Any, message: str
) -> None:
    """Errors, redirects and bodies above 1 MiB are refused."""
    port = serve(responding(status, body, headers))
    async with httpx2.AsyncClient(trust_env=False) as http:
        with pytest.raises(OSError, match=message):
            await fetch(http, f"http://127.0.0.1:{port}/keys")


async def test_a_provider_that_cannot_be_reached() -> None:
    """A failed connection raises an `OSError`, which the provider's keys handle."""
    async with httpx2.AsyncClient(trust_env=False) as http:
        with pytest.raises(OSError, match=r"."):
            await fetch(http, f"http://127.0.0.1:{free_ports(1)[0]}/keys")
