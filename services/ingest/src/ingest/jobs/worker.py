"""Runs jobs from the queue, and settles each job: done, returned to the queue, or moved to the dead letters.

No accepted job is lost, because a job leaves the queue only after its end is recorded.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import structlog
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, SpanKind, StatusCode
from servicekit import errors, keys, telemetry
from servicekit.errors import (
    CausewayError,
    Conflict,
    DeadlineExceeded,
    Internal,
    InvalidRequest,
    NotFound,
    NotSupported,
    PermissionDenied,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from servicekit.tasks import cancel_and_wait

from ingest.documents.access_changes import EarlierJobsPending
from ingest.documents.ingestion import Ingestion
from ingest.documents.report import OwnershipLost, Report
from ingest.domain import Failure, Outcome, State
from ingest.jobs import metrics
from ingest.ports import Delivery, Index, Jobs, Queue

_tracer = telemetry.tracer(__name__)
_log = structlog.get_logger(__name__)

_PERMANENT = (InvalidRequest, Conflict, NotFound, NotSupported, PermissionDenied, Unauthenticated)
"""Permanent errors: another attempt would fail in the same way."""
_MAX_BACKOFF_SECONDS = 60.0
_INTERRUPTION_SECONDS = 2.0
"""Seconds in which a stopping worker tries to record that a job returns to the queue."""
_CANCEL_SECONDS = _INTERRUPTION_SECONDS + 1
"""Seconds in which a stopping worker returns its jobs to the queue. After that, the worker cancels the tasks again
that suppressed their cancellation (`servicekit.tasks.cancel_and_wait`).
"""
_PROBE_SECONDS = 1.0
"""Seconds between two checks of an unavailable retriever, and between two polls of an unavailable queue."""
_SETTLE_SECONDS = 60.0
"""Seconds for which a worker tries to record the end of a job. After that, the queue delivers the job again."""
_SETTLE_PAUSE = 0.5


class Worker:
    """Runs several jobs concurrently.

    Args:
        queue: The queue of jobs.
        jobs: The store of their states.
        index: The retriever; after a failure, the worker takes no job until the retriever answers.
        ingestion: Runs the jobs.
        slots: Maximum number of concurrent jobs.
        max_attempts: Number of failed attempts after which the worker gives a job up.
        outage_seconds: Seconds that a job waits for an unavailable dependency before the worker gives it up.
        backoff_seconds: Seconds before the second attempt. The delay doubles with each further attempt, up to a
            minute.
        heartbeat_seconds: Seconds between two heartbeats to the queue.
    """

    def __init__(
        self,
        queue: Queue,
        jobs: Jobs,
        index: Index,
        ingestion: Ingestion,
        *,
        slots: int,
        max_attempts: int,
        outage_seconds: float,
        backoff_seconds: float,
        heartbeat_seconds: float,
    ) -> None:
        self._queue = queue
        self._jobs = jobs
        self._index = index
        self._ingestion = ingestion
        self._slots = slots
        self._max_attempts = max_attempts
        self._outage_seconds = outage_seconds
        self._backoff_seconds = backoff_seconds
        self._heartbeat_seconds = heartbeat_seconds
        self._must_probe = True

    async def run(self, stop: asyncio.Event, grace: float) -> None:
        """Run until the event is set. Then wait for running jobs up to ``grace`` seconds and return the rest to the
        queue.
        """
        slots = [asyncio.create_task(self._slot(stop)) for _ in range(self._slots)]
        stopping = asyncio.create_task(stop.wait())
        try:
            # Only a defect of this class ends a slot early.
            await asyncio.wait([*slots, stopping], return_when=asyncio.FIRST_COMPLETED)
            end = asyncio.get_running_loop().time() + grace
            await self._queue.close()
            if stop.is_set():
                await asyncio.wait(slots, timeout=max(0, end - asyncio.get_running_loop().time()))
        finally:
            for task in (*slots, stopping):
                task.cancel()
            await asyncio.wait(slots, timeout=_CANCEL_SECONDS)
            await cancel_and_wait(*slots, stopping)
            results = await asyncio.gather(*slots, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _slot(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self._must_probe and not await self._index_is_ready(stop):
                continue
            try:
                delivery = await self._queue.take()
            except Unavailable as error:
                _log.warning("cannot poll the queue", error=error.message)
                await _wait(stop, _PROBE_SECONDS)
                continue
            if delivery is None:
                continue
            if stop.is_set():
                await self._redeliver(delivery, 0)
            else:
                await self._work(delivery)

    async def _index_is_ready(self, stop: asyncio.Event) -> bool:
        """Check the retriever. While it is unavailable, jobs remain in the queue and no attempt is counted."""
        if await self._index.is_ready():
            self._must_probe = False
            return True
        _log.warning("the retriever does not answer; jobs wait")
        await _wait(stop, _PROBE_SECONDS)
        return False

    async def _work(self, delivery: Delivery) -> None:
        job = delivery.job
        upload = trace.get_current_span(telemetry.extract(delivery.headers)).get_span_context()
        log = _log.bind(job=job.job_id, attempt=delivery.attempt)
        # A new trace: the upload's trace may have ended hours ago, and the job may be delivered again.
        with _tracer.start_as_current_span(
            f"process {keys.INGEST_STREAM}",
            context=Context(),
            kind=SpanKind.CONSUMER,
            links=[Link(upload)] if upload.is_valid else None,
            attributes={
                "messaging.system": "nats",
                "messaging.operation.name": "process",
                "messaging.operation.type": "process",
                "messaging.destination.name": keys.INGEST_STREAM,
                "messaging.message.id": job.job_id,
                "causeway.job_id": job.job_id,
                "causeway.index": job.index,
                "causeway.attempt": delivery.attempt,
            },
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            try:
                async with self._heartbeats(delivery):
                    await self._attempt(delivery, span, log)
            except OwnershipLost as lost:
                log.info("the worker skips the job", reason=str(lost))
                if lost.state is not None:
                    if not lost.given_up:  # a dead letter needs the object of its job
                        await self._remove_object(delivery, lost.state)
                    await self._acknowledge(delivery)
            except Unavailable as error:
                log.warning("cannot settle the job; the queue will deliver the job again", error=error.message)
                await self._redeliver(delivery, self._backoff_seconds)
            except asyncio.CancelledError:
                log.info("job returned to the queue")
                await self._redeliver(delivery, 0)
                raise
            except Exception:  # a defect outside an attempt must not stop the worker
                log.exception("cannot settle the job; the queue will deliver the job again")
                await self._redeliver(delivery, self._redelivery_delay(delivery))

    async def _attempt(self, delivery: Delivery, span: trace.Span, log: structlog.BoundLogger) -> None:
        """Run one attempt and record its end.

        Raises:
            OwnershipLost: Another worker runs the job, or the job has ended.
            Unavailable: The job's state cannot be recorded.
        """
        report = await Report.begin(self._jobs, delivery.job, delivery.attempt)
        if report.counted_attempts > self._max_attempts:
            # The end of the last attempt was not recorded.
            failure = Failure("INTERNAL", "The last attempt had no result, probably because its worker crashed.")
            await self._give_up(delivery, report, failure)
            return
        try:
            result = await self._ingestion.run(delivery.job, report, delivery.earlier_jobs_ended)
        except OwnershipLost:
            raise
        except EarlierJobsPending:
            # Each earlier job ends, so this wait is neither a failure nor an outage, and has no time limit.
            log.info("the job waits for earlier jobs")
            await self._settle(delivery, report.record_wait_for_earlier_jobs)
            await self._redeliver(delivery, self._redelivery_delay(delivery))
            return
        except asyncio.CancelledError:
            with contextlib.suppress(OwnershipLost, Unavailable, TimeoutError):
                async with asyncio.timeout(_INTERRUPTION_SECONDS):
                    await report.record_interruption()
            raise
        except CausewayError as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            failure = Failure(errors.row_of(error).reason, error.message)
            if isinstance(error, _PERMANENT):
                fields = await self._end(delivery, report, State.FAILED, failure)
                log.info("job failed", reason=failure.reason, error=error.message, **fields)
                await self._remove_object(delivery, State.FAILED)
                await self._acknowledge(delivery)
                return
            log.warning("attempt failed", reason=failure.reason, error=error.message, exc_info=error.__cause__)
            outage = await self._is_outage(error)
        except Exception:  # a defect: the job is retried, and the log has the stack trace
            span.set_status(StatusCode.ERROR, "defect")
            log.exception("attempt failed")
            failure, outage = Failure("INTERNAL", Internal.MESSAGE), False
        else:
            log.info("job done", **await self._end(delivery, report, result.state, outcomes=result.outcomes))
            await self._remove_object(delivery, result.state)
            await self._acknowledge(delivery)
            return
        await self._retry_later(delivery, report, failure, outage=outage)

    async def _retry_later(self, delivery: Delivery, report: Report, failure: Failure, *, outage: bool) -> None:
        """Schedule another attempt. After the last attempt, give the job up."""
        self._must_probe = True
        if outage and report.seconds_waited > self._outage_seconds:
            message = f"The job waited {report.seconds_waited:.0f} s without success. {failure.message}"
            await self._give_up(delivery, report, Failure(failure.reason, message))
        elif not outage and report.counted_attempts >= self._max_attempts:
            await self._give_up(delivery, report, failure)
        else:
            await self._settle(
                delivery, lambda: report.record_outage(failure) if outage else report.record_failure(failure)
            )
            await self._redeliver(delivery, self._redelivery_delay(delivery))

    async def _is_outage(self, error: CausewayError) -> bool:
        """Return whether an attempt failed because a dependency is unavailable, not because of the document."""
        if isinstance(error, DeadlineExceeded):
            # If the retriever responds, another attempt would probably time out as well, so this attempt counts.
            return not await self._index.is_ready()
        return isinstance(error, Unavailable | RateLimited)

    def _redelivery_delay(self, delivery: Delivery) -> float:
        return min(self._backoff_seconds * 2.0 ** min(delivery.attempt - 1, 10), _MAX_BACKOFF_SECONDS)

    async def _give_up(self, delivery: Delivery, report: Report, failure: Failure) -> None:
        await delivery.copy_to_dead_letters(failure)
        fields = await self._end(delivery, report, State.FAILED, failure, given_up=True)
        log = _log.bind(job=delivery.job.job_id, attempt=delivery.attempt)
        log.error("job given up", reason=failure.reason, error=failure.message, **fields)
        await self._acknowledge(delivery)

    async def _end(
        self,
        delivery: Delivery,
        report: Report,
        state: State,
        failure: Failure | None = None,
        *,
        outcomes: tuple[Outcome, ...] = (),
        given_up: bool = False,
    ) -> dict[str, Any]:
        """Record the end of a job and then count it. Return the fields of its log line.

        A job whose end cannot be recorded is delivered again, so it is not counted yet.

        Raises:
            OwnershipLost: Another worker has taken the job, or the job has ended.
            Unavailable: The broker was unavailable for `_SETTLE_SECONDS`.
        """
        stage_seconds = report.stage_seconds
        await self._settle(delivery, lambda: report.record_end(state, failure, outcomes, given_up=given_up))
        counted_state = metrics.DEAD if given_up else state.value
        return metrics.record_end(delivery.job, report.latest_progress, stage_seconds, counted_state)

    async def _settle(self, delivery: Delivery, record: Callable[[], Awaitable[None]]) -> None:
        """Record the end of an attempt; retry while the broker is unavailable, because the job must not be lost.

        Raises:
            Unavailable: The broker was unavailable for `_SETTLE_SECONDS`.
        """
        end = asyncio.get_running_loop().time() + _SETTLE_SECONDS
        while True:
            try:
                await record()
                return
            except Unavailable as error:
                if asyncio.get_running_loop().time() > end:
                    raise
                _log.warning("cannot record the end of the job yet", job=delivery.job.job_id, error=error.message)
                await asyncio.sleep(_SETTLE_PAUSE)

    async def _remove_object(self, delivery: Delivery, state: State) -> None:
        try:
            await self._ingestion.remove_unused_object(delivery.job, state)
        except CausewayError as error:  # an unused object is harmless
            _log.warning("cannot remove the job's object", job=delivery.job.job_id, error=error.message)

    async def _acknowledge(self, delivery: Delivery) -> None:
        try:
            await delivery.acknowledge()
        except Unavailable as error:  # the queue redelivers the job, and its record is final
            _log.warning("cannot remove the job from the queue", job=delivery.job.job_id, error=error.message)

    async def _redeliver(self, delivery: Delivery, delay: float) -> None:
        try:
            await delivery.redeliver(delay)
        except Unavailable as error:  # the queue redelivers the job after its time-out
            _log.warning("cannot return the job to the queue", job=delivery.job.job_id, error=error.message)

    @contextlib.asynccontextmanager
    async def _heartbeats(self, delivery: Delivery) -> AsyncIterator[None]:
        """Send heartbeats for the job, so that the queue does not deliver it to another worker."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(self._heartbeat_seconds)
                try:
                    await delivery.extend()
                except Unavailable as error:
                    _log.warning("cannot send a heartbeat", job=delivery.job.job_id, error=error.message)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            await cancel_and_wait(task)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
