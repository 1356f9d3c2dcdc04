"""Watch a NATS bucket and update a copy in memory within seconds."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import nats.errors
import structlog
from nats.js.kv import KeyValue
from servicekit import key_value
from servicekit.background_task import BackgroundTask
from servicekit.errors import Unavailable
from servicekit.key_value import Entry

from gateway.clients.nats_calls import NATS_FAILURES

_log = structlog.get_logger(__name__)


class BucketWatch(BackgroundTask):
    """Watches a bucket until the block ends. While NATS is unavailable, the copy does not change.

    The watch fills the copy as soon as NATS is available.

    Args:
        bucket: Returns the bucket, or raises `Unavailable` while NATS is unavailable.
        fill: The function that receives all entries, including deletions, at the start and after a gap.
        change: The function that receives each new entry.
        what: What the bucket contains, for log lines.
        check: Seconds without an entry after which the watch checks for a gap. A watch ends silently if its server
            has lost it.
        retry: Seconds between attempts to watch the bucket.
    """

    def __init__(
        self,
        bucket: Callable[[], Awaitable[KeyValue]],
        fill: Callable[[Sequence[Entry]], None],
        change: Callable[[Entry], None],
        *,
        what: str,
        check: float,
        retry: float,
    ) -> None:
        self._bucket = bucket
        self._fill = fill
        self._change = change
        self._what = what
        self._check = check
        self._retry = retry

    async def _run(self) -> None:
        reported = ""
        while True:
            try:
                await self._follow(await self._bucket())
                reported = ""
            except Unavailable:
                await asyncio.sleep(self._retry)  # `NatsLink` logs the failure
            except NATS_FAILURES as error:
                if (text := str(error) or type(error).__name__) != reported:
                    reported = text
                    _log.warning(f"cannot watch {self._what}; the gateway uses the last known ones", error=text)
                await asyncio.sleep(self._retry)
            except Exception:  # without this clause, the watch would end and miss every later change
                _log.exception(f"cannot watch {self._what}; the gateway uses the last known ones")
                await asyncio.sleep(self._check)

    async def _follow(self, bucket: KeyValue) -> None:
        """Fill the copy and keep it up to date. Return if the watch has missed an entry."""
        async with key_value.watched(bucket) as (entries, watcher):
            self._fill(entries)
            revision = max((entry.revision or 0 for entry in entries), default=0)
            while True:
                try:
                    entry = await key_value.next_update(watcher, self._check)
                except nats.errors.TimeoutError:
                    status = await bucket.status()
                    if status.stream_info.state.last_seq != revision:
                        return
                    continue
                if entry is None:
                    continue
                revision = max(revision, entry.revision or 0)
                self._change(entry)
