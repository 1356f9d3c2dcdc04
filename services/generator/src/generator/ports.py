"""What the service needs from a model, whoever serves it."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from generator.domain import ChatMessage, Event, Prompt


class TokenCounter(Protocol):
    """Counts tokens as a model does; may be called from any thread."""

    @property
    def exact(self) -> bool:
        """It is the model's own tokenizer, not an estimate."""
        ...

    @property
    def counting(self) -> str:
        """Name of the way of counting, the same in each process; equal names count a text alike.

        Empty where the count of a text may change.
        """
        ...

    def count(self, text: str) -> int:
        """Tokens of a plain text, without what a chat template adds."""
        ...

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """`count` of each text; side by side, where that is faster."""
        ...

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Tokens of a conversation with what the chat template adds."""
        ...


class Model(Protocol):
    """A model under its public name.

    Attributes:
        owned_by: Who serves it, as the OpenAI API says it.
        only_quotes: It answers with sentences of its sources and follows no instructions.
    """

    name: str
    owned_by: str
    only_quotes: bool

    @property
    def tokens(self) -> TokenCounter:
        """Counts for it."""
        ...

    def generate(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """The answer as it is made. Closing the generator, or cancelling who reads it, stops the model at once.

        To a `Conversation` the events are START (again only if later parts of the answer bring further members),
        then TEXT and DELTA in order, one FINISH a choice, and USAGE. To an `OpenAIRequest` they are one COMPLETION,
        or CHUNKs. The model's stream is read no further than events are taken, so a slow reader slows it.

        Raises:
            InvalidRequest: The prompt holds something this model cannot take.
            UpstreamRejected: The model server refused; its status and body are kept.
            DeadlineExceeded: Nothing came from the model server for too long.
            Unavailable: It cannot be reached, or it ended the answer early; what was good has been yielded.
        """
        ...

    async def context_window(self) -> int:
        """The most tokens of prompt and answer together; 0 where it is not known."""
        ...

    async def created(self) -> int:
        """When it was created, in seconds since 1970; 0 where it is not known."""
        ...

    async def ready(self) -> bool:
        """Can be reached now, as far as a short look can tell."""
        ...

    async def aclose(self) -> None:
        """Releases what it holds."""
        ...
