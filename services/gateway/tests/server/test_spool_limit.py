"""Room for uploads: set aside before they are read, given back at their end."""

from typing import Any

import pytest
from gateway.routing.route import Role, Route
from gateway.server.request_state import state_of
from gateway.server.spool_limit import SpoolLimit
from servicekit.errors import RateLimited

UPLOAD = Route("/documents", "POST", Role.INGEST, upload=True)
QUESTION = Route("/chat", "POST", Role.ASK)


class Held:
    """Serves requests, and begins another one within each."""

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


async def test_uploads_share_the_room() -> None:
    """Two of 50 bytes have 200 set aside; the third is told when to come again, and has room once they ended."""
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
    """What does not say how long it is may be as long as any; one that is too long is refused further in."""
    await Held(200).ask(length=length)
    with pytest.raises(RateLimited):
        await Held(199).ask(length=length)


async def test_other_requests_need_no_room() -> None:
    """A question is not spooled."""
    held = Held(0)
    await held.ask(QUESTION, b"100")
    assert held.served == 1
