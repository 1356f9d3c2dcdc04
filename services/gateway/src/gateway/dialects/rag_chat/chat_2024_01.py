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
    exchange_type = CompletionExchange

    def create_exchange(self, request: ChatRequest, turn: Turn, raw: dict[str, msgspec.Raw]) -> Exchange:
        """See `LineDialect`."""
        streaming = json_fields.pick(raw, ("stream",)).flag("stream")
        is_azure_js = request.frontend.client == azure_js.CLIENT
        exchange_type = azure_js.AzureJsExchange if is_azure_js else self.exchange_type
        return exchange_type(turn, self.state(turn, raw), streaming=streaming)


class Chat20240128(Chat202401):
    """`Dialect` of ``/chat``; the body's ``stream`` selects a stream."""

    name = "2024-01-28"
    roles = ("assistant", "user")
