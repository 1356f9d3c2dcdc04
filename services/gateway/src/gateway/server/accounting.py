"""Creates the usage and audit records of a request that has ended (docs/usage.md)."""

import contextlib
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import msgspec
from servicekit import keys

from gateway.domain import Detections, DetectorFailure, Direction, Finding
from gateway.ports.records import Record
from gateway.server.prices import Prices
from gateway.server.request_state import RequestState

_CLIENT_LEFT = 499
_MAX_ENTRIES = 1000
"""The maximum number of findings and failures of one request that get their own audit records."""
_MAX_TEXT_LENGTH = 10_000
"""The maximum number of characters of a found text or an error, so that records fit into NATS messages."""


class _Entry(msgspec.Struct, omit_defaults=True, gc=False, kw_only=True):
    """The fields that every record has."""

    id: str
    time: str
    tenant: str
    user: str = ""
    key: str = ""
    frontend: str = ""
    route: str = ""
    trace_id: str = ""


class UsageEntry(_Entry, omit_defaults=True, gc=False, kw_only=True):
    """The usage of one request.

    ``estimated`` means that the model server reported no counts, so ``output_tokens`` is the number of chunks.
    """

    status: int
    duration_ms: float
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    ingested_bytes: int = 0
    cost: float | None = None
    currency: str = ""


class AuditEntry(_Entry, omit_defaults=True, gc=False, kw_only=True):
    """A finding or a failure of one detector.

    After a failure, ``verdict`` is ``error`` or ``not_asked``, and ``reason`` has the error. ``start`` and ``end``
    count code points of the text that ``direction`` and ``item`` identify. ``text`` is present if the profile
    enables ``audit_text``. ``more`` counts further findings of the same kind that have no records.
    """

    direction: str
    item: int | None = None
    detector: str
    verdict: str
    detection_type: str = ""
    detection: str = ""
    score: float | None = None
    start: int | None = None
    end: int | None = None
    text: str = ""
    reason: str = ""
    more: int = 0


_encode = msgspec.json.Encoder().encode


class _RawUsage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Answer(msgspec.Struct):
    model: str = ""
    usage: _RawUsage | None = None


_answer = msgspec.json.Decoder(_Answer)


class Account:
    """The usage and the findings of a request that has ended.

    Args:
        state: The state of the request.
        route: The pattern of the route; empty without a route.
        seconds: The duration of the request.
    """

    def __init__(self, state: RequestState, route: str, seconds: float) -> None:
        caller = state.caller
        self.frontend = state.frontend
        self.timeline = state.timeline
        self.steps = self.timeline.steps
        self.tenant, self.user, self.key = caller.principal.tenant, caller.principal.user, caller.key_id
        self.route = route
        self.trace_id = state.trace_id
        self.status = state.status or _CLIENT_LEFT
        self.model = ""
        self.input_tokens = self.output_tokens = 0
        self.estimated = False
        self.seconds = seconds
        self.ingested_bytes = state.ingested_bytes
        self._common: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "tenant": self.tenant,
            "user": self.user,
            "key": self.key,
            "frontend": self.frontend.name,
            "route": route,
            "trace_id": self.trace_id,
        }
        self._count_tokens()
        if state.embedded is not None:
            self.model, self.input_tokens = state.embedded

    def _count_tokens(self) -> None:
        timeline = self.timeline
        self.model = timeline.model or timeline.reported_model
        if timeline.raw_json:
            with contextlib.suppress(ValueError):
                answer = _answer.decode(timeline.raw_json)
                self.model = self.model or answer.model
                if timeline.usage is None and answer.usage is not None:
                    self.input_tokens += answer.usage.prompt_tokens
                    self.output_tokens += answer.usage.completion_tokens
        if timeline.usage is not None:
            self.input_tokens += timeline.usage.prompt_tokens
            self.output_tokens += timeline.usage.completion_tokens
        elif timeline.chunks and not self.output_tokens:
            # A chunk of a model server usually contains one token.
            self.output_tokens, self.estimated = timeline.chunks, True
        for step in self.steps:
            if step.usage is not None:
                self.input_tokens += step.usage.prompt_tokens
                self.output_tokens += step.usage.completion_tokens

    def cost(self, prices: Prices) -> float | None:
        """Return the cost of the tokens. None without tokens, or if the model has no price."""
        if not (self.input_tokens or self.output_tokens):
            return None
        return prices.cost(self.model, self.input_tokens, self.output_tokens)

    def usage(self, prices: Prices) -> Record:
        """Return the usage record."""
        cost = self.cost(prices)
        entry = UsageEntry(
            id=uuid.uuid4().hex,
            status=self.status,
            duration_ms=round(self.seconds * 1000, 1),
            model=self.model,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            estimated=self.estimated,
            ingested_bytes=self.ingested_bytes,
            cost=cost,
            currency=prices.currency if cost is not None else "",
            **self._common,
        )
        return Record(keys.usage_subject(self.tenant), self.tenant, entry.id, _encode(entry))

    def verdicts(self) -> Counter[tuple[Direction, str, str]]:
        """Count the verdicts and the failures of each detector."""
        return Counter(_verdict(detections, found) for detections, found in self._results())

    def audit(self) -> Iterator[Record]:
        """Yield an audit record for each finding and failure.

        Beyond a limit, a record counts the further findings, so that one request cannot fill the queue of records.
        """
        more = self.verdicts()
        for detections, found in islice(self._results(), _MAX_ENTRIES):
            verdict = _verdict(detections, found)
            more[verdict] -= 1
            yield self._audit_record(*verdict, item=detections.item, **self._finding_members(found))
        for verdict, count in more.items():
            if count:
                yield self._audit_record(*verdict, more=count)

    def _results(self) -> Iterator[tuple[Detections, Finding | DetectorFailure]]:
        for detections in self.timeline.detections:
            yield from ((detections, finding) for finding in detections.findings)
            yield from ((detections, failure) for failure in detections.failures)

    def _finding_members(self, found: Finding | DetectorFailure) -> dict[str, Any]:
        if isinstance(found, DetectorFailure):
            return {"reason": found.message[:_MAX_TEXT_LENGTH]}
        return {
            "detection_type": found.detection_type,
            "detection": found.detection,
            "score": found.score,
            "start": found.start,
            "end": found.end,
            "text": found.text[:_MAX_TEXT_LENGTH] if self.frontend.audit_text else "",
        }

    def _audit_record(self, direction: Direction, detector: str, verdict: str, **answer: Any) -> Record:
        entry = AuditEntry(
            id=uuid.uuid4().hex,
            direction=direction.value,
            detector=detector,
            verdict=verdict,
            **answer,
            **self._common,
        )
        return Record(keys.audit_subject(self.tenant, detector, verdict), self.tenant, entry.id, _encode(entry))


def _verdict(detections: Detections, found: Finding | DetectorFailure) -> tuple[Direction, str, str]:
    verdict = found.verdict if isinstance(found, DetectorFailure) else found.action.name.lower()
    return detections.direction, found.detector_id, verdict
