"""The chat component of the Azure RAG sample in javascript: what it needs beyond the protocol that it speaks.

It reads ``context`` inside of the message, ``thoughts`` as one string of HTML, and follow-up questions from the
text alone. It takes numbers for those of steps, and leaves out of the text whatever came in one piece with one.
"""

import html
import re
from collections.abc import Iterable
from typing import Any

from gateway.dialects.rag_chat.completions import CompletionExchange
from gateway.domain import Delta

CLIENT = "azure-js-component"
"""What a profile calls it."""

# As small as tokens: a word with the spaces before it, a few digits, one mark. The marks of a question stand alone.
_PIECES = re.compile(r"<<|>>\n?|\d{1,3}|\s*[^\W\d]+|[^\w\s]|\s+")


class AzureJsExchange(CompletionExchange):
    """`Exchange` of one turn with this client."""

    def with_context(self, name: str, said: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """See `CompletionExchange`: inside of what is said."""
        shown = context | {"thoughts": thoughts_html(context["thoughts"])}
        return {name: {**said, "context": shown}, "session_state": self.session_state}

    def piece(self, delta: Delta) -> bytes:
        """See `LineExchange`: a line for each token's worth."""
        return self._lines(delta.text)

    def before_last(self) -> bytes:
        """See `LineExchange`: the follow-up questions."""
        return self._lines(follow_ups_text(self.answer.follow_ups))

    def whole(self, text: str, context: dict[str, Any]) -> Any:
        """See `LineExchange`."""
        return super().whole(text + follow_ups_text(self.answer.follow_ups), context)

    def _lines(self, text: str) -> bytes:
        return b"".join(map(self.text_line, pieces(text)))


def pieces(text: str) -> list[str]:
    """A text in pieces that the client reads; they add up to the text."""
    return _PIECES.findall(text)


def follow_ups_text(questions: Iterable[str]) -> str:
    """Questions as they stand behind an answer."""
    marked = "".join(f"<<{question}>>\n" for question in questions)
    return f"\n\n{marked}" if marked else ""


def thoughts_html(thoughts: Iterable[dict[str, Any]]) -> str:
    """Thoughts as one string of HTML, in which nothing that was said or found is markup."""
    return "".join(
        f"<h3>{html.escape(str(thought['title']))}</h3>{_described(thought['description'])}" for thought in thoughts
    )


def _described(description: Any) -> str:
    if not isinstance(description, list):
        return f"<p>{html.escape(str(description))}</p>"
    return f"<ul>{''.join(f'<li>{html.escape(_line(item))}</li>' for item in description)}</ul>"


def _line(item: Any) -> str:
    return f"{item['sourcepage']}: {item['content']}" if isinstance(item, dict) else str(item)
