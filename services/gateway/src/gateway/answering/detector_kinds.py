"""Checks whether the kinds of the detectors that a request names fit their places in the request."""

from dataclasses import replace

from servicekit.deadline import Deadline
from servicekit.errors import NotFound, Unprocessable

from gateway.domain import Chunking, DetectorInfo, Turn
from gateway.ports.answering import Guardrails


class DetectorKinds:
    """Checks requested detectors before anything else happens, so that an error can still be an HTTP status."""

    def __init__(self, guardrails: Guardrails) -> None:
        self._guardrails = guardrails

    async def admit(self, turn: Turn, deadline: Deadline) -> tuple[Turn, tuple[DetectorInfo, ...]]:
        """Return the turn with its chunking, and all known detectors; no detectors if the turn names no kinds.

        Raises:
            NotFound: The detector does not exist.
            Unprocessable: The detector has another kind than its place requires.
        """
        if not (turn.detection.kinds or turn.detection.chunking is Chunking.DETECTORS):
            return turn, ()
        known = await self._guardrails.detectors(turn.principal, deadline)
        by_id = {info.detector_id: info for info in known}
        for detector_id, kinds in turn.detection.kinds:
            info = by_id.get(detector_id)
            if info is None:
                raise NotFound(f"detector `{detector_id}` not found", field="detectors", resource=detector_id)
            if info.kind not in kinds:
                raise unsupported(detector_id)
        if turn.detection.chunking is Chunking.DETECTORS:
            named = [by_id[each.detector_id] for each in turn.detectors.output if each.detector_id in by_id]
            sentences = any(info.streaming for info in named)
            chunking = Chunking.SENTENCE if sentences else Chunking.MINIMAL
            turn = replace(turn, detection=replace(turn.detection, chunking=chunking))
        return turn, known


def unsupported(detector_id: str) -> Unprocessable:
    """Return the error for a detector at a place that does not support its kind."""
    return Unprocessable(
        f"detector `{detector_id}` is not supported by this endpoint", field="detectors", resource=detector_id
    )
