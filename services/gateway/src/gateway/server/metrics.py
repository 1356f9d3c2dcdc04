"""The gateway's Prometheus metrics, with the names of RAGEngine's dashboards.

A request is a ``success`` if its response has a status below 400 and, in the case of a chat, its answer is
complete or will be generated in the background. All other requests are a ``failure``: refusals, incomplete answers,
and requests without a response, because the client left.
"""

import time
from collections.abc import Collection, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.domain import Passage
from gateway.server.connections import Connections
from gateway.server.request_state import RequestState, state_of

MEDIA = "text/plain; version=0.0.4; charset=utf-8"
_FIRST_ERROR_STATUS = 400
_TENANT = "causeway_tenant"
_CHAT = "rag_chat"
_ROUTES = {
    ("POST", "/index"): "rag_index",
    ("GET", "/indexes"): "rag_indexes",
    ("DELETE", "/indexes/{index}"): "rag_delete_index",
    ("GET", "/indexes/{index}/documents"): "rag_indexes_document",
    ("POST", "/indexes/{index}/documents"): "rag_indexes_update_document",
    ("POST", "/indexes/{index}/documents/delete"): "rag_indexes_delete_document",
    ("POST", "/retrieve"): "rag_indexes_retrieve",
    ("POST", "/persist/{index}"): "rag_persist",
    ("POST", "/load/{index}"): "rag_load",
    ("POST", "/v1/embeddings"): "rag_embedding",
    ("POST", "/openai/deployments/{model:path}/embeddings"): "rag_embedding",
}
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_COUNTS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 300)
_SCORES = (0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)


class Metrics:
    """The gateway's metrics, with their own registry."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        names = dict.fromkeys((_CHAT, *_ROUTES.values()))
        self._requests = {
            name: Counter(f"{name}_requests", f"Requests of {name}", ["status"], registry=registry)
            for name in names
        }
        self._latency = {
            name: Histogram(
                f"{name}_latency_seconds",
                f"Seconds from the request to the end of its response, of {name}",
                ["status"],
                registry=registry,
                buckets=_SECONDS,
            )
            for name in names
        }
        for name in names:  # created at the start, so that a rate includes the first request
            for status in ("success", "failure"):
                self._requests[name].labels(status)
                self._latency[name].labels(status)
        self._front_ends = Counter(
            "causeway_requests", "Requests of a front end", ["frontend", "status"], registry=registry
        )
        self.running = Gauge("num_requests_running", "Requests that are being answered", registry=registry)
        self.answers = Gauge("causeway_answers_running", "Requests that have a slot", registry=registry)
        self.waiting = Gauge("causeway_answers_waiting", "Requests that wait for a slot", registry=registry)
        self.readers = Gauge(
            "causeway_responses_readers", "Connections that read unfinished responses", registry=registry
        )
        self.followed = Gauge(
            "causeway_responses_followed", "Unfinished responses that are read", registry=registry
        )
        self._count = Histogram(
            "rag_retrieve_result_count", "Passages of an answer", registry=registry, buckets=_COUNTS
        )
        self._lowest_score = Histogram(
            "rag_lowest_source_score", "Lowest score of an answer's passages", registry=registry, buckets=_SCORES
        )
        self._average_score = Histogram(
            "rag_avg_source_score", "Mean score of an answer's passages", registry=registry, buckets=_SCORES
        )

    def register_connections(self, connections: Connections) -> None:
        """Register the metrics of the open connections, and of those that the limit closed or restricted."""
        self.registry.register(_ConnectionMetrics(connections))

    def count_request(self, name: str, seconds: float, *, success: bool) -> None:
        """Count a request by its RAGEngine name."""
        status = "success" if success else "failure"
        self._requests[name].labels(status).inc()
        self._latency[name].labels(status).observe(seconds)

    def count_frontend(self, frontend: str, *, success: bool) -> None:
        """Count a request of a front end."""
        self._front_ends.labels(frontend, "success" if success else "failure").inc()

    def count_passages(self, passages: Sequence[Passage]) -> None:
        """Record the number and the scores of an answer's passages."""
        self._count.observe(len(passages))
        if passages:
            scores = [passage.score for passage in passages]
            self._lowest_score.observe(min(scores))
            self._average_score.observe(sum(scores) / len(scores))

    def text(self, *, tenants: bool = True) -> bytes:
        """Return the metrics in Prometheus' text format.

        Args:
            tenants: Include the metrics that have a tenant label.
        """
        return generate_latest(self.registry if tenants else _WithoutTenants(self.registry))


class _ConnectionMetrics(Collector):
    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def collect(self) -> Iterator[Metric]:
        """Yield the current numbers."""
        yield GaugeMetricFamily("causeway_http_connections", "Open connections", value=len(self._connections))
        shed = CounterMetricFamily(
            "causeway_http_connections_shed",
            "Connections that were closed or restricted to health and metrics at the limit",
            labels=["causeway_reason"],
        )
        for reason, count in self._connections.shed.items():
            shed.add_metric([reason], count)
        yield shed


class _WithoutTenants(Collector):
    """Filters out the metrics with a tenant label."""

    def __init__(self, registry: Collector) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        """Yield the metric families without a tenant label."""
        for family in self._registry.collect():
            if not any(_TENANT in sample.labels for sample in family.samples):
                yield family


class MetricsLayer:
    """Counts each request once, when it ends, so that no work is necessary for each token of a stream.

    The request's state has the data: ``frontend`` (set by `ProfileLayer`), ``status`` (set by `Tracing`), and the
    ``done`` of a chat or the ``sources`` of a retrieval (set by the routes).

    Args:
        app: The inner application.
        metrics: The metrics.
        chats: The paths of the chat routes.
        uncounted: Paths that are not counted.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, chats: Collection[str], uncounted: Sequence[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._chats = frozenset(chats)
        self._uncounted = frozenset(uncounted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or scope["path"] in self._uncounted:
            await self._app(scope, receive, send)
            return
        state = state_of(scope)
        begin = time.perf_counter()
        self._metrics.running.inc()
        try:
            await self._app(scope, receive, send)
        finally:
            self._metrics.running.dec()
            self._count(scope, state, time.perf_counter() - begin)

    def _count(self, scope: Scope, state: RequestState, seconds: float) -> None:
        name = self._name(scope)
        success = 0 < state.status < _FIRST_ERROR_STATUS
        sources = state.sources
        if name == _CHAT:
            # The status of a stream is sent before the answer is complete.
            done = state.done
            success = success and done is not None
            sources = done.selection.passages if done is not None and done.selection else None
        self._metrics.count_frontend(state.frontend.name, success=success)
        if name is None:
            return
        self._metrics.count_request(name, seconds, success=success)
        if success and sources is not None:
            self._metrics.count_passages(sources)

    def _name(self, scope: Scope) -> str | None:
        """Return the RAGEngine name of a request's route, or None if RAGEngine has no metrics of the route."""
        if scope.get("http.route") in self._chats:  # only raw ASGI routes set this key
            return _CHAT
        route = getattr(scope.get("route"), "path", "")
        return _ROUTES.get((scope["method"], route))
