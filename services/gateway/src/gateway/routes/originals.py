"""The route of the originals of documents. Citations link to it."""

import asyncio
import re
from collections.abc import Sequence
from email.utils import formatdate
from pathlib import PurePosixPath
from typing import Annotated
from urllib.parse import unquote

import structlog
from fastapi import APIRouter, Query, Request, Response
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, NotFound, PermissionDenied
from servicekit.principal import Principal
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from gateway.domain.documents import StoredDocument
from gateway.identity.link_signing import LinkedDocument, invalid_link_error
from gateway.ports.documents import Catalogue, Originals
from gateway.server.openapi import FRONT_ENDS
from gateway.server.request_state import state_of

_log = structlog.get_logger(__name__)
# Some clients send the fragment of a citation as part of the path.
_PAGE = re.compile(r"#page=\d+$")
# Media types that browsers show without running scripts. Documents of other types get a sandbox policy.
_PASSIVE = frozenset(
    {
        *("application/pdf", "application/json", "text/plain", "text/markdown", "text/csv"),
        *("image/png", "image/jpeg", "image/gif", "image/webp", "image/tiff", "image/bmp"),
    }
)
# Valid byte ranges (RFC 9110, 14.1.2). The gateway ignores other values, but FileResponse would refuse them.
_RANGES = re.compile(
    r"bytes=\s*(?:\d{1,18}-\d{0,18}|-\d{1,18})(?:\s*,\s*(?:\d{1,18}-\d{0,18}|-\d{1,18}))*\s*", re.I
)
_RANGE = re.compile(r"(\d*)-(\d*)")
# The maximum seconds to send an original. The cache keeps the original on disk during this time.
_SENDING_SECONDS = 600.0
_SANDBOX = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def router(catalogue: Catalogue, originals: Originals, *, timeout: float) -> APIRouter:
    """Return ``GET /content/{path}``.

    Args:
        catalogue: Finds the documents that the caller may see.
        originals: Stores the bytes of the documents.
        timeout: The maximum number of seconds to fetch a document from the store.
    """
    routes = APIRouter(tags=[FRONT_ENDS])

    @routes.get(
        "/content/{path:path}",
        summary="The original of a document",
        response_class=Response,
        responses={
            200: {"description": "The document", "content": {"application/octet-stream": {}}},
            206: {"description": "The requested ranges"},
            304: {"description": "If-None-Match contains the current version"},
            403: {"description": "A link is invalid or has expired, or the front end does not allow the index"},
            404: {"description": "The document does not exist, or the caller may not see it"},
            416: {"description": "All requested ranges are beyond the end of the document"},
        },
    )
    async def content(
        request: Request,
        path: str,
        index: Annotated[str, Query(description="The index; by default the front end's")] = "",
    ) -> Response:
        """Return the document as it was uploaded, completely or in ranges."""
        frontend = state_of(request.scope).frontend
        linked = state_of(request.scope).linked
        if linked is not None:
            index = linked.index
        # The caller may also open the sources of its assistants. A signed link proves that the caller could use the
        # assistant.
        assistants = (
            frontend.assistants_for(state_of(request.scope).principal)
            if linked is None
            else frontend.assistants.values()
        )
        assistant_indexes = {name for assistant in assistants for name in assistant.indexes}
        try:
            chosen = (
                (index,) if index in assistant_indexes else frontend.indexes_for((index,) if index else (), "index")
            )
        except PermissionDenied:
            if linked is None:
                raise
            raise invalid_link_error() from None
        if not chosen:
            raise InvalidRequest("The front end has no default index. Set the parameter `index`.", field="index")
        principal = frontend.principal_for(state_of(request.scope).principal, filter_requested=False)
        deadline = Deadline.after(timeout)
        if linked is not None:
            candidates = await linked_documents(linked, principal, deadline)
        else:
            candidates = await named_documents(path, chosen, principal, deadline)
        document = max(candidates, key=lambda candidate: candidate.updated_at)
        headers = _headers(document)
        if _matches(request.headers.get("if-none-match", ""), headers["etag"]):
            return Response(status_code=304, headers=headers)
        if request.method == "HEAD":
            length = {"content-length": str(document.size_bytes), "accept-ranges": "bytes"}
            return Response(headers=headers | length)
        return _Original(originals, principal, document, headers, deadline)

    async def named_documents(
        path: str, chosen: Sequence[str], principal: Principal, deadline: Deadline
    ) -> list[StoredDocument]:
        for name in map(keys.index_name, chosen):
            for sourcefile in _names(path):
                found = await catalogue.find(principal, name, {"sourcefile": [sourcefile]}, deadline)
                if candidates := [document for document in found if document.original]:
                    return candidates
        where = "', '".join(chosen)
        raise NotFound(f"The index '{where}' has no document {path[:200]!r}.", resource=path)

    async def linked_documents(
        linked: LinkedDocument, principal: Principal, deadline: Deadline
    ) -> list[StoredDocument]:
        """Return the linked version of the document.

        Raises:
            PermissionDenied: The version is not the current one, or the caller may not see it.
        """
        try:
            found = await catalogue.find(principal, linked.index, {"document_id": [linked.document_id]}, deadline)
        except NotFound:
            found = ()
        candidates = [
            document for document in found if document.original and document.generation == linked.generation
        ]
        if not candidates:
            raise invalid_link_error()
        return candidates

    return routes


def _names(path: str) -> tuple[str, ...]:
    """Return the possible names of a path.

    Some clients percent-encode a name that is already encoded, or decompose its characters.
    """
    name = _PAGE.sub("", path)
    names = (name, unquote(name))
    return tuple(dict.fromkeys((*names, *map(keys.file_name, names))))


class _Original(Response):
    """The response with an original. It fetches the original from the store when the server sends it."""

    def __init__(
        self,
        originals: Originals,
        principal: Principal,
        document: StoredDocument,
        headers: dict[str, str],
        deadline: Deadline,
    ) -> None:
        super().__init__(headers=headers)
        self._document_headers = headers
        self._originals = originals
        self._principal = principal
        self._document = document
        self._deadline = deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        document = self._document
        opened = self._originals.open(self._principal, document.original, document.size_bytes, self._deadline)
        async with opened as path:
            try:
                async with asyncio.timeout(_SENDING_SECONDS):
                    await FileResponse(path, headers=self._document_headers)(
                        _with_valid_ranges(scope, document.size_bytes), receive, send
                    )
            except TimeoutError:
                # The server closes the connection of an incomplete response.
                _log.warning("the client reads too slowly", document=document.document_id)


def _headers(document: StoredDocument) -> dict[str, str]:
    # FileResponse encodes the name safely in the header.
    media = document.content_type or "application/octet-stream"
    named = FileResponse(
        "", filename=PurePosixPath(document.sourcefile).name or "document", content_disposition_type="inline"
    )
    headers = {
        "content-type": f"{media}; charset=utf-8" if media.startswith("text/") else media,
        "content-disposition": named.headers["content-disposition"],
        "etag": f'"{document.sha256}"',
        "last-modified": formatdate(document.updated_at, usegmt=True),
        # The access can change, so a browser must revalidate each time.
        "cache-control": "private, no-cache",
        "x-content-type-options": "nosniff",
    }
    if media.partition(";")[0].strip().lower() not in _PASSIVE:
        headers["content-security-policy"] = _SANDBOX
    return headers


def _with_valid_ranges(scope: Scope, size_bytes: int) -> Scope:
    """Return the scope with only the valid and satisfiable byte ranges of its ``Range`` header.

    A server must ignore an unknown unit, and may ignore an invalid header (RFC 9110, 14.2). Of several ranges, it
    sends those that are satisfiable (RFC 9110, 15.3.7). `FileResponse` would refuse such headers with an error.
    """
    headers = []
    for name, value in scope["headers"]:
        if name != b"range":
            headers.append((name, value))
        elif ranges := _satisfiable_ranges(value.decode("latin-1"), size_bytes):
            headers.append((name, ranges.encode()))
    return {**scope, "headers": headers}


def _satisfiable_ranges(header: str, size_bytes: int) -> str:
    """Return a ``Range`` header with only its satisfiable ranges (RFC 9110, 14.1.2).

    Return an empty text for an invalid header. Return a header without satisfiable ranges unchanged, so that
    `FileResponse` sends the status 416.
    """
    if not _RANGES.fullmatch(header):
        return ""
    ranges = _RANGE.findall(header)
    if any(first and last and int(first) > int(last) for first, last in ranges):
        return ""
    satisfiable = [
        f"{first}-{last}" for first, last in ranges if (int(first) < size_bytes if first else int(last) > 0)
    ]
    return f"bytes={','.join(satisfiable)}" if satisfiable else header


def _matches(header: str, etag: str) -> bool:
    return header.strip() == "*" or etag in [tag.strip().removeprefix("W/") for tag in header.split(",")]
