"""Accepts background responses, and answers the jobs that a gateway takes from the queue."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing
from dataclasses import replace

from servicekit.deadline import Deadline
from servicekit.errors import BrokenOff, CausewayError, Conflict, InvalidRequest, NotFound, Unavailable, http_status
from starlette.types import ASGIApp, Receive, Scope, Send

from gateway.answering.pipeline import Pipeline
from gateway.answering.timeline import Timeline
from gateway.dialects.exchange import ChatRequest
from gateway.dialects.responses.dialect import Responses
from gateway.dialects.responses.exchange import ResponsesExchange
from gateway.domain import Done
from gateway.domain.response_jobs import ResponseJob
from gateway.domain.response_log import Entry
from gateway.domain.responses import QUEUED
from gateway.frontends.profiles import Frontend
from gateway.frontends.snapshot import CurrentFrontends
from gateway.identity.caller import Caller
from gateway.ports.answering import Generator
from gateway.ports.response_jobs import ResponseJobs
from gateway.ports.response_log import ResponseLog
from gateway.ports.responses import ResponseStore
from gateway.response_runs.background import FIRST_EVENTS
from gateway.response_runs.partial import CANCELLED
from gateway.response_runs.peers import QUEUE
from gateway.response_runs.run import ResumePoint
from gateway.routes.response_reading import call_name
from gateway.routes.stored_responses import StoredResponses
from gateway.server.request_state import RequestState, state_of
from gateway.server.running_calls import RunningCalls

_PATH = "/v1/responses"
_READ_SECONDS = 5.0


class Acceptance:
    """Stores accepted responses and puts their jobs on the queue.

    Args:
        jobs: The queue.
        store: Stores the responses.
        log: Stores the events of the responses.
    """

    def __init__(self, jobs: ResponseJobs, store: ResponseStore, log: ResponseLog) -> None:
        self._jobs, self._store, self._log = jobs, store, log

    async def accept(
        self, exchange: ResponsesExchange, request: ChatRequest, state: RequestState, deadline: Deadline
    ) -> bytes:
        """Store a response and its first events, and queue its job. Return the queued state.

        Raises:
            InvalidRequest: The response would not be stored.
            RateLimited: Too many responses of the tenant wait or run.
            PayloadTooLarge: The request is too large for the queue or the store.
            Unavailable: The queue, the store or the log cannot be reached, or is full.
        """
        if not exchange.store:
            raise InvalidRequest(
                "background: only a stored response can run in the background. Set store to true.",
                field="background",
            )
        principal, name = request.principal, exchange.response_id
        stored = exchange.record_begun(request.frontend.name, QUEUED)
        events = exchange.begin().split(b"\n\n")[: FIRST_EVENTS - 1]
        accepted = Entry(QUEUE, 0, len(events) - 1, b"".join(event + b"\n\n" for event in events))
        caller, profile = state.caller, request.frontend.name
        created = int(stored.object["created_at"])
        job = ResponseJob(
            name, created, principal, caller.key_id, profile, request.body, request.headers, caller.key_name
        )
        await self._store.save(principal, stored, deadline)
        try:
            await self._log.append(principal, name, accepted, 0, deadline)
            await self._jobs.submit(job, deadline)
        except CausewayError:
            with contextlib.suppress(CausewayError):  # the client gets the first error
                await self._store.delete(principal, name, Deadline.after(2))
                await self._log.delete(principal, name, Deadline.after(2))
            raise
        state.recorded_later = True
        return exchange.queued()


class BackgroundAnswers:
    """Answers queued responses. Each attempt writes a log line. Only the last attempt records the usage.

    Args:
        dialect: Parses requests.
        pipeline: Answers the requests.
        generator: Counts tokens.
        stored: Reads the responses that requests continue.
        store: Stores the responses.
        profiles: Returns the front end profiles.
        calls: Registers the running answers.
        with_records: Wraps an application in the layers that count tokens and write records.
    """

    def __init__(
        self,
        dialect: Responses,
        pipeline: Pipeline,
        generator: Generator,
        stored: StoredResponses,
        store: ResponseStore,
        profiles: CurrentFrontends,
        calls: RunningCalls,
        with_records: Callable[[ASGIApp], ASGIApp],
    ) -> None:
        self._dialect, self._pipeline, self._generator = dialect, pipeline, generator
        self._stored, self._store, self._profiles, self._calls = stored, store, profiles, calls
        self._with_records = with_records
        self._cancelled: set[str] = set()

    @contextlib.contextmanager
    def running(self, job: ResponseJob, cancel: Callable[[], object]) -> Iterator[None]:
        """Register an answer until the block ends, so that it can be cancelled."""

        def cancelled() -> None:
            self._cancelled.add(job.name)
            cancel()

        try:
            with self._calls.running(call_name(job.principal, job.name), cancelled):
                yield
        finally:
            self._cancelled.discard(job.name)

    async def answer(self, job: ResponseJob, before: ResumePoint, writer: str, deadline: Deadline) -> None:
        """Answer a job and write the events to its log.

        Raises:
            BrokenOff: An earlier attempt wrote a part of the answer, and the model would not repeat the same words.
            NotFound: The front end does not exist any more.
            CausewayError: The attempt failed.
        """
        frontend = self._profiles().named(job.profile) or self._profiles().default
        if frontend.name != job.profile:
            raise NotFound(f"The front end {job.profile!r} does not exist any more.", resource=job.profile)

        async def serve(scope: Scope, _receive: Receive, _send: Send) -> None:
            state = state_of(scope)
            state.recorded_later = True
            try:
                await self._attempt(job, frontend, before, writer, deadline, state)
            except Unavailable:
                raise  # the next attempt records the usage
            except Conflict:
                state.recorded_later = await self._continues_elsewhere(job)
                raise
            except asyncio.CancelledError:
                state.recorded_later = job.name not in self._cancelled
                raise
            except CausewayError as error:
                state.status, state.recorded_later = http_status(error), False
                raise
            state.status, state.recorded_later = 200, False

        scope: Scope = {"type": "http", "method": "POST", "path": _PATH, "headers": [], "http.route": _PATH}
        state = state_of(scope)
        state.frontend = frontend
        state.identify(Caller(job.principal, job.key_id, job.key_name))
        state.log["background"] = 1
        state.log["waited_ms"] = max(0, int((time.time() - job.created) * 1000))
        await self._with_records(serve)(scope, _receive_nothing, _discard)

    async def _attempt(
        self,
        job: ResponseJob,
        frontend: Frontend,
        before: ResumePoint,
        writer: str,
        deadline: Deadline,
        state: RequestState,
    ) -> None:
        request = ChatRequest(job.body, job.principal, frontend, headers=job.headers)
        request = await self._stored.recall(request, deadline)
        known = replace(request.continued, name=job.name, created=job.created)
        exchange = self._dialect.parse(replace(request, continued=known))
        if len(before.events) > FIRST_EVENTS:
            model = exchange.turn.model
            counts = await self._generator.count_tokens(job.principal, model, [], [], deadline)
            if not counts.only_quotes:
                raise BrokenOff("The answer was interrupted and cannot be continued.")
        state.dialect, state.timeline = self._dialect.name, Timeline()
        run = self._stored.run(exchange, job.principal, job.profile, deadline, writer, before)
        assert run is not None
        turn = replace(exchange.turn, unary=False)
        answer = self._pipeline.answer(turn, deadline, state.timeline)
        async with aclosing(run.logged_events(answer)) as written:
            async for _ in written:
                pass
        state.done = run.done or Done(())

    async def _continues_elsewhere(self, job: ResponseJob) -> bool:
        """Return whether another gateway answers the job. False: the response was cancelled or deleted."""
        known = await self._store.read(job.principal, job.name, Deadline.after(_READ_SECONDS))
        return known is not None and known.status != CANCELLED


async def _receive_nothing() -> dict[str, str]:
    return {"type": "http.disconnect"}


async def _discard(_message: object) -> None:
    pass
