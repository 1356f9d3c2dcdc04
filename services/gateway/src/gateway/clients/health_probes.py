"""Check the health of the services that the gateway calls."""

import asyncio
from typing import Any

import grpc
from grpc_health.v1 import health_pb2
from servicekit.deadline import Deadline
from servicekit.original_store import OriginalStore

from gateway.clients.nats_connection import NatsLink


class GrpcProbe:
    """Calls the gRPC health check of a service."""

    def __init__(self, name: str, channel: grpc.aio.Channel) -> None:
        self.name = name
        # The generated stub of the package has no types.
        self._check: Any = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )

    async def check(self, deadline: Deadline) -> str | None:
        """See `ports.health.Probe`."""
        try:
            response = await self._check(health_pb2.HealthCheckRequest(), timeout=deadline.timeout())
        except grpc.aio.AioRpcError as error:
            return error.code().name.lower().replace("_", " ")
        if response.status == health_pb2.HealthCheckResponse.SERVING:
            return None
        return "draining"


class NatsProbe:
    """Checks a round trip to the broker."""

    name = "nats"

    def __init__(self, link: NatsLink) -> None:
        self._link = link

    async def check(self, deadline: Deadline) -> str | None:
        """See `ports.health.Probe`."""
        return await self._link.problem(deadline)


class OriginalsProbe:
    """Checks the store of the original documents, if it is not in NATS."""

    name = "originals"

    def __init__(self, store: OriginalStore) -> None:
        self._store = store

    async def check(self, deadline: Deadline) -> str | None:
        """See `ports.health.Probe`."""
        try:
            async with asyncio.timeout(deadline.timeout()):
                return await self._store.problem()
        except TimeoutError:
            return "The store of the originals does not answer in time."
