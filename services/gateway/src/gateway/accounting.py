"""What is kept of a request when it has ended: what it used, and what detectors found (docs/usage.md)."""

import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec
from servicekit import keys

from gateway.domain import Detections, Direction
from gateway.frontends import Frontend
from gateway.identity.caller import Caller
from gateway.ports_records import Record
from gateway.prices import Prices
from gateway.timeline import Timeline

_CLIENT_LEFT = 499
_ERROR = "error"


class UsageEntry(msgspec.Struct, omit_defaults=True, gc=False, kw_only=True):
    """What one request used.

    ``estimated``: the model did not say its numbers, and these are guesses.
    """

    id: str
    time: str
    tenant: str
    user: str = ""
    key: str = ""
    frontend: str = ""
    route: str = ""
    trace_id: str = ""
    status: int
    duration_ms: float
    model: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    ingested_bytes: int = 0
    cost: float | None = None
    currency: str = ""


class AuditEntry(msgspec.Struct, omit_defaults=True, gc=False, kw_only=True):
    """What one detector found in one text, or that it failed (``verdict`` is ``error`` then, ``reason`` says why).

    ``start`` and ``end`` count code points of the text that ``direction`` and ``item`` name; ``text`` is there
    where the front end's profile wants it.
    """

    id: str
    time: str
    tenant: str
    user: str = ""
    key: str = ""
    frontend: str = ""
    route: str = ""
    trace_id: str = ""
    direction: str
    item: int
    detector: str
    verdict: str
    detection_type: str = ""
    detection: str = ""
    score: float | None = None
    start: int | None = None
    end: int | None = None
    text: str = ""
    reason: str = ""


_encode = msgspec.json.Encoder().encode


class _RawUsage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Answer(msgspec.Struct):
    model: str = ""
    usage: _RawUsage | None = None


_answer = msgspec.json.Decoder(_Answer)


class Account:
    """One request that has ended.

    Args:
        state: The ASGI scope's ``state``, as the layers and routes have left it.
        route: The route's pattern; empty where there is none.
        seconds: How long it took.
    """

    def __init__(self, state: Mapping[str, Any], route: str, seconds: float) -> None:
        caller: Caller = state["caller"]
        frontend = state.get("frontend")
        timeline = state.get("timeline")
        self.frontend = frontend if isinstance(frontend, Frontend) else Frontend()
        self.timeline = timeline if isinstance(timeline, Timeline) else Timeline()
        self.tenant = caller.principal.tenant
        self.status = int(state.get("status") or 0) or _CLIENT_LEFT
        self.model = ""
        self.input_tokens = self.output_tokens = 0
        self.estimated = False
        self._seconds = seconds
        self._ingested = int(state.get("ingested_bytes") or 0)
        self._common: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "tenant": self.tenant,
            "user": caller.principal.user,
            "key": caller.key_id,
            "frontend": self.frontend.name,
            "route": route,
            "trace_id": str(state.get("trace_id") or ""),
        }
        self._count_tokens()
        embedded = state.get("embedded")
        if isinstance(embedded, tuple):
            self.model, self.input_tokens = embedded

    def _count_tokens(self) -> None:
        timeline = self.timeline
        self.model = timeline.model
        for raw in (timeline.start_json, timeline.raw_json):
            if not raw:
                continue
            try:
                said = _answer.decode(raw)
            except msgspec.DecodeError:
                continue
            self.model = self.model or said.model
            if timeline.usage is None and said.usage is not None:
                self.input_tokens += said.usage.prompt_tokens
                self.output_tokens += said.usage.completion_tokens
        if timeline.usage is not None:
            self.input_tokens += timeline.usage.prompt_tokens
            self.output_tokens += timeline.usage.completion_tokens
        elif timeline.chunks and not self.output_tokens:
            # A chunk that was passed on as it came holds a token, as a rule.
            self.output_tokens, self.estimated = timeline.chunks, True
        for step in timeline.steps:
            if step.usage is not None:
                self.input_tokens += step.usage.prompt_tokens
                self.output_tokens += step.usage.completion_tokens

    def usage(self, prices: Prices) -> Record:
        """What it used."""
        cost = None
        if self.input_tokens or self.output_tokens:
            cost = prices.cost(self.model, self.input_tokens, self.output_tokens)
        entry = UsageEntry(
            id=uuid.uuid4().hex,
            status=self.status,
            duration_ms=round(self._seconds * 1000, 1),
            model=self.model,
            input_tokens=self.input_tokens,
            output_tokens=self.output_tokens,
            estimated=self.estimated,
            ingested_bytes=self._ingested,
            cost=cost,
            currency=prices.currency if cost is not None else "",
            **self._common,
        )
        return Record(keys.usage_subject(self.tenant), entry.id, _encode(entry))

    def audit(self) -> Iterator[Record]:
        """What detectors found, one record each."""
        for detections in self.timeline.detections:
            for entry in self._entries(detections):
                subject = keys.audit_subject(self.tenant, entry.detector, entry.verdict)
                yield Record(subject, entry.id, _encode(entry))

    def _entries(self, detections: Detections) -> Iterator[AuditEntry]:
        direction: Direction = detections.direction
        for finding in detections.findings:
            yield AuditEntry(
                id=uuid.uuid4().hex,
                direction=direction.value,
                item=detections.item,
                detector=finding.detector_id,
                verdict=finding.action.name.lower(),
                detection_type=finding.detection_type,
                detection=finding.detection,
                score=finding.score,
                start=finding.start,
                end=finding.end,
                text=finding.text if self.frontend.audit_text else "",
                **self._common,
            )
        for failure in detections.failures:
            yield AuditEntry(
                id=uuid.uuid4().hex,
                direction=direction.value,
                item=detections.item,
                detector=failure.detector_id,
                verdict=_ERROR,
                reason=failure.message,
                **self._common,
            )
