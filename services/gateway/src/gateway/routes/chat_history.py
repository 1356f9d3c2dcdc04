"""The history of a user's chats, as the React front end of the Azure RAG demo keeps it on a server."""

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, NotFound

from gateway.domain.memory import is_name
from gateway.ports.chat_history import History
from gateway.ports.memory import Memory
from gateway.routes.body import json_answer
from gateway.server.openapi import FRONT_ENDS
from gateway.server.request_state import state_of

_LONGEST_ID = 200
_LONGEST_TITLE = 50
_MOST_LISTED = 100


class _Saved(msgspec.Struct):
    id: str
    answers: msgspec.Raw


_saved = msgspec.json.Decoder(_Saved)
_answers = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])


def router(history: History, memory: Memory, *, timeout: float) -> APIRouter:
    """``/chat_history`` and what is below.

    Args:
        history: Keeps the conversations.
        memory: Keeps the sessions, whose names clients give their conversations.
        timeout: Seconds that a request may take.
    """
    routes = APIRouter(prefix="/chat_history", tags=[FRONT_ENDS])

    @routes.post(
        "",
        status_code=201,
        summary="Keep a conversation",
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": _SCHEMA}}}},
        responses={
            400: {"description": "The id or the answers are wrong"},
            409: {"description": "The user keeps too many conversations"},
            413: {"description": "The conversation is too long"},
        },
    )
    async def save(request: Request) -> Response:
        """Keeps a conversation under the client's own id, in the place of what was kept of it."""
        saved, title = _conversation(await request.body())
        await history.save(
            state_of(request.scope).principal, saved.id, title, bytes(saved.answers), Deadline.after(timeout)
        )
        return json_answer({}, 201)

    @routes.get("/sessions", summary="One's conversations, those last saved first")
    async def sessions(
        request: Request,
        count: Annotated[int, Query(ge=1, le=_MOST_LISTED)] = 10,
        camel: Annotated[str, Query(alias="continuationToken", description="Of the page before")] = "",
        snake: Annotated[str, Query(alias="continuation_token", description="The same")] = "",
    ) -> Response:
        """A page of them; the token continues the list."""
        principal = state_of(request.scope).principal
        page = await history.page(principal, count, camel or snake, Deadline.after(timeout))
        listed = [
            {"id": each.id, "entra_oid": principal.user, "title": each.title, "timestamp": each.timestamp}
            for each in page.conversations
        ]
        return json_answer({"sessions": listed, "continuation_token": page.next_token or None})

    @routes.get(
        "/sessions/{session:path}",
        summary="What was said in a conversation",
        responses={404: {"description": "The user has no such conversation"}},
    )
    async def read(request: Request, session: str) -> Response:
        """The answers as they were saved."""
        principal = state_of(request.scope).principal
        answers = msgspec.Raw(await history.read(principal, session, Deadline.after(timeout)))
        return json_answer({"id": session, "entra_oid": principal.user, "answers": answers})

    @routes.delete(
        "/sessions/{session:path}",
        status_code=204,
        summary="Forget a conversation",
        responses={404: {"description": "The user has no such conversation"}},
    )
    async def delete(request: Request, session: str) -> Response:
        """It is gone then, and so is what the gateway remembers of the session of this name."""
        state, deadline = state_of(request.scope), Deadline.after(timeout)
        forgotten = is_name(session) and await memory.forget(
            state.principal, state.frontend.name, session, deadline
        )
        try:
            await history.delete(state.principal, session, deadline)
        except NotFound:
            if not forgotten:
                raise
        return Response(status_code=204)

    return routes


_SCHEMA = {
    "type": "object",
    "required": ["id", "answers"],
    "properties": {
        "id": {"type": "string", "maxLength": _LONGEST_ID},
        "answers": {
            "type": "array",
            "minItems": 1,
            "description": "Pairs of a question and the answer's JSON",
            "items": {"type": "array", "minItems": 2, "maxItems": 2},
        },
    },
}


def _conversation(body: bytes) -> tuple[_Saved, str]:
    """What is to be kept, and its title, the beginning of the first question.

    Raises:
        InvalidRequest: Names the field.
    """
    try:
        saved = _saved.decode(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("The body must be a JSON object with id, a string, and answers.") from None
    if not saved.id.strip() or len(saved.id) > _LONGEST_ID:
        raise InvalidRequest(f"id must have 1 to {_LONGEST_ID} characters.", field="id")
    try:
        answers = _answers.decode(saved.answers)
    except (ValueError, RecursionError):
        answers = []
    if not answers:
        raise InvalidRequest("answers must be a list of pairs of a question and its answer.", field="answers")
    question = " ".join(answers[0][0].split())
    return saved, question if len(question) <= _LONGEST_TITLE else question[:_LONGEST_TITLE] + "..."
