"""Routes that store a user's conversations, for the React front end of the Azure RAG demo."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, NotFound

from gateway.domain.memory import is_name
from gateway.ports.chat_history import History
from gateway.ports.memory import Memory
from gateway.routes.body import json_response
from gateway.server.openapi import FRONT_ENDS
from gateway.server.request_state import state_of

_MAX_ID_LENGTH = 200
_MAX_TITLE_LENGTH = 50
_MAX_LISTED = 100


class _Saved(msgspec.Struct):
    id: str
    answers: msgspec.Raw


_saved = msgspec.json.Decoder(_Saved)
_answers = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])


def router(history: History, memory: Memory, *, timeout: float) -> APIRouter:
    """Return the routes of ``/chat_history``.

    Args:
        history: Stores the conversations.
        memory: Stores the sessions. Clients give a session the name of its conversation.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(prefix="/chat_history", tags=[FRONT_ENDS])

    @routes.post(
        "",
        status_code=201,
        summary="Save a conversation",
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}},
        responses={
            400: {"description": "The id or the answers are invalid"},
            409: {"description": "The user has too many conversations"},
            413: {"description": "The conversation is too long"},
        },
    )
    async def save(request: Request) -> Response:
        """Store a conversation under its id. Replace the previous version."""
        saved, title = _conversation(await request.body())
        await history.save(
            state_of(request.scope).principal, saved.id, title, bytes(saved.answers), Deadline.after(timeout)
        )
        return json_response({}, 201)

    @routes.get("/sessions", summary="The user's conversations, most recently saved first")
    async def sessions(
        request: Request,
        count: Annotated[int, Query(ge=1, le=_MAX_LISTED)] = 10,
        camel: Annotated[str, Query(alias="continuationToken", description="Token of the previous page")] = "",
        snake: Annotated[str, Query(alias="continuation_token", description="Same as `continuationToken`")] = "",
    ) -> Response:
        """Return a page of conversations, and the token of the next page. The token is null on the last page."""
        principal = state_of(request.scope).principal
        page = await history.page(principal, count, camel or snake, Deadline.after(timeout))
        listed = [
            {
                "id": conversation.id,
                "entra_oid": principal.user,
                "title": conversation.title,
                "timestamp": conversation.timestamp,
            }
            for conversation in page.conversations
        ]
        return json_response({"sessions": listed, "continuation_token": page.next_token or None})

    @routes.get(
        "/sessions/{session:path}",
        summary="The messages of a conversation",
        responses={404: {"description": "The user has no such conversation"}},
    )
    async def read(request: Request, session: str) -> Response:
        """Return the conversation as the client saved it."""
        principal = state_of(request.scope).principal
        answers = msgspec.Raw(await history.read(principal, session, Deadline.after(timeout)))
        return json_response({"id": session, "entra_oid": principal.user, "answers": answers})

    @routes.delete(
        "/sessions/{session:path}",
        status_code=204,
        summary="Delete a conversation",
        responses={404: {"description": "The user has no such conversation"}},
    )
    async def delete(request: Request, session: str) -> Response:
        """Delete the conversation and the session of the same name."""
        state, deadline = state_of(request.scope), Deadline.after(timeout)
        deleted = is_name(session) and await memory.delete(state.principal, state.frontend.name, session, deadline)
        try:
            await history.delete(state.principal, session, deadline)
        except NotFound:
            if not deleted:
                raise
        return Response(status_code=204)

    return routes


_SCHEMA = {
    "type": "object",
    "required": ["id", "answers"],
    "properties": {
        "id": {"type": "string", "maxLength": _MAX_ID_LENGTH},
        "answers": {
            "type": "array",
            "minItems": 1,
            "description": "Pairs of a question and the answer's JSON",
            "items": {"type": "array", "minItems": 2, "maxItems": 2},
        },
    },
}


def _conversation(body: bytes) -> tuple[_Saved, str]:
    """Return the conversation to store, and its title, which is the beginning of the first question.

    Raises:
        InvalidRequest: The body is invalid; the error names the field.
    """
    try:
        saved = _saved.decode(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("The body must be a JSON object with id (a string) and answers.") from None
    if not saved.id.strip() or len(saved.id) > _MAX_ID_LENGTH:
        raise InvalidRequest(f"id must have 1 to {_MAX_ID_LENGTH} characters.", field="id")
    try:
        answers = _answers.decode(saved.answers)
    except (ValueError, RecursionError):
        answers = []
    if not answers:
        raise InvalidRequest("answers must be a list of pairs of a question and its answer.", field="answers")
    question = " ".join(answers[0][0].split())
    return saved, question if len(question) <= _MAX_TITLE_LENGTH else question[:_MAX_TITLE_LENGTH] + "..."
