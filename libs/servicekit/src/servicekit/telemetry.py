"""Traces: one provider a process, W3C trace context over HTTP headers, gRPC metadata and NATS headers."""

from collections.abc import Mapping, MutableMapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from servicekit.settings import ServiceSettings

_PROPAGATOR = TraceContextTextMapPropagator()


def configure(service: str, settings: ServiceSettings) -> TracerProvider:
    """Makes the provider that the process's spans go to; without an endpoint spans only lend their ids."""
    provider = TracerProvider(
        resource=Resource.create({SERVICE_NAME: f"causeway-{service}"}),
        sampler=ParentBasedTraceIdRatio(settings.trace_sample_ratio),
    )
    if settings.otlp_endpoint:
        exporter = OTLPSpanExporter(
            endpoint=settings.otlp_endpoint, insecure=not settings.otlp_endpoint.startswith("https")
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)
    return provider


def tracer(name: str) -> trace.Tracer:
    """The tracer of a module."""
    return trace.get_tracer(name)


def inject(carrier: MutableMapping[str, str], context: Context | None = None) -> None:
    """Writes ``traceparent`` and ``tracestate`` of a context (the current one, if none is given) into headers."""
    _PROPAGATOR.inject(carrier, context)


def extract(carrier: Mapping[str, str]) -> Context:
    """The context that headers name; an empty one where they name none."""
    return _PROPAGATOR.extract(carrier)


def current_trace_id() -> str:
    """The current trace's id, 32 hex digits; empty outside of any span."""
    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else ""
