"""Routes of the conversations of the Responses API. A conversation is a list of items. Responses append items."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, InvalidRequest, NotFound

from gateway.answering.checks import Checks
from gateway.answering.timeline import Timeline
from gateway.dialects import json_fields
from gateway.dialects.json_fields import Fields
from gateway.dialects.openai import conversation as chats
from gateway.dialects.responses import items as item_kinds
from gateway.dialects.responses import record
from gateway.dialects.responses.continuation import missing
from gateway.dialects.responses.conversation import Conversation
from gateway.dialects.responses.item_cipher import ItemCipher
from gateway.dialects.responses.registration import TAG
from gateway.dialects.responses.request import metadata
from gateway.domain import Detectors, Turn
from gateway.domain.responses import CONVERSATION, MAX_ITEMS, Item, Stored, is_id, new_name, with_id
from gateway.ports.answering import Guardrails
from gateway.ports.responses import ResponseStore
from gateway.ports.sealing import Sealing
from gateway.routes import schemas
from gateway.routes.body import json_body, json_response
from gateway.routes.responses import Include, IncludeArray, Limit, Order, listed_item, page, visible_items
from gateway.server.request_state import RequestState, state_of

_MAX_ITEMS_AT_ONCE = 20
_MAX_TRIES = 5
_NOT_FOUND: dict[int | str, dict[str, Any]] = {404: {"description": "The user has no such conversation"}}
_CUSTOM = ("custom_tool_call", "custom_tool_call_output")


def router(store: ResponseStore, guardrails: Guardrails, sealing: Sealing, *, timeout: float) -> APIRouter:
    """Return the routes of ``/v1/conversations`` and of the paths below it.

    Args:
        store: Stores the conversations.
        guardrails: Runs the detectors on the items that clients send.
        sealing: Decrypts the encrypted contents of items.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(prefix="/v1/conversations", tags=[TAG])
    conversations = _Conversations(store, guardrails, sealing)

    def new_deadline() -> Deadline:
        return Deadline.after(timeout)

    @routes.post("", summary="Create a conversation", openapi_extra=schemas.openapi_body(schemas.CONVERSATION))
    async def create(request: Request) -> Response:
        """Create a conversation, optionally with its first items."""
        state, deadline = state_of(request.scope), new_deadline()
        fields = await _fields(request, ("items", "metadata"))
        name = f"{CONVERSATION}_{new_name()}"
        items = await conversations.checked_items(fields, name, state, deadline)
        conversation = {"id": name, "object": "conversation", "created_at": int(time.time())}
        conversation["metadata"] = metadata(fields.object("metadata"))
        await store.save(state.principal, Stored(name, state.frontend.name, conversation, items), deadline)
        return json_response(conversation)

    @routes.get("/{conversation_id}", summary="Get a conversation", responses=_NOT_FOUND)
    async def retrieve(request: Request, conversation_id: str) -> Response:
        """Return the conversation without its items."""
        return json_response(
            (await conversations.find(conversation_id, state_of(request.scope), new_deadline())).object
        )

    @routes.post(
        "/{conversation_id}",
        summary="Update a conversation",
        responses=_NOT_FOUND,
        openapi_extra=schemas.openapi_body(schemas.CONVERSATION_CHANGE),
    )
    async def update(request: Request, conversation_id: str) -> Response:
        """Replace the metadata of the conversation."""
        fields = await _fields(request, ("metadata",))
        pairs = metadata(fields.object("metadata"))
        changed = await conversations.change(
            conversation_id,
            state_of(request.scope),
            lambda known: replace(known, object={**known.object, "metadata": pairs}),
            new_deadline(),
        )
        return json_response(changed.object)

    @routes.delete("/{conversation_id}", summary="Delete a conversation", responses=_NOT_FOUND)
    async def delete(request: Request, conversation_id: str) -> Response:
        """Delete the conversation with its items. Stored responses remain."""
        state, deadline = state_of(request.scope), new_deadline()
        await conversations.find(conversation_id, state, deadline)
        await store.delete(state.principal, conversation_id, deadline)
        return json_response({"id": conversation_id, "object": "conversation.deleted", "deleted": True})

    @routes.post(
        "/{conversation_id}/items",
        summary="Add items to a conversation",
        responses=_NOT_FOUND,
        openapi_extra=schemas.openapi_body(schemas.CONVERSATION_ITEMS),
    )
    async def add(request: Request, conversation_id: str) -> Response:
        """Append items to the conversation."""
        state, deadline = state_of(request.scope), new_deadline()
        fields = await _fields(request, ("items",))
        await conversations.find(conversation_id, state, deadline)
        added = await conversations.checked_items(fields, conversation_id, state, deadline)
        await conversations.change(
            conversation_id, state, lambda known: replace(known, items=(*known.items, *added)), deadline
        )
        return json_response(_page(added, order="asc"))

    @routes.get("/{conversation_id}/items", summary="List the items of a conversation", responses=_NOT_FOUND)
    async def list_items(
        request: Request,
        conversation_id: str,
        after: str = "",
        limit: Limit = 20,
        order: Order = "desc",
        include: Include = None,
        include_array: IncludeArray = None,
    ) -> Response:
        """Return a page of the items."""
        known = await conversations.find(conversation_id, state_of(request.scope), new_deadline())
        items = visible_items(known.items, [*(include or ()), *(include_array or ())])
        return json_response(_page(items, after=after, limit=limit, order=order))

    @routes.get("/{conversation_id}/items/{item_id}", summary="Get an item of a conversation", responses=_NOT_FOUND)
    async def item(
        request: Request,
        conversation_id: str,
        item_id: str,
        include: Include = None,
        include_array: IncludeArray = None,
    ) -> Response:
        """Return the item in the same form as in a list."""
        known = await conversations.find(conversation_id, state_of(request.scope), new_deadline())
        [found] = visible_items([_item(known, item_id)], [*(include or ()), *(include_array or ())])
        return json_response(_listed(found))

    @routes.delete(
        "/{conversation_id}/items/{item_id}", summary="Delete an item of a conversation", responses=_NOT_FOUND
    )
    async def delete_item(request: Request, conversation_id: str, item_id: str) -> Response:
        """Delete the item and return the conversation."""

        def without(known: Stored) -> Stored:
            deleted = _item(known, item_id)
            return replace(known, items=tuple(other for other in known.items if other is not deleted))

        changed = await conversations.change(conversation_id, state_of(request.scope), without, new_deadline())
        return json_response(changed.object)

    return routes


class _Conversations:
    """Reads and changes conversations for the routes."""

    def __init__(self, store: ResponseStore, guardrails: Guardrails, sealing: Sealing) -> None:
        self._store, self._sealing = store, sealing
        self._checks = Checks(guardrails)

    async def find(self, name: str, state: RequestState, deadline: Deadline) -> Stored:
        """Return the caller's conversation with this front end.

        Raises:
            NotFound: The user has no such conversation.
        """
        found = None
        if is_id(name, CONVERSATION):
            found = await self._store.read(state.principal, name, deadline)
        if found is None or found.profile != state.frontend.name:
            raise missing(name, "conversation_id")
        return found

    async def change(
        self, name: str, state: RequestState, transform: Callable[[Stored], Stored], deadline: Deadline
    ) -> Stored:
        """Change a conversation. Retry if another request has changed it concurrently.

        Raises:
            Conflict: Other requests keep changing the conversation, or it would have too many items.
        """
        for _ in range(_MAX_TRIES):
            changed = transform(await self.find(name, state, deadline))
            if len(changed.items) > MAX_ITEMS:
                raise Conflict(f"A conversation may have at most {MAX_ITEMS} items.")
            if await self._store.replace(state.principal, changed, deadline):
                return changed
        raise Conflict("Other requests keep changing the conversation. Try again.")

    async def checked_items(
        self, fields: Fields, name: str, state: RequestState, deadline: Deadline
    ) -> tuple[Item, ...]:
        """Run the profile's detectors on the items of a request. Return the remaining items with new ids.

        Raises:
            BlockedQuestion: A detector blocks the items.
        """
        sent = fields.items("items") or []
        if len(sent) > _MAX_ITEMS_AT_ONCE:
            raise fields.invalid("items", f"may have at most {_MAX_ITEMS_AT_ONCE} items in one request")
        conversation = Conversation(cipher=ItemCipher(self._sealing, state.principal, state.frontend.name))
        items: Sequence[Item | None] = item_kinds.read(sent, conversation, "items")
        detectors = state.frontend.detectors_for(Detectors())
        if detectors.input and conversation.messages:
            messages = chats.messages({"messages": msgspec.Raw(msgspec.json.encode(conversation.messages))})
            chats.check_readable(messages, has_policy=True)
            turn = Turn(state.principal, "", tuple(messages), detectors=detectors)
            remaining, _ = await self._checks.check_input(turn, Timeline(), deadline)
            items = record.redacted_input(items, conversation.paths, turn, remaining)
        now = time.time_ns()
        return tuple(with_id(item, name, f"c{now + at}") for at, item in enumerate(items) if item is not None)


async def _fields(request: Request, names: Sequence[str]) -> Fields:
    """Return the members of a request's body, which may be empty."""
    body = await json_body(request) or b"{}"
    raw = json_fields.members(body)
    for name in raw:
        if name not in names:
            raise InvalidRequest(f"{name[:100]} is not a parameter of this request.", field=name[:100])
    return json_fields.pick(raw, names)


def _item(known: Stored, item_id: str) -> Item:
    for item in known.items:
        if item["id"] == item_id:
            return item
    message = f"item_id: the conversation has no item {item_id[:100]!r}."
    raise NotFound(message, field="item_id", resource=item_id[:100])


def _page(items: Sequence[Item], *, after: str = "", limit: int = _MAX_ITEMS_AT_ONCE, order: str) -> dict[str, Any]:
    found = page(items, after=after, limit=limit, order=order)
    return found | {"data": [_listed(item) for item in found["data"]]}


def _listed(item: Item) -> Item:
    """Return an item in the format of conversations, in which calls to custom tools have no status."""
    fields = listed_item(item)
    if fields["type"] in _CUSTOM:
        return {name: value for name, value in fields.items() if name != "status"}
    return fields
