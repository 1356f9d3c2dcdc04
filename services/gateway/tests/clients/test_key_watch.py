"""The key watch with several replicas and a real nats-server."""

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from causeway_testing.servers import eventually, free_ports, nats_server
from gateway.clients.key_watch import KeyWatch
from gateway.clients.nats_connection import NatsLink
from gateway.identity.key_ring import KeyRing
from nats.js.kv import KeyValue
from servicekit import api_keys
from servicekit.deadline import Deadline
from servicekit.errors import Unauthenticated, Unavailable


def accepts(ring: KeyRing, key: str) -> bool:
    try:
        ring.caller(key)
    except (Unauthenticated, Unavailable):
        return False
    return True


@contextlib.asynccontextmanager
async def replica(url: str, check: float = 0.3) -> AsyncIterator[tuple[KeyRing, NatsLink]]:
    """Start the ring and the watch of one gateway."""
    ring = KeyRing()
    async with NatsLink(url, retry=0.05) as link, KeyWatch(link.api_keys, ring, check=check, retry=0.05):
        yield ring, link


async def ready(link: NatsLink) -> KeyValue:
    end = time.monotonic() + 60
    while True:
        try:
            return await link.api_keys()
        except Unavailable:
            assert time.monotonic() < end, "NATS did not become ready"
            await asyncio.sleep(0.02)


async def test_every_replica_follows_the_bucket(tmp_path: Path) -> None:
    """Every replica accepts existing and new keys, refuses revoked ones, and ignores invalid records."""
    old, old_record = api_keys.create("old", "north")
    new, new_record = api_keys.create("new", "north")
    async with nats_server(tmp_path / "nats") as url, replica(url) as (first, link):
        with pytest.raises(Unavailable):
            first.caller(old)
        bucket = await ready(link)
        await bucket.put(old_record.id, old_record.to_json())
        await bucket.put("broken", b"{}")
        async with replica(url) as (second, _):
            rings = (first, second)
            await eventually(lambda: all(accepts(ring, old) for ring in rings))
            assert not any(accepts(ring, new) for ring in rings)
            await bucket.put(new_record.id, new_record.to_json())
            await eventually(lambda: all(accepts(ring, new) for ring in rings))
            await bucket.purge(old_record.id)
            await eventually(lambda: not any(accepts(ring, old) for ring in rings))
            # A record under the id of another key is ignored.
            await bucket.put("0" * 16, old_record.to_json())
            third, third_record = api_keys.create("third", "north")
            await bucket.put(third_record.id, third_record.to_json())
            await eventually(lambda: all(accepts(ring, third) for ring in rings))
            assert not any(accepts(ring, old) for ring in rings)
            await bucket.delete(new_record.id)
            await eventually(lambda: not any(accepts(ring, new) for ring in rings))


async def test_the_gateway_is_not_ready_before_the_keys_are_read(tmp_path: Path) -> None:
    """The gateway is not ready until the keys are read, and stays ready while NATS cannot be reached."""
    ring = KeyRing()
    async with contextlib.AsyncExitStack() as stack:
        async with nats_server(tmp_path / "nats") as url:
            link = await stack.enter_async_context(NatsLink(url, retry=0.05))
            watch = KeyWatch(link.api_keys, ring, check=0.3, retry=0.05)
            assert await watch.check(Deadline.after(1)) == "not read yet"
            await stack.enter_async_context(watch)
            await eventually(lambda: ring.loaded)
            assert await watch.check(Deadline.after(1)) is None
        assert await watch.check(Deadline.after(1)) is None


async def test_the_watch_continues_after_unexpected_exceptions(tmp_path: Path) -> None:
    """The watch continues after unexpected exceptions."""
    key, record = api_keys.create("ann", "north")
    failures = iter([RuntimeError("first"), AttributeError("second")])
    async with nats_server(tmp_path / "nats") as url, NatsLink(url, retry=0.05) as link:
        bucket = await ready(link)

        async def bucket_after_failures() -> KeyValue:
            for failure in failures:
                raise failure
            return bucket

        ring = KeyRing()
        async with KeyWatch(bucket_after_failures, ring, check=0.05, retry=0.05):
            await bucket.put(record.id, record.to_json())
            await eventually(lambda: accepts(ring, key))


async def test_keys_are_accepted_during_an_outage_of_nats(tmp_path: Path) -> None:
    """Keys are accepted while NATS cannot be reached. A key that is revoked after the restart is refused."""
    directory, [port] = tmp_path / "nats", free_ports(1)
    kept, kept_record = api_keys.create("kept", "north")
    revoked, revoked_record = api_keys.create("revoked", "north")
    async with replica(f"nats://127.0.0.1:{port}") as (ring, link):
        async with nats_server(directory, port):
            bucket = await ready(link)
            for record in (kept_record, revoked_record):
                await bucket.put(record.id, record.to_json())
            await eventually(lambda: accepts(ring, kept) and accepts(ring, revoked))
        assert accepts(ring, kept)
        async with nats_server(directory, port) as url, NatsLink(url, retry=0.05) as other:
            await (await ready(other)).purge(revoked_record.id)
            await eventually(lambda: not accepts(ring, revoked))
            assert accepts(ring, kept)


async def test_logs_have_no_digest(tmp_path: Path) -> None:
    """An invalid record is logged with its id and without its digest."""
    _, record = api_keys.create("ann", "north")
    broken = json.dumps({**json.loads(record.to_json()), "roles": ["root"]}).encode()
    with structlog.testing.capture_logs() as logs:
        async with nats_server(tmp_path / "nats") as url, replica(url) as (_, link):
            await (await ready(link)).put(record.id, broken)
            await eventually(lambda: any(entry.get("key") == record.id for entry in logs))
    assert record.digest not in str(logs)
