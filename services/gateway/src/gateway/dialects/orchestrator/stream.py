"""Completions with detections as server-sent events. Each event has one chunk of one choice, after the detectors.

Sources: ADR 005 of the guardrails orchestrator (chat completion support), or its reference implementation if the
profile selects it.
"""

from typing import Any

import msgspec
from servicekit.errors import CausewayError, UpstreamRejected

from gateway.dialects.answer import directions_of, failure_warning, left_out_warning, usage_object
from gateway.dialects.openai.render import source_node
from gateway.dialects.orchestrator import detections, errors
from gateway.dialects.orchestrator.choices import Form
from gateway.dialects.problem import one_line
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
    Start,
    Turn,
    Usage,
)
from gateway.domain.deltas import members_of
from gateway.frontends.profiles import GuardrailsWire

_encode = msgspec.json.encode
_DONE = b"data: [DONE]\n\n"
_SERVER_FAULT = 500


class OrchestratorStream:
    """The state of a streamed answer.

    Args:
        turn: The turn.
        form: The kind of completion.
        wire: The variant of the API.
        envelope: Members around the choices.
        include_usage: Whether the last event has the token counts.
        continuous_usage: Whether every event has the token counts.
    """

    def __init__(
        self,
        turn: Turn,
        form: Form,
        wire: GuardrailsWire,
        envelope: dict[str, Any],
        *,
        include_usage: bool,
        continuous_usage: bool,
    ) -> None:
        self._turn = turn
        self._form = form
        self._wire = wire
        self._strict = wire is GuardrailsWire.ADR
        self._envelope = envelope | {"object": form.chunk}
        self._include_usage = include_usage
        self._continuous = continuous_usage
        self._directions = directions_of(turn.detectors)
        self._whole: frozenset[str] = frozenset()
        self._chunks = False
        self._before: list[Detections] = []
        self._opened = False
        self._found: dict[int, list[Detections]] = {}
        self._late: list[Detections] = []
        self._warnings: list[dict[str, str]] = []
        self._usage: Usage | None = None
        self._begun: set[int] = set()
        self._seen: dict[int, bool] = {}
        self._offsets: dict[int, int] = {}
        self._open: dict[str, Any] | None = None
        self._output_sent = False
        self._sources: dict[str, Any] = {}
        self._relayed = False
        self._failure: UpstreamRejected | None = None

    def render(self, batch: Batch) -> bytes:
        """Return the next bytes.

        Raises:
            DetectorFailed: A detector that must not fail has failed. Earlier calls returned the text before it.
            UpstreamRejected: The model server sent an error. Earlier calls returned the text before it.
        """
        if self._failure is not None:
            raise self._failure
        out: list[bytes] = []
        try:
            self._take(batch, out)
        except UpstreamRejected as error:
            self._flush(out)
            if not out:
                raise
            self._failure = error
        self._flush(out)
        return b"".join(out)

    def _take(self, batch: Batch, out: list[bytes]) -> None:
        for event in batch:
            if type(event) is Delta:
                self._delta(event, out)
            elif type(event) is Finish:
                self._finish(event, out)
            elif type(event) is Detections:
                self._detections(event)
            elif type(event) is Usage:
                self._usage = event
            elif type(event) is Start:
                identity = {name: value for name, value in members_of(event.raw_json).items() if value is not None}
                self._envelope |= identity | {"object": self._form.chunk}
            elif type(event) is Chunk:
                self._relay(event.raw_json, out)
            elif type(event) is Context:
                self._context(event)
            elif type(event) is Completion:
                self._completion(event.raw_json, out)
            elif type(event) is Done:
                self._end(out)

    def failed(self, error: CausewayError) -> bytes:
        """Return the end of a stream that failed."""
        return (
            b"event: error\n" + _event(errors.body(error, self._wire, request_name=self._form.request_name)) + _DONE
        )

    # --- before the answer ---------------------------------------------------------------------------------------

    def _context(self, event: Context) -> None:
        self._sources = sources(self._turn, event) if self._strict else {}
        streaming = {info.detector_id: info.streaming for info in event.detectors}
        named = [each.detector_id for each in self._turn.detectors.output]
        self._whole = frozenset(name for name in named if not streaming.get(name, True))
        # If no detector judges chunks, the reference implementation passes on the chunks of the model.
        self._chunks = bool(named) and (self._strict or len(self._whole) < len(set(named)))

    def _detections(self, event: Detections) -> None:
        errors.check_failures(event.failures, event.direction, self._turn.detectors)
        self._warnings += map(failure_warning, event.failures)
        self._warnings += map(left_out_warning, event.left_out)
        if event.direction is not Direction.OUTPUT:
            self._before.append(event)
            return
        late = tuple(each for each in event.findings if each.detector_id in self._whole)
        now = tuple(each for each in event.findings if each.detector_id not in self._whole)
        if late:
            self._late.append(Detections(Direction.OUTPUT, event.item, late))
        if now:
            self._found.setdefault(event.item, []).append(Detections(Direction.OUTPUT, event.item, now))

    # --- the answer ----------------------------------------------------------------------------------------------

    def _delta(self, event: Delta, out: list[bytes]) -> None:
        self._flush(out)
        index = event.choice
        self._seen[index] = self._seen.get(index, False) or bool(event.text)
        self._begin(index, out)
        extra = members_of(event.delta_json) if event.delta_json else {}
        others = members_of(event.choice_json) if event.choice_json else {}
        piece = self._form.piece(event.text or None, extra, role=self._chunks)
        self._say(index, piece | others, None, out, judged=bool(event.text))
        self._offsets[index] = self._offsets.get(index, 0) + len(event.text)

    def _begin(self, index: int, out: list[bytes]) -> None:
        """Send the role once in an event of its own, unless every event has the role."""
        if not self._chunks and index not in self._begun and not self._form.joins_finish:
            self._say(index, self._form.piece(None, {}, role=True), None, out)
        self._begun.add(index)

    def _finish(self, event: Finish, out: list[bytes]) -> None:
        others = members_of(event.choice_json) if event.choice_json else {}
        self._seen.setdefault(event.choice, False)
        if self._form.joins_finish and self._open is not None and self._open["choices"][0]["index"] == event.choice:
            self._open["choices"][0] |= others | {"finish_reason": event.reason or None}
            return
        self._flush(out)
        self._begin(event.choice, out)
        piece = self._form.piece(None, {}, role=self._chunks)
        self._say(event.choice, piece | others, event.reason, out)

    def _say(
        self,
        index: int,
        extra: dict[str, Any],
        reason: str | None,
        out: list[bytes],
        *,
        judged: bool = False,
    ) -> None:
        """Build an event of one choice. If the finish of the choice can join the event, do not send it yet."""
        self._flush(out)
        choice = {"index": index} | extra | {"finish_reason": reason or None}
        output: list[dict[str, Any]] | None = None
        if judged and self._chunks:
            results = detections.by_item(self._found.pop(index, ())).get(index, [])
            if not self._strict:
                results = detections.moved(results, -self._offsets.get(index, 0))
            output = detections.entries(Direction.OUTPUT, {index: results})
            self._output_sent = True
        elif self._chunks and self._strict:
            # Each event has the block. A choice is in the block after its first text.
            output = detections.entries(Direction.OUTPUT, {index: []} if self._seen.get(index) else {})
        self._open = self._envelope | {"choices": [choice]} | self._beside(output)
        if self._continuous and self._usage is not None:
            self._open["usage"] = usage_object(self._usage)
        if not self._form.joins_finish:
            self._flush(out)

    def _flush(self, out: list[bytes]) -> None:
        if self._open is not None:
            event, self._open = self._open, None
            out.append(_event(_encode(event)))

    def _beside(self, output: list[dict[str, Any]] | None) -> dict[str, Any]:
        """Return the members beside the choices. The first event has the findings in the question."""
        block: dict[str, Any] = {}
        if not self._opened:
            self._opened = True
            block = self._question_block()
        if output is not None:
            block["output"] = output
            if any(entry["results"] for entry in output):
                self._warnings.insert(0, detections.UNSUITABLE_OUTPUT)
        beside, self._sources = self._sources, {}
        beside |= {"detections": block} if block else {}
        if self._warnings:
            beside["warnings"] = self._warnings
            self._warnings = []
        return beside

    def _question_block(self) -> dict[str, Any]:
        block = {}
        for side in self._directions:
            if side is not Direction.OUTPUT:
                results = detections.by_item(event for event in self._before if event.direction is side)
                if results or self._strict:
                    block[side.value] = detections.entries(side, results)
        return block

    # --- answers that are passed through -------------------------------------------------------------------------

    def _relay(self, raw_json: bytes, out: list[bytes]) -> None:
        self._relayed = True
        if b'"error"' in raw_json and (members := members_of(raw_json)).get("error") and not members.get("choices"):
            raise UpstreamRejected("The model server failed.", status=_SERVER_FAULT, body=raw_json.decode())
        if not self._opened and (beside := self._beside(None)):
            raw_json = _encode(members_of(raw_json) | beside)
        out.append(_event(one_line(raw_json)))

    def _completion(self, raw_json: bytes, out: list[bytes]) -> None:
        """Render an answer that the model server sent in one piece although a stream was requested."""
        members = members_of(raw_json)
        members["choices"] = [self._form.piece_of(each) for each in members.get("choices") or ()]
        self._relay(_encode(members | {"object": self._form.chunk}), out)

    # --- the end -------------------------------------------------------------------------------------------------

    def _end(self, out: list[bytes]) -> None:
        self._flush(out)
        if not self._relayed:
            last: dict[str, Any] = {}
            blocked = not self._seen
            if blocked or self._include_usage:
                last["usage"] = usage_object(self._usage)
            if blocked:
                self._warnings.insert(0, detections.UNSUITABLE_INPUT)
                last |= self._beside([] if self._strict and self._turn.detectors.output else None)
            else:
                last |= self._rest()
            if last:
                out.append(_event(_encode(self._envelope | {"choices": []} | last)))
        out.append(_DONE)

    def _rest(self) -> dict[str, Any]:
        """Return the members of the last event, with the findings in the output that no earlier event has."""
        if not self._turn.detectors.output:
            return self._beside(None) if self._warnings or not self._opened else {}
        for events in self._found.values():
            self._late += events
        results = detections.by_item(self._late)
        empty = [index for index, spoke in sorted(self._seen.items()) if not spoke]
        if self._strict and len(empty) == len(self._seen) > 1:
            self._warnings.append(detections.NO_OUTPUT)
        else:
            self._warnings += map(detections.no_content, empty)
        if self._strict and self._whole:
            scanned = {index: results.get(index, []) for index, spoke in self._seen.items() if spoke}
            results = dict(sorted((scanned | results).items()))
        if results or self._whole or not self._output_sent:
            output = detections.entries(Direction.OUTPUT, results)
            return self._beside(output if output or self._strict else None)
        return self._beside(None) if self._warnings else {}


def sources(turn: Turn, context: Context | None) -> dict[str, Any]:
    """Return the passages of an answer from an index, in OpenAI's format."""
    if context is None or not turn.retrieval.indexes:
        return {}
    return {"source_nodes": [source_node(passage) for passage in context.passages]}


def _event(json: bytes) -> bytes:
    return b"data: %b\n\n" % json
