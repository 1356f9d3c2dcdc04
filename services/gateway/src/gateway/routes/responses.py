"""Routes of stored responses, and the route that counts the tokens of a request."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest

from gateway.answering import prompts
from gateway.dialects.exchange import ChatRequest
from gateway.dialects.responses.dialect import Responses
from gateway.dialects.responses.registration import REQUEST, TAG
from gateway.domain.responses import Item, Stored
from gateway.ports.answering import Generator
from gateway.response_runs.partial import without_results
from gateway.routes import schemas
from gateway.routes.body import json_body, json_response
from gateway.routes.response_reading import ResponseReading
from gateway.routes.stored_responses import StoredResponses
from gateway.server.request_state import state_of

RESULTS = "file_search_call.results"
MAX_LISTED = 100
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "The user has no such response"}}

Include = Annotated[list[str] | None, Query(description=f"`{RESULTS}` adds the passages")]
IncludeArray = Annotated[list[str] | None, Query(alias="include[]", description="Same as `include`")]
Order = Annotated[Literal["asc", "desc"], Query()]
StartingAfter = Annotated[int | None, Query(ge=-1, description="With `stream`: number of the client's last event")]
Limit = Annotated[int, Query(ge=1, le=MAX_LISTED)]


def router(
    dialect: Responses,
    stored: StoredResponses,
    reading: ResponseReading,
    generator: Generator,
    *,
    timeout: float,
) -> APIRouter:
    """Return the routes below ``/v1/responses``.

    Args:
        dialect: Parses requests.
        stored: Reads the responses that requests continue.
        reading: Reads stored responses with access checks.
        generator: Counts tokens.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(prefix="/v1/responses", tags=[TAG])

    async def find(request: Request, name: str) -> Stored:
        state = state_of(request.scope)
        return await reading.find(state.principal, state.frontend, name, Deadline.after(timeout))

    @routes.post(
        "/input_tokens",
        summary="Count the tokens of a request",
        openapi_extra=schemas.openapi_body(REQUEST),
        responses={400: {"description": "The request is malformed"}, **_NOT_FOUND},
    )
    async def input_tokens(request: Request) -> Response:
        """Count the tokens of the request for the model, without retrieved passages."""
        state, deadline = state_of(request.scope), Deadline.after(timeout)
        body = await json_body(request)
        recalled = await stored.recall(ChatRequest(body, state.principal, state.frontend), deadline)
        turn = dialect.parse(recalled).turn
        messages = prompts.compose(turn, ())
        tools = [turn.original.tools_json.decode()] if turn.original.tools_json else []
        counts = await generator.count_tokens(turn.principal, turn.model, tools, messages, deadline)
        return json_response(
            {"object": "response.input_tokens", "input_tokens": counts.messages + sum(counts.texts)}
        )

    @routes.get("/{response_id}", summary="Get a stored response", responses=_NOT_FOUND)
    async def retrieve(
        request: Request,
        response_id: str,
        include: Include = None,
        include_array: IncludeArray = None,
        stream: bool = False,
        starting_after: StartingAfter = None,
    ) -> Response:
        """Return the current state of the response. `include` adds the passages of file searches.

        With `stream`, send the current and future events after the number in `starting_after` or in the header
        `Last-Event-ID`.
        """
        # The parameters are declared for OpenAPI and to refuse invalid values. `response_stream` serves all streams
        # except those whose `starting_after` only FastAPI accepts as a number (`+5`, or more than nine digits).
        del starting_after
        if stream and request.method == "GET":
            message = "starting_after must be the number of an event: at most nine digits without a sign."
            raise InvalidRequest(message, field="starting_after")
        found = await find(request, response_id)
        listed = [*(include or ()), *(include_array or ())]
        return json_response({**found.object, "output": visible_items(found.object["output"], listed)})

    @routes.delete("/{response_id}", summary="Delete a response", responses=_NOT_FOUND)
    async def delete(request: Request, response_id: str) -> Response:
        """Delete the response. Requests can then no longer continue the responses that follow it."""
        await reading.delete(state_of(request.scope).principal, response_id, Deadline.after(timeout))
        return json_response({"id": response_id, "object": "response", "deleted": True})

    @routes.post(
        "/{response_id}/cancel",
        summary="Cancel a response",
        responses={**_NOT_FOUND, 400: {"description": "The response is not a background response"}},
    )
    async def cancel(request: Request, response_id: str) -> Response:
        """Cancel a background response. A response that has ended does not change."""
        found = await find(request, response_id)
        if not found.object.get("background"):
            raise InvalidRequest("response_id: only a background response can be cancelled.", field="response_id")
        found = await reading.cancel(state_of(request.scope).principal, found, Deadline.after(timeout))
        return json_response({**found.object, "output": visible_items(found.object["output"], ())})

    @routes.get("/{response_id}/input_items", summary="List the input items of a response", responses=_NOT_FOUND)
    async def input_items(
        request: Request,
        response_id: str,
        after: str = "",
        limit: Limit = 20,
        order: Order = "desc",
        include: Include = None,
        include_array: IncludeArray = None,
    ) -> Response:
        """List the input items of this response, without those of earlier responses."""
        found = await find(request, response_id)
        items = visible_items(found.items, [*(include or ()), *(include_array or ())])
        return json_response(page(items, after=after, limit=limit, order=order))

    return routes


def visible_items(items: Sequence[Item], include: Sequence[str]) -> list[Item]:
    """Return the items for a client. File searches contain their passages only if `include` names the results."""
    return list(items) if RESULTS in include else without_results(items)


def page(items: Sequence[Item], *, after: str, limit: int, order: str) -> dict[str, Any]:
    """Return a page of a list of items.

    Args:
        items: All items, oldest first.
        after: Id of the item before the page; empty for the first page.
        limit: Maximum number of items.
        order: ``asc`` or ``desc``.

    Raises:
        InvalidRequest: No item has this id.
    """
    ordered = [listed_item(item) for item in (items if order == "asc" else reversed(items))]
    begin = 0
    if after:
        names = [item["id"] for item in ordered]
        if after not in names:
            raise InvalidRequest("after: no item of the list has this id.", field="after")
        begin = names.index(after) + 1
    data = ordered[begin : begin + limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else "",
        "last_id": data[-1]["id"] if data else "",
        "has_more": begin + limit < len(ordered),
    }


_WITH_STATUS = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


def listed_item(item: Item) -> Item:
    """Return an item as clients read it, with a status if its kind has one."""
    if item["type"] not in _WITH_STATUS:
        return item
    rendered = {"status": "completed", **item}
    if item["type"] == "message":
        rendered["content"] = [_part(part) for part in item["content"]]
    return rendered


def _part(part: Item) -> Item:
    if part["type"] == "output_text":
        return {"annotations": [], "logprobs": [], **part}
    return part
