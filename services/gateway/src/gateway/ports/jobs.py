"""The service that manages jobs. Adapters: `clients`. Fakes: `causeway_testing.gateway.jobs`.

Adapters and fakes pass the same tests.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.documents import Job


@dataclass(frozen=True, slots=True)
class JobPage:
    """A page of jobs, most recently changed first. It may have fewer jobs than requested.

    Attributes:
        next_token: Gets the next page; empty on the last page.
    """

    jobs: tuple[Job, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class JobChange:
    """The state of a job at one moment.

    Attributes:
        revision: Grows with each change.
    """

    revision: int
    job: Job


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that failed permanently and can be sent again.

    Attributes:
        job_id: Empty if the message holds no job: then it cannot be sent again.
        document_id: Empty if the job has many documents, like ``sourcefile``.
        reason: A reason of the error table.
        attempts: The number of attempts.
        died_at: RFC 3339.
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
    """A page of dead letters, the newest first; see `JobPage`."""

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
        jobs: The tenant's jobs in it, both waiting and running.
        places: The maximum number of jobs of a tenant in it; None in the last lane, which takes the others.
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
            index: Only jobs that write to this index; empty: all.
            state: Only jobs in this state; empty: all.
            count: The maximum number of jobs of the page.
            token: The token of the previous page; empty for the first page.
            deadline: When the call must end.

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
        """Yield a job's present state and its changes until it ends.

        The present state is omitted if it has the revision ``after``. None is yielded after some seconds without a
        change.

        Raises:
            NotFound: The job does not exist, or does not exist any more.
            Unavailable: At the first step: the store does not answer.
        """
        ...

    async def cancel(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """Cancel a job, so that nothing of it can be found. A cancelled job does not change.

        Raises:
            NotFound: The job does not exist.
            Conflict: The job has ended, or is too near its end to be stopped.
        """
        ...

    async def dead(self, principal: Principal, *, count: int, token: str, deadline: Deadline) -> DeadPage:
        """Return a page of the tenant's dead letters.

        Raises:
            InvalidRequest: The token is invalid.
        """
        ...

    async def replay(self, principal: Principal, job_ids: Sequence[str] | None, deadline: Deadline) -> Replay:
        """Send dead letters again, as the same jobs; all of the tenant's if ``job_ids`` is None.

        Raises:
            RateLimited: The queue is full.
        """
        ...
