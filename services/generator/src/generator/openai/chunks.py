"""Converts chunks of a streamed chat or text completion to events.

The reader parses only the members that the platform needs: content, finish reasons, indexes of choices, usage. It
passes all other members on as JSON. It omits members whose value is null, and the role ``assistant``, which every
answer has.
"""

from typing import Literal

import msgspec
from msgspec import Raw

from generator.domain import Event, EventKind, Usage
from generator.openai.answer_types import check_completion, check_logprobs
from generator.openai.errors import bad_answer, refused

_NULL = Raw(b"null")
# The members that the reader handles itself. It passes other members on.
# `obfuscation` is padding against traffic analysis on the connection to the server. It is not passed on.
_HANDLED_IN_CHUNK = frozenset(("choices", "usage", "obfuscation", "error"))
_HANDLED_IN_CHOICE = frozenset(("index", "delta", "message", "finish_reason"))
_HANDLED_IN_TEXT_CHOICE = frozenset(("index", "text", "finish_reason"))
_MAX_CHOICES = 1 << 16
_MAX_TOKENS = (1 << 32) - 1
_ERROR_STATUSES = range(400, 600)
_BAD_GATEWAY = 502

Members = dict[str, Raw]


class _Choice(msgspec.Struct, gc=False):
    index: int = 0
    finish_reason: str | None = None


class _Choices(msgspec.Struct, gc=False):
    choices: list[_Choice] | None = None


class _Usage(msgspec.Struct, gc=False):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


# Nearly every chunk has only content. `_ContentChunk` decodes it ten times as fast as the general decoder.
class _ContentDelta(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    content: str
    role: Literal["assistant"] | None = None
    refusal: None = None
    tool_calls: None = None
    function_call: None = None
    reasoning_content: None = None
    reasoning: None = None


class _ContentChoice(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    delta: _ContentDelta
    index: int = 0
    finish_reason: None = None
    logprobs: None = None
    stop_reason: None = None
    matched_stop: None = None
    token_ids: None = None


class _ContentChunk(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    choices: list[_ContentChoice]
    id: Raw = _NULL
    object: Raw = _NULL
    created: Raw = _NULL
    model: Raw = _NULL
    system_fingerprint: Raw = _NULL
    service_tier: Raw = _NULL
    obfuscation: Raw = _NULL
    usage: None = None
    prompt_token_ids: None = None


_object = msgspec.json.Decoder(Members)
_list = msgspec.json.Decoder(list[Members])
_content_chunk = msgspec.json.Decoder(_ContentChunk)
_choices = msgspec.json.Decoder(_Choices)
_usage = msgspec.json.Decoder(_Usage, strict=False)
_value = msgspec.json.Decoder(Raw)
_encode = msgspec.json.encode


class _Progress:
    """Tracks which choices have begun and have not ended."""

    def __init__(self) -> None:
        self._begun = False
        self._open: set[int] = set()

    @property
    def complete(self) -> bool:
        """Return whether every choice that began has its finish reason."""
        return self._begun and not self._open

    def record(self, choice: int, finished: bool) -> None:
        self._begun = True
        if finished:
            self._open.discard(choice)
        else:
            self._open.add(choice)


class ChunkReader:
    """Converts the payloads of one streamed answer to START, TEXT, DELTA, FINISH and USAGE events."""

    def __init__(self) -> None:
        self._progress = _Progress()
        self._members: dict[str, bytes] = {}
        self._started = False
        self._content_head: tuple[Raw, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether every choice has its finish reason; the answer is then complete without an end marker."""
        return self._progress.complete

    def read(self, payload: bytes) -> list[Event]:
        """Return the events of a payload, or of a whole completion from a server that does not stream.

        Raises:
            UpstreamRejected: The payload is an error.
            Unavailable: The payload is not a chunk.
        """
        if self._started:
            try:
                chunk = _content_chunk.decode(payload)
            except (ValueError, RecursionError):
                pass  # the chunk has further members, or the payload is not a chunk
            else:
                head = (chunk.id, chunk.model, chunk.system_fingerprint, chunk.service_tier)
                if head == self._content_head:
                    return self._content_events(chunk)
                self._content_head = head
        try:
            _check_encoding(payload)
            return self._events(_object.decode(payload))
        except (ValueError, RecursionError) as error:
            raise bad_answer("sent a chunk that cannot be read") from error

    def _content_events(self, chunk: _ContentChunk) -> list[Event]:
        events = []
        for choice in chunk.choices:
            self._progress.record(_index(choice.index), finished=False)
            if choice.delta.content:
                events.append(Event(EventKind.TEXT, choice.index, choice.delta.content))
        return events

    def _events(self, chunk: Members) -> list[Event]:
        if _is_failure(chunk):
            raise _failure(chunk)
        events = []
        changed = self._changed_members(chunk)
        if changed or not self._started:
            events.append(Event(EventKind.START, raw_json=_encode(changed) if changed else b""))
            self._started = True
        if "choices" in chunk and chunk["choices"] != _NULL:
            for choice in _list.decode(chunk["choices"]):
                self._choice_events(choice, events)
        if "usage" in chunk and chunk["usage"] != _NULL:
            events.append(_usage_event(chunk["usage"]))
        return events

    def _changed_members(self, chunk: Members) -> Members:
        """Return the new or changed members outside the choices."""
        changed = {}
        for name, raw in chunk.items():
            if name not in _HANDLED_IN_CHUNK and raw != _NULL:
                value = bytes(raw)
                known = self._members.get(name)
                # Some servers send a new time in every chunk. Keep the first time that is not 0.
                if known != value and (name != "created" or known in (None, b"0")):
                    self._members[name] = value
                    changed[name] = raw
        return changed

    def _choice_events(self, choice: Members, events: list[Event]) -> None:
        """Append the events of a choice to ``events``."""
        index = _index(msgspec.json.decode(choice["index"], type=int) if "index" in choice else 0)
        body = choice.get("delta", choice.get("message", _NULL))
        delta = _without_nulls(_object.decode(body)) if body != _NULL else {}
        if delta.get("role") == _ASSISTANT:
            del delta["role"]
        text, handled = "", _HANDLED_IN_CHOICE
        if body == _NULL and "text" in choice:
            # This is a choice of a text completion.
            text, handled = msgspec.json.decode(choice["text"], type=str), _HANDLED_IN_TEXT_CHOICE
        elif "content" in delta and bytes(delta["content"])[:1] == b'"':
            text = msgspec.json.decode(delta.pop("content"), type=str)
        reason = choice.get("finish_reason", _NULL)
        finished = reason != _NULL
        others = {name: raw for name, raw in _without_nulls(choice).items() if name not in handled}
        if "logprobs" in others:
            check_logprobs(others["logprobs"])
        if delta:
            events.append(Event(EventKind.DELTA, index, raw_json=_encode(delta)))
        if text or (others and not finished):
            events.append(Event(EventKind.TEXT, index, text, _encode(others) if others else b""))
            others = {}
        if finished:
            reason_text = msgspec.json.decode(reason, type=str)
            events.append(Event(EventKind.FINISH, index, reason_text, _encode(others) if others else b""))
        self._progress.record(index, finished)


class ChunkRelay:
    """Passes the payloads of one streamed answer on as CHUNK events, after a check that each payload is JSON.

    If the first payload is an error, the relay raises it, because the client can still get an HTTP status. The
    relay passes a later error on as a CHUNK.
    """

    def __init__(self) -> None:
        self._progress = _Progress()
        self._begun = False

    @property
    def complete(self) -> bool:
        """Return whether every choice has its finish reason; see `ChunkReader.complete`."""
        return self._progress.complete

    def read(self, payload: bytes) -> list[Event]:
        """Return the payload unchanged.

        Raises:
            UpstreamRejected: The first payload is an error.
            Unavailable: The payload is not JSON.
        """
        if not self._begun:
            self._begun = True
            _raise_if_failure(payload)
        try:
            _check_encoding(payload)
            for choice in self._choices(payload):
                self._progress.record(choice.index, choice.finish_reason is not None)
        except (ValueError, RecursionError) as error:
            raise bad_answer("sent a chunk that cannot be read") from error
        return [Event(EventKind.CHUNK, raw_json=payload)]

    def _choices(self, payload: bytes) -> list[_Choice]:
        try:
            return _choices.decode(payload).choices or []
        except msgspec.ValidationError:
            _value.decode(payload)
            return []  # valid JSON that is not a chunk; the client gets it unchanged


def checked_answer(answer: bytes) -> bytes:
    """Check an answer that the server sent in one piece, and return it unchanged.

    Raises:
        UpstreamRejected: The answer is an error.
        Unavailable: The answer is not a JSON object, or a member that the platform reads has a wrong type. With a
            wrong base URL, the server may return any document.
    """
    try:
        _check_encoding(answer)
        members = _object.decode(answer)
        if not _is_failure(members):
            check_completion(answer)
            return answer
    except (ValueError, RecursionError) as error:
        raise bad_answer("sent an answer that cannot be read") from error
    raise _failure(members)


_ASSISTANT = Raw(b'"assistant"')
_ERROR = Raw(b'"error"')


def _check_encoding(payload: bytes) -> None:
    # The decoder does not check the encoding of unread members.
    if not payload.isascii():
        payload.decode()


def _without_nulls(members: Members) -> Members:
    return {name: raw for name, raw in members.items() if raw != _NULL}


def _index(index: int) -> int:
    if not 0 <= index < _MAX_CHOICES:
        raise bad_answer(f"sent a choice with the index {index}")
    return index


def _usage_event(raw: Raw) -> Event:
    counts = _usage.decode(raw)
    prompt, answer = (
        min(max(count or 0, 0), _MAX_TOKENS) for count in (counts.prompt_tokens, counts.completion_tokens)
    )
    return Event(EventKind.USAGE, raw_json=bytes(raw), usage=Usage(prompt, answer, exact=True))


def _is_failure(chunk: Members) -> bool:
    # vLLM before 0.11 sends the error's members at the top level.
    return chunk.get("error", _NULL) != _NULL or chunk.get("object") == _ERROR


def _raise_if_failure(payload: bytes) -> None:
    try:
        chunk = _object.decode(payload)
    except (ValueError, RecursionError):
        return  # the caller checks whether the payload is JSON
    if _is_failure(chunk):
        raise _failure(chunk)


def _failure(chunk: Members) -> Exception:
    status = _BAD_GATEWAY
    try:
        error = _object.decode(chunk["error"]) if "error" in chunk else chunk
        # TGI (Text Generation Inference) uses the name ``http_status_code``.
        code = error.get("code", error.get("http_status_code", _NULL))
        status = msgspec.json.decode(code, type=int, strict=False)
    except (ValueError, RecursionError):
        pass
    if status not in _ERROR_STATUSES:
        status = _BAD_GATEWAY
    return refused(status, {}, _encode(chunk))
