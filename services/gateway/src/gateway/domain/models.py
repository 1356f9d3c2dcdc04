"""The types of models."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A model that a request can name.

    Attributes:
        context_window: The size of the context window in tokens, or 0 if it is not known.
        owned_by: The owner, as OpenAI's API names it.
        created: The time of creation, in seconds since 1970.
        ready: Whether the model can be reached now.
        takes_pictures: Whether the model accepts pictures among the parts of a message.
    """

    name: str
    context_window: int
    owned_by: str
    created: int
    ready: bool
    takes_pictures: bool = False


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Token counts of a model, and its properties.

    Attributes:
        texts: The number of tokens of each text.
        messages: The number of tokens of the conversation.
        context_window: The size of the context window in tokens, or 0 if it is not known.
        only_quotes: Whether the model only answers with sentences of its sources and follows no instructions. Such
            a model can generate neither a search query nor questions.
        takes_pictures: Whether the model accepts pictures among the parts of a message.
        calls_tools: Whether the model can call the tools that a request offers.
    """

    texts: tuple[int, ...]
    messages: int
    context_window: int
    only_quotes: bool = False
    takes_pictures: bool = False
    calls_tools: bool = False
