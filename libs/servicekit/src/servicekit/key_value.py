"""Functions for NATS key-value buckets: listings, changes and conditional writes."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import nats.errors
import nats.js.errors
from nats.js.kv import KeyValue, StopIterSentinel

Entry = KeyValue.Entry
Watcher = KeyValue.KeyWatcher
_TIMEOUT_SECONDS = 5.0
"""Time-out for each expected entry."""


@contextlib.asynccontextmanager
async def watched(
    bucket: KeyValue, pattern: str = ">", *, values: bool = True
) -> AsyncIterator[tuple[list[Entry], Watcher]]:
    """Yield the entries of a bucket, including deletions, and a watcher of later changes.

    A bucket without history keeps only the last change of a key. So the server does not report a change that is
    replaced before it is sent.

    nats-py puts a marker between the entries and the changes. It can put the marker too early, while entries still
    wait in its own queue. So this function requests the number of entries from the server.

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
        count = info.delivered.consumer_seq + info.num_pending
        entries: list[Entry] = []
        while len(entries) < count:
            if (entry := await next_update(watcher, _TIMEOUT_SECONDS)) is not None:
                entries.append(entry)
        yield entries, watcher
    finally:
        with contextlib.suppress(nats.errors.Error, nats.js.errors.Error):
            stop: Any = watcher.stop  # without types
            await stop()


async def next_update(watcher: Watcher, seconds: float) -> Entry | None:
    """Return the next change, or None for nats-py's marker, which callers ignore.

    Raises:
        nats.errors.TimeoutError: There was no change within the time.
        nats.errors.BadSubscriptionError: The watcher was stopped.
    """
    updates: Any = watcher.updates  # without types
    entry: Entry | StopIterSentinel | None = await updates(timeout=seconds)
    if isinstance(entry, StopIterSentinel):
        raise nats.errors.BadSubscriptionError
    return entry


async def try_write(write: Awaitable[object]) -> bool:
    """Await a conditional write (`create`, or `update` of a revision); return whether the bucket accepted it."""
    try:
        await write
    except nats.js.errors.KeyWrongLastSequenceError:
        return False
    return True


async def current_entries(bucket: KeyValue, pattern: str = ">", *, values: bool = True) -> list[Entry]:
    """Return the current entries, without deleted ones.

    The server keeps the consumer of an ended watcher for a minute, and it limits the number of consumers. So this
    function deletes the consumer.
    """
    async with watched(bucket, pattern, values=values) as (entries, watcher):
        subscription: Any = watcher._sub  # the client has no public access to it
    with contextlib.suppress(nats.errors.Error, nats.js.errors.Error, TimeoutError):
        await bucket._js.delete_consumer(bucket._stream, subscription._consumer)
    return [entry for entry in entries if entry.operation is None]


async def current_keys(bucket: KeyValue, pattern: str = ">") -> list[str]:
    """Return the current keys, without deleted ones."""
    return [entry.key for entry in await current_entries(bucket, pattern, values=False)]


async def recent_keys(bucket: KeyValue, pattern: str = ">") -> list[str]:
    """Return the current keys, and the deleted keys whose markers the server still stores.

    One request returns up to 100,000 keys. `current_keys` needs one message per key.
    """
    jetstream: Any = bucket._js  # the client has no public access to it
    prefix, found = bucket._pre, list[str]()
    while True:
        request = json.dumps({"subjects_filter": f"{prefix}{pattern}", "offset": len(found)}).encode()
        call = f"{jetstream._prefix}.STREAM.INFO.{bucket._stream}"
        info = await jetstream._api_request(call, request, timeout=jetstream._timeout)
        page = info["state"].get("subjects") or ()
        found += [subject.removeprefix(prefix) for subject in page]
        if not page or len(found) >= info["total"]:
            return found
