"""The queue of responses that run in the background, as the gateway uses it."""

from typing import Protocol

from servicekit.deadline import Deadline

from gateway.domain.response_jobs import ResponseJob


class TakenJob(Protocol):
    """A job that this gateway works on."""

    job: ResponseJob

    async def send_heartbeat(self) -> None:
        """Report to the queue that the job still runs. Without this signal, another gateway receives the job."""
        ...

    async def done(self) -> None:
        """Remove the job from the queue."""
        ...

    async def requeue(self) -> None:
        """Return the job to the queue, so that another gateway can receive it."""
        ...


class ResponseJobs(Protocol):
    """Delivers each job to one gateway at a time, until a gateway has completed it."""

    async def submit(self, job: ResponseJob, deadline: Deadline) -> None:
        """Enqueue a job.

        Raises:
            RateLimited: Too many jobs of the tenant wait or run.
            PayloadTooLarge: The request is too large for the queue.
            Unavailable: The queue cannot be reached, or is full.
        """
        ...

    async def take(self, seconds: float) -> TakenJob | None:
        """Return the next job, or None if no job arrives in time.

        Args:
            seconds: The maximum time to wait.

        Raises:
            Unavailable: The queue cannot be reached.
        """
        ...
