"""OpenAI chat completions: the answer, in one piece or as server-sent events."""

import time
import uuid
from typing import Any

import msgspec
from servicekit.errors import CausewayError

from gateway.domain import (
    Batch,
    Chunk,
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
from gateway.protocols.answer import Answer, detections_block, merge, warnings_of
from gateway.protocols.problem import problem

_encode = msgspec.json.encode
_NO_FINISH = b'},"finish_reason":null}]'


class OpenAiExchange:
    """`Exchange` of one chat completion.

    What of a stream is the same in all chunks is encoded once; a token costs one JSON string and one join.
    """

    def __init__(self, turn: Turn, *, streaming: bool, include_usage: bool) -> None:
        self.turn = turn
        self.streaming = streaming
        self._include_usage = include_usage
        self._answer = Answer()
        self._begun: set[int] = set()
        self._head = b""
        self._tail = b"}\n\n"
        self._finish: Finish | None = None
        self._context: Context | None = None
        self._usage: Usage | None = None
        self._passed_through = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """See `Exchange`."""
        return self._answer.steps

    # --- streamed ---------------------------------------------------------------------------------------------

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`."""
        out: list[bytes] = []
        for event in batch:
            if type(event) is Delta:
                if event.choice not in self._begun:
                    self._begin(event.choice, out)
                if event.raw_json:
                    self._choice(self._members(event), event.choice, None, out)
                else:
                    # The hot path.
                    out.append(
                        b'%b"choices":[{"index":%d,"delta":{"content":%b%b%b'
                        % (self._head, event.choice, _encode(event.text), _NO_FINISH, self._tail)
                    )
            elif type(event) is Chunk:
                self._passed_through = True
                out.append(b"data: %b\n\n" % event.raw_json)
            elif type(event) is Context:
                self._context = event
            elif type(event) is Start:
                self._set_head(msgspec.json.decode(event.raw_json))
            elif type(event) is Finish:
                self._flush_finish(out)
                self._finish = event
            elif type(event) is Usage:
                self._usage = event
            elif type(event) is Detections:
                self._extra({"detections": detections_block([event], (event.direction,))} | _warned([event]), out)
            elif type(event) is Done:
                self._end(event, out)
        return b"".join(out)

    def render_failure(self, error: CausewayError) -> bytes:
        """See `Exchange`: an event with the error, then the end of the stream."""
        return b"data: %b\n\ndata: [DONE]\n\n" % problem(error)

    def _set_head(self, start: dict[str, Any]) -> None:
        members = _envelope(start, "chat.completion.chunk", self.turn)
        self._head = b"data: " + _encode(members)[:-1] + b","
        if self._include_usage:
            self._tail = b',"usage":null}\n\n'

    def _begin(self, choice: int, out: list[bytes]) -> None:
        if not self._head:
            self._set_head({})
        first = not self._begun
        self._begun.add(choice)
        extra: dict[str, Any] = {}
        if first and self._context is not None and self.turn.retrieval.indexes:
            extra = {"source_nodes": [source_node(passage) for passage in self._context.passages]}
        self._choice({"delta": {"role": "assistant", "content": ""}}, choice, None, out, extra)

    def _choice(
        self,
        members: dict[str, Any],
        choice: int,
        reason: str | None,
        out: list[bytes],
        extra: dict[str, Any] | None = None,
    ) -> None:
        body = {"index": choice, "delta": {}} | members | {"finish_reason": reason}
        more = b"," + _encode(extra)[1:-1] if extra else b""
        out.append(b'%b"choices":[%b]%b%b' % (self._head, _encode(body), more, self._tail))

    def _members(self, event: Delta) -> dict[str, Any]:
        members: dict[str, Any] = msgspec.json.decode(event.raw_json)
        if event.text:
            members["delta"] = {"content": event.text} | members.get("delta", {})
        return members

    def _flush_finish(self, out: list[bytes], extra: dict[str, Any] | None = None) -> None:
        if self._finish is None:
            return
        finish, self._finish = self._finish, None
        if finish.choice not in self._begun:
            self._begin(finish.choice, out)
        members = msgspec.json.decode(finish.raw_json) if finish.raw_json else {}
        self._choice(members, finish.choice, finish.reason, out, extra)

    def _extra(self, members: dict[str, Any], out: list[bytes]) -> None:
        if not self._head:
            self._set_head({})
        out.append(b'%b"choices":[],%b%b' % (self._head, _encode(members)[1:-1], self._tail))

    def _end(self, done: Done, out: list[bytes]) -> None:
        timings = {"timings": _timings(done.steps)}
        if self._include_usage and self._usage is not None:
            self._flush_finish(out)
            usage = {"choices": [], "usage": _usage(self._usage)} | timings
            out.append(self._head + _encode(usage)[1:] + b"\n\n")
        else:
            self._flush_finish(out, timings)
        out.append(b"data: [DONE]\n\n")

    # --- in one piece -----------------------------------------------------------------------------------------

    def take(self, batch: Batch) -> None:
        """See `Exchange`."""
        self._answer.take(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        answer = self._answer
        if answer.completion:
            return answer.completion
        body = _envelope(answer.start, "chat.completion", self.turn)
        body["choices"] = [self._whole_choice(index, answer) for index in sorted(answer.choices)]
        if answer.usage is not None:
            body["usage"] = _usage(answer.usage)
        asked = tuple(direction for direction in Direction if getattr(self.turn.detectors, direction.value))
        if asked:
            body["detections"] = detections_block(answer.detections, asked)
            body |= _warned(answer.detections)
        passages = answer.context.passages if answer.context and self.turn.retrieval.indexes else None
        body["source_nodes"] = None if passages is None else [source_node(passage) for passage in passages]
        return _encode(body)

    def _whole_choice(self, index: int, answer: Answer) -> dict[str, Any]:
        choice = answer.choices[index]
        members = dict(choice.members)
        message: dict[str, Any] = {"role": "assistant", "content": choice.text or None}
        merge(message, members.pop("delta", {}))
        return {"index": index, "message": message} | members | {"finish_reason": choice.finish_reason or None}


def source_node(passage: Passage) -> dict[str, Any]:
    """A passage as RAGEngine's clients read it, in answers and from ``/retrieve``."""
    node: dict[str, Any] = {
        "doc_id": passage.document_id,
        "node_id": passage.id,
        "text": passage.text,
        "score": passage.score,
        "dense_score": passage.dense_score,
        "sparse_score": passage.sparse_score,
        "source": passage.found_by,
        "metadata": {
            **msgspec.json.decode(passage.metadata_json),
            "sourcefile": passage.sourcefile,
            "sourcepage": passage.sourcepage,
        },
    }
    return node


def _envelope(start: dict[str, Any], kind: str, turn: Turn) -> dict[str, Any]:
    """The members around the choices: the model server's own where it sent any."""
    envelope = {
        "id": f"chatcmpl-{uuid.uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": turn.model,
    }
    return envelope | {name: value for name, value in start.items() if value is not None} | {"object": kind}


def _usage(usage: Usage) -> dict[str, Any]:
    if usage.raw_json:
        own: dict[str, Any] = msgspec.json.decode(usage.raw_json)
        return own
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def _warned(detections: list[Detections]) -> dict[str, Any]:
    warnings = warnings_of(detections)
    return {"warnings": warnings} if warnings else {}


def _timings(steps: tuple[Step, ...]) -> dict[str, float]:
    return {f"{step.name.replace(' ', '_')}_ms": step.duration_ms for step in steps}
