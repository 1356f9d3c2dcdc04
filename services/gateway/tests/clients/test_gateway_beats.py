"""The heartbeats of gateways, in one process and over a real NATS server."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager

import pytest
from causeway_testing.servers import eventually
from gateway.clients.gateway_beats import GatewayBeats
from gateway.clients.nats_connection import NatsLink
from gateway.response_runs.peers import Peers, runs_job
from servicekit.errors import Unavailable
from servicekit.tasks import cancel_and_wait

INTERVAL = 0.01

Beating = Callable[[Peers], AbstractAsyncContextManager[object]]


def in_one_process() -> Beating:
    """Connect gateways of the same process."""
    gateways: list[Peers] = []

    @contextlib.asynccontextmanager
    async def beating(peers: Peers) -> AsyncIterator[None]:
        async def beat() -> None:
            while True:
                for each in gateways:
                    each.record_heartbeat(peers.name)
                await asyncio.sleep(INTERVAL)

        gateways.append(peers)
        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            await cancel_and_wait(task)

    return beating


@pytest.fixture(params=["one process", "nats"])
def beating(request: pytest.FixtureRequest) -> Beating:
    if request.param == "one process":
        return in_one_process()
    link: NatsLink = request.getfixturevalue("link")
    return lambda peers: GatewayBeats(link.client, peers, interval=INTERVAL)


async def test_a_silent_gateway_has_stopped(beating: Beating) -> None:
    """A gateway counts as stopped when its heartbeats stop. Gateways that send heartbeats do not."""
    here, there, silent = Peers(), Peers(), Peers()
    async with beating(here), beating(there):
        async with beating(silent):
            # An unknown gateway counts as stopped after as many heartbeats as a silent one.
            await eventually(lambda: here.has_stopped("never.1"))
            await eventually(lambda: not here.has_stopped(silent.writer()))
        await eventually(lambda: here.has_stopped(silent.writer()))
        await eventually(lambda: there.has_stopped(silent.writer()))
        assert not here.has_stopped(there.writer())
        assert not there.has_stopped(here.writer())


async def test_a_gateway_never_counts_itself_as_stopped(beating: Beating) -> None:
    """A gateway does not count its own writers and background jobs as stopped. Each writer has its own name."""
    here = Peers()
    mine, job = here.writer(), here.writer(background=True)
    assert len({mine, job, here.writer()}) == 3
    assert (runs_job(mine), runs_job(job)) == (False, True)
    async with beating(here):
        await eventually(lambda: here.has_stopped("never.1"))
        assert not here.has_stopped(mine)
        assert not here.has_stopped(job)
        assert not here.has_stopped(Peers().writer(background=True))


async def test_no_gateway_counts_as_stopped_during_an_outage_of_nats() -> None:
    """A gateway counts no other gateway as stopped while it does not receive its own heartbeats."""
    tries = 0

    async def unavailable() -> None:
        nonlocal tries
        tries += 1
        raise Unavailable("NATS is unavailable.")

    here = Peers()
    async with GatewayBeats(unavailable, here, interval=0.001):  # type: ignore[arg-type]  # never returns
        await eventually(lambda: tries > 10)
        assert not here.has_stopped("never.1")


def test_the_number_of_remembered_gateways_is_bounded() -> None:
    """The number of remembered gateways is bounded."""
    here = Peers()
    for number in range(5000):
        here.record_heartbeat(f"gateway{number}")
        here.record_heartbeat(here.name)
    assert len(here._seen) <= 1001
    assert here.has_stopped("gateway0.1")
    assert not here.has_stopped("gateway4999.1")
