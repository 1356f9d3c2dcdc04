"""The route for retrieval without a model."""

from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import NotFound

from gateway.dialects.ragengine import documents as ragengine
from gateway.domain import Retrieval
from gateway.ports.answering import Retriever
from gateway.routes.body import json_body, json_response
from gateway.routes.schemas import FOUND, SEARCH, openapi_body, openapi_responses
from gateway.server.request_state import state_of


def router(retriever: Retriever, *, timeout: float) -> APIRouter:
    """Return ``POST /retrieve``.

    Args:
        retriever: Finds passages.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(tags=["retrieval"])

    @routes.post(
        "/retrieve",
        summary="The best passages of an index for a query",
        responses=openapi_responses(FOUND, {404: "No such index"}),
        openapi_extra=openapi_body(SEARCH),
    )
    async def retrieve(request: Request) -> Response:
        """Search by vectors and by text. Return the passages with their scores, best first."""
        search = ragengine.search(await json_body(request))
        state_of(request.scope).log["index"] = search.index
        principal = state_of(request.scope).principal
        frontend = state_of(request.scope).frontend
        retrieval = Retrieval(
            indexes=(search.index,),
            mode=search.mode,
            semantic_ranker=search.semantic_ranker or frontend.rerank,
            metadata=search.conditions,
            tuning=search.tuned(frontend.tuning),
        )
        try:
            found = await retriever.retrieve(
                principal, retrieval, search.query, search.top, Deadline.after(timeout)
            )
        except NotFound as error:
            raise NotFound(error.message, field="index_name", resource=error.resource) from error
        state_of(request.scope).sources = found.passages
        return json_response(ragengine.results_json(search.query, found.passages))

    return routes
