"""Send the cancellations of running calls to the other replicas of the gateway over NATS.

A client's request to cancel a call may reach a replica that does not run the call. NATS does not store the
messages, because a call that no replica runs has already ended.
"""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from servicekit import keys
from servicekit.background_task import BackgroundTask
from servicekit.errors import Unavailable

from gateway.clients.nats_calls import NATS_FAILURES
from gateway.server.running_calls import RunningCalls

_log = structlog.get_logger(__name__)


class CancelledCalls(BackgroundTask):
    """Sends and receives cancellations.

    The end of the ``async with`` block stops only the attempts to subscribe. The subscription lasts as long as the
    connection.

    Args:
        client: Returns the connection, or raises `Unavailable` while NATS is unavailable.
        calls: The calls that run in this replica.
        retry: Seconds between attempts to subscribe.
    """

    def __init__(self, client: Callable[[], Awaitable[Client]], calls: RunningCalls, *, retry: float = 0.5) -> None:
        self._client = client
        self._calls = calls
        self._retry = retry
        calls.notify = self._notify

    async def _notify(self, name: str) -> None:
        try:
            client = await self._client()
            await client.publish(keys.CANCELLED_CALLS_SUBJECT, name.encode())
        except (Unavailable, *NATS_FAILURES) as error:
            _log.warning("the cancellation of a call could not be sent to the other gateways", error=str(error))

    async def _run(self) -> None:
        while True:
            try:
                client = await self._client()
                # The client subscribes again after each reconnection.
                await client.subscribe(keys.CANCELLED_CALLS_SUBJECT, cb=self._received)
            except (Unavailable, *NATS_FAILURES):
                await asyncio.sleep(self._retry)
            else:
                return

    async def _received(self, message: Msg) -> None:
        self._calls.cancel_here(message.data.decode("latin-1"))
