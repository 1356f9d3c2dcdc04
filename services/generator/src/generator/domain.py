"""What the generator speaks of: prompts, and the events that an answer consists of."""

import enum
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message of a conversation.

    Attributes:
        role: ``system``, ``user``, ``assistant``, ``developer`` or ``tool``.
        text: The content, where it is text.
        content_json: The content as a JSON array of parts, where it is one; then ``text`` is empty.
        extra_json: The message's other members as a JSON object; empty means none.
    """

    role: str
    text: str = ""
    content_json: bytes = b""
    extra_json: bytes = b""


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that an answer can rest on.

    Attributes:
        name: How it is cited.
        text: Of the passage.
        score: Higher is more relevant.
        cosine: Of the question's vector and the passage's; None where it is not known.
    """

    name: str
    text: str
    score: float = 0.0
    cosine: float | None = None


@dataclass(frozen=True, slots=True)
class Conversation:
    """A prompt that the platform put together.

    Attributes:
        messages: Oldest first, at least one.
        sources: What the last message rests on; its text holds them, too, for models that read only that.
        parameters_json: Members of a chat completion request besides messages, model and stream, as a JSON object.
        question: What the user asked, without the sources around it.
        plain: The one message is a text to go on with: no chat template; the parameters are a text completion's.
        in_one_piece: An OpenAI server is asked for no stream, and its answer crosses as it came.
        unary: An OpenAI server is asked for no stream; the events are the same.
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
    """What an event is. The numbers are the contract's, so that none is looked up on a token's way."""

    START = 1
    TEXT = 2
    DELTA = 3
    FINISH = 4
    USAGE = 5
    CHUNK = 6
    COMPLETION = 7


@dataclass(frozen=True, slots=True)
class Usage:
    """Numbers of tokens; ``exact`` where the model itself counted."""

    prompt_tokens: int
    completion_tokens: int
    exact: bool


# A struct, because one is made for every token: a frozen dataclass takes six times as long.
class Event(msgspec.Struct, frozen=True, gc=False):
    """A piece of an answer; which members are set is said by the contract's EventKind.

    Attributes:
        choice: Which of the ``n`` choices it belongs to, from 0.
        raw_json: A JSON value, byte for byte as the model server sent it.
    """

    kind: EventKind
    choice: int = 0
    text: str = ""
    raw_json: bytes = b""
    usage: Usage | None = None
