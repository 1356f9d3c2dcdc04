"""Create a secret key for each period in NATS. All replicas of the gateway share the keys.

The keys sign links and encrypt contents (`identity.period_keys`).
"""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Self

import structlog
from nats.js.kv import KeyValue
from servicekit import key_value
from servicekit.errors import Unavailable
from servicekit.key_value import Entry
from servicekit.tasks import cancel_and_wait

from gateway.clients.bucket_watch import BucketWatch
from gateway.clients.nats_calls import NATS_FAILURES
from gateway.identity.period_keys import PeriodKeys

_log = structlog.get_logger(__name__)
_BYTES = 32


class PeriodKeyWatch:
    """Copies the keys of a bucket to a ring, and creates the key of each period before the period begins.

    The first replica creates a key, and the others read it. The bucket removes old keys.

    Args:
        bucket: Returns the bucket, or raises `Unavailable` while NATS is unavailable.
        ring: The copy of the keys in memory.
        what: The name of the keys in log lines.
        now: Returns seconds since 1970.
        check: As in `BucketWatch`.
        retry: As in `BucketWatch`.
        rotate: Seconds between two checks for a missing key.
    """

    def __init__(
        self,
        bucket: Callable[[], Awaitable[KeyValue]],
        ring: PeriodKeys,
        what: str,
        *,
        now: Callable[[], float] = time.time,
        check: float = 2.0,
        retry: float = 0.5,
        rotate: float = 60.0,
    ) -> None:
        self._bucket = bucket
        self._ring = ring
        self._what = what
        self._now = now
        self._retry = retry
        self._rotate = rotate
        self._watch = BucketWatch(bucket, self._fill, self._change, what=what, check=check, retry=retry)
        self._closing = AsyncExitStack()

    async def __aenter__(self) -> Self:
        """Start the watch. It fills the ring as soon as NATS is available."""
        await self._closing.enter_async_context(self._watch)
        self._closing.push_async_callback(cancel_and_wait, asyncio.create_task(self._keep_rotating()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._closing.aclose()

    async def rotate(self) -> None:
        """Create the missing keys of the current period and, shortly before it begins, of the next period."""
        bucket = await self._bucket()
        for moment in (self._now(), self._now() + self._ring.AHEAD_SECONDS):
            key_id = int(moment // self._ring.PERIOD_SECONDS)
            if key_id not in self._ring.ids:
                await key_value.try_write(bucket.create(str(key_id), secrets.token_bytes(_BYTES)))
                self._change(await bucket.get(str(key_id)))

    async def _keep_rotating(self) -> None:
        reported = ""
        while True:
            pause = self._rotate
            try:
                await self.rotate()
                reported = ""
            except (Unavailable, *NATS_FAILURES) as error:
                if (text := str(error) or type(error).__name__) != reported:
                    reported = text
                    _log.warning(
                        "cannot create a key; the gateway uses the last known keys", keys=self._what, error=text
                    )
                pause = self._retry
            await asyncio.sleep(pause)

    def _fill(self, entries: Sequence[Entry]) -> None:
        self._ring.replace({int(entry.key): entry.value or b"" for entry in entries if _is_key(entry)})

    def _change(self, entry: Entry) -> None:
        if _is_key(entry):
            self._ring.put(int(entry.key), entry.value or b"")


def _is_key(entry: Entry) -> bool:
    return entry.operation is None and entry.key.isdecimal() and len(entry.value or b"") == _BYTES
