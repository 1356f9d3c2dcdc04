"""Read and delete pictures of documents' pages in the key-value bucket that ingest fills."""

from collections.abc import Awaitable, Callable, Sequence

import structlog
from nats.js.errors import KeyNotFoundError
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError
from servicekit.nats import IngestTransport
from servicekit.principal import Principal

from gateway.clients.nats_calls import call_nats
from gateway.domain import Passage

_log = structlog.get_logger(__name__)
_TARGET = "The pictures of documents"
_FORGET_SECONDS = 10.0


class NatsPictures:
    """`ports.answering.Pictures` over a key-value bucket.

    Args:
        transport: Returns the streams and buckets, or raises `Unavailable` while NATS is unavailable.
    """

    def __init__(self, transport: Callable[[], Awaitable[IngestTransport]]) -> None:
        self._transport = transport

    async def read(self, principal: Principal, passage: Passage, deadline: Deadline) -> bytes | None:
        """See `ports.answering.Pictures`."""
        bucket = (await self._transport()).pictures
        key = keys.picture_key(principal.tenant, passage.index, passage.document_id, passage.sha256, passage.page)
        try:
            entry = await call_nats(bucket.get(key), deadline, _TARGET)
        except KeyNotFoundError:
            return None
        return entry.value

    async def forget(self, principal: Principal, index: str, document_ids: Sequence[str] | None = None) -> None:
        """See `ports.answering.Pictures`."""
        patterns = [keys.index_pictures(principal.tenant, index)]
        if document_ids is not None:
            patterns = [
                keys.document_pictures(principal.tenant, index, document_id) for document_id in document_ids
            ]
        if not patterns:
            return
        deadline = Deadline.after(_FORGET_SECONDS)
        try:
            transport = await self._transport()
            for pattern in patterns:
                await call_nats(transport.remove_pictures(pattern), deadline, _TARGET)
        except CausewayError as error:
            _log.warning("pictures could not be deleted", index=index, documents=document_ids, error=error.message)
