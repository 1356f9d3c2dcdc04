"""Store responses that exceed the size of one NATS message, in pieces in a bucket of NATS' object store.

The key-value entry of a response contains the location of its pieces. The pieces are messages in the bucket's
stream, without the metadata of an object. Therefore a write of the entry is enough to replace a response of any
size. The subject of the pieces contains the response's key, which begins with tenant and owner. Therefore one purge
can delete all pieces of a user's responses.
"""

import contextlib
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError
from servicekit import response_keys
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, PayloadTooLarge

from gateway.clients.nats_calls import call_nats

_TARGET = "The store of large responses"
_STREAM = f"OBJ_{response_keys.LARGE_RESPONSES_BUCKET}"
_PIECE_BYTES = 512 * 1024
_MAX_BYTES = 16 * 1024 * 1024
_CLEANUP_SECONDS = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pieces:
    """The location of a large response.

    Attributes:
        name: The name of this version of the response.
        size: The size of all pieces in bytes.
        first: The sequence number of the first piece in the stream.
    """

    name: str
    size: int
    first: int


class LargeResponses:
    """Writes, reads and deletes the pieces of large responses.

    Args:
        ensure_bucket: Creates the bucket if it is missing, and returns the JetStream context for calls. Raises
            `Unavailable` while NATS is unavailable.
    """

    def __init__(self, ensure_bucket: Callable[[], Awaitable[JetStreamContext]]) -> None:
        self._ensure_bucket = ensure_bucket

    async def write(self, key: str, data: bytes, deadline: Deadline) -> Pieces:
        """Write a version of a response, keep earlier versions, and return the location of the pieces.

        If the call fails, it deletes the pieces that it has written.

        Raises:
            PayloadTooLarge: The response exceeds the size limit.
            Unavailable: NATS is unavailable, or has no space.
        """
        if len(data) > _MAX_BYTES:
            raise PayloadTooLarge("The response is too large to be stored. Set store to false.", field="store")
        jetstream, name = await self._ensure_bucket(), secrets.token_hex(8)
        subject, first = response_keys.large_response(key, name), 0
        try:
            for begin in range(0, len(data), _PIECE_BYTES):
                publication = jetstream.publish(subject, data[begin : begin + _PIECE_BYTES], stream=_STREAM)
                ack = await call_nats(publication, deadline, _TARGET)
                first = first or ack.seq
        except BaseException:
            # Otherwise the pieces would use space until they expire, because no entry refers to them.
            with contextlib.suppress(CausewayError):
                await self.delete(jetstream, key, Deadline.after(_CLEANUP_SECONDS), name)
            raise
        return Pieces(name, len(data), first)

    async def read(self, jetstream: JetStreamContext, key: str, pieces: Pieces, deadline: Deadline) -> bytes | None:
        """Return a version of a response, or None if some of its pieces no longer exist."""
        content, sequence = bytearray(), pieces.first
        subject = response_keys.large_response(key, pieces.name)
        while len(content) < pieces.size:
            request = jetstream.get_msg(_STREAM, seq=sequence, subject=subject, next=True)
            message = await call_nats(_none_if_missing(request), deadline, _TARGET)
            if message is None:
                return None
            content += message.data or b""
            sequence = (message.seq or sequence) + 1
        return bytes(content)

    async def delete(
        self,
        jetstream: JetStreamContext,
        key: str,
        deadline: Deadline,
        version: str = "*",
        before: int | None = None,
    ) -> None:
        """Delete versions of a response, or of all responses of a user.

        Args:
            jetstream: The JetStream context. The call does not create a missing bucket.
            key: The key of the response, or the pattern of the keys of a user's responses.
            deadline: The time by which the call must end.
            version: The name of the version to delete, or `*` for all versions.
            before: The sequence number of the first piece to keep. None deletes all pieces.
        """
        purge = jetstream.purge_stream(_STREAM, seq=before, subject=response_keys.large_response(key, version))
        await call_nats(_none_if_missing(purge), deadline, _TARGET)


async def _none_if_missing(call: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of a call, or None if the piece or the bucket does not exist."""
    try:
        return await call
    except NotFoundError:
        return None
