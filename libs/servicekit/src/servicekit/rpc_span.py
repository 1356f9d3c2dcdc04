"""The span of a call to another service, and its time once it has ended."""

import contextlib
import functools
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import Descriptor
from grpc.aio import AioRpcError
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode

from servicekit import metrics, telemetry
from servicekit.errors import Cancelled, CausewayError
from servicekit.rpc_errors import unpack

_tracer = telemetry.tracer(__name__)
_calls = metrics.durations(__name__, "rpc.client.call.duration", "Seconds from a call's begin to its end.")


class CallSpan:
    """A call that is under way: its span, and its time once it has ended.

    Args:
        name: The full name of the method.
        method: Of the stub.
        expected: Codes that are an answer to the caller, and no error of the span.

    Attributes:
        span: Begun with it.
        code: What it ended with; whoever leaves it before its end cancels it.
    """

    def __init__(self, name: str, method: Callable[..., Any], expected: Collection[grpc.StatusCode] = ()) -> None:
        self._name = name
        self._expected = expected
        self._begin = time.perf_counter()
        self.span = _tracer.start_span(name, kind=SpanKind.CLIENT, attributes=_attributes(name, method))
        self.code = grpc.StatusCode.CANCELLED

    @property
    def context(self) -> Context:
        """The span's, for the call's metadata."""
        return trace.set_span_in_context(self.span)

    def failed(self, error: AioRpcError) -> CausewayError:
        """Return what the caller is told, and say on the span what went wrong."""
        failure = unpack(error)
        self.code = error.code()
        if not isinstance(failure, Cancelled) and self.code not in self._expected:
            self.span.set_status(StatusCode.ERROR, self.code.name)
            self.span.set_attribute("error.type", self.code.name)
        return failure

    def end(self) -> None:
        """End the span, and measure the call."""
        self.span.set_attribute("rpc.response.status_code", self.code.name)
        self.span.end()
        _calls.record(
            time.perf_counter() - self._begin,
            {"rpc.method": self._name, "rpc.response.status_code": self.code.name},
        )


@contextlib.contextmanager
def current(
    name: str, method: Callable[..., Any], expected: Collection[grpc.StatusCode] = ()
) -> Iterator[CallSpan]:
    """Make a call's span the current one; the call has ended well where the block does. See `CallSpan`."""
    going = CallSpan(name, method, expected)
    with trace.use_span(going.span, record_exception=False, set_status_on_exception=False):
        try:
            yield going
            going.code = grpc.StatusCode.OK
        finally:
            going.end()


def _attributes(name: str, method: Callable[..., Any]) -> dict[str, str | int]:
    # A method of a channel that is not `channel.open_channel`'s does not say which server it calls.
    server: Mapping[str, str | int] = getattr(method, "server", {})
    return {"rpc.system.name": "grpc", "rpc.method": name, **server}


@functools.cache
def name_of(request: Descriptor) -> str:
    """Return the full name of the method that takes a message."""
    # Every RPC takes a message of its own (held by the contracts' linter), so the message names the method.
    [name] = [
        f"{service.full_name}/{method.name}"
        for service in request.file.services_by_name.values()
        for method in service.methods
        if method.input_type is request
    ]
    return name
