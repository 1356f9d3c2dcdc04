r"""The common parts of the stages of the RAG chat protocol: requests, and answers of one JSON object per line.

The first line has the context of the answer. Each piece of text is a line of its own. The last line has all
thoughts. Every line ends with ``\n``, and the stream has no end marker. An answer has exactly one choice.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from servicekit.errors import CausewayError, InvalidRequest, NotFound

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
_MAX_NAME_LENGTH = 100
_INDEX_HINT = (
    "Add a document to it, or select another index: `index` of the front end's profile, or CAUSEWAY_DEFAULT_INDEX."
)


def error_text(error: CausewayError) -> bytes:
    """Return an error in the format of most stages, and of the other routes that their front ends call.

    Users seldom name an index themselves, so the error about a missing index names the setting that selects it.
    """
    is_index = isinstance(error, NotFound) and error.field == "index"
    return encode({"error": f"{error.message} {_INDEX_HINT}" if is_index else error.message})


class LineExchange(ABC):
    """`Exchange` of one turn. Each stage defines the format of its lines.

    Args:
        turn: The turn.
        session_state: The answer repeats it without its line breaks, which would end a line of the stream.
        streaming: Whether the answer is a stream.
    """

    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, turn: Turn, session_state: msgspec.Raw, *, streaming: bool) -> None:
        self.turn = turn
        self.streaming = streaming
        self.session_state = msgspec.Raw(one_line(bytes(session_state)))
        self.answer = Answer()
        self._begun = False

    # --- methods of a stage -----------------------------------------------------------------------------------

    @abstractmethod
    def first(self, context: dict[str, Any]) -> Any:
        """Return the first line: the role, and the context before the first text."""

    @abstractmethod
    def piece(self, delta: Delta) -> bytes:
        """Return the lines of the next piece of text. This is the hot path."""

    def before_last(self) -> bytes:
        """Return additional lines after the text, or empty bytes. Most stages have no such lines."""
        return b""

    @abstractmethod
    def last(self, context: dict[str, Any]) -> Any:
        """Return the last line with the context at the end."""

    @abstractmethod
    def whole(self, text: str, context: dict[str, Any]) -> Any:
        """Return the answer in one piece."""

    @staticmethod
    def error(error: CausewayError) -> bytes:
        """Return the JSON object of an error, for a response or a line. In most stages, ``error`` is a string."""
        return error_text(error)

    formats = context_block.DEFAULT_FORMATS
    """The formats that differ between the stages."""

    # --- `Exchange` -------------------------------------------------------------------------------------------

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`."""
        self.answer.add_events([event for event in batch if type(event) is not Delta])
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
        """See `Exchange`. The line contains the error."""
        return self.error(upstream_errors.client_error(error)) + b"\n"

    def add_events(self, batch: Batch) -> None:
        """See `Exchange`."""
        self.answer.add_events(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        return encode(self.whole(self.choice.text, self.opening() | self.closing()))

    # --- contents of the lines --------------------------------------------------------------------------------

    @property
    def choice(self) -> Choice:
        """Return the only choice, with the text that has arrived so far."""
        return self.answer.choices.get(0) or Choice()

    def opening(self) -> dict[str, Any]:
        """Return the ``context`` before the first text."""
        assert self.answer.context is not None
        return context_block.opening(self.turn, self.answer.context, self.formats)

    def closing(self) -> dict[str, Any]:
        """Return the ``context`` at the end, without data points."""
        return context_block.closing(self.turn, self.answer, self.formats)


class LineDialect:
    """A stage of the protocol: a `Dialect` whose requests are JSON objects with ``messages`` and ``context``.

    Attributes:
        roles: The allowed roles of a message.
        session_state: The name of the member with the session state, which the answer repeats.
        expects_memory: Whether clients send only the newest message.
        accepts_files: Whether messages may have files, which `parse` reads before it calls `read`.
        exchange_type: The class that renders the answers.
    """

    name: str
    media = Media(
        unary=b"application/json",
        stream=b"application/json-lines",
        heartbeat=b"\n",  # @microsoft/ai-chat-protocol and ndjson-readablestream ignore an empty line
        client_error=upstream_errors.client_error,
    )
    roles: tuple[str, ...] = ("assistant", "user")
    session_state = "session_state"
    expects_memory = False
    accepts_files = False
    exchange_type: type[LineExchange]

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`."""
        return self.read(request, request.body)

    def read(
        self, request: ChatRequest, json: bytes, attached: Mapping[int, Sequence[Message]] | None = None
    ) -> Exchange:
        """Parse a request.

        Args:
            request: The request.
            json: The JSON of the request.
            attached: Messages to insert before a message, by the message's position.

        Raises:
            InvalidRequest: The request is invalid; the error names the field.
            PermissionDenied: The profile does not allow a setting; the error names it.
        """
        raw = json_fields.members(json)
        body = json_fields.pick(raw, conversation.READ)
        messages = conversation.messages(
            body,
            self.roles,
            request.frontend,
            single_turn=request.single_turn,
            attached=attached,
            accepts_files=self.accepts_files,
        )
        turn = overrides.turn(request, messages, body.object("context"))
        if not request.single_turn:
            turn = replace(turn, session=self._session(raw, messages))
        return self.create_exchange(request, turn, raw)

    def create_exchange(self, request: ChatRequest, turn: Turn, raw: dict[str, msgspec.Raw]) -> Exchange:
        """Return the exchange of a turn. In most stages, the path selects streaming."""
        return self.exchange_type(turn, self.state(turn, raw), streaming=bool(request.streaming))

    def state(self, turn: Turn, raw: dict[str, msgspec.Raw]) -> msgspec.Raw:
        """Return the session state unchanged, or a new name if it is missing.

        Clients store the conversation in the history under this name, and without a name they store nothing.

        Raises:
            InvalidRequest: The state is not UTF-8, so no answer can return it.
        """
        state_json = bytes(raw.get(self.session_state, _NULL))
        if state_json != _NULL:
            try:
                state_json.decode()  # the parser does not check unparsed members
            except UnicodeDecodeError:
                message = f"{self.session_state} is not text in UTF-8."
                raise InvalidRequest(message, field=self.session_state) from None
            return msgspec.Raw(state_json)
        return msgspec.Raw(encode(turn.session.name if turn.session else new_name()))

    def _session(self, raw: dict[str, msgspec.Raw], messages: Sequence[Message]) -> Session:
        """Return the session whose name is the session state."""
        is_whole = any(message.role == "assistant" for message in messages)
        state_json = raw.get(self.session_state)
        if state_json is None or bytes(state_json) == _NULL:
            return Session(new_name(), is_new=True, is_whole=is_whole, expects_memory=self.expects_memory)
        # A longer state is not a name. The client defines its content, and the gateway does not read it.
        name = bytes(state_json).strip(b'"').decode("latin-1") if len(state_json) < _MAX_NAME_LENGTH else ""
        return Session(name, is_whole=is_whole, expects_memory=self.expects_memory)

    def error(self, error: CausewayError) -> bytes:
        """See `Dialect`."""
        return self.exchange_type.error(error)
