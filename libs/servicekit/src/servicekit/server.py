"""gRPC servers: health, reflection, limits, and a graceful stop."""

import asyncio
import socket
import stat
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import grpc
import structlog
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse
from grpc_reflection.v1alpha import reflection

from servicekit.channel import SIZE_OPTIONS, WINDOW_OPTIONS
from servicekit.errors import InvalidRequest, Unavailable
from servicekit.interceptor import ServiceInterceptor
from servicekit.settings import GrpcServiceSettings
from servicekit.tls import Certificates

_log = structlog.get_logger(__name__)
_PROBES = 16
_UNIX = "unix:"
HEALTH_SERVICE = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name


class Health(health_pb2_grpc.HealthServicer):
    """The health service (grpc.health.v1), with one state for the server and each of its services.

    The state is SERVING until `drain` is called, and NOT_SERVING afterwards. The servicer of grpcio-health-checking
    never ends a watch, so each watcher would delay a drain by its whole grace period.

    Args:
        services: Full names of the services. The empty name, for the whole server, always exists.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._services = frozenset(("", *services))
        self._draining = asyncio.Event()

    def drain(self) -> None:
        """Report NOT_SERVING to all watchers, and end the watches."""
        self._draining.set()

    async def Check(  # noqa: N802  # the contract's name
        self, request: health_pb2.HealthCheckRequest, context: "grpc.aio.ServicerContext[Any, Any]"
    ) -> HealthCheckResponse:
        """Return the current state."""
        if request.service not in self._services:
            await context.abort(grpc.StatusCode.NOT_FOUND, "There is no such service.")
        return self._response(request.service)

    async def Watch(  # noqa: N802  # the contract's name
        self,
        request: health_pb2.HealthCheckRequest,
        context: "grpc.aio.ServicerContext[Any, Any]",  # noqa: ARG002  # gRPC's signature
    ) -> AsyncGenerator[HealthCheckResponse, None]:
        """Yield the current state, and the state during the drain."""
        if not self._draining.is_set():
            yield self._response(request.service)
            await self._draining.wait()
        yield self._response(request.service)

    def _response(self, service: str) -> HealthCheckResponse:
        if service not in self._services:
            return HealthCheckResponse(status=HealthCheckResponse.SERVICE_UNKNOWN)
        if self._draining.is_set():
            return HealthCheckResponse(status=HealthCheckResponse.NOT_SERVING)
        return HealthCheckResponse(status=HealthCheckResponse.SERVING)


class GrpcServer:
    """A gRPC server of one process.

    Args:
        address: ``host:port``, with port 0 for a free port; or ``unix:PATH``, a socket that only its owner may use.
        services: Pairs of a service's descriptor and a function that adds its servicer to the server.
        max_concurrent_calls: Maximum number of concurrent calls, including health checks. The server refuses
            further calls with RESOURCE_EXHAUSTED.
        certificates: For mutual TLS; None: all clients that reach the port may call.
        callers: The services that may call; checked only with TLS.
        health_address: A second address without TLS and with only the health checks, for probes.

    Attributes:
        port: The port of the server; 0 for a socket.
        health_port: The port of ``health_address``; not set without such an address.

    Raises:
        Unavailable: The server cannot listen on an address.
        InvalidRequest: Other users may enter the socket's directory.
    """

    def __init__(
        self,
        address: str,
        services: Sequence[tuple[ServiceDescriptor, Callable[[grpc.aio.Server], None]]],
        *,
        max_concurrent_calls: int = 1024,
        certificates: Certificates | None = None,
        callers: Collection[str] = (),
        health_address: str | None = None,
    ) -> None:
        options = (
            *WINDOW_OPTIONS,
            *SIZE_OPTIONS,
            ("grpc.so_reuseport", 0),  # a second process on the same port must fail
            # The server closes each connection after five minutes, so that callers find new replicas.
            ("grpc.max_connection_age_ms", 300_000),
            ("grpc.max_connection_age_grace_ms", 600_000),
            # Clients send pings every three seconds to detect a server that hangs (`servicekit.channel`).
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 1_000),
            ("grpc.keepalive_permit_without_calls", 1),
        )
        interceptor = ServiceInterceptor(callers if certificates else None)
        self._server = grpc.aio.server(
            interceptors=[interceptor], options=options, maximum_concurrent_rpcs=max_concurrent_calls
        )
        self._names = [descriptor.full_name for descriptor, _ in services]
        for _, add in services:
            add(self._server)
        self._health = Health(self._names)
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection([*self._names, HEALTH_SERVICE, reflection.SERVICE_NAME], self._server)
        credentials = certificates.server_credentials() if certificates else None
        self._address = address
        self.port = _listen(self._server, address, credentials)
        self._health_server: grpc.aio.Server | None = None
        if health_address is not None:
            self._health_server = grpc.aio.server(options=options, maximum_concurrent_rpcs=_PROBES)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._health_server)
            self.health_port = _listen(self._health_server, health_address, None)

    @classmethod
    def of(
        cls,
        settings: GrpcServiceSettings,
        port: int,
        services: Sequence[tuple[ServiceDescriptor, Callable[[grpc.aio.Server], None]]],
        *,
        callers: Collection[str] = (),
    ) -> Self:
        """Return the server of a service according to its settings.

        Raises:
            Unavailable, InvalidRequest: See the constructor and `Certificates.of`.
        """
        health_port = settings.health_port
        return cls(
            f"{settings.host}:{port}" if settings.grpc_socket is None else f"{_UNIX}{settings.grpc_socket}",
            services,
            certificates=Certificates.of(settings),
            callers=callers,
            health_address=None if health_port is None else f"{settings.host}:{health_port}",
        )

    async def start(self) -> None:
        """Start to accept calls."""
        await self._server.start()
        if self._health_server is not None:
            await self._health_server.start()

    async def stop(self, grace: float) -> None:
        """Refuse new calls, wait up to ``grace`` seconds for running calls, then cancel them."""
        self._health.drain()
        await self._server.stop(grace)
        if self._health_server is not None:
            await self._health_server.stop(0)

    async def serve_until(self, stop: asyncio.Event, grace: float) -> None:
        """Start, wait for the event, and stop."""
        await self.start()
        _log.info("serving", services=self._names, address=self._address, port=self.port)
        await stop.wait()
        _log.info("draining", grace=grace)
        await self.stop(grace)


def _listen(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None) -> int:
    if is_socket := address.startswith(_UNIX):
        _check_socket(Path(address.removeprefix(_UNIX)))
    try:
        if credentials is None:
            port = server.add_insecure_port(address)
        else:
            port = server.add_secure_port(address, credentials)
    except RuntimeError as error:
        raise Unavailable(
            f"Cannot listen on {address}: another process uses it, or the address does not belong to this machine.",
            resource=address,
        ) from error
    return 0 if is_socket else port


def _check_socket(path: Path) -> None:
    try:
        mode = path.parent.stat().st_mode
    except OSError as error:
        raise InvalidRequest(f"Cannot use the socket's directory {path.parent}: {error.strerror}.") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidRequest(
            f"Other users may enter the socket's directory {path.parent}. Run: chmod 700 {path.parent}"
        )
    # gRPC would replace the socket of a running process. So this function refuses a socket that accepts
    # connections.
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise Unavailable(f"Cannot listen on {_UNIX}{path}: another process uses it.", resource=str(path))
