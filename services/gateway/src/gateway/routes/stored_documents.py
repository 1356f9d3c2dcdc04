"""Routes of the passages and the access list of one document."""

import dataclasses
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, NotFound

from gateway.dialects.json_fields import Fields, members, value
from gateway.domain.documents import AccessChange, StoredDocument
from gateway.ports.documents import Catalogue, Ingest
from gateway.routes.body import json_body, json_response
from gateway.routes.jobs import job_json
from gateway.routes.schemas import openapi_body, openapi_responses
from gateway.routes.schemas_jobs import ACCESS, JOB, MAX_READERS, PASSAGES
from gateway.server.request_state import state_of

_MAX_PASSAGES = 100
_MAX_READER_LENGTH = 512
_MAX_OFFSET = 2**31
_UNKNOWN = {404: "No such index or document"}

_Index = Annotated[str, Path(description="The index")]
_Document = Annotated[str, Path(description="`document_id` of the document, which may contain slashes")]


def router(catalogue: Catalogue, ingest: Ingest, *, timeout: float) -> APIRouter:
    """Return the routes below ``/indexes/{index}/documents/{document_id}``.

    Args:
        catalogue: Lists, reads and deletes documents.
        ingest: Queues changes of access lists.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(tags=["documents"])

    @routes.get(
        "/indexes/{index}/documents/{document_id:path}/passages",
        summary="The passages of a document",
        responses=openapi_responses(PASSAGES, _UNKNOWN),
    )
    async def list_passages(
        request: Request,
        index: _Index,
        document_id: _Document,
        limit: Annotated[int, Query(ge=1, le=_MAX_PASSAGES)] = 50,
        offset: Annotated[int, Query(ge=0, le=_MAX_OFFSET)] = 0,
    ) -> Response:
        """Return a page of the passages in the order of the document. `total` is the number of all passages."""
        page = await catalogue.passages(
            state_of(request.scope).principal,
            keys.index_name(index),
            document_id,
            offset,
            limit,
            Deadline.after(timeout),
        )
        return json_response(
            {
                "document": document_json(page.stored),
                "passages": [
                    dataclasses.asdict(passage) | {"page": passage.page or None} for passage in page.passages
                ],
                "total": page.total,
            }
        )

    @routes.put(
        "/indexes/{index}/documents/{document_id:path}/access",
        status_code=202,
        summary="Change the access list of a document",
        responses={
            202: openapi_responses(JOB, {})[200] | {"description": "The job of the change"},
            404: {"description": "No such index or document"},
            429: {"description": "Too many of your jobs wait already; see Retry-After"},
            503: {"description": "The queue is unavailable, or full; see Retry-After"},
        },
        openapi_extra=openapi_body(ACCESS),
    )
    async def change_access(request: Request, index: _Index, document_id: _Document) -> Response:
        """Replace the access list of the document, and of the files inside the document.

        A job applies the change after the earlier jobs of the index. The list also applies to a queued version of
        the document.
        """
        oids, groups = _readers(await json_body(request))
        principal, deadline = state_of(request.scope).principal, Deadline.after(timeout)
        name = keys.index_name(index)
        found = await catalogue.find(principal, name, {"document_id": [document_id]}, deadline)
        if not found:
            raise NotFound(f"The index '{name}' has no document '{document_id}'.", resource=document_id)
        change = AccessChange(name, document_id, found[0].sourcefile, oids, groups)
        return json_response(job_json(await ingest.change_access(principal, change, deadline)), 202)

    return routes


def _readers(raw: bytes) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the users and the groups of the body. Both lists are required, because empty lists admit all callers.

    Raises:
        InvalidRequest: A list is missing, too long, or has an invalid name.
    """
    changes = members(raw)
    if set(changes) != {"oids", "groups"}:
        raise InvalidRequest("The body must have exactly the members oids and groups.", field="oids")
    fields = Fields({name: value(raw_value, name) for name, raw_value in changes.items()})
    lists = []
    for name in ("oids", "groups"):
        if not isinstance(fields.get(name), list):
            raise InvalidRequest(f"{name} must be a list.", field=name)
        names = fields.texts(name)
        if len(names) > MAX_READERS or not all(
            reader.strip() and len(reader) <= _MAX_READER_LENGTH for reader in names
        ):
            raise InvalidRequest(
                f"{name} may have at most {MAX_READERS} names of 1 to {_MAX_READER_LENGTH} characters.", field=name
            )
        lists.append(tuple(dict.fromkeys(names)))
    return lists[0], lists[1]


def document_json(document: StoredDocument) -> dict[str, Any]:
    """Return a document in the clients' format."""
    return {
        "document_id": document.document_id,
        "sourcefile": document.sourcefile,
        "content_type": document.content_type,
        "sha256": document.sha256,
        "size_bytes": document.size_bytes,
        "has_original": bool(document.original),
        "oids": document.oids,
        "groups": document.groups,
        "updated_at": datetime.fromtimestamp(document.updated_at, UTC).isoformat().replace("+00:00", "Z"),
    }
