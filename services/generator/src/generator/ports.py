"""The interface of a model, for every kind of server."""

from collections.abc import AsyncGenerator, Sequence
from typing import Protocol

from servicekit.errors import DeadlineExceeded

from generator.domain import ChatMessage, Event, Prompt


class TokenCounter(Protocol):
    """Counts tokens as a model does; any thread may call it."""

    @property
    def exact(self) -> bool:
        """Return whether the counts of texts come from the model's own tokenizer; False: they are estimates.

        The count of a conversation may contain an estimate, even if this is True: the tokens of an unknown chat
        template, and of parts that are not text.
        """
        ...

    @property
    def counting(self) -> str:
        """Return the name of the counting method; equal names give equal counts in all processes.

        Empty if the count of a text may change.
        """
        ...

    def count(self, text: str) -> int:
        """Return the number of tokens of a plain text, without the tokens of a chat template."""
        ...

    def count_all(self, texts: Sequence[str]) -> list[int]:
        """Return the counts of several texts; count concurrently if that is faster."""
        ...

    def count_messages(self, messages: Sequence[ChatMessage]) -> int:
        """Return the number of tokens of a conversation, including the tokens of the chat template."""
        ...


class Model(Protocol):
    """A model under its public name.

    Attributes:
        name: The public name.
        owned_by: The owner, as the list of models of the OpenAI API shows it.
        only_quotes: The model answers with sentences of the sources, and follows no instructions.
    """

    name: str
    owned_by: str
    only_quotes: bool

    @property
    def tokens(self) -> TokenCounter:
        """Return the token counter of the model."""
        ...

    def generate(self, prompt: Prompt) -> AsyncGenerator[Event, None]:
        """Yield the events of the answer. Closing the generator or cancelling its consumer stops the model.

        For a `Conversation`, the first event is START. TEXT and DELTA follow in order, then one FINISH per choice,
        and USAGE if the server reports it. Another START follows if a later chunk has new members outside
        ``choices``, for example citations. With ``in_one_piece``, the only event of an unstreamed answer of an
        OpenAI server is COMPLETION. For an `OpenAIRequest`, the events are one COMPLETION, or CHUNKs.

        The adapter reads the model's stream as fast as the consumer requests events. A slow consumer slows the
        model server down.

        Raises:
            InvalidRequest: The prompt contains a part that this model does not accept.
            UpstreamRejected: The model server refused the request; the error has the server's status and body.
            DeadlineExceeded: The model server did not answer in time.
            Unavailable: The model server cannot be reached, or it ended the answer early after the yielded events.
        """
        ...

    async def context_window(self) -> int:
        """Return the maximum number of tokens of prompt and answer together; 0 if unknown."""
        ...

    async def created(self) -> int:
        """Return the time of the model's creation, in seconds since 1970; 0 if unknown."""
        ...

    async def ready(self) -> bool:
        """Check briefly whether the model can be reached now."""
        ...

    async def aclose(self) -> None:
        """Release the model's resources."""
        ...


def too_slow(seconds: float, what: str) -> DeadlineExceeded:
    """Return the error for a time-out of a model server.

    Args:
        seconds: The time-out.
        what: The predicate of the sentence "The model server …".
    """
    return DeadlineExceeded(f"The model server {what} within {seconds:g} s.")
