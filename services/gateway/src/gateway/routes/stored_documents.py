"""One document of an index: its passages."""

import dataclasses
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from servicekit import keys
from servicekit.deadline import Deadline

from gateway.domain.documents import StoredDocument
from gateway.ports.documents import Catalogue
from gateway.routes.body import json_answer
from gateway.routes.schemas import answers
from gateway.routes.schemas_jobs import PASSAGES
from gateway.server.request_state import state_of

_MOST_PASSAGES = 100
_LARGEST_OFFSET = 2**31
_UNKNOWN = {404: "No such index or document"}

_Index = Annotated[str, Path(description="The index")]
_Document = Annotated[str, Path(description="`document_id` of the document; it may hold slashes")]


def router(catalogue: Catalogue, *, timeout: float) -> APIRouter:
    """What is below ``/indexes/{index}/documents/{document_id}``.

    Args:
        catalogue: Knows the documents.
        timeout: Seconds that an answer may take.
    """
    routes = APIRouter(tags=["documents"])

    @routes.get(
        "/indexes/{index}/documents/{document_id:path}/passages",
        summary="The passages of a document",
        responses=answers(PASSAGES, _UNKNOWN),
    )
    async def list_passages(
        request: Request,
        index: _Index,
        document_id: _Document,
        limit: Annotated[int, Query(ge=1, le=_MOST_PASSAGES)] = 50,
        offset: Annotated[int, Query(ge=0, le=_LARGEST_OFFSET)] = 0,
    ) -> Response:
        """In the order of the document. `total` counts all of them."""
        page = await catalogue.passages(
            state_of(request.scope).principal,
            keys.index_name(index),
            document_id,
            offset,
            limit,
            Deadline.after(timeout),
        )
        return json_answer(
            {
                "document": document_json(page.stored),
                "passages": [dataclasses.asdict(each) | {"page": each.page or None} for each in page.passages],
                "total": page.total,
            }
        )

    return routes


def document_json(document: StoredDocument) -> dict[str, Any]:
    """A document as clients see it."""
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
