"""What users have stored: an administrator deletes it when a user leaves."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from servicekit import keys
from servicekit.deadline import Deadline

from gateway.ports.chat_history import History
from gateway.ports.memory import Memory
from gateway.ports.response_log import ResponseLog
from gateway.ports.responses import ResponseStore
from gateway.routes.body import json_answer
from gateway.server.request_state import state_of


def router(
    responses: ResponseStore, log: ResponseLog, history: History, memory: Memory, *, timeout: float
) -> APIRouter:
    """``/users/{user}``.

    Args:
        responses: Keeps responses and conversations.
        log: Keeps the events of responses.
        history: Keeps the chats that front ends save.
        memory: Keeps sessions.
        timeout: Seconds that a request may take.
    """
    routes = APIRouter(tags=["users"])

    @routes.delete("/users/{user:path}", summary="Delete what a user has stored")
    async def delete(
        request: Request,
        user: str,
        issuer: Annotated[
            str, Query(description="Of the tokens that name the user; empty: the user is a key's")
        ] = "",
    ) -> Response:
        """Responses, conversations, the history of chats, and sessions. Documents stay. It can be repeated."""
        tenant, deadline = state_of(request.scope).principal.tenant, Deadline.after(timeout)
        owner = keys.user_of(issuer, user) if issuer else user
        deleted = {
            "responses": await responses.forget(tenant, owner, deadline),
            "chats": await history.forget(tenant, owner, deadline),
            "sessions": await memory.forget(tenant, owner, deadline),
        }
        # Events of responses that are under way end with them.
        await log.forget(tenant, owner, deadline)
        return json_answer({"user": user, "issuer": issuer or None, "deleted": deleted})

    return routes
