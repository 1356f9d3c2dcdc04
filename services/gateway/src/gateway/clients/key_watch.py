"""Watch the API keys in NATS, so that a new or revoked key takes effect in the gateway within seconds."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Self

import structlog
from nats.js.kv import KeyValue
from servicekit.api_keys import ApiKey
from servicekit.deadline import Deadline

from gateway.clients.bucket_watch import BucketWatch
from gateway.identity.key_ring import KeyRing

_log = structlog.get_logger(__name__)


class KeyWatch:
    """Keeps a key ring up to date.

    The watch is also a `Probe`, because the gateway cannot identify callers before it has read the keys.

    Args:
        bucket: Returns the bucket, or raises `Unavailable` while NATS is unavailable.
        ring: The key ring.
        check: As in `BucketWatch`.
        retry: As in `BucketWatch`.
    """

    name = "api-keys"

    def __init__(
        self, bucket: Callable[[], Awaitable[KeyValue]], ring: KeyRing, *, check: float = 2.0, retry: float = 0.5
    ) -> None:
        self._ring = ring
        self._watch = BucketWatch(bucket, self._fill, self._change, what="the API keys", check=check, retry=retry)

    async def __aenter__(self) -> Self:
        """Start the watch. It fills the ring as soon as NATS is available."""
        await self._watch.__aenter__()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._watch.__aexit__(*exc)

    async def check(self, deadline: Deadline) -> str | None:  # noqa: ARG002  # the port requires it
        """See `ports.health.Probe`."""
        return None if self._ring.loaded else "not read yet"

    def _fill(self, entries: Sequence[KeyValue.Entry]) -> None:
        self._ring.replace([key for entry in entries if (key := _key(entry)) is not None])

    def _change(self, entry: KeyValue.Entry) -> None:
        if (key := _key(entry)) is not None:
            self._ring.put(key)
        else:
            self._ring.remove(entry.key)


def _key(entry: KeyValue.Entry) -> ApiKey | None:
    """Return the record, or None for a revoked key and for an invalid record. The gateway refuses both."""
    if entry.operation is not None:
        return None
    try:
        key = ApiKey.from_json(entry.value or b"")
    except ValueError as error:
        _log.error(
            "the record of an API key is invalid; the gateway refuses the key", key=entry.key, error=str(error)
        )
        return None
    return key if key.id == entry.key else None
