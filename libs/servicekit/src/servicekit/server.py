"""gRPC servers: health, reflection, limits, and an end that lets running calls finish."""

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
    """The health service (grpc.health.v1): one state for the server and each of its services.

    SERVING from the first call on, NOT_SERVING in a drain. The servicer of the package never ends a watch, so that
    each watcher would hold up a drain for its whole grace.

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


class GrpcServer:
    """A gRPC server of one process.

    Args:
        address: ``host:port``; port 0 takes a free one. Or ``unix:PATH``, a socket that only its owner may use.
        services: Pairs of a service's descriptor and a function that adds its servicer to the server.
        max_connection_age: Seconds after which a connection is told to go, so that callers find new replicas.
        max_concurrent_calls: Calls beyond it are refused with RESOURCE_EXHAUSTED; health checks count too.
        certificates: For mutual TLS; None: whoever reaches the port may call.
        callers: The services whose certificates may call; checked with TLS alone.
        health_address: A second address with the health checks alone and without TLS, for probes that know none.

    Attributes:
        port: The port it listens on, once constructed; none of a socket.

    Raises:
        Unavailable: An address cannot be listened on.
        InvalidRequest: Others may enter the socket's directory.
    """

    def __init__(
        self,
        address: str,
        services: Sequence[tuple[ServiceDescriptor, Callable[[grpc.aio.Server], None]]],
        *,
        max_connection_age: float = 300.0,
        max_concurrent_calls: int = 1024,
        certificates: Certificates | None = None,
        callers: Collection[str] = (),
        health_address: str | None = None,
    ) -> None:
        options = (
            *WINDOW_OPTIONS,
            *SIZE_OPTIONS,
            ("grpc.so_reuseport", 0),  # a second process on the same port is an error, not a coin toss
            ("grpc.max_connection_age_ms", int(max_connection_age * 1000)),
            ("grpc.max_connection_age_grace_ms", 600_000),
            # Clients ask every three seconds whether the server hangs (`servicekit.channel`).
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
        self._probed: grpc.aio.Server | None = None
        if health_address is not None:
            self._probed = grpc.aio.server(options=options, maximum_concurrent_rpcs=_PROBES)
            health_pb2_grpc.add_HealthServicer_to_server(self._health, self._probed)
            self.health_port = _listen(self._probed, health_address, None)

    @classmethod
    def of(
        cls,
        settings: GrpcServiceSettings,
        port: int,
        services: Sequence[tuple[ServiceDescriptor, Callable[[grpc.aio.Server], None]]],
        *,
        callers: Collection[str] = (),
    ) -> Self:
        """The server of a service, where and how its settings say.

        Raises:
            Unavailable, InvalidRequest: As the constructor, and as `Certificates.of`.
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
        """Begins to serve."""
        await self._server.start()
        if self._probed is not None:
            await self._probed.start()

    async def stop(self, grace: float) -> None:
        """Takes no new calls, gives running ones ``grace`` seconds, then cancels them."""
        self._health.drain()
        await self._server.stop(grace)
        if self._probed is not None:
            await self._probed.stop(0)

    async def serve_until(self, stop: asyncio.Event, grace: float) -> None:
        """`start`, wait for the event, `stop`."""
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
            f"Cannot listen on {address}: another process has it, or it is none of this machine's addresses.",
            resource=address,
        ) from error
    return 0 if is_socket else port


def _check_socket(path: Path) -> None:
    try:
        mode = path.parent.stat().st_mode
    except OSError as error:
        raise InvalidRequest(f"The socket's directory {path.parent} cannot be used: {error.strerror}.") from error
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidRequest(
            f"Others than its owner may enter the socket's directory {path.parent}: chmod 700 {path.parent}"
        )
    # gRPC takes a socket over that is there, and must not take it from a process that serves on it.
    with socket.socket(socket.AF_UNIX) as other:
        try:
            other.connect(str(path))
        except OSError:
            return
    raise Unavailable(f"Cannot listen on {_UNIX}{path}: another process has it.", resource=str(path))
