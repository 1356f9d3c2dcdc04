"""Reads of points whose copies may differ.

A write reaches the copies of a point one after the other. A consistent read asks more than half of the copies, and
leaves out points on which they differ. So a point that a read does not find may exist. `Copies.retrieve` and
`Copies.all` check every node before they report a point as absent. `Copies.payloads_of_any` returns the points of
any node.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from typing import Any

from qdrant_client import AsyncQdrantClient, models
from servicekit.errors import Unavailable

from retriever.stores import payload
from retriever.stores.qdrant.connection import Calls, Read
from retriever.stores.qdrant.layout import CONSISTENCY

_PAGE = 1000
_SETTLED_SECONDS = 2.0
_AGAIN_SECONDS = 0.05
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
        """Return points by id. Missing ones are left out.

        Raises:
            Missing: The collection is gone.
            Unavailable: The copies of a point still differ after a while.
        """
        found: dict[str, models.Record] = {}
        missing: Collection[str] = ids
        until = time.monotonic() + _SETTLED_SECONDS
        while missing:
            found |= await self._retrieve(self._calls.read, missing, fields, CONSISTENCY)
            missing = [each for each in missing if each not in found]
            if missing and self.replicas > 1:
                missing = await self._on_any_node(missing)
                if missing and time.monotonic() >= until:
                    raise Unavailable("The copies of the index differ at the moment.", retry_after=1)
                await asyncio.sleep(_AGAIN_SECONDS if missing else 0)
            else:
                break
        return found

    async def retrieve_any(self, ids: Sequence[str], fields: list[str]) -> dict[str, models.Record]:
        """Return points by id, each from any copy that has it.

        Raises:
            Missing: The collection is gone.
        """
        found: dict[str, models.Record] = {}
        if ids:
            found = await self._retrieve(self._calls.read, ids, fields, None)
        missing = [each for each in ids if each not in found]
        if missing and self.replicas > 1:
            found |= await self.retrieve(missing, fields)
        return found

    async def pages(
        self,
        wanted: models.Filter,
        *,
        fields: bool | list[str],
        with_vectors: bool = False,
        size: int = _PAGE,
        read: Read | None = None,
    ) -> AsyncIterator[list[models.Record]]:
        """Yield the points that match a filter, in pages.

        Args:
            wanted: The filter.
            fields: Payload fields to read; True: all.
            with_vectors: Whether to read the vectors.
            size: Maximum number of points of a page.
            read: Reads the copy of one node. None: a consistent read.

        Raises:
            Missing: The collection is gone.
        """
        start: Any = None
        last: Any = None
        while True:
            points, following = await (read or self._calls.read)(
                AsyncQdrantClient.scroll,
                self._collection,
                scroll_filter=wanted,
                limit=size,
                offset=start,
                with_payload=fields,
                with_vectors=with_vectors,
                consistency=_ONE_COPY if read else CONSISTENCY,
            )
            fresh = [point for point in points if point.id != last]
            if fresh:
                yield fresh
            # A page without a differing point may look like the last one. Only an empty page is the last one.
            if following is None and (not fresh or self.replicas == 1):
                return
            last = fresh[-1].id if fresh else last
            start = following if following is not None else last

    async def all(
        self, wanted: models.Filter, *, fields: bool | list[str], with_vectors: bool = False, size: int = _PAGE
    ) -> AsyncIterator[list[models.Record]]:
        """Yield all points that match a filter, including points whose copies differ at first.

        Args:
            wanted: The filter.
            fields: Payload fields to read; True: all.
            with_vectors: Whether to read the vectors.
            size: Maximum number of points of a page.

        Raises:
            Missing: The collection is gone.
            DeadlineExceeded: Too few nodes answer.
            Unavailable: Too few nodes answer, or the copies of a point still differ after a while.
        """
        seen: set[str] = set()
        async for page in self.pages(wanted, fields=fields, with_vectors=with_vectors, size=size):
            seen.update(str(point.id) for point in page)
            yield page
        if self.replicas == 1:
            return
        until = time.monotonic() + _SETTLED_SECONDS
        missing = [id_ for id_ in await self.payloads_of_any(wanted, ()) if id_ not in seen]
        while missing:
            for start in range(0, len(missing), size):
                some = _among(wanted, missing[start : start + size])
                async for page in self.pages(some, fields=fields, with_vectors=with_vectors, size=size):
                    seen.update(str(point.id) for point in page)
                    yield page
            found_elsewhere = await self.payloads_of_any(_among(wanted, missing), ())
            missing = [id_ for id_ in missing if id_ in found_elsewhere and id_ not in seen]
            if missing:
                if time.monotonic() >= until:
                    raise Unavailable("The copies of the index differ at the moment.", retry_after=1)
                await asyncio.sleep(_AGAIN_SECONDS)

    async def payloads_of_any(self, wanted: models.Filter, fields: Sequence[str]) -> dict[str, payload.Payload]:
        """Return the payloads of points that match a filter on any node, by id; of any copy if copies differ.

        Raises:
            Missing: The collection is gone.
            DeadlineExceeded, Unavailable: Too few nodes answer.
        """

        async def ask(read: Read | None) -> dict[str, payload.Payload]:
            pages = self.pages(wanted, fields=list(fields) or False, read=read)
            return {str(point.id): point.payload or {} async for points in pages for point in points}

        answers = [await ask(None)] if self.replicas == 1 else await self._calls.read_each(ask)
        return {id_: value for answer in answers for id_, value in answer.items()}

    async def _on_any_node(self, ids: Collection[str]) -> list[str]:
        answers = await self._calls.read_each(partial(self._retrieve, ids=ids, fields=False, consistency=_ONE_COPY))
        return [each for each in ids if any(each in answer for answer in answers)]

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


def _among(wanted: models.Filter, ids: Sequence[str]) -> models.Filter:
    return models.Filter(must=[wanted, models.HasIdCondition(has_id=list(ids))])
