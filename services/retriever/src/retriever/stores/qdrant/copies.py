"""Reads of points whose copies may differ.

A write reaches the copies of a point one after the other. A consistent read compares more than half of the
copies, and leaves out points whose copies differ. So a point that a read does not find may exist. `Copies.retrieve`
and `Copies.all` ask all nodes that respond, which must be more than half, before they report a point as absent.
`Copies.payloads_of_any` returns the points of any of these nodes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from typing import Any

from qdrant_client import AsyncQdrantClient, models
from servicekit.errors import Unavailable

from retriever.stores import payload
from retriever.stores.qdrant.connection import Calls
from retriever.stores.qdrant.layout import CONSISTENCY
from retriever.stores.qdrant.node import Read

_PAGE = 1000
_SETTLED_SECONDS = 2.0
_POLL_SECONDS = 0.05
_ONE_COPY = 1


class Copies:
    """The points of a collection with several copies.

    Args:
        calls: Calls the server.
        collection: Name of the collection.
        replicas: Number of copies.
    """

    def __init__(self, calls: Calls, collection: str, replicas: int) -> None:
        self.replicas = replicas
        self._calls = calls
        self._collection = collection

    async def retrieve(self, ids: Sequence[str], fields: list[str] | bool) -> dict[str, models.Record]:
        """Return points by id, without those that do not exist.

        Raises:
            Missing: The collection does not exist.
            Unavailable: The copies of a point still differ after two seconds.
        """
        found: dict[str, models.Record] = {}
        missing: Collection[str] = ids
        until = time.monotonic() + _SETTLED_SECONDS
        while missing:
            found |= await self._retrieve(self._calls.read, missing, fields, CONSISTENCY)
            missing = [id_ for id_ in missing if id_ not in found]
            if missing and self.replicas > 1:
                missing = await self._on_any_node(missing)
                if missing and time.monotonic() >= until:
                    raise Unavailable("The copies of the index differ at the moment.", retry_after=1)
                await asyncio.sleep(_POLL_SECONDS if missing else 0)
            else:
                break
        return found

    async def retrieve_any(self, ids: Sequence[str], fields: list[str]) -> dict[str, models.Record]:
        """Return points by id, each from any copy that has it.

        Raises:
            Missing: The collection does not exist.
        """
        found: dict[str, models.Record] = {}
        if ids:
            found = await self._retrieve(self._calls.read, ids, fields, None)
        missing = [id_ for id_ in ids if id_ not in found]
        if missing and self.replicas > 1:
            found |= await self.retrieve(missing, fields)
        return found

    async def pages(
        self,
        filter_: models.Filter,
        *,
        fields: bool | list[str],
        with_vectors: bool = False,
        size: int = _PAGE,
        read: Read | None = None,
    ) -> AsyncIterator[list[models.Record]]:
        """Yield the points that match a filter, in pages.

        Args:
            filter_: The filter.
            fields: Payload fields to read; True: all.
            with_vectors: Whether to read the vectors.
            size: Maximum number of points of a page.
            read: Reads the copy of one node. None: a consistent read.

        Raises:
            Missing: The collection does not exist.
        """
        start: Any = None
        last: Any = None
        while True:
            points, following = await (read or self._calls.read)(
                AsyncQdrantClient.scroll,
                self._collection,
                scroll_filter=filter_,
                limit=size,
                offset=start,
                with_payload=fields,
                with_vectors=with_vectors,
                consistency=_ONE_COPY if read else CONSISTENCY,
            )
            fresh = [point for point in points if point.id != last]
            if fresh:
                yield fresh
            # The server leaves out points whose copies differ. So a short page may not be the last page.
            if following is None and (not fresh or self.replicas == 1):
                return
            last = fresh[-1].id if fresh else last
            start = following if following is not None else last

    async def all(
        self, filter_: models.Filter, *, fields: bool | list[str], with_vectors: bool = False, size: int = _PAGE
    ) -> AsyncIterator[list[models.Record]]:
        """Yield all points that match a filter, including points whose copies differ at first.

        Args:
            filter_: The filter.
            fields: Payload fields to read; True: all.
            with_vectors: Whether to read the vectors.
            size: Maximum number of points of a page.

        Raises:
            Missing: The collection does not exist.
            DeadlineExceeded: Too few nodes respond.
            Unavailable: Too few nodes respond, or the copies of a point still differ after two seconds.
        """
        seen: set[str] = set()
        async for page in self.pages(filter_, fields=fields, with_vectors=with_vectors, size=size):
            seen.update(str(point.id) for point in page)
            yield page
        if self.replicas == 1:
            return
        until = time.monotonic() + _SETTLED_SECONDS
        missing = [id_ for id_ in await self.payloads_of_any(filter_, ()) if id_ not in seen]
        while missing:
            for start in range(0, len(missing), size):
                batch = _among(filter_, missing[start : start + size])
                async for page in self.pages(batch, fields=fields, with_vectors=with_vectors, size=size):
                    seen.update(str(point.id) for point in page)
                    yield page
            found_elsewhere = await self.payloads_of_any(_among(filter_, missing), ())
            missing = [id_ for id_ in missing if id_ in found_elsewhere and id_ not in seen]
            if missing:
                if time.monotonic() >= until:
                    raise Unavailable("The copies of the index differ at the moment.", retry_after=1)
                await asyncio.sleep(_POLL_SECONDS)

    async def payloads_of_any(self, filter_: models.Filter, fields: Sequence[str]) -> dict[str, payload.Payload]:
        """Return the payloads of points that match a filter on any node, by id. If copies differ, return any copy.

        Raises:
            Missing: The collection does not exist.
            DeadlineExceeded, Unavailable: Too few nodes respond.
        """

        async def read_all(read: Read | None) -> dict[str, payload.Payload]:
            pages = self.pages(filter_, fields=list(fields) or False, read=read)
            return {str(point.id): point.payload or {} async for points in pages for point in points}

        replies = [await read_all(None)] if self.replicas == 1 else await self._calls.read_each(read_all)
        return {id_: value for reply in replies for id_, value in reply.items()}

    async def _on_any_node(self, ids: Collection[str]) -> list[str]:
        """Return the ids of the points that at least one node has."""
        replies = await self._calls.read_each(partial(self._retrieve, ids=ids, fields=False, consistency=_ONE_COPY))
        return [id_ for id_ in ids if any(id_ in reply for reply in replies)]

    async def _retrieve(
        self, read: Read, ids: Collection[str], fields: list[str] | bool, consistency: Any
    ) -> dict[str, models.Record]:
        points = await read(
            AsyncQdrantClient.retrieve,
            self._collection,
            list(ids),
            with_payload=fields,
            with_vectors=False,
            consistency=consistency,
        )
        return {str(point.id): point for point in points}


def _among(filter_: models.Filter, ids: Sequence[str]) -> models.Filter:
    return models.Filter(must=[filter_, models.HasIdCondition(has_id=list(ids))])
