"""The AI chat protocol of 10 April 2026: events with the names of OpenAI's responses API, one per line.

No specification is published; `docs/protocols.md` describes what its clients read.
"""

from typing import Any

from gateway.dialects.rag_chat import context as context_block
from gateway.dialects.rag_chat.stage import LineDialect, LineExchange, encode
from gateway.domain import Delta


class _Exchange(LineExchange):
    formats = context_block.LATEST_FORMATS

    def first(self, context: dict[str, Any]) -> Any:
        return {"type": "response.context", "context": context, "session_state": self.session_state}

    def piece(self, delta: Delta) -> bytes:
        return b'{"type":"response.output_text.delta","delta":%b}\n' % encode(delta.text)

    def last(self, context: dict[str, Any]) -> Any:
        # Clients replace their context, so the last line repeats the whole context.
        return self.first(self.opening() | context)

    def whole(self, text: str, context: dict[str, Any]) -> Any:
        return {"output_text": text, "context": context, "session_state": self.session_state}


class Chat20260410(LineDialect):
    """`Dialect` of ``/chat`` and ``/chat/stream``."""

    name = "2026-04-10"
    exchange_type = _Exchange
