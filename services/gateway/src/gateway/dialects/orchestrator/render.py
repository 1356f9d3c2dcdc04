"""Renders completions with detections, in one piece or as server-sent events."""

import time
import uuid
from typing import Any

import msgspec
from servicekit.errors import CausewayError

from gateway.dialects.answer import Answer, directions_of, failure_warning, left_out_warning, usage_object
from gateway.dialects.orchestrator import detections, errors
from gateway.dialects.orchestrator.choices import CompletionFormat
from gateway.dialects.orchestrator.stream import OrchestratorStream, sources
from gateway.domain import Batch, Detections, Turn
from gateway.domain.deltas import choices_of, index_of, members_of
from gateway.frontends.profiles import GuardrailsWire


class OrchestratorExchange:
    """`Exchange` of one completion with detections. The members that the model server sends remain unchanged.

    Args:
        turn: The turn.
        completion_format: The format of the completion.
        wire: The wire format of the API.
        streaming: Whether the answer is a stream.
        include_usage: Whether the last event of a stream has the token counts.
        continuous_usage: Whether each event of a choice in a stream has the token counts that the model has
            reported so far.
    """

    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(
        self,
        turn: Turn,
        completion_format: CompletionFormat,
        wire: GuardrailsWire,
        *,
        streaming: bool,
        include_usage: bool = False,
        continuous_usage: bool = False,
    ) -> None:
        self.turn = turn
        self.streaming = streaming
        self._format = completion_format
        self._is_adr = wire is GuardrailsWire.ADR
        self._envelope: dict[str, Any] = {
            "id": f"{completion_format.prefix}{uuid.uuid4().hex}",
            "object": completion_format.completion_object,
            "created": int(time.time()),
            "model": turn.answer_model,
        }
        self._answer = Answer()
        self._stream = OrchestratorStream(
            turn,
            completion_format,
            wire,
            self._envelope,
            include_usage=include_usage,
            continuous_usage=continuous_usage,
        )

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`."""
        return self._stream.render(batch)

    def render_failure(self, error: CausewayError) -> bytes:
        """See `Exchange`."""
        return self._stream.render_failure(error)

    def add_events(self, batch: Batch) -> None:
        """See `Exchange`.

        Raises:
            DetectorFailed: The answer must not continue without a detector that failed.
        """
        for event in batch:
            if isinstance(event, Detections):
                errors.check_failures(event.failures, event.direction, self.turn.detectors)
        self._answer.add_events(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        answer = self._answer
        if answer.completion:
            return self._with_added_members(answer.completion)
        known = {name: value for name, value in answer.start.items() if value is not None}
        if answer.start.get("object") == self._format.chunk_object:
            known["object"] = self._format.completion_object
        body = self._envelope | known
        body["choices"] = [
            {"index": index}
            | self._format.complete(choice)
            | choice.members
            | {"finish_reason": choice.finish_reason or None}
            for index, choice in sorted(answer.choices.items())
        ]
        if answer.usage is not None:
            body["usage"] = usage_object(answer.usage)
        return msgspec.json.encode(body | self._added_members())

    def _with_added_members(self, completion: bytes) -> bytes:
        """Return the model server's answer, with the gateway's members if there are any."""
        added = self._added_members()
        return msgspec.json.encode(members_of(completion) | added) if added else completion

    def _added_members(self) -> dict[str, Any]:
        events = self._answer.detections
        block: dict[str, Any] = {}
        for direction in directions_of(self.turn.detectors):
            results = detections.results_by_item(event for event in events if event.direction is direction)
            if results or self._is_adr:
                block[direction.value] = detections.entries(direction, results)
        warnings = self._warnings(bool(block.get("output")))
        added: dict[str, Any] = sources(self.turn, self._answer.context) if self._is_adr else {}
        added |= {"detections": block} if block else {}
        return added | ({"warnings": warnings} if warnings else {})

    @property
    def _blocked(self) -> bool:
        """Return whether the question was blocked, so that the answer has no choices."""
        return not (self._answer.choices or self._answer.completion)

    def _choices_with_content(self) -> dict[int, bool]:
        """Return for each choice whether it has content."""
        if not self._answer.completion:
            return {index: bool(choice.text) for index, choice in self._answer.choices.items()}
        choices = choices_of(members_of(self._answer.completion))
        return {
            index_of(choice, position): self._format.has_content(choice) for position, choice in enumerate(choices)
        }

    def _warnings(self, is_unsuitable: bool) -> list[dict[str, str]]:
        warnings = []
        if self._blocked:
            warnings.append(detections.UNSUITABLE_INPUT)
        if is_unsuitable:
            warnings.append(detections.UNSUITABLE_OUTPUT)
        if self.turn.detectors.output:
            choices = self._choices_with_content()
            empty = [index for index, has_content in sorted(choices.items()) if not has_content]
            if self._is_adr and len(empty) == len(choices) > 1:
                warnings.append(detections.NO_OUTPUT)
            else:
                warnings += map(detections.no_content_warning, empty)
        warnings += [failure_warning(failure) for event in self._answer.detections for failure in event.failures]
        warnings += [left_out_warning(path) for event in self._answer.detections for path in event.omitted_paths]
        return warnings
