"""Documents in, and what is there."""

from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, File, Form, Query, Request, Response, UploadFile
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, InvalidRequest, RateLimited, Unavailable, http_status

from gateway.documents import Job, StoredDocument, Upload
from gateway.ports import Catalogue, Ingest
from gateway.protocols import ragengine
from gateway.protocols.problem import problem
from gateway.responses import error_headers
from gateway.routes.jobs import job_json
from gateway.routes.schemas import answers
from gateway.routes.schemas_jobs import DOCUMENT_PAGE
from gateway.routes.uploads import Turns, file_names, multipart

_MOST_DOCUMENTS = 1000


def router(ingest: Ingest, catalogue: Catalogue, turns: Turns, *, timeout: float) -> APIRouter:
    """``/documents``.

    Args:
        ingest: Takes the documents.
        catalogue: Knows those that are there.
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
            429: {"description": "Too many uploads are under way, or too many of your jobs wait; see Retry-After"},
            503: {
                "description": "The queue is away, or full; see Retry-After. Where that happened in the middle, "
                "`jobs` holds those of the files that were accepted"
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
        "/documents", summary="The documents of an index", responses=answers(DOCUMENT_PAGE, {404: "No such index"})
    )
    async def list_documents(
        request: Request,
        index: Annotated[str, Query(description="The index")],
        limit: Annotated[int, Query(ge=1, le=_MOST_DOCUMENTS)] = 100,
        page_token: Annotated[str, Query(max_length=4096, description="`next_page_token` of the page before")] = "",
    ) -> Response:
        """What is known of each, without its text; by id, in pages."""
        keys.index_name(index)
        principal = request.scope["state"]["principal"]
        page = await catalogue.page(principal, index, limit, page_token, Deadline.after(timeout))
        documents = [_document_json(each) for each in page.documents]
        return _json({"documents": documents, "next_page_token": page.next_token or None}, 200)

    return routes


def _document_json(document: StoredDocument) -> dict[str, Any]:
    return {
        "document_id": document.document_id,
        "sourcefile": document.sourcefile,
        "content_type": document.content_type,
        "sha256": document.sha256,
        "size_bytes": document.size_bytes,
        "has_original": bool(document.original),
        "updated_at": datetime.fromtimestamp(document.updated_at, UTC).isoformat().replace("+00:00", "Z"),
    }


def _broken_off(error: CausewayError, jobs: list[Job], names: list[str]) -> Response:
    """The answer where some files are accepted and the others are not: what is accepted cannot be taken back."""
    accepted = f"Of {len(names)} files {len(jobs)} were accepted, not {names[len(jobs)]!r} and what follows it."
    kind = RateLimited if isinstance(error, RateLimited) else Unavailable
    told = kind(f"{error.message} {accepted}", retry_after=error.retry_after)
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
