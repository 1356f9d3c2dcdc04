"""Check that a request names each detector in a field that supports the detector's kind."""

from collections.abc import Container, Mapping
from dataclasses import replace

from servicekit.deadline import Deadline
from servicekit.errors import NotFound, Unprocessable

from gateway.domain import Chunking, DetectorInfo, DetectorKind, Turn
from gateway.ports.answering import Guardrails


class DetectorKinds:
    """Checks requested detectors before the response starts, so that an error can still be an HTTP status."""

    def __init__(self, guardrails: Guardrails) -> None:
        self._guardrails = guardrails

    async def admit(self, turn: Turn, deadline: Deadline) -> tuple[Turn, tuple[DetectorInfo, ...]]:
        """Return the turn with its chunking, and all known detectors, or no detectors if the turn needs no check.

        Raises:
            NotFound: A detector does not exist.
            Unprocessable: The field of the request does not support the detector's kind.
        """
        if not (turn.detection.kinds or turn.detection.chunking is Chunking.DETECTORS):
            return turn, ()
        known = await self._guardrails.detectors(turn.principal, deadline)
        by_id = {info.detector_id: info for info in known}
        for detector_id, kinds in turn.detection.kinds:
            supported(by_id, detector_id, kinds)
        if turn.detection.chunking is Chunking.DETECTORS:
            requested = [
                by_id[detector.detector_id] for detector in turn.detectors.output if detector.detector_id in by_id
            ]
            judges_sentences = any(info.streaming for info in requested)
            chunking = Chunking.SENTENCE if judges_sentences else Chunking.MINIMAL
            turn = replace(turn, detection=replace(turn.detection, chunking=chunking))
        return turn, known


def supported(known: Mapping[str, DetectorInfo], detector_id: str, kinds: Container[DetectorKind]) -> DetectorInfo:
    """Return a detector of one of the kinds that a field of a request supports.

    Raises:
        NotFound: The detector does not exist.
        Unprocessable: The field does not support the detector's kind.
    """
    info = known.get(detector_id)
    if info is None:
        raise NotFound(f"detector `{detector_id}` not found", field="detectors", resource=detector_id)
    if info.kind not in kinds:
        raise Unprocessable(
            f"detector `{detector_id}` is not supported by this endpoint", field="detectors", resource=detector_id
        )
    return info
