"""Exchange heartbeats between gateways over NATS every second. NATS does not store them."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from servicekit import keys
from servicekit.background_task import BackgroundTask
from servicekit.errors import Unavailable

from gateway.clients.nats_calls import NATS_FAILURES
from gateway.response_runs.peers import HEARTBEAT_SECONDS, Peers

_log = structlog.get_logger(__name__)


class GatewayBeats(BackgroundTask):
    """Sends heartbeats until the ``async with`` block ends, and receives them as long as the connection exists.

    Args:
        client: Returns the connection, or raises `Unavailable` while NATS is unavailable.
        peers: Records the received heartbeats.
        interval: Seconds between heartbeats.
    """

    def __init__(
        self, client: Callable[[], Awaitable[Client]], peers: Peers, *, interval: float = HEARTBEAT_SECONDS
    ) -> None:
        self._client = client
        self._peers = peers
        self._interval = interval

    async def _run(self) -> None:
        listening = False
        while True:
            try:
                client = await self._client()
                if not listening:
                    # The client subscribes again after each reconnection.
                    await client.subscribe(keys.GATEWAY_BEATS_SUBJECT, cb=self._received)
                    listening = True
                await client.publish(keys.GATEWAY_BEATS_SUBJECT, self._peers.name.encode())
            except (Unavailable, *NATS_FAILURES) as error:
                _log.debug("no heartbeat could be sent", error=str(error))
            await asyncio.sleep(self._interval)

    async def _received(self, message: Msg) -> None:
        self._peers.record_heartbeat(message.data.decode("latin-1"))
