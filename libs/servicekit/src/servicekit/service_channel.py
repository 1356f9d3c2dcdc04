"""A gRPC channel that uses renewed certificates, and whose methods have the server's address as span attributes."""

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Any, Self

import grpc
from grpc.aio import Call, Channel

from servicekit.tls import Certificates, Material

_MAX_CALL_SECONDS = 600.0
"""Seconds that running calls may continue on a channel with an earlier certificate."""


class ServiceChannel(Channel):
    """A channel whose new calls use the current certificate. gRPC's own channel always uses its first certificate.

    When the certificate changes, new calls use a new channel. Running calls may finish on the old channel within
    ten minutes. Then, or when this channel is closed, they are cancelled.

    Args:
        target: The address of the server as a gRPC target, for example ``dns:///retriever:50051``.
        open_channel: Returns a new channel with the given certificate; None: without TLS.
        certificates: Provides the current certificate. Each call compares it with the channel's. None: no TLS.
    """

    def __init__(
        self, target: str, open_channel: Callable[[Material | None], Channel], certificates: Certificates | None
    ) -> None:
        self._server = server_attributes(target)
        self._open = open_channel
        self._certificates = certificates
        self._material = certificates.current() if certificates else None
        self._channel = open_channel(self._material)
        self._calls: set[Call] = set()
        self._closing: set[asyncio.Task[None]] = set()

    def current(self) -> Channel:
        """Return the channel for the next call. If the certificate has changed, open a new channel first."""
        if self._certificates and (material := self._certificates.current()) is not self._material:
            closing = asyncio.ensure_future(_close_after(self._channel, self._calls))
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._calls = set()
            self._material, self._channel = material, self._open(material)
        return self._channel

    def track(self, call: Call) -> None:
        """Record a call on the current channel until the call ends. Without TLS, no channel is replaced."""
        if self._certificates is not None:
            self._calls.add(call)
            call.add_done_callback(self._calls.discard)

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return ServiceMethod(self, self._server, "unary_unary", arguments, options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return ServiceMethod(self, self._server, "unary_stream", arguments, options)

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return ServiceMethod(self, self._server, "stream_unary", arguments, options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return ServiceMethod(self, self._server, "stream_stream", arguments, options)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """See `grpc.aio.Channel`."""
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """See `grpc.aio.Channel`."""
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        """See `grpc.aio.Channel`."""
        await self._channel.channel_ready()

    async def close(self, grace: float | None = None) -> None:
        """Close the channel.

        Calls with an earlier certificate are cancelled now, and all other calls after ``grace`` seconds.
        """
        closing = list(self._closing)
        for task in closing:
            task.cancel()
        await asyncio.gather(*closing, return_exceptions=True)
        await self._channel.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()


class ServiceMethod:
    """A method of a service. It is called like gRPC's own, for example `grpc.aio.UnaryUnaryMultiCallable`.

    Attributes:
        server: The span attributes of the server; see `server_attributes`.
    """

    def __init__(
        self,
        channel: ServiceChannel,
        server: Mapping[str, str | int],
        kind: str,
        arguments: tuple[Any, ...],
        options: dict[str, Any],
    ) -> None:
        self.server = server
        self._channel = channel
        self._kind = kind
        self._arguments = arguments
        self._options = options
        self._cached: tuple[Channel, Any] | None = None

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Start a call on the current channel."""
        channel = self._channel.current()
        if self._cached is None or self._cached[0] is not channel:
            self._cached = (channel, getattr(channel, self._kind)(*self._arguments, **self._options))
        call = self._cached[1](*arguments, **options)
        self._channel.track(call)
        return call


async def _close_after(channel: Channel, calls: Collection[Call]) -> None:
    """Close a channel after its calls have ended or after ten minutes. If this task is cancelled, close it at once.

    `Channel.close` has a grace period, too. But if it is cancelled during this period, the calls continue, and
    further calls of `close` have no effect.
    """
    try:
        async with asyncio.timeout(_MAX_CALL_SECONDS):
            await asyncio.gather(*(call.code() for call in calls), return_exceptions=True)
    except TimeoutError:
        pass
    finally:
        await channel.close()


def server_attributes(target: str) -> dict[str, str | int]:
    """Return OpenTelemetry's span attributes for the server at a gRPC target.

    >>> server_attributes("dns:///retriever:50051")
    {'server.address': 'retriever', 'server.port': 50051}
    >>> server_attributes("unix:/run/causeway/retriever.sock")
    {'server.address': '/run/causeway/retriever.sock'}
    """
    scheme, _, rest = target.partition(":")
    if scheme == "unix":
        return {"server.address": rest.removeprefix("//")}
    host, separator, port = target.rpartition("/")[2].rpartition(":")
    if not separator or not port.isdecimal():
        return {"server.address": target}
    return {"server.address": host.strip("[]"), "server.port": int(port)}
