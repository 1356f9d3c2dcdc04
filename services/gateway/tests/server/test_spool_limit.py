"""The space for uploads: reserved before the body is read, and released at the end."""

from typing import Any

import pytest
from gateway.routing.route import Role, Route
from gateway.server.request_state import state_of
from gateway.server.spool_limit import SpoolLimit
from servicekit.errors import RateLimited

UPLOAD = Route("/documents", "POST", Role.INGEST, upload=True)
QUESTION = Route("/chat", "POST", Role.ASK)


class Held:
    """Serve requests, and send another one within each."""

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
    """Uploads share the space. An upload without space is refused with a time to retry, and space is released."""
    held = Held(200)
    held.within = [{"length": b"1"}, {"length": b"50"}]
    with pytest.raises(RateLimited) as refused:
        await held.ask(length=b"50")
    assert (held.served, refused.value.retry_after) == (2, 5)
    for _ in range(3):
        await held.ask(length=b"100")
    assert held.served == 5


@pytest.mark.parametrize("length", [None, b"nonsense", b"1000"])
async def test_an_unknown_length_is_the_largest(length: bytes | None) -> None:
    """An upload without a valid length, or with a larger one, reserves the largest size."""
    await Held(200).ask(length=length)
    with pytest.raises(RateLimited):
        await Held(199).ask(length=length)


async def test_other_requests_need_no_space() -> None:
    """Other requests reserve no space."""
    held = Held(0)
    await held.ask(QUESTION, b"100")
    assert held.served == 1
