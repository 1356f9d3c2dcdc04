"""The points of one index on a Qdrant server: reading and writing them for as long as its collection is there."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from qdrant_client import AsyncQdrantClient, models
from servicekit.errors import CausewayError, DeadlineExceeded, Unavailable

from retriever.domain.index import Replaced
from retriever.stores import payload
from retriever.stores.qdrant.layout import ORDERING
from retriever.stores.qdrant.location import Location
from retriever.stores.qdrant.node import Method, Missing


class Points:
    """The points of a collection. Every method raises `gone` once the collection is known to be no more.

    Args:
        location: Where it is.
        index: The index's name, for messages.

    Attributes:
        gone: `Replaced` or `NotFound`; None while the collection is there.
    """

    def __init__(self, location: Location, index: str) -> None:
        self._location = location
        self._index = index
        self.gone: CausewayError | None = None

    async def said(
        self, wanted: models.Filter, fields: Sequence[str] = ("document_id",)
    ) -> AsyncIterator[payload.Payload]:
        """Yield the payloads of all points that a filter holds for."""
        with self.there():
            async for points in self._location.copies.all(wanted, fields=list(fields)):
                for point in points:
                    yield point.payload or {}

    async def said_by_any(
        self, wanted: models.Filter, fields: Sequence[str] = ("document_id",)
    ) -> dict[str, payload.Payload]:
        """Return what any copy says; see `Copies.said_by_any`."""
        with self.there():
            return await self._location.copies.said_by_any(wanted, fields)

    async def whole(self, wanted: models.Filter, size: int) -> AsyncIterator[list[models.Record]]:
        """Yield all points that a filter holds for with their vectors, some at a time."""
        with self.there():
            async for points in self._location.copies.all(wanted, fields=True, with_vectors=True, size=size):
                yield points

    async def retrieve(self, ids: Sequence[str], fields: list[str]) -> list[models.Record]:
        """Points by id; those that are not there are left out."""
        with self.there():
            return list((await self._location.copies.retrieve(ids, fields)).values())

    async def retrieve_any(self, ids: Sequence[str], fields: list[str]) -> list[models.Record]:
        """Points by id, each from any copy that has it."""
        with self.there():
            return list((await self._location.copies.retrieve_any(ids, fields)).values())

    async def delete_where(self, id_: str, condition: models.Filter) -> DeadlineExceeded | Unavailable | None:
        """Remove a point where a condition holds of it. Return the failure, if it fails.

        A removal that fails may have been applied nevertheless: the caller reads the point back.
        """
        only = models.Filter(must=[models.HasIdCondition(has_id=[id_]), condition])
        try:
            await self.write(
                AsyncQdrantClient.delete, models.FilterSelector(filter=only), wait=True, ordering=ORDERING
            )
        except (DeadlineExceeded, Unavailable) as failure:
            return failure
        return None

    async def upsert_where(
        self, point: models.PointStruct, condition: models.Filter | None
    ) -> DeadlineExceeded | Unavailable | None:
        """Write a point where a condition holds of the one that is there. Return the failure, if it fails.

        A write that fails may have been applied nevertheless: the caller reads the point back.
        """
        try:
            await self.write(
                AsyncQdrantClient.upsert, [point], wait=True, ordering=ORDERING, update_filter=condition
            )
        except (DeadlineExceeded, Unavailable) as failure:
            return failure
        return None

    async def delete(self, ids: list[str]) -> None:
        """Remove points, if they are there."""
        points = models.PointIdsList(points=list(ids))
        await self.write(AsyncQdrantClient.delete, points, wait=True, ordering=ORDERING)

    async def count(self, wanted: models.Filter) -> int:
        """Return how many points a filter holds for."""
        counted: models.CountResult = await self.read(AsyncQdrantClient.count, count_filter=wanted, exact=True)
        return counted.count

    async def read(self, method: Method[..., Any], *args: Any, **options: Any) -> Any:
        """Call a method of the client that changes nothing, with the name of the collection."""
        with self.there():
            return await self._location.calls.read(method, self._location.name, *args, **options)

    async def write(self, method: Method[..., Any], *args: Any, **options: Any) -> Any:
        """Call a method of the client that may be called twice, with the name of the collection."""
        with self.there():
            return await self._location.calls.write(method, self._location.name, *args, **options)

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        """Notice when the collection is gone.

        Raises:
            Replaced, NotFound: The collection is no more.
        """
        if self.gone is not None:
            raise self.gone
        try:
            yield
        except Missing as error:
            self.gone = Replaced(self._index)
            raise self.gone from error
