"""The RAG chat protocol as of January 2024: ``/chat`` and ``/ask``, chat completions with a context.

Source: the protocol's specification, "HTTP protocol for RAG chat apps".
"""

import msgspec

from gateway.domain import Turn
from gateway.protocols import azure_js, reading
from gateway.protocols.completion_lines import CompletionExchange
from gateway.protocols.exchange import ChatRequest, Exchange
from gateway.protocols.lines import LineDialect


class Chat202401(LineDialect):
    """`Dialect` of ``/chat`` and ``/ask``; the body's ``stream`` decides."""

    name = "2024-01"
    roles: tuple[str, ...] = ("system", "assistant", "user")
    exchange = CompletionExchange

    def answering(self, request: ChatRequest, turn: Turn, raw: dict[str, msgspec.Raw]) -> Exchange:
        """See `LineDialect`."""
        streaming = reading.pick(raw, ("stream",)).flag("stream")
        kind = azure_js.AzureJsExchange if request.frontend.client == azure_js.CLIENT else self.exchange
        return kind(turn, self.state(raw), streaming=streaming)
