"""The API keys over NATS: the bucket is watched, so that what is made or revoked is so here within seconds."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

import nats.errors
import nats.js.errors
import structlog
from nats.js.kv import KeyValue
from servicekit import key_value
from servicekit.api_keys import ApiKey
from servicekit.deadline import Deadline
from servicekit.errors import Unavailable
from servicekit.tasks import ended

from gateway.identity.key_ring import KeyRing

_log = structlog.get_logger(__name__)
_FAILURES = (OSError, TimeoutError, nats.errors.Error, nats.js.errors.Error)


class KeyWatch:
    """Keeps a ring as the bucket is. A `Probe`: before the keys are known nobody can be let in.

    Args:
        bucket: Gives the bucket; raises `Unavailable` while NATS is away.
        ring: What is filled.
        check: Seconds of silence after which the bucket is asked whether something was missed: a watch ends without
            a word where its server has forgotten it.
        retry: Seconds between attempts.
    """

    name = "api-keys"

    def __init__(
        self, bucket: Callable[[], Awaitable[KeyValue]], ring: KeyRing, *, check: float = 2.0, retry: float = 0.5
    ) -> None:
        self._bucket = bucket
        self._ring = ring
        self._check = check
        self._retry = retry
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Begins; the ring is filled as soon as NATS answers."""
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._watching is not None:
            await ended(self._watching)

    async def check(self, deadline: Deadline) -> str | None:  # noqa: ARG002  # as the port has it
        """See `ports.health.Probe`."""
        return None if self._ring.filled else "not read yet"

    async def _watch(self) -> None:
        told = ""
        while True:
            try:
                await self._follow(await self._bucket())
                told = ""
            except Unavailable:
                await asyncio.sleep(self._retry)  # the link says it itself
            except _FAILURES as error:
                if (text := str(error) or type(error).__name__) != told:
                    told = text
                    _log.warning("the API keys cannot be watched; keeping those that are known", error=text)
                await asyncio.sleep(self._retry)
            except Exception:  # a watch that has ended would take every revocation with it
                _log.exception("the API keys cannot be watched; keeping those that are known")
                await asyncio.sleep(self._check)

    async def _follow(self, bucket: KeyValue) -> None:
        """Fills the ring and keeps it so; returns when the watch has missed something."""
        async with key_value.watched(bucket) as (entries, watcher):
            self._ring.replace([key for entry in entries if (key := _key(entry)) is not None])
            revision = max((entry.revision or 0 for entry in entries), default=0)
            while True:
                try:
                    entry = await key_value.update(watcher, self._check)
                except nats.errors.TimeoutError:
                    status = await bucket.status()
                    if status.stream_info.state.last_seq != revision:
                        return
                    continue
                if entry is None:
                    continue
                revision = max(revision, entry.revision or 0)
                if (key := _key(entry)) is not None:
                    self._ring.put(key)
                else:
                    self._ring.remove(entry.key)


def _key(entry: KeyValue.Entry) -> ApiKey | None:
    """The record; None where the key was revoked, or where it is none, which is refused like a revoked one."""
    if entry.operation is not None:
        return None
    try:
        key = ApiKey.from_json(entry.value or b"")
    except ValueError as error:
        _log.error("an API key cannot be read; it is refused", key=entry.key, error=str(error))
        return None
    return key if key.id == entry.key else None
