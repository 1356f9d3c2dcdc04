"""The responses that one message of NATS cannot hold, in pieces in a bucket of its object store.

The key-value entry of a response names its pieces and takes the place of an object's record. So one write replaces
a response of any size. The subjects of the pieces tell whose they are.
"""

import secrets
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from nats.js import JetStreamContext
from nats.js.errors import NotFoundError
from servicekit import response_keys
from servicekit.deadline import Deadline
from servicekit.errors import PayloadTooLarge

from gateway.clients.nats_calls import reached

_WHAT = "The store of large responses"
_STREAM = f"OBJ_{response_keys.LARGE_RESPONSES_BUCKET}"
_PIECE = 512 * 1024
_MOST_BYTES = 16 * 1024 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Pieces:
    """Where a large response lies.

    Attributes:
        name: Of this version of it.
        size: Bytes of all pieces.
        first: Position of the first piece.
    """

    name: str
    size: int
    first: int


class LargeResponses:
    """Writes, reads and deletes the pieces of responses.

    Args:
        made: Gives what writes to the bucket, and makes the bucket where it is missing; raises `Unavailable` while
            NATS is away.
    """

    def __init__(self, made: Callable[[], Awaitable[JetStreamContext]]) -> None:
        self._made = made

    async def write(self, key: str, data: bytes, deadline: Deadline) -> Pieces:
        """Write a version of a response beside the versions that are there.

        Raises:
            PayloadTooLarge: It is larger than what can be kept.
            Unavailable: NATS is away or full.
        """
        if len(data) > _MOST_BYTES:
            raise PayloadTooLarge("The response is larger than what can be stored.", field="store")
        jetstream, name = await self._made(), secrets.token_hex(8)
        subject, first = response_keys.large_response(key, name), 0
        for begin in range(0, len(data), _PIECE):
            sent = jetstream.publish(subject, data[begin : begin + _PIECE], stream=_STREAM)
            ack = await reached(sent, deadline, _WHAT)
            first = first or ack.seq
        return Pieces(name, len(data), first)

    async def read(self, jetstream: JetStreamContext, key: str, pieces: Pieces, deadline: Deadline) -> bytes | None:
        """Return a version of a response; None where it is not whole any more."""
        found, position = bytearray(), pieces.first
        subject = response_keys.large_response(key, pieces.name)
        while len(found) < pieces.size:
            asked = jetstream.get_msg(_STREAM, seq=position, subject=subject, next=True)
            message = await reached(_found(asked), deadline, _WHAT)
            if message is None:
                return None
            found += message.data or b""
            position = (message.seq or position) + 1
        return bytes(found)

    async def delete(
        self,
        jetstream: JetStreamContext,
        key: str,
        deadline: Deadline,
        version: str = "*",
        before: int | None = None,
    ) -> None:
        """Delete versions of a response.

        Args:
            jetstream: Deletes; a bucket that is missing stays so.
            key: Of the response, or the pattern of the keys of a user's.
            deadline: When it must be over.
            version: Name of the one that goes; `*`: all go.
            before: Position of the first piece that stays; None: all go.
        """
        purged = jetstream.purge_stream(_STREAM, seq=before, subject=response_keys.large_response(key, version))
        await reached(_found(purged), deadline, _WHAT)


async def _found(call: Coroutine[Any, Any, T]) -> T | None:
    """What a call gives; None where the piece or the bucket is not there."""
    try:
        return await call
    except NotFoundError:
        return None
