"""Calls of a Qdrant server that are limited to one incarnation of an index.

A payload field distinguishes the indexes in a shared collection. Its value is the UUID of the incarnation. Each
build of an index is an incarnation. `Incarnation` adds the field to every filter, every corpus and every point, and
drops points of other incarnations from reads by id. It refuses methods that it cannot limit in this way.

The server stores a point under the bitwise exclusive or of the point's id and the incarnation's UUID. So two
incarnations of an index share no point, and each of the two ids can be computed from the other.
"""

import uuid
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from qdrant_client import models

from retriever.stores import payload
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.node import Method, Read

FIELD = "incarnation"

T = TypeVar("T")


class Incarnation:
    """Calls (`stores.qdrant.connection.Calls`) of one incarnation.

    Args:
        connection: The connection to the server.
        id_: The id of the incarnation.
    """

    def __init__(self, connection: Connection, id_: uuid.UUID) -> None:
        self._connection = connection
        self._id = id_
        self._is_own = models.FieldCondition(key=FIELD, match=models.MatchValue(value=id_.hex))

    async def read(self, method: Method[..., Any], *args: Any, **options: Any) -> Any:
        """Return the result of a read method; see `Connection.read`."""
        return await self._call(self._connection.read, method, *args, **options)

    async def write(self, method: Method[..., Any], *args: Any, **options: Any) -> Any:
        """Return the result of an idempotent write method; see `Connection.write`."""
        return await self._call(self._connection.write, method, *args, **options)

    async def read_each(self, function: Callable[[Read], Awaitable[T]]) -> list[T]:
        """Return the results of a coroutine function for several nodes; see `Connection.read_each`."""
        return await self._connection.read_each(lambda read: function(partial(self._call, read)))

    async def _call(self, call: Read, method: Method[..., Any], collection: str, *args: Any, **options: Any) -> Any:
        match method.__name__:
            case "scroll":
                options |= {"scroll_filter": self._within(options["scroll_filter"])}
                if options.get("offset") is not None:
                    options["offset"] = self._converted_id(options["offset"])
                points, following = await call(method, collection, **options)
                return self._with_original_ids(points), None if following is None else self._converted_id(following)
            case "retrieve":
                return await self._retrieve(call, method, collection, *args, **options)
            case "count":
                options["count_filter"] = self._within(options["count_filter"])
                return await call(method, collection, **options)
            case "query_points":
                options["search_params"] = self._with_own_idf(options["using"], options["search_params"])
                options["query_filter"] = self._within(options["query_filter"])
                found = await call(method, collection, **options)
                return found.model_copy(update={"points": self._with_original_ids(found.points)})
            case "query_batch_points":
                replies = await call(method, collection, [self._request(request) for request in args[0]])
                return [
                    reply.model_copy(update={"points": self._with_original_ids(reply.points)}) for reply in replies
                ]
            case "upsert":
                # A point of another incarnation with this id is not changed.
                options["update_filter"] = self._within(options.get("update_filter"))
                return await call(method, collection, [self._point(point) for point in args[0]], **options)
            case "delete":
                return await call(method, collection, self._selector(args[0]), **options)
            case "set_payload":
                options["points"] = self._ids_filter(options["points"])
                return await call(method, collection, **options)
            case name:
                raise TypeError(f"{name} cannot be limited to one incarnation of an index.")

    async def _retrieve(
        self,
        call: Read,
        method: Method[..., Any],
        collection: str,
        ids: Sequence[str],
        *,
        with_payload: bool | list[str],
        **options: Any,
    ) -> list[models.Record]:
        fields = with_payload if with_payload is True else [*(with_payload or ()), FIELD]
        inside = [self._converted_id(id_) for id_ in ids]
        found = await call(method, collection, inside, with_payload=fields, **options)
        return self._with_original_ids(
            [point for point in found if (point.payload or {}).get(FIELD) == self._id.hex]
        )

    def _request(self, request: models.QueryRequest) -> models.QueryRequest:
        prefetch = [
            prefetch.model_copy(
                update={
                    "filter": self._within(prefetch.filter),
                    "params": self._with_own_idf(prefetch.using, prefetch.params),
                }
            )
            for prefetch in _listed(request.prefetch)
        ]
        return request.model_copy(
            update={
                "prefetch": prefetch or None,
                "filter": self._within(request.filter),
                "params": self._with_own_idf(request.using, request.params),
            }
        )

    def _with_own_idf(self, using: str | None, params: models.SearchParams | None) -> models.SearchParams | None:
        """Return search parameters that compute the IDF from the incarnation, or from a part of it."""
        if using != payload.SPARSE:
            return params
        params = params or models.SearchParams()
        part = params.idf.corpus if isinstance(params.idf, models.IdfCorpusParams) else None
        return params.model_copy(update={"idf": models.IdfCorpusParams(corpus=self._within(part))})

    def _selector(self, selector: models.FilterSelector | models.PointIdsList) -> models.FilterSelector:
        if isinstance(selector, models.PointIdsList):
            return models.FilterSelector(filter=self._ids_filter([str(id_) for id_ in selector.points]))
        return models.FilterSelector(filter=self._within(selector.filter))

    def _ids_filter(self, ids: Sequence[str]) -> models.Filter:
        return self._within(models.Filter(must=[models.HasIdCondition(has_id=list(ids))]))

    def _within(self, filter_: models.Filter | None) -> models.Filter:
        if filter_ is None:
            return models.Filter(must=[self._is_own])
        inside = self._with_ids(filter_)
        return inside.model_copy(update={"must": [self._is_own, *_listed(inside.must)]})

    def _with_ids(self, filter_: models.Filter) -> models.Filter:
        """Return a filter with the points' ids on the server."""
        conditions = {name: _listed(getattr(filter_, name)) for name in ("must", "should", "must_not")}
        return filter_.model_copy(
            update={
                name: [self._condition(condition) for condition in given]
                for name, given in conditions.items()
                if given
            }
        )

    def _condition(self, condition: models.Condition) -> models.Condition:
        if isinstance(condition, models.HasIdCondition):
            return models.HasIdCondition(has_id=[self._converted_id(id_) for id_ in condition.has_id])
        return self._with_ids(condition) if isinstance(condition, models.Filter) else condition

    def _point(self, point: models.PointStruct) -> models.PointStruct:
        values = {**(point.payload or {}), FIELD: self._id.hex}
        return point.model_copy(update={"id": self._converted_id(point.id), "payload": values})

    def _with_original_ids(self, points: Sequence[Any]) -> list[Any]:
        return [point.model_copy(update={"id": self._converted_id(point.id)}) for point in points]

    def _converted_id(self, id_: Any) -> str:
        """Convert the id of a point to its id on the server, or back."""
        return str(uuid.UUID(int=uuid.UUID(str(id_)).int ^ self._id.int))


def _listed(given: Any) -> list[Any]:
    if given is None:
        return []
    return list(given) if isinstance(given, list) else [given]
