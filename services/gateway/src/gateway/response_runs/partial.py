"""Computes partial output from the events of a log, and renders the last event from a stored response."""

from collections.abc import Iterable
from typing import Any

import msgspec

from gateway.dialects.responses.parts import encoded
from gateway.domain.responses import Item, Stored

_TEXTS = {
    "response.output_text.delta": ("content", "text"),
    "response.refusal.delta": ("content", "refusal"),
    "response.reasoning_text.delta": ("content", "text"),
    "response.reasoning_summary_text.delta": ("summary", "text"),
}
FAILED, CANCELLED = "failed", "cancelled"
_decode = msgspec.json.decode


def output_of(events: Iterable[bytes]) -> list[dict[str, Any]]:
    """Return the output items that the events contain so far. Unfinished items have the status `incomplete`.

    Args:
        events: The events of the response in the clients' format, in order.
    """
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        members = _decode(event.partition(b"data: ")[2])
        kind, position = members["type"], members.get("output_index")
        if kind in ("response.output_item.added", "response.output_item.done"):
            items[position] = members["item"]
        elif kind in ("response.content_part.added", "response.reasoning_summary_part.added"):
            member = "content" if "content_index" in members else "summary"
            items[position].setdefault(member, []).append(members["part"])
        elif kind in _TEXTS:
            member, text = _TEXTS[kind]
            items[position][member][-1][text] += members["delta"]
        elif kind == "response.output_text.annotation.added":
            items[position]["content"][-1]["annotations"].append(members["annotation"])
        elif kind == "response.function_call_arguments.delta":
            items[position]["arguments"] += members["delta"]
    return [_closed(item) for _, item in sorted(items.items())]


def _closed(item: dict[str, Any]) -> dict[str, Any]:
    return item | {"status": "incomplete"} if item.get("status") == "in_progress" else item


def without_results(items: Iterable[Item]) -> list[Item]:
    """Return the items without the passages of file searches."""
    return [{**item, "results": None} if item["type"] == "file_search_call" else item for item in items]


def last_event(stored: Stored, number: int) -> bytes:
    """Return the event that ends the stream of a response.

    OpenAI's reference defines no event for a cancelled response. Its stream ends with `response.failed` and the
    status `cancelled`, because all clients accept this event as the end.
    """
    kind = FAILED if stored.status == CANCELLED else stored.status
    output = without_results(stored.object.get("output", ()))
    return encoded(f"response.{kind}", number, response={**stored.object, "output": output})
