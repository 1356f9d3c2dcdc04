"""Which of the detectors that a request names may stand where they stand."""

from dataclasses import replace

from servicekit.deadline import Deadline
from servicekit.errors import NotFound, Unprocessable

from gateway.domain import Chunking, DetectorInfo, Turn
from gateway.ports.answering import Guardrails


class DetectorKinds:
    """Looks requested detectors up before anything else happens, so that what is wrong with them is a status."""

    def __init__(self, guardrails: Guardrails) -> None:
        self._guardrails = guardrails

    async def admit(self, turn: Turn, deadline: Deadline) -> tuple[Turn, tuple[DetectorInfo, ...]]:
        """The turn with its chunking decided, and what is known of all detectors; nothing where it names no kinds.

        Raises:
            NotFound: There is no such detector.
            Unprocessable: It looks at something else than what it is asked to judge.
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
            asked = [by_id[each.detector_id] for each in turn.detectors.output if each.detector_id in by_id]
            sentences = any(info.streaming for info in asked)
            chunking = Chunking.SENTENCE if sentences else Chunking.MINIMAL
            turn = replace(turn, detection=replace(turn.detection, chunking=chunking))
        return turn, known


def unsupported(detector_id: str) -> Unprocessable:
    """A detector cannot stand where it stands."""
    return Unprocessable(
        f"detector `{detector_id}` is not supported by this endpoint", field="detectors", resource=detector_id
    )
