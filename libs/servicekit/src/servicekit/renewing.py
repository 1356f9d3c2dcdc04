"""A gRPC channel that is opened anew when the process's certificate has been renewed."""

import asyncio
from collections.abc import Callable
from typing import Any, Self

import grpc
from grpc.aio import Channel

from servicekit.tls import Certificates, Material

_LONGEST_CALL = 600.0


class RenewingChannel(Channel):
    """A channel over the current certificate: gRPC gives a channel one certificate for its whole life.

    Calls that run when the certificate changes end on the channel that they began on.

    Args:
        open_channel: Opens a channel that shows a certificate.
        certificates: Asked before each call.
    """

    def __init__(self, open_channel: Callable[[Material], Channel], certificates: Certificates) -> None:
        self._open = open_channel
        self._certificates = certificates
        self._material = certificates.current()
        self._channel = open_channel(self._material)
        self._leaving: set[asyncio.Task[None]] = set()

    def _current(self) -> Channel:
        if (material := self._certificates.current()) is not self._material:
            leaving = asyncio.ensure_future(self._channel.close(_LONGEST_CALL))
            self._leaving.add(leaving)
            leaving.add_done_callback(self._leaving.discard)
            self._material, self._channel = material, self._open(material)
        return self._channel

    def _method(self, kind: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        made: tuple[Channel, Any] | None = None

        def call(*call_arguments: Any, **call_options: Any) -> Any:
            nonlocal made
            channel = self._current()
            if made is None or made[0] is not channel:
                made = (channel, getattr(channel, kind)(*arguments, **options))
            return made[1](*call_arguments, **call_options)

        return call

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._method("unary_unary", arguments, options)

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._method("unary_stream", arguments, options)

    def stream_unary(self, *arguments: Any, **options: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._method("stream_unary", arguments, options)

    def stream_stream(self, *arguments: Any, **options: Any) -> Any:
        """See `grpc.aio.Channel`."""
        return self._method("stream_stream", arguments, options)

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
        """Ends the calls, those on earlier certificates too."""
        for leaving in self._leaving:
            leaving.cancel()
        await asyncio.gather(*self._leaving, return_exceptions=True)
        await self._channel.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
