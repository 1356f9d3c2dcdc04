"""Exchange quota usage between replicas of the gateway over NATS."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable

import structlog
from nats.js.kv import KeyValue
from servicekit import key_value, keys
from servicekit.background_task import BackgroundTask
from servicekit.errors import Unavailable
from servicekit.tasks import cancel_and_wait

from gateway.clients.nats_calls import NATS_FAILURES
from gateway.quotas.ledger import Ledger

_log = structlog.get_logger(__name__)
_MAX_WRITES = 64
_HEARTBEAT_SECONDS = 2.0
"""Seconds between the heartbeats of a replica."""
_PAUSE_SECONDS = 0.025
"""The minimum number of seconds between rounds."""


class QuotaShare(BackgroundTask):
    """Synchronises a ledger with the ledgers of the other replicas, in the background.

    The ledger counts the usage of the other replicas as soon as NATS is available.

    Each key of the bucket has one writer, which always writes the whole value. A repeated message therefore neither
    loses usage nor counts it twice. The next round begins after the previous round is stored, so that a slow server
    receives fewer calls.

    Args:
        bucket: Returns the bucket, or raises `Unavailable` while NATS is unavailable.
        ledger: The ledger.
        retry: Seconds between attempts to reach the bucket.
    """

    def __init__(
        self,
        bucket: Callable[[], Awaitable[KeyValue]],
        ledger: Ledger,
        *,
        retry: float = 0.5,
    ) -> None:
        self._bucket = bucket
        self._ledger = ledger
        self._retry = retry
        self._changed = asyncio.Event()
        ledger.on_change = self._changed.set

    async def __aexit__(self, *exc: object) -> None:
        await super().__aexit__(*exc)
        # If the deletion fails, the other replicas detect the missing heartbeats.
        with contextlib.suppress(Unavailable, *NATS_FAILURES):
            async with asyncio.timeout(_HEARTBEAT_SECONDS):
                bucket = await self._bucket()
                await bucket.delete(keys.quota_replica_key(self._ledger.replica))

    async def _run(self) -> None:
        reported = ""
        while True:
            try:
                await self._follow(await self._bucket())
            except Unavailable:
                pass  # `NatsLink` logs the failure
            except NATS_FAILURES as error:
                if (text := str(error) or type(error).__name__) != reported:
                    reported = text
                    _log.warning(
                        "cannot exchange quota usage; each replica uses an equal share of each quota", error=text
                    )
            finally:
                self._ledger.disconnected()
            self._ledger.prune()
            await asyncio.sleep(self._retry)

    async def _follow(self, bucket: KeyValue) -> None:
        """Exchange usage until a call fails."""
        async with key_value.watched(bucket) as (entries, watcher):
            replicas = []
            for entry in entries:
                replica, holder = keys.quota_parts(entry.key)
                if holder:
                    self._read(replica, holder, entry)
                elif entry.operation is None:
                    replicas.append(replica)
            self._ledger.connected(replicas)
            tasks = [
                asyncio.create_task(coroutine) for coroutine in (self._publish(bucket), self._receive(watcher))
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                await cancel_and_wait(*tasks)
        for task in tasks:
            if not task.cancelled():
                task.result()  # raises, because a task ends only after a failure

    async def _receive(self, watcher: key_value.Watcher) -> None:
        while True:
            # The watch also returns the heartbeats of this replica. If no entry arrives in time, the watch is lost.
            entry = await key_value.next_update(watcher, 3 * _HEARTBEAT_SECONDS)
            if entry is None:
                continue
            replica, holder = keys.quota_parts(entry.key)
            if holder:
                self._read(replica, holder, entry)
            elif entry.operation is None:
                self._ledger.add_replica(replica)
            else:
                self._ledger.remove_replica(replica)

    def _read(self, replica: str, holder: str, entry: key_value.Entry) -> None:
        if entry.operation is not None:
            return
        try:
            self._ledger.receive(replica, holder, entry.value or b"")
        except ValueError as error:
            _log.error("the quota usage of a replica is invalid", key=entry.key, error=str(error))

    async def _publish(self, bucket: KeyValue) -> None:
        replica, last_heartbeat = self._ledger.replica, 0.0
        while True:
            if time.monotonic() - last_heartbeat >= _HEARTBEAT_SECONDS:
                last_heartbeat = time.monotonic()
                self._ledger.prune()
                await bucket.put(keys.quota_replica_key(replica), b"")
            self._changed.clear()
            unpublished = [
                (keys.quota_key(replica, holder), raw) for holder, raw in self._ledger.take_unpublished()
            ]
            for first in range(0, len(unpublished), _MAX_WRITES):
                await asyncio.gather(
                    *(bucket.put(key, raw) for key, raw in unpublished[first : first + _MAX_WRITES])
                )
            await asyncio.sleep(_PAUSE_SECONDS)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_SECONDS):
                    await self._changed.wait()
