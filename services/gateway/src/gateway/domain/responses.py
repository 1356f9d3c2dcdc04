"""What is stored of responses and conversations, and the ids that name it."""

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

RESPONSE, CONVERSATION = "resp", "conv"
QUEUED, IN_PROGRESS = RUNNING = ("queued", "in_progress")
"""The states of a response that is not over."""
MOST_ITEMS = 2000
"""Items of a conversation."""
LONGEST_CHAIN = 500
"""Responses that one response may continue."""

_ID = re.compile(r"(resp|conv)_([0-9a-f]{32})")
_ITEM_ID = re.compile(r"[a-z]{1,8}_([0-9a-f]{32})_[a-z]?\d{1,20}")

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stored:
    """A response or a conversation as it is stored.

    Attributes:
        id: Names it.
        profile: Name of the front end that it belongs to.
        object: The response or the conversation, as clients read it.
        items: The input items of the response, or the items of the conversation.
        chain: The responses that it continues, oldest first.
        sources: The documents that it rests on: the index and the id of each.
        revision: Which change of it this is.
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
        """How far the response is; empty for a conversation."""
        return str(self.object.get("status", ""))

    @property
    def runs(self) -> bool:
        """Whether it is a response that is not over."""
        return self.status in RUNNING

    @property
    def all_items(self) -> tuple[Item, ...]:
        """Its items, those of a response's output included."""
        return (*self.items, *self.object.get("output", ()))


@dataclass(frozen=True, slots=True)
class Owned:
    """A stored response with the user that it belongs to.

    Attributes:
        owner: Name under which the user's responses are stored.
        stored: The response.
        size: Bytes that it takes in the store.
    """

    owner: str
    stored: Stored
    size: int


@dataclass(frozen=True, slots=True)
class OwnedPage:
    """Some responses of a tenant, the newest first.

    Attributes:
        found: The responses; perhaps fewer than were asked for.
        next_token: Gets the page after it; empty at the end.
    """

    found: tuple[Owned, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Before:
    """What was looked up for a request.

    Attributes:
        items: What was said before, oldest first.
        references: The items that its input names, by their ids.
        chain: The responses that it continues, oldest first.
        conversation: Id of its conversation; empty: none.
        store: Its response is stored.
        name: Id of its response; empty: it gets a new one.
        created: When the response was made, in seconds since 1970; 0: now.
    """

    items: tuple[Item, ...] = ()
    references: tuple[tuple[str, Item], ...] = ()
    chain: tuple[str, ...] = ()
    conversation: str = ""
    store: bool = False
    name: str = ""
    created: int = 0


def new_name() -> str:
    """Return 32 hex digits: the time in milliseconds, by which names can be sorted, and 80 random bits."""
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(10)}"


def is_id(text: str, kind: str) -> bool:
    """Return whether a text can be the id of a response or of a conversation.

    Args:
        text: What a client says.
        kind: `RESPONSE` or `CONVERSATION`.
    """
    found = _ID.fullmatch(text)
    return found is not None and found[1] == kind


def owners_of_item(item_id: str) -> tuple[str, ...]:
    """Return the ids of the response and of the conversation that an item of this id can belong to."""
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


def named(item: Item, owner: str, number: str) -> Item:
    """Return an item with an id, by which its owner is found.

    Args:
        item: The item.
        owner: Id of the response or the conversation.
        number: Of the item, within its owner.
    """
    prefix = _PREFIXES.get(item["type"], "item")
    return {**item, "id": f"{prefix}_{owner.partition('_')[2]}_{number}"}
