"""List, watch and cancel jobs over NATS. A key-value bucket contains their states."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from causeway.ingest.v1 import ingest_pb2
from nats.aio.msg import Msg
from nats.js.kv import KeyValue
from servicekit import key_value, keys
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, InvalidRequest, Unavailable
from servicekit.nats import IngestTransport
from servicekit.principal import Principal

from gateway.clients.backlog import Backlog
from gateway.clients.dead_letters import DeadLetters
from gateway.clients.ingest import QUEUE, STATES, job_entry, job_of
from gateway.clients.nats_calls import call_nats
from gateway.clients.reverse_reader import newest_first
from gateway.domain.documents import ENDED, Job
from gateway.ports.jobs import DeadPage, JobChange, JobPage, Lane, Replay

_STREAM = f"KV_{keys.JOBS_BUCKET}"
_MAX_EXAMINED = 2000
"""The maximum number of jobs that one page examines, because a filter without matches must not read all jobs."""
_YIELD_INTERVAL = 100
"""The number of jobs after which a page yields to other tasks."""
_QUIET_SECONDS = 5.0
_READ_SECONDS = 10.0
_MAX_ATTEMPTS = 10


class NatsJobs:
    """`ports.jobs.Jobs` over JetStream.

    Args:
        transport: Returns the streams and buckets, or raises `Unavailable` while NATS is unavailable.
        backlog: The limits of waiting jobs, which also apply to replayed dead letters.
        quiet: Seconds without a change after which a watch yields None and reads the job again.
    """

    def __init__(
        self,
        transport: Callable[[], Awaitable[IngestTransport]],
        backlog: Backlog | None = None,
        *,
        quiet: float = _QUIET_SECONDS,
    ) -> None:
        self._transport = transport
        self._backlog = backlog or Backlog()
        self._letters = DeadLetters(transport, self._backlog)
        self._quiet = quiet

    async def page(
        self, principal: Principal, *, index: str, state: str, count: int, token: str, deadline: Deadline
    ) -> JobPage:
        """See `ports.jobs.Jobs`. Pages follow the bucket's order, which is the order of the last changes."""
        state_number = STATES[state] if state else None
        before = position_of(token)
        transport = await self._transport()

        async def read() -> JobPage:
            found: list[Job] = []
            examined = last = 0
            pattern = f"$KV.{keys.JOBS_BUCKET}.{keys.job_keys(principal.tenant)}"
            stored = newest_first(transport.jetstream, _STREAM, pattern, before)
            async with contextlib.aclosing(stored) as messages:
                async for message in messages:
                    if len(found) == count or examined == _MAX_EXAMINED:
                        return JobPage(tuple(found), str(last))
                    last = message.metadata.sequence.stream
                    examined += 1
                    if examined % _YIELD_INTERVAL == 0:
                        await asyncio.sleep(0)
                    job = ingest_pb2.Job.FromString(message.data)
                    if state_number in (None, job.state) and index in ("", job.index):
                        found.append(job_of(job))
            return JobPage(tuple(found))

        return await call_nats(read(), deadline, QUEUE)

    async def lanes(self, principal: Principal, deadline: Deadline) -> tuple[Lane, ...]:
        """See `ports.jobs.Jobs`."""
        transport = await self._transport()
        return await call_nats(self._backlog.lanes(transport, principal.tenant), deadline, QUEUE)

    async def watch(self, principal: Principal, job_id: str, after: int) -> AsyncGenerator[JobChange | None, None]:
        """See `ports.jobs.Jobs`.

        The generator reads the state after each message of a plain subscription. Unlike a watch of the bucket, the
        subscription survives a restart of the broker and uses no resources of the server.
        """
        transport = await self._transport()
        key = keys.job_key(principal.tenant, job_id)
        changed = asyncio.Event()

        async def wake(_: Msg) -> None:
            changed.set()

        subscription = await transport.client.subscribe(f"$KV.{keys.JOBS_BUCKET}.{key}", cb=wake)
        try:
            seen, has_read = after, False
            while True:
                changed.clear()
                try:
                    entry = await job_entry(transport, principal, job_id, Deadline.after(_READ_SECONDS))
                except Unavailable:
                    if not has_read:
                        raise
                    yield None  # the job still runs
                    await asyncio.sleep(self._quiet)
                    continue
                has_read = True
                job = job_of(ingest_pb2.Job.FromString(entry.value or b""))
                revision = entry.revision or 0
                if revision != seen:
                    seen = revision
                    yield JobChange(revision, job)
                if job.state in ENDED:
                    return
                try:
                    async with asyncio.timeout(self._quiet):
                        await changed.wait()
                except TimeoutError:
                    yield None
        finally:
            await subscription.unsubscribe()

    async def cancel(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """See `ports.jobs.Jobs`. The call only changes the state. Workers read it before results become visible."""
        transport = await self._transport()
        for _ in range(_MAX_ATTEMPTS):
            entry = await job_entry(transport, principal, job_id, deadline)
            job = ingest_pb2.Job.FromString(entry.value or b"")
            if job.state == ingest_pb2.JOB_STATE_CANCELLED:
                return job_of(job)
            if (state := job_of(job).state) in ENDED:
                raise Conflict(f"The job has ended: it {_END_VERBS[state]}.", resource=job_id)
            if job.committing:
                raise Conflict(
                    "The job is about to end, and searches may find its result. Remove its documents instead.",
                    resource=job_id,
                )
            job.state = ingest_pb2.JOB_STATE_CANCELLED
            job.ClearField("error")
            job.ClearField("waiting_since")
            job.updated_at.GetCurrentTime()
            if await call_nats(_replaced(transport.jobs, job, entry), deadline, QUEUE):
                return job_of(job)
        raise Unavailable("The job was not cancelled, because it changed during the attempts. Try again.")

    async def dead_letters(self, principal: Principal, *, count: int, token: str, deadline: Deadline) -> DeadPage:
        """See `ports.jobs.Jobs`."""
        return await self._letters.page(principal, count, position_of(token), deadline)

    async def replay(self, principal: Principal, job_ids: Sequence[str] | None, deadline: Deadline) -> Replay:
        """See `ports.jobs.Jobs`."""
        return await self._letters.replay(principal, job_ids, deadline)


_END_VERBS = {"succeeded": "succeeded", "unchanged": "changed nothing", "failed": "failed"}


def position_of(token: str) -> int:
    """Return the position in a stream from a page's token, or 0 without a token.

    Raises:
        InvalidRequest: The token is invalid.
    """
    if not token:
        return 0
    if not (token.isascii() and token.isdecimal() and len(token) < 20 and int(token) > 0):
        raise InvalidRequest(
            "page_token: the token is invalid. Send the token of the previous page.", field="page_token"
        )
    return int(token)


async def _replaced(bucket: KeyValue, job: ingest_pb2.Job, entry: KeyValue.Entry) -> bool:
    """Replace an entry of the bucket. Return False if another writer has changed the entry."""
    return await key_value.try_write(bucket.update(entry.key, job.SerializeToString(), last=entry.revision))
