"""Reading and removing points of one collection on a Qdrant server."""

from collections.abc import AsyncIterator, Sequence
from typing import Any

from qdrant_client import models
from servicekit.errors import CausewayError

from retriever.domain.index import Replaced
from retriever.stores import payload
from retriever.stores.qdrant.connection import Missing
from retriever.stores.qdrant.location import Location

_PAGE = 1000


class Points:
    """The points of a collection.

    Args:
        location: Where it is.
        index: The index's name, for messages.

    Attributes:
        gone: What every call raises, once the collection is known to be no more.
    """

    def __init__(self, location: Location, index: str) -> None:
        self._location = location
        self._index = index
        self.gone: CausewayError | None = None

    async def said(
        self, wanted: models.Filter, fields: Sequence[str] = ("document_id",)
    ) -> AsyncIterator[payload.Payload]:
        """The payloads of all points that a filter holds for."""
        async for points in self.pages(wanted, with_payload=list(fields), with_vectors=False, size=_PAGE):
            for point in points:
                yield point.payload or {}

    async def pages(
        self, wanted: models.Filter, *, with_payload: bool | list[str], with_vectors: bool, size: int
    ) -> AsyncIterator[list[models.Record]]:
        """All points that a filter holds for, some at a time."""
        offset: Any = None
        while True:
            points, offset = await self.call(
                self._location.client.scroll,
                scroll_filter=wanted,
                limit=size,
                offset=offset,
                with_payload=with_payload,
                with_vectors=with_vectors,
                consistency=self._location.layout.reading,
            )
            yield points
            if offset is None:
                return

    async def retrieve(self, ids: Sequence[str], fields: list[str]) -> list[models.Record]:
        """Points by id; those that are not there are left out."""
        if not ids:
            return []
        found: list[models.Record] = await self.call(
            self._location.client.retrieve,
            list(ids),
            with_payload=fields,
            with_vectors=False,
            consistency=self._location.layout.reading,
        )
        return found

    async def delete(self, ids: list[str]) -> None:
        """Removes points, if they are there."""
        points = models.PointIdsList(points=list(ids))
        await self.call(self._location.client.delete, points, wait=True, ordering=models.WriteOrdering.STRONG)

    async def count(self, wanted: models.Filter) -> int:
        """How many points a filter holds for."""
        counted: models.CountResult = await self.call(self._location.client.count, count_filter=wanted, exact=True)
        return counted.count

    async def call(self, method: Any, *args: Any, **options: Any) -> Any:
        """Calls a method of the client with the name of the collection."""
        return await self.call_with(self._location.connection.call, method, self._location.name, *args, **options)

    async def call_with(self, method: Any, *args: Any, **options: Any) -> Any:
        """Calls something that calls the client.

        Raises:
            Replaced, NotFound: The collection is no more.
        """
        if self.gone is not None:
            raise self.gone
        try:
            return await method(*args, **options)
        except Missing as error:
            self.gone = Replaced(self._index)
            raise self.gone from error
