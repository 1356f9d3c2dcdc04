"""Connects the operator to the two stores of an installation: NATS and the retriever."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from causeway.cli import stack_file
from causeway.cli.backup.indexes import RetrieverIndexes
from causeway.cli.errors import CommandError
from causeway.cli.operator_connection import certificates_from_environment, operator_connection
from causeway.cli.options import DEFAULT_RETRIEVER, resolve_nats
from causeway.cli.signals import cancelled_by_signals
from causeway.cli.stack import RETRIEVER, Stack
from causeway.retriever.v1 import backup_pb2
from nats.aio.client import Client
from servicekit.channel import open_channel
from servicekit.errors import CausewayError

_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Installation:
    """The operator's connections to the stores of an installation.

    Attributes:
        broker: The connection to NATS.
        indexes: The retriever's indexes.
        may_have_workers: Whether ingest workers may be running.
    """

    broker: Client
    indexes: RetrieverIndexes
    may_have_workers: bool


@contextlib.asynccontextmanager
async def opened(nats_url: str | None, retriever: str | None, data_dir: Path) -> AsyncIterator[Installation]:
    """Connect to the installation at the given addresses, or to the stack that runs on a directory.

    If neither an address is given nor a stack runs, this function starts NATS and the retriever on the directory
    and stops them at the end of the block.

    Raises:
        CommandError: The installation cannot be reached or started.
    """
    found = stack_file.read(data_dir)
    if nats_url or retriever or found:
        socket = found.get("services", {}).get(RETRIEVER, {}).get("socket")
        target = retriever or (f"unix:{socket}" if socket else DEFAULT_RETRIEVER)
        async with _connected(resolve_nats(nats_url, data_dir), target, may_have_workers=True) as installation:
            yield installation
        return
    stack = Stack(data_dir, 0, report=lambda _: None)
    with cancelled_by_signals(stack.kill):
        try:
            await stack.start_store(within=_START_SECONDS)
            async with _connected(stack.nats_url, stack.target(RETRIEVER), may_have_workers=False) as installation:
                yield installation
        finally:
            await stack.stop()


@contextlib.asynccontextmanager
async def _connected(nats_url: str, target: str, *, may_have_workers: bool) -> AsyncIterator[Installation]:
    service = backup_pb2.DESCRIPTOR.services_by_name["BackupService"]
    async with operator_connection(nats_url) as client:
        try:
            async with open_channel(target, [service], certificates_from_environment()) as channel:
                yield Installation(client, RetrieverIndexes(channel), may_have_workers)
        except CausewayError as error:
            raise CommandError(f"the retriever at {target} failed: {error.message}") from error
