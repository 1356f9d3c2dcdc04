"""Routes that list, show, cancel and replay jobs."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest

from gateway.domain.documents import ENDED, Job, JobWarning
from gateway.ports.documents import Ingest
from gateway.ports.jobs import DeadLetter, JobChange, Jobs
from gateway.routes.body import json_body, json_response
from gateway.routes.draining import until_draining
from gateway.routes.schemas import openapi_body, openapi_responses
from gateway.routes.schemas_jobs import DEAD_PAGE, JOB, JOB_PAGE, LANES, REPLAY, REPLAYED
from gateway.server.request_state import state_of

_MAX_JOBS = 1000
_MAX_IDS = 10_000
_UNAVAILABLE = {503: "The queue is unavailable; see Retry-After"}
_UNKNOWN = {404: "No such job"} | _UNAVAILABLE
_STREAM = "text/event-stream"
_STREAM_SECONDS = 300.0
"""The maximum duration of a stream of events. Clients then open a new stream."""
# Browsers reconnect after one second. The default of most browsers is three seconds.
_RECONNECT = b"event: reconnect\nretry: 1000\ndata: {}\n\n"

State = Literal["", "queued", "parsing", "indexing", "succeeded", "unchanged", "failed", "cancelled"]
_Count = Annotated[int, Query(ge=1, le=_MAX_JOBS, description="Maximum number of entries of the page")]
_Token = Annotated[str, Query(max_length=20, description="`next_page_token` of the previous page")]


class _Ids(msgspec.Struct, forbid_unknown_fields=True):
    """The jobs to replay."""

    job_ids: list[str] | None = None
    all: bool = False


def router(ingest: Ingest, jobs: Jobs, draining: asyncio.Event, *, timeout: float) -> APIRouter:
    """Return the routes of ``/jobs``.

    Args:
        ingest: Returns the state of a job.
        jobs: Manages the jobs.
        draining: Set when the gateway begins to stop. Streams of events then end.
        timeout: The time limit of a request, in seconds.
    """
    routes = APIRouter(tags=["documents"])

    @routes.get(
        "/jobs",
        summary="The jobs, most recently changed first",
        responses=openapi_responses(JOB_PAGE, _UNAVAILABLE),
    )
    async def list_jobs(
        request: Request,
        index: Annotated[str, Query(description="Only jobs that write to this index")] = "",
        state: Annotated[State, Query(description="Only jobs in this state")] = "",
        limit: _Count = 50,
        page_token: _Token = "",
    ) -> Response:
        """Return a page, which may be shorter than `limit`. `next_page_token` requests the next page."""
        if index:
            keys.index_name(index)
        page = await jobs.page(
            state_of(request.scope).principal,
            index=index,
            state=state,
            count=limit,
            token=page_token,
            deadline=Deadline.after(timeout),
        )
        return json_response(
            {"jobs": [job_json(job) for job in page.jobs], "next_page_token": page.next_token or None}
        )

    # These routes come before those of one job. The id of a job is never "lanes" or "dead".
    @routes.get(
        "/jobs/lanes", summary="The load of the queue's lanes", responses=openapi_responses(LANES, _UNAVAILABLE)
    )
    async def list_lanes(request: Request) -> Response:
        """Return the lanes. A job waits in the first lane in which its tenant has a free place.

        `jobs` counts the tenant's waiting and running jobs. `places` is null for the last lane, which accepts all
        remaining jobs.
        """
        lanes = await jobs.lanes(state_of(request.scope).principal, Deadline.after(timeout))
        listed = [
            {"lane": number, "jobs": lane.jobs, "places": lane.places} for number, lane in enumerate(lanes, 1)
        ]
        return json_response({"lanes": listed})

    @routes.get(
        "/jobs/dead",
        summary="List the jobs that were given up",
        responses=openapi_responses(DEAD_PAGE, _UNAVAILABLE),
    )
    async def list_dead(request: Request, limit: _Count = 50, page_token: _Token = "") -> Response:
        """Return the jobs that failed repeatedly for reasons other than their documents, newest first.

        A job is stored until it is replayed. If the storage is full, the oldest jobs are dropped.
        """
        deadline = Deadline.after(timeout)
        page = await jobs.dead_letters(
            state_of(request.scope).principal, count=limit, token=page_token, deadline=deadline
        )
        listed = [_letter_json(letter) for letter in page.letters]
        return json_response({"jobs": listed, "next_page_token": page.next_token or None})

    @routes.post(
        "/jobs/dead/replay",
        summary="Replay failed jobs",
        responses=openapi_responses(
            REPLAYED, _UNAVAILABLE | {429: "Too many of your jobs wait already; see Retry-After"}
        ),
        openapi_extra=openapi_body(REPLAY),
    )
    async def replay(request: Request) -> Response:
        """Queue the jobs again under the same ids. They do not replace newer versions of their documents."""
        job_ids = _ids(await json_body(request))
        found = await jobs.replay(state_of(request.scope).principal, job_ids, Deadline.after(timeout))
        return json_response({"replayed": found.replayed, "not_found": found.not_found})

    @routes.get("/jobs/{job_id}", summary="The progress of a job", responses=openapi_responses(JOB, _UNKNOWN))
    async def read_job(request: Request, job_id: str) -> Response:
        """Return the current state of the job."""
        return json_response(
            job_json(await ingest.job(state_of(request.scope).principal, job_id, Deadline.after(timeout)))
        )

    @routes.post(
        "/jobs/{job_id}/cancel",
        summary="Cancel a job",
        responses=openapi_responses(JOB, _UNKNOWN | {409: "The job has ended, or is about to end"}),
    )
    async def cancel_job(request: Request, job_id: str) -> Response:
        """Cancel a waiting or running job. Its document is not added, and an existing version does not change."""
        return json_response(
            job_json(await jobs.cancel(state_of(request.scope).principal, job_id, Deadline.after(timeout)))
        )

    @routes.get(
        "/jobs/{job_id}/events",
        summary="A job's progress as a stream",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "Server-sent events: `progress`, and at the end `end` or `reconnect`",
                "content": {_STREAM: {}},
            },
            204: {"description": "The job has ended, and Last-Event-ID names its last event"},
            **{status: {"description": text} for status, text in _UNKNOWN.items()},
        },
    )
    async def job_events(request: Request, job_id: str) -> Response:
        """Stream the job's changes. Each event contains the job as in `GET /jobs/{id}`.

        The stream ends with the job. After a time limit, or when the server stops, it ends with the event
        `reconnect`. A client that reconnects with `Last-Event-ID` first gets the current state
        of the job, if it has changed since this event.
        """
        changes = jobs.watch(
            state_of(request.scope).principal, job_id, _revision(request.headers.get("last-event-id", ""))
        )
        first = await anext(changes, _END)
        if first is _END:
            return Response(status_code=204)
        return StreamingResponse(
            _events(first, changes, draining, time.monotonic() + _STREAM_SECONDS),
            media_type=_STREAM,
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    return routes


_END: Any = object()


def job_json(job: Job) -> dict[str, Any]:
    """Return a job in the clients' format."""
    error = {"reason": job.error_reason, "message": job.error_message} if job.error_reason else None
    return {
        "id": job.id,
        "state": job.state,
        "stage": job.stage,
        "percent": job.percent,
        "index": job.index,
        "document_id": job.document_id,
        "sourcefile": job.sourcefile,
        "progress": dict(job.progress),
        "error": error,
        "warnings": [_warning_json(warning) for warning in job.warnings],
        "warning_count": job.warning_count,
        "waiting_since": job.waiting_since or None,
        "given_up": job.given_up,
        "attempt": job.attempt,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "trace_id": job.trace_id,
    }


def _warning_json(warning: JobWarning) -> dict[str, Any]:
    return {
        "reason": warning.reason,
        "message": warning.message,
        "page": warning.page or None,
        "part": warning.part or None,
    }


def _letter_json(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.job_id,
        "index": letter.index,
        "document_id": letter.document_id,
        "sourcefile": letter.sourcefile,
        "error": {"reason": letter.reason, "message": letter.message},
        "attempt": letter.attempts,
        "died_at": letter.died_at,
    }


async def _events(
    first: JobChange | None,
    changes: AsyncGenerator[JobChange | None, None],
    draining: asyncio.Event,
    until: float,
) -> AsyncIterator[bytes]:
    """Yield server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).

    Args:
        first: The first change; None: a heartbeat.
        changes: The later changes.
        draining: Set when the gateway begins to stop.
        until: The end of the stream, as a time of `time.monotonic`.
    """
    change = first
    async with contextlib.aclosing(changes), contextlib.aclosing(until_draining(draining, changes)) as following:
        yield _event(first)
        async for change in following:
            yield _event(change)
            if time.monotonic() > until:
                break
    if change is None or change.job.state not in ENDED:
        yield _RECONNECT


def _event(change: JobChange | None) -> bytes:
    if change is None:
        return b": heartbeat\n\n"
    name = b"end" if change.job.state in ENDED else b"progress"
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name, change.revision, msgspec.json.encode(job_json(change.job)))


def _revision(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def _ids(raw: bytes) -> list[str] | None:
    try:
        requested = msgspec.json.decode(raw, type=_Ids)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The body is invalid: {error}.", field="job_ids") from None
    if requested.all == bool(requested.job_ids):
        raise InvalidRequest("List the jobs in job_ids, or set all to true.", field="job_ids")
    if len(requested.job_ids or ()) > _MAX_IDS:
        raise InvalidRequest(f"A request may name at most {_MAX_IDS} jobs.", field="job_ids")
    return None if requested.all else requested.job_ids
