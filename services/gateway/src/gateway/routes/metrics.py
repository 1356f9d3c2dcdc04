"""The route of the gateway's metrics."""

from fastapi import APIRouter, Response

from gateway.server.metrics import MEDIA, Metrics


def router(metrics: Metrics, *, tenants: bool) -> APIRouter:
    """Return ``GET /metrics``.

    Args:
        metrics: The metrics.
        tenants: Whether to include the metrics by tenant. False if administrators of one tenant have access.
    """
    routes = APIRouter(tags=["health"])

    @routes.get(
        "/metrics",
        summary="Metrics in Prometheus' text format",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def read_metrics() -> Response:
        """Return the metrics of requests, answers, connections and retrieved passages."""
        return Response(metrics.text(tenants=tenants), media_type=MEDIA)

    return routes
