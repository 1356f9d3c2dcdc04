"""OpenAI chat completions: the answer, in one piece or as server-sent events."""

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
from gateway.domain.deltas import drop_numbers, members_of, merge

_encode = msgspec.json.encode
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
NOT_FINISHED = b"null"
_DONE = b"data: [DONE]\n\n"


class OpenAiExchange:
    """`Exchange` of one chat completion.

    The parts of a stream that are equal in all chunks are encoded once, and members beside the content are inserted
    unchanged: a token costs one JSON string and one join.

    Args:
        turn: The turn.
        streaming: Whether the answer is streamed.
        include_usage: Whether the stream ends with a chunk with the token counts.
        sources: Whether the request names an index; then ``source_nodes`` are present, null without a search.

    Attributes:
        composed: The answer is always rendered here; the model server's own bytes are never sent.
    """

    prefix = "chatcmpl-"
    whole = "chat.completion"
    chunk = "chat.completion.chunk"
    composed = False
    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(self, turn: Turn, *, streaming: bool, include_usage: bool = False, sources: bool = False) -> None:
        self.turn = turn
        self.streaming = streaming
        self._include_usage = include_usage
        self._answer = Answer()
        # The members around the choices: the model server's own if it sends any.
        self._envelope: dict[str, Any] = {
            "id": f"{self.prefix}{uuid.uuid4().hex}",
            "object": self.chunk if streaming else self.whole,
            "created": int(time.time()),
            "model": turn.shown_model,
        }
        self._head = b""
        self._tail = b',"usage":null}\n\n' if include_usage else b"}\n\n"
        self._begun: set[int] = set()
        self._finish: Finish | None = None
        self._usage: Usage | None = None
        # Members that the next chunk carries beside its choice.
        self._extra: dict[str, Any] = {"source_nodes": None} if sources else {}
        self._found: list[Detections] = []
        self._unsaid = list(directions_of(turn.detectors))

    # --- streamed ---------------------------------------------------------------------------------------------

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`."""
        out: list[bytes] = []
        for event in batch:
            if type(event) is Delta:
                self._delta(event, out)
            elif type(event) is Chunk:
                out.append(_event(self._with_extra(event.raw_json) if self._extra else event.raw_json))
            elif type(event) is Start:
                self._know(members_of(event.raw_json))
            elif type(event) is Finish:
                self._flush_finish(out)
                self._finish = event
            elif type(event) is Usage:
                self._usage = event
            elif type(event) is Context:
                if self.turn.retrieval.indexes:
                    self._extra["source_nodes"] = [source_node(passage) for passage in event.passages]
            elif type(event) is Detections:
                self._found.append(event)
            elif type(event) is Completion:
                # The model server answered in one piece although a stream was requested.
                out.append(_event(self._with_extra(_as_chunk(event.raw_json))))
            elif type(event) is Done:
                self._end(event, out)
        return b"".join(out)

    def render_failure(self, error: CausewayError) -> bytes:
        """See `Exchange`: an event with the error. A ``[DONE]`` would tell clients that the answer is complete."""
        return _event(problem(error))

    def _know(self, members: dict[str, Any]) -> None:
        entry = {name: value for name, value in members.items() if value is not None}
        self._envelope |= entry | {"object": self._envelope["object"]}
        self._head = b""

    def _with_extra(self, raw_json: bytes) -> bytes:
        """Return a model server's own object with added members; all other bytes are unchanged."""
        extra, self._extra = self._extra, {}
        return _spliced(raw_json, extra)

    def _delta(self, event: Delta, out: list[bytes]) -> None:
        if self._finish is not None:
            # The delta belongs to another choice than the one that ended.
            self._flush_finish(out)
        if event.choice not in self._begun:
            self._begin(event.choice, out)
        if event.delta_json or event.choice_json or self._found or not self._head:
            content = b'"content":' + _encode(event.text) if event.text else b""
            delta = b",".join(filter(None, (content, _inside(event.delta_json))))
            self._choice(event.choice, delta, event.choice_json, NOT_FINISHED, out)
        else:
            # The hot path.
            out.append(
                b'%b"choices":[{"index":%d,"delta":{"content":%b},"finish_reason":null}]%b'
                % (self._head, event.choice, _encode(event.text), self._tail)
            )

    def _begin(self, choice: int, out: list[bytes]) -> None:
        self._begun.add(choice)
        self._choice(choice, b'"role":"assistant","content":""', b"", NOT_FINISHED, out)

    def _flush_finish(self, out: list[bytes]) -> None:
        if self._finish is None:
            return
        finish, self._finish = self._finish, None
        self._last_of(finish, out)

    def _last_of(self, finish: Finish, out: list[bytes]) -> None:
        if finish.choice not in self._begun:
            self._begin(finish.choice, out)
        self._choice(finish.choice, b"", finish.choice_json, _encode(finish.reason or None), out)

    def _choice(self, index: int, delta: bytes, others: bytes, reason: bytes, out: list[bytes]) -> None:
        """Append a chunk of one choice, with all members that wait to be sent."""
        others = _inside(others)
        body = b'"choices":[{"index":%d,"delta":{%b}%b%b,"finish_reason":%b}]' % (
            index,
            delta,
            b"," if others else b"",
            others,
            reason,
        )
        out.append(self._around(body, self._tail))

    def _around(self, choices: bytes, tail: bytes) -> bytes:
        if not self._head:
            self._head = b"data: " + _encode(self._envelope)[:-1] + b","
        extra = self._extra | self._detections()
        self._extra = {}
        return b"".join((self._head, choices, b"," if extra else b"", _encode(extra)[1:-1], tail))

    def _detections(self, *, last: bool = False) -> dict[str, Any]:
        """Return the findings that were not sent yet. A requested direction is named at least once."""
        named = [direction for direction in Direction if any(event.direction is direction for event in self._found)]
        # Question and passages are judged before the first chunk.
        named += [side for side in self._unsaid if side not in named and (last or side is not Direction.OUTPUT)]
        if not named:
            return {}
        entry = {"detections": detections_block(self._found, named)} | _warned(self._found)
        self._unsaid = [side for side in self._unsaid if side not in named]
        self._found = []
        return entry

    def _end(self, done: Done, out: list[bytes]) -> None:
        if self._begun or self._finish is not None:
            # Not for a pass-through answer, which is sent unchanged.
            last: dict[str, Any] = {"timings": _timings(done.steps)}
            if self._include_usage and self._usage is not None:
                self._flush_finish(out)
                last["usage"] = usage_object(self._usage)
            self._extra |= last | self._detections(last=True)
            if self._finish is not None:
                self._flush_finish(out)
            else:
                out.append(self._around(b'"choices":[]', b"}\n\n"))
        out.append(_DONE)

    # --- in one piece -----------------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        """See `Exchange`."""
        self._answer.take(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        answer = self._answer
        if answer.context is not None and self.turn.retrieval.indexes:
            self._extra["source_nodes"] = [source_node(passage) for passage in answer.context.passages]
        if answer.completion:
            return self._with_own(answer)
        self._know(answer.start)
        body = self._envelope
        body["choices"] = [self._choice_of(index, answer) for index in sorted(answer.choices)]
        if answer.usage is not None:
            body["usage"] = usage_object(answer.usage)
        return _encode(body | self._judged(answer) | self._extra)

    def _judged(self, answer: Answer) -> dict[str, Any]:
        """Return the detectors' results of a whole answer."""
        directions = directions_of(self.turn.detectors)
        if not directions:
            return {}
        return {"detections": detections_block(answer.detections, directions)} | _warned(answer.detections)

    def _with_own(self, answer: Answer) -> bytes:
        """Return a model server's whole answer with our members, which replace members of the same name."""
        own = self._judged(answer)
        raw_json = answer.completion
        if own and not own.keys().isdisjoint(members := members_of(raw_json)):
            raw_json = _encode({name: value for name, value in members.items() if name not in own})
        self._extra |= own
        return self._with_extra(raw_json)

    @staticmethod
    def _choice_of(index: int, answer: Answer) -> dict[str, Any]:
        choice = answer.choices[index]
        content = choice.text if choice.texts or not choice.delta else None
        message: dict[str, Any] = {"role": "assistant", "content": content}
        merge(message, choice.delta)
        drop_numbers(message)
        entry = {"index": index, "message": message} | choice.members
        return entry | {"finish_reason": choice.finish_reason or None}


def source_node(passage: Passage) -> dict[str, Any]:
    """Return a passage in RAGEngine's format, in answers and from ``/retrieve``.

    The metadata are the stored ones, without additions.
    """
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


def _spliced(raw_json: bytes, members: dict[str, Any]) -> bytes:
    """Return the object with further members at its end, except those that it already has."""
    try:
        own = _object.decode(raw_json)
    except (ValueError, RecursionError):
        return raw_json  # not an object
    missing = {name: value for name, value in members.items() if name not in own}
    if not missing:
        return raw_json
    head, brace, tail = raw_json.rpartition(b"}")
    return b"".join((head, b"," if own else b"", _encode(missing)[1:-1], brace, tail))


def _event(json: bytes) -> bytes:
    return b"data: %b\n\n" % one_line(json)


def _inside(raw_json: bytes) -> bytes:
    """Return the members of an object without its braces."""
    return one_line(raw_json).strip()[1:-1].strip()


def _as_chunk(completion: bytes) -> bytes:
    body = members_of(completion)
    for choice in body.get("choices") or ():
        delta = choice["delta"] = choice.pop("message", None) or {}
        for number, call in enumerate(delta.get("tool_calls") or ()):
            call.setdefault("index", number)
    return _encode(body | {"object": "chat.completion.chunk"})


def _warned(detections: list[Detections]) -> dict[str, Any]:
    warnings = warnings_of(detections)
    return {"warnings": warnings} if warnings else {}


def _timings(steps: tuple[Step, ...]) -> dict[str, float]:
    return {f"{step.name.replace(' ', '_')}_ms": step.duration_ms for step in steps}
