"""The domain types of the generator: prompts, and the events of an answer."""

import enum
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message of a conversation.

    Attributes:
        role: The role in the OpenAI API: ``system``, ``user``, ``assistant``, ``developer``, ``tool``, or the
            deprecated ``function``.
        text: The content if it is a text.
        content_json: The content if it is a JSON array of parts. ``text`` is then empty.
        extra_json: The other members of the message as a JSON object; empty if the message has no others.
    """

    role: str
    text: str = ""
    content_json: bytes = b""
    extra_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that an answer may cite.

    Attributes:
        name: The name of the passage in citations.
        text: The text of the passage.
        score: Higher is more relevant.
        cosine: The cosine similarity of question and passage; None if it is not known.
    """

    name: str
    text: str
    score: float = 0.0
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt in the platform's own format.

    Attributes:
        messages: At least one message, oldest first.
        sources: The passages. The last message also contains the passages, for models that read only messages.
        parameters_json: Members of a chat completion request besides messages, model and stream, as a JSON object.
        question: The user's question without the sources.
        plain: The only message is a text that the model continues, without a chat template. The parameters are
            those of a text completion.
        in_one_piece: Request no stream from an OpenAI server, and pass its answer on unchanged.
        unary: Request no stream from an OpenAI server. The events are the same as for a stream.
    """

    messages: tuple[ChatMessage, ...]
    sources: tuple[Source, ...] = ()
    parameters_json: bytes = b"{}"
    question: str = ""
    plain: bool = False
    in_one_piece: bool = False
    unary: bool = False


@dataclass(frozen=True, slots=True)
class OpenAIRequest:
    """A prompt that is a client's unchanged chat completion request of the OpenAI API, a JSON object."""

    body: bytes


Prompt = Conversation | OpenAIRequest


class EventKind(enum.IntEnum):
    """The kind of an event.

    The numbers equal those of ``EventKind`` in ``generator.proto``, so that a token needs no conversion.
    """

    START = 1
    TEXT = 2
    DELTA = 3
    FINISH = 4
    USAGE = 5
    CHUNK = 6
    COMPLETION = 7


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts. ``exact``: the model or its server counted the tokens; otherwise the counts are estimates."""

    prompt_tokens: int
    completion_tokens: int
    exact: bool


# A struct, because each token creates an event, and a frozen dataclass takes six times as long.
class Event(msgspec.Struct, frozen=True, gc=False):
    """A piece of an answer; ``EventKind`` in ``generator.proto`` defines which members are set.

    Attributes:
        choice: The number of the event's choice, from 0.
        raw_json: A JSON value from the model server, or from the generator for a model without the OpenAI API.
    """

    kind: EventKind
    choice: int = 0
    text: str = ""
    raw_json: bytes = b""
    usage: Usage | None = None
