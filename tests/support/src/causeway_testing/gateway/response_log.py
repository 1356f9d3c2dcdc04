"""Fakes of the response log and of the queue of background responses, in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

from gateway.domain.response_jobs import ResponseJob
from gateway.domain.response_log import Entry
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, Conflict, PayloadTooLarge, RateLimited
from servicekit.principal import Principal

_MAX_ENTRY_BYTES = 1_000_000
_READ_COUNT = 3

Key = tuple[str, str, str]


@dataclass(slots=True)
class FakeResponseLog:
    """Response logs by tenant, user and id.

    Attributes:
        reads: The number of reads.
        limit: The maximum number of logs of a tenant.
        logs: The entries of each log.
        failure: An error that each call except `forget` raises, or None.
        watchers: The functions that each new entry is passed to.
        written: The position of the last entry.
    """

    reads: int = 0
    limit: int = 50_000
    logs: dict[Key, list[Entry]] = field(default_factory=dict)
    failure: CausewayError | None = None
    watchers: dict[Key, list[Callable[[Entry], None]]] = field(default_factory=dict)
    written: int = 0

    def _of(self, principal: Principal, name: str) -> Key:
        if self.failure is not None:
            raise self.failure
        return principal.tenant, principal.owner, name

    async def append(self, principal: Principal, name: str, entry: Entry, after: int, deadline: Deadline) -> int:
        """See `ports.response_log.ResponseLog`."""
        key = self._of(principal, name)
        if len(entry.data) > _MAX_ENTRY_BYTES:
            raise PayloadTooLarge("The response is too large to be stored. Set store to false.", field="store")
        await asyncio.sleep(0)
        log = self.logs.get(key, [])
        last = log[-1] if log else Entry("")
        if last.position != after:
            if last.position > after and last.equals_except_position(entry):
                return last.position
            raise Conflict(f"Another gateway now writes the log of {name}.", resource=name)
        if not log:
            self._delete_oldest(principal.tenant)
        self._write(key, entry)
        return self.written

    def _write(self, key: Key, entry: Entry) -> None:
        log = self.logs.setdefault(key, [])
        self.written += 1
        entry = replace(entry, position=self.written, before=log[-1].position if log else 0)
        log.append(entry)
        for on_entry in self.watchers.get(key, ()):
            on_entry(entry)

    def _delete_oldest(self, tenant: str) -> None:
        own = sorted((key for key in self.logs if key[0] == tenant), key=lambda key: key[2].rpartition("_")[2])
        for key in own[: max(0, len(own) - self.limit + 1)]:
            del self.logs[key]

    async def read(self, principal: Principal, name: str, after: int, deadline: Deadline) -> Sequence[Entry]:
        """See `ports.response_log.ResponseLog`."""
        self.reads += 1
        log = self.logs.get(self._of(principal, name), [])
        found = [entry for entry in log if entry.position > after][:_READ_COUNT]
        before = after
        entries = []
        for entry in found:
            entries.append(replace(entry, before=before))
            before = entry.position
        return entries

    async def last(self, principal: Principal, name: str, deadline: Deadline) -> Entry | None:
        """See `ports.response_log.ResponseLog`."""
        log = self.logs.get(self._of(principal, name))
        return log[-1] if log else None

    @asynccontextmanager
    async def watch(
        self, principal: Principal, name: str, on_entry: Callable[[Entry], None], deadline: Deadline
    ) -> AsyncIterator[None]:
        """See `ports.response_log.ResponseLog`."""
        watchers = self.watchers.setdefault(self._of(principal, name), [])
        watchers.append(on_entry)
        try:
            yield
        finally:
            watchers.remove(on_entry)

    async def delete(self, principal: Principal, name: str, deadline: Deadline) -> None:
        """See `ports.response_log.ResponseLog`."""
        self._delete(self._of(principal, name))

    def _delete(self, key: Key) -> None:
        last = self.logs.get(key, [Entry("")])[-1]
        self.logs[key] = []
        self._write(key, Entry("", ended=True, deleted=True))
        self.logs[key][-1] = replace(self.logs[key][-1], before=last.position)

    async def forget(self, tenant: str, owner: str, deadline: Deadline) -> int:
        """See `ports.response_log.ResponseLog`."""
        own = [key for key in self.logs if key[:2] == (tenant, owner)]
        for key in own:
            self._delete(key)
        return len(own)


@dataclass(slots=True)
class FakeTakenJob:
    """A job of the fake queue."""

    queue: "FakeResponseJobs"
    job: ResponseJob

    async def send_heartbeat(self) -> None:
        """See `ports.response_jobs.TakenJob`."""

    async def done(self) -> None:
        """See `ports.response_jobs.TakenJob`."""
        self.queue.jobs.remove(self.job)
        self.queue.taken.remove(self.job.name)

    async def requeue(self) -> None:
        """See `ports.response_jobs.TakenJob`."""
        self.queue.taken.remove(self.job.name)


@dataclass(slots=True)
class FakeResponseJobs:
    """A queue of background responses.

    Attributes:
        limit: The maximum number of jobs of a tenant.
        jobs: The waiting and running jobs, oldest first.
        taken: The names of the running jobs.
        failure: An error that `submit` raises, or None.
    """

    limit: int = 100
    jobs: list[ResponseJob] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)
    failure: CausewayError | None = None

    async def submit(self, job: ResponseJob, deadline: Deadline) -> None:
        """See `ports.response_jobs.ResponseJobs`."""
        if self.failure is not None:
            raise self.failure
        if sum(each.principal.tenant == job.principal.tenant for each in self.jobs) >= self.limit:
            raise RateLimited("background: too many responses are waiting.", field="background", retry_after=15.0)
        self.jobs.append(job)

    async def take(self, seconds: float) -> FakeTakenJob | None:
        """See `ports.response_jobs.ResponseJobs`."""
        job = next((each for each in self.jobs if each.name not in self.taken), None)
        if job is None:
            return None
        self.taken.add(job.name)
        return FakeTakenJob(self, job)
