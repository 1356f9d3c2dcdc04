"""Writes, reads and removes immutable objects in a NATS object store.

Only one of several concurrent writers creates an object, and a removal leaves no data.

nats-py's `put` replaces objects. If two clients write the same object concurrently, the later client removes the
pieces of the earlier one while others read them. nats-py's `delete` leaves a permanent record. The layout in the
stream follows ADR-20 of nats-architecture-and-design, so `ObjectStore.get` can read these objects.
"""

import asyncio
import base64
import contextlib
import hashlib
import json
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import BinaryIO

import nats.errors
import nats.js.errors
from nats.js import JetStreamContext

from servicekit.tasks import raise_if_cancelled

_PIECE_BYTES = 128 * 1024
_PURGE_SECONDS = 2.0
_WRONG_LAST_SEQUENCE = 10071


async def put_once(
    jetstream: JetStreamContext, bucket: str, name: str, source: BinaryIO, headers: Mapping[str, str] | None = None
) -> None:
    """Write an object if it does not exist; an existing object is unchanged.

    Args:
        jetstream: The JetStream context.
        bucket: The object store.
        name: The name of the object, which determines its content.
        source: The content, read in pieces.
        headers: Headers that are stored with the object.

    Raises:
        nats.errors.Error, nats.js.errors.Error: The store is unavailable or full. The object is then missing or
            complete: the connection may break after the server has stored the object.
    """
    meta = _meta_subject(bucket, name)
    nuid = uuid.uuid4().hex
    pieces = f"$O.{bucket}.C.{nuid}"
    digest = hashlib.sha256()
    size = count = 0
    commit_sent = False
    try:
        while piece := source.read(_PIECE_BYTES):
            digest.update(piece)
            await jetstream.publish(pieces, piece)
            raise_if_cancelled()
            size += len(piece)
            count += 1
        info: dict[str, object] = {
            "name": name,
            "bucket": bucket,
            "nuid": nuid,
            "size": size,
            "chunks": count,
            "mtime": datetime.now(UTC).isoformat(),
            "digest": _digest(digest.digest()),
            "options": {"max_chunk_size": _PIECE_BYTES},
        }
        if headers:
            info["headers"] = {key: [value] for key, value in headers.items() if value}
        # This message makes the object visible. The server refuses it if another client has written the object.
        commit_sent = True
        await jetstream.publish(
            meta, json.dumps(info).encode(), headers={"Nats-Expected-Last-Subject-Sequence": "0"}
        )
    except BaseException as error:
        refused = isinstance(error, nats.js.errors.APIError)
        if refused or not commit_sent:  # otherwise the object may exist and need its pieces
            with contextlib.suppress(nats.errors.Error, TimeoutError, OSError):
                async with asyncio.timeout(_PURGE_SECONDS):
                    # The last piece could arrive after the purge. The server acknowledges this message only after
                    # it has stored the earlier ones.
                    with contextlib.suppress(nats.js.errors.APIError):
                        await jetstream.publish(pieces, b"")
                    await jetstream.purge_stream(f"OBJ_{bucket}", subject=pieces)
        if not (isinstance(error, nats.js.errors.APIError) and error.err_code == _WRONG_LAST_SEQUENCE):
            raise


async def read_small(jetstream: JetStreamContext, bucket: str, name: str) -> bytes | None:
    """Return the content of an object with one piece; None if it is empty, deleted, or has several pieces.

    `ObjectStore.get` reads all objects, but through a subscription. For a small document, this subscription costs
    the server more than all other work. This function needs two requests.

    Raises:
        nats.js.errors.NotFoundError: The object does not exist.
        nats.errors.Error, nats.js.errors.Error: The store is unavailable, or the content is damaged.
    """
    stream = f"OBJ_{bucket}"
    info = json.loads((await jetstream.get_last_msg(stream, _meta_subject(bucket, name))).data or b"{}")
    if info.get("chunks") != 1 or info.get("deleted"):
        return None
    piece = (await jetstream.get_last_msg(stream, f"$O.{bucket}.C.{info['nuid']}")).data
    if piece is None or _digest(hashlib.sha256(piece).digest()) != info["digest"]:
        raise nats.js.errors.DigestMismatchError
    return piece


async def remove(jetstream: JetStreamContext, bucket: str, name: str) -> None:
    """Remove an object; a missing object is no error.

    Raises:
        nats.errors.Error, nats.js.errors.Error: The store is unavailable.
    """
    stream, meta = f"OBJ_{bucket}", _meta_subject(bucket, name)
    try:
        message = await jetstream.get_last_msg(stream, meta)
    except nats.js.errors.NotFoundError:
        return
    nuid = json.loads(message.data or b"{}").get("nuid")
    # Remove the record first, so that readers do not find a partially removed object.
    await jetstream.purge_stream(stream, subject=meta)
    if nuid:
        await jetstream.purge_stream(stream, subject=f"$O.{bucket}.C.{nuid}")


def _digest(sha256: bytes) -> str:
    return f"SHA-256={base64.urlsafe_b64encode(sha256).decode()}"


def _meta_subject(bucket: str, name: str) -> str:
    return f"$O.{bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"
