"""Runs the background responses. Takes jobs from the queue, including those of a gateway that died."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import structlog
from servicekit import metrics
from servicekit.deadline import Deadline
from servicekit.errors import BrokenOff, CausewayError, Conflict, Unavailable
from servicekit.principal import Principal
from servicekit.tasks import cancel_and_wait

from gateway.domain.response_jobs import ResponseJob
from gateway.domain.response_log import Entry
from gateway.domain.responses import IN_PROGRESS
from gateway.ports.response_jobs import ResponseJobs, TakenJob
from gateway.ports.response_log import ResponseLog
from gateway.ports.responses import ResponseStore
from gateway.response_runs.ending import Ending
from gateway.response_runs.partial import FAILED
from gateway.response_runs.peers import QUEUE, Peers, runs_job
from gateway.response_runs.run import ResumePoint

_log = structlog.get_logger(__name__)
_TAKE_SECONDS, _RETRY_SECONDS, _HEARTBEAT_SECONDS, _END_SECONDS = 5.0, 0.5, 2.0, 30.0
_MAX_ATTEMPTS = 3
FIRST_EVENTS = 3
"""The number of events that announce a response. The events of the answer follow them."""
_INTERRUPTED = {"code": "server_error", "message": "The answer was interrupted and cannot be continued."}

_attempts = metrics.counter(
    __name__, "causeway.responses.background", "{attempt}", "Attempts to answer in the background, by end."
)

AnswerJob = Callable[[ResponseJob, ResumePoint, str, Deadline], Awaitable[None]]
Running = Callable[[ResponseJob, Callable[[], object]], AbstractContextManager[None]]


class BackgroundRuns:
    """Takes jobs from the queue and answers them.

    Args:
        jobs: The queue.
        store: Stores the responses.
        log: Stores the events of the responses.
        ending: Ends responses that cannot be answered.
        peers: Generates the names of attempts.
        running: Registers an answer while a block runs, so that clients can cancel the answer.
        answer: Answers a job. It continues after the events that are in the log.
        max_concurrent: Maximum number of concurrent answers.
        timeout: Maximum seconds of an answer.
    """

    def __init__(
        self,
        jobs: ResponseJobs,
        store: ResponseStore,
        log: ResponseLog,
        ending: Ending,
        peers: Peers,
        running: Running,
        answer: AnswerJob,
        *,
        max_concurrent: int,
        timeout: float,
    ) -> None:
        self._jobs, self._store, self._log = jobs, store, log
        self._ending, self._peers = ending, peers
        self._running, self._answer = running, answer
        self._slots, self._timeout = asyncio.Semaphore(max_concurrent), timeout
        self._working: set[asyncio.Task[None]] = set()

    async def work(self, draining: asyncio.Event) -> None:
        """Take jobs until the gateway begins to stop. `close` then returns the running jobs to the queue."""
        while not draining.is_set():
            await self._slots.acquire()
            taken = None
            try:
                taken = await self._jobs.take(_TAKE_SECONDS)
            except CausewayError as error:
                _log.debug("no job can be taken", error=error.message)
                await asyncio.sleep(_RETRY_SECONDS)
            if taken is None:
                self._slots.release()
                continue
            task = asyncio.create_task(self.run_job(taken))
            self._working.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._working.discard(task)
        self._slots.release()

    async def close(self) -> None:
        """Return running jobs to the queue. Another gateway continues them."""
        await cancel_and_wait(*self._working)

    async def run_job(self, taken: TakenJob) -> None:
        """Run one job."""
        job = taken.job
        attempt = asyncio.create_task(self._attempt(job))
        heartbeats = asyncio.create_task(_send_heartbeats(taken))
        end = "again"
        try:
            with self._running(job, attempt.cancel):
                await asyncio.wait((attempt,))
            end = "cancelled" if attempt.cancelled() else "done"
            if not attempt.cancelled() and (error := attempt.exception()) is not None:
                raise error
        except Conflict:
            end = "followed"  # the response was cancelled or deleted, or another gateway answers it
        except CausewayError as error:
            end = "again"
            _log.warning("a response will be retried", response=job.name, error=error.message)
        finally:
            await cancel_and_wait(attempt, heartbeats)
            _attempts.add(1, {"causeway.end": end})
            await (taken.requeue() if end == "again" else taken.done())

    async def _attempt(self, job: ResponseJob) -> None:
        principal, name = job.principal, job.name
        deadline = Deadline.after(max(1.0, self._timeout))
        entries = await self._entries(principal, name, deadline)
        stored = await self._store.read(principal, name, deadline)
        if stored is None or not entries or entries[-1].deleted:
            return
        events = [event for entry in entries for _, event in entry.events()]
        attempts = {entry.writer for entry in entries if runs_job(entry.writer)}
        if not stored.runs or len(attempts) >= _MAX_ATTEMPTS:
            await self._ending.end(principal, name, FAILED, deadline, _INTERRUPTED)
            return
        writer, number = self._peers.writer(background=True), len(events)
        fence = Entry(writer, number, number - 1)
        position = await self._log.append(principal, name, fence, entries[-1].position, deadline)
        if stored.status != IN_PROGRESS:
            begun = {**stored.object, "status": IN_PROGRESS}
            stored = await self._store.replace(principal, replace(stored, object=begun), deadline)
            if stored is None:
                raise Conflict("Another gateway ended the response, or it was cancelled.", resource=name)
        try:
            await self._answer(job, ResumePoint(position, events, stored.revision), writer, deadline)
        except (Conflict, Unavailable):
            raise
        except CausewayError as error:
            failure = (
                _INTERRUPTED if isinstance(error, BrokenOff) else {"code": "server_error", "message": error.message}
            )
            await self._ending.end(principal, name, FAILED, Deadline.after(_END_SECONDS), failure)

    async def _entries(self, principal: Principal, name: str, deadline: Deadline) -> Sequence[Entry]:
        """Return the entries of a log. On the first attempt the log has only the entry of `Acceptance`."""
        last = await self._log.last(principal, name, deadline)
        if last is not None and last.writer == QUEUE:
            return [last]
        return await self._ending.read_entries(principal, name, deadline)


async def _send_heartbeats(taken: TakenJob) -> None:
    while True:
        await asyncio.sleep(_HEARTBEAT_SECONDS)
        try:
            await taken.send_heartbeat()
        except Exception as error:  # the NATS client raises many classes when NATS is unavailable
            _log.debug("the heartbeat of a job was not sent", error=str(error))
