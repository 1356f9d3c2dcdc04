"""The items of a streamed answer (message, reasoning, tool call), and their events.

A piece is the text of one delta.
"""

import json
import secrets
from typing import Any

import msgspec

from gateway.dialects.responses.citations import Citations
from gateway.dialects.responses.item_cipher import REASONING, ItemCipher
from gateway.dialects.responses.offered_tools import OfferedTool
from gateway.dialects.responses.tools import CUSTOM_INPUT
from gateway.domain.deltas import members_of

_encode = msgspec.json.encode
_TEXT = "response.output_text"
_REFUSAL = "response.refusal"
_PADDING_MULTIPLE = 32
_REASONING_SUMMARY = "response.reasoning_summary_text"
_REASONING_TEXT = "response.reasoning_text"


def _head(kind: str) -> bytes:
    """Return the start of a delta event, up to the piece of text."""
    name = kind.encode()
    return b'event: %b.delta\ndata: {"type":"%b.delta","delta":' % (name, name)


def encoded(kind: str, number: int, **members: Any) -> bytes:
    """Return a server-sent event."""
    event = _encode({"type": kind, **members, "sequence_number": number})
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), event)


class Events:
    """Numbers the events of a response and encodes them.

    Args:
        obfuscates: Whether pieces have random padding, which hides their lengths.

    Attributes:
        out: The events that `flush` has not returned yet.
    """

    def __init__(self, *, obfuscates: bool = False) -> None:
        self._obfuscates = obfuscates
        self.out: list[bytes] = []
        self._number = 0

    def add(self, kind: str, **members: Any) -> None:
        """Write an event."""
        self.out.append(encoded(kind, self._number, **members))
        self._number += 1

    def piece(self, head: bytes, piece: str, tail: bytes) -> None:
        """Write a delta event. Its other members are already encoded, because most events are deltas."""
        if self._obfuscates:
            head = _padded(head, len(piece))
        self.out.append(b"%b%b%b%d}\n\n" % (head, _encode(piece), tail, self._number))
        self._number += 1

    def pieces(self, head: bytes, pieces: list[str], tail: bytes) -> None:
        """Write a delta event for each of several pieces that arrived together."""
        if self._obfuscates:
            for piece in pieces:
                self.piece(head, piece, tail)
            return
        numbered = enumerate(pieces, self._number)
        self.out += [b"%b%b%b%d}\n\n" % (head, _encode(piece), tail, number) for number, piece in numbered]
        self._number += len(pieces)

    @property
    def count(self) -> int:
        """Return the number of all events, including those that `flush` has returned."""
        return self._number

    def flush(self) -> bytes:
        """Return the events that were written since the last call."""
        out, self.out = b"".join(self.out), []
        return out


def _padded(head: bytes, length: int) -> bytes:
    """Return the start of a delta event with random padding.

    The padding and the piece together have a length that is a multiple of 32 characters.

    Args:
        head: The start of the event.
        length: The length of the piece in characters.
    """
    padding = secrets.token_urlsafe(_PADDING_MULTIPLE)[: -length % _PADDING_MULTIPLE].encode()
    return head.replace(b'"delta":', b'"obfuscation":"%b","delta":' % padding)


class MessageItem:
    """The message of an answer. Its parts are texts and refusals."""

    def __init__(self, events: Events, at: int, item_id: str, citations: Citations, *, logprobs: bool) -> None:
        self._events, self._at = events, at
        self._citations, self._cites, self._shows_logprobs = citations, bool(citations), logprobs
        self.item: dict[str, Any] = {
            "id": item_id,
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        self._pieces: list[str] = []
        self._part: dict[str, Any] | None = None
        self._head = self._tail = b""
        events.add("response.output_item.added", item=self.item, output_index=at)

    def add_texts(self, pieces: list[str]) -> None:
        """Append pieces of text without other data."""
        if self._cites:
            for piece in pieces:
                self.add_text(piece, b"")
            return
        self._text_part()
        self._pieces += pieces
        self._events.pieces(self._head, pieces, self._tail)

    def add_text(self, piece: str, choice_json: bytes) -> None:
        """Append a piece of text."""
        part = self._text_part()
        self._pieces.append(piece)
        if choice_json and self._shows_logprobs:
            tokens = _logprobs(choice_json)
            part["logprobs"] += tokens
            self._events.add(f"{_TEXT}.delta", **self._place(), delta=piece, logprobs=_event_tokens(tokens))
        else:
            self._events.piece(self._head, piece, self._tail)
        if self._cites:
            for annotation in self._citations.feed(piece):
                self.annotate(annotation)

    def annotate(self, annotation: dict[str, Any]) -> None:
        """Append an annotation to the open text part."""
        part = self._part
        if part is None or part["type"] != "output_text":
            return
        annotations: list[dict[str, Any]] = part["annotations"]
        annotations.append(annotation)
        self._events.add(
            f"{_TEXT}.annotation.added",
            **self._place(),
            annotation=annotation,
            annotation_index=len(annotations) - 1,
        )

    def add_refusal(self, piece: str) -> None:
        """Append a piece of a refusal."""
        if self._part is None or self._part["type"] != "refusal":
            self._begin({"type": "refusal", "refusal": ""})
        self._pieces.append(piece)
        self._events.piece(self._head, piece, self._tail)

    def end(self, status: str) -> None:
        """End the item with the status ``completed`` or ``incomplete``."""
        if not self.item["content"]:
            self._text_part()
        self._end_part()
        self.item["status"] = status
        self._events.add("response.output_item.done", item=self.item, output_index=self._at)

    def _text_part(self) -> dict[str, Any]:
        """Return the open text part. Begin one if necessary."""
        part = self._part
        if part is None or part["type"] != "output_text":
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            self._begin(part)
        return part

    def _begin(self, part: dict[str, Any]) -> None:
        self._end_part()
        self._part = part
        self.item["content"].append(part)
        self._events.add("response.content_part.added", **self._place(), part=part)
        kind = _TEXT if part["type"] == "output_text" else _REFUSAL
        place = self._place()
        self._head = _head(kind)
        members = place | {"logprobs": []} if kind == _TEXT else place
        self._tail = b"," + _encode(members)[1:-1] + b',"sequence_number":'

    def _end_part(self) -> None:
        part = self._part
        if part is None:
            return
        whole, self._pieces = "".join(self._pieces), []
        if part["type"] == "output_text":
            part["text"] = whole
            self._events.add(f"{_TEXT}.done", **self._place(), text=whole, logprobs=_event_tokens(part["logprobs"]))
        else:
            part["refusal"] = whole
            self._events.add(f"{_REFUSAL}.done", **self._place(), refusal=whole)
        self._events.add("response.content_part.done", **self._place(), part=part)
        self._part = None

    def _place(self) -> dict[str, Any]:
        index = max(0, len(self.item["content"]) - 1)
        return {"item_id": self.item["id"], "output_index": self._at, "content_index": index}


class ReasoningItem:
    """The model's reasoning. It is a summary if the client requested a summary, or else reasoning text."""

    def __init__(
        self, events: Events, at: int, item_id: str, cipher: ItemCipher | None, *, summarises: bool
    ) -> None:
        self._events, self._at, self._summarises, self._cipher = events, at, summarises, cipher
        self.item: dict[str, Any] = {"id": item_id, "type": "reasoning", "summary": []}
        self._pieces: list[str] = []
        events.add("response.output_item.added", item=self.item, output_index=at)
        index = {"summary_index": 0} if summarises else {"content_index": 0}
        self._place = {"item_id": item_id, "output_index": at, **index}
        self._kind = _REASONING_SUMMARY if summarises else _REASONING_TEXT
        self._part_kind = "response.reasoning_summary_part" if summarises else "response.content_part"
        events.add(f"{self._part_kind}.added", **self._place, part=self._part(""))
        self._head = _head(self._kind)
        self._tail = b"," + _encode(self._place)[1:-1] + b',"sequence_number":'

    def add(self, piece: str) -> None:
        """Append a piece of the reasoning."""
        self._pieces.append(piece)
        self._events.piece(self._head, piece, self._tail)

    def end(self, status: str) -> None:
        """End the item with the status ``completed`` or ``incomplete``."""
        part = self._part("".join(self._pieces))
        self._events.add(f"{self._kind}.done", **self._place, text=part["text"])
        self._events.add(f"{self._part_kind}.done", **self._place, part=part)
        self.item["summary" if self._summarises else "content"] = [part]
        self.item["status"] = status
        if self._cipher is not None and (encrypted := self._cipher.encrypt(REASONING, part["text"])):
            self.item["encrypted_content"] = encrypted
        self._events.add("response.output_item.done", item=self.item, output_index=self._at)

    def _part(self, text: str) -> dict[str, str]:
        return {"type": "summary_text" if self._summarises else "reasoning_text", "text": text}


class CallItem:
    """A call to a function or to a custom tool.

    The model calls a custom tool as a function. The only argument of this function is the input of the tool.
    """

    def __init__(self, events: Events, at: int, item_id: str, call_id: str, tool: OfferedTool) -> None:
        self._events, self._at, self._custom = events, at, tool.is_custom
        self._pieces: list[str] = []
        self._place = {"item_id": item_id, "output_index": at}
        kind = "custom_tool_call" if tool.is_custom else "function_call"
        self.item: dict[str, Any] = {"id": item_id, "type": kind, "call_id": call_id, "name": tool.name}
        if tool.namespace:
            self.item["namespace"] = tool.namespace
        self.item |= {"input": ""} if tool.is_custom else {"arguments": "", "status": "in_progress"}
        events.add("response.output_item.added", item=self.item, output_index=at)
        self._head = _head("response.function_call_arguments")
        self._tail = b"," + _encode(self._place)[1:-1] + b',"sequence_number":'

    def add_arguments(self, piece: str) -> None:
        """Append a piece of the arguments."""
        self._pieces.append(piece)
        if piece and not self._custom:
            self._events.piece(self._head, piece, self._tail)

    def end(self, status: str) -> None:
        """End the item with the status ``completed`` or ``incomplete``."""
        arguments = "".join(self._pieces)
        if self._custom:
            # The gateway can decode the JSON string only when it is complete.
            text = self.item["input"] = _custom_input(arguments)
            self._events.add("response.custom_tool_call_input.delta", **self._place, delta=text)
            self._events.add("response.custom_tool_call_input.done", **self._place, input=text)
        else:
            self.item |= {"arguments": arguments, "status": status}
            self._events.add("response.function_call_arguments.done", **self._place, arguments=arguments)
        self._events.add("response.output_item.done", item=self.item, output_index=self._at)


def _logprobs(choice_json: bytes) -> list[dict[str, Any]]:
    """Return the log probabilities of a piece in the format of the API reference, without invalid tokens."""
    logprobs = members_of(choice_json).get("logprobs")
    tokens = _objects(logprobs, "content") if isinstance(logprobs, dict) else []
    return [
        _token(token) | {"top_logprobs": [_token(alternative) for alternative in _objects(token, "top_logprobs")]}
        for token in tokens
    ]


def _objects(members: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """Return the objects of a member that should be a list of objects."""
    values = members.get(name)
    return [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []


def _token(token: dict[str, Any]) -> dict[str, Any]:
    text = str(token.get("token", ""))
    return {
        "token": text,
        "bytes": token.get("bytes") or list(text.encode(errors="replace")),
        "logprob": token.get("logprob", 0.0),
    }


def _event_tokens(tokens: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the tokens in the format of events, which omits their bytes."""
    event_tokens = []
    for token in tokens:
        top = [
            {"token": alternative["token"], "logprob": alternative["logprob"]}
            for alternative in token["top_logprobs"]
        ]
        event_tokens.append({"token": token["token"], "logprob": token["logprob"], "top_logprobs": top})
    return event_tokens


def _custom_input(arguments: str) -> str:
    """Return the input of a custom tool: the function's argument, or all arguments if they are invalid."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    text = value.get(CUSTOM_INPUT) if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments
