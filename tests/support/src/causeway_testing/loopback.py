"""A gRPC channel without a network: it calls a servicer in the same process, and counts the calls."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc.aio import EOF

_Serialize = Callable[[Any], bytes]
_Parse = Callable[[bytes], Any]


class LoopbackChannel:
    """The part of `grpc.aio.Channel` that stubs and `servicekit.rpc` use for calls with one request.

    It serializes all messages, so that caller and servicer do not share objects.

    Args:
        servicers: Pairs of a service and its servicer.

    Attributes:
        calls: The number of calls by method, for example ``GetIndex``.
    """

    def __init__(self, *servicers: tuple[ServiceDescriptor, object]) -> None:
        self.calls: Counter[str] = Counter()
        self._methods = {
            f"/{service.full_name}/{each.name}": (each.name, GetMessageClass(each.input_type), servicer)
            for service, servicer in servicers
            for each in service.methods
        }

    def unary_unary(
        self, path: str, request_serializer: _Serialize, response_deserializer: _Parse, **_: Any
    ) -> Callable[..., Any]:
        """Return a method with one response."""

        async def call(request: Message, **_: Any) -> Any:
            method, received = self._received(path, request_serializer(request))
            answer = await method(received, LoopbackContext())
            return response_deserializer(answer.SerializeToString())

        return call

    def unary_stream(
        self, path: str, request_serializer: _Serialize, response_deserializer: _Parse, **_: Any
    ) -> Callable[..., Any]:
        """Return a method with a stream of responses."""

        def call(request: Message, **_: Any) -> "_StreamCall":
            method, received = self._received(path, request_serializer(request))
            return _StreamCall(aiter(method(received, LoopbackContext())), response_deserializer)

        return call

    def stream_unary(self, path: str, **_: Any) -> Callable[..., Any]:
        """Return a method that raises an error: this channel does not support streams of requests."""
        return self.stream_stream(path)

    def stream_stream(self, path: str, *_: Any, **__: Any) -> Callable[..., Any]:
        """Return a method that raises an error."""

        def call(*_: Any, **__: Any) -> Any:
            raise NotImplementedError(f"A loopback channel has no stream of requests: {path}")

        return call

    def _received(self, path: str, request: bytes) -> tuple[Callable[..., Any], Message]:
        name, kind, servicer = self._methods[path]
        self.calls[name] += 1
        return getattr(servicer, name), kind.FromString(request)


class LoopbackContext:
    """The part of `grpc.aio.ServicerContext` that servicers use: a call without a deadline."""

    def time_remaining(self) -> None:
        """Return None: the call has no deadline."""


class _StreamCall:
    def __init__(self, answers: AsyncIterator[Message], parse: _Parse) -> None:
        self._answers = answers
        self._parse = parse

    async def read(self) -> Any:
        try:
            message = await anext(self._answers)
        except StopAsyncIteration:
            return EOF
        return self._parse(message.SerializeToString())

    def cancel(self) -> None:
        pass
