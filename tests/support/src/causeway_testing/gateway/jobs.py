"""A fake of `ports.jobs`: jobs in memory."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace

from gateway.domain.documents import ENDED, Job
from gateway.ports.jobs import DeadLetter, DeadPage, JobChange, JobPage, Lane, Replay
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, InvalidRequest
from servicekit.principal import Principal

from causeway_testing.gateway.answering import FakeIngest

_QUIET_SECONDS = 0.05


@dataclass(slots=True)
class FakeJobs:
    """Manages the jobs of a `FakeIngest`.

    Attributes:
        changes: The revision of each changed job, by tenant and id.
        letters: The dead letters by tenant, newest first.
        committing: The ids of jobs that can no longer be cancelled.
    """

    ingest: FakeIngest
    changes: dict[tuple[str, str], int] = field(default_factory=dict)
    letters: dict[str, list[DeadLetter]] = field(default_factory=dict)
    committing: set[str] = field(default_factory=set)

    def change(self, principal: Principal, job: Job) -> None:
        """Replace a job, as a worker does."""
        key = (principal.tenant, job.id)
        self.ingest.jobs.pop(key)
        self.ingest.jobs[key] = job
        self.changes[key] = self._revision(key) + 1

    async def page(
        self, principal: Principal, *, index: str, state: str, count: int, token: str, deadline: Deadline
    ) -> JobPage:
        """See `ports.jobs.Jobs`."""
        jobs = [job for (tenant, _), job in self.ingest.jobs.items() if tenant == principal.tenant]
        found = [job for job in reversed(jobs) if index in ("", job.index) and state in ("", job.state)]
        start = _start(token)
        return JobPage(tuple(found[start : start + count]), _next(start + count, len(found)))

    async def lanes(self, principal: Principal, deadline: Deadline) -> tuple[Lane, ...]:
        """See `ports.jobs.Jobs`. The first unfinished jobs fill the first lane, the next ones the second lane, …"""
        unfinished = sum(
            tenant == principal.tenant and job.state not in ENDED for (tenant, _), job in self.ingest.jobs.items()
        )
        lanes = []
        for limit in (8, 64, 512, None):
            count = unfinished if limit is None else min(unfinished, limit)
            lanes.append(Lane(count, limit))
            unfinished -= count
        return tuple(lanes)

    async def watch(self, principal: Principal, job_id: str, after: int) -> AsyncGenerator[JobChange | None, None]:
        """See `ports.jobs.Jobs`."""
        seen, key = after, (principal.tenant, job_id)
        while True:
            job = await self.ingest.job(principal, job_id, Deadline.after(1))
            if self._revision(key) != seen:
                seen = self._revision(key)
                yield JobChange(seen, job)
            if job.state in ENDED:
                return
            await asyncio.sleep(_QUIET_SECONDS)
            if self._revision(key) == seen:
                yield None

    async def cancel(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """See `ports.jobs.Jobs`."""
        job = await self.ingest.job(principal, job_id, deadline)
        if job.state == "cancelled":
            return job
        if job.state in ENDED or job_id in self.committing:
            raise Conflict("The job has ended, or is about to end.", resource=job_id)
        job = replace(job, state="cancelled", error_reason="", error_message="", waiting_since="")
        self.change(principal, job)
        return job

    async def dead_letters(self, principal: Principal, *, count: int, token: str, deadline: Deadline) -> DeadPage:
        """See `ports.jobs.Jobs`."""
        letters, start = self.letters.get(principal.tenant, []), _start(token)
        return DeadPage(tuple(letters[start : start + count]), _next(start + count, len(letters)))

    async def replay(self, principal: Principal, job_ids: Sequence[str] | None, deadline: Deadline) -> Replay:
        """See `ports.jobs.Jobs`."""
        letters = self.letters.get(principal.tenant, [])
        sent = [each.job_id for each in letters if each.job_id and (job_ids is None or each.job_id in job_ids)]
        self.letters[principal.tenant] = [each for each in letters if each.job_id not in sent]
        for job_id in sent:
            job = await self.ingest.job(principal, job_id, deadline)
            self.change(principal, replace(job, state="queued", error_reason="", error_message="", attempt=0))
        return Replay(tuple(sent), tuple(each for each in job_ids or () if each not in sent))

    def _revision(self, key: tuple[str, str]) -> int:
        return self.changes.get(key, 1)


def _start(token: str) -> int:
    if token and not (token.isascii() and token.isdecimal() and int(token) > 0):
        raise InvalidRequest(
            "page_token: the token is invalid. Send the token of the previous page.", field="page_token"
        )
    return int(token or 0)


def _next(start: int, count: int) -> str:
    return str(start) if start < count else ""
