"""The gRPC contract: messages in, domain, messages out."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import Any

import grpc
from causeway.guardrails.v1 import guardrails_pb2 as pb
from causeway.guardrails.v1 import guardrails_pb2_grpc
from servicekit.errors import InvalidRequest, PayloadTooLarge
from servicekit.principal import Principal

from guardrails.batching import batches
from guardrails.catalogue import Catalogue
from guardrails.domain import Action, DetectorSpec, Failure, Finding, OnError, Piece, Progress, Verdict
from guardrails.judging import judge
from guardrails.streaming import Session
from guardrails.workers import Workers

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
_Context = grpc.aio.ServicerContext[Any, Any]

# Pieces that may wait to be taken together; with more the client's stream stops.
_AHEAD = 64


class GuardrailsServicer(guardrails_pb2_grpc.GuardrailsServiceServicer):
    """Judges whole and growing texts.

    Args:
        catalogue: The detectors.
        workers: Where long texts are judged.
        longest: Code points that one request's texts, or one piece of a growing text, may have.
    """

    def __init__(self, catalogue: Catalogue, workers: Workers, longest: int) -> None:
        self._catalogue = catalogue
        self._workers = workers
        self._longest = longest

    async def DetectText(  # noqa: N802  # the contract's name
        self,
        request: pb.DetectTextRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.DetectTextResponse:
        """Judges whole texts."""
        Principal.from_proto(request.principal)
        rules = self._catalogue.rules(_specs(request.detectors))
        size = sum(map(len, request.texts))
        self._check_size(size, "texts")
        inline = all(size <= rule.detector.inline_limit for rule in rules)
        verdicts, failures = await self._workers.run(inline, judge, request.texts, rules)
        return pb.DetectTextResponse(verdicts=map(_verdict, verdicts), failures=_failures(failures))

    async def Detect(  # noqa: N802  # the contract's name
        self,
        request_iterator: AsyncIterator[pb.DetectRequest],
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> AsyncGenerator[pb.DetectResponse, None]:
        """Judges texts while they grow."""
        first = await anext(request_iterator, None)
        if first is None or first.WhichOneof("step") != "config":
            raise InvalidRequest("The first message must be `config`.", field="config")
        Principal.from_proto(first.config.principal)
        session = Session(self._catalogue.rules(_specs(first.config.detectors)))
        waiting = batches(self._pieces(request_iterator), _AHEAD)
        async with contextlib.aclosing(waiting):
            async for pieces in waiting:
                for step in await self._workers.run(session.inline(pieces), session.feed, pieces):
                    yield _progress(step)
                if session.blocked:
                    return

    async def ListDetectors(  # noqa: N802  # the contract's name
        self,
        request: pb.ListDetectorsRequest,
        context: _Context,  # noqa: ARG002  # gRPC's signature
    ) -> pb.ListDetectorsResponse:
        """Lists the detectors."""
        Principal.from_proto(request.principal)
        return pb.ListDetectorsResponse(
            detectors=[
                pb.Detector(
                    detector_id=info.detector_id,
                    description=info.description,
                    params_schema_json=info.params_schema,
                    streaming=info.streaming,
                )
                for info in self._catalogue.infos()
            ]
        )

    async def _pieces(self, requests: AsyncIterator[pb.DetectRequest]) -> AsyncIterator[Piece]:
        async for request in requests:
            if request.WhichOneof("step") != "piece":
                raise InvalidRequest("Every message after the first must be a `piece`.", field="piece")
            piece = request.piece
            text = piece.text
            self._check_size(len(text), "piece.text")
            yield Piece(piece.choice, text, piece.last)

    def _check_size(self, size: int, field: str) -> None:
        if size > self._longest:
            raise PayloadTooLarge(f"`{field}` is longer than {self._longest} characters.", field=field)


def _specs(detectors: Sequence[pb.DetectorConfig]) -> list[DetectorSpec]:
    specs = []
    for index, detector in enumerate(detectors):
        action, on_error = _ACTIONS.get(detector.action), _ON_ERROR.get(detector.on_error)
        if action is None or on_error is None:
            field = f"detectors[{index}].{'action' if action is None else 'on_error'}"
            raise InvalidRequest(f"`{field}` is not one of the known values.", field=field)
        specs.append(DetectorSpec(detector.detector_id, action, on_error, detector.params_json))
    return specs


def _verdict(verdict: Verdict) -> pb.Verdict:
    return pb.Verdict(
        action=_ACTION_VALUES[verdict.action],
        findings=map(_finding, verdict.findings),
        redacted_text=verdict.redacted_text,
    )


def _progress(progress: Progress) -> pb.DetectResponse:
    return pb.DetectResponse(
        choice=progress.choice,
        cleared_until=progress.cleared_until,
        findings=map(_finding, progress.findings),
        action=_ACTION_VALUES[progress.action],
        failures=_failures(progress.failures),
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


def _failures(failures: Iterable[Failure]) -> list[pb.DetectorFailure]:
    return [pb.DetectorFailure(detector_id=each.detector_id, message=each.message) for each in failures]
