"""What a worker says of its job while it is at it: not too often, and only while the job is its own."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Self

import structlog
from servicekit.errors import Conflict, Unavailable

from ingest.domain import Failure, Job, JobWarning, Outcome, Progress, State, Status
from ingest.ports import Jobs

_log = structlog.get_logger(__name__)
_INTERVAL = 0.2
"""Seconds between two reports of progress."""
_TRIES = 10
_COMMIT_SECONDS = 20.0
_COMMIT_PAUSE = 0.25
_MOST_WARNINGS = 50
"""Of those that are recorded; the others are counted. Each record of the progress holds them."""
_LONGEST_WARNING = 500
_LONGEST_PART = 200


class Settled(Exception):
    """The job is over, or another worker's: nothing is left to do for this one.

    Attributes:
        state: How it ended; None where it is another worker's.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(f"the job is {status.state.value}, attempt {status.attempt}")
        self.state = status.state if status.state.final else None


class Report:
    """Records one attempt's states.

    The attempt's number fences: what an earlier attempt has recorded is overwritten, what a later one has is not.
    So a worker that was taken for dead and wakes up again cannot undo what its successor did. Every method raises
    `Settled` when it finds that somebody else has taken or ended the job.

    An attempt counts from its first record, for a worker that dies of a job can no longer say so; one that ends
    because something else was away is taken back.

    Args:
        jobs: Where states are recorded.
        job: The job.
        attempt: Number of this attempt, from 1.
    """

    def __init__(self, jobs: Jobs, job: Job, attempt: int) -> None:
        self._jobs = jobs
        self._job = job
        self._status = Status(State.QUEUED, attempt)
        self._revision = 0
        self._written = 0.0
        self._turn = asyncio.Lock()
        self._unsaid = False
        self._later: asyncio.Task[None] | None = None
        self._settled: Settled | None = None
        self._since = time.monotonic()
        self._passed: dict[str, float] = {}

    @classmethod
    async def begin(cls, jobs: Jobs, job: Job, attempt: int) -> Self:
        """Takes the job: state PARSING, under this attempt's number.

        The first attempt is recorded a moment later, unless something else is recorded before: most documents need
        less time than that, and each record waits for a disk. A document that ends its worker within that moment
        gets one attempt more.

        Raises:
            Unavailable: States cannot be read or recorded.
        """
        report = cls(jobs, job, attempt)
        await report._reread()
        report._status = replace(report._status, state=State.PARSING, counted=report.counted + 1)
        if attempt > 1:
            await report._record()
        else:
            report._written, report._unsaid = time.monotonic(), True
            report._later = asyncio.create_task(report._say(_INTERVAL))
        return report

    @property
    def counted(self) -> int:
        """Attempts that count, this one included."""
        return self._status.counted

    @property
    def told(self) -> Progress:
        """How far the job is, as was said last."""
        return self._status.progress

    @property
    def stages(self) -> dict[str, float]:
        """Seconds of this attempt so far, by the state that the job was in."""
        state = self._status.state.value
        spent = time.monotonic() - self._since
        return {**self._passed, state: self._passed.get(state, 0.0) + spent}

    @property
    def committing(self) -> bool:
        """Whether something of the job may be seen already."""
        return self._status.committing

    @property
    def waited(self) -> float:
        """Seconds since something else was found to be away that the job needs."""
        since = self._status.waiting_since
        return (datetime.now(UTC) - since).total_seconds() if since else 0.0

    def warn(self, warnings: Sequence[JobWarning]) -> None:
        """Replace the warnings; the next record holds them."""
        kept = tuple(
            replace(each, message=each.message[:_LONGEST_WARNING], part=each.part[:_LONGEST_PART])
            for each in warnings[:_MOST_WARNINGS]
        )
        self._status = replace(self._status, warnings=kept, warning_count=len(warnings))

    async def progress(self, progress: Progress, state: State | None = None) -> None:
        """Says how far the job is; every now and then, a change of state soon in any case.

        A small document passes through its states faster than anybody can look: each record waits for a disk.

        A store that does not answer is no reason to stop: the work goes on, and the end is recorded in any case.
        Several tasks may say it at a time; none waits for what another has to say.
        """
        if state is not None:
            self._passed, self._since = self.stages, time.monotonic()
        self._status = replace(self._status, progress=progress, state=state or self._status.state)
        wait = self._written + _INTERVAL - time.monotonic()
        if wait > 0 or self._turn.locked():
            if state is not None:
                self._unsaid = True
                self._later = self._later or asyncio.create_task(self._say(wait))
            return
        try:
            await self._record()
        except Unavailable as error:
            self._written = time.monotonic()
            _log.warning("progress not recorded", job=self._job.job_id, error=error.message)

    async def _say(self, wait: float) -> None:
        """Records a change of state, unless something else has been recorded since."""
        await asyncio.sleep(wait)
        self._later = None
        try:
            await self._record(later=True)
        except Settled as settled:
            self._settled = settled
        except Unavailable as error:
            _log.warning("progress not recorded", job=self._job.job_id, error=error.message)

    async def commit(self) -> None:
        """To be called before anything of the job can be seen: from then on nobody can cancel it.

        Waits a while where it cannot be recorded: the work is done, but nobody may see it yet.

        Raises:
            Unavailable: It cannot be recorded; nothing may be shown.
        """
        end = time.monotonic() + _COMMIT_SECONDS
        while not self._status.committing:
            try:
                await self._record(state=State.INDEXING, committing=True)
            except Unavailable:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(_COMMIT_PAUSE)

    async def wait(self, failure: Failure) -> None:
        """The attempt ends because something else is away: it does not count.

        Raises:
            Unavailable: It cannot be recorded.
        """
        since = self._status.waiting_since or datetime.now(UTC)
        await self._requeue(failure, counted=self.counted - 1, waiting_since=since)

    async def fail(self, failure: Failure) -> None:
        """The attempt failed, another one may follow.

        Raises:
            Unavailable: It cannot be recorded.
        """
        await self._requeue(failure, waiting_since=None)

    async def give_back(self) -> None:
        """The worker stops: the attempt does not count.

        Raises:
            Unavailable: It cannot be recorded.
        """
        await self._requeue(None, counted=self.counted - 1)

    async def end(
        self,
        state: State,
        failure: Failure | None = None,
        outcomes: tuple[Outcome, ...] = (),
        *,
        given_up: bool = False,
    ) -> None:
        """Records how the job ended, what became of each text, and whether it is among the dead letters.

        Raises:
            Unavailable: It cannot be recorded.
        """
        await self._record(state=state, failure=failure, outcomes=outcomes, waiting_since=None, given_up=given_up)

    async def _requeue(self, failure: Failure | None, **changes: Any) -> None:
        await self._record(state=State.QUEUED, failure=failure, **changes)

    async def _record(self, *, later: bool = False, **changes: Any) -> None:
        async with self._turn:
            if later and not self._unsaid:
                return
            if self._settled is not None:
                raise self._settled
            for _ in range(_TRIES):
                status = replace(self._status, **changes)
                self._unsaid = False
                try:
                    self._revision = await self._jobs.write(self._job, status, self._revision)
                except Conflict:
                    # Another worker, someone who cancels, or this one: a write may arrive whose answer is lost.
                    await self._reread()
                else:
                    # What was said meanwhile of the progress stays.
                    now = self._status
                    self._status = replace(
                        status, progress=now.progress, warnings=now.warnings, warning_count=now.warning_count
                    )
                    self._written = time.monotonic()
                    return
            raise Unavailable("The job's state changes too fast to be recorded.")

    async def _reread(self) -> None:
        found = await self._jobs.read(self._job)
        if found is None:
            self._revision = 0
            return
        first, (there, self._revision) = not self._status.counted, found
        if there.state.final or there.attempt > self._status.attempt:
            raise Settled(there)
        self._status = replace(
            self._status,
            created_at=there.created_at,
            trace_id=there.trace_id,
            committing=there.committing or self._status.committing,
            counted=there.counted if first else self._status.counted,
            waiting_since=there.waiting_since if first else self._status.waiting_since,
            # An attempt that stored the document and died could not say more than that.
            warnings=there.warnings if first else self._status.warnings,
            warning_count=there.warning_count if first else self._status.warning_count,
        )
