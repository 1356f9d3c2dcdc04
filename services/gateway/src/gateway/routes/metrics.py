"""What the gateway counts."""

from fastapi import APIRouter, Response

from gateway.server.metrics import MEDIA, Metrics


def router(metrics: Metrics, *, tenants: bool) -> APIRouter:
    """``GET /metrics``.

    Args:
        metrics: What is counted.
        tenants: What tells tenants apart is shown; not where one tenant's administrator may look.
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
        return Response(metrics.text(tenants=tenants), media_type=MEDIA)

    return routes
