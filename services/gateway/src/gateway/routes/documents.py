"""Documents in, and how far they are."""

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, File, Form, Request, Response, UploadFile
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest

from gateway.domain import Job, Upload
from gateway.ports import Ingest

_LONGEST_NAME = 512


def router(ingest: Ingest, *, timeout: float) -> APIRouter:
    """``POST /documents`` and ``GET /jobs/{id}``.

    Args:
        ingest: Takes the documents.
        timeout: Seconds that handing over an upload may take.
    """
    routes = APIRouter(tags=["documents"])

    @routes.post("/documents", status_code=202, summary="Upload files to be indexed")
    async def upload_documents(
        request: Request,
        index: Annotated[str, Form(description="Index to write to; made where it does not exist")],
        file: Annotated[list[UploadFile], File(description="One or more files")],
        category: Annotated[str, Form(description="A category that questions can be narrowed to")] = "",
        metadata: Annotated[str, Form(description="A JSON object kept with each document")] = "{}",
        oids: Annotated[list[str] | None, Form(description="Users who may see the documents")] = None,
        groups: Annotated[list[str] | None, Form(description="Groups who may see the documents")] = None,
    ) -> Response:
        """Stores the files and queues a job for each. Nothing is accepted unless every file can be."""
        keys.index_name(index)
        raw_metadata = _metadata(metadata)
        uploads = [
            Upload(
                index=index,
                sourcefile=_name(each),
                content=await each.read(),
                category=category,
                metadata_json=raw_metadata,
                oids=tuple(oids or ()),
                groups=tuple(groups or ()),
            )
            for each in file
        ]
        for upload in uploads:
            if not upload.content:
                raise InvalidRequest(f"The file {upload.sourcefile!r} is empty.", field="file")
        deadline = Deadline.after(timeout)
        principal = request.scope["state"]["principal"]
        jobs = [await ingest.submit(principal, upload, deadline) for upload in uploads]
        return _json({"jobs": [job_json(job) for job in jobs]}, 202)

    @routes.get("/jobs/{job_id}", summary="How far a job is")
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


def _name(file: UploadFile) -> str:
    name = file.filename or ""
    if not name.strip() or len(name) > _LONGEST_NAME:
        raise InvalidRequest(f"A file needs a name of 1 to {_LONGEST_NAME} characters.", field="file")
    return name


def _metadata(text: str) -> bytes:
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InvalidRequest("metadata must be a JSON object.", field="metadata") from None
    return text.encode()


def _json(value: Any, status: int) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")
