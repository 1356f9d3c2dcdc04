"""The connections to remote chunkers, and the protocols of their servers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import grpc
from causeway.caikit.v1 import chunkers_pb2_grpc
from causeway.guardrails.v1 import chunker_pb2_grpc
from servicekit.channel import SIZE_OPTIONS, WINDOW_OPTIONS, open_channel

from guardrails.remote import caikit_chunker, chunker
from guardrails.remote.caikit_chunker import CaikitChunker
from guardrails.remote.chunker import RemoteChunker
from guardrails.remote.config import ChunkerConfig


@dataclass(frozen=True, slots=True)
class _Protocol:
    """A protocol of chunkers.

    Attributes:
        service: The descriptor of the gRPC service.
        stub: Returns the client of a connection.
        chunker: The class that splits one text with this client.
    """

    service: Any
    stub: Callable[[grpc.aio.Channel], Any]
    chunker: type[RemoteChunker]


_PROTOCOLS: Mapping[str, _Protocol] = {
    "causeway": _Protocol(chunker.DESCRIPTOR, chunker_pb2_grpc.ChunkerServiceStub, RemoteChunker),
    "caikit": _Protocol(caikit_chunker.DESCRIPTOR, chunkers_pb2_grpc.ChunkersServiceStub, CaikitChunker),
}


class Chunkers:
    """The remote chunkers; their connections stay open until `aclose`."""

    def __init__(self) -> None:
        self._channels: dict[ChunkerConfig, grpc.aio.Channel] = {}

    def chunker(self, config: ChunkerConfig, ready: Callable[[], None]) -> RemoteChunker:
        """Return the chunker of one text; see `Judge.chunker`."""
        protocol = _PROTOCOLS[config.protocol]
        channel = self._channels.get(config)
        if channel is None:
            channel = self._channels[config] = _channel(config, protocol.service)
        return protocol.chunker(config, protocol.stub(channel), ready)

    async def aclose(self) -> None:
        """Close the connections."""
        for channel in self._channels.values():
            await channel.close()


def _channel(config: ChunkerConfig, service: Any) -> grpc.aio.Channel:
    if config.credentials is None:
        return open_channel(config.target, [service])
    ca, cert, key = config.credentials
    credentials = grpc.ssl_channel_credentials(ca, key, cert)
    return grpc.aio.secure_channel(config.target, credentials, options=(*WINDOW_OPTIONS, *SIZE_OPTIONS))
