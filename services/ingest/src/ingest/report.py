"""What a worker says of its job while it is at it: not too often, and only while the job is its own."""

import time
from dataclasses import replace
from typing import Self

import structlog
from servicekit.errors import Conflict, Unavailable

from ingest.domain import Failure, Job, Outcome, Progress, State, Status
from ingest.ports import Jobs

_log = structlog.get_logger(__name__)
_INTERVAL = 0.2
"""Seconds between two reports of progress."""
_TRIES = 10


class Settled(Exception):
    """The job is over, or another worker's: nothing is left to do for this one.

    Attributes:
        final: Whether it is over.
        failed: Whether that is because it failed.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(f"the job is {status.state.value}, attempt {status.attempt}")
        self.final = status.state.final
        self.failed = status.state is State.FAILED


class Report:
    """Records one attempt's states.

    The attempt's number fences: what an earlier attempt has recorded is overwritten, what a later one has is not.
    So a worker that was taken for dead and wakes up again cannot undo what its successor did. Every method raises
    `Settled` when it finds that somebody else has taken or ended the job.

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
        self._writing = False

    @classmethod
    async def begin(cls, jobs: Jobs, job: Job, attempt: int) -> Self:
        """Takes the job: state PARSING, under this attempt's number.

        Raises:
            Unavailable: States cannot be recorded.
        """
        report = cls(jobs, job, attempt)
        await report._reread()
        await report._write(replace(report._status, state=State.PARSING))
        return report

    async def progress(self, progress: Progress, state: State | None = None) -> None:
        """Says how far the job is; a change of state at once, the rest every now and then.

        A store that does not answer is no reason to stop: the work goes on, and the end is recorded in any case.
        Several tasks may say it at a time; none waits for what another has to say.
        """
        status = replace(self._status, state=state or self._status.state, progress=progress)
        if state is None and (self._writing or time.monotonic() - self._written < _INTERVAL):
            self._status = status
            return
        self._writing = True
        try:
            await self._write(status)
        except Unavailable as error:
            self._status = status
            self._written = time.monotonic()
            _log.warning("progress not recorded", job=self._job.job_id, error=error.message)
        finally:
            self._writing = False

    async def end(self, state: State, failure: Failure | None = None, outcomes: tuple[Outcome, ...] = ()) -> None:
        """Records how the attempt ended, and what became of each text.

        Raises:
            Unavailable: It cannot be recorded.
        """
        await self._write(replace(self._status, state=state, failure=failure, outcomes=outcomes))

    async def _write(self, status: Status) -> None:
        for _ in range(_TRIES):
            try:
                self._revision = await self._jobs.write(self._job, status, self._revision)
            except Conflict:
                # Another worker, someone who cancels, or this one: a write may arrive whose answer is lost.
                await self._reread()
            else:
                self._status = status
                self._written = time.monotonic()
                return
        raise Unavailable("The job's state changes too fast to be recorded.")

    async def _reread(self) -> None:
        found = await self._jobs.read(self._job)
        if found is None:
            self._revision = 0
            return
        status, self._revision = found
        if status.state.final or status.attempt > self._status.attempt:
            raise Settled(status)
        self._status = replace(self._status, created_at=status.created_at, trace_id=status.trace_id)
