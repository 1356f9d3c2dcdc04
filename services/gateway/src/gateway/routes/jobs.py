"""Jobs: list, progress, cancel, and replay of failed ones."""

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
from gateway.routes.body import json_answer, json_body
from gateway.routes.draining import until_draining
from gateway.routes.schemas import answers, body
from gateway.routes.schemas_jobs import DEAD_PAGE, JOB, JOB_PAGE, LANES, REPLAY, REPLAYED
from gateway.server.request_state import state_of

_MOST_JOBS = 1000
_MOST_IDS = 10_000
_AWAY = {503: "The queue is unavailable; see Retry-After"}
_UNKNOWN = {404: "No such job"} | _AWAY
_STREAM = "text/event-stream"
_STREAM_SECONDS = 300.0
"""The longest time of a stream of events; clients then open another one."""
# Within one second, instead of most browsers' three.
_RECONNECT = b"event: reconnect\nretry: 1000\ndata: {}\n\n"

State = Literal["", "queued", "parsing", "indexing", "succeeded", "unchanged", "failed", "cancelled"]
_Count = Annotated[int, Query(ge=1, le=_MOST_JOBS, description="Maximum number of entries of the page")]
_Token = Annotated[str, Query(max_length=20, description="`next_page_token` of the previous page")]


class _Ids(msgspec.Struct, forbid_unknown_fields=True):
    """The jobs to send again."""

    job_ids: list[str] | None = None
    all: bool = False


def router(ingest: Ingest, jobs: Jobs, draining: asyncio.Event, *, timeout: float) -> APIRouter:
    """Return the routes of ``/jobs``.

    Args:
        ingest: Returns the state of a job.
        jobs: Manages the jobs.
        draining: Set when the gateway begins to stop: streams of events end.
        timeout: The time limit of an answer, in seconds.
    """
    routes = APIRouter(tags=["documents"])

    @routes.get("/jobs", summary="The jobs, most recently changed first", responses=answers(JOB_PAGE, _AWAY))
    async def list_jobs(
        request: Request,
        index: Annotated[str, Query(description="Only jobs that write to this index")] = "",
        state: Annotated[State, Query(description="Only jobs in this state")] = "",
        limit: _Count = 50,
        page_token: _Token = "",
    ) -> Response:
        """Return a page, which may be shorter than `limit`; `next_page_token` gets the next one."""
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
        return json_answer(
            {"jobs": [job_json(job) for job in page.jobs], "next_page_token": page.next_token or None}
        )

    # Before the routes of one job: ids of jobs are not words.
    @routes.get("/jobs/lanes", summary="The load of the queue's lanes", responses=answers(LANES, _AWAY))
    async def list_lanes(request: Request) -> Response:
        """Return the lanes. A job waits in the first lane that has room for its tenant.

        `jobs` counts the tenant's waiting and running jobs; `places` is null for the last lane, which takes all
        others.
        """
        lanes = await jobs.lanes(state_of(request.scope).principal, Deadline.after(timeout))
        listed = [
            {"lane": number, "jobs": each.jobs, "places": each.places} for number, each in enumerate(lanes, 1)
        ]
        return json_answer({"lanes": listed})

    @routes.get("/jobs/dead", summary="List the jobs that failed permanently", responses=answers(DEAD_PAGE, _AWAY))
    async def list_dead(request: Request, limit: _Count = 50, page_token: _Token = "") -> Response:
        """Return the jobs that failed repeatedly without a known fault of their documents, the newest first.

        They are stored until they are sent again.
        """
        deadline = Deadline.after(timeout)
        page = await jobs.dead(state_of(request.scope).principal, count=limit, token=page_token, deadline=deadline)
        listed = [_letter_json(letter) for letter in page.letters]
        return json_answer({"jobs": listed, "next_page_token": page.next_token or None})

    @routes.post(
        "/jobs/dead/replay",
        summary="Send failed jobs again",
        responses=answers(REPLAYED, _AWAY | {429: "Too many of your jobs wait already; see Retry-After"}),
        openapi_extra=body(REPLAY),
    )
    async def replay(request: Request) -> Response:
        """Send them under the same ids: they do not replace newer versions of their documents."""
        job_ids = _ids(await json_body(request))
        found = await jobs.replay(state_of(request.scope).principal, job_ids, Deadline.after(timeout))
        return json_answer({"replayed": found.replayed, "not_found": found.not_found})

    @routes.get("/jobs/{job_id}", summary="The progress of a job", responses=answers(JOB, _UNKNOWN))
    async def read_job(request: Request, job_id: str) -> Response:
        """Return the present state of the job."""
        return json_answer(
            job_json(await ingest.job(state_of(request.scope).principal, job_id, Deadline.after(timeout)))
        )

    @routes.post(
        "/jobs/{job_id}/cancel",
        summary="Cancel a job",
        responses=answers(JOB, _UNKNOWN | {409: "It has ended, or is about to end"}),
    )
    async def cancel_job(request: Request, job_id: str) -> Response:
        """Cancel a waiting or running job: nothing of it can be found, and its document does not change."""
        return json_answer(
            job_json(await jobs.cancel(state_of(request.scope).principal, job_id, Deadline.after(timeout)))
        )

    @routes.get(
        "/jobs/{job_id}/events",
        summary="A job's progress as a stream",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "Server-sent events: `progress`; at the end `end`, or `reconnect` to continue",
                "content": {_STREAM: {}},
            },
            204: {"description": "The job has ended, and Last-Event-ID names its last event"},
            **{status: {"description": text} for status, text in _UNKNOWN.items()},
        },
    )
    async def job_events(request: Request, job_id: str) -> Response:
        """Stream the job's changes; each event holds the job as in `GET /jobs/{id}`.

        The stream ends with the job. After a time limit, or when the server stops, it ends with the event
        `reconnect`. A client that reconnects with `Last-Event-ID` gets the changes since then.
        """
        changes = jobs.watch(
            state_of(request.scope).principal, job_id, _revision(request.headers.get("last-event-id", ""))
        )
        first = await anext(changes, _NOTHING)
        if first is _NOTHING:
            return Response(status_code=204)
        return StreamingResponse(
            _events(first, changes, draining, time.monotonic() + _STREAM_SECONDS),
            media_type=_STREAM,
            headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
        )

    return routes


_NOTHING: Any = object()


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
    """Yield server-sent events, https://html.spec.whatwg.org/multipage/server-sent-events.html"""
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
        return b": still there\n\n"
    name = b"end" if change.job.state in ENDED else b"progress"
    return b"event: %b\nid: %d\ndata: %b\n\n" % (name, change.revision, msgspec.json.encode(job_json(change.job)))


def _revision(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else 0


def _ids(raw: bytes) -> list[str] | None:
    try:
        wanted = msgspec.json.decode(raw, type=_Ids)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"The body is invalid: {error}.", field="job_ids") from None
    if wanted.all == bool(wanted.job_ids):
        raise InvalidRequest("Name the jobs in job_ids, or set all.", field="job_ids")
    if len(wanted.job_ids or ()) > _MOST_IDS:
        raise InvalidRequest(f"A request may name at most {_MOST_IDS} jobs.", field="job_ids")
    return None if wanted.all else wanted.job_ids
