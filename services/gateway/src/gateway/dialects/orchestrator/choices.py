"""The formats of a choice in chat completions and in text completions with detections.

Sources: the OpenAI API reference for chat completions and for (legacy) completions.
"""

from typing import Any, Protocol

from gateway.dialects.answer import Choice
from gateway.domain.deltas import as_chunk_choice, drop_indexes, index_of


class CompletionFormat(Protocol):
    """The format of one kind of completion.

    Attributes:
        prefix: The prefix of the completion's id.
        completion_object: The value of ``object`` in a completion in one piece.
        chunk_object: The value of ``object`` in a chunk.
        request_name: The name of the request to a model in error messages.
        joins_finish: Whether the event with the last text of a choice also has the finish reason.
    """

    prefix: str
    completion_object: str
    chunk_object: str
    request_name: str
    joins_finish: bool

    def chunk_choice(self, text: str | None, members: dict[str, Any], *, role: bool) -> dict[str, Any]:
        """Return a choice of a chunk.

        Args:
            text: The content, or None if the choice has no content.
            members: The members of the choice other than the content.
            role: Whether to add the role.
        """
        ...

    def complete(self, choice: Choice) -> dict[str, Any]:
        """Return a choice of an answer in one piece."""
        ...

    def to_chunk_choice(self, choice: dict[str, Any], position: int) -> dict[str, Any]:
        """Convert a complete choice of a model server, at a position in the list, to a choice of a chunk."""
        ...

    def has_content(self, choice: dict[str, Any]) -> bool:
        """Return whether a model server's complete choice has content."""
        ...


class ChatFormat:
    """`CompletionFormat` of chat completions."""

    prefix = "chatcmpl-"
    completion_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    request_name = "chat completion"
    joins_finish = False

    def chunk_choice(self, text: str | None, members: dict[str, Any], *, role: bool) -> dict[str, Any]:
        """See `CompletionFormat`."""
        delta: dict[str, Any] = {"role": "assistant"} if role else {}
        if text is not None:
            delta["content"] = text
        return {"delta": delta | members}

    def complete(self, choice: Choice) -> dict[str, Any]:
        """See `CompletionFormat`."""
        content = choice.text if choice.texts or not choice.delta else None
        message: dict[str, Any] = {"role": "assistant", "content": content} | choice.delta
        drop_indexes(message)
        return {"message": message}

    def to_chunk_choice(self, choice: dict[str, Any], position: int) -> dict[str, Any]:
        """See `CompletionFormat`."""
        return as_chunk_choice(choice, position)

    def has_content(self, choice: dict[str, Any]) -> bool:
        """See `CompletionFormat`."""
        message = choice.get("message")
        return isinstance(message, dict) and bool(message.get("content"))


class TextFormat:
    """`CompletionFormat` of text completions."""

    prefix = "cmpl-"
    completion_object = chunk_object = "text_completion"
    request_name = "completion"
    joins_finish = True

    def chunk_choice(self, text: str | None, members: dict[str, Any], *, role: bool) -> dict[str, Any]:  # noqa: ARG002  # a text has no role
        """See `CompletionFormat`."""
        return {"text": text or ""} | members

    def complete(self, choice: Choice) -> dict[str, Any]:
        """See `CompletionFormat`."""
        return {"text": choice.text} | choice.delta

    def to_chunk_choice(self, choice: dict[str, Any], position: int) -> dict[str, Any]:
        """See `CompletionFormat`."""
        return choice | {"index": index_of(choice, position)}

    def has_content(self, choice: dict[str, Any]) -> bool:
        """See `CompletionFormat`."""
        return bool(choice.get("text"))
