"""Replay of documents that were written to a shard while a new shard was built from its copy."""

from collections.abc import Callable

import qdrant_edge as edge
from servicekit import keys

from retriever.concurrency.scheduler import Scheduler
from retriever.stores.edge import schema

_SLICE = 16  # points, about 3 ms


async def replay(
    document_id: str, name: str, source: Callable[[], edge.EdgeShard], target: edge.EdgeShard, scheduler: Scheduler
) -> None:
    """Copy all points of a document from one shard to another, in slices.

    Args:
        document_id: The id of the document.
        name: The name of the collection.
        source: Returns the shard to read. Raises an error if the collection was dropped or replaced.
        target: The shard to write. Its points of the document are replaced.
        scheduler: Makes bulk work wait for searches.
    """
    async with scheduler.slice():
        target.update(edge.UpdateOperation.delete_points_by_filter(schema.points_of_document(document_id)))
    mark = keys.mark_point_id(name, document_id)
    async with scheduler.slice():
        if source().retrieve([mark], with_payload=False, with_vector=False):
            target.update(edge.UpdateOperation.upsert_points([schema.mark_point(mark, document_id)]))
        else:
            target.update(edge.UpdateOperation.delete_points([mark]))
    offset: edge.PointId | None = None
    while True:
        async with scheduler.slice():
            points, offset = source().scroll(
                edge.ScrollRequest(
                    offset=offset,
                    limit=_SLICE,
                    filter=schema.points_of_document(document_id),
                    with_payload=True,
                    with_vector=True,
                )
            )
            if points:
                target.update(edge.UpdateOperation.upsert_points([schema.copied(point) for point in points]))
        if offset is None:
            break
