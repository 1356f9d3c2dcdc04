"""Routes by which administrators manage the stored responses of their tenant, without reading texts."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import Conflict
from servicekit.principal import Principal, issuer_and_user

from gateway.dialects.responses.continuation import missing
from gateway.domain.responses import RESPONSE, Owned, is_id
from gateway.ports.responses import ResponseStore
from gateway.response_runs.ending import Ending
from gateway.response_runs.partial import CANCELLED
from gateway.routes.body import json_response
from gateway.routes.response_reading import ResponseReading
from gateway.routes.responses import MAX_LISTED
from gateway.routes.schemas import openapi_responses
from gateway.routes.schemas_responses import DELETED_RESPONSE, TENANT_RESPONSE, TENANT_RESPONSE_PAGE
from gateway.server.request_state import state_of

_UNAVAILABLE = {503: "The store is unavailable; see Retry-After"}
_UNKNOWN = {404: "The tenant has no such response"} | _UNAVAILABLE
_Count = Annotated[int, Query(ge=1, le=MAX_LISTED, description="Maximum number of entries of the page")]
_Token = Annotated[
    str, Query(pattern=r"^(resp_[0-9a-f]{32})?$", description="`next_page_token` of the previous page")
]


def router(responses: ResponseStore, reading: ResponseReading, ending: Ending, *, timeout: float) -> APIRouter:
    """Return the routes below ``/responses``.

    Args:
        responses: Stores the responses.
        reading: Cancels and deletes the responses.
        ending: Ends responses whose gateway has stopped.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(prefix="/responses", tags=["users"])

    async def current_json(tenant: str, owned: Owned, deadline: Deadline) -> dict[str, Any]:
        stored = await ending.end_if_stopped(Principal(tenant, owned.owner), owned.stored, deadline)
        return response_json(Owned(owned.owner, stored, owned.size))

    async def find(tenant: str, name: str, deadline: Deadline) -> Owned:
        found = await responses.find(tenant, name, deadline) if is_id(name, RESPONSE) else None
        if found is None:
            raise missing(name, "response_id")
        return found

    @routes.get(
        "",
        summary="List the responses of all users, newest first",
        responses=openapi_responses(TENANT_RESPONSE_PAGE, _UNAVAILABLE),
    )
    async def list_responses(request: Request, limit: _Count = 50, page_token: _Token = "") -> Response:
        """Return a page of responses, without the texts of questions and answers.

        The page may be shorter than `limit`. `next_page_token` requests the next page, and is null at the end.
        """
        tenant, deadline = state_of(request.scope).principal.tenant, Deadline.after(timeout)
        page = await responses.page(tenant, limit, page_token, deadline)
        listed = [await current_json(tenant, owned, deadline) for owned in page.found]
        return json_response({"responses": listed, "next_page_token": page.next_token or None})

    @routes.get("/{response_id}", summary="Get a response", responses=openapi_responses(TENANT_RESPONSE, _UNKNOWN))
    async def show(request: Request, response_id: str) -> Response:
        """Return a response of any user, without its texts."""
        tenant, deadline = state_of(request.scope).principal.tenant, Deadline.after(timeout)
        return json_response(await current_json(tenant, await find(tenant, response_id, deadline), deadline))

    @routes.post(
        "/{response_id}/cancel",
        summary="Cancel a response of any user",
        responses=openapi_responses(
            TENANT_RESPONSE, _UNKNOWN | {409: "The response has ended, or is not in the background"}
        ),
    )
    async def cancel(request: Request, response_id: str) -> Response:
        """Cancel a background response. Its user can still read the partial answer."""
        tenant, deadline = state_of(request.scope).principal.tenant, Deadline.after(timeout)
        owned = await find(tenant, response_id, deadline)
        stored = owned.stored
        if stored.runs and not stored.object.get("background"):
            raise Conflict("Only a background response can be cancelled.", resource=response_id)
        stored = await reading.cancel(Principal(tenant, owned.owner), stored, deadline)
        if stored.status != CANCELLED:
            raise Conflict(f"The response has ended with the status {stored.status}.", resource=response_id)
        return json_response(response_json(Owned(owned.owner, stored, owned.size)))

    @routes.delete(
        "/{response_id}",
        summary="Delete a response of any user",
        responses=openapi_responses(DELETED_RESPONSE, _UNKNOWN),
    )
    async def delete(request: Request, response_id: str) -> Response:
        """Delete a response and its events, and stop its answer."""
        tenant, deadline = state_of(request.scope).principal.tenant, Deadline.after(timeout)
        owned = await find(tenant, response_id, deadline)
        await reading.delete(Principal(tenant, owned.owner), response_id, deadline)
        return json_response({"id": response_id, "deleted": True})

    return routes


def response_json(owned: Owned) -> dict[str, Any]:
    """Return a response as administrators read it: only members that contain no text of the user."""
    response = owned.stored.object
    issuer, user = issuer_and_user(owned.owner)
    usage = response.get("usage") or {}
    reason = (response.get("error") or {}).get("code") or (response.get("incomplete_details") or {}).get("reason")
    return {
        "id": owned.stored.id,
        "status": owned.stored.status,
        "reason": reason,
        "model": response.get("model"),
        "background": bool(response.get("background")),
        "user": user or None,
        "issuer": issuer or None,
        "frontend": owned.stored.profile,
        "created_at": _iso_time(response.get("created_at")),
        "completed_at": _iso_time(response.get("completed_at")),
        "input_tokens": usage.get("input_tokens"),
        "output_tokens": usage.get("output_tokens"),
        "bytes": owned.size,
    }


def _iso_time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()
