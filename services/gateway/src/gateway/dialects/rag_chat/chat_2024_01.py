"""The RAG chat protocol of January 2024: ``/chat`` and ``/ask``, chat completions with a context.

Source: the protocol's specification, "HTTP protocol for RAG chat apps".
"""

import msgspec

from gateway.dialects import json_fields
from gateway.dialects.exchange import ChatRequest, Exchange
from gateway.dialects.rag_chat import azure_js
from gateway.dialects.rag_chat.completions import CompletionExchange
from gateway.dialects.rag_chat.stage import LineDialect
from gateway.domain import Turn


class Chat202401(LineDialect):
    """`Dialect` of ``/chat`` and ``/ask``; the body's ``stream`` selects a stream."""

    name = "2024-01"
    roles: tuple[str, ...] = ("system", "assistant", "user")
    exchange = CompletionExchange

    def answering(self, request: ChatRequest, turn: Turn, raw: dict[str, msgspec.Raw]) -> Exchange:
        """See `LineDialect`."""
        streaming = json_fields.pick(raw, ("stream",)).flag("stream")
        kind = azure_js.AzureJsExchange if request.frontend.client == azure_js.CLIENT else self.exchange
        return kind(turn, self.state(turn, raw), streaming=streaming)


class Chat20240128(Chat202401):
    """`Dialect` of ``/chat``; the body's ``stream`` selects a stream."""

    name = "2024-01-28"
    roles = ("assistant", "user")
