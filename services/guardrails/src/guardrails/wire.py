"""Conversion between gRPC messages and domain types."""

from collections.abc import Iterable, Sequence

import msgspec
from causeway.guardrails.v1 import guardrails_pb2 as pb
from detection.chunking.chunkers import Chunking
from detection.domain import (
    Action,
    DetectionContext,
    DetectorInfo,
    DetectorKind,
    DetectorSpec,
    Direction,
    Failure,
    Finding,
    Health,
    OnError,
    Progress,
    Verdict,
)
from detection.shared import JudgingLimits
from servicekit.errors import InvalidRequest

_ACTIONS = {
    pb.ACTION_UNSPECIFIED: Action.REPORT,
    pb.ACTION_REPORT: Action.REPORT,
    pb.ACTION_REDACT: Action.REDACT,
    pb.ACTION_BLOCK: Action.BLOCK,
}
_ON_ERROR = {
    pb.ON_ERROR_UNSPECIFIED: OnError.BLOCK,
    pb.ON_ERROR_BLOCK: OnError.BLOCK,
    pb.ON_ERROR_ALLOW: OnError.ALLOW,
}
_ACTION_VALUES = {
    Action.NONE: pb.ACTION_UNSPECIFIED,
    Action.REPORT: pb.ACTION_REPORT,
    Action.REDACT: pb.ACTION_REDACT,
    Action.BLOCK: pb.ACTION_BLOCK,
}
_ON_ERROR_VALUES = {OnError.BLOCK: pb.ON_ERROR_BLOCK, OnError.ALLOW: pb.ON_ERROR_ALLOW}
_DIRECTIONS = {
    pb.DIRECTION_INPUT: Direction.INPUT,
    pb.DIRECTION_CONTEXT: Direction.CONTEXT,
    pb.DIRECTION_OUTPUT: Direction.OUTPUT,
}
_KINDS = {
    DetectorKind.CONTENTS: pb.DETECTOR_KIND_TEXT_CONTENTS,
    DetectorKind.CHAT: pb.DETECTOR_KIND_TEXT_CHAT,
    DetectorKind.CONTEXT_DOC: pb.DETECTOR_KIND_TEXT_CONTEXT_DOC,
    DetectorKind.GENERATION: pb.DETECTOR_KIND_TEXT_GENERATION,
}
_CHUNKINGS = {
    pb.CHUNKING_UNSPECIFIED: None,
    pb.CHUNKING_MINIMAL: None,
    pb.CHUNKING_SENTENCE: Chunking.SENTENCE,
    pb.CHUNKING_WHOLE: Chunking.WHOLE,
}


def specs(detectors: Sequence[pb.DetectorConfig]) -> list[DetectorSpec]:
    """Return the detectors of a request.

    Raises:
        InvalidRequest: An ``action`` or ``on_error`` is unknown; the error names the field.
    """
    result = []
    for index, detector in enumerate(detectors):
        action, on_error = _ACTIONS.get(detector.action), _ON_ERROR.get(detector.on_error)
        if action is None or on_error is None:
            field = f"detectors[{index}].{'action' if action is None else 'on_error'}"
            raise InvalidRequest(f"`{field}` is not one of the known values.", field=field)
        result.append(DetectorSpec(detector.detector_id, action, on_error, detector.params_json))
    return result


def verdict_message(verdict: Verdict) -> pb.Verdict:
    """Return the gRPC message for a verdict."""
    return pb.Verdict(
        action=_ACTION_VALUES[verdict.action],
        findings=map(_finding, verdict.findings),
        redacted_text=verdict.redacted_text,
    )


def progress_message(progress: Progress) -> pb.DetectResponse:
    """Return the gRPC message for the progress of a growing text."""
    return pb.DetectResponse(
        choice=progress.choice,
        cleared_until=progress.cleared_until,
        findings=map(_finding, progress.findings),
        action=_ACTION_VALUES[progress.action],
        failures=failure_messages(progress.failures),
        judged=progress.fully_judged,
    )


def _finding(finding: Finding) -> pb.Finding:
    detection = finding.detection
    return pb.Finding(
        start=detection.start,
        end=detection.end,
        text=detection.text,
        detection_type=detection.type,
        detection=detection.name,
        detector_id=finding.detector_id,
        score=detection.score,
        action=_ACTION_VALUES[finding.action],
        replacement=finding.replacement,
        extra_json=detection.extra,
    )


def failure_messages(failures: Iterable[Failure]) -> list[pb.DetectorFailure]:
    """Return the gRPC messages for failures of detectors."""
    return [
        pb.DetectorFailure(
            detector_id=failure.detector_id,
            message=failure.message,
            status=failure.status,
            not_asked=failure.not_asked,
        )
        for failure in failures
    ]


def config_message(spec: DetectorSpec) -> pb.DetectorConfig:
    """Return the gRPC message for a requested detector."""
    return pb.DetectorConfig(
        detector_id=spec.detector_id,
        action=_ACTION_VALUES[spec.action],
        on_error=_ON_ERROR_VALUES[spec.on_error],
        params_json=spec.params,
    )


def detector_message(info: DetectorInfo, health: Health | None) -> pb.Detector:
    """Return the gRPC message for a detector; its health is unspecified if ``health`` is None."""
    status = pb.DETECTOR_HEALTH_UNSPECIFIED
    if health is not None:
        status = pb.DETECTOR_HEALTH_HEALTHY if health.healthy else pb.DETECTOR_HEALTH_UNHEALTHY
    return pb.Detector(
        detector_id=info.detector_id,
        description=info.description,
        params_schema_json=info.params_schema,
        streaming=info.streaming,
        kinds=[_KINDS[info.kind]],
        health=status,
        health_reason=health.reason if health is not None else "",
        remote=info.remote,
        library_digest=info.library,
    )


def limits_message(limits: JudgingLimits) -> pb.JudgingLimits:
    """Return the gRPC message for the limits."""
    return pb.JudgingLimits(
        longest_text=limits.longest_text,
        held_back=limits.holding.window,
        held_whole=limits.holding.whole,
        detections=limits.patterns.detections,
        seconds=limits.patterns.seconds,
    )


def chunking(value: int) -> Chunking | None:
    """Return the chunking that a caller requests; None if the text may be released at any position.

    Raises:
        InvalidRequest: The value is unknown.
    """
    if value not in _CHUNKINGS:
        raise InvalidRequest("`chunking` is not one of the known values.", field="chunking")
    return _CHUNKINGS[value]  # type: ignore[index]  # an int on the wire


def detection_context(
    direction: int, passages: Iterable[str], surroundings: pb.Surroundings, replies: Sequence[bytes] = ()
) -> DetectionContext:
    """Return the context of the texts.

    Args:
        direction: A value of the enum ``Direction``; unspecified: output.
        passages: The passages of the request; the passages in ``surroundings`` follow them.
        surroundings: The other input of detectors.
        replies: For each text, the members of its message besides the content, as a JSON object.

    Raises:
        InvalidRequest: The direction is unknown, the messages or the tools are not JSON arrays, or a reply is not a
            JSON object. The error names the field.
    """
    if direction and direction not in _DIRECTIONS:
        raise InvalidRequest("`direction` is not one of the known values.", field="direction")
    _check_json(surroundings.messages_json, "surroundings.messages_json", list)
    _check_json(surroundings.tools_json, "surroundings.tools_json", list)
    for index, reply in enumerate(replies):
        _check_json(reply, f"replies_json[{index}]", dict)
    return DetectionContext(
        _DIRECTIONS.get(direction, Direction.OUTPUT),  # type: ignore[call-overload]  # an int on the wire
        (*passages, *surroundings.passages),
        surroundings.passages_are_urls,
        surroundings.prompt,
        surroundings.messages_json,
        surroundings.tools_json,
        dict(surroundings.headers),
        tuple(replies),
    )


def check_reply(reply: bytes) -> bytes:
    """Check a reply (the members of an answer's message besides the content) and return it unchanged.

    Raises:
        InvalidRequest: The reply is not a JSON object.
    """
    _check_json(reply, "piece.reply_json", dict)
    return reply


def _check_json(raw: bytes, field: str, kind: type[list[object]] | type[dict[str, object]]) -> None:
    if not raw:
        return
    try:
        msgspec.json.decode(raw, type=kind)
    except (ValueError, RecursionError) as error:
        what = "array" if kind is list else "object"
        raise InvalidRequest(f"`{field}` is not a JSON {what}.", field=field) from error
