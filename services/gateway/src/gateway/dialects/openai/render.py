"""Renders OpenAI's chat completions, in one piece or as server-sent events."""

import time
import uuid
from typing import Any

import msgspec
from servicekit.errors import CausewayError

from gateway.dialects.answer import (
    Answer,
    detections_block,
    directions_of,
    usage_object,
    warnings_of,
)
from gateway.dialects.problem import one_line, problem
from gateway.domain import (
    Batch,
    Chunk,
    Completion,
    Context,
    Delta,
    Detections,
    Direction,
    Done,
    Finish,
    Passage,
    Start,
    Step,
    Turn,
    Usage,
)
from gateway.domain.deltas import as_chunk_choice, choices_of, drop_indexes, members_of, merge

_encode = msgspec.json.encode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
NOT_FINISHED = b"null"
"""The JSON of ``finish_reason`` before the end of a choice."""
_DONE = b"data: [DONE]\n\n"


class OpenAiExchange:
    """`Exchange` of one chat completion.

    The exchange encodes the parts that all chunks have in common only once, and copies the other members of a
    choice unchanged. For a token, it therefore encodes one JSON string and joins a few byte strings.

    Args:
        turn: The turn.
        streaming: Whether the answer is a stream.
        include_usage: Whether the last chunk of a stream has the token counts.
        has_source_nodes: Whether the answer has ``source_nodes``, because the request or the profile names an
            index. Without a search, the value is null.

    Attributes:
        prefix: The prefix of the completion's id.
        completion_object: The value of ``object`` in an answer in one piece.
        chunk_object: The value of ``object`` in a chunk.
        composes_request: Whether the gateway always composes the request for the model server. Otherwise the model
            server may receive the client's bytes.
    """

    prefix = "chatcmpl-"
    completion_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    composes_request = False
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(
        self, turn: Turn, *, streaming: bool, include_usage: bool = False, has_source_nodes: bool = False
    ) -> None:
        self.turn = turn
        self.streaming = streaming
        self._include_usage = include_usage
        self._answer = Answer()
        # The members of a chunk other than the choices. The model server's values replace these.
        self._envelope: dict[str, Any] = {
            "id": f"{self.prefix}{uuid.uuid4().hex}",
            "object": self.chunk_object if streaming else self.completion_object,
            "created": int(time.time()),
            "model": turn.answer_model,
        }
        self._head = b""
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._started: set[int] = set()
        self._finish: Finish | None = None
        self._usage: Usage | None = None
        # The members to add to the next chunk.
        self._extra: dict[str, Any] = {"source_nodes": None} if has_source_nodes else {}
        self._pending_detections: list[Detections] = []
        self._pending_directions = list(directions_of(turn.detectors))

    # --- streamed ---------------------------------------------------------------------------------------------

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`."""
        out: list[bytes] = []
        for event in batch:
            if type(event) is Delta:
                self._write_delta(event, out)
            elif type(event) is Chunk:
                out.append(_event(self._with_extra(event.raw_json) if self._extra else event.raw_json))
            elif type(event) is Start:
                self._update_envelope(members_of(event.raw_json))
            elif type(event) is Finish:
                self._flush_finish(out)
                self._finish = event
            elif type(event) is Usage:
                self._usage = event
            elif type(event) is Context:
                if self.turn.retrieval.indexes:
                    self._extra["source_nodes"] = [source_node(passage) for passage in event.passages]
            elif type(event) is Detections:
                self._pending_detections.append(event)
            elif type(event) is Completion:
                # The model server answered in one piece, although the gateway requested a stream.
                out.append(_event(self._with_extra(self._whole_chunk(event))))
            elif type(event) is Done:
                self._write_end(event, out)
        return b"".join(out)

    @staticmethod
    def _whole_chunk(event: Completion) -> bytes:
        """Return the chunk with an answer that the model server sent in one piece."""
        return _as_chunk(event.raw_json)

    def render_failure(self, error: CausewayError) -> bytes:
        """See `Exchange`. The stream ends without ``[DONE]``, because the answer is incomplete."""
        return _event(problem(error))

    def _update_envelope(self, members: dict[str, Any]) -> None:
        known = {name: value for name, value in members.items() if value is not None}
        self._envelope |= known | {"object": self._envelope["object"]}
        self._head = b""

    def _with_extra(self, raw_json: bytes) -> bytes:
        """Return a model server's object with the pending members. Its own bytes remain unchanged."""
        extra, self._extra = self._extra, {}
        return _with_members(raw_json, extra)

    def _write_delta(self, event: Delta, out: list[bytes]) -> None:
        if self._finish is not None:
            # A choice has ended, and this delta belongs to another choice.
            self._flush_finish(out)
        if event.choice not in self._started:
            self._start_choice(event.choice, out)
        if event.delta_json or event.choice_json or self._pending_detections or not self._head:
            content = b'"content":' + _encode(event.text) if event.text else b""
            delta = b",".join(filter(None, (content, _members_text(event.delta_json))))
            self._write_choice(event.choice, delta, event.choice_json, NOT_FINISHED, out)
        else:
            # Most deltas have only text.
            out.append(
                b'%b"choices":[{"index":%d,"delta":{"content":%b},"finish_reason":null}]%b'
                % (self._head, event.choice, _encode(event.text), self._tail)
            )

    def _start_choice(self, choice: int, out: list[bytes]) -> None:
        self._started.add(choice)
        self._write_choice(choice, b'"role":"assistant","content":""', b"", NOT_FINISHED, out)

    def _flush_finish(self, out: list[bytes]) -> None:
        if self._finish is None:
            return
        finish, self._finish = self._finish, None
        self._write_finish(finish, out)

    def _write_finish(self, finish: Finish, out: list[bytes]) -> None:
        if finish.choice not in self._started:
            self._start_choice(finish.choice, out)
        self._write_choice(finish.choice, b"", finish.choice_json, _encode(finish.reason or None), out)

    def _write_choice(
        self, index: int, delta: bytes, others: bytes, finish_reason_json: bytes, out: list[bytes]
    ) -> None:
        """Append a chunk of one choice, with all pending members."""
        others = _members_text(others)
        body = b'"choices":[{"index":%d,"delta":{%b}%b%b,"finish_reason":%b}]' % (
            index,
            delta,
            b"," if others else b"",
            others,
            finish_reason_json,
        )
        out.append(self._encoded_chunk(body, self._tail))

    def _encoded_chunk(self, choices: bytes, tail: bytes) -> bytes:
        if not self._head:
            self._head = b"data: " + _encode(self._envelope)[:-1] + b","
        extra = self._extra | self._pending_members()
        self._extra = {}
        return b"".join((self._head, choices, b"," if extra else b"", _encode(extra)[1:-1], tail))

    def _pending_members(self, *, last: bool = False) -> dict[str, Any]:
        """Return the members with the pending findings and warnings.

        An answer contains each direction that has detectors at least once.

        Args:
            last: Whether this is the last call for the answer.
        """
        pending, self._pending_detections = self._pending_detections, []
        directions = [
            direction for direction in Direction if any(event.direction is direction for event in pending)
        ]
        # Detectors judge the question and the passages before the first chunk.
        directions += [
            direction
            for direction in self._pending_directions
            if direction not in directions and (last or direction is not Direction.OUTPUT)
        ]
        if not directions:
            return {}
        self._pending_directions = [
            direction for direction in self._pending_directions if direction not in directions
        ]
        return {"detections": detections_block(pending, directions)} | _warning_members(pending)

    def _write_end(self, done: Done, out: list[bytes]) -> None:
        if self._started or self._finish is not None:
            # An answer that passes through unchanged has no timings.
            last: dict[str, Any] = {"timings": _timings(done.steps)}
            if self._include_usage and self._usage is not None:
                self._flush_finish(out)
                last["usage"] = usage_object(self._usage)
            self._extra |= last | self._pending_members(last=True)
            if self._finish is not None:
                self._flush_finish(out)
            else:
                out.append(self._encoded_chunk(b'"choices":[]', b"}\n\n"))
        out.append(_DONE)

    # --- in one piece -----------------------------------------------------------------------------------------

    def add_events(self, batch: Batch) -> None:
        """See `Exchange`."""
        self._answer.add_events(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        answer = self._answer
        if answer.context is not None and self.turn.retrieval.indexes:
            self._extra["source_nodes"] = [source_node(passage) for passage in answer.context.passages]
        if answer.completion:
            return self._upstream_answer(answer)
        self._update_envelope(answer.start)
        body = self._envelope
        body["choices"] = [self._choice_of(index, answer) for index in sorted(answer.choices)]
        if answer.usage is not None:
            body["usage"] = usage_object(answer.usage)
        return _encode(body | self._detection_members(answer) | self._extra)

    def _detection_members(self, answer: Answer) -> dict[str, Any]:
        """Return the members with the findings and warnings of a complete answer."""
        directions = directions_of(self.turn.detectors)
        if not directions:
            return {}
        return {"detections": detections_block(answer.detections, directions)} | _warning_members(answer.detections)

    def _upstream_answer(self, answer: Answer) -> bytes:
        """Return a model server's answer with findings, warnings and ``source_nodes``.

        Findings and warnings replace members of the same name.
        """
        added = self._detection_members(answer)
        raw_json = answer.completion
        if added and not added.keys().isdisjoint(members := members_of(raw_json)):
            raw_json = _encode({name: value for name, value in members.items() if name not in added})
        self._extra |= added
        return self._with_extra(raw_json)

    @staticmethod
    def _choice_of(index: int, answer: Answer) -> dict[str, Any]:
        choice = answer.choices[index]
        content = choice.text if choice.texts or not choice.delta else None
        message: dict[str, Any] = {"role": "assistant", "content": content}
        merge(message, choice.delta)
        drop_indexes(message)
        return (
            {"index": index, "message": message} | choice.members | {"finish_reason": choice.finish_reason or None}
        )


def source_node(passage: Passage) -> dict[str, Any]:
    """Return a passage in RAGEngine's format, for answers and for ``/retrieve``."""
    return {
        "doc_id": passage.document_id,
        "node_id": passage.id,
        "text": passage.text,
        "score": passage.score,
        "dense_score": passage.dense_score,
        "sparse_score": passage.sparse_score,
        **({} if passage.reranker_score is None else {"reranker_score": passage.reranker_score}),
        "source": passage.found_by,
        "sourcefile": passage.sourcefile,
        "sourcepage": passage.sourcepage,
        **({"headings": passage.headings} if passage.headings else {}),
        "metadata": msgspec.Raw(one_line(passage.metadata_json)),
    }


def _with_members(raw_json: bytes, members: dict[str, Any]) -> bytes:
    """Return the object with additional members at its end, except for names that it already has.

    Bytes that are not a JSON object remain unchanged.
    """
    try:
        present = _object.decode(raw_json)
    except (ValueError, RecursionError):
        return raw_json
    added = {name: value for name, value in members.items() if name not in present}
    if not added:
        return raw_json
    head, brace, tail = raw_json.rpartition(b"}")
    return b"".join((head, b"," if present else b"", _encode(added)[1:-1], brace, tail))


def _event(json: bytes) -> bytes:
    return b"data: %b\n\n" % one_line(json)


def _members_text(raw_json: bytes) -> bytes:
    """Return the members of an object without its braces."""
    return one_line(raw_json).strip()[1:-1].strip()


def _as_chunk(completion: bytes) -> bytes:
    """Convert a chat completion of a model server to a chunk."""
    body = members_of(completion)
    choices = [as_chunk_choice(choice, position) for position, choice in enumerate(choices_of(body))]
    return _encode(body | {"object": "chat.completion.chunk", "choices": choices})


def _warning_members(detections: list[Detections]) -> dict[str, Any]:
    warnings = warnings_of(detections)
    return {"warnings": warnings} if warnings else {}


def _timings(steps: tuple[Step, ...]) -> dict[str, float]:
    return {f"{step.name.replace(' ', '_')}_ms": step.duration_ms for step in steps}
