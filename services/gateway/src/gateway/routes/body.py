"""Bodies of the routes that FastAPI only dispatches: read once, checked by their protocol, answered as bytes."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response
from servicekit.errors import Cancelled, UnsupportedMedia
from servicekit.tasks import ended
from starlette.requests import ClientDisconnect

T = TypeVar("T")
_JSON = "application/json"
_LARGE = 1024 * 1024


def media_type_of(headers: Mapping[str, str]) -> str:
    """Return the media type of a body, without its parameters and in lower case; empty where none is said."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


async def json_body(request: Request) -> bytes:
    """The body, not yet parsed; the request keeps no copy of it.

    Raises:
        UnsupportedMedia: It is said to be something else than JSON.
        Cancelled: The client left.
    """
    media = media_type_of(request.headers)
    if media not in (_JSON, "") and not media.endswith("+json"):
        raise UnsupportedMedia(f"Content-Type must be application/json, not {media}.", field="content-type")
    try:
        return b"".join([piece async for piece in request.stream()])
    except ClientDisconnect:
        raise Cancelled("The client left.") from None


def is_large(request: Request) -> bool:
    """Whether the body has more bytes than can be in memory for everybody at once, as far as is known."""
    length = request.headers.get("content-length")
    return length is None or int(length) > _LARGE


def json_answer(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer of JSON: bytes go as they are, anything else is written as msgspec does."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Response(encoded, status, headers, media_type=_JSON)


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The work's result; a client that leaves stops it.

    Raises:
        Cancelled: The client left.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Cancelled("The client left.")
        return working.result()
    finally:
        await ended(working, leaving)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
