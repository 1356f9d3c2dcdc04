"""Reads and writes of the points of one index on a Qdrant server."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from qdrant_client import AsyncQdrantClient, models
from servicekit.errors import CausewayError, DeadlineExceeded, Unavailable

from retriever.domain.document import Document
from retriever.domain.index import Replaced
from retriever.stores import payload
from retriever.stores.qdrant import schema
from retriever.stores.qdrant.failures import Missing
from retriever.stores.qdrant.layout import ORDERING
from retriever.stores.qdrant.leases import Lease
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.node import Method


class Points:
    """The points of a collection.

    Each method raises `removal_error` after the collection was removed. If this error is `Replaced`, `delete_where`
    and `upsert_record` return it instead.

    Args:
        location: The location of the index.
        index: The index's name, for messages.

    Attributes:
        removal_error: `Replaced` or `NotFound`; None while the collection exists.
    """

    def __init__(self, location: Location, index: str) -> None:
        self._location = location
        self._index = index
        self.removal_error: CausewayError | None = None

    async def payloads(
        self, filter_: models.Filter, fields: Sequence[str] = ("document_id",)
    ) -> AsyncIterator[payload.Payload]:
        """Yield the payloads of all points that match a filter."""
        with self.translated_errors():
            async for points in self._location.copies.all(filter_, fields=list(fields)):
                for point in points:
                    yield point.payload or {}

    async def payloads_of_any(
        self, filter_: models.Filter, fields: Sequence[str] = ("document_id",)
    ) -> dict[str, payload.Payload]:
        """Return the payloads of points that match a filter on any node, by id; see `Copies.payloads_of_any`."""
        with self.translated_errors():
            return await self._location.copies.payloads_of_any(filter_, fields)

    async def whole(self, filter_: models.Filter, size: int) -> AsyncIterator[list[models.Record]]:
        """Yield all points that match a filter, with their vectors, in pages of ``size`` points."""
        with self.translated_errors():
            async for points in self._location.copies.all(filter_, fields=True, with_vectors=True, size=size):
                yield points

    async def retrieve(self, ids: Sequence[str], fields: list[str]) -> list[models.Record]:
        """Return the points with the ids, except those that do not exist."""
        with self.translated_errors():
            return list((await self._location.copies.retrieve(ids, fields)).values())

    async def retrieve_any(self, ids: Sequence[str], fields: list[str]) -> list[models.Record]:
        """Return the points with the ids, each from any copy that has it."""
        with self.translated_errors():
            return list((await self._location.copies.retrieve_any(ids, fields)).values())

    async def delete_where(self, id_: str, condition: models.Filter) -> DeadlineExceeded | Unavailable | None:
        """Remove a point if it meets a condition. Return the error if this fails.

        A failed removal may still have been applied, so the caller reads the point back.
        """
        only = models.Filter(must=[models.HasIdCondition(has_id=[id_]), condition])
        try:
            await self.write(
                AsyncQdrantClient.delete, models.FilterSelector(filter=only), wait=True, ordering=ORDERING
            )
        except (DeadlineExceeded, Unavailable) as failure:
            return failure
        return None

    async def upsert_record(
        self, point: models.PointStruct, lease: Lease | None
    ) -> DeadlineExceeded | Unavailable | None:
        """Write a record. Return the error if this fails.

        A failed write may still have been applied, so the caller reads the record back.

        Args:
            point: The record.
            lease: The lease on the document. The record is written only if the stored record has the generation of
                the lease. If the lease has no generation, the record is written only if no record is stored. If
                there is no lease, the record is always written.
        """
        mode, condition = models.UpdateMode.UPSERT, None
        if lease is not None and lease.generation is None:
            mode = models.UpdateMode.INSERT_ONLY
        elif lease is not None:
            mode, condition = (
                models.UpdateMode.UPDATE_ONLY,
                schema.has_facts(schema.generation_fact(lease.generation)),
            )
        options = {"update_filter": condition, "update_mode": mode, "ordering": ORDERING}
        try:
            await self.write(AsyncQdrantClient.upsert, [point], wait=True, **options)
        except (DeadlineExceeded, Unavailable) as failure:
            return failure
        return None

    async def remove_if_incomplete(self, id_: Any, document: Document) -> None:
        """Remove a record if chunks of its version are missing.

        The server may have written the record late, after another process had removed chunks of this version.
        """
        chunks = await self.payloads_of_any(schema.has_facts(payload.version(document.version)), fields=())
        if len(chunks) < document.chunk_count:
            await self.delete_where(str(id_), schema.has_facts(schema.generation_fact(document.generation)))

    async def delete(self, ids: list[str]) -> None:
        """Remove points if they exist."""
        points = models.PointIdsList(points=list(ids))
        await self.write(AsyncQdrantClient.delete, points, wait=True, ordering=ORDERING)

    async def count(self, filter_: models.Filter) -> int:
        """Return the number of points that match a filter."""
        counted: models.CountResult = await self.read(AsyncQdrantClient.count, count_filter=filter_, exact=True)
        return counted.count

    async def read(self, method: Method[..., Any], *args: Any, **options: Any) -> Any:
        """Call a read method of the client with the name of the collection."""
        with self.translated_errors():
            return await self._location.calls.read(method, self._location.name, *args, **options)

    async def write(self, method: Method[..., Any], *args: Any, **options: Any) -> Any:
        """Call an idempotent write method of the client with the name of the collection."""
        with self.translated_errors():
            return await self._location.calls.write(method, self._location.name, *args, **options)

    @contextlib.contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Raise `removal_error` if the collection is missing, instead of `Missing`.

        Raises:
            Replaced, NotFound: The collection was replaced or removed.
        """
        if self.removal_error is not None:
            raise self.removal_error
        try:
            yield
        except Missing as error:
            self.removal_error = Replaced(self._index)
            raise self.removal_error from error
