"""Routes that list the models in OpenAI's format."""

import asyncio
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import NotFound, Unavailable

from gateway.domain import Model
from gateway.domain.embeddings import EmbeddingModel
from gateway.ports.answering import Generator
from gateway.ports.index_management import Embedder
from gateway.routes.body import json_response
from gateway.routes.schemas import MODEL, MODELS, openapi_responses
from gateway.server.request_state import state_of

_OWNER = "causeway"


def router(generator: Generator, embedder: Embedder, *, timeout: float) -> APIRouter:
    """Return ``GET /v1/models`` and ``GET /v1/models/{model}``.

    Args:
        generator: Lists the chat models.
        embedder: Lists the embedding models.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(tags=["openai"])

    async def offered_models(request: Request, deadline: Deadline) -> list[Model]:
        """Return the models that the front end offers, including unavailable ones."""
        chats = await generator.models(state_of(request.scope).principal, deadline)
        frontend = state_of(request.scope).frontend
        return [model for model in chats if frontend.offers_model(model.name, chats[0].name)]

    async def assistant_models(request: Request, deadline: Deadline) -> list[Model]:
        """Return the caller's assistants as models, with the properties of the models that they use."""
        principal, frontend = state_of(request.scope).principal, state_of(request.scope).frontend
        assistants = frontend.assistants_for(principal)
        chats = await generator.models(principal, deadline) if assistants else ()
        known = {model.name: model for model in reversed(chats)}
        used = {
            assistant.name: assistant.model or frontend.model or chats[0].name for assistant in assistants if chats
        }
        return [replace(known[model], name=name, owned_by=_OWNER) for name, model in used.items() if model in known]

    @routes.get("/v1/models", summary="The models", responses=openapi_responses(MODELS))
    async def list_models(request: Request) -> Response:
        """List the available chat models of the front end, followed by the caller's assistants.

        The generator's default model is first if it is available.

        Embedding models are not listed, because clients offer all listed models for chats.
        """
        deadline = Deadline.after(timeout)
        chats, assistants = await asyncio.gather(
            offered_models(request, deadline), assistant_models(request, deadline)
        )
        ready = [model for model in (*chats, *assistants) if model.ready]
        return json_response({"object": "list", "data": [_chat(model) for model in ready]})

    @routes.get(
        "/v1/models/{model:path}",
        summary="One model",
        responses=openapi_responses(
            MODEL, {404: "No such model", 503: "The model cannot be reached now; see Retry-After"}
        ),
    )
    async def read_model(request: Request, model: str) -> Response:
        """Return a chat or embedding model by its name, which may contain slashes."""
        deadline = Deadline.after(timeout)
        chats, assistants, embeddings = await asyncio.gather(
            offered_models(request, deadline),
            assistant_models(request, deadline),
            embedder.models(state_of(request.scope).principal, deadline),
        )
        for chat in (*assistants, *chats):
            if chat.name == model:
                if not chat.ready:
                    raise Unavailable(f"The model '{model}' cannot be reached. Try again.", resource=model)
                return json_response(_chat(chat))
        for embedding_model in embeddings:
            if embedding_model.name == model:
                return json_response(_embedding(embedding_model))
        raise NotFound(f"No such model: '{model}'.", field="model", resource=model)

    return routes


def _chat(model: Model) -> dict[str, Any]:
    return _model(model.name, model.created, model.owned_by, model.context_window)


def _embedding(model: EmbeddingModel) -> dict[str, Any]:
    return _model(model.name, 0, _OWNER, model.max_tokens)


def _model(name: str, created: int, owned_by: str, window: int) -> dict[str, Any]:
    model: dict[str, Any] = {"id": name, "object": "model", "created": created, "owned_by": owned_by}
    if window:
        model["max_model_len"] = window
    return model
