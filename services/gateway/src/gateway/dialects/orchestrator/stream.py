"""Renders completions with detections as server-sent events. An event has one chunk of one choice and its findings.

Sources: ADR 005 of the guardrails orchestrator (chat completion support), or its reference implementation if the
profile selects it.
"""

from typing import Any

import msgspec
from servicekit.errors import CausewayError, UpstreamRejected

from gateway.dialects.answer import directions_of, failure_warning, left_out_warning, usage_object
from gateway.dialects.openai.render import source_node
from gateway.dialects.orchestrator import detections, errors
from gateway.dialects.orchestrator.choices import CompletionFormat
from gateway.dialects.problem import SERVER_ERROR, one_line
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
from gateway.domain.deltas import choices_of, members_of
from gateway.frontends.profiles import GuardrailsWire

_encode = msgspec.json.encode
_DONE = b"data: [DONE]\n\n"


class OrchestratorStream:
    """Renders one streamed answer, and keeps the state between its batches.

    Args:
        turn: The turn.
        completion_format: The format of the completion.
        wire: The wire format of the API.
        envelope: The members of a chunk other than the choices.
        include_usage: Whether the last event has the token counts.
        continuous_usage: Whether each event of a choice has the token counts that the model has reported so far.
    """

    def __init__(
        self,
        turn: Turn,
        completion_format: CompletionFormat,
        wire: GuardrailsWire,
        envelope: dict[str, Any],
        *,
        include_usage: bool,
        continuous_usage: bool,
    ) -> None:
        self._turn = turn
        self._format = completion_format
        self._wire = wire
        self._is_adr = wire is GuardrailsWire.ADR
        self._envelope = envelope | {"object": completion_format.chunk_object}
        self._include_usage = include_usage
        self._continuous = continuous_usage
        self._directions = directions_of(turn.detectors)
        self._whole_text_detectors: frozenset[str] = frozenset()
        self._detects_in_chunks = False
        self._input_detections: list[Detections] = []
        self._has_sent_event = False
        self._pending: dict[int, list[Detections]] = {}
        self._final_detections: list[Detections] = []
        self._warnings: list[dict[str, str]] = []
        self._usage: Usage | None = None
        self._started: set[int] = set()
        self._has_content: dict[int, bool] = {}
        self._offsets: dict[int, int] = {}
        self._unsent: dict[str, Any] | None = None
        self._output_sent = False
        self._sources: dict[str, Any] = {}
        self._passed_through = False
        self._failure: UpstreamRejected | None = None

    def render(self, batch: Batch) -> bytes:
        """Return the next bytes.

        Raises:
            DetectorFailed: The answer must not continue without a detector that failed. Earlier calls returned the
                text before the error.
            UpstreamRejected: The model server sent an error. Earlier calls returned the text before the error.
        """
        if self._failure is not None:
            raise self._failure
        out: list[bytes] = []
        try:
            self._process(batch, out)
        except UpstreamRejected as error:
            self._flush(out)
            if not out:
                raise
            self._failure = error
        self._flush(out)
        return b"".join(out)

    def _process(self, batch: Batch, out: list[bytes]) -> None:
        for event in batch:
            if type(event) is Delta:
                self._write_delta(event, out)
            elif type(event) is Finish:
                self._write_finish(event, out)
            elif type(event) is Detections:
                self._add_detections(event)
            elif type(event) is Usage:
                self._usage = event
            elif type(event) is Start:
                known = {name: value for name, value in members_of(event.raw_json).items() if value is not None}
                self._envelope |= known | {"object": self._format.chunk_object}
            elif type(event) is Chunk:
                self._pass_through(event.raw_json, out)
            elif type(event) is Context:
                self._add_context(event)
            elif type(event) is Completion:
                self._write_completion(event.raw_json, out)
            elif type(event) is Done:
                self._write_end(out)

    def render_failure(self, error: CausewayError) -> bytes:
        """Return the end of a failed stream."""
        return (
            b"event: error\n"
            + _event(errors.body(error, self._wire, request_name=self._format.request_name))
            + _DONE
        )

    # --- before the answer ---------------------------------------------------------------------------------------

    def _add_context(self, event: Context) -> None:
        self._sources = sources(self._turn, event) if self._is_adr else {}
        streaming = {info.detector_id: info.streaming for info in event.detectors}
        names = [detector.detector_id for detector in self._turn.detectors.output]
        self._whole_text_detectors = frozenset(name for name in names if not streaming.get(name, True))
        # If no detector judges chunks, the reference implementation forwards the chunks of the model.
        self._detects_in_chunks = bool(names) and (
            self._is_adr or len(self._whole_text_detectors) < len(set(names))
        )

    def _add_detections(self, event: Detections) -> None:
        errors.check_failures(event.failures, event.direction, self._turn.detectors)
        self._warnings += map(failure_warning, event.failures)
        self._warnings += map(left_out_warning, event.omitted_paths)
        if event.direction is not Direction.OUTPUT:
            self._input_detections.append(event)
            return
        final = tuple(finding for finding in event.findings if finding.detector_id in self._whole_text_detectors)
        immediate = tuple(
            finding for finding in event.findings if finding.detector_id not in self._whole_text_detectors
        )
        if final:
            self._final_detections.append(Detections(Direction.OUTPUT, event.item, final))
        if immediate:
            self._pending.setdefault(event.item, []).append(Detections(Direction.OUTPUT, event.item, immediate))

    # --- the answer ----------------------------------------------------------------------------------------------

    def _write_delta(self, event: Delta, out: list[bytes]) -> None:
        self._flush(out)
        index = event.choice
        self._has_content[index] = self._has_content.get(index, False) or bool(event.text)
        self._start_choice(index, out)
        extra = members_of(event.delta_json) if event.delta_json else {}
        others = members_of(event.choice_json) if event.choice_json else {}
        piece = self._format.chunk_choice(event.text or None, extra, role=self._detects_in_chunks)
        self._emit(index, piece | others, None, out, has_text=bool(event.text))
        self._offsets[index] = self._offsets.get(index, 0) + len(event.text)

    def _start_choice(self, index: int, out: list[bytes]) -> None:
        """Write an event with the role before the first event of a choice, if the other events have no role."""
        if not self._detects_in_chunks and index not in self._started and not self._format.joins_finish:
            self._emit(index, self._format.chunk_choice(None, {}, role=True), None, out)
        self._started.add(index)

    def _write_finish(self, event: Finish, out: list[bytes]) -> None:
        others = members_of(event.choice_json) if event.choice_json else {}
        self._has_content.setdefault(event.choice, False)
        if (
            self._format.joins_finish
            and self._unsent is not None
            and self._unsent["choices"][0]["index"] == event.choice
        ):
            self._unsent["choices"][0] |= others | {"finish_reason": event.reason or None}
            return
        self._flush(out)
        self._start_choice(event.choice, out)
        piece = self._format.chunk_choice(None, {}, role=self._detects_in_chunks)
        self._emit(event.choice, piece | others, event.reason, out)

    def _emit(
        self,
        index: int,
        extra: dict[str, Any],
        finish_reason: str | None,
        out: list[bytes],
        *,
        has_text: bool = False,
    ) -> None:
        """Write an event of one choice.

        If the format has the finish reason in the event with the last text (`CompletionFormat.joins_finish`), the
        next call of `_flush` writes the event.

        Args:
            index: The index of the choice.
            extra: The members of the choice other than its index and its finish reason.
            finish_reason: The finish reason, or None before the end of the choice.
            out: Receives the events.
            has_text: Whether the event has text.
        """
        self._flush(out)
        choice = {"index": index} | extra | {"finish_reason": finish_reason or None}
        output: list[dict[str, Any]] | None = None
        if has_text and self._detects_in_chunks:
            results = detections.results_by_item(self._pending.pop(index, ())).get(index, [])
            if not self._is_adr:
                results = detections.shifted(results, -self._offsets.get(index, 0))
            output = detections.entries(Direction.OUTPUT, {index: results})
            self._output_sent = True
        elif self._detects_in_chunks and self._is_adr:
            # Every event has the member ``output``. It contains a choice only after the first text of the choice.
            output = detections.entries(Direction.OUTPUT, {index: []} if self._has_content.get(index) else {})
        self._unsent = self._envelope | {"choices": [choice]} | self._next_members(output)
        if self._continuous and self._usage is not None:
            self._unsent["usage"] = usage_object(self._usage)
        if not self._format.joins_finish:
            self._flush(out)

    def _flush(self, out: list[bytes]) -> None:
        if self._unsent is not None:
            event, self._unsent = self._unsent, None
            out.append(_event(_encode(event)))

    def _next_members(self, output: list[dict[str, Any]] | None) -> dict[str, Any]:
        """Return the gateway's members of the next event: findings, warnings and ``source_nodes``.

        The first event has the findings in the input and in the passages.

        Args:
            output: The findings in the output, or None if the event has no member ``output``.
        """
        block: dict[str, Any] = {}
        if not self._has_sent_event:
            self._has_sent_event = True
            block = self._input_block()
        if output is not None:
            block["output"] = output
            if any(entry["results"] for entry in output):
                self._warnings.insert(0, detections.UNSUITABLE_OUTPUT)
        members, self._sources = self._sources, {}
        members |= {"detections": block} if block else {}
        if self._warnings:
            members["warnings"] = self._warnings
            self._warnings = []
        return members

    def _input_block(self) -> dict[str, Any]:
        """Return the findings in the input and in the passages, by direction."""
        block = {}
        for direction in self._directions:
            if direction is not Direction.OUTPUT:
                results = detections.results_by_item(
                    event for event in self._input_detections if event.direction is direction
                )
                if results or self._is_adr:
                    block[direction.value] = detections.entries(direction, results)
        return block

    # --- passed-through answers ----------------------------------------------------------------------------------

    def _pass_through(self, raw_json: bytes, out: list[bytes]) -> None:
        self._passed_through = True
        if b'"error"' in raw_json and (members := members_of(raw_json)).get("error") and not members.get("choices"):
            raise UpstreamRejected("The model server failed.", status=SERVER_ERROR, body=raw_json.decode())
        if not self._has_sent_event and (members := self._next_members(None)):
            raw_json = _encode(members_of(raw_json) | members)
        out.append(_event(one_line(raw_json)))

    def _write_completion(self, raw_json: bytes, out: list[bytes]) -> None:
        """Write an answer that the model server sent in one piece, although the gateway requested a stream."""
        members = members_of(raw_json)
        members["choices"] = [
            self._format.to_chunk_choice(choice, position) for position, choice in enumerate(choices_of(members))
        ]
        self._pass_through(_encode(members | {"object": self._format.chunk_object}), out)

    # --- the end -------------------------------------------------------------------------------------------------

    def _write_end(self, out: list[bytes]) -> None:
        self._flush(out)
        if not self._passed_through:
            last: dict[str, Any] = {}
            is_blocked = not self._has_content
            if is_blocked or self._include_usage:
                last["usage"] = usage_object(self._usage)
            if is_blocked:
                self._warnings.insert(0, detections.UNSUITABLE_INPUT)
                last |= self._next_members([] if self._is_adr and self._turn.detectors.output else None)
            else:
                last |= self._last_members()
            if last:
                out.append(_event(_encode(self._envelope | {"choices": []} | last)))
        out.append(_DONE)

    def _last_members(self) -> dict[str, Any]:
        """Return the members of the last event, with the output findings that are not in earlier events."""
        if not self._turn.detectors.output:
            return self._next_members(None) if self._warnings or not self._has_sent_event else {}
        for events in self._pending.values():
            self._final_detections += events
        results = detections.results_by_item(self._final_detections)
        empty = [index for index, has_content in sorted(self._has_content.items()) if not has_content]
        if self._is_adr and len(empty) == len(self._has_content) > 1:
            self._warnings.append(detections.NO_OUTPUT)
        else:
            self._warnings += map(detections.no_content_warning, empty)
        if self._is_adr and self._whole_text_detectors:
            judged = {
                index: results.get(index, []) for index, has_content in self._has_content.items() if has_content
            }
            results = dict(sorted((judged | results).items()))
        if results or self._whole_text_detectors or not self._output_sent:
            output = detections.entries(Direction.OUTPUT, results)
            return self._next_members(output if output or self._is_adr else None)
        return self._next_members(None) if self._warnings else {}


def sources(turn: Turn, context: Context | None) -> dict[str, Any]:
    """Return ``source_nodes`` with the passages of an answer, or no members if the turn has no search."""
    if context is None or not turn.retrieval.indexes:
        return {}
    return {"source_nodes": [source_node(passage) for passage in context.passages]}


def _event(json: bytes) -> bytes:
    return b"data: %b\n\n" % json
