"""Routes that add documents to an index, or update them, from texts in the request."""

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import PayloadTooLarge
from servicekit.principal import Principal

from gateway.dialects.ragengine import documents as ragengine
from gateway.domain import ownership
from gateway.domain.documents import Job
from gateway.domain.text_documents import TextDocument, TextOutcome
from gateway.ports.answering import Retriever
from gateway.ports.index_management import Texts
from gateway.routes.body import is_large, json_body, json_response, while_connected
from gateway.routes.draining import unless_draining
from gateway.routes.jobs import job_json
from gateway.routes.schemas import DOCUMENTS, INDEXING, UPDATES, openapi_body, openapi_responses
from gateway.routes.spool import Part, Spool, json_list
from gateway.routes.uploads import UploadSlots
from gateway.server.request_state import state_of

_STATUSES = {
    202: "Accepted, but not completed in time; the response contains the job",
    400: "The request is invalid; no document was accepted",
    413: "There are too many documents, or they are too large; no document was accepted",
    415: "The body is not JSON",
    403: "A document would get another owner",
    429: "Too many large requests are in progress, or too many of your jobs wait; see Retry-After",
    503: "The queue is unavailable, or full; see Retry-After",
}
_GROUPS = {
    "updated_documents": (TextOutcome.STORED, TextOutcome.SUPERSEDED),
    "unchanged_documents": (TextOutcome.UNCHANGED,),
    "not_found_documents": (TextOutcome.NOT_FOUND,),
}


def router(
    texts: Texts,
    retriever: Retriever,
    slots: UploadSlots,
    draining: asyncio.Event,
    *,
    upload_timeout: float,
    index_timeout: float,
    max_characters: int,
) -> APIRouter:
    """Return ``POST /index`` and ``POST /indexes/{index}/documents``.

    Args:
        texts: Accepts the documents.
        retriever: Checks that indexes exist.
        slots: Limits concurrent large requests.
        draining: Set when the gateway begins to stop. A waiting request then returns its job.
        upload_timeout: The maximum number of seconds to accept a request.
        index_timeout: The maximum number of seconds to wait for the job of a request. After that, the response
            contains the unfinished job.
        max_characters: The maximum number of characters of a document's text.
    """
    routes = APIRouter(tags=["documents"])

    async def accept(request: Request, spool: Spool, index: str | None) -> tuple[Principal, Job, list[int]]:
        """Read and queue the documents of a request, and write them to the spool for the response.

        Args:
            request: The request.
            spool: Gets the documents.
            index: The index whose documents the request updates; None: the body names the index.

        Returns:
            The caller, the job, and for each text of the request the number of its document in the spool.
        """
        principal = state_of(request.scope).principal
        deadline = Deadline.after(upload_timeout)
        async with contextlib.AsyncExitStack() as stack:
            if is_large(request):
                await stack.enter_async_context(slots.slot(deadline))
            raw = await json_body(request)
            # Parse in a thread, because ten thousand documents would delay all running answers.
            if index is None:
                name, documents, positions = await asyncio.to_thread(ragengine.index_request, raw)
            else:
                name, documents = index, await asyncio.to_thread(ragengine.updates, raw)
                positions = list(range(len(documents)))
                await retriever.check_indexes(principal, [name], deadline)
            del raw
            _check_lengths(documents, max_characters)
            await asyncio.to_thread(ownership.check, principal, [document.metadata_json for document in documents])
            job = await texts.submit(principal, name, documents, deadline, existing_only=index is not None)
            await asyncio.to_thread(_write_to_spool, spool, documents)
            return principal, job, positions

    async def finish(request: Request, principal: Principal, job: Job) -> Job:
        deadline = Deadline.after(index_timeout)
        finished = while_connected(request.receive, texts.finished(principal, job, deadline))
        return await unless_draining(draining, finished, job)

    @routes.post(
        "/index",
        summary="Add documents to an index, which is created if it does not exist",
        responses=openapi_responses(DOCUMENTS, _STATUSES),
        openapi_extra=openapi_body(INDEXING),
    )
    async def index_documents(request: Request) -> Response:
        """Add documents, each under its `doc_id` or the SHA-256 of its text in hex.

        If a document with the same id and text exists, only its metadata changes. A document with the same id and
        another text is replaced.
        """
        with Spool() as spool:
            principal, job, positions = await accept(request, spool, None)
            job = await finish(request, principal, job)
            if not job.outcomes:
                return _job_response(spool, job)
            return _spooled_response(spool, json_list(positions))

    @routes.post(
        "/indexes/{index}/documents",
        summary="Update documents of an index",
        responses=openapi_responses(
            {"type": "object", "additionalProperties": DOCUMENTS}, _STATUSES | {404: "No such index"}
        ),
        openapi_extra=openapi_body(UPDATES),
    )
    async def update_documents(request: Request, index: str) -> Response:
        """Change text or metadata of existing documents. The response lists unknown ids."""
        with Spool() as spool:
            principal, job, _ = await accept(request, spool, keys.index_name(index))
            job = await finish(request, principal, job)
            if not job.outcomes:
                return _job_response(spool, job)
            return _spooled_response(spool, _grouped(job.outcomes))

    return routes


def _check_lengths(documents: Sequence[TextDocument], max_length: int) -> None:
    """Check the lengths of texts, which a worker would check later.

    Raises:
        PayloadTooLarge: A text has more than ``max_length`` characters.
    """
    for document in documents:
        if len(document.text) > max_length:
            message = f"Document {document.document_id!r} has more than {max_length} characters."
            raise PayloadTooLarge(message, field="documents", resource=document.document_id)


def _write_to_spool(spool: Spool, documents: list[TextDocument]) -> None:
    # In reverse order, because `pop` frees the memory of each document after it is written.
    documents.reverse()
    while documents:
        spool.add(ragengine.document_json(documents.pop()))


def _grouped(outcomes: Sequence[TextOutcome]) -> list[Part]:
    parts: list[Part] = []
    for name, members in _GROUPS.items():
        numbers = [number for number, outcome in enumerate(outcomes) if outcome in members]
        parts += [b"," if parts else b"{", msgspec.json.encode(name), b":", *json_list(numbers)]
    return [*parts, b"}"]


def _spooled_response(spool: Spool, parts: list[Part]) -> Response:
    headers = {"content-length": str(spool.length(parts))}
    return StreamingResponse(spool.send(parts), headers=headers, media_type="application/json")


def _job_response(spool: Spool, job: Job) -> Response:
    spool.close()
    return json_response({"job": job_json(job)}, 202, {"location": f"/jobs/{job.id}"})
