"""Key-value buckets of NATS: what is in one, and what changes in it."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import nats.errors
import nats.js.errors
from nats.js.kv import KeyValue, StopIterSentinel

Entry = KeyValue.Entry
Watcher = KeyValue.KeyWatcher


@contextlib.asynccontextmanager
async def watched(
    bucket: KeyValue, pattern: str = ">", *, patience: float = 5.0, values: bool = True
) -> AsyncIterator[tuple[list[Entry], Watcher]]:
    """What is there, deletions too, and a watcher that tells what comes after.

    The client's own mark of where the one ends and the other begins can come too early: it counts what its
    subscription has handled, while the first messages may still wait for that. The server's count is asked instead.

    Args:
        bucket: The bucket.
        pattern: Of the keys.
        patience: Seconds to wait for each entry.
        values: The entries have their values.

    Raises:
        nats.errors.TimeoutError: An entry that was sent did not come.
    """
    watcher = await bucket.watch(pattern, inactive_threshold=60, meta_only=not values)
    try:
        subscription: Any = watcher._sub  # there is no public way to it
        info = await subscription.consumer_info()
        there = info.delivered.consumer_seq + info.num_pending
        entries: list[Entry] = []
        while len(entries) < there:
            if (entry := await update(watcher, patience)) is not None:
                entries.append(entry)
        yield entries, watcher
    finally:
        with contextlib.suppress(nats.errors.Error, nats.js.errors.Error):
            stop: Any = watcher.stop  # it has no types
            await stop()


async def update(watcher: Watcher, seconds: float) -> Entry | None:
    """Return the next change; None is the client's mark, and says nothing.

    Raises:
        nats.errors.TimeoutError: There was none.
        nats.errors.BadSubscriptionError: The watcher was stopped.
    """
    updates: Any = watcher.updates  # it has no types
    entry: Entry | StopIterSentinel | None = await updates(timeout=seconds)
    if isinstance(entry, StopIterSentinel):
        raise nats.errors.BadSubscriptionError
    return entry


async def accepted(write: Awaitable[object]) -> bool:
    """Return whether the bucket takes a write that has a condition: the key is new, or it has this revision."""
    try:
        await write
    except nats.js.errors.KeyWrongLastSequenceError:
        return False
    return True


async def stored(bucket: KeyValue, pattern: str = ">") -> list[Entry]:
    """What is there now, without what was deleted."""
    async with watched(bucket, pattern) as (entries, _):
        return [entry for entry in entries if entry.operation is None]


async def names(bucket: KeyValue, pattern: str = ">") -> list[str]:
    """The keys that are there now, without those that were deleted."""
    async with watched(bucket, pattern, values=False) as (entries, _):
        return [entry.key for entry in entries if entry.operation is None]


async def recent_names(bucket: KeyValue, pattern: str = ">") -> list[str]:
    """The keys that are there now, and those that were deleted as long as the server keeps the markers.

    One request brings up to 100,000 of them, where `names` takes a message for each.
    """
    jetstream: Any = bucket._js  # there is no public way to it
    prefix, found = bucket._pre, list[str]()
    while True:
        asked = json.dumps({"subjects_filter": f"{prefix}{pattern}", "offset": len(found)}).encode()
        subject = f"{jetstream._prefix}.STREAM.INFO.{bucket._stream}"
        info = await jetstream._api_request(subject, asked, timeout=jetstream._timeout)
        page = info["state"].get("subjects") or ()
        found += [each.removeprefix(prefix) for each in page]
        if not page or len(found) >= info["total"]:
            return found
