"""What the routes need that look after jobs. Adapters: `clients`.

The fakes are in `causeway_testing.gateway.jobs`. Adapters and fakes pass the same tests.
"""

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Protocol

from servicekit.deadline import Deadline
from servicekit.principal import Principal

from gateway.domain.documents import Job


@dataclass(frozen=True, slots=True)
class JobPage:
    """Some jobs, those that changed last first.

    Attributes:
        next_token: Gets the page after it; empty where there is none. A page may hold fewer than were asked for.
    """

    jobs: tuple[Job, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class JobChange:
    """A job as it stood at a moment.

    Attributes:
        revision: Grows from change to change.
    """

    revision: int
    job: Job


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A job that was given up, and can be sent again.

    Attributes:
        job_id: Empty where the message held no job: then it can only be looked at.
        document_id: Empty where the job is about many documents, as is ``sourcefile``.
        reason: A reason of the error table.
        attempts: How many times a worker began it.
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
    """Some dead letters, the newest first; see `JobPage`."""

    letters: tuple[DeadLetter, ...]
    next_token: str = ""


@dataclass(frozen=True, slots=True)
class Replay:
    """Which dead letters were sent again, and which ids have none."""

    replayed: tuple[str, ...]
    not_found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane of the queue, as far as a tenant uses it.

    Attributes:
        jobs: Jobs of the tenant in it: those that wait, and those that are worked on.
        places: How many jobs of a tenant have room in it; None in the last lane, which takes the others.
    """

    jobs: int
    places: int | None


class Jobs(Protocol):
    """Looks after jobs. One of another tenant does not exist."""

    async def page(
        self, principal: Principal, *, index: str, state: str, count: int, token: str, deadline: Deadline
    ) -> JobPage:
        """A page of the tenant's jobs.

        Args:
            principal: Who asks.
            index: Only jobs that write to it; empty: all.
            state: Only jobs in this state; empty: all.
            count: Most jobs of the page.
            token: Of the page before; empty: the first one.
            deadline: When it must be over.

        Raises:
            InvalidRequest: The token is none that a page had.
        """
        ...

    async def lanes(self, principal: Principal, deadline: Deadline) -> tuple[Lane, ...]:
        """The lanes in the order in which a job looks for room.

        Raises:
            Unavailable: The queue cannot be reached.
        """
        ...

    def watch(self, principal: Principal, job_id: str, after: int) -> AsyncGenerator[JobChange | None, None]:
        """A job's changes until it is over: what it is now first, unless that is the revision ``after``. None now
        and then, where nothing has changed for some seconds.

        Raises:
            NotFound: There is no such job, or not any more.
            Unavailable: At the first step: it cannot be asked for.
        """
        ...

    async def cancel(self, principal: Principal, job_id: str, deadline: Deadline) -> Job:
        """Stops a job: nothing of it can be found then. One that is cancelled already stays as it is.

        Raises:
            NotFound: No such job.
            Conflict: It is over, or so near to it that it cannot be stopped.
        """
        ...

    async def dead(self, principal: Principal, *, count: int, token: str, deadline: Deadline) -> DeadPage:
        """A page of the tenant's dead letters.

        Raises:
            InvalidRequest: The token is none that a page had.
        """
        ...

    async def replay(self, principal: Principal, job_ids: Sequence[str] | None, deadline: Deadline) -> Replay:
        """Sends dead letters again, as the jobs that they were; all of the tenant's where no ids are given.

        Raises:
            RateLimited: The queue has no more room.
        """
        ...
