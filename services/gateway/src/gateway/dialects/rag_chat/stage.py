r"""What the stages of the RAG chat protocol have in common: their requests, and answers of one JSON object a line.

A first line with what the answer rests on, a line for each piece of text, a last line with all thoughts. Every line
ends with ``\n``; there is no end marker. One turn has one answer: further choices have no place in this protocol.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from servicekit.errors import CausewayError, NotFound

from gateway.dialects import json_fields, upstream_errors
from gateway.dialects.answer import Answer, Choice
from gateway.dialects.exchange import ChatRequest, Exchange, Media
from gateway.dialects.problem import one_line
from gateway.dialects.rag_chat import context as context_block
from gateway.dialects.rag_chat import conversation, overrides
from gateway.domain import Batch, Delta, Done, Message, Turn
from gateway.domain.memory import new_name
from gateway.domain.turn import Session

encode = msgspec.json.encode

_NULL = b"null"
_LONGEST_NAME = 100
_WITHOUT_INDEX = (
    "Add a document to it, or set another one: `index` of the front end's profile, or CAUSEWAY_DEFAULT_INDEX."
)


def error_text(error: CausewayError) -> bytes:
    """Return an error as most stages have it, and the routes that their front ends call beside the chat.

    An index that is missing is seldom named by the user, so the error says where it is set.
    """
    is_index = isinstance(error, NotFound) and error.field == "index"
    return encode({"error": f"{error.message} {_WITHOUT_INDEX}" if is_index else error.message})


class LineExchange(ABC):
    """`Exchange` of one turn; each stage says what its lines look like.

    Args:
        turn: What is asked.
        session_state: Goes back byte for byte, but for line breaks, which would end a line of the stream.
        streaming: Whether the answer is streamed.
    """

    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, turn: Turn, session_state: msgspec.Raw, *, streaming: bool) -> None:
        self.turn = turn
        self.streaming = streaming
        self.session_state = msgspec.Raw(one_line(bytes(session_state)))
        self.answer = Answer()
        self._begun = False

    # --- what a stage says ------------------------------------------------------------------------------------

    @abstractmethod
    def first(self, context: dict[str, Any]) -> Any:
        """The first line: the role, and what is known before the first word."""

    @abstractmethod
    def piece(self, delta: Delta) -> bytes:
        """The line of the next piece of text, ended; the hot path. Also several lines, or none."""

    def before_last(self) -> bytes:
        """Lines that still follow the text; in most stages none."""
        return b""

    @abstractmethod
    def last(self, context: dict[str, Any]) -> Any:
        """The last line: what is known at the end."""

    @abstractmethod
    def whole(self, text: str, context: dict[str, Any]) -> Any:
        """The answer in one piece."""

    @staticmethod
    def error(error: CausewayError) -> bytes:
        """The object of an error, in an answer of its own or as a line; in most stages a string."""
        return error_text(error)

    views = context_block.USUAL
    """How what not all stages show alike is shown."""

    # --- `Exchange` -------------------------------------------------------------------------------------------

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`."""
        self.answer.take([event for event in batch if type(event) is not Delta])
        out: list[bytes] = []
        if not self._begun and self.answer.context is not None:
            self._begun = True
            out.append(encode(self.first(self.opening())) + b"\n")
        for event in batch:
            if type(event) is Delta:
                if event.text and event.choice == 0:
                    out.append(self.piece(event))
            elif type(event) is Done:
                out += (self.before_last(), encode(self.last(self.closing())), b"\n")
        return b"".join(out)

    def render_failure(self, error: CausewayError) -> bytes:
        """See `Exchange`: a line with the error."""
        return self.error(upstream_errors.translated(error)) + b"\n"

    def take(self, batch: Batch) -> None:
        """See `Exchange`."""
        self.answer.take(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        return encode(self.whole(self.choice.text, self.opening() | self.closing()))

    # --- what the lines are made of ---------------------------------------------------------------------------

    @property
    def choice(self) -> Choice:
        """The one answer that there is, so far."""
        return self.answer.choices.get(0) or Choice()

    def opening(self) -> dict[str, Any]:
        """``context`` before the first word."""
        assert self.answer.context is not None
        return context_block.opening(self.turn, self.answer.context, self.views)

    def closing(self) -> dict[str, Any]:
        """``context`` at the end, without data points."""
        return context_block.closing(self.turn, self.answer, self.views)


class LineDialect:
    """A stage of the protocol: a `Dialect` whose requests are JSON objects with ``messages`` and ``context``.

    Attributes:
        roles: Those that a message may have.
        session_state: Name of the member that goes back as it came.
        expects_memory: Its clients send the newest message alone.
        takes_files: Files come inside of messages, and are read before `read` is called.
        exchange: What writes the answers.
    """

    name: str
    media = Media(
        unary=b"application/json",
        stream=b"application/json-lines",
        heartbeat=b"\n",  # @microsoft/ai-chat-protocol and ndjson-readablestream read over an empty line
        told=upstream_errors.translated,
    )
    roles: tuple[str, ...] = ("assistant", "user")
    session_state = "session_state"
    expects_memory = False
    takes_files = False
    exchange: type[LineExchange]

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`."""
        return self.read(request, request.body)

    def read(
        self, request: ChatRequest, json: bytes, attached: Mapping[int, Sequence[Message]] | None = None
    ) -> Exchange:
        """What a request asks.

        Args:
            request: As it came.
            json: Its JSON.
            attached: What stands before a message, by the message's number.
        """
        raw = json_fields.members(json)
        body = json_fields.pick(raw, conversation.READ)
        messages = conversation.messages(
            body,
            self.roles,
            request.frontend,
            single_turn=request.single_turn,
            attached=attached,
            takes_files=self.takes_files,
        )
        turn = overrides.turn(request, messages, body.object("context"))
        if not request.single_turn:
            turn = replace(turn, session=self._session(raw, messages))
        return self.answering(request, turn, raw)

    def answering(self, request: ChatRequest, turn: Turn, raw: dict[str, msgspec.Raw]) -> Exchange:
        """The exchange of a turn; in most stages the path decides on streaming."""
        return self.exchange(turn, self.state(turn, raw), streaming=bool(request.streaming))

    def state(self, turn: Turn, raw: dict[str, msgspec.Raw]) -> msgspec.Raw:
        """What goes back as it came; a new name where nothing came. Under it clients keep the conversation in the
        history, and without it they keep nothing.
        """
        said = bytes(raw.get(self.session_state, _NULL))
        if said != _NULL:
            return msgspec.Raw(said)
        return msgspec.Raw(encode(turn.session.name if turn.session else new_name()))

    def _session(self, raw: dict[str, msgspec.Raw], messages: Sequence[Message]) -> Session:
        """The session that the state names."""
        whole = any(message.role == "assistant" for message in messages)
        said = raw.get(self.session_state)
        if said is None or bytes(said) == _NULL:
            return Session(new_name(), is_new=True, is_whole=whole, expects_memory=self.expects_memory)
        # Other states are the client's own, and are not read.
        name = bytes(said).strip(b'"').decode("latin-1") if len(said) < _LONGEST_NAME else ""
        return Session(name, is_whole=whole, expects_memory=self.expects_memory)

    def error(self, error: CausewayError) -> bytes:
        """See `Dialect`."""
        return self.exchange.error(error)
