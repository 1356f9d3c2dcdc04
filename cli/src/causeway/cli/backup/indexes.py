"""Saves and restores the retriever's indexes as snapshots."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import grpc
from causeway.cli.backup.folder import Folder, SavedIndex
from causeway.cli.errors import CommandError
from causeway.retriever.v1 import backup_pb2, backup_pb2_grpc
from servicekit import rpc
from servicekit.deadline import Deadline

_RESPONSE_SECONDS = 30.0
_INDEX_SECONDS = 3600.0
_PIECE_BYTES = 256 * 1024


class RetrieverIndexes:
    """The indexes of all tenants. Its methods raise `CausewayError` if the retriever fails.

    Args:
        channel: The channel to the retriever.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub: Any = backup_pb2_grpc.BackupServiceStub(channel)

    async def names(self) -> list[tuple[str, str]]:
        """Return the tenant and the name of each index."""
        request = backup_pb2.ListAllIndexesRequest()
        response = await rpc.unary(self._stub.ListAllIndexes, request, Deadline.after(_RESPONSE_SECONDS))
        return [(index.tenant, index.index) for index in response.indexes]

    async def save(self, tenant: str, name: str, folder: Folder, file: str) -> SavedIndex:
        """Write the snapshot of an index to a file of the folder.

        Raises:
            CommandError: The retriever sends no snapshot, or the file cannot be written.
        """
        request = backup_pb2.SaveIndexRequest(index=backup_pb2.TenantIndex(tenant=tenant, index=name))
        async with aclosing(
            rpc.server_stream(self._stub.SaveIndex, request, Deadline.after(_INDEX_SECONDS))
        ) as parts:
            first = await anext(parts, None)
            if first is None or not first.manifest:
                raise CommandError(f"the retriever sent no snapshot of the index '{name}'")

            async def points() -> AsyncIterator[bytes]:
                async for piece in parts:
                    yield piece.points

            part = await folder.write(file, points())
            return SavedIndex(tenant=tenant, name=name, manifest=first.manifest.decode(), part=part)

    async def restore(self, index: SavedIndex, folder: Folder) -> None:
        """Create an index from its file in the folder."""

        async def requests() -> AsyncIterator[backup_pb2.RestoreIndexRequest]:
            target = backup_pb2.TenantIndex(tenant=index.tenant, index=index.name)
            begin = backup_pb2.RestoredIndex(index=target, manifest=index.manifest.encode())
            yield backup_pb2.RestoreIndexRequest(begin=begin)
            async for piece in folder.pieces(index.part, _PIECE_BYTES):
                yield backup_pb2.RestoreIndexRequest(points=piece)

        name = "causeway.retriever.v1.BackupService/RestoreIndex"
        await rpc.client_stream(self._stub.RestoreIndex, requests(), name, Deadline.after(_INDEX_SECONDS))
