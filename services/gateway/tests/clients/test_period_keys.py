"""The period keys with several replicas and a real nats-server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from causeway_testing.clock import ManualClock
from causeway_testing.servers import eventually, nats_server
from gateway.clients.nats_connection import NatsLink
from gateway.clients.period_keys import PeriodKeyWatch
from gateway.identity.content_sealing import ContentKeys
from gateway.identity.link_signing import LIFETIME_SECONDS, LinkedDocument, LinkKeys
from servicekit.errors import Unavailable
from servicekit.principal import Principal

MID_PERIOD = LinkKeys.PERIOD_SECONDS * 40_000 + LinkKeys.PERIOD_SECONDS / 2
LINKED = LinkedDocument("p", "t", "i", "d", 1, "u", "", (), (), False, "", 2**40)  # the fields of a link


@contextlib.asynccontextmanager
async def replica(url: str, clock: ManualClock) -> AsyncIterator[tuple[LinkKeys, PeriodKeyWatch]]:
    """Start the keys and the watch of one gateway."""
    ring = LinkKeys(clock)
    async with (
        NatsLink(url, retry=0.05) as link,
        PeriodKeyWatch(link.link_keys, ring, "keys", now=clock, check=0.3, retry=0.05, rotate=0.05) as watch,
    ):
        yield ring, watch


def opens(ring: LinkKeys, signature: str | None) -> bool:
    try:
        return ring.verify(signature or "") == LINKED
    except Unavailable:
        return False


async def test_replicas_share_keys_that_rotate(tmp_path: Path) -> None:
    """Replicas share one key per period. The next key exists before its period, and old signatures stay valid."""
    clock = ManualClock(MID_PERIOD)
    async with nats_server(tmp_path / "nats") as url, replica(url, clock) as (first, one):
        async with replica(url, clock) as (second, other):
            await eventually(lambda: bool(first.ids and second.ids))
            await asyncio.gather(one.rotate(), other.rotate())
            assert first.ids == second.ids == {first.period}
            before = first.sign(LINKED)
            assert before == second.sign(LINKED)
            clock.now += LinkKeys.PERIOD_SECONDS / 2 - LIFETIME_SECONDS + 1
            await eventually(lambda: first.ids == second.ids == {first.period, first.period + 1})
            assert first.sign(LINKED) == before
            clock.now += LIFETIME_SECONDS
            after = second.sign(LINKED)
            assert after != before
            assert opens(first, after)
            assert opens(second, before)
        # A later replica reads the existing keys.
        async with replica(url, clock) as (third, _):
            await eventually(lambda: opens(third, after) and opens(third, before))


async def test_links_work_during_an_outage_of_nats(tmp_path: Path) -> None:
    """Old links open and new links are signed while NATS cannot be reached."""
    clock = ManualClock(MID_PERIOD)
    async with contextlib.AsyncExitStack() as stack:
        async with nats_server(tmp_path / "nats") as url:
            ring, _ = await stack.enter_async_context(replica(url, clock))
            await eventually(lambda: bool(ring.ids))
            signature = ring.sign(LINKED)
        clock.now += LinkKeys.PERIOD_SECONDS
        assert opens(ring, signature)
        assert ring.sign(LINKED) == signature


async def test_replicas_share_the_keys_of_sealed_contents(tmp_path: Path) -> None:
    """The keys of sealed contents have their own bucket. A replica opens contents that another replica sealed."""
    owner = Principal("acme", "ann", issuer="https://id")
    async with nats_server(tmp_path / "nats") as url, contextlib.AsyncExitStack() as stack:
        rings = [ContentKeys(), ContentKeys()]
        for ring in rings:
            link = await stack.enter_async_context(NatsLink(url, retry=0.05))
            await stack.enter_async_context(PeriodKeyWatch(link.content_keys, ring, "keys", retry=0.05))
        await eventually(lambda: all(ring.ids for ring in rings))
        sealed = rings[0].seal(owner, "web", "reasoning", "So.")
        await eventually(lambda: rings[1].unseal(owner, "web", "reasoning", sealed) == "So.")
        assert (await (await link.link_keys()).status()).values == 0
