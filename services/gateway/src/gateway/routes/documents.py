"""Documents in, and how far they are."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, File, Form, Request, Response, UploadFile
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, InvalidRequest, Unavailable, http_status

from gateway.documents import Job, Upload
from gateway.ports import Ingest
from gateway.protocols import ragengine
from gateway.protocols.problem import problem
from gateway.responses import error_headers
from gateway.routes.uploads import Turns, file_names, multipart


def router(ingest: Ingest, turns: Turns, *, timeout: float) -> APIRouter:
    """``POST /documents`` and ``GET /jobs/{id}``.

    Args:
        ingest: Takes the documents.
        turns: How many uploads are handed over at once.
        timeout: Seconds that handing over an upload may take.
    """
    routes = APIRouter(tags=["documents"])

    @routes.post(
        "/documents",
        status_code=202,
        summary="Upload files to be indexed",
        dependencies=[Depends(multipart)],
        responses={
            400: {"description": "A field or a file is wrong; nothing was accepted"},
            413: {"description": "The upload is too large"},
            415: {"description": "The body is not a form of several parts"},
            429: {"description": "Too many uploads are under way; see Retry-After"},
            503: {
                "description": "The queue is away; see Retry-After. Where it went away in the middle, `jobs` holds "
                "those of the files that were accepted"
            },
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
        pictures: Annotated[
            bool, Form(description="Keep pictures of the pages of PDFs, for models that take pictures")
        ] = False,
    ) -> Response:
        """Stores the files and queues a job for each. Nothing is accepted unless every file can be."""
        keys.index_name(index)
        raw_metadata = _metadata(metadata)
        names = file_names(file)
        deadline = Deadline.after(timeout)
        principal = request.scope["state"]["principal"]
        jobs = []
        async with turns.turn(deadline):
            for name, each in zip(names, file, strict=True):
                upload = Upload(
                    index=index,
                    sourcefile=name,
                    content=await each.read(),
                    category=category,
                    metadata_json=raw_metadata,
                    oids=tuple(oids or ()),
                    groups=tuple(groups or ()),
                    pictures=pictures,
                )
                try:
                    jobs.append(await ingest.submit(principal, upload, deadline))
                except CausewayError as error:
                    if not jobs:
                        raise
                    return _broken_off(error, jobs, names)
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


def _broken_off(error: CausewayError, jobs: list[Job], names: list[str]) -> Response:
    """The answer where some files are accepted and the others are not: what is accepted cannot be taken back."""
    accepted = f"Of {len(names)} files {len(jobs)} were accepted, not {names[len(jobs)]!r} and what follows it."
    told = Unavailable(f"{error.message} {accepted}", retry_after=error.retry_after)
    body = msgspec.json.decode(problem(told)) | {"jobs": [job_json(job) for job in jobs]}
    response = _json(body, http_status(told))
    response.raw_headers += error_headers(told)
    return response


def _metadata(text: str) -> bytes:
    if not text.strip():
        return b"{}"
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        raise InvalidRequest("metadata must be a JSON object.", field="metadata") from None
    return ragengine.metadata(msgspec.Raw(text.encode()), "metadata")


def _json(value: Any, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
