"""The gRPC service for backups. It streams snapshots of the indexes of all tenants."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from causeway.retriever.v1 import backup_pb2, backup_pb2_grpc
from grpc.aio import ServicerContext
from servicekit.errors import InvalidRequest

from retriever.indexes.backups import Backups

_Context = ServicerContext[Any, Any]


class BackupServicer(backup_pb2_grpc.BackupServiceServicer):
    """``causeway.retriever.v1.BackupService``."""

    def __init__(self, backups: Backups) -> None:
        self._backups = backups

    async def ListAllIndexes(  # noqa: N802  # gRPC's name
        self, request: backup_pb2.ListAllIndexesRequest, _context: _Context
    ) -> backup_pb2.ListAllIndexesResponse:
        """List the indexes of all tenants."""
        del request
        return backup_pb2.ListAllIndexesResponse(
            indexes=[
                backup_pb2.TenantIndex(tenant=tenant, index=name) for tenant, name in await self._backups.names()
            ]
        )

    async def SaveIndex(  # noqa: N802  # gRPC's name
        self, request: backup_pb2.SaveIndexRequest, _context: _Context
    ) -> AsyncIterator[backup_pb2.SaveIndexResponse]:
        """Stream a snapshot of an index."""
        async with aclosing(self._backups.save(request.index.tenant, request.index.index)) as parts:
            yield backup_pb2.SaveIndexResponse(manifest=await anext(parts))
            async for piece in parts:
                yield backup_pb2.SaveIndexResponse(points=piece)

    async def RestoreIndex(  # noqa: N802  # gRPC's name
        self, request_iterator: AsyncIterator[backup_pb2.RestoreIndexRequest], _context: _Context
    ) -> backup_pb2.RestoreIndexResponse:
        """Create an index from a snapshot."""
        first = await anext(request_iterator, None)
        if first is None or first.WhichOneof("part") != "begin":
            raise InvalidRequest("The first message must name the index.", field="begin")
        index = first.begin.index
        contents = await self._backups.restore(
            index.tenant, index.index, first.begin.manifest, _pieces(request_iterator)
        )
        return backup_pb2.RestoreIndexResponse(document_count=contents.documents, chunk_count=contents.chunks)


async def _pieces(requests: AsyncIterator[backup_pb2.RestoreIndexRequest]) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request.points
