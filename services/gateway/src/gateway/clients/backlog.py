"""Check the limits of the job queue, and select the lane in which a job waits (docs/ingest.md)."""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from causeway.ingest.v1 import ingest_pb2
from google.protobuf.timestamp_pb2 import Timestamp
from opentelemetry.trace import SpanKind
from servicekit import keys, telemetry
from servicekit.errors import CausewayError, RateLimited, Unavailable
from servicekit.nats import IngestTransport, trace_headers
from servicekit.principal import Principal

from gateway.ports.jobs import Lane

_tracer = telemetry.tracer(__name__)
_RETRY_AFTER = 15.0
_LANE_LIMITS = (8, 64, 512)
"""The maximum number of waiting jobs of one tenant in each lane except the last lane, which has no limit."""
_MAX_TENANTS = 1000
"""The maximum number of tenants whose counts are cached."""
_VALID_SECONDS = 0.25
"""Seconds for which the counts of the queue are reused."""


class Backlog:
    """The limits of waiting jobs. Running jobs count too, because they remain in the stream until they end.

    The backlog requests the queue's length for a tenant at most four times per second, and counts the new jobs
    between two requests, because a request for each file would slow down large uploads. Before it refuses a job, it
    requests the current length.

    Args:
        limit: The maximum number of waiting jobs of all tenants.
        tenant_limit: The maximum number of waiting jobs of one tenant.
    """

    def __init__(self, limit: int = 100_000, tenant_limit: int = 20_000) -> None:
        self._limit = limit
        self._tenant_limit = tenant_limit
        self._waiting: dict[str, _Waiting] = {}

    async def lane(self, transport: IngestTransport, tenant: str) -> int:
        """Count the tenant's next job and return its lane: the first lane below its limit for this tenant.

        The first lanes therefore contain only a few jobs of each tenant, even if one tenant has many jobs.

        Raises:
            RateLimited: Too many of the tenant's jobs wait.
            Unavailable: Too many jobs of all tenants wait.
        """
        waiting = self._waiting.get(tenant)
        if waiting is None or waiting.until < time.monotonic() or self._refusal(waiting) is not None:
            waiting = await self._queue_state(transport, tenant)
            if (refusal := self._refusal(waiting)) is not None:
                raise refusal
        lane = next(
            (lane for lane, limit in enumerate(_LANE_LIMITS) if waiting.lanes[lane] < limit), len(_LANE_LIMITS)
        )
        waiting.lanes[lane] += 1
        waiting.all += 1
        return lane

    async def lanes(self, transport: IngestTransport, tenant: str) -> tuple[Lane, ...]:
        """Return the number of a tenant's jobs in each lane, and the limit of each lane."""
        waiting = await self._queue_state(transport, tenant)
        return tuple(Lane(waiting.lanes[lane], limit) for lane, limit in enumerate((*_LANE_LIMITS, None)))

    async def _queue_state(self, transport: IngestTransport, tenant: str) -> "_Waiting":
        info = await transport.jetstream.stream_info(keys.INGEST_STREAM, keys.ingest_jobs_of(tenant))
        waiting = _Waiting(info.state.messages, time.monotonic() + _VALID_SECONDS)
        for subject, count in (info.state.subjects or {}).items():
            waiting.lanes[keys.ingest_lane_of(subject)] += count
        if len(self._waiting) >= _MAX_TENANTS:
            self._waiting.clear()
        self._waiting[tenant] = waiting
        return waiting

    def _refusal(self, waiting: "_Waiting") -> CausewayError | None:
        if waiting.all >= self._limit:
            return Unavailable(f"{waiting.all} jobs wait already. Try again later.", retry_after=_RETRY_AFTER)
        if (own := waiting.lanes.total()) >= self._tenant_limit:
            return RateLimited(f"{own} of your jobs wait already. Try again later.", retry_after=_RETRY_AFTER)
        return None


@dataclass(slots=True)
class _Waiting:
    """The number of waiting jobs of all tenants, and of one tenant in each lane.

    Attributes:
        all: The number of jobs of all tenants.
        until: The time until which the numbers are valid, on the monotonic clock.
        lanes: The number of the tenant's jobs in each lane.
    """

    all: int
    until: float
    lanes: Counter[int] = field(default_factory=Counter)


def queued_state(principal: Principal, job_id: str, index: str, **fields: Any) -> ingest_pb2.Job:
    """Return the state of a job that waits for a worker.

    Args:
        principal: The caller.
        job_id: The id of the job.
        index: The index that the job changes.
        fields: Further fields of the state.
    """
    now = Timestamp()
    now.GetCurrentTime()
    return ingest_pb2.Job(
        job_id=job_id,
        principal=principal.to_proto(),
        index=index,
        state=ingest_pb2.JOB_STATE_QUEUED,
        created_at=now,
        updated_at=now,
        trace_id=telemetry.current_trace_id(),
        **fields,
    )


async def enqueue(
    transport: IngestTransport, lane: int, message: ingest_pb2.IngestJob, state: ingest_pb2.Job
) -> None:
    """Record a job's state, then enqueue the job, so that every queued job has a state."""
    tenant = message.principal.tenant
    await transport.jobs.put(keys.job_key(tenant, message.job_id), state.SerializeToString())
    payload = message.SerializeToString()
    with _tracer.start_as_current_span(
        f"publish {keys.INGEST_STREAM}",
        kind=SpanKind.PRODUCER,
        attributes={
            "messaging.system": "nats",
            "messaging.operation.name": "publish",
            "messaging.operation.type": "send",
            "messaging.destination.name": keys.INGEST_STREAM,
            "messaging.message.id": message.job_id,
            "messaging.message.body.size": len(payload),
        },
        record_exception=False,
    ):
        await transport.jetstream.publish(
            keys.ingest_subject(lane, tenant, message.index),
            payload,
            headers={"Nats-Msg-Id": message.job_id, **trace_headers()},
        )
