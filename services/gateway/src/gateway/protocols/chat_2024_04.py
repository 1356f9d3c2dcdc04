"""The AI chat protocol as of April 2024: JSON at ``/chat``, one JSON object a line at ``/chat/stream``.

Source: the protocol's specification; where it contradicts itself, `docs/protocols.md` says what holds.
"""

from typing import Any

import msgspec
from servicekit.errors import CausewayError, InvalidRequest

from gateway.domain import Batch, Delta, Done, Message, Retrieval, RetrievalMode, Turn
from gateway.protocols import context as context_block
from gateway.protocols import detectors as detectors_block
from gateway.protocols import reading
from gateway.protocols.answer import Answer
from gateway.protocols.exchange import ChatRequest, Exchange, Media
from gateway.protocols.problem import one_line
from gateway.protocols.reading import Fields

_encode = msgspec.json.encode
_NULL = msgspec.Raw(b"null")
_READ = ("messages", "input", "context")
_ROLES = ("assistant", "user")
_MODES = tuple(mode.value for mode in RetrievalMode)
_LONGEST_ANSWER = 2**31


class Chat202404:
    """`Dialect` of ``/chat`` and ``/chat/stream``."""

    name = "2024-04"
    media = Media(unary=b"application/json", stream=b"application/json-lines")

    def parse(self, request: ChatRequest) -> Exchange:
        """See `Dialect`; the path decides on streaming."""
        frontend = request.frontend
        raw = reading.members(request.body)
        known = Fields({name: reading.value(raw[name], name) for name in _READ if name in raw})
        *history, question = _messages(known)
        context = known.object("context")
        overrides = _overrides(context)
        index = overrides.text("index") or frontend.default_index
        turn = Turn(
            principal=request.principal,
            question=question.text,
            history=tuple(history),
            frontend=frontend.name,
            model=overrides.text("model") or frontend.model,
            retrieval=Retrieval(
                indexes=(index,) if index else (),
                mode=RetrievalMode(overrides.one_of("retrieval_mode", _MODES) or "hybrid"),
                top=overrides.integer("top", 1, 50) or 3,
                include_category=overrides.text("include_category"),
                exclude_category=overrides.text("exclude_category"),
                minimum_score=overrides.number("minimum_search_score", -1e9, 1e9),
            ),
            parameters_json=_parameters(overrides),
            max_tokens=overrides.integer("max_tokens", 1, _LONGEST_ANSWER),
            detectors=frontend.detectors + detectors_block.parse(overrides.object("detectors")),
            blocked_message=frontend.blocked_message,
        )
        return _Exchange(turn, raw.get("session_state", _NULL), streaming=bool(request.streaming))

    def error(self, error: CausewayError) -> bytes:
        """See `Dialect`: the error is a string."""
        return _encode({"error": error.message})


def _messages(request: Fields) -> list[Message]:
    """The conversation, oldest first; the last message is the user's. Some clients call it ``input``."""
    name = "messages" if request.get("messages") is not None else "input"
    spoken = request.get(name)
    if isinstance(spoken, str):
        spoken = [{"role": "user", "content": spoken}]
    if not isinstance(spoken, list) or not spoken:
        raise request.wrong("messages", "must be a non-empty list of messages")
    messages = []
    for at, item in enumerate(spoken):
        path = f"{name}[{at}]"
        if not isinstance(item, dict):
            raise InvalidRequest(f"{path} must be an object.", field=path)
        message = Fields(item, path)
        role = message.text("role")
        if role not in _ROLES:
            raise message.wrong("role", f"must be one of {', '.join(_ROLES)}, not {role!r}")
        messages.append(Message(role, message.text("content")))
    last = f"{name}[{len(messages) - 1}]"
    if messages[-1].role != "user":
        raise InvalidRequest(f"{last}.role must be user: there is nothing to answer.", field=f"{last}.role")
    if not messages[-1].text.strip():
        raise InvalidRequest(f"{last}.content must not be empty: there is no question.", field=f"{last}.content")
    return messages


def _overrides(context: Fields) -> Fields:
    """The settings for this turn; some clients put them straight into ``context``."""
    flat = {name: value for name, value in context.members() if name != "overrides"}
    nested = dict(context.object("overrides").members())
    return Fields(flat | nested, context.path("overrides"))


def _parameters(overrides: Fields) -> bytes:
    parameters: dict[str, Any] = {
        "temperature": overrides.number("temperature", 0, 2),
        "seed": overrides.integer("seed", -(2**63), 2**63 - 1),
        "max_tokens": overrides.integer("max_tokens", 1, _LONGEST_ANSWER),
        "reasoning_effort": overrides.text("reasoning_effort") or None,
    }
    return _encode({name: value for name, value in parameters.items() if value is not None})


class _Exchange:
    """`Exchange` of one turn. It has one answer: further choices have no place in this protocol."""

    def __init__(self, turn: Turn, session_state: msgspec.Raw, *, streaming: bool) -> None:
        self.turn = turn
        self.streaming = streaming
        # Goes back byte for byte, but for line breaks, which would end a line of the stream.
        self._session_state = msgspec.Raw(one_line(bytes(session_state)))
        self._answer = Answer()
        self._begun = False

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`: a line with the context, a line for each piece of text, a last line with the thoughts."""
        self._answer.take([event for event in batch if type(event) is not Delta])
        out: list[bytes] = []
        if not self._begun and self._answer.context is not None:
            self._begun = True
            out.append(self._line({"role": "assistant"}, context_block.opening(self.turn, self._answer.context)))
        for event in batch:
            if type(event) is Delta:
                if event.text and event.choice == 0:
                    out.append(
                        b'{"delta":{"content":%b,"function_call":null,"role":null,"tool_calls":null}}\n'
                        % _encode(event.text)
                    )
            elif type(event) is Done:
                out.append(self._line({}, context_block.closing(self.turn, self._answer)))
        return b"".join(out)

    def render_failure(self, error: CausewayError) -> bytes:
        """See `Exchange`: a line with the error."""
        return _encode({"error": error.message}) + b"\n"

    def take(self, batch: Batch) -> None:
        """See `Exchange`."""
        self._answer.take(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        answer = self._answer
        assert answer.context is not None
        text = answer.choices[0].text if 0 in answer.choices else ""
        context = context_block.opening(self.turn, answer.context) | context_block.closing(self.turn, answer)
        message = {"content": text, "function_call": None, "role": "assistant", "tool_calls": None}
        return _encode({"message": message, "context": context, "session_state": self._session_state})

    def _line(self, delta: dict[str, str], context: dict[str, Any]) -> bytes:
        return _encode({"delta": delta, "context": context, "session_state": self._session_state}) + b"\n"
