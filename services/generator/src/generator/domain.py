"""The types of the generator: prompts, and the events of an answer."""

import enum
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message of a conversation.

    Attributes:
        role: ``system``, ``user``, ``assistant``, ``developer`` or ``tool``.
        text: The content if it is text.
        content_json: The content if it is a JSON array of parts; ``text`` is empty then.
        extra_json: The message's other members as a JSON object; empty: none.
    """

    role: str
    text: str = ""
    content_json: bytes = b""
    extra_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Source:
    """A passage for an answer.

    Attributes:
        name: Its name in citations.
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
    """A prompt of the platform.

    Attributes:
        messages: Oldest first, at least one.
        sources: The passages; the last message also contains them, for models that read only messages.
        parameters_json: Members of a chat completion request besides messages, model and stream, as a JSON object.
        question: The user's question without the sources.
        plain: The only message is a text to continue: no chat template; the parameters are a text completion's.
        in_one_piece: Request no stream from an OpenAI server, and pass its answer on unchanged.
        unary: Request no stream from an OpenAI server; the events are the same.
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
    """A prompt that is a chat completion request of the OpenAI API, as a client sent it: a JSON object."""

    body: bytes


Prompt = Conversation | OpenAIRequest


class EventKind(enum.IntEnum):
    """The kind of an event. The numbers are the contract's, so that a token needs no look-up."""

    START = 1
    TEXT = 2
    DELTA = 3
    FINISH = 4
    USAGE = 5
    CHUNK = 6
    COMPLETION = 7


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts; ``exact`` if the model itself counted."""

    prompt_tokens: int
    completion_tokens: int
    exact: bool


# A struct, because one is made per token: a frozen dataclass takes six times as long.
class Event(msgspec.Struct, frozen=True, gc=False):
    """A piece of an answer; the contract's EventKind defines which members are set.

    Attributes:
        choice: The number of its choice, from 0.
        raw_json: A JSON value, byte for byte as the model server sent it.
    """

    kind: EventKind
    choice: int = 0
    text: str = ""
    raw_json: bytes = b""
    usage: Usage | None = None
