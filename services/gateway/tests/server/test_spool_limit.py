"""The disk space for uploads is reserved before the body is read, and released at the end."""

from typing import Any

import pytest
from gateway.routing.route import Role, Route
from gateway.server.request_state import state_of
from gateway.server.spool_limit import SpoolLimit
from servicekit.errors import RateLimited

UPLOAD = Route("/documents", "POST", Role.INGEST, upload=True)
QUESTION = Route("/chat", "POST", Role.ASK)


class NestedUploads:
    """An application behind the limit that sends a further request while it serves a request.

    Attributes:
        within: The requests to send, the last one first.
        served: The number of served requests.
    """

    def __init__(self, room: int) -> None:
        self.limit = SpoolLimit(self.serve, room, 100)
        self.within: list[dict[str, Any]] = []
        self.served = 0

    async def serve(self, scope: Any, receive: Any, send: Any) -> None:
        self.served += 1
        if self.within:
            await self.ask(**self.within.pop())

    async def ask(self, route: Route = UPLOAD, length: bytes | None = None) -> None:
        scope: dict[str, Any] = {"type": "http", "headers": []}
        if length is not None:
            scope["headers"].append((b"content-length", length))
        state_of(scope).route = route
        await self.limit(scope, None, None)  # type: ignore[arg-type]  # not used


async def test_uploads_share_the_space() -> None:
    """Uploads share the space. An upload without space is refused with Retry-After. The space is released."""
    uploads = NestedUploads(200)
    uploads.within = [{"length": b"1"}, {"length": b"50"}]
    with pytest.raises(RateLimited) as refused:
        await uploads.ask(length=b"50")
    assert (uploads.served, refused.value.retry_after) == (2, 5)
    for _ in range(3):
        await uploads.ask(length=b"100")
    assert uploads.served == 5


@pytest.mark.parametrize("length", [None, b"nonsense", b"1000"])
async def test_an_unknown_length_reserves_the_maximum(length: bytes | None) -> None:
    """An upload without a valid length, or with a length above the maximum, reserves the maximum size."""
    await NestedUploads(200).ask(length=length)
    with pytest.raises(RateLimited):
        await NestedUploads(199).ask(length=length)


async def test_other_requests_need_no_space() -> None:
    """Other requests reserve no space."""
    uploads = NestedUploads(0)
    await uploads.ask(QUESTION, b"100")
    assert uploads.served == 1
