"""Cancellations between gateways over a real NATS server."""

import asyncio

from gateway.clients.cancelled_calls import CancelledCalls
from gateway.clients.nats_connection import NatsLink
from gateway.server.running_calls import RunningCalls
from servicekit.errors import Unavailable


async def test_another_gateway_ends_the_call(link: NatsLink, url: str) -> None:
    """A cancellation reaches the gateway that runs the call. A call of another name continues."""
    own_calls, other_calls = RunningCalls(), RunningCalls()
    ended: list[str] = []
    async with (
        NatsLink(url) as other,
        CancelledCalls(link.client, own_calls),
        CancelledCalls(other.client, other_calls),
    ):
        with (
            other_calls.running("one", lambda: ended.append("one")),
            other_calls.running("two", lambda: ended.append("two")),
        ):
            async with asyncio.timeout(60):
                while not ended:  # until the other gateway listens
                    await own_calls.cancel("one")
                    await asyncio.sleep(0.01)
        assert set(ended) == {"one"}
        await own_calls.cancel("one")


async def test_without_nats_a_gateway_cancels_its_own_calls() -> None:
    """A gateway without NATS cancels its own calls, and the cancellation of an unknown call does not fail."""

    async def unavailable() -> None:
        raise Unavailable("NATS is unavailable.")

    calls, ended = RunningCalls(), asyncio.Event()
    async with CancelledCalls(unavailable, calls, retry=0.001):  # type: ignore[arg-type]  # never returns
        with calls.running("one", ended.set):
            await calls.cancel("two")
            assert not ended.is_set()
            await calls.cancel("one")
            assert ended.is_set()
        await calls.cancel("one")
