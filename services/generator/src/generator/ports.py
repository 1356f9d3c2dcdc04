"""The interface of a model, for every kind of server."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from generator.domain import ChatMessage, Event, Prompt


class TokenCounter(Protocol):
    """Counts tokens as a model does; any thread may call it."""

    @property
    def exact(self) -> bool:
        """Return whether it is the model's own tokenizer, not an estimate."""
        ...

    @property
    def counting(self) -> str:
        """Return the name of the way of counting; equal names give equal counts in all processes.

        Empty if the count of a text may change.
        """
        ...

    def count(self, text: str) -> int:
        """Return the tokens of a plain text, without those of a chat template."""
        ...

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return `count` of each text; concurrently if that is faster."""
        ...

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the tokens of a conversation with those of the chat template."""
        ...


class Model(Protocol):
    """A model under its public name.

    Attributes:
        owned_by: Its owner, in the OpenAI API's sense.
        only_quotes: It answers with sentences of its sources and follows no instructions.
    """

    name: str
    owned_by: str
    only_quotes: bool

    @property
    def tokens(self) -> TokenCounter:
        """Return the token counter of the model."""
        ...

    def generate(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """Yield the answer while it is generated. Closing the generator or cancelling its reader stops the model.

        For a `Conversation` the events are START (repeated only if later parts of the answer have further members),
        then TEXT and DELTA in order, one FINISH per choice, and USAGE. For an `OpenAIRequest` they are one
        COMPLETION, or CHUNKs. The model's stream is read no further than events are taken, so a slow reader slows
        it down.

        Raises:
            InvalidRequest: The prompt has something that this model does not accept.
            UpstreamRejected: The model server refused; its status and body are kept.
            DeadlineExceeded: The model server sent nothing in time.
            Unavailable: It cannot be reached, or it ended the answer early; the valid part has been yielded.
        """
        ...

    async def context_window(self) -> int:
        """Return the most tokens of prompt and answer together; 0 if it is not known."""
        ...

    async def created(self) -> int:
        """Return when it was created, in seconds since 1970; 0 if it is not known."""
        ...

    async def ready(self) -> bool:
        """Return whether it can be reached now, by a short check."""
        ...

    async def aclose(self) -> None:
        """Release its resources."""
        ...
