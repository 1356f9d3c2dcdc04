"""Reads bodies and headers of requests, creates responses as bytes, and detects that a client left."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from fastapi import Request, Response
from servicekit.errors import Cancelled, UnsupportedMedia
from servicekit.tasks import discard
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope

T = TypeVar("T")
_JSON = "application/json"
_LARGE_BYTES = 1024 * 1024


def media_type_of(headers: Mapping[str, str]) -> str:
    """Return the media type of a body in lower case, without parameters. Empty without a Content-Type."""
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def unsupported_media(accepted: str, media: str) -> UnsupportedMedia:
    """Return the error for a body whose media type is not one of the accepted types, or is missing."""
    sent = f"not {media}" if media else "and is missing"
    return UnsupportedMedia(f"Content-Type must be {accepted}, {sent}.", field="content-type")


async def json_body(request: Request) -> bytes:
    """Return the unparsed body. The request keeps no copy of the body.

    Raises:
        UnsupportedMedia: The media type is not JSON.
        Cancelled: The client left.
    """
    media = media_type_of(request.headers)
    if media not in (_JSON, "") and not media.endswith("+json"):
        raise unsupported_media(_JSON, media)
    try:
        return b"".join([piece async for piece in request.stream()])
    except ClientDisconnect:
        raise Cancelled("The client left.") from None


def headers_for_detectors(scope: Scope, names: frozenset[bytes]) -> dict[str, str]:
    """Return the headers of a request that detectors may get, by their names in lower case."""
    return {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in names}


def is_large(request: Request) -> bool:
    """Return whether the body is larger than 1 MiB or has an unknown length."""
    length = request.headers.get("content-length")
    return length is None or int(length) > _LARGE_BYTES


def json_response(body: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response. Bytes are sent unchanged; msgspec encodes other values."""
    encoded = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Response(encoded, status, headers, media_type=_JSON)


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work. Cancel the work if the client leaves.

    Args:
        receive: ASGI's ``receive``, after the whole body was read.
        work: The work.

    Raises:
        Cancelled: The client left.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(wait_for_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Cancelled("The client left.")
        return working.result()
    finally:
        await discard(working, leaving)


async def wait_for_disconnect(receive: Receive) -> None:
    """Wait until the client leaves. Messages with a body are ignored."""
    while (await receive())["type"] != "http.disconnect":
        pass
