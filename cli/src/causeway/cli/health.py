"""The health check of a local service over gRPC, for services whose health the gateway does not report."""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2

_TIMEOUT_SECONDS = 1.0


async def problem(target: str) -> str | None:
    """Return None if the gRPC server at a target is healthy (grpc.health.v1), else the problem."""
    options = [
        ("grpc.enable_http_proxy", 0),
        # A new connection for each check: a shared connection increases its back-off after each refusal.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    async with grpc.aio.insecure_channel(target, options=options) as channel:
        check: Any = channel.unary_unary(  # the package's own stub has no types
            "/grpc.health.v1.Health/Check",
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        try:
            response = await check(health_pb2.HealthCheckRequest(), timeout=_TIMEOUT_SECONDS)
        except grpc.aio.AioRpcError as error:
            return str(error.code().name.lower().replace("_", " "))
    if response.status == health_pb2.HealthCheckResponse.SERVING:
        return None
    return "draining"
