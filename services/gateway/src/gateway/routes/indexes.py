"""Routes of indexes, their documents and their snapshots, in RAGEngine's format."""

import dataclasses
import posixpath
from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest

from gateway.dialects.ragengine import documents as ragengine
from gateway.ports.answering import Pictures
from gateway.ports.documents import Catalogue, Originals
from gateway.ports.index_management import Indexes
from gateway.routes.body import json_body, json_response
from gateway.routes.index_configuration import index_json
from gateway.routes.schemas import DOCUMENTS, INDEX, MESSAGE, REMOVALS, SNAPSHOTS, openapi_body, openapi_responses
from gateway.server.request_state import state_of

_MAX_OFFSET = 2**53
_MAX_PATH_LENGTH = 1024
_MAX_CHARACTERS = 1_000_000
"""The maximum number of characters of all texts on a page."""
_UNKNOWN = {404: "No such index"}
_NAMES = {"type": "array", "items": {"type": "string"}}
_LISTED = {"oneOf": [_NAMES, {"type": "array", "items": INDEX}]}
_PAGE = {
    "type": "object",
    "properties": {"documents": DOCUMENTS, "count": {"type": "integer"}, "total_items": {"type": "integer"}},
}

_Name = Annotated[str, Path(description="The index")]
_Details = Annotated[bool, Query(description="Return objects as in GET /indexes/{index} instead of names")]
_SnapshotPath = Annotated[
    str,
    Query(
        max_length=_MAX_PATH_LENGTH,
        description="A directory below the snapshot directory. The snapshot is in it, under the index's name",
    ),
]

_Snapshot = Annotated[str, Path(max_length=_MAX_PATH_LENGTH, description="The snapshot's path, as in the list")]


def router(
    indexes: Indexes, catalogue: Catalogue, pictures: Pictures, originals: Originals, *, timeout: float
) -> APIRouter:
    """Return the routes to list, delete and snapshot indexes.

    Args:
        indexes: Manages the indexes.
        catalogue: Removes documents.
        pictures: Deletes the pictures of deleted documents.
        originals: Deletes the originals of deleted documents.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(tags=["indexes"])

    @routes.get("/indexes", summary="The names of the indexes", responses=openapi_responses(_LISTED))
    async def list_indexes(request: Request, *, details: _Details = False) -> Response:
        """List the indexes in the order of their names."""
        found = await indexes.summaries(state_of(request.scope).principal, Deadline.after(timeout))
        return json_response([index_json(summary) if details else summary.name for summary in found])

    @routes.get(
        "/indexes/{index}/documents",
        summary="The documents of an index",
        responses=openapi_responses(_PAGE, _UNKNOWN),
    )
    async def list_documents(
        request: Request,
        index: _Name,
        limit: Annotated[int, Query(ge=1, le=100)] = 10,
        offset: Annotated[int, Query(ge=0, le=_MAX_OFFSET)] = 0,
        max_text_length: Annotated[
            int, Query(ge=1, le=_MAX_CHARACTERS, description="Maximum characters of each document's text")
        ] = 1000,
        metadata_filter: Annotated[
            str, Query(description="A JSON object. Only documents with all these values in their metadata")
        ] = "",
    ) -> Response:
        """Return a page of the documents in the order of their ids, with the beginnings of their texts."""
        name = keys.index_name(index)
        if limit * max_text_length > _MAX_CHARACTERS:
            message = f"limit times max_text_length must be at most {_MAX_CHARACTERS}."
            raise InvalidRequest(message, field="max_text_length")
        page = await indexes.documents(
            state_of(request.scope).principal,
            name,
            offset=offset,
            limit=limit,
            text_length=max_text_length,
            conditions=ragengine.conditions_of_text(metadata_filter, "metadata_filter"),
            deadline=Deadline.after(timeout),
        )
        listed = [msgspec.Raw(ragengine.document_json(document)) for document in page.documents]
        return json_response(
            msgspec.json.encode({"documents": listed, "count": len(listed), "total_items": page.total})
        )

    @routes.post(
        "/indexes/{index}/documents/delete",
        summary="Delete documents of an index",
        responses=openapi_responses(
            {"type": "object", "properties": {"deleted_doc_ids": _NAMES, "not_found_doc_ids": _NAMES}}, _UNKNOWN
        ),
        openapi_extra=openapi_body(REMOVALS),
    )
    async def delete_documents(request: Request, index: _Name) -> Response:
        """Delete documents with all their passages. The response lists unknown ids."""
        name = keys.index_name(index)
        ids = ragengine.removals(await json_body(request))
        removal = await catalogue.remove(state_of(request.scope).principal, name, ids, Deadline.after(timeout))
        await pictures.forget(state_of(request.scope).principal, name, removal.pictured)
        await originals.forget(state_of(request.scope).principal, name, removal.originals)
        result = {"deleted_doc_ids": removal.removed, "not_found_doc_ids": removal.not_found}
        return json_response(result)

    @routes.delete("/indexes/{index}", summary="Delete an index", responses=openapi_responses(MESSAGE, _UNKNOWN))
    async def delete_index(request: Request, index: _Name) -> Response:
        """Delete an index with all its contents. This cannot be undone."""
        name = keys.index_name(index)
        principal, deadline = state_of(request.scope).principal, Deadline.after(timeout)
        documents = await catalogue.find(principal, name, {}, deadline)
        await indexes.delete(principal, name, deadline)
        await pictures.forget(principal, name)
        await originals.forget(principal, name, [document.original for document in documents])
        return _message(f"Successfully deleted index {name}.")

    @routes.post(
        "/persist/{index}", summary="Write a snapshot of an index", responses=openapi_responses(MESSAGE, _UNKNOWN)
    )
    async def persist_index(request: Request, index: _Name, path: _SnapshotPath = "") -> Response:
        """Write the snapshot `path/index`. Replace an existing snapshot of the same index."""
        name = keys.index_name(index)
        directory = _directory(path)
        await indexes.persist(state_of(request.scope).principal, name, directory, Deadline.after(timeout))
        return _message(f"Successfully persisted index {name} to {posixpath.join(directory, name)}.")

    @routes.post(
        "/load/{index}",
        summary="Create an index from a snapshot",
        responses=openapi_responses(
            MESSAGE,
            {404: "The path has no snapshot", 409: "The index exists, and overwrite is false"},
        ),
    )
    async def load_index(
        request: Request, index: _Name, path: _SnapshotPath = "", *, overwrite: bool = False
    ) -> Response:
        """Load the index in one step. `overwrite` replaces an existing index and all its contents."""
        name = keys.index_name(index)
        directory = _directory(path)
        await indexes.load(
            state_of(request.scope).principal, name, directory, Deadline.after(timeout), overwrite=overwrite
        )
        return _message(f"Successfully loaded index {name} from {posixpath.join(directory, name)}.")

    @routes.get("/snapshots", summary="The tenant's snapshots", responses=openapi_responses(SNAPSHOTS))
    async def list_snapshots(request: Request) -> Response:
        """List the snapshots by path. An unreadable snapshot has an empty `index`."""
        found = await indexes.list_snapshots(state_of(request.scope).principal, Deadline.after(timeout))
        return json_response({"snapshots": [dataclasses.asdict(snapshot) for snapshot in found]})

    @routes.delete(
        "/snapshots/{path:path}",
        summary="Delete a snapshot",
        responses=openapi_responses(
            MESSAGE, {404: "The path has no snapshot", 409: "The snapshot is being written"}
        ),
    )
    async def delete_snapshot(request: Request, path: _Snapshot) -> Response:
        """Delete the snapshot at a path."""
        name = _directory(path)
        await indexes.delete_snapshot(state_of(request.scope).principal, name, Deadline.after(timeout))
        return _message(f"Successfully deleted snapshot {name}.")

    return routes


def _directory(path: str) -> str:
    if "\0" in path:
        raise InvalidRequest("path must not contain NUL characters.", field="path")
    return path.strip()


def _message(text: str) -> Response:
    return json_response({"message": text})
