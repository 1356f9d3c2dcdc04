"""The models, as OpenAI's clients list them."""

import asyncio
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import NotFound

from gateway.ports import Generator
from gateway.ports_index import Embedder
from gateway.profiles import frontend_of
from gateway.routes.body import json_answer
from gateway.routes.schemas import MODEL, MODELS, answers

_OURS = "causeway"


def router(generator: Generator, embedder: Embedder, *, timeout: float) -> APIRouter:
    """``GET /v1/models`` and ``GET /v1/models/{model}``.

    Args:
        generator: Has the models that chats ask.
        embedder: Has those that make vectors.
        timeout: Seconds that a request may take.
    """
    routes = APIRouter(tags=["openai"])

    async def models(request: Request) -> list[dict[str, Any]]:
        principal, deadline = request.scope["state"]["principal"], Deadline.after(timeout)
        chats, embeddings = await asyncio.gather(
            generator.models(principal, deadline), embedder.models(principal, deadline)
        )
        allowed = frontend_of(request.scope).models
        return [
            *(
                _model(each.name, each.created, each.owned_by, each.context_window)
                for each in chats
                if allowed is None or each.name in allowed
            ),
            *(_model(each.name, 0, _OURS, each.max_tokens) for each in embeddings),
        ]

    @routes.get("/v1/models", summary="The models", responses=answers(MODELS))
    async def list_models(request: Request) -> Response:
        """Those for chats that the front end may ask, the default first; then those for embeddings."""
        return json_answer(msgspec.json.encode({"object": "list", "data": await models(request)}))

    @routes.get(
        "/v1/models/{model:path}",
        summary="One model",
        responses=answers(MODEL, {404: "No such model"}),
    )
    async def read_model(request: Request, model: str) -> Response:
        """By its name, which may hold slashes."""
        for each in await models(request):
            if each["id"] == model:
                return json_answer(msgspec.json.encode(each))
        raise NotFound(f"No such model: '{model}'.", field="model", resource=model)

    return routes


def _model(name: str, created: int, owned_by: str, window: int) -> dict[str, Any]:
    model: dict[str, Any] = {"id": name, "object": "model", "created": created, "owned_by": owned_by}
    if window:
        model["max_model_len"] = window
    return model
