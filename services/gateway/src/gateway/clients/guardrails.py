"""Call the guardrails service over gRPC."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

import grpc
from causeway.guardrails.v1 import guardrails_pb2, guardrails_pb2_grpc
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.principal import LOCAL, Principal

from gateway.domain import (
    Action,
    Chunking,
    DetectionContext,
    Detector,
    DetectorFailure,
    DetectorInfo,
    DetectorKind,
    Detectors,
    Direction,
    Finding,
    Policy,
    Verdict,
)
from gateway.ports.answering import Clearance, Watch

DESCRIPTOR = guardrails_pb2.DESCRIPTOR.services_by_name["GuardrailsService"]
_DETECT = f"{DESCRIPTOR.full_name}/Detect"

_DIRECTIONS = {
    Direction.INPUT: guardrails_pb2.DIRECTION_INPUT,
    Direction.CONTEXT: guardrails_pb2.DIRECTION_CONTEXT,
    Direction.OUTPUT: guardrails_pb2.DIRECTION_OUTPUT,
}
_ACTIONS = {
    guardrails_pb2.ACTION_REPORT: Action.REPORT,
    guardrails_pb2.ACTION_REDACT: Action.REDACT,
    guardrails_pb2.ACTION_BLOCK: Action.BLOCK,
}
_CHUNKINGS = {
    None: guardrails_pb2.CHUNKING_MINIMAL,
    Chunking.MINIMAL: guardrails_pb2.CHUNKING_MINIMAL,
    Chunking.SENTENCE: guardrails_pb2.CHUNKING_SENTENCE,
}
_KINDS = {
    guardrails_pb2.DETECTOR_KIND_TEXT_CONTENTS: DetectorKind.CONTENTS,
    guardrails_pb2.DETECTOR_KIND_TEXT_CHAT: DetectorKind.CHAT,
    guardrails_pb2.DETECTOR_KIND_TEXT_CONTEXT_DOC: DetectorKind.CONTEXT_DOC,
    guardrails_pb2.DETECTOR_KIND_TEXT_GENERATION: DetectorKind.GENERATION,
}
_HEALTH = {
    guardrails_pb2.DETECTOR_HEALTH_HEALTHY: True,
    guardrails_pb2.DETECTOR_HEALTH_UNHEALTHY: False,
}
_NONE = DetectionContext()
_TO_ACTION = {action: number for number, action in _ACTIONS.items()}


class GrpcGuardrails:
    """Implements `ports.answering.Guardrails` over a gRPC channel."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = guardrails_pb2_grpc.GuardrailsServiceStub(channel)

    async def detect(
        self,
        principal: Principal,
        direction: Direction,
        detectors: Sequence[Detector],
        texts: Sequence[str],
        deadline: Deadline,
        context: DetectionContext = _NONE,
        *,
        auxiliary: bool = False,
    ) -> tuple[tuple[Verdict, ...], tuple[DetectorFailure, ...]]:
        """See `ports.answering.Guardrails`."""
        request = guardrails_pb2.DetectTextRequest(
            principal=principal.to_proto(),
            direction=_DIRECTIONS[direction],
            detectors=_configs(detectors),
            texts=texts,
            surroundings=_context(context),
            beside=auxiliary,
        )
        response: guardrails_pb2.DetectTextResponse = await rpc.unary(self._stub.DetectText, request, deadline)
        verdicts = tuple(
            Verdict(_ACTIONS.get(verdict.action), _findings(verdict.findings), verdict.redacted_text)
            for verdict in response.verdicts
        )
        return verdicts, _failures(response.failures)

    @asynccontextmanager
    async def watch(
        self,
        principal: Principal,
        detectors: Sequence[Detector],
        deadline: Deadline,
        context: DetectionContext = _NONE,
        chunking: Chunking | None = None,
    ) -> AsyncIterator[Watch]:
        """See `ports.answering.Guardrails`."""
        async with rpc.bidi(self._stub.Detect, _DETECT, deadline) as call:
            config = guardrails_pb2.DetectConfig(
                principal=principal.to_proto(),
                direction=guardrails_pb2.DIRECTION_OUTPUT,
                detectors=_configs(detectors),
                surroundings=_context(context),
                chunking=_CHUNKINGS[chunking],
                all_hold=chunking is not None,
            )
            await call.write(guardrails_pb2.DetectRequest(config=config))
            yield _GrpcWatch(call)

    async def policy(self, deadline: Deadline) -> Policy | None:
        """See `ports.answering.Guardrails`."""
        # All tenants have the policy of the deployment.
        request = guardrails_pb2.GetPolicyRequest(principal=LOCAL.to_proto())
        response: guardrails_pb2.GetPolicyResponse = await rpc.unary(self._stub.GetPolicy, request, deadline)
        if not response.block_message:
            return None
        return Policy(Detectors(output=tuple(map(_detector, response.output))), response.block_message)

    async def detectors(
        self, principal: Principal, deadline: Deadline, *, health: bool = False
    ) -> tuple[DetectorInfo, ...]:
        """See `ports.answering.Guardrails`."""
        response = await self._list(principal, deadline, health=health)
        return tuple(_info(detector) for detector in response.detectors)

    async def list_detectors(self, deadline: Deadline) -> guardrails_pb2.ListDetectorsResponse:
        """Return the service's list of detectors and its limits."""
        return await self._list(LOCAL, deadline, health=False)

    async def _list(
        self, principal: Principal, deadline: Deadline, *, health: bool
    ) -> guardrails_pb2.ListDetectorsResponse:
        request = guardrails_pb2.ListDetectorsRequest(principal=principal.to_proto(), without_health=not health)
        response: guardrails_pb2.ListDetectorsResponse = await rpc.unary(
            self._stub.ListDetectors, request, deadline
        )
        return response


class _GrpcWatch:
    """Implements `ports.answering.Watch` over one call.

    After a block, the service ends the call and ignores later input.
    """

    def __init__(self, call: rpc.Exchange) -> None:
        self._call = call

    async def feed(
        self, choice: int, text: str, *, last: bool = False, reply_json: bytes = b"", auxiliary: bool = False
    ) -> Sequence[Clearance]:
        piece = guardrails_pb2.DetectPiece(
            choice=choice, text=text, last=last, reply_json=reply_json, beside=auxiliary
        )
        await self._call.write(guardrails_pb2.DetectRequest(piece=piece))
        return ()

    async def end(self) -> None:
        await self._call.done_writing()

    async def clearances(self) -> AsyncGenerator[Clearance, None]:
        while (response := await self._call.read()) is not grpc.aio.EOF:
            yield Clearance(
                response.choice,
                response.cleared_until,
                _findings(response.findings),
                response.action == guardrails_pb2.ACTION_BLOCK,
                _failures(response.failures),
                response.judged,
            )


def _configs(detectors: Iterable[Detector]) -> list[guardrails_pb2.DetectorConfig]:
    return [
        guardrails_pb2.DetectorConfig(
            detector_id=detector.detector_id,
            action=_TO_ACTION[detector.action],
            on_error=(guardrails_pb2.ON_ERROR_ALLOW if detector.allow_on_error else guardrails_pb2.ON_ERROR_BLOCK),
            params_json=detector.params_json,
        )
        for detector in detectors
    ]


def _detector(config: guardrails_pb2.DetectorConfig) -> Detector:
    return Detector(
        config.detector_id,
        # The gateway treats an unknown action of a newer service as the strictest action.
        _ACTIONS.get(config.action or guardrails_pb2.ACTION_REPORT, Action.BLOCK),
        config.on_error == guardrails_pb2.ON_ERROR_ALLOW,
        config.params_json or b"{}",
    )


def _context(context: DetectionContext) -> guardrails_pb2.Surroundings:
    return guardrails_pb2.Surroundings(
        passages=context.passages,
        passages_are_urls=context.passages_are_urls,
        prompt=context.prompt,
        messages_json=context.messages_json,
        tools_json=context.tools_json,
        headers=context.headers,
    )


def _info(detector: guardrails_pb2.Detector) -> DetectorInfo:
    return DetectorInfo(
        detector.detector_id,
        # A newer service may list detectors whose kinds this gateway does not know.
        next((_KINDS[kind] for kind in detector.kinds if kind in _KINDS), DetectorKind.CONTENTS),
        detector.streaming,
        detector.description,
        detector.params_schema_json,
        detector.remote,
        _HEALTH.get(detector.health),
        detector.health_reason,
    )


def _findings(findings: Iterable[guardrails_pb2.Finding]) -> tuple[Finding, ...]:
    return tuple(
        Finding(
            detector_id=finding.detector_id,
            detection_type=finding.detection_type,
            detection=finding.detection,
            score=finding.score,
            action=_ACTIONS.get(finding.action, Action.REPORT),
            start=finding.start if finding.HasField("start") else None,
            end=finding.end if finding.HasField("end") else None,
            text=finding.text,
            replacement=finding.replacement,
            extra_json=finding.extra_json,
        )
        for finding in findings
    )


def _failures(failures: Iterable[guardrails_pb2.DetectorFailure]) -> tuple[DetectorFailure, ...]:
    return tuple(
        DetectorFailure(failure.detector_id, failure.message, failure.status, failure.not_asked)
        for failure in failures
    )
