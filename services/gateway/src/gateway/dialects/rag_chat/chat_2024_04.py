"""The AI chat protocol of April 2024: JSON at ``/chat``, one JSON object per line at ``/chat/stream``.

Source: the protocol's specification; `docs/protocols.md` resolves its contradictions.
"""

from typing import Any

from gateway.dialects.rag_chat.stage import LineDialect, LineExchange, encode
from gateway.domain import Delta


class _Exchange(LineExchange):
    def first(self, context: dict[str, Any]) -> Any:
        return {"delta": {"role": "assistant"}, "context": context, "session_state": self.session_state}

    def piece(self, delta: Delta) -> bytes:
        return b'{"delta":{"content":%b,"function_call":null,"role":null,"tool_calls":null}}\n' % encode(delta.text)

    def last(self, context: dict[str, Any]) -> Any:
        return {"delta": {}, "context": context, "session_state": self.session_state}

    def whole(self, text: str, context: dict[str, Any]) -> Any:
        message = {"content": text, "function_call": None, "role": "assistant", "tool_calls": None}
        return {"message": message, "context": context, "session_state": self.session_state}


class Chat202404(LineDialect):
    """`Dialect` of ``/chat`` and ``/chat/stream``."""

    name = "2024-04"
    exchange_type = _Exchange
