"""Judge texts in the gateway if its detectors are ready, and otherwise with the guardrails service."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.clients.guardrails import GrpcGuardrails
from gateway.clients.shared_detectors import SharedDetectors
from gateway.domain import (
    Chunking,
    DetectionContext,
    Detector,
    DetectorFailure,
    DetectorInfo,
    Direction,
    Policy,
    Verdict,
)
from gateway.ports.answering import Watch

_NONE = DetectionContext()


class LocalGuardrails:
    """`ports.answering.Guardrails` that judges in this process if all detectors of a call are ready there.

    The results do not differ from the results of the service, because the same code judges.

    Args:
        service: Judges the other texts.
        shared: The detectors that this process can run.
    """

    def __init__(self, service: GrpcGuardrails, shared: SharedDetectors) -> None:
        self._service = service
        self._shared = shared

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
        local = self._shared.ready(detectors)
        if local is None or not local.can_judge(texts, context):
            return await self._service.detect(
                principal, direction, detectors, texts, deadline, context, auxiliary=auxiliary
            )
        return await local.detect(direction, texts, deadline, auxiliary=auxiliary)

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
        local = self._shared.ready(detectors)
        if local is None or not local.accepts_context(context):
            async with self._service.watch(principal, detectors, deadline, context, chunking) as watch:
                yield watch
        else:
            with local.watch(deadline, chunking) as watch:
                yield watch

    async def policy(self, deadline: Deadline) -> Policy | None:
        """See `ports.answering.Guardrails`."""
        return await self._service.policy(deadline)

    async def detectors(
        self, principal: Principal, deadline: Deadline, *, health: bool = False
    ) -> tuple[DetectorInfo, ...]:
        """See `ports.answering.Guardrails`."""
        return await self._service.detectors(principal, deadline, health=health)
