"""Chat completions with a context in the choice, as in the first stages of the RAG chat protocol."""

import time
import uuid
from typing import Any

import msgspec

from gateway.dialects.answer import usage_object
from gateway.dialects.rag_chat.stage import LineExchange, encode
from gateway.domain import Delta, Turn
from gateway.domain.deltas import members_of

_FILTERED = "content_filter_results"


class CompletionExchange(LineExchange):
    """`Exchange` of one turn.

    The answer has the model server's ``id``, ``created``, ``usage`` and similar members if the model server sends
    them. Every line that is not an error has a choice.
    """

    def __init__(self, turn: Turn, session_state: msgspec.Raw, *, streaming: bool) -> None:
        super().__init__(turn, session_state, streaming=streaming)
        self._defaults = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": turn.answer_model,
        }
        # The constant bytes around all pieces of text, and the number of the model server's members in them.
        self._text_frame: tuple[bytes, bytes] = (b"", b"")
        self._framed_members = -1

    def first(self, context: dict[str, Any]) -> Any:
        """See `LineExchange`."""
        choice = self.with_context("delta", {"role": "assistant"}, context) | {"finish_reason": None, "index": 0}
        return {"choices": [choice], "object": "chat.completion.chunk"}

    def piece(self, delta: Delta) -> bytes:
        """See `LineExchange`."""
        filtered = members_of(delta.choice_json).get(_FILTERED) if delta.choice_json else None
        return self.text_line(delta.text, filtered)

    def last(self, context: dict[str, Any]) -> Any:
        """See `LineExchange`."""
        known = self._known()
        choice = self.with_context("delta", {}, context) | self._choice_end()
        return {
            "id": known["id"],
            "choices": [choice],
            "created": known["created"],
            "model": known["model"],
            "object": "chat.completion.chunk",
            "system_fingerprint": known.get("system_fingerprint"),
            "prompt_filter_results": known.get("prompt_filter_results") or [],
            "usage": usage_object(self.answer.usage),
        }

    def whole(self, text: str, context: dict[str, Any]) -> Any:
        """See `LineExchange`."""
        message = {"content": text, "function_call": None, "role": "assistant", "tool_calls": None}
        known = self._known()
        return {
            "choices": [self.with_context("message", message, context) | self._choice_end()],
            "created": known["created"],
            "id": known["id"],
            "model": known["model"],
            "object": "chat.completion",
            "prompt_filter_results": known.get("prompt_filter_results") or [],
            "system_fingerprint": known.get("system_fingerprint"),
            "usage": usage_object(self.answer.usage),
        }

    def with_context(self, name: str, members: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """Return a choice with the context of the answer.

        Args:
            name: ``message`` or ``delta``.
            members: The members under this name.
            context: The context of the answer.
        """
        return {name: members, "context": context, "session_state": self.session_state}

    def text_line(self, text: str, filtered: Any = None) -> bytes:
        """Return the line of a piece of text."""
        if len(self.answer.start) != self._framed_members:
            self._text_frame = self._frame()
            self._framed_members = len(self.answer.start)
        head, tail = self._text_frame
        return b'%b%b,"function_call":null,"role":null,"tool_calls":null},"finish_reason":null,"index":0,%b%b' % (
            head,
            encode(text),
            encode({_FILTERED: filtered or {}})[1:-1],
            tail,
        )

    def _frame(self) -> tuple[bytes, bytes]:
        known = self._known()
        head = b'{"id":%b,"choices":[{"delta":{"content":' % encode(known["id"])
        constants = {
            "created": known["created"],
            "model": known["model"],
            "object": "chat.completion.chunk",
            "system_fingerprint": known.get("system_fingerprint"),
        }
        return head, b"}]," + encode(constants)[1:] + b"\n"

    def _known(self) -> dict[str, Any]:
        return self._defaults | {name: value for name, value in self.answer.start.items() if value is not None}

    def _choice_end(self) -> dict[str, Any]:
        choice = self.choice
        return {
            "finish_reason": choice.finish_reason or "stop",
            "index": 0,
            _FILTERED: choice.members.get(_FILTERED) or {},
        }
