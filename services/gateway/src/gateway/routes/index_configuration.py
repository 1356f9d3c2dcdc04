"""Routes that create, configure and rebuild indexes."""

import msgspec
from fastapi import APIRouter, Request, Response
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest

from gateway.dialects.json_fields import Fields, members, value
from gateway.domain.indexes import IndexRebuild, IndexSettings, IndexSummary
from gateway.ports.index_management import Indexes
from gateway.routes.body import json_body, json_response
from gateway.routes.schemas import (
    CHANGES,
    CREATION,
    INDEX,
    INDEX_SETTINGS,
    REBUILD,
    SETTINGS,
    openapi_body,
    openapi_responses,
)
from gateway.server.request_state import state_of

_SETTINGS = ("embedding", "chunk_tokens", "chunk_overlap", "fusion", "dense_weight", "expand", "language", "ocr")
_REBUILD_ONLY = ("embedding", "language")
"""The settings that only a rebuild can change."""
_MAX_TOKENS = 8192
_UNKNOWN = {404: "No such index"}


def router(indexes: Indexes, *, timeout: float) -> APIRouter:
    """Return ``POST /indexes``, ``/indexes/{index}`` and ``/indexes/{index}/rebuild``.

    Args:
        indexes: Manages the indexes.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(tags=["indexes"])

    @routes.post(
        "/indexes",
        summary="Create an index with its own settings",
        status_code=201,
        responses={
            201: openapi_responses(INDEX_SETTINGS)[200],
            409: {"description": "An index of this name exists"},
        },
        openapi_extra=openapi_body(CREATION),
    )
    async def create_index(request: Request) -> Response:
        """Create an empty index with its own settings. An upload also creates its index, with default settings."""
        raw = members(await json_body(request))
        fields = _fields(raw, ("index_name", *_SETTINGS))
        name = keys.index_name(fields.text("index_name"), "index_name")
        created = await indexes.create(
            state_of(request.scope).principal, name, _settings(fields), Deadline.after(timeout)
        )
        return json_response(_named_settings(name, created), 201, {"location": f"/indexes/{name}"})

    @routes.get(
        "/indexes/{index}", summary="The settings of an index", responses=openapi_responses(INDEX, _UNKNOWN)
    )
    async def describe_index(request: Request, index: str) -> Response:
        """Return the index's settings and its numbers of documents and chunks. null: the platform's setting."""
        name = keys.index_name(index)
        summary = await indexes.summary(state_of(request.scope).principal, name, Deadline.after(timeout))
        return json_response(index_json(summary))

    @routes.patch(
        "/indexes/{index}",
        summary="Change the settings of an index",
        responses=openapi_responses(INDEX_SETTINGS, {**_UNKNOWN, 409: "The index is being rebuilt"}),
        openapi_extra=openapi_body(CHANGES),
    )
    async def update_index(request: Request, index: str) -> Response:
        """Change the named settings. null restores the platform's setting. Model and language need a rebuild."""
        name = keys.index_name(index)
        raw = members(await json_body(request))
        fields = _fields(raw, _SETTINGS)
        if fixed := [name for name in _REBUILD_ONLY if name in raw]:
            raise fields.invalid(fixed[0], f"can only be changed with POST /indexes/{name}/rebuild")
        updated = await indexes.update(
            state_of(request.scope).principal, name, _settings(fields), list(raw), Deadline.after(timeout)
        )
        return json_response(_named_settings(name, updated))

    @routes.post(
        "/indexes/{index}/rebuild",
        summary="Rebuild an index for another embedding model or language",
        status_code=202,
        responses={
            202: openapi_responses(REBUILD)[200],
            404: {"description": "No such index"},
            409: {"description": "Another rebuild of the index runs"},
        },
        openapi_extra=openapi_body(SETTINGS),
    )
    async def rebuild_index(request: Request, index: str) -> Response:
        """Start the rebuild in the background.

        The index can be searched and accepts documents during the rebuild, which replaces the index in one step at
        its end. A repeated request returns the progress.
        """
        name = keys.index_name(index)
        fields = _fields(members(await json_body(request)), _SETTINGS)
        rebuild = await indexes.rebuild(
            state_of(request.scope).principal, name, _settings(fields), Deadline.after(timeout)
        )
        return json_response(_rebuild_json(rebuild), 202, {"location": f"/indexes/{name}/rebuild"})

    @routes.get(
        "/indexes/{index}/rebuild",
        summary="The progress of an index's rebuild",
        responses=openapi_responses(REBUILD, {404: "No such index, or it has not been rebuilt"}),
    )
    async def last_rebuild(request: Request, index: str) -> Response:
        """Return the running or the last rebuild."""
        name = keys.index_name(index)
        found = await indexes.last_rebuild(state_of(request.scope).principal, name, Deadline.after(timeout))
        return json_response(_rebuild_json(found))

    return routes


def _fields(raw: dict[str, msgspec.Raw], names: tuple[str, ...]) -> Fields:
    unknown = sorted(set(raw) - set(names))
    if unknown:
        raise InvalidRequest(f"The setting '{unknown[0][:100]}' does not exist.", field=unknown[0][:100])
    return Fields({name: value(raw.get(name), name) for name in names})


def _settings(fields: Fields) -> IndexSettings:
    return IndexSettings(
        fields.text("embedding") or None,
        fields.integer("chunk_tokens", 16, _MAX_TOKENS),
        fields.integer("chunk_overlap", 0, _MAX_TOKENS - 1),
        fields.one_of("fusion", ("scores", "ranks")) or None,
        fields.number("dense_weight", 0, 1),
        None if fields.get("expand") is None else fields.flag("expand"),
        fields.text("language") or None,
        fields.one_of("ocr", ("auto", "off")) or None,
    )


def index_json(summary: IndexSummary) -> dict[str, object]:
    """Return an index in the routes' format."""
    return {
        **_named_settings(summary.name, summary.settings),
        "documents": summary.documents,
        "chunks": summary.chunks,
    }


def _named_settings(name: str, settings: IndexSettings) -> dict[str, object]:
    return {"index_name": name, **_settings_json(settings)}


def _settings_json(settings: IndexSettings) -> dict[str, object]:
    return {name: getattr(settings, name) for name in _SETTINGS}


def _rebuild_json(rebuild: IndexRebuild) -> dict[str, object]:
    return {
        "state": rebuild.state,
        **_settings_json(rebuild.settings),
        "documents_done": rebuild.documents_done,
        "documents_total": rebuild.documents_total,
        "error": rebuild.error,
        "started_at": rebuild.started_at,
        "finished_at": rebuild.finished_at or None,
    }
