"""The health service of gRPC servers (grpc.health.v1): SERVING from the first call on, NOT_SERVING in a drain.

The package's own servicer never ends a watch, so that each watcher holds a drain up for its whole grace.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse

SERVICE_NAME = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class Health(health_pb2_grpc.HealthServicer):
    """One state for the server and each of its services.

    Args:
        services: Full names of the services; the empty name, the server as a whole, is always known.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(("", *services))
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Tells every watcher that the server takes no new calls, and ends the watches."""
        self._draining.set()

    async def Check(  # noqa: N802  # the contract's name
        self, request: health_pb2.HealthCheckRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> HealthCheckResponse:
        """The present state."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return self._answer(request.service)

    async def Watch(  # noqa: N802  # the contract's name
        self,
        request: health_pb2.HealthCheckRequest,
        context: "grpc.aio.ServicerContext[Any, Any]",  # noqa: ARG002  # gRPC's signature
    ) -> AsyncGenerator[HealthCheckResponse, None]:
        """The present state, and the next one."""
        if not self._draining.is_set():
            yield self._answer(request.service)
            await self._draining.wait()
        yield self._answer(request.service)

    def _answer(self, service: str) -> HealthCheckResponse:
        if service not in self._services:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        if self._draining.is_set():
            return HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING)
        return HealthCheckResponse(status=HealthCheckResponse.SERVING)
