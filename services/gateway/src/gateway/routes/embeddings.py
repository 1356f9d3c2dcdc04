"""Vectors of texts, as OpenAI's clients ask for them."""

import asyncio

from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline

from gateway.dialects.openai import embeddings as openai_embeddings
from gateway.ports.index_management import Embedder
from gateway.routes.body import json_answer, json_body, while_connected
from gateway.routes.schemas import EMBEDDING, EMBEDDINGS, answers, body
from gateway.server.request_state import state_of

PATH = "/v1/embeddings"
DEPLOYMENT_PATH = "/openai/deployments/{model:path}/embeddings"
"""Where Azure's clients ask, with the model in the path."""


def router(embedder: Embedder, *, timeout: float) -> APIRouter:
    """`PATH` and `DEPLOYMENT_PATH`.

    Args:
        embedder: Makes the vectors.
        timeout: Seconds that a request may take.
    """
    routes = APIRouter(tags=["openai"])

    @routes.post(
        PATH,
        summary="Vectors of texts, as those of the indexes are made",
        responses=answers(EMBEDDINGS, {404: "No such model"}),
        openapi_extra=body(EMBEDDING),
    )
    async def embed(request: Request) -> Response:
        """Each of length 1. What a text has beyond the model's `max_model_len` tokens does not reach its vector."""
        return await answer(request, "")

    @routes.post(
        DEPLOYMENT_PATH,
        summary="Vectors of texts of the model in the path, as Azure's clients ask for them",
        responses=answers(EMBEDDINGS, {404: "No such model"}),
        openapi_extra=body(EMBEDDING),
    )
    async def embed_with_deployment(request: Request, model: str) -> Response:
        """As `/v1/embeddings`; the path's model comes before the body's."""
        return await answer(request, model)

    async def answer(request: Request, model: str) -> Response:
        # In a thread, because tokens are decoded there, and their table is read for the first of them.
        asked = await asyncio.to_thread(openai_embeddings.parse, await json_body(request), model)
        principal, deadline = state_of(request.scope).principal, Deadline.after(timeout)
        if asked.dimensions is not None:
            openai_embeddings.check_dimensions(asked, await embedder.models(principal, deadline))
        made = await while_connected(request, embedder.embed(principal, asked.model, asked.texts, deadline))
        state_of(request.scope).embedded = (made.model, made.tokens)
        return json_answer(openai_embeddings.render(made, asked))

    return routes
