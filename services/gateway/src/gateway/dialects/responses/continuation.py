"""The stored data that a Responses request continues, and whether its response is stored."""

from dataclasses import dataclass
from typing import Any

import msgspec
from servicekit.errors import InvalidRequest, NotFound

from gateway.dialects import json_fields
from gateway.dialects.json_fields import Fields
from gateway.domain.responses import CONVERSATION, RESPONSE, ContinuedData, is_id
from gateway.frontends.response_policy import ResponsePolicy

_READ = ("previous_response_id", "conversation", "store")
_REFERENCE = b"item_reference"


@dataclass(frozen=True, slots=True)
class Continuation:
    """The members of a request that refer to stored data.

    Attributes:
        previous: The id of the response that the request continues, or empty.
        conversation: The id of the conversation that the request continues, or empty.
        references: The ids of the stored items in the input.
        store: Whether the gateway stores the response.
    """

    previous: str = ""
    conversation: str = ""
    references: tuple[str, ...] = ()
    store: bool = False

    @property
    def continues(self) -> bool:
        """Return whether the request needs stored data."""
        return bool(self.previous or self.conversation or self.references)


def read(body: bytes, policy: ResponsePolicy) -> Continuation:
    """Read the members of a request that refer to stored data.

    Args:
        body: The body of the request.
        policy: The profile's policy.

    Raises:
        InvalidRequest: A member is invalid.
        NotFound: An id does not have the format of the gateway's ids.
    """
    raw = json_fields.members(body)
    fields = json_fields.pick(raw, _READ)
    previous, conversation = fields.text("previous_response_id"), _conversation(fields)
    if previous and conversation:
        raise fields.invalid("previous_response_id", "must not be combined with conversation")
    if previous and not is_id(previous, RESPONSE):
        raise missing(previous, "previous_response_id")
    if conversation and not is_id(conversation, CONVERSATION):
        raise missing(conversation, "conversation")
    references: tuple[str, ...] = ()
    if _REFERENCE in bytes(raw.get("input", b"")):
        references = tuple(_references(json_fields.value(raw["input"], "input")))
    has_store = fields.get("store") is not None
    store = fields.flag("store") if has_store else policy is ResponsePolicy.DEFAULT
    return Continuation(previous, conversation, references, store and policy is not ResponsePolicy.OFF)


def _conversation(fields: Fields) -> str:
    value = fields.get("conversation")
    return fields.object("conversation").text("id") if isinstance(value, dict) else fields.text("conversation")


def _references(items: Any) -> list[str]:
    references = []
    for at, item in enumerate(items if isinstance(items, list) else ()):
        if isinstance(item, dict) and item.get("type") == "item_reference":
            references.append(Fields(item, f"input[{at}]").text("id"))
    return references


def resolved(body: bytes, continued: ContinuedData) -> bytes:
    """Return a request in which the stored items replace their references.

    Raises:
        NotFound: A referenced item does not exist, or belongs to another user.
    """
    if _REFERENCE not in body:
        return body
    raw = json_fields.members(body)
    items = json_fields.value(raw.get("input"), "input")
    if not isinstance(items, list):
        return body
    known = dict(continued.references)
    resolved_items = []
    for at, item in enumerate(items):
        if isinstance(item, dict) and item.get("type") == "item_reference":
            name = Fields(item, f"input[{at}]").text("id")
            if name not in known:
                raise missing(name, f"input[{at}].id")
            # The user may have lost access to the passages of a stored search.
            item = {member: value for member, value in known[name].items() if member != "results"}
        resolved_items.append(item)
    return msgspec.json.encode(raw | {"input": resolved_items})


def missing(name: str, field: str) -> NotFound:
    """Return the error for an id for which the user has no stored data."""
    kinds = {"previous_response_id": "response", "response_id": "response"}
    kind = kinds.get(field, "conversation" if field.startswith("conversation") else "item")
    return NotFound(f"{field}: there is no {kind} {name[:100]!r}.", field=field, resource=name[:100])


def check_policy(policy: ResponsePolicy, continuation: Continuation) -> None:
    """Check that the profile stores responses, if the request continues stored data.

    Raises:
        InvalidRequest: The request continues stored data, and the profile stores nothing.
    """
    if policy is ResponsePolicy.OFF and continuation.continues:
        field = (
            "previous_response_id"
            if continuation.previous
            else "conversation"
            if continuation.conversation
            else "input"
        )
        raise InvalidRequest(
            f"{field}: this front end stores no responses. Send the whole conversation in input.", field=field
        )
