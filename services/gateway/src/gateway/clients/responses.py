"""Store responses and conversations in a key-value bucket of NATS: one compressed value per key.

A value that is too large for a message contains the location of its pieces instead (`large_responses.py`).
"""

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
from nats.js import JetStreamContext
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue
from servicekit import key_value, keys, response_keys
from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.clients.large_responses import LargeResponses, Pieces
from gateway.clients.nats_calls import call_nats
from gateway.domain.responses import RESPONSE, Item, Owned, OwnedPage, Stored, is_id

_TARGET = "The store of responses"
# NATS limits the payload and the headers of a message together to 1 MiB (``max_payload``).
_MAX_BYTES = 1_000_000
_MIN_THREAD_BYTES = 64 * 1024
_MAX_MEMBER_BYTES = 1024
_MAX_READS = 3
_MAX_OWNERS = 10_000
# Seconds until the server removes the marker of a deleted key.
_MARKER_SECONDS = 3600.0
_AFTER_EVERY_AGE = "~"
"""A text that sorts after each result of `_age`."""


class _Record(msgspec.Struct):
    profile: str
    object: dict[str, object]
    items: list[Item]
    chain: list[str]
    sources: list[tuple[str, str]] = []
    # The key contains only a digest of a long name. Records of earlier versions have no owner.
    owner: str | None = None
    # The location of the whole record, if it is too large for a key. `object` then has only its small members.
    pieces: Pieces | None = None


_record = msgspec.json.Decoder(_Record)


class NatsResponses:
    """`ports.responses.ResponseStore` over a key-value bucket.

    Args:
        bucket: Returns the bucket, or raises `Unavailable` while NATS is unavailable.
        large: Returns the JetStream context for records that are too large for a key, or raises `Unavailable` while
            NATS is unavailable.
        limit: The maximum number of responses and conversations of a user. The store may exceed it by a tenth.
            Each gateway counts only its own saves between two counts of all records, so several gateways may
            together exceed the limit by more.
    """

    def __init__(
        self,
        bucket: Callable[[], Awaitable[KeyValue]],
        large: Callable[[], Awaitable[JetStreamContext]],
        *,
        limit: int,
    ) -> None:
        self._bucket = bucket
        self._large = LargeResponses(large)
        self._limit = limit
        # The number of records that a user may save before the next count of the records.
        self._left: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def save(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored:
        """See `ports.responses.ResponseStore`."""
        bucket, key = await self._bucket(), _key(principal, stored.id)
        await self._remove_oldest(bucket, principal.tenant, principal.owner, deadline)
        value, pieces = await self._written(key, stored, principal.owner, deadline)
        revision = await call_nats(bucket.put(key, value), deadline, _TARGET)
        if pieces is not None:
            await self._large.delete(bucket._js, key, deadline, before=pieces.first)
        return replace(stored, revision=revision)

    async def replace(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored | None:
        """See `ports.responses.ResponseStore`."""
        bucket, key = await self._bucket(), _key(principal, stored.id)
        value, pieces = await self._written(key, stored, principal.owner, deadline)
        revision = await call_nats(_updated(bucket, key, value, stored.revision), deadline, _TARGET)
        if pieces is not None and revision is not None:
            await self._large.delete(bucket._js, key, deadline, before=pieces.first)
        elif pieces is not None:
            await self._large.delete(bucket._js, key, deadline, pieces.name)
        return None if revision is None else replace(stored, revision=revision)

    async def read(self, principal: Principal, stored_id: str, deadline: Deadline) -> Stored | None:
        """See `ports.responses.ResponseStore`."""
        bucket, key = await self._bucket(), _key(principal, stored_id)
        for _ in range(_MAX_READS):
            found = await _read(bucket, key, deadline)
            if found is None:
                return None
            record, stored, _size = found
            if record.pieces is None:
                return stored
            packed = await self._large.read(bucket._js, key, record.pieces, deadline)
            if packed is not None:
                return _stored(key, await _unpacked(packed), stored.revision)
            # Another gateway has replaced the record and deleted its pieces. Read the record again.
        return None

    async def delete(self, principal: Principal, stored_id: str, deadline: Deadline) -> bool:
        """See `ports.responses.ResponseStore`."""
        bucket, key = await self._bucket(), _key(principal, stored_id)
        if await _read(bucket, key, deadline) is None:
            return False
        await self._purge(bucket, key, deadline)
        return True

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """See `ports.responses.ResponseStore`."""
        bucket = await self._bucket()
        found = await self._names(bucket, tenant, owner, deadline)
        for name in found:
            await call_nats(bucket.purge(name, _MARKER_SECONDS), deadline, _TARGET)
        await self._large.delete(bucket._js, keys.user_pattern(tenant, owner), deadline)
        return len(found)

    async def page(self, tenant: str, count: int, token: str, deadline: Deadline) -> OwnedPage:
        """See `ports.responses.ResponseStore`."""
        bucket = await self._bucket()
        listed = await call_nats(
            key_value.recent_keys(bucket, response_keys.tenant_responses(tenant)), deadline, _TARGET
        )
        last = _age(token) or _AFTER_EVERY_AGE
        older = [name for name in listed if is_id(_id(name), RESPONSE) and _age(name) < last]
        older.sort(key=_age, reverse=True)
        found = [await _owned(bucket, name, deadline) for name in older[:count]]
        next_token = _id(older[count - 1]) if len(older) > count else ""
        return OwnedPage(tuple(owned for owned in found if owned is not None), next_token)

    async def find(self, tenant: str, name: str, deadline: Deadline) -> Owned | None:
        """See `ports.responses.ResponseStore`."""
        bucket = await self._bucket()
        pattern = response_keys.tenant_responses(tenant, name)
        listed = await call_nats(key_value.recent_keys(bucket, pattern), deadline, _TARGET)
        return await _owned(bucket, listed[0], deadline) if listed else None

    async def _remove_oldest(self, bucket: KeyValue, tenant: str, owner: str, deadline: Deadline) -> None:
        """Delete the oldest records of a user with too many records.

        The gateway does not count the records for each save, because the cost of a count grows with their number.
        """
        left = self._left.pop((tenant, owner), 0)
        if left <= 0:
            found = sorted(await self._names(bucket, tenant, owner, deadline), key=_age)
            for name in found[: max(0, len(found) - self._limit + 1)]:
                await self._purge(bucket, name, deadline)
            left = max(1, self._limit // 10, self._limit - len(found))
        self._left[tenant, owner] = left - 1
        while len(self._left) > _MAX_OWNERS:
            self._left.popitem(last=False)

    async def _purge(self, bucket: KeyValue, key: str, deadline: Deadline) -> None:
        await call_nats(bucket.purge(key, _MARKER_SECONDS), deadline, _TARGET)
        await self._large.delete(bucket._js, key, deadline)

    async def _written(
        self, key: str, stored: Stored, owner: str, deadline: Deadline
    ) -> tuple[bytes, Pieces | None]:
        """Return the value for a key, and the location of the record's pieces, or None for a small record."""
        record = _record_of(stored, owner)
        packed = await _packed(record)
        if len(packed) <= _MAX_BYTES:
            return packed, None
        pieces = await self._large.write(key, packed, deadline)
        record.object = {name: member for name, member in stored.object.items() if _is_small(member)}
        record.items, record.pieces = [], pieces
        return await _packed(record), pieces

    async def _names(self, bucket: KeyValue, tenant: str, owner: str, deadline: Deadline) -> list[str]:
        """Return the keys of a user's records."""
        pattern = keys.user_pattern(tenant, owner)
        return await call_nats(key_value.current_keys(bucket, pattern), deadline, _TARGET)


async def _read(bucket: KeyValue, key: str, deadline: Deadline) -> tuple[_Record, Stored, int] | None:
    """Return a record, its domain object, and its size with its pieces, or None if the key does not exist."""
    try:
        entry = await call_nats(bucket.get(key), deadline, _TARGET)
    except KeyNotFoundError:
        return None
    value = entry.value or b""
    record = await _unpacked(value)
    size = len(value) + (0 if record.pieces is None else record.pieces.size)
    return record, _stored(key, record, entry.revision or 0), size


async def _owned(bucket: KeyValue, key: str, deadline: Deadline) -> Owned | None:
    found = await _read(bucket, key, deadline)
    if found is None:
        return None
    record, stored, size = found
    return None if record.owner is None else Owned(record.owner, stored, size)


def _id(key: str) -> str:
    """Return the id in a key."""
    return key.rpartition(".")[2]


def _age(name: str) -> str:
    """Return the part of a key that sorts records by age. An id begins with the time of its creation."""
    return name.rpartition("_")[2]


async def _updated(bucket: KeyValue, key: str, value: bytes, revision: int) -> int | None:
    try:
        return await bucket.update(key, value, revision)
    except KeyWrongLastSequenceError:
        return None


def _record_of(stored: Stored, owner: str) -> _Record:
    items, chain, sources = list(stored.items), list(stored.chain), list(stored.sources)
    return _Record(stored.profile, dict(stored.object), items, chain, sources, owner)


def _stored(key: str, record: _Record, revision: int) -> Stored:
    items, chain, sources = tuple(record.items), tuple(record.chain), tuple(record.sources)
    return Stored(_id(key), record.profile, record.object, items, chain, sources, revision)


def _is_small(member: object) -> bool:
    return len(msgspec.json.encode(member)) <= _MAX_MEMBER_BYTES


async def _packed(record: _Record) -> bytes:
    raw = msgspec.json.encode(record)
    # Compress a large record in a thread, because it would delay all running answers.
    return await asyncio.to_thread(zlib.compress, raw, 1) if len(raw) > _MIN_THREAD_BYTES else zlib.compress(raw, 1)


async def _unpacked(value: bytes) -> _Record:
    unpack = zlib.decompress
    return _record.decode(
        await asyncio.to_thread(unpack, value) if len(value) > _MIN_THREAD_BYTES else unpack(value)
    )


def _key(principal: Principal, stored_id: str) -> str:
    return response_keys.response_key(principal.tenant, principal.owner, stored_id)
