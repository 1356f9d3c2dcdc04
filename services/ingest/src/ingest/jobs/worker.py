"""Takes jobs off the queue and settles each: done, given back, or buried.

Nothing accepted is lost: a job leaves the queue after its end is recorded, not before.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

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
from servicekit.tasks import ended

from ingest.documents.ingestion import Ingestion
from ingest.documents.report import Report, Settled
from ingest.domain import Failure, State
from ingest.jobs import metrics
from ingest.ports import Delivery, Index, Jobs, Queue

_tracer = telemetry.tracer(__name__)
_log = structlog.get_logger(__name__)

_HOPELESS = (InvalidRequest, Conflict, NotFound, NotSupported, PermissionDenied, Unauthenticated)
"""Trying again would end the same way."""
_LONGEST_BACKOFF = 60.0
_GIVE_BACK_SECONDS = 2.0
_LEAVE_SECONDS = _GIVE_BACK_SECONDS + 1
"""How long jobs get to be given back, before those are told again that missed it (`servicekit.tasks.ended`)."""
_PROBE_SECONDS = 1.0
_SETTLE_SECONDS = 60.0
"""How long a finished job's worker tries to say so; after that the job comes again and is found finished."""
_SETTLE_PAUSE = 0.5


class Worker:
    """Works on so many jobs at once.

    Args:
        queue: Where jobs come from.
        jobs: Where their states are recorded.
        index: Asked whether it answers, after a failure, before the next job is taken.
        ingestion: Does the work.
        slots: Jobs at once.
        max_attempts: After so many failed attempts a job is buried.
        patience: Seconds that a job waits for something else that is away, until it is buried.
        backoff: Seconds until the second attempt; doubles with each, up to a minute.
        heartbeat: Seconds between two signs of life to the queue.
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
        patience: float,
        backoff: float,
        heartbeat: float,
    ) -> None:
        self._queue = queue
        self._jobs = jobs
        self._index = index
        self._ingestion = ingestion
        self._slots = slots
        self._max_attempts = max_attempts
        self._patience = patience
        self._backoff = backoff
        self._heartbeat = heartbeat
        self._suspicious = True

    async def run(self, stop: asyncio.Event, grace: float) -> None:
        """Works until the event is set; running jobs then get ``grace`` seconds before they are given back."""
        slots = [asyncio.create_task(self._slot(stop)) for _ in range(self._slots)]
        stopping = asyncio.create_task(stop.wait())
        try:
            # A slot ends before it is told to only by a defect of this class.
            await asyncio.wait([*slots, stopping], return_when=asyncio.FIRST_COMPLETED)
            end = asyncio.get_running_loop().time() + grace
            await self._queue.close()
            if stop.is_set():
                await asyncio.wait(slots, timeout=max(0, end - asyncio.get_running_loop().time()))
        finally:
            for task in (*slots, stopping):
                task.cancel()
            await asyncio.wait(slots, timeout=_LEAVE_SECONDS)
            await ended(*slots, stopping)
            results = await asyncio.gather(*slots, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _slot(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            if self._suspicious and not await self._index_answers(stop):
                continue
            try:
                delivery = await self._queue.take()
            except Unavailable as error:
                _log.warning("queue", error=error.message)
                await _wait(stop, _PROBE_SECONDS)
                continue
            if delivery is None:
                continue
            if stop.is_set():
                await self._give_back(delivery, 0)
            else:
                await self._work(delivery)

    async def _index_answers(self, stop: asyncio.Event) -> bool:
        """While the retriever is away jobs wait in the queue, instead of using up their attempts."""
        if await self._index.answers():
            self._suspicious = False
            return True
        _log.warning("the retriever does not answer; jobs wait")
        await _wait(stop, _PROBE_SECONDS)
        return False

    async def _work(self, delivery: Delivery) -> None:
        job = delivery.job
        upload = trace.get_current_span(telemetry.extract(delivery.headers)).get_span_context()
        log = _log.bind(job=job.job_id, attempt=delivery.attempt)
        # A trace of its own: the upload's may have ended hours ago, and a redelivery is a second walk.
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
                async with self._alive(delivery):
                    await self._attempt(delivery, span, log)
            except Settled as settled:
                log.info("nothing to do", reason=str(settled))
                if settled.state is not None:
                    if settled.state is not State.FAILED:  # else it may be among the dead letters
                        await self._clear(delivery, settled.state)
                    await self._take_off(delivery)
            except Unavailable as error:
                log.warning("job not settled; it comes again", error=error.message)
                await self._give_back(delivery, self._backoff)
            except asyncio.CancelledError:
                log.info("job given back")
                await self._give_back(delivery, 0)
                raise
            except Exception:  # a defect around an attempt must not end the worker
                log.exception("job not settled; it comes again")
                await self._give_back(delivery, self._pause(delivery))

    async def _attempt(self, delivery: Delivery, span: trace.Span, log: structlog.BoundLogger) -> None:
        """One attempt, up to its record.

        Raises:
            Settled: Somebody else has taken or ended the job.
            Unavailable: The job's state cannot be recorded.
        """
        report = await Report.begin(self._jobs, delivery.job, delivery.attempt)
        if report.counted > self._max_attempts:
            # Its workers died of it, one after the other, before they could say so.
            await self._bury(
                delivery, report, Failure("INTERNAL", "The document ended every worker that tried it.")
            )
            return
        try:
            result = await self._ingestion.run(delivery.job, report, delivery.alone)
        except Settled:
            raise
        except asyncio.CancelledError:
            with contextlib.suppress(Settled, Unavailable, TimeoutError):
                async with asyncio.timeout(_GIVE_BACK_SECONDS):
                    await report.give_back()
            raise
        except CausewayError as error:
            span.set_status(StatusCode.ERROR, type(error).__name__)
            failure = Failure(errors.row_of(error).reason, error.message)
            if isinstance(error, _HOPELESS):
                fields = metrics.ended(delivery.job, report, State.FAILED.value)
                log.info("job failed", reason=failure.reason, error=error.message, **fields)
                await self._settle(delivery, lambda: report.end(State.FAILED, failure))
                if not report.committing:
                    await self._clear(delivery, State.FAILED)
                await self._take_off(delivery)
                return
            log.warning("attempt failed", reason=failure.reason, error=error.message, exc_info=error.__cause__)
            outage = await self._is_outage(error)
        except Exception:  # a defect, here or in a library: the job is not lost, the log has the stack
            span.set_status(StatusCode.ERROR, "defect")
            log.exception("attempt failed")
            failure, outage = Failure("INTERNAL", Internal.MESSAGE), False
        else:
            log.info("job done", **metrics.ended(delivery.job, report, result.state.value))
            await self._settle(delivery, lambda: report.end(result.state, None, result.outcomes))
            await self._clear(delivery, result.state)
            await self._take_off(delivery)
            return
        await self._later(delivery, report, failure, outage=outage)

    async def _later(self, delivery: Delivery, report: Report, failure: Failure, *, outage: bool) -> None:
        """Another attempt, unless it was the last one."""
        self._suspicious = True
        if outage and report.waited > self._patience:
            said = f"It waited {report.waited:.0f} s in vain. {failure.message}"
            await self._bury(delivery, report, Failure(failure.reason, said))
        elif not outage and report.counted >= self._max_attempts:
            await self._bury(delivery, report, failure)
        else:
            await self._settle(delivery, lambda: report.wait(failure) if outage else report.fail(failure))
            await self._give_back(delivery, self._pause(delivery))

    async def _is_outage(self, error: CausewayError) -> bool:
        """Whether an attempt failed because something else is away, and not of its document."""
        if isinstance(error, DeadlineExceeded):
            # What takes longer than it may, while everybody answers, does so the next time.
            return not await self._index.answers()
        return isinstance(error, Unavailable | RateLimited)

    def _pause(self, delivery: Delivery) -> float:
        return min(self._backoff * 2.0 ** min(delivery.attempt - 1, 10), _LONGEST_BACKOFF)

    async def _bury(self, delivery: Delivery, report: Report, failure: Failure) -> None:
        fields = metrics.ended(delivery.job, report, metrics.DEAD)
        _log.error("job given up", job=delivery.job.job_id, reason=failure.reason, error=failure.message, **fields)
        await delivery.bury(failure)
        await self._settle(delivery, lambda: report.end(State.FAILED, failure, given_up=True))
        await self._take_off(delivery)

    async def _settle(self, delivery: Delivery, record: Callable[[], Awaitable[None]]) -> None:
        """Records how an attempt ended, however long the broker is away; only then the job leaves this worker."""
        end = asyncio.get_running_loop().time() + _SETTLE_SECONDS
        while True:
            try:
                await record()
                return
            except Unavailable as error:
                if asyncio.get_running_loop().time() > end:
                    raise
                _log.warning("end not recorded yet", job=delivery.job.job_id, error=error.message)
                await asyncio.sleep(_SETTLE_PAUSE)

    async def _clear(self, delivery: Delivery, state: State) -> None:
        try:
            await self._ingestion.clear(delivery.job, state)
        except Unavailable as error:  # it is in nobody's way
            _log.warning("what the job brought is left behind", job=delivery.job.job_id, error=error.message)

    async def _take_off(self, delivery: Delivery) -> None:
        try:
            await delivery.done()
        except Unavailable as error:  # it comes again and is found to be over
            _log.warning("job not taken off the queue", job=delivery.job.job_id, error=error.message)

    async def _give_back(self, delivery: Delivery, delay: float) -> None:
        try:
            await delivery.again(delay)
        except Unavailable as error:  # it comes again by itself
            _log.warning("job not given back", job=delivery.job.job_id, error=error.message)

    @contextlib.asynccontextmanager
    async def _alive(self, delivery: Delivery) -> AsyncIterator[None]:
        """Tells the queue that the job is being worked on, or it would go to another worker."""

        async def beat() -> None:
            while True:
                await asyncio.sleep(self._heartbeat)
                try:
                    await delivery.keep()
                except Unavailable as error:
                    _log.warning("no sign of life sent", job=delivery.job.job_id, error=error.message)

        task = asyncio.create_task(beat())
        try:
            yield
        finally:
            await ended(task)


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stop.wait()
