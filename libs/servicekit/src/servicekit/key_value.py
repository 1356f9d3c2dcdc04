"""Entries and changes of NATS key-value buckets."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import nats.errors
import nats.js.errors
from nats.js.kv import KeyValue, StopIterSentinel

Entry = KeyValue.Entry
Watcher = KeyValue.KeyWatcher
_SECONDS = 5.0
"""The longest wait for each expected entry."""


@contextlib.asynccontextmanager
async def watched(
    bucket: KeyValue, pattern: str = ">", *, values: bool = True
) -> AsyncIterator[tuple[list[Entry], Watcher]]:
    """Yield the entries of a bucket, including deletions, and a watcher of later changes.

    The client's marker between the entries and the changes can arrive too early: it counts the messages that its
    subscription has handled, while the first ones may still be queued. So this function asks the server for the
    count.

    Args:
        bucket: The bucket.
        pattern: A pattern of the keys.
        values: Whether the entries have their values.

    Raises:
        nats.errors.TimeoutError: An expected entry did not arrive.
    """
    watcher = await bucket.watch(pattern, inactive_threshold=60, meta_only=not values)
    try:
        subscription: Any = watcher._sub  # the client has no public access to it
        info = await subscription.consumer_info()
        there = info.delivered.consumer_seq + info.num_pending
        entries: list[Entry] = []
        while len(entries) < there:
            if (entry := await update(watcher, _SECONDS)) is not None:
                entries.append(entry)
        yield entries, watcher
    finally:
        with contextlib.suppress(nats.errors.Error, nats.js.errors.Error):
            stop: Any = watcher.stop  # without types
            await stop()


async def update(watcher: Watcher, seconds: float) -> Entry | None:
    """Return the next change, or None for the client's marker, which has no meaning.

    Raises:
        nats.errors.TimeoutError: There was no change.
        nats.errors.BadSubscriptionError: The watcher was stopped.
    """
    updates: Any = watcher.updates  # without types
    entry: Entry | StopIterSentinel | None = await updates(timeout=seconds)
    if isinstance(entry, StopIterSentinel):
        raise nats.errors.BadSubscriptionError
    return entry


async def accepted(write: Awaitable[object]) -> bool:
    """Return whether the bucket accepts a conditional write: the key is new, or has this revision."""
    try:
        await write
    except nats.js.errors.KeyWrongLastSequenceError:
        return False
    return True


async def stored(bucket: KeyValue, pattern: str = ">") -> list[Entry]:
    """Return the current entries, without deleted ones."""
    async with watched(bucket, pattern) as (entries, _):
        return [entry for entry in entries if entry.operation is None]


async def names(bucket: KeyValue, pattern: str = ">") -> list[str]:
    """Return the current keys, without deleted ones."""
    async with watched(bucket, pattern, values=False) as (entries, _):
        return [entry.key for entry in entries if entry.operation is None]


async def recent_names(bucket: KeyValue, pattern: str = ">") -> list[str]:
    """Return the current keys, and deleted ones as long as the server keeps their markers.

    One request returns up to 100,000 keys, while `names` needs a message for each.
    """
    jetstream: Any = bucket._js  # the client has no public access to it
    prefix, found = bucket._pre, list[str]()
    while True:
        request = json.dumps({"subjects_filter": f"{prefix}{pattern}", "offset": len(found)}).encode()
        subject = f"{jetstream._prefix}.STREAM.INFO.{bucket._stream}"
        info = await jetstream._api_request(subject, request, timeout=jetstream._timeout)
        page = info["state"].get("subjects") or ()
        found += [each.removeprefix(prefix) for each in page]
        if not page or len(found) >= info["total"]:
            return found
