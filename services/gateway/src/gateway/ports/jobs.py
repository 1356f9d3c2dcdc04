"""The interface that manages jobs, and the types of jobs' pages, lanes and dead letters."""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.documents import Job


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of jobs, most recently changed first. A page may have fewer jobs than requested.

    Attributes:
        next_token: The token of the next page, or empty on the last page.
    """

    jobs: tuple[Job, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class JobChange:
    """The state of a job at one moment.

    Attributes:
        revision: A number that grows with each change.
    """

    revision: int
    job: Job


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that was given up and can be sent again.

    Attributes:
        job_id: The id of the job. Empty if the message contains no valid job, which cannot be sent again.
        document_id: The id of the document, or empty for a job with many documents.
        sourcefile: The name of the file, or empty for a job with many documents.
        reason: A reason in `servicekit.errors.TABLE`.
        attempts: The number of attempts.
        died_at: The time of the failure, RFC 3339.
    """

    job_id: str
    index: str
    document_id: str
    sourcefile: str
    reason: str
    message: str
    attempts: int
    died_at: str


@dataclass(frozen=True, slots=True)
class DeadPage:
    """A page of dead letters, newest first; see `JobPage`."""

    letters: tuple[DeadLetter, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """The ids of the dead letters that were sent again, and the ids without a dead letter."""

    replayed: tuple[str, ...]
    not_found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of the queue, from one tenant's point of view.

    Attributes:
        jobs: The number of the tenant's waiting and running jobs in the lane.
        places: The maximum number of a tenant's jobs in the lane. None in the last lane, which accepts all jobs.
    """

    jobs: int
    places: int | None


class Jobs(Protocol):
    """Manages jobs. A job of another tenant does not exist for the principal."""

    async def page(
        self, principal: Principal, *, index: str, state: str, count: int, token: str, deadline: Deadline
    ) -> JobPage:
        """Return a page of the tenant's jobs.

        Args:
            principal: The caller.
            index: Return only jobs that write to this index. Empty selects all indexes.
            state: Return only jobs in this state. Empty selects all states.
            count: The maximum number of jobs in the page.
            token: The token of the previous page, or empty for the first page.
            deadline: The time by which the call must end.

        Raises:
            InvalidRequest: The token is invalid.
        """
        ...

    async def lanes(self, principal: Principal, deadline: Deadline) -> tuple[Lane, ...]:
        """Return the lanes in the order in which a job tries them.

        Raises:
            Unavailable: The queue cannot be reached.
        """
        ...

    def watch(self, principal: Principal, job_id: str, after: int) -> AsyncGenerator[JobChange | None, None]:
        """Yield a job's current state and its changes until the job ends.

        The generator omits the current state if it has the revision ``after``. It yields None after some seconds
        without a change.

        Raises:
            NotFound: The job does not exist, or does not exist any more.
            Unavailable: The store is not available at the first step.
        """
        ...

    async def cancel(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """Cancel a job, so that searches find no passage of it. A job that is already cancelled does not change.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job has ended, or it is too late to cancel it.
            Unavailable: The store is not available, or the job changed during all attempts to cancel it.
        """
        ...

    async def dead_letters(self, principal: Principal, *, count: int, token: str, deadline: Deadline) -> DeadPage:
        """Return a page of the tenant's dead letters.

        Raises:
            InvalidRequest: The token is invalid.
        """
        ...

    async def replay(self, principal: Principal, job_ids: Sequence[str] | None, deadline: Deadline) -> Replay:
        """Send dead letters again with unchanged job ids. Without ``job_ids``, send all of the tenant's letters.

        Raises:
            RateLimited: Too many jobs of the tenant wait.
            Unavailable: The queue cannot be reached, or is full.
        """
        ...
