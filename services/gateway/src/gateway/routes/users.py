"""The route by which an administrator deletes the stored data of a user."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from servicekit import keys
from servicekit.deadline import Deadline

from gateway.ports.chat_history import History
from gateway.ports.memory import Memory
from gateway.ports.response_log import ResponseLog
from gateway.ports.responses import ResponseStore
from gateway.routes.body import json_response
from gateway.server.request_state import state_of


def router(
    responses: ResponseStore, log: ResponseLog, history: History, memory: Memory, *, timeout: float
) -> APIRouter:
    """Return ``DELETE /users/{user}``.

    Args:
        responses: Stores responses and conversations.
        log: Stores the events of responses.
        history: Stores the conversations that front ends save.
        memory: Stores sessions.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(tags=["users"])

    @routes.delete("/users/{user:path}", summary="Delete the stored data of a user")
    async def delete(
        request: Request,
        user: str,
        issuer: Annotated[
            str, Query(description="Issuer of the user's tokens; empty for the user of an API key")
        ] = "",
    ) -> Response:
        """Delete the user's responses, conversations, chat history and sessions. Documents remain.

        The request can be repeated.
        """
        tenant, deadline = state_of(request.scope).principal.tenant, Deadline.after(timeout)
        owner = keys.user_of(issuer, user) if issuer else user
        deleted = {
            "responses": await responses.forget(tenant, owner, deadline),
            "chats": await history.forget(tenant, owner, deadline),
            "sessions": await memory.forget(tenant, owner, deadline),
        }
        # Without a log, the running responses of the user end.
        await log.forget(tenant, owner, deadline)
        return json_response({"user": user, "issuer": issuer or None, "deleted": deleted})

    return routes
