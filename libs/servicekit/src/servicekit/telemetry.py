"""Traces: one provider a process, W3C trace context over HTTP headers, gRPC metadata and NATS headers."""

import threading
from collections.abc import Mapping, MutableMapping

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from servicekit.settings import ServiceSettings

_PROPAGATOR = TraceContextTextMapPropagator()


def configure(service: str, settings: ServiceSettings) -> TracerProvider:
    """Makes the provider that all of the process's spans go to."""
    provider = provider_for(service, settings)
    trace.set_tracer_provider(provider)
    return provider


def provider_for(service: str, settings: ServiceSettings) -> TracerProvider:
    """A provider of spans. Without an endpoint they only lend their ids: none is recorded, but of a trace whose
    caller has it recorded.
    """
    provider = TracerProvider(
        resource=Resource.create({SERVICE_NAME: f"causeway-{service}"}),
        sampler=ParentBasedTraceIdRatio(settings.trace_sample_ratio if settings.otlp_endpoint else 0.0),
        shutdown_on_exit=False,
    )
    if settings.otlp_endpoint:
        # A tenth of a second and 10 MB of each process's start, for those that use it.
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter

        exporter = OTLPSpanExporter(
            endpoint=settings.otlp_endpoint, insecure=not settings.otlp_endpoint.startswith("https")
        )
        provider.add_span_processor(BatchSpanProcessor(exporter))
    return provider


def shut_down(provider: TracerProvider, *, within: float = 2.0) -> None:
    """Sends the last spans. What the collector has not taken after so many seconds is lost.

    The provider itself would wait for a collector that is away until it has tried each batch for ten seconds.
    """
    sending = threading.Thread(target=provider.shutdown, daemon=True)
    sending.start()
    sending.join(within)


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
