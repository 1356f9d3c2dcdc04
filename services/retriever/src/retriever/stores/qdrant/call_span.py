"""The span of a call to a Qdrant server. Names follow OpenTelemetry's conventions for databases.

https://opentelemetry.io/docs/specs/semconv/db/database-spans/
"""

import contextlib
from collections.abc import Iterator, Mapping

from grpc import StatusCode
from grpc.aio import AioRpcError
from opentelemetry import trace
from opentelemetry.trace import SpanKind
from opentelemetry.trace import StatusCode as SpanStatus
from servicekit import telemetry

_tracer = telemetry.tracer(__name__)


@contextlib.contextmanager
def call_span(operation: str, collection: str | None, server: Mapping[str, str | int]) -> Iterator[None]:
    """Record the block as a span, without the content of the request and the response.

    Outside a recorded trace, no span is recorded. Otherwise each renewal of leases would be a trace. A missing
    collection is not an error of the span, as with ``expected`` of `servicekit.rpc.unary`.

    Args:
        operation: Name of the client's method.
        collection: The collection; None: the whole server.
        server: The address of the server.
    """
    if not trace.get_current_span().is_recording():
        yield
        return
    attributes: dict[str, str | int] = {"db.system.name": "qdrant", "db.operation.name": operation, **server}
    if collection is not None:
        attributes["db.collection.name"] = collection
    with _tracer.start_as_current_span(
        f"{operation} {collection}" if collection else operation,
        kind=SpanKind.CLIENT,
        attributes=attributes,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield
        except AioRpcError as error:
            span.set_attribute("db.response.status_code", error.code().name)
            if error.code() is not StatusCode.NOT_FOUND:
                _failed(span, error.code().name)
            raise
        except Exception as error:
            _failed(span, type(error).__name__)
            raise


def _failed(span: trace.Span, error_type: str) -> None:
    span.set_attribute("error.type", error_type)
    span.set_status(SpanStatus.ERROR, error_type)
