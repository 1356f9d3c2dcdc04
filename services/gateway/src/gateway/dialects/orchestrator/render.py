"""Completions with detections: the answer, in one piece or as server-sent events."""

import time
import uuid
from typing import Any

import msgspec
from servicekit.errors import CausewayError

from gateway.dialects.answer import Answer, directions_of, failure_warning, left_out_warning, usage_object
from gateway.dialects.orchestrator import detections, errors
from gateway.dialects.orchestrator.choices import Form
from gateway.dialects.orchestrator.stream import OrchestratorStream, sources
from gateway.domain import Batch, Detections, Turn
from gateway.domain.deltas import members_of
from gateway.frontends.profiles import GuardrailsWire


class OrchestratorExchange:
    """`Exchange` of one completion with detections. The model server's own members do not change.

    Args:
        turn: The turn.
        form: The kind of completion.
        wire: The variant of the API.
        streaming: Whether the answer is streamed.
        include_usage: Whether a stream ends with the token counts.
        continuous_usage: Whether each of its events has them.
    """

    headers: tuple[tuple[bytes, bytes], ...] = ()

    def __init__(
        self,
        turn: Turn,
        form: Form,
        wire: GuardrailsWire,
        *,
        streaming: bool,
        include_usage: bool = False,
        continuous_usage: bool = False,
    ) -> None:
        self.turn = turn
        self.streaming = streaming
        self._form = form
        self._strict = wire is GuardrailsWire.ADR
        self._envelope: dict[str, Any] = {
            "id": f"{form.prefix}{uuid.uuid4().hex}",
            "object": form.whole,
            "created": int(time.time()),
            "model": turn.shown_model,
        }
        self._answer = Answer()
        self._stream = OrchestratorStream(
            turn, form, wire, self._envelope, include_usage=include_usage, continuous_usage=continuous_usage
        )

    def render(self, batch: Batch) -> bytes:
        """See `Exchange`."""
        return self._stream.render(batch)

    def render_failure(self, error: CausewayError) -> bytes:
        """See `Exchange`."""
        return self._stream.failed(error)

    def take(self, batch: Batch) -> None:
        """See `Exchange`.

        Raises:
            DetectorFailed: A detector failed that is not allowed to fail.
        """
        for event in batch:
            if isinstance(event, Detections):
                errors.check_failures(event.failures, event.direction, self.turn.detectors)
        self._answer.take(batch)

    def complete(self) -> bytes:
        """See `Exchange`."""
        answer = self._answer
        if answer.completion:
            return self._spliced(answer.completion)
        known = {name: value for name, value in answer.start.items() if value is not None}
        if answer.start.get("object") == self._form.chunk:
            known["object"] = self._form.whole
        body = self._envelope | known
        body["choices"] = [
            {"index": index}
            | self._form.complete(choice)
            | choice.members
            | {"finish_reason": choice.finish_reason or None}
            for index, choice in sorted(answer.choices.items())
        ]
        if answer.usage is not None:
            body["usage"] = usage_object(answer.usage)
        return msgspec.json.encode(body | self._found())

    def _spliced(self, completion: bytes) -> bytes:
        """Return the model server's own answer; unchanged if there are no members to add."""
        beside = self._found()
        return msgspec.json.encode(members_of(completion) | beside) if beside else completion

    def _found(self) -> dict[str, Any]:
        events = self._answer.detections
        block: dict[str, Any] = {}
        for side in directions_of(self.turn.detectors):
            results = detections.by_item(event for event in events if event.direction is side)
            if results or self._strict:
                block[side.value] = detections.entries(side, results)
        warnings = self._warnings(bool(block.get("output")))
        beside: dict[str, Any] = sources(self.turn, self._answer.context) if self._strict else {}
        beside |= {"detections": block} if block else {}
        return beside | ({"warnings": warnings} if warnings else {})

    @property
    def _blocked(self) -> bool:
        """Return whether the question was blocked: then there are no choices."""
        return not (self._answer.choices or self._answer.completion)

    def _spoken(self) -> dict[int, bool]:
        """Return whether each choice has content."""
        if not self._answer.completion:
            return {index: bool(choice.text) for index, choice in self._answer.choices.items()}
        choices = members_of(self._answer.completion).get("choices")
        items = [each for each in choices if isinstance(each, dict)] if isinstance(choices, list) else []
        return {each.get("index", at): self._form.speaks(each) for at, each in enumerate(items)}

    def _warnings(self, unsuitable: bool) -> list[dict[str, str]]:
        warnings = []
        if self._blocked:
            warnings.append(detections.UNSUITABLE_INPUT)
        if unsuitable:
            warnings.append(detections.UNSUITABLE_OUTPUT)
        if self.turn.detectors.output:
            spoken = self._spoken()
            empty = [index for index, spoke in sorted(spoken.items()) if not spoke]
            if self._strict and len(empty) == len(spoken) > 1:
                warnings.append(detections.NO_OUTPUT)
            else:
                warnings += map(detections.no_content, empty)
        warnings += [failure_warning(each) for event in self._answer.detections for each in event.failures]
        warnings += [left_out_warning(each) for event in self._answer.detections for each in event.left_out]
        return warnings
