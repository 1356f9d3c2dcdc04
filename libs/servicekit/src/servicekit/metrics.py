"""Metrics: one provider a process, read in Prometheus' text format.

Names follow OpenTelemetry's semantic conventions where those have one, and ``causeway.`` stands before the others.
Labels are few and bounded: methods, codes, routes, names of front ends and models; never an index, a user, a text.
"""

import contextlib
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from wsgiref.simple_server import WSGIServer

from opentelemetry import metrics
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.metrics import CallbackOptions, Counter, Histogram, Observation
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
"""Buckets of durations."""
OTHER = "other"
"""The label of what has none of its own."""

_zeros: list[tuple[Counter, Mapping[str, str]]] = []
_Values = Callable[[], Iterable[tuple[float, dict[str, str]]]]
_observed: dict[tuple[str, str], list[_Values]] = {}


class Bounded:
    """The values of a label that clients or servers elsewhere choose: those that come after so many share one.

    Args:
        most: How many have a label of their own.
    """

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._known: set[str] = set()

    def known(self, value: str) -> str:
        """The value as a label."""
        if value not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(value)
        return value


def install(registry: CollectorRegistry) -> None:
    """Let a registry be read for all that the process measures, and for what it takes of the machine.

    Until it is called, measuring costs next to nothing and leads nowhere.
    """
    ProcessCollector(registry=registry)
    registry.register(_Measured(_measured()))


@functools.cache
def _measured() -> CollectorRegistry:
    # OpenTelemetry has one provider a process, and takes no other once it is set.
    registry = CollectorRegistry()
    reader = PrometheusMetricReader(disable_target_info=True, scope_info_enabled=False, registry=registry)
    metrics.set_meter_provider(MeterProvider([reader], shutdown_on_exit=False))
    for counts, labels in _zeros:
        counts.add(0, labels)
    return registry


class _Measured(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()


@contextlib.contextmanager
def served(registry: CollectorRegistry, host: str, port: int | None) -> Iterator[None]:
    """An HTTP server that answers scrapes from a registry; nothing where there is no port for it.

    Raises:
        OSError: The address cannot be listened on.
    """
    if port is None:
        yield
        return
    server: WSGIServer
    thread: threading.Thread
    server, thread = start_http_server(port, host, registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def durations(module: str, name: str, description: str, buckets: Iterable[float] = SECONDS) -> Histogram:
    """A histogram of seconds.

    Args:
        module: Who measures.
        name: In OpenTelemetry's form, ``rpc.server.call.duration``; Prometheus has ``…_seconds`` of it.
        description: For readers of the metrics.
        buckets: Their upper bounds.
    """
    return metrics.get_meter(module).create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=list(buckets)
    )


def amounts(module: str, name: str, unit: str, description: str, buckets: Iterable[float]) -> Histogram:
    """A histogram of something other than seconds; ``unit`` as ``{token}``."""
    return metrics.get_meter(module).create_histogram(
        name, unit, description, explicit_bucket_boundaries_advisory=list(buckets)
    )


def counter(
    module: str, name: str, unit: str, description: str, known: Sequence[Mapping[str, str]] = ()
) -> Counter:
    """Make a counter; Prometheus has ``…_total`` of its name.

    Args:
        module: Who counts.
        name: In OpenTelemetry's form.
        unit: As ``{token}``; empty: none.
        description: For readers of the metrics.
        known: Sets of labels that are known before anything is counted. Their series begin at 0 with the process:
            Prometheus sees no increase where a series begins at 1.
    """
    counts = metrics.get_meter(module).create_counter(name, unit, description)
    _zeros.extend((counts, labels) for labels in known)
    return counts


def observed_counter(module: str, name: str, unit: str, description: str, value: Callable[[], int]) -> None:
    """Make a counter without labels whose value is asked for at each scrape. It must not wait for anything."""

    def observations(options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG001  # OpenTelemetry's signature
        return [Observation(value())]

    metrics.get_meter(module).create_observable_counter(name, [observations], unit, description)


def observed(
    module: str,
    name: str,
    unit: str,
    description: str,
    values: _Values,
) -> None:
    """Make a gauge whose values, with their labels, are asked for at each scrape. It must not wait for anything.

    Of several with the same name and labels the last one made counts.
    """

    def observations(options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG001  # OpenTelemetry's signature
        return [Observation(value, labels) for each in asked for value, labels in each()]

    # OpenTelemetry makes an instrument once, and drops the callbacks of a second one.
    asked = _observed.setdefault((module, name), [])
    asked.append(values)
    if len(asked) == 1:
        metrics.get_meter(module).create_observable_gauge(name, [observations], unit, description)
