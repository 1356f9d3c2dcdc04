"""A collector of traces for tests. It stores the spans of services."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc


class Collector(trace_service_pb2_grpc.TraceServiceServicer):
    """Receives spans over OTLP, and stores them with the name of their service."""

    def __init__(self) -> None:
        self.spans: list[tuple[str, Any]] = []

    async def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # named by the protocol
        for resource in request.resource_spans:
            [service] = [a.value.string_value for a in resource.resource.attributes if a.key == "service.name"]
            for scope in resource.scope_spans:
                self.spans += [(service.removeprefix("causeway-"), span) for span in scope.spans]
        return trace_service_pb2.ExportTraceServiceResponse()

    def of(self, trace_id: str) -> list[tuple[str, Any]]:
        """Return the spans of one trace with their services."""
        return [(service, span) for service, span in self.spans if span.trace_id.hex() == trace_id]

    def edges(self, trace_id: str) -> set[tuple[str, str]]:
        """Return the pairs of a calling service and a called service of one trace."""
        spans = self.of(trace_id)
        owner = {span.span_id: service for service, span in spans}
        return {
            (owner[span.parent_span_id], service)
            for service, span in spans
            if span.parent_span_id in owner and owner[span.parent_span_id] != service
        }

    def calls(self, trace_id: str) -> set[str]:
        """Return the called methods of services in one trace. Calls without a client span are omitted."""
        spans = self.of(trace_id)
        callers = {span.span_id for _, span in spans if span.kind == span.SPAN_KIND_CLIENT}
        return {
            span.name.rpartition("/")[2]
            for _, span in spans
            if span.kind == span.SPAN_KIND_SERVER and span.parent_span_id in callers
        }

    def steps(self, trace_id: str) -> dict[str, float]:
        """Return the milliseconds of the spans directly below the request's span."""
        spans = self.of(trace_id)
        roots = {
            span.span_id for _, span in spans if span.kind == span.SPAN_KIND_SERVER and not span.parent_span_id
        }
        found: dict[str, float] = {}
        for _, span in spans:
            if span.parent_span_id in roots and span.kind == span.SPAN_KIND_INTERNAL:
                spent = (span.end_time_unix_nano - span.start_time_unix_nano) / 1e6
                found[span.name] = found.get(span.name, 0.0) + spent
        return found

    def attributes(self, trace_id: str, name: str) -> dict[str, Any]:
        """Return the attributes of the first span with a name in a trace; empty without such a span."""
        for _, span in self.of(trace_id):
            if span.name == name:
                return {each.key: MessageToDict(each.value) for each in span.attributes}
        return {}

    def named(self, trace_id: str, name: str) -> list[Any]:
        """Return the spans of a trace with a name."""
        return [span for _, span in self.of(trace_id) if span.name == name]

    def errors(self, trace_id: str) -> list[str]:
        """Return the names of a trace's failed spans."""
        return [span.name for _, span in self.of(trace_id) if span.status.code == span.status.STATUS_CODE_ERROR]

    def linked(self, trace_id: str) -> list[str]:
        """Return the trace ids of ingest spans that have a link to a trace."""
        return [
            span.trace_id.hex()
            for service, span in self.spans
            if service == "ingest" and trace_id in {link.trace_id.hex() for link in span.links}
        ]

    def tree(self, trace_id: str) -> list[dict[str, Any]]:
        """Return the content of every span of a trace, ordered by its path from the root."""
        spans = {span.span_id: (service, span) for service, span in self.of(trace_id)}

        def path(span: Any) -> list[str]:
            parent = spans.get(span.parent_span_id)
            return [*(path(parent[1]) if parent else []), f"{self._kind(span)} {span.name}"]

        described = [
            {
                "span": " > ".join(path(span)),
                "service": service,
                "status": span.status.StatusCode.Name(span.status.code).removeprefix("STATUS_CODE_").lower(),
                "attributes": {each.key: _value(each.value) for each in span.attributes},
            }
            for service, span in spans.values()
        ]
        return sorted(described, key=lambda each: (each["span"], each["service"]))

    @staticmethod
    def _kind(span: Any) -> str:
        name: str = span.SpanKind.Name(span.kind)
        return name.removeprefix("SPAN_KIND_").lower()


def _value(value: Any) -> Any:
    found = getattr(value, value.WhichOneof("value"))
    return [_value(each) for each in found.values] if value.HasField("array_value") else found


@contextlib.asynccontextmanager
async def collecting() -> AsyncIterator[tuple[Collector, str]]:
    """Start a collector, and yield it with its endpoint."""
    server = grpc.aio.server()
    collector = Collector()
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(collector, server)  # type: ignore[no-untyped-call]  # generated without types
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield collector, f"http://127.0.0.1:{port}"
    await server.stop(0)
