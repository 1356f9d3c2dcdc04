"""The documents of an index, as RAGEngine's clients manage them."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Body, Request, Response
from servicekit import keys
from servicekit.deadline import Deadline

from gateway.ports import Catalogue

_MOST_IDS = 10_000


def router(catalogue: Catalogue, *, timeout: float) -> APIRouter:
    """``POST /indexes/{index}/documents/delete``.

    Args:
        catalogue: Knows the documents.
        timeout: Seconds that a request may take.
    """
    routes = APIRouter(prefix="/indexes", tags=["documents"])

    @routes.post(
        "/{index}/documents/delete",
        summary="Remove documents from an index",
        responses={404: {"description": "No such index"}},
    )
    async def delete_documents(
        request: Request,
        index: str,
        doc_ids: Annotated[list[str], Body(embed=True, min_length=1, max_length=_MOST_IDS)],
    ) -> Response:
        """Removes documents with all their passages; ids that are not there are named."""
        keys.index_name(index)
        principal = request.scope["state"]["principal"]
        removal = await catalogue.remove(principal, index, doc_ids, Deadline.after(timeout))
        body = {"deleted_doc_ids": removal.removed, "not_found_doc_ids": removal.not_found}
        return Response(msgspec.json.encode(body), media_type="application/json")

    return routes
