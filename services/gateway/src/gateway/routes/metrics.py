"""What the gateway counts."""

from fastapi import APIRouter, Response

from gateway.metrics import MEDIA, Metrics


def router(metrics: Metrics) -> APIRouter:
    """``GET /metrics``.

    Args:
        metrics: What is counted.
    """
    routes = APIRouter(tags=["health"])

    @routes.get(
        "/metrics",
        summary="Metrics in Prometheus' text format",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def read_metrics() -> Response:
        """Latency and number of requests by route and outcome, and what answers rest on."""
        return Response(metrics.text(), media_type=MEDIA)

    return routes
