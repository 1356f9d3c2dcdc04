"""Pictures of pages in a key-value bucket; implements `ingest.ports.Pictures`."""

import asyncio

import nats.errors
from servicekit import keys
from servicekit.errors import Unavailable
from servicekit.nats import IngestTransport

from ingest.domain import Document, Job

_SECONDS = 10.0


class NatsPictures:
    """Pictures, one message each.

    Args:
        transport: Has the bucket.
    """

    def __init__(self, transport: IngestTransport) -> None:
        self._transport = transport

    async def put(self, job: Job, document: Document, page: int, picture: bytes) -> None:
        """Keeps a picture; see `ingest.ports.Pictures.put`."""
        key = keys.picture_key(job.principal.tenant, job.index, document.document_id, document.sha256, page)
        try:
            async with asyncio.timeout(_SECONDS):
                await self._transport.pictures.put(key, picture)
        except (nats.errors.Error, TimeoutError, ConnectionError) as error:
            raise Unavailable("The pictures of the document cannot be stored.") from error

    async def remove(self, job: Job, document: Document) -> None:
        """Removes a version's pictures; see `ingest.ports.Pictures.remove`."""
        pattern = keys.document_pictures(job.principal.tenant, job.index, document.document_id, document.sha256)
        try:
            async with asyncio.timeout(_SECONDS):
                await self._transport.remove_pictures(pattern)
        except (nats.errors.Error, TimeoutError, ConnectionError) as error:
            raise Unavailable("The pictures of the document cannot be removed.") from error
