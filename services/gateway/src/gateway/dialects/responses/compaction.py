"""``POST /v1/responses/compact``: a summary that replaces a conversation."""

from dataclasses import replace
from typing import Any

import msgspec
from servicekit.errors import CausewayError, InvalidRequest

from gateway.dialects import json_fields
from gateway.dialects.exchange import ChatRequest, Exchange
from gateway.dialects.responses import record
from gateway.dialects.responses.conversation import Item
from gateway.dialects.responses.dialect import Responses
from gateway.dialects.responses.exchange import ResponsesExchange
from gateway.dialects.responses.item_cipher import COMPACTION
from gateway.dialects.responses.members import usage_of
from gateway.domain import Usage
from gateway.domain.responses import with_id

READ = (
    *("detectors", "image", "input", "instructions", "model", "previous_response_id", "prompt_cache_key"),
    *("prompt_cache_options", "prompt_cache_retention", "service_tier"),
)
"""The allowed members of a request."""

_encode = msgspec.json.encode


class Compactions:
    """`Dialect` of ``POST /v1/responses/compact``.

    Args:
        responses: The dialect that parses the request. A request for a response has the same members and more.
    """

    name = "responses"
    media = Responses.media

    def __init__(self, responses: Responses) -> None:
        self._responses = responses

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`. The gateway does not store the summary."""
        raw = json_fields.members(request.body)
        for name in raw:
            if name not in READ:
                raise InvalidRequest(f"{name[:100]} is not a parameter of this request.", field=name[:100])
        continued = replace(request.continued, store=False)
        return self._responses.parse(replace(request, continued=continued), CompactionExchange)

    def error(self, error: CausewayError) -> bytes:
        """See `Dialect`."""
        return self._responses.error(error)


class CompactionExchange(ResponsesExchange):
    """`Exchange` of one summary. The answer contains the user's messages and then the summary."""

    compacts = True

    def complete(self) -> bytes:
        """See `Exchange`.

        Raises:
            InvalidRequest: A detector blocks the conversation or the summary.
        """
        items = [item for item in self.final()["output"] if item["type"] == COMPACTION]
        if not items:
            raise InvalidRequest("input: the detectors block this conversation or its summary.", field="input")
        response: dict[str, Any] = {
            "id": self.response_id,
            "object": "response.compaction",
            "created_at": self.created,
            "output": [*self._user_messages(), *items],
            "usage": usage_of(self.usage or Usage(0, 0)),
        }
        if (image := self.checked.response_members["image"]) is not None:
            response["image"] = image
        return _encode(response)

    def _user_messages(self) -> list[Item]:
        """Return the user's messages after the last summary, as the detectors changed them."""
        earlier_items: list[Item] = []
        for item in self.continued.items:
            earlier_items = [] if item["type"] == COMPACTION else [*earlier_items, item]
        redacted_items = record.redacted_input(
            self.checked.input_items, self.checked.paths, self.turn, self.checked_turn
        )
        user_messages = [
            item
            for item in (*earlier_items, *redacted_items)
            if item["type"] == "message" and item["role"] == "user"
        ]
        return [
            with_id(item, self.response_id, f"u{at}") | {"status": "completed"}
            for at, item in enumerate(user_messages)
        ]
