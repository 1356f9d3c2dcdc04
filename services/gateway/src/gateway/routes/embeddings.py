"""Vectors of texts, as OpenAI's clients ask for them."""

from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline

from gateway.identity.caller import principal_of
from gateway.ports_index import Embedder
from gateway.protocols import openai_embeddings
from gateway.routes.body import json_answer, json_body, while_connected
from gateway.routes.schemas import EMBEDDING, EMBEDDINGS, answers, body

PATH = "/v1/embeddings"


def router(embedder: Embedder, *, timeout: float) -> APIRouter:
    """`PATH`.

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
        asked = openai_embeddings.parse(await json_body(request))
        principal, deadline = principal_of(request.scope), Deadline.after(timeout)
        if asked.dimensions is not None:
            openai_embeddings.check_dimensions(asked, await embedder.models(principal, deadline))
        made = await while_connected(request, embedder.embed(principal, asked.model, asked.texts, deadline))
        request.scope["state"]["embedded"] = (made.model, made.tokens)
        return json_answer(openai_embeddings.render(made, asked))

    return routes
