"""Metrics: one provider for each process, served in Prometheus' text format.

Names follow OpenTelemetry's semantic conventions; other names begin with ``causeway.``. Labels have few values:
methods, codes, routes, names of front ends and models. An index, a user or a text is never a label.
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
"""The shared label of all values above the limit of `BoundedLabel`."""

_zeros: list[tuple[Counter, Mapping[str, str]]] = []
_Values = Callable[[], Iterable[tuple[float, dict[str, str]]]]
_observed: dict[tuple[str, str], list[_Values]] = {}


class BoundedLabel:
    """Limits the number of values of a label. Above the limit, all new values share the label `OTHER`.

    The class is for labels whose values come from clients or remote servers.

    Args:
        max_values: Maximum number of values with their own label.
    """

    def __init__(self, max_values: int = 200) -> None:
        self._max_values = max_values
        self._known: set[str] = set()

    def label_for(self, value: str) -> str:
        """Return the label for a value."""
        if value not in self._known:
            if len(self._known) >= self._max_values:
                return OTHER
            self._known.add(value)
        return value


def install(registry: CollectorRegistry) -> None:
    """Register the metrics of the process, and its resource usage, with a registry.

    Before the first call, recording costs almost nothing and has no effect.
    """
    ProcessCollector(registry=registry)
    registry.register(_Measured(_measured()))


@functools.cache
def _measured() -> CollectorRegistry:
    # OpenTelemetry has one provider for each process, which cannot be replaced.
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
    """Serve a registry over HTTP in the block; do nothing without a port.

    Raises:
        OSError: The server cannot listen on the address.
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
    """Create a histogram of seconds.

    Args:
        module: The measuring module.
        name: In OpenTelemetry's form, ``rpc.server.call.duration``; in Prometheus it ends with ``_seconds``.
        description: For readers of the metrics.
        buckets: The upper bounds of the buckets.
    """
    return metrics.get_meter(module).create_histogram(
        name, "s", description, explicit_bucket_boundaries_advisory=list(buckets)
    )


def amounts(module: str, name: str, unit: str, description: str, buckets: Iterable[float]) -> Histogram:
    """Create a histogram with a unit other than seconds, for example ``{token}``; see `durations`."""
    return metrics.get_meter(module).create_histogram(
        name, unit, description, explicit_bucket_boundaries_advisory=list(buckets)
    )


def counter(
    module: str, name: str, unit: str, description: str, known: Sequence[Mapping[str, str]] = ()
) -> Counter:
    """Create a counter; in Prometheus its name ends with ``_total``.

    Args:
        module: The counting module.
        name: In OpenTelemetry's form.
        unit: For example ``{token}``; empty without a unit.
        description: For readers of the metrics.
        known: Sets of labels that are known in advance. Their series begin at 0, because Prometheus sees no
            increase if a series begins at 1. Only counters that are created before the first call of `install`
            begin at 0.
    """
    counts = metrics.get_meter(module).create_counter(name, unit, description)
    _zeros.extend((counts, labels) for labels in known)
    return counts


def observed_counter(module: str, name: str, unit: str, description: str, value: Callable[[], int]) -> None:
    """Create a counter without labels, whose value is read at each scrape. ``value`` must not block."""

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
    """Create a gauge whose values and labels are read at each scrape. ``values`` must not block.

    If a module calls the function again with the same name, the gauge has the values of all calls. For equal
    labels, the last value counts.
    """

    def observations(options: CallbackOptions) -> Iterable[Observation]:  # noqa: ARG001  # OpenTelemetry's signature
        return [Observation(value, labels) for read in readers for value, labels in read()]

    # OpenTelemetry creates an instrument once, and ignores the callbacks of a second instrument with this name.
    readers = _observed.setdefault((module, name), [])
    readers.append(values)
    if len(readers) == 1:
        metrics.get_meter(module).create_observable_gauge(name, [observations], unit, description)
