"""The job queue as the gateway fills it: when it has room, and in which lane a job waits (docs/ingest.md)."""

from collections import Counter
from dataclasses import dataclass

from causeway.ingest.v1 import ingest_pb2
from servicekit import keys
from servicekit.errors import RateLimited, Unavailable
from servicekit.nats import IngestTransport, trace_headers

_RETRY_AFTER = 15.0
_PLACES = (8, 64, 512)
"""How many jobs of one tenant wait in each lane but the last, which takes the others."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """What may wait.

    Attributes:
        most: Jobs of all tenants.
        most_of_tenant: Jobs of one.
    """

    most: int = 100_000
    most_of_tenant: int = 20_000

    async def lane(self, transport: IngestTransport, tenant: str) -> int:
        """Where the tenant's next job shall wait: in the first lane that holds few of its jobs.

        So the first lanes hold a little of everybody, whatever somebody else has brought.

        Raises:
            RateLimited: Too many of its jobs wait already.
            Unavailable: Too many of all tenants do.
        """
        info = await transport.jetstream.stream_info(keys.INGEST_STREAM, keys.ingest_jobs_of(tenant))
        if info.state.messages >= self.most:
            raise Unavailable(
                f"{info.state.messages} jobs wait already. Try again later.", retry_after=_RETRY_AFTER
            )
        waiting: Counter[int] = Counter()
        for subject, count in (info.state.subjects or {}).items():
            waiting[keys.ingest_lane_of(subject)] += count
        if waiting.total() >= self.most_of_tenant:
            raise RateLimited(
                f"{waiting.total()} of your jobs wait already. Try again later.", retry_after=_RETRY_AFTER
            )
        return next((lane for lane, places in enumerate(_PLACES) if waiting[lane] < places), len(_PLACES))


async def enqueue(
    transport: IngestTransport, lane: int, message: ingest_pb2.IngestJob, state: ingest_pb2.Job
) -> None:
    """Records a job's state, then puts the job on the queue: what is in the queue can be asked for."""
    tenant = message.principal.tenant
    await transport.jobs.put(keys.job_key(tenant, message.job_id), state.SerializeToString())
    await transport.jetstream.publish(
        keys.ingest_subject(lane, tenant, message.index),
        message.SerializeToString(),
        headers={"Nats-Msg-Id": message.job_id, **trace_headers()},
    )
