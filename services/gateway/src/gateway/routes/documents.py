"""Documents in, and how far they are."""

import asyncio
import contextlib
import unicodedata
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, File, Form, Request, Response, UploadFile
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, RateLimited, UnsupportedMedia

from gateway.documents import Job, Upload
from gateway.ports import Ingest

_LONGEST_NAME = 512
# Files are in memory while they are handed over; until their turn comes they wait on the disk.
_AT_ONCE = 4


def _multipart(request: Request) -> None:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media != "multipart/form-data":
        raise UnsupportedMedia(f"Content-Type must be multipart/form-data, not {media}.", field="content-type")


def router(ingest: Ingest, *, timeout: float) -> APIRouter:
    """``POST /documents`` and ``GET /jobs/{id}``.

    Args:
        ingest: Takes the documents.
        timeout: Seconds that handing over an upload may take.
    """
    routes = APIRouter(tags=["documents"])
    turns = asyncio.Semaphore(_AT_ONCE)

    @routes.post(
        "/documents",
        status_code=202,
        summary="Upload files to be indexed",
        dependencies=[Depends(_multipart)],
        responses={
            400: {"description": "A field or a file is wrong; nothing was accepted"},
            413: {"description": "The upload is too large"},
            415: {"description": "The body is not a form of several parts"},
            429: {"description": "Too many uploads are under way; see Retry-After"},
            503: {"description": "The queue is away; see Retry-After"},
        },
    )
    async def upload_documents(
        request: Request,
        index: Annotated[str, Form(description="Index to write to; made where it does not exist")],
        file: Annotated[list[UploadFile], File(description="One or more files")],
        category: Annotated[str, Form(description="A category that questions can be narrowed to")] = "",
        metadata: Annotated[str, Form(description="A JSON object kept with each document")] = "",
        oids: Annotated[list[str] | None, Form(description="Users who may see the documents")] = None,
        groups: Annotated[list[str] | None, Form(description="Groups who may see the documents")] = None,
    ) -> Response:
        """Stores the files and queues a job for each. Nothing is accepted unless every file can be."""
        keys.index_name(index)
        raw_metadata = _metadata(metadata)
        names = _names(file)
        deadline = Deadline.after(timeout)
        principal = request.scope["state"]["principal"]
        jobs = []
        async with _turn(turns, deadline):
            for name, each in zip(names, file, strict=True):
                upload = Upload(
                    index=index,
                    sourcefile=name,
                    content=await each.read(),
                    category=category,
                    metadata_json=raw_metadata,
                    oids=tuple(oids or ()),
                    groups=tuple(groups or ()),
                )
                jobs.append(await ingest.submit(principal, upload, deadline))
        return _json({"jobs": [job_json(job) for job in jobs]}, 202)

    @routes.get(
        "/jobs/{job_id}",
        summary="How far a job is",
        responses={404: {"description": "No such job"}, 503: {"description": "The queue is away; see Retry-After"}},
    )
    async def read_job(request: Request, job_id: str) -> Response:
        """The job as it stands now."""
        job = await ingest.job(request.scope["state"]["principal"], job_id, Deadline.after(timeout))
        return _json(job_json(job), 200)

    return routes


def job_json(job: Job) -> dict[str, Any]:
    """A job as clients see it."""
    error = {"reason": job.error_reason, "message": job.error_message} if job.error_reason else None
    return {
        "id": job.id,
        "state": job.state,
        "index": job.index,
        "document_id": job.document_id,
        "sourcefile": job.sourcefile,
        "progress": dict(job.progress),
        "error": error,
        "attempt": job.attempt,
        "created_at": job.created_at,
        "updated_at": job.updated_at,
        "trace_id": job.trace_id,
    }


@contextlib.asynccontextmanager
async def _turn(turns: asyncio.Semaphore, deadline: Deadline) -> AsyncIterator[None]:
    try:
        await asyncio.wait_for(turns.acquire(), deadline.timeout())
    except TimeoutError:
        raise RateLimited("Too many uploads are under way.", retry_after=5) from None
    try:
        yield
    finally:
        turns.release()


def _names(files: list[UploadFile]) -> list[str]:
    """The files' names.

    Raises:
        InvalidRequest: A file is empty, or its name is missing, too long, not printable, or another's.
    """
    names: list[str] = []
    for file in files:
        name = file.filename or ""
        if not name.strip() or len(name) > _LONGEST_NAME or any(map(_breaks_lines, name)):
            said = f"A file needs a name of 1 to {_LONGEST_NAME} characters on one line"
            raise InvalidRequest(f"{said}, not {name[:_LONGEST_NAME]!r}.", field="file")
        if name in names:
            raise InvalidRequest(f"Two files are called {name!r}: one would replace the other.", field="file")
        if not file.size:
            raise InvalidRequest(f"The file {name!r} is empty.", field="file")
        names.append(name)
    return names


def _breaks_lines(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Zl", "Zp")


def _metadata(text: str) -> bytes:
    if not text.strip():
        return b"{}"
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise InvalidRequest("metadata must be a JSON object.", field="metadata") from None
    return text.encode()


def _json(value: Any, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
