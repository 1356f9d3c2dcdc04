"""Which role a request needs: the one table, from which enforcement, OpenAPI document and docs/security.md come.

A path that is not here is refused, whoever asks; a test holds that every route is.
"""

import enum
from collections.abc import Mapping

from servicekit.errors import MethodNotAllowed, NotFound
from starlette.routing import compile_path


class Role(enum.StrEnum):
    """What a route asks of who calls it; but for the first the names are those of `servicekit.principal.ROLES`."""

    OPEN = "open"
    ASK = "ask"
    INGEST = "ingest"
    ADMIN = "admin"


Table = Mapping[str, Mapping[str, Role]]
"""Path, with parameters as Starlette writes them → method → role."""

_CHAT: Mapping[str, Role] = {"POST": Role.ASK}

TABLE: Table = {
    # Probes, and what a page needs before it can sign anybody in.
    "/health": {"GET": Role.OPEN},
    "/healthz": {"GET": Role.OPEN},
    "/readyz": {"GET": Role.OPEN},
    "/config": {"GET": Role.OPEN},
    "/auth_setup": {"GET": Role.OPEN},
    "/docs": {"GET": Role.OPEN},
    "/docs/oauth2-redirect": {"GET": Role.OPEN},
    "/static-offline-docs/{path:path}": {"GET": Role.OPEN},
    "/openapi.json": {"GET": Role.OPEN},
    # Questions.
    "/chat": _CHAT,
    "/chat/stream": _CHAT,
    "/ask": _CHAT,
    "/2024-01/chat": _CHAT,
    "/2024-01/ask": _CHAT,
    "/2024-01-28/chat": _CHAT,
    "/2024-04/chat": _CHAT,
    "/2024-04/chat/stream": _CHAT,
    "/2024-05-29/chat": _CHAT,
    "/2024-05-29/chat/stream": _CHAT,
    "/2026-04-10/chat": _CHAT,
    "/2026-04-10/chat/stream": _CHAT,
    "/v1/chat/completions": _CHAT,
    "/api/v2/chat/completions-detection": _CHAT,
    "/api/v2/text/completions-detection": _CHAT,
    "/api/v2/text/generation-detection": _CHAT,
    "/api/v2/text/detection/content": _CHAT,
    "/api/v2/text/detection/stream-content": _CHAT,
    "/api/v2/text/detection/chat": _CHAT,
    "/api/v2/text/detection/context": _CHAT,
    "/api/v2/text/detection/generated": _CHAT,
    "/detectors": {"GET": Role.ASK},
    "/v1/models": {"GET": Role.ASK},
    "/v1/models/{model:path}": {"GET": Role.ASK},
    "/v1/embeddings": {"POST": Role.ASK},
    "/retrieve": {"POST": Role.ASK},
    "/content/{path:path}": {"GET": Role.ASK},
    "/speech": {"POST": Role.ASK},
    # A user's own.
    "/chat_history": {"POST": Role.ASK},
    "/chat_history/sessions": {"GET": Role.ASK},
    "/chat_history/sessions/{session:path}": {"GET": Role.ASK, "DELETE": Role.ASK},
    "/list_uploaded": {"GET": Role.ASK},
    "/upload": {"POST": Role.INGEST},
    "/delete_uploaded": {"POST": Role.INGEST},
    # Documents.
    "/documents": {"GET": Role.ASK, "POST": Role.INGEST},
    "/jobs": {"GET": Role.INGEST},
    "/jobs/dead": {"GET": Role.INGEST},
    "/jobs/dead/replay": {"POST": Role.INGEST},
    "/jobs/{job_id}": {"GET": Role.INGEST},
    "/jobs/{job_id}/cancel": {"POST": Role.INGEST},
    "/jobs/{job_id}/events": {"GET": Role.INGEST},
    "/index": {"POST": Role.INGEST},
    "/indexes": {"GET": Role.ASK, "POST": Role.INGEST},
    "/indexes/{index}/documents": {"GET": Role.ASK, "POST": Role.INGEST},
    "/indexes/{index}/documents/delete": {"POST": Role.INGEST},
    # Indexes as a whole, and the platform.
    "/indexes/{index}": {"GET": Role.ASK, "PATCH": Role.ADMIN, "DELETE": Role.ADMIN},
    "/indexes/{index}/rebuild": {"GET": Role.ADMIN, "POST": Role.ADMIN},
    "/persist/{index}": {"POST": Role.ADMIN},
    "/load/{index}": {"POST": Role.ADMIN},
    "/metrics": {"GET": Role.ADMIN},
}


def table(*, metrics_open: bool) -> Table:
    """The table of a deployment, which says whether its metrics are for everybody."""
    return {**TABLE, "/metrics": {"GET": Role.OPEN}} if metrics_open else TABLE


class Access:
    """The table, ready to be asked.

    Args:
        table: The table.
    """

    def __init__(self, table: Table = TABLE) -> None:
        self._fixed = {path: methods for path, methods in table.items() if "{" not in path}
        # Starlette's own patterns, so that what is found here is what its router finds.
        self._patterns = [(compile_path(path)[0], methods) for path, methods in table.items() if "{" in path]

    def role(self, path: str, method: str) -> Role:
        """The role that a request needs.

        Raises:
            NotFound: There is nothing at the path, or the table does not know it.
            MethodNotAllowed: The path is there, for other methods.
        """
        methods = self._fixed.get(path)
        if methods is None:
            methods = next((found for pattern, found in self._patterns if pattern.match(path)), None)
        if methods is None:
            raise NotFound(f"There is nothing at {path}.", resource=path)
        # What may be read may be asked for its headers.
        role = methods.get("GET" if method == "HEAD" else method)
        if role is None:
            raise MethodNotAllowed(
                f"{path} does not take {method}.", details={"allow": ", ".join(methods)}, resource=path
            )
        return role
