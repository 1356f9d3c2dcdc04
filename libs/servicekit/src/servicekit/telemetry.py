"""Traces: one tracer provider per process, W3C trace context in HTTP headers, gRPC metadata and NATS headers."""

import threading
from collections.abc import Mapping, MutableMapping
from importlib.metadata import PackageNotFoundError, version

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.semconv.schemas import Schemas
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from servicekit.settings import ServiceSettings

SCHEMA = Schemas.V1_44_0.value
"""The URL of the schema of OpenTelemetry's semantic conventions, in the version that spans follow."""

_IDS = RandomIdGenerator()
_PROPAGATOR = TraceContextTextMapPropagator()


def configure(service: str, settings: ServiceSettings) -> TracerProvider:
    """Create the tracer provider of the process, and return it."""
    provider = provider_for(service, settings)
    trace.set_tracer_provider(provider)
    return provider


def provider_for(service: str, settings: ServiceSettings) -> TracerProvider:
    """Return a tracer provider.

    Without an OTLP endpoint, a span is recorded only if the caller's trace is recorded. Other spans have only ids.
    """
    provider = TracerProvider(
        resource=Resource.create(_resource_attributes(f"causeway-{service}"), SCHEMA),
        sampler=ParentBasedTraceIdRatio(settings.trace_sample_ratio if settings.otlp_endpoint else 0.0),
        shutdown_on_exit=False,
    )
    if settings.otlp_endpoint:
        # Imported here because the import costs a tenth of a second and 10 MB.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter(
            endpoint=settings.otlp_endpoint, insecure=not settings.otlp_endpoint.startswith("https")
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def _resource_attributes(name: str) -> dict[str, str]:
    try:
        return {SERVICE_NAME: name, SERVICE_VERSION: version(name)}
    except PackageNotFoundError:
        return {SERVICE_NAME: name}


def shut_down(provider: TracerProvider, *, within: float = 2.0) -> None:
    """Send the last spans; drop those that the collector has not accepted after ``within`` seconds.

    The provider itself would retry each batch for ten seconds if the collector is unavailable.
    """
    sending = threading.Thread(target=provider.shutdown, daemon=True)
    sending.start()
    sending.join(within)


def tracer(name: str) -> trace.Tracer:
    """Return the tracer of a module, with the schema of the conventions."""
    return trace.get_tracer(name, schema_url=SCHEMA)


def inject(carrier: MutableMapping[str, str], context: Context | None = None) -> None:
    """Write ``traceparent`` and ``tracestate`` of a context (by default, the current one) into headers."""
    _PROPAGATOR.inject(carrier, context)


def extract(carrier: Mapping[str, str]) -> Context:
    """Return the trace context of headers; an empty context if the headers have none."""
    return _PROPAGATOR.extract(carrier)


def unrecorded(context: Context) -> trace.Span:
    """Return a span that is never recorded, in the trace of a context or in a new one."""
    caller = trace.get_current_span(context).get_span_context()
    trace_id = caller.trace_id if caller.is_valid else _IDS.generate_trace_id()
    return trace.NonRecordingSpan(trace.SpanContext(trace_id, _IDS.generate_span_id(), is_remote=False))


def current_trace_id() -> str:
    """Return the id of the current trace, 32 hex digits; empty outside a span."""
    context = trace.get_current_span().get_span_context()
    return format(context.trace_id, "032x") if context.is_valid else ""
