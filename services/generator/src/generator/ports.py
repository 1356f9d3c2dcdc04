"""The interface of a model, for every kind of server."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from generator.domain import ChatMessage, Event, Prompt


class TokenCounter(Protocol):
    """Counts tokens as a model does; any thread may call it."""

    @property
    def exact(self) -> bool:
        """Return whether the counts come from the model's own tokenizer; False: they are estimates."""
        ...

    @property
    def counting(self) -> str:
        """Return the name of the counting method; equal names give equal counts in all processes.

        Empty if the count of a text may change.
        """
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens of a plain text, without those of a chat template."""
        ...

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the counts of several texts; count concurrently if that is faster."""
        ...

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the number of tokens of a conversation, including those of the chat template."""
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
        COMPLETION, or CHUNKs. The generator reads the model's stream only as fast as the reader takes events, so a
        slow reader slows the model server down.

        Raises:
            InvalidRequest: The prompt contains a part that this model does not accept.
            UpstreamRejected: The model server refused; its status and body are kept.
            DeadlineExceeded: The model server did not answer in time.
            Unavailable: The model server cannot be reached, or it ended the answer early after the yielded events.
        """
        ...

    async def context_window(self) -> int:
        """Return the maximum number of tokens of prompt and answer together; 0 if it is not known."""
        ...

    async def created(self) -> int:
        """Return the time of the model's creation, in seconds since 1970; 0 if it is not known."""
        ...

    async def ready(self) -> bool:
        """Check briefly whether the model can be reached now."""
        ...

    async def aclose(self) -> None:
        """Release the model's resources."""
        ...
