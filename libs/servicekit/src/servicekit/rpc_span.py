"""The span and the duration of a call to another service."""

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
_calls = metrics.durations(__name__, "rpc.client.call.duration", "Seconds from the start of a call to its end.")


class CallSpan:
    """The span and the duration of a running call.

    Args:
        name: The full name of the method.
        method: The method of the stub.
        expected: Error codes that are normal results and do not mark the span as failed.

    Attributes:
        span: The span, started with the call.
        code: The final code. It remains CANCELLED if the caller cancels the call.
    """

    def __init__(self, name: str, method: Callable[..., Any], expected: Collection[grpc.StatusCode] = ()) -> None:
        self._name = name
        self._expected = expected
        self._start = time.perf_counter()
        self.span = _tracer.start_span(name, kind=SpanKind.CLIENT, attributes=_attributes(name, method))
        self.code = grpc.StatusCode.CANCELLED

    @property
    def context(self) -> Context:
        """The context of the span, for the call's metadata."""
        return trace.set_span_in_context(self.span)

    def failed(self, error: AioRpcError) -> CausewayError:
        """Return the error for the caller, and record it on the span."""
        failure = unpack(error)
        self.code = error.code()
        if not isinstance(failure, Cancelled) and self.code not in self._expected:
            self.span.set_status(StatusCode.ERROR, self.code.name)
            self.span.set_attribute("error.type", self.code.name)
        return failure

    def end(self) -> None:
        """End the span and record the duration."""
        self.span.set_attribute("rpc.response.status_code", self.code.name)
        self.span.end()
        _calls.record(
            time.perf_counter() - self._start,
            {"rpc.method": self._name, "rpc.response.status_code": self.code.name},
        )


@contextlib.contextmanager
def current_span(
    name: str, method: Callable[..., Any], expected: Collection[grpc.StatusCode] = ()
) -> Iterator[CallSpan]:
    """Create a `CallSpan` as the current span of the block. The call succeeded if the block raises no error."""
    call = CallSpan(name, method, expected)
    with trace.use_span(call.span, record_exception=False, set_status_on_exception=False):
        try:
            yield call
            call.code = grpc.StatusCode.OK
        finally:
            call.end()


def _attributes(name: str, method: Callable[..., Any]) -> dict[str, str | int]:
    # Only the methods of a `service_channel.ServiceChannel` have this attribute.
    server: Mapping[str, str | int] = getattr(method, "server", {})
    return {"rpc.system.name": "grpc", "rpc.method": name, **server}


@functools.cache
def name_of(request: Descriptor) -> str:
    """Return the full name of the method with this request message."""
    # The linter of the contracts ensures that each method has its own request message.
    [name] = [
        f"{service.full_name}/{method.name}"
        for service in request.file.services_by_name.values()
        for method in service.methods
        if method.input_type is request
    ]
    return name
