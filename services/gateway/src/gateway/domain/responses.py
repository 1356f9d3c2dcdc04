"""Stored responses and conversations, and their ids."""

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RESPONSE, CONVERSATION = "resp", "conv"
QUEUED, IN_PROGRESS = RUNNING = ("queued", "in_progress")
"""The states of a response that has not ended."""
MAX_ITEMS = 2000
"""The maximum number of items of a conversation."""
MAX_CHAIN_LENGTH = 500
"""The maximum number of earlier responses that one response may continue."""

_ID = re.compile(r"(resp|conv)_([0-9a-f]{32})")
_ITEM_ID = re.compile(r"[a-z]{1,8}_([0-9a-f]{32})_[a-z]?\d{1,20}")

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored response or conversation.

    Attributes:
        id: The id of the response or of the conversation.
        profile: The name of its front end.
        object: The response or the conversation, as clients read it.
        items: The input items of the response, or the items of the conversation, oldest first.
        chain: The ids of the responses that the response continues, oldest first.
        sources: The index and the id of each used document.
        revision: The number of the revision in the store, or 0 before the first write. The comparison of objects
            ignores it.
    """

    id: str
    profile: str
    object: Mapping[str, Any]
    items: tuple[Item, ...] = ()
    chain: tuple[str, ...] = ()
    sources: tuple[tuple[str, str], ...] = ()
    revision: int = field(default=0, compare=False)

    @property
    def status(self) -> str:
        """Return the status of a response, or an empty text for a conversation."""
        return str(self.object.get("status", ""))

    @property
    def runs(self) -> bool:
        """Return whether this is a response that has not ended."""
        return self.status in RUNNING

    @property
    def all_items(self) -> tuple[Item, ...]:
        """Return all items, including the output of a response."""
        return (*self.items, *self.object.get("output", ()))


@dataclass(frozen=True, slots=True)
class Owned:
    """A stored response and its owner.

    Attributes:
        owner: The name under which the user's responses are stored.
        stored: The response.
        size: The size in the store, in bytes.
    """

    owner: str
    stored: Stored
    size: int


@dataclass(frozen=True, slots=True)
class OwnedPage:
    """A page of a tenant's responses, newest first.

    Attributes:
        found: The responses. A page may have fewer responses than requested.
        next_token: The token of the next page, or empty on the last page.
    """

    found: tuple[Owned, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class ContinuedData:
    """The stored data that a request continues.

    Attributes:
        items: The earlier items, oldest first.
        references: The items that the request's input references, by id.
        chain: The ids of the responses that the request continues, oldest first.
        conversation: The id of the conversation, or empty without a conversation.
        store: Whether to store the response.
        name: The id of the response, or empty for a new id.
        created: The time at which the response was created, in seconds since 1970, or 0 for the current time.
    """

    items: tuple[Item, ...] = ()
    references: tuple[tuple[str, Item], ...] = ()
    chain: tuple[str, ...] = ()
    conversation: str = ""
    store: bool = False
    name: str = ""
    created: int = 0


def new_name() -> str:
    """Return 32 hex digits: the time in milliseconds, which makes names sortable, and 80 random bits."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def is_id(text: str, kind: str) -> bool:
    """Return whether a text can be the id of a response or of a conversation.

    Args:
        text: The text of a client.
        kind: `RESPONSE` or `CONVERSATION`.
    """
    found = _ID.fullmatch(text)
    return found is not None and found[1] == kind


def container_ids(item_id: str) -> tuple[str, ...]:
    """Return the ids of the response and of the conversation that may contain the item with this id."""
    found = _ITEM_ID.fullmatch(item_id)
    return () if found is None else (f"{RESPONSE}_{found[1]}", f"{CONVERSATION}_{found[1]}")


_PREFIXES = {
    "message": "msg",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "cto",
    "reasoning": "rs",
    "file_search_call": "fs",
    "compaction": "cmp",
}


def with_id(item: Item, owner: str, number: str) -> Item:
    """Return an item with an id from which its owner can be found.

    Args:
        item: The item.
        owner: The id of the response or the conversation.
        number: The number of the item within its owner.
    """
    prefix = _PREFIXES.get(item["type"], "item")
    return {**item, "id": f"{prefix}_{owner.partition('_')[2]}_{number}"}
