"""The routes to upload and list documents."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, File, Form, Query, Request, Response, UploadFile
from servicekit import keys
from servicekit.allowed_urls import AllowedUrls
from servicekit.deadline import Deadline
from servicekit.errors import CausewayError, RateLimited, Unavailable, http_status
from servicekit.principal import Principal

from gateway.dialects.problem import problem
from gateway.domain import ownership
from gateway.domain.documents import Job, Upload
from gateway.ports.documents import Catalogue, Ingest
from gateway.routes.body import json_response
from gateway.routes.jobs import job_json
from gateway.routes.schemas import openapi_responses
from gateway.routes.schemas_jobs import DOCUMENT_PAGE
from gateway.routes.stored_documents import document_json
from gateway.routes.submission import (
    JSON_BODY,
    Submission,
    is_json,
    media_type,
    parse_form,
    parse_json,
    parse_metadata,
)
from gateway.routes.uploads import UploadSlots, check_lengths
from gateway.server.request_state import state_of
from gateway.server.responses import error_headers

_MAX_DOCUMENTS = 1000
_MAX_CONCURRENT = 8
"""Maximum number of documents of one upload that are submitted concurrently."""


def router(
    ingest: Ingest,
    catalogue: Catalogue,
    slots: UploadSlots,
    allowed: AllowedUrls,
    *,
    timeout: float,
    max_characters: int,
) -> APIRouter:
    """Return the routes of ``/documents``.

    Args:
        ingest: Accepts the documents.
        catalogue: Lists the indexed documents.
        slots: Limits concurrent uploads.
        allowed: The hosts from which documents may be fetched.
        timeout: The maximum number of seconds to store an upload and queue its jobs.
        max_characters: The maximum number of characters of a document's text.
    """
    routes = APIRouter(tags=["documents"])

    @routes.post(
        "/documents",
        status_code=202,
        summary="Upload files, or URLs, to be indexed",
        dependencies=[Depends(media_type)],
        responses={
            400: {"description": "A field, a file or a URL is invalid; nothing was accepted"},
            403: {"description": "The host of a URL is not allowed, or a document would get another owner"},
            413: {"description": "The upload is too large"},
            415: {"description": "The body is neither a multipart form nor JSON"},
            429: {
                "description": "Too many uploads are in progress, or too many of your jobs wait; see Retry-After"
            },
            503: {
                "description": "The queue is unavailable, or full; see Retry-After. If only some documents were "
                "accepted, `jobs` contains their jobs"
            },
        },
        openapi_extra={"requestBody": {"required": True, "content": {"application/json": {"schema": JSON_BODY}}}},
    )
    async def upload_documents(
        request: Request,
        index: Annotated[str, Form(description="Index to write to; created if it does not exist")] = "",
        file: Annotated[list[UploadFile] | None, File(description="Files")] = None,
        url: Annotated[list[str] | None, Form(description="URLs of documents to fetch")] = None,
        category: Annotated[str, Form(description="A category by which questions can filter documents")] = "",
        metadata: Annotated[str, Form(description="A JSON object stored with each document")] = "",
        oids: Annotated[list[str] | None, Form(description="Users who may see the documents")] = None,
        groups: Annotated[list[str] | None, Form(description="Groups who may see the documents")] = None,
        pictures: Annotated[
            bool, Form(description="Store pictures of the pages of PDFs, for models that accept pictures")
        ] = False,
    ) -> Response:
        """Store the files, and queue a job for each file and URL. If a file or a URL is invalid, accept none."""
        if is_json(request):
            submission = await parse_json(allowed, request)
        else:
            common = Upload(
                index=index,
                sourcefile="",
                content=b"",
                category=category,
                metadata_json=parse_metadata(metadata),
                oids=tuple(oids or ()),
                groups=tuple(groups or ()),
                pictures=pictures,
            )
            submission = parse_form(allowed, common, file or (), url or ())
        principal = state_of(request.scope).principal
        ownership.check(principal, [upload.metadata_json for upload in submission.uploads])
        deadline = Deadline.after(timeout)
        async with slots.slot(deadline):
            await check_lengths(submission.files, max_characters)
            accepted, error = await _submit_all(ingest, principal, submission, deadline)
        if error is None:
            return json_response({"jobs": [job_json(job) for job in accepted.values()]}, 202)
        if not accepted:
            raise error
        return _partial_response(error, accepted, [upload.sourcefile for upload in submission.uploads])

    @routes.get(
        "/documents",
        summary="The documents of an index",
        responses=openapi_responses(DOCUMENT_PAGE, {404: "No such index"}),
    )
    async def list_documents(
        request: Request,
        index: Annotated[str, Query(description="The index")],
        limit: Annotated[int, Query(ge=1, le=_MAX_DOCUMENTS)] = 100,
        page_token: Annotated[
            str, Query(max_length=4096, description="`next_page_token` of the previous page")
        ] = "",
    ) -> Response:
        """Return a page of the documents in the order of their ids, without their texts."""
        keys.index_name(index)
        principal = state_of(request.scope).principal
        page = await catalogue.page(principal, index, limit, page_token, Deadline.after(timeout))
        documents = [document_json(document) for document in page.documents]
        return json_response({"documents": documents, "next_page_token": page.next_token or None}, 200)

    return routes


async def _submit_all(
    ingest: Ingest, principal: Principal, submission: Submission, deadline: Deadline
) -> tuple[dict[int, Job], CausewayError | None]:
    """Submit the documents. Return the jobs by the positions of their documents, and the error, if any.

    Several documents are submitted concurrently, because each submission waits for disks.
    """
    positions = iter(range(len(submission.uploads)))
    accepted: dict[int, Job] = {}
    failed: list[CausewayError] = []

    async def submit() -> None:
        for position in positions:
            if failed:
                return
            try:
                accepted[position] = await ingest.submit(principal, await submission.read(position), deadline)
            except CausewayError as error:
                failed.append(error)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(_MAX_CONCURRENT, len(submission.uploads))):
            group.create_task(submit())
    return dict(sorted(accepted.items())), failed[0] if failed else None


def _partial_response(error: CausewayError, jobs: Mapping[int, Job], names: Sequence[str]) -> Response:
    """Return the response to a partly accepted upload: the error, and the jobs of the accepted documents."""
    first = next(name for position, name in enumerate(names) if position not in jobs)
    accepted = (
        f"{len(jobs)} of {len(names)} documents were accepted, see jobs. {first!r} is the first document that was "
        "not accepted."
    )
    kind = RateLimited if isinstance(error, RateLimited) else Unavailable
    refusal = kind(f"{error.message} {accepted}", retry_after=error.retry_after)
    body = msgspec.json.decode(problem(refusal)) | {"jobs": [job_json(job) for job in jobs.values()]}
    response = json_response(body, http_status(refusal))
    response.raw_headers += error_headers(refusal)
    return response
