"""Responses and conversations over NATS: a key each, compressed, which goes some time after it was last written."""

import asyncio
import zlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec
from nats.js.errors import KeyNotFoundError, KeyWrongLastSequenceError
from nats.js.kv import KeyValue
from servicekit import key_value, keys, response_job_keys
from servicekit.deadline import Deadline
from servicekit.errors import PayloadTooLarge
from servicekit.principal import Principal

from gateway.clients.nats_calls import reached
from gateway.domain.responses import RESPONSE, Item, Owned, OwnedPage, Stored, is_id

_WHAT = "The store of responses"
# NATS takes 1 MiB a message; its headers and subject are part of that.
_MOST_BYTES = 1_000_000
_LARGE = 64 * 1024
_MOST_OWNERS = 10_000
# Seconds after which the server forgets that a key was deleted.
_MARKER = 3600.0
_AFTER_ALL = "~"
"""Is greater than what sorts any key by age."""


class _Record(msgspec.Struct):
    profile: str
    object: dict[str, object]
    items: list[Item]
    chain: list[str]
    sources: list[tuple[str, str]] = []
    # A key has no more than the digest of a long name. None: an earlier version did not store it.
    owner: str | None = None


_record = msgspec.json.Decoder(_Record)


class NatsResponses:
    """`ports.responses.ResponseStore` over a key-value bucket.

    Args:
        bucket: Gives the bucket; raises `Unavailable` while NATS is away.
        most: Responses and conversations that are kept of one user; now and then there are a tenth more.
    """

    def __init__(self, bucket: Callable[[], Awaitable[KeyValue]], *, most: int) -> None:
        self._bucket = bucket
        self._most = most
        # How many a user may save before they are counted again.
        self._left: OrderedDict[tuple[str, str], int] = OrderedDict()

    async def save(self, principal: Principal, stored: Stored, deadline: Deadline) -> Stored:
        """See `ports.responses.ResponseStore`."""
        packed = await _packed(stored, principal.owner)
        bucket = await self._bucket()
        await self._make_room(bucket, principal.tenant, principal.owner, deadline)
        revision = await reached(bucket.put(_key(principal, stored.id), packed), deadline, _WHAT)
        return _with_revision(stored, revision)

    async def replace(self, principal: Principal, stored: Stored, deadline: Deadline) -> bool:
        """See `ports.responses.ResponseStore`."""
        packed = await _packed(stored, principal.owner)
        bucket = await self._bucket()
        key = _key(principal, stored.id)
        return await reached(_updated(bucket, key, packed, stored.revision), deadline, _WHAT)

    async def read(self, principal: Principal, stored_id: str, deadline: Deadline) -> Stored | None:
        """See `ports.responses.ResponseStore`."""
        found = await _read(await self._bucket(), _key(principal, stored_id), deadline)
        return None if found is None else found[0]

    async def delete(self, principal: Principal, stored_id: str, deadline: Deadline) -> bool:
        """See `ports.responses.ResponseStore`."""
        if await self.read(principal, stored_id, deadline) is None:
            return False
        bucket = await self._bucket()
        await reached(bucket.purge(_key(principal, stored_id), _MARKER), deadline, _WHAT)
        return True

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """See `ports.responses.ResponseStore`."""
        bucket = await self._bucket()
        found = await self._names(bucket, tenant, owner, deadline)
        for name in found:
            await reached(bucket.purge(name, _MARKER), deadline, _WHAT)
        return len(found)

    async def page(self, tenant: str, count: int, token: str, deadline: Deadline) -> OwnedPage:
        """See `ports.responses.ResponseStore`."""
        bucket = await self._bucket()
        listed = await reached(
            key_value.recent_names(bucket, response_job_keys.tenant_responses(tenant)), deadline, _WHAT
        )
        last = _age(token) or _AFTER_ALL
        older = [name for name in listed if is_id(_id(name), RESPONSE) and _age(name) < last]
        older.sort(key=_age, reverse=True)
        found = [await _owned(bucket, name, deadline) for name in older[:count]]
        next_token = _id(older[count - 1]) if len(older) > count else ""
        return OwnedPage(tuple(each for each in found if each is not None), next_token)

    async def find(self, tenant: str, name: str, deadline: Deadline) -> Owned | None:
        """See `ports.responses.ResponseStore`."""
        bucket = await self._bucket()
        pattern = response_job_keys.tenant_responses(tenant, name)
        listed = await reached(key_value.recent_names(bucket, pattern), deadline, _WHAT)
        return await _owned(bucket, listed[0], deadline) if listed else None

    async def _make_room(self, bucket: KeyValue, tenant: str, owner: str, deadline: Deadline) -> None:
        """Delete the oldest where there are too many of a user. They are counted once in a while: a count costs as
        much as there are.
        """
        left = self._left.pop((tenant, owner), 0)
        if left <= 0:
            found = sorted(await self._names(bucket, tenant, owner, deadline), key=_age)
            for name in found[: max(0, len(found) - self._most + 1)]:
                await reached(bucket.purge(name, _MARKER), deadline, _WHAT)
            left = max(1, self._most // 10, self._most - len(found))
        self._left[tenant, owner] = left - 1
        while len(self._left) > _MOST_OWNERS:
            self._left.popitem(last=False)

    async def _names(self, bucket: KeyValue, tenant: str, owner: str, deadline: Deadline) -> list[str]:
        """The keys of a user."""
        pattern = keys.of_user(tenant, owner)
        return await reached(key_value.names(bucket, pattern), deadline, _WHAT)


async def _read(bucket: KeyValue, key: str, deadline: Deadline) -> tuple[Stored, str | None, int] | None:
    """What is under a key, its owner, and its bytes; None where that is nothing."""
    try:
        entry = await reached(bucket.get(key), deadline, _WHAT)
    except KeyNotFoundError:
        return None
    value = entry.value or b""
    unpack = zlib.decompress
    raw = await asyncio.to_thread(unpack, value) if len(value) > _LARGE else unpack(value)
    said = _record.decode(raw)
    items, chain = tuple(said.items), tuple(said.chain)
    sources = tuple(said.sources)
    stored = Stored(_id(key), said.profile, said.object, items, chain, sources, entry.revision or 0)
    return stored, said.owner, len(value)


async def _owned(bucket: KeyValue, key: str, deadline: Deadline) -> Owned | None:
    found = await _read(bucket, key, deadline)
    if found is None:
        return None
    stored, owner, size = found
    return None if owner is None else Owned(owner, stored, size)


def _id(key: str) -> str:
    """The id of what has a key."""
    return key.rpartition(".")[2]


def _age(name: str) -> str:
    """What sorts keys by age: their ids begin with the time."""
    return name.rpartition("_")[2]


async def _updated(bucket: KeyValue, key: str, value: bytes, revision: int) -> bool:
    try:
        await bucket.update(key, value, revision)
    except KeyWrongLastSequenceError:
        return False
    return True


async def _packed(stored: Stored, owner: str) -> bytes:
    items, chain, sources = list(stored.items), list(stored.chain), list(stored.sources)
    record = _Record(stored.profile, dict(stored.object), items, chain, sources, owner)
    raw = msgspec.json.encode(record)
    # A large one in a thread: it would keep every answer that is under way waiting.
    packed = await asyncio.to_thread(zlib.compress, raw, 1) if len(raw) > _LARGE else zlib.compress(raw, 1)
    if len(packed) > _MOST_BYTES:
        raise PayloadTooLarge("The response is larger than what can be stored.", field="store")
    return packed


def _with_revision(stored: Stored, revision: int) -> Stored:
    return replace(stored, revision=revision)


def _key(principal: Principal, stored_id: str) -> str:
    return keys.response_key(principal.tenant, principal.owner, stored_id)
