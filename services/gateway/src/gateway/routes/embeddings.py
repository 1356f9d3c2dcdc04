"""Routes that return embeddings in OpenAI's format."""

import asyncio

from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline

from gateway.dialects.openai import embeddings as openai_embeddings
from gateway.ports.index_management import Embedder
from gateway.routes.body import json_body, json_response, while_connected
from gateway.routes.schemas import EMBEDDING, EMBEDDINGS, openapi_body, openapi_responses
from gateway.server.request_state import state_of

PATH = "/v1/embeddings"
DEPLOYMENT_PATH = "/openai/deployments/{model:path}/embeddings"
"""The path that Azure's clients use. It contains the model."""


def router(embedder: Embedder, *, timeout: float) -> APIRouter:
    """Return the routes of `PATH` and `DEPLOYMENT_PATH`.

    Args:
        embedder: Computes the vectors.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(tags=["openai"])

    @routes.post(
        PATH,
        summary="Vectors of texts, by the embedding models of the indexes",
        responses=openapi_responses(EMBEDDINGS, {404: "No such model"}),
        openapi_extra=openapi_body(EMBEDDING),
    )
    async def embed(request: Request) -> Response:
        """Return one vector of unit length per text. Tokens beyond the model's `max_model_len` are ignored."""
        return await answer(request, "")

    @routes.post(
        DEPLOYMENT_PATH,
        summary="Vectors of texts by the model in the path, for Azure's clients",
        responses=openapi_responses(EMBEDDINGS, {404: "No such model"}),
        openapi_extra=openapi_body(EMBEDDING),
    )
    async def embed_with_deployment(request: Request, model: str) -> Response:
        """Return embeddings as `/v1/embeddings` does. The model in the path overrides the model in the body."""
        return await answer(request, model)

    async def answer(request: Request, model: str) -> Response:
        # Parse in a thread, because the parser decodes tokens, and loads their table at its first use.
        requested = await asyncio.to_thread(openai_embeddings.parse, await json_body(request), model)
        principal, deadline = state_of(request.scope).principal, Deadline.after(timeout)
        if requested.dimensions is not None:
            openai_embeddings.check_dimensions(requested, await embedder.models(principal, deadline))
        vectors = await while_connected(
            request.receive, embedder.embed(principal, requested.model, requested.texts, deadline)
        )
        state_of(request.scope).embedded = (vectors.model, vectors.tokens)
        return json_response(openai_embeddings.render(vectors, requested))

    return routes
