"""The exchange of quota usage between several replicas over a real nats-server."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import structlog
from causeway_testing.servers import eventually, free_ports, nats_server
from gateway.clients.nats_connection import NatsLink
from gateway.clients.quota_share import QuotaShare
from gateway.identity.caller import Caller
from gateway.quotas.ledger import Admitted, Ledger
from gateway.quotas.limits import holders, parse
from servicekit import keys
from servicekit.errors import RateLimited, Unavailable
from servicekit.principal import Principal

CALLER = Caller(Principal("no\ud800rth", "ann"), "id", "lo.ader @ ü")
QUOTAS = """
keys: {"lo.ader @ ü": {requests_per_minute: 100, concurrent_requests: 90, tokens_per_minute: 100000}}
"""


@contextlib.asynccontextmanager
async def replica(url: str, text: str = QUOTAS) -> AsyncIterator[Ledger]:
    """Start the ledger of one gateway."""
    quotas = parse(text.encode(), "quotas.yaml")
    ledger = Ledger(lambda: quotas)
    async with NatsLink(url, retry=0.05) as link, QuotaShare(link.quotas, ledger, retry=0.05):
        yield ledger


def admit(ledger: Ledger) -> Admitted | None:
    try:
        return ledger.admit(CALLER, calls_model=True, ingest=None)
    except RateLimited:
        return None


def remaining_requests(ledger: Ledger) -> int:
    """Return the remaining requests of the minute without using one."""
    [(key, limits)] = [(holder, found) for holder in holders(CALLER) if (found := ledger._quotas().of(holder))]
    headers = ledger._headers([(ledger._tally_of(key), limits)], time.time())
    return int(headers["x-ratelimit-remaining-requests"])


async def replicas_know_each_other(*ledgers: Ledger) -> None:
    await eventually(lambda: all(ledger.replicas == len(ledgers) for ledger in ledgers), what="the replicas")


async def test_two_replicas_share_a_limit(tmp_path: Path) -> None:
    """Two replicas together admit the limit, and at most 25 requests more between two exchanges."""
    async with nats_server(tmp_path / "nats") as url, replica(url) as first, replica(url) as second:
        await replicas_know_each_other(first, second)
        admissions, end = 0, time.monotonic() + 8
        while time.monotonic() < end and (remaining_requests(first) > 0 or remaining_requests(second) > 0):
            for ledger in (first, second):
                for _ in range(10):
                    if (admitted := admit(ledger)) is not None:
                        admitted.end(5, 0)
                        admissions += 1
            await asyncio.sleep(0.01)
        assert 100 <= admissions <= 125
        await eventually(lambda: remaining_requests(first) == remaining_requests(second) == 0)
        assert admit(first) is None
        assert admit(second) is None


async def test_each_replica_admits_its_share_of_a_burst(tmp_path: Path) -> None:
    """Until the next exchange, each replica admits exactly its share of a burst."""
    async with nats_server(tmp_path / "nats") as url, replica(url) as first, replica(url) as second:
        await replicas_know_each_other(first, second)
        for ledger in (first, second):
            assert sum(admit(ledger) is not None for _ in range(200)) == 45  # half of 90 at once
        await eventually(lambda: remaining_requests(first) == remaining_requests(second) == 10)
        assert sum(admit(ledger) is not None for ledger in (first, second) for _ in range(9)) == 0


async def test_a_new_replica_knows_the_used_quota(tmp_path: Path) -> None:
    """A new replica knows the usage of all replicas. The running requests of a stopped replica do not count."""
    async with nats_server(tmp_path / "nats") as url:
        async with replica(url) as first:
            await eventually(lambda: not first._disconnected)
            for _ in range(60):
                assert admit(first) is not None
            async with replica(url) as second:
                await replicas_know_each_other(first, second)
                await eventually(lambda: remaining_requests(second) == 40)
        async with replica(url) as third:
            await eventually(lambda: remaining_requests(third) == 40)
            assert third.replicas == 1
            await eventually(lambda: admit(third) is not None)


async def test_replicas_admit_their_shares_during_an_outage_of_nats(tmp_path: Path) -> None:
    """Replicas admit their shares while NATS cannot be reached, and exchange the usage afterwards."""
    directory, [port] = tmp_path / "nats", free_ports(1)
    url = f"nats://127.0.0.1:{port}"
    async with replica(url) as first, replica(url) as second:
        assert admit(first) is not None  # NATS never answered
        async with nats_server(directory, port):
            await replicas_know_each_other(first, second)
            await eventually(lambda: remaining_requests(second) == 99)
        await eventually(lambda: first._disconnected and second._disconnected)
        admissions = 0
        for ledger in (first, second):
            while (admitted := admit(ledger)) is not None:
                admitted.end(1, 0)
                admissions += 1
        assert admissions == 99
        async with nats_server(directory, port):
            await eventually(lambda: remaining_requests(first) == remaining_requests(second) == 0)


async def test_an_invalid_message_is_logged(tmp_path: Path) -> None:
    """An invalid message is logged, and later messages are read."""
    async with nats_server(tmp_path / "nats") as url, NatsLink(url, retry=0.05) as link, replica(url) as first:
        await eventually(lambda: not first._disconnected)
        bucket = await link.quotas()
        with structlog.testing.capture_logs() as logs:
            await bucket.put("odd", b"")
            await bucket.put(keys.quota_key("other", keys.quota_holder("key", "north", "a")), b"[]")
            # A replica expires some time after its last message, so the other one continues to send.
            while not logs or first.replicas < 2:
                await bucket.put(keys.quota_replica_key("other"), b"")
                await asyncio.sleep(0.05)
        assert [entry["event"] for entry in logs] == ["the quota usage of a replica is invalid"]
        async with replica(url) as second:
            assert admit(first) is not None
            await eventually(lambda: remaining_requests(second) == 99)


async def test_the_bucket_is_unavailable_without_nats() -> None:
    """The bucket is not available without NATS."""
    async with NatsLink(f"nats://127.0.0.1:{free_ports(1)[0]}", retry=0.05) as link:
        with pytest.raises(Unavailable):
            await link.quotas()
