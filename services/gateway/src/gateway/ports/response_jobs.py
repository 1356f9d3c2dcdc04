"""What the gateway needs of the queue of responses that run in the background."""

from typing import Protocol

from servicekit.deadline import Deadline

from gateway.domain.response_jobs import ResponseJob


class TakenJob(Protocol):
    """A job that a gateway works on."""

    job: ResponseJob

    async def working(self) -> None:
        """Say that the gateway is still there; a job whose gateway is silent goes to another one."""
        ...

    async def done(self) -> None:
        """Take the job out of the queue."""
        ...

    async def again(self) -> None:
        """Give the job back, for another gateway."""
        ...


class ResponseJobs(Protocol):
    """Hands each job to one gateway after another, until one has done it."""

    async def submit(self, job: ResponseJob, deadline: Deadline) -> None:
        """Put a job on the queue.

        Raises:
            RateLimited: Too many of the tenant wait or run.
            PayloadTooLarge: The request is too large to wait.
            Unavailable: The queue cannot be reached, or is full.
        """
        ...

    async def take(self, seconds: float) -> TakenJob | None:
        """Return the next job; None where none came in time.

        Raises:
            Unavailable: The queue cannot be reached.
        """
        ...
