"""What is known of models."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Model:
    """A model that can be asked for."""

    name: str
    context_window: int
    owned_by: str
    created: int
    ready: bool
    takes_pictures: bool = False


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """What a model counts, and what must be known of it beside.

    Attributes:
        texts: One number a text.
        messages: Of the conversation.
        context_window: 0 where it is not known.
        only_quotes: It answers with sentences of its sources and follows no instructions: it can be asked neither
            for a search query nor for questions.
        takes_pictures: It takes pictures among a message's parts.
        calls_tools: It calls tools that a request offers it.
    """

    texts: tuple[int, ...]
    messages: int
    context_window: int
    only_quotes: bool = False
    takes_pictures: bool = False
    calls_tools: bool = False
