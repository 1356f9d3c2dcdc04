"""The table of all routes except the chats, with the properties of each `Route`. Dialects register the chats.

Authorization, the OpenAPI document and docs/security.md use this table. The gateway refuses a path without an
entry, and a test checks that every route has an entry.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from servicekit.errors import CausewayError

from gateway.dialects.mcp.registration import ROUTE as MCP
from gateway.dialects.orchestrator.registration import STREAM_CONTENT
from gateway.dialects.orchestrator.registration import error_body as orchestrator_error
from gateway.dialects.rag_chat.stage import error_text
from gateway.dialects.registration import Registration
from gateway.frontends.profiles import Frontend
from gateway.routing.route import AdmissionClass, IndexReach, QuotaUnit, Role, Route
from gateway.routing.table import RouteTable
from gateway.server.public_address import METADATA

_OPEN, _ASK, _INGEST, _ADMIN = Role
_NONE, _PROFILE, _TENANT = IndexReach
METRICS = "/metrics"
_CONSOLE = ("/", "/console/{path:path}")


def _front_end_error(_frontend: Frontend, _headers: Mapping[bytes, bytes], error: CausewayError) -> bytes:
    return error_text(error)


def _front_end(path: str, method: str, role: Role) -> Route:
    """Return a route that pages call in addition to the chat routes. Its errors are plain text in a JSON object."""
    return Route(path, method, role, _PROFILE, errors=_front_end_error)


def _upload(route: Route) -> Route:
    return replace(route, admission=AdmissionClass.BATCH, quota=QuotaUnit.BYTES, upload=True)


def _detection(path: str) -> Route:
    return Route(path, "POST", _ASK, errors=orchestrator_error)


# Unknown paths below these prefixes get an error in the format of the front end.
_FRONT_END_PREFIXES = (
    "/config/",
    "/auth_setup/",
    "/upload/",
    "/list_uploaded/",
    "/delete_uploaded/",
    "/speech/",
    "/content/",
    "/chat_history/",
)

ROUTES = (
    # Probes, and routes that a page needs before sign-in.
    Route("/health", "GET", _OPEN),
    Route("/healthz", "GET", _OPEN),
    Route("/readyz", "GET", _OPEN),
    _front_end("/config", "GET", _OPEN),
    _front_end("/auth_setup", "GET", _OPEN),
    *(Route(path, "GET", _OPEN) for path in _CONSOLE),
    Route("/docs", "GET", _OPEN),
    Route("/docs/oauth2-redirect", "GET", _OPEN),
    Route("/static-offline-docs/{path:path}", "GET", _OPEN),
    Route("/openapi.json", "GET", _OPEN),
    Route(METADATA, "GET", _OPEN),
    Route(METADATA + "/{path:path}", "GET", _OPEN),
    # Routes that answer without a chat model.
    _detection("/api/v2/text/detection/content"),
    _detection(STREAM_CONTENT),
    _detection("/api/v2/text/detection/chat"),
    _detection("/api/v2/text/detection/context"),
    _detection("/api/v2/text/detection/generated"),
    Route("/detectors", "GET", _ASK),
    Route("/v1/models", "GET", _ASK),
    Route("/v1/models/{model:path}", "GET", _ASK),
    Route("/v1/embeddings", "POST", _ASK, admission=AdmissionClass.BATCH, quota=QuotaUnit.TOKENS),
    Route(
        "/openai/deployments/{model:path}/embeddings",
        "POST",
        _ASK,
        admission=AdmissionClass.BATCH,
        quota=QuotaUnit.TOKENS,
    ),
    Route("/retrieve", "POST", _ASK, _TENANT),
    MCP,
    # A user's stored data of the Responses API.
    Route("/v1/responses/input_tokens", "POST", _ASK, _PROFILE),
    Route("/v1/responses/{response_id}", "GET", _ASK),
    Route("/v1/responses/{response_id}", "DELETE", _ASK),
    Route("/v1/responses/{response_id}/cancel", "POST", _ASK),
    Route("/v1/responses/{response_id}/input_items", "GET", _ASK),
    Route("/v1/conversations", "POST", _ASK),
    Route("/v1/conversations/{conversation_id}", "GET", _ASK),
    Route("/v1/conversations/{conversation_id}", "POST", _ASK),
    Route("/v1/conversations/{conversation_id}", "DELETE", _ASK),
    Route("/v1/conversations/{conversation_id}/items", "GET", _ASK),
    Route("/v1/conversations/{conversation_id}/items", "POST", _ASK),
    Route("/v1/conversations/{conversation_id}/items/{item_id}", "GET", _ASK),
    Route("/v1/conversations/{conversation_id}/items/{item_id}", "DELETE", _ASK),
    _front_end("/content/{path:path}", "GET", _ASK),
    _front_end("/speech", "POST", _ASK),
    _front_end("/me", "GET", _ASK),
    # A user's own data.
    _front_end("/chat_history", "POST", _ASK),
    _front_end("/chat_history/sessions", "GET", _ASK),
    _front_end("/chat_history/sessions/{session:path}", "GET", _ASK),
    _front_end("/chat_history/sessions/{session:path}", "DELETE", _ASK),
    _front_end("/list_uploaded", "GET", _ASK),
    _upload(_front_end("/upload", "POST", _INGEST)),
    _front_end("/delete_uploaded", "POST", _INGEST),
    # Documents.
    Route("/documents", "GET", _ASK, _TENANT),
    _upload(Route("/documents", "POST", _INGEST, _TENANT)),
    Route("/jobs", "GET", _INGEST, _TENANT),
    Route("/jobs/lanes", "GET", _INGEST, _TENANT),
    Route("/jobs/dead", "GET", _INGEST, _TENANT),
    Route("/jobs/dead/replay", "POST", _INGEST, _TENANT),
    Route("/jobs/{job_id}", "GET", _INGEST, _TENANT),
    Route("/jobs/{job_id}/cancel", "POST", _INGEST, _TENANT),
    Route("/jobs/{job_id}/events", "GET", _INGEST, _TENANT),
    _upload(Route("/index", "POST", _INGEST, _TENANT)),
    Route("/indexes", "GET", _ASK, _TENANT),
    Route("/indexes", "POST", _INGEST, _TENANT),
    Route("/indexes/{index}/documents", "GET", _ASK, _TENANT),
    _upload(Route("/indexes/{index}/documents", "POST", _INGEST, _TENANT)),
    Route("/indexes/{index}/documents/delete", "POST", _INGEST, _TENANT),
    Route("/indexes/{index}/documents/{document_id:path}/passages", "GET", _ASK, _TENANT),
    Route("/indexes/{index}/documents/{document_id:path}/access", "PUT", _INGEST, _TENANT),
    # Whole indexes, and the platform.
    Route("/indexes/{index}", "GET", _ASK, _TENANT),
    Route("/indexes/{index}", "PATCH", _ADMIN, _TENANT),
    Route("/indexes/{index}", "DELETE", _ADMIN, _TENANT),
    Route("/indexes/{index}/rebuild", "GET", _ADMIN, _TENANT),
    Route("/indexes/{index}/rebuild", "POST", _ADMIN, _TENANT),
    Route("/persist/{index}", "POST", _ADMIN, _TENANT),
    Route("/load/{index}", "POST", _ADMIN, _TENANT),
    Route("/snapshots", "GET", _ADMIN, _TENANT),
    Route("/snapshots/{path:path}", "DELETE", _ADMIN, _TENANT),
    Route("/users/{user:path}", "DELETE", _ADMIN, _TENANT),
    Route("/responses", "GET", _ADMIN, _TENANT),
    Route("/responses/{response_id}", "GET", _ADMIN, _TENANT),
    Route("/responses/{response_id}", "DELETE", _ADMIN, _TENANT),
    Route("/responses/{response_id}/cancel", "POST", _ADMIN, _TENANT),
    Route(METRICS, "GET", _ADMIN),
)


def route_table(
    dialects: Iterable[Registration], *, metrics_open: bool = False, console: bool = False
) -> RouteTable:
    """Return the routes of a gateway.

    Args:
        dialects: The registrations of the dialects.
        metrics_open: Whether the metrics need no role.
        console: Whether the gateway serves the console.
    """
    routes = [
        replace(route, role=_OPEN) if metrics_open and route.path == METRICS else route
        for route in ROUTES
        if console or route.path not in _CONSOLE
    ]
    errors_below = dict.fromkeys(_FRONT_END_PREFIXES, _front_end_error)
    for dialect in dialects:
        routes += [chat.route for chat in dialect.chats]
        errors_below |= dialect.errors_below
    return RouteTable(routes, errors_below)
