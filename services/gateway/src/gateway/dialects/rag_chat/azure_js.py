"""Extensions for the chat component of the Azure RAG sample in JavaScript.

The component reads ``context`` inside the message, ``thoughts`` as one string of HTML, and follow-up questions only
from the text. It treats numbers in the text as numbers of steps. If a piece contains such a number, the component
drops the rest of the piece.
"""

import html
import re
from collections.abc import Iterable
from typing import Any

from gateway.dialects.rag_chat.completions import CompletionExchange
from gateway.domain import Delta

CLIENT = "azure-js-component"
"""The name of the client in a profile."""

# A piece is a word with the spaces before it, up to three digits, a punctuation mark, spaces, or one of the marks
# << and >> around a follow-up question.
_PIECES = re.compile(r"<<|>>\n?|\d{1,3}|\s*[^\W\d]+|[^\w\s]|\s+")


class AzureJsExchange(CompletionExchange):
    """`Exchange` of one turn with this client."""

    def with_context(self, name: str, members: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
        """See `CompletionExchange`. The context is inside the message."""
        html_context = context | {"thoughts": thoughts_html(context["thoughts"])}
        return {name: {**members, "context": html_context}, "session_state": self.session_state}

    def piece(self, delta: Delta) -> bytes:
        """See `LineExchange`. Each small piece is a line."""
        return self._lines(delta.text)

    def before_last(self) -> bytes:
        """See `LineExchange`. These lines contain the follow-up questions."""
        return self._lines(follow_ups_text(self.answer.follow_ups))

    def whole(self, text: str, context: dict[str, Any]) -> Any:
        """See `LineExchange`."""
        return super().whole(text + follow_ups_text(self.answer.follow_ups), context)

    def _lines(self, text: str) -> bytes:
        return b"".join(map(self.text_line, pieces(text)))


def pieces(text: str) -> list[str]:
    """Split a text into small pieces, which the client requires."""
    return _PIECES.findall(text)


def follow_ups_text(questions: Iterable[str]) -> str:
    """Return the follow-up questions in the format that the component reads after the text."""
    marked = "".join(f"<<{question}>>\n" for question in questions)
    return f"\n\n{marked}" if marked else ""


def thoughts_html(thoughts: Iterable[dict[str, Any]]) -> str:
    """Return thoughts as one string of HTML; all texts in it are escaped."""
    return "".join(
        f"<h3>{html.escape(str(thought['title']))}</h3>{_description_html(thought['description'])}"
        for thought in thoughts
    )


def _description_html(description: Any) -> str:
    if not isinstance(description, list):
        return f"<p>{html.escape(str(description))}</p>"
    return f"<ul>{''.join(f'<li>{html.escape(_item_text(item))}</li>' for item in description)}</ul>"


def _item_text(item: Any) -> str:
    return f"{item['sourcepage']}: {item['content']}" if isinstance(item, dict) else str(item)
