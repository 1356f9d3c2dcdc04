"""Records the state and the progress of a job, while the job belongs to this worker."""

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
EARLIER_JOBS_PENDING = Failure("UNAVAILABLE", "Jobs that were accepted earlier for the index have not ended yet.")
"""The reason why a change of readers waits."""
_INTERVAL = 0.2
"""Minimum seconds between two records of progress."""
_TRIES = 10
"""Maximum number of tries to write one record. A try fails if another write has changed the record."""
_COMMIT_SECONDS = 20.0
"""Seconds for which `Report.commit` retries."""
_COMMIT_PAUSE = 0.25
"""Seconds between two tries of `Report.commit`."""
_MAX_WARNINGS = 50
"""Maximum number of recorded warnings, because each record contains them all. Further warnings are only counted."""
_MAX_WARNING_CHARACTERS = 500
"""Maximum number of characters of a warning's message. A longer message is cut."""
_MAX_PART_CHARACTERS = 200
"""Maximum number of characters of the name of a warning's part. A longer name is cut."""


class OwnershipLost(Exception):
    """This worker does not own the job any more, because the job has ended, or another worker has taken it.

    Attributes:
        state: The final state; None if the job belongs to another worker.
        attempt: The attempt that recorded the state.
        given_up: Whether the job is among the dead letters.
    """

    def __init__(self, status: Status) -> None:
        super().__init__(f"the job is {status.state.value}, attempt {status.attempt}")
        self.state = status.state if status.state.is_final else None
        self.attempt = status.attempt
        self.given_up = status.given_up


class Report:
    """Records the states of one attempt.

    The attempt's number is a fencing token: an attempt overwrites the records of earlier attempts, but not those of
    later attempts. So a worker that was considered dead cannot undo the work of its successor. All methods that
    record a state raise `OwnershipLost` if another worker has taken the job, or the job has ended.

    The first record of an attempt counts the attempt, because a worker cannot record its own crash. A later record
    subtracts the attempt again after an outage, a wait for earlier jobs, or an interruption.

    Args:
        jobs: The store of the states.
        job: The job.
        attempt: Number of this attempt, from 1.
    """

    def __init__(self, jobs: Jobs, job: Job, attempt: int) -> None:
        self._jobs = jobs
        self._job = job
        self._status = Status(State.QUEUED, attempt)
        self._revision = 0
        self._last_write = 0.0
        self._writing = asyncio.Lock()
        self._has_unrecorded_state = False
        self._pending: asyncio.Task[None] | None = None
        self._ownership_lost: OwnershipLost | None = None
        self._waiting_for_jobs_since: datetime | None = None  # start of a wait for earlier jobs
        self._stage_start = time.monotonic()
        self._stage_seconds: dict[str, float] = {}

    @classmethod
    async def begin(cls, jobs: Jobs, job: Job, attempt: int) -> Self:
        """Return the report of a new attempt, and record the state PARSING with the attempt's number.

        The first attempt is recorded after a short delay, or together with a record during the delay, because most
        jobs end within the delay, and each record waits for a disk. So a document that crashes its worker within
        the delay gets one more attempt.

        Raises:
            Unavailable: States cannot be read or recorded.
        """
        report = cls(jobs, job, attempt)
        await report._reread()
        report._status = replace(report._status, state=State.PARSING, counted_attempts=report.counted_attempts + 1)
        if attempt > 1:
            await report._record()
        else:
            report._last_write, report._has_unrecorded_state = time.monotonic(), True
            report._pending = asyncio.create_task(report._record_later(_INTERVAL))
        return report

    @property
    def counted_attempts(self) -> int:
        """The number of attempts that count against the limit, including this attempt."""
        return self._status.counted_attempts

    @property
    def latest_progress(self) -> Progress:
        """The latest progress, whether it has been recorded or not."""
        return self._status.progress

    @property
    def stage_seconds(self) -> dict[str, float]:
        """The seconds that this attempt has spent in each state of the job."""
        state = self._status.state.value
        spent = time.monotonic() - self._stage_start
        return {**self._stage_seconds, state: self._stage_seconds.get(state, 0.0) + spent}

    @property
    def committing(self) -> bool:
        """Whether the results of the job may already be visible."""
        return self._status.committing

    @property
    def seconds_waited(self) -> float:
        """Seconds for which a dependency of the job has been unavailable."""
        since = self._status.waiting_since
        return (datetime.now(UTC) - since).total_seconds() if since else 0.0

    def set_warnings(self, warnings: Sequence[JobWarning]) -> None:
        """Replace the warnings. The next record contains them."""
        recorded = tuple(
            replace(
                warning, message=warning.message[:_MAX_WARNING_CHARACTERS], part=warning.part[:_MAX_PART_CHARACTERS]
            )
            for warning in warnings[:_MAX_WARNINGS]
        )
        self._status = replace(self._status, warnings=recorded, warning_count=len(warnings))

    async def record_progress(self, progress: Progress, state: State | None = None) -> None:
        """Report the progress, and a change of state if ``state`` is given.

        Reports within an interval share one record, because each record waits for a disk and a small document
        passes through its states very quickly.

        If the store does not answer, the work continues, because the end is recorded in any case. Several tasks may
        call this method concurrently without waiting for each other.
        """
        if state is not None:
            self._begin_stage()
        self._status = replace(self._status, progress=progress, state=state or self._status.state)
        delay = self._last_write + _INTERVAL - time.monotonic()
        if delay > 0 or self._writing.locked():
            if state is not None:
                self._has_unrecorded_state = True
                self._pending = self._pending or asyncio.create_task(self._record_later(delay))
            return
        try:
            await self._record()
        except Unavailable as error:
            self._last_write = time.monotonic()
            _log.warning("progress not recorded", job=self._job.job_id, error=error.message)

    def _begin_stage(self) -> None:
        """Add the time since the last change of state to the current state. Called before the state changes."""
        self._stage_seconds, self._stage_start = self.stage_seconds, time.monotonic()

    async def _record_later(self, delay: float) -> None:
        """Record a change of state after a delay, unless another record has already included the change."""
        await asyncio.sleep(delay)
        self._pending = None
        try:
            await self._record(later=True)
        except OwnershipLost as lost:
            self._ownership_lost = lost
        except Unavailable as error:
            _log.warning("progress not recorded", job=self._job.job_id, error=error.message)

    async def commit(self) -> None:
        """Record that the job can no longer be cancelled. Callers await this before they make results visible.

        If the state cannot be recorded, the method retries for a while, because the work is done.

        Raises:
            Unavailable: The state cannot be recorded; the results must not become visible.
        """
        end = time.monotonic() + _COMMIT_SECONDS
        if self._status.state is not State.INDEXING:
            self._begin_stage()
        while not self._status.committing:
            try:
                await self._record(state=State.INDEXING, committing=True)
            except Unavailable:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(_COMMIT_PAUSE)

    async def record_outage(self, failure: Failure) -> None:
        """Record that the attempt ended because a dependency is unavailable. The attempt does not count.

        Raises:
            Unavailable: The state cannot be recorded.
        """
        since = self._status.waiting_since or datetime.now(UTC)
        await self._requeue(failure, counted_attempts=self.counted_attempts - 1, waiting_since=since)

    async def record_wait_for_earlier_jobs(self) -> None:
        """Record that the attempt ended because earlier jobs have not ended. The attempt does not count.

        Raises:
            Unavailable: The state cannot be recorded.
        """
        since = self._waiting_for_jobs_since or datetime.now(UTC)
        await self._requeue(EARLIER_JOBS_PENDING, counted_attempts=self.counted_attempts - 1, waiting_since=since)

    async def record_failure(self, failure: Failure) -> None:
        """Record that the attempt failed; another attempt may follow.

        Raises:
            Unavailable: The state cannot be recorded.
        """
        await self._requeue(failure, waiting_since=None)

    async def record_interruption(self) -> None:
        """Record that the worker stops before the end of the job. The attempt does not count.

        Raises:
            Unavailable: The state cannot be recorded.
        """
        await self._requeue(None, counted_attempts=self.counted_attempts - 1)

    async def record_end(
        self,
        state: State,
        failure: Failure | None = None,
        outcomes: tuple[Outcome, ...] = (),
        *,
        given_up: bool = False,
    ) -> None:
        """Record how the job ended, the outcome of each text, and whether the job is among the dead letters.

        After `Unavailable`, the caller may repeat the call. The state may have been recorded, and the reply lost.

        Raises:
            Unavailable: The state cannot be recorded.
        """
        try:
            await self._record(
                state=state, failure=failure, outcomes=outcomes, waiting_since=None, given_up=given_up
            )
        except OwnershipLost as lost:
            is_own_record = (lost.state, lost.attempt) == (state, self._status.attempt)
            if not is_own_record:
                raise

    async def _requeue(self, failure: Failure | None, **changes: Any) -> None:
        await self._record(state=State.QUEUED, failure=failure, **changes)

    async def _record(self, *, later: bool = False, **changes: Any) -> None:
        """Record the status with changes. With ``later``, do nothing if another record has included the new state.

        Raises:
            OwnershipLost: Another worker has taken the job, or the job has ended.
            Unavailable: The state cannot be recorded.
        """
        async with self._writing:
            if later and not self._has_unrecorded_state:
                return
            if self._ownership_lost is not None:
                raise self._ownership_lost
            for _ in range(_TRIES):
                status = replace(self._status, **changes)
                self._has_unrecorded_state = False
                try:
                    self._revision = await self._jobs.write(self._job, status, self._revision)
                except Conflict:
                    # Another worker, a cancellation, or a write of this worker whose response was lost.
                    await self._reread()
                else:
                    # Keep the state, the progress and the warnings that were reported in the meantime.
                    self._status = replace(self._status, **changes)
                    self._last_write = time.monotonic()
                    return
            raise Unavailable("The job's state changes too fast to be recorded.")

    async def _reread(self) -> None:
        """Read the record of the job, and take over the values that other processes or attempts have recorded.

        Raises:
            OwnershipLost: Another worker has taken the job, or the job has ended.
            Unavailable: The record cannot be read.
        """
        found = await self._jobs.read(self._job)
        if found is None:
            self._revision = 0
            return
        is_first_read, (existing, self._revision) = not self._status.counted_attempts, found
        if existing.state.is_final or existing.attempt > self._status.attempt:
            raise OwnershipLost(existing)
        waiting_since = existing.waiting_since if is_first_read else self._status.waiting_since
        if is_first_read and existing.failure == EARLIER_JOBS_PENDING:
            # The time limit of an outage does not apply to this wait.
            self._waiting_for_jobs_since, waiting_since = waiting_since, None
        self._status = replace(
            self._status,
            created_at=existing.created_at,
            trace_id=existing.trace_id,
            committing=existing.committing or self._status.committing,
            counted_attempts=existing.counted_attempts if is_first_read else self._status.counted_attempts,
            waiting_since=waiting_since,
            # If the previous attempt stored the document and then crashed, only its record has the warnings.
            warnings=existing.warnings if is_first_read else self._status.warnings,
            warning_count=existing.warning_count if is_first_read else self._status.warning_count,
        )
