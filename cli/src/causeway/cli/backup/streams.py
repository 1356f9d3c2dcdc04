"""Saves and restores streams as JetStream snapshots: the messages, their sequence numbers and the configuration.

The server sends a snapshot (``$JS.API.STREAM.SNAPSHOT``) in pieces and waits for their acknowledgements. For a
restore (``$JS.API.STREAM.RESTORE``), this module sends each piece as a request. nats-py has no methods for these
calls.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from typing import Any

from causeway.cli.backup.folder import Folder, SavedStream
from causeway.cli.errors import CommandError
from nats.aio.client import Client
from nats.js.api import StorageType, StreamInfo
from servicekit import keys

_PREFIXES = ("CAUSEWAY_", "KV_causeway-", "OBJ_causeway-")
_PAGE_SIZE = 256  # the server's page size
_PIECE_BYTES = 128 * 1024
_RESPONSE_SECONDS = 30.0
_PIECE_SECONDS = 60.0
_EXCLUDED = frozenset({f"KV_{keys.QUOTAS_BUCKET}", f"KV_{keys.LINK_KEYS_BUCKET}"})
"""Streams without permanent data: entries expire within two days. Gateways create these streams at their start."""


async def list_streams(client: Client) -> list[StreamInfo]:
    """Return the platform's streams to back up, ordered by name."""
    jetstream = client.jetstream(timeout=_RESPONSE_SECONDS)
    found: list[StreamInfo] = []
    while True:
        page = await jetstream.streams_info(offset=len(found))
        found += page
        if len(page) < _PAGE_SIZE:
            break
    return sorted(
        (
            stream
            for stream in found
            if (name := stream.config.name or "").startswith(_PREFIXES)
            and name not in _EXCLUDED
            and stream.config.storage != StorageType.MEMORY  # the library returns a string
        ),
        key=lambda stream: stream.config.name or "",
    )


async def save(client: Client, name: str, folder: Folder) -> SavedStream:
    """Write a consistent snapshot of a stream to a file.

    Raises:
        CommandError: The server refuses or interrupts the snapshot.
    """
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        request = {"deliver_subject": inbox, "no_consumers": True, "jsck": True, "chunk_size": _PIECE_BYTES}
        response = await _request(client, f"$JS.API.STREAM.SNAPSHOT.{name}", json.dumps(request).encode(), name)

        async def pieces() -> AsyncIterator[bytes]:
            while True:
                try:
                    message = await subscription.next_msg(timeout=_PIECE_SECONDS)
                except TimeoutError:
                    raise CommandError(
                        f"NATS sent no part of the snapshot of {name} for {_PIECE_SECONDS:g} s"
                    ) from None
                if not message.data:
                    status = (message.headers or {}).get("Status", "")
                    if status and not status.startswith("2"):
                        raise CommandError(f"NATS aborted the snapshot of {name} (status {status})")
                    return
                yield message.data
                if message.reply:
                    await client.publish(message.reply)

        part = await folder.write(f"{name}.stream", pieces())
    finally:
        await subscription.unsubscribe()
    return SavedStream(
        name=name,
        messages=response["state"]["messages"],
        configuration=response["config"],
        state=response["state"],
        part=part,
    )


async def restore(client: Client, stream: SavedStream, folder: Folder, replicas: int | None) -> None:
    """Create a stream from its file.

    Args:
        client: The operator's connection.
        stream: The stream; the server must not have a stream with this name.
        folder: The folder with the stream's file.
        replicas: Number of replicas; None: the number in the backup.

    Raises:
        CommandError: The server refuses the stream.
    """
    configuration = stream.configuration | ({} if replicas is None else {"num_replicas": replicas})
    request = {"config": configuration, "state": stream.state}
    response = await _request(
        client, f"$JS.API.STREAM.RESTORE.{stream.name}", json.dumps(request).encode(), stream.name
    )
    subject = response["deliver_subject"]
    async for piece in folder.pieces(stream.part, _PIECE_BYTES):
        await _request(client, subject, piece, stream.name)
    created = await _request(client, subject, b"", stream.name)
    restored = created.get("state", {}).get("messages", 0)
    if restored != stream.messages:
        raise CommandError(f"NATS restored {restored} of the {stream.messages} messages of {stream.name}")


async def remove(client: Client, names: Collection[str]) -> None:
    """Delete streams. A restore first deletes empty streams and then creates them again."""
    jetstream = client.jetstream(timeout=_RESPONSE_SECONDS)
    for name in names:
        await jetstream.delete_stream(name)


async def _request(client: Client, subject: str, payload: bytes, name: str) -> dict[str, Any]:
    async with asyncio.timeout(_PIECE_SECONDS):
        message = await client.request(subject, payload, timeout=_PIECE_SECONDS)
    response: dict[str, Any] = json.loads(message.data) if message.data else {}
    if error := response.get("error"):
        raise CommandError(f"NATS refuses to save or restore the stream {name}: {error.get('description', error)}")
    return response
