"""Documents that clients send as text: added to an index, or updated in it."""

import asyncio
import contextlib
from collections.abc import Sequence

import msgspec
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse
from servicekit.deadline import Deadline
from servicekit.errors import PayloadTooLarge
from servicekit.principal import Principal

from gateway.dialects.ragengine import documents as ragengine
from gateway.domain import ownership
from gateway.domain.documents import Job
from gateway.domain.text_documents import TextDocument, TextOutcome
from gateway.ports.answering import Retriever
from gateway.ports.index_management import Texts
from gateway.routes.body import is_large, json_answer, json_body, while_connected
from gateway.routes.draining import unless_draining
from gateway.routes.jobs import job_json
from gateway.routes.schemas import DOCUMENTS, INDEXING, UPDATES, answers, body
from gateway.routes.spool import Part, Spool, listed
from gateway.routes.uploads import Turns
from gateway.server.request_state import state_of

_OTHERS = {
    202: "Accepted, but not finished in time; the answer names the job",
    400: "The request is invalid; nothing of it is applied",
    413: "There are too many documents, or they are too large; nothing is applied",
    415: "The body is not JSON",
    403: "A document would have another owner",
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
    turns: Turns,
    draining: asyncio.Event,
    *,
    upload_timeout: float,
    index_timeout: float,
    most_characters: int,
) -> APIRouter:
    """Return ``POST /index`` and ``POST /indexes/{index}/documents``.

    Args:
        texts: Accepts the documents.
        retriever: Checks that indexes exist.
        turns: Limits concurrent large requests.
        draining: Set when the gateway begins to stop: a waiting request then answers with its job.
        upload_timeout: The maximum number of seconds to accept a request.
        index_timeout: The maximum number of seconds to wait for an accepted request; then the answer names the job.
        most_characters: The maximum number of characters of a document's text.
    """
    routes = APIRouter(tags=["documents"])

    async def accept(request: Request, spool: Spool, index: str | None) -> tuple[Principal, Job, list[int]]:
        """Read and queue the whole request; keep its documents for the answer.

        The numbers are those of the stored document of each text of the request.
        """
        principal = state_of(request.scope).principal
        deadline = Deadline.after(upload_timeout)
        async with contextlib.AsyncExitStack() as stack:
            if is_large(request):
                await stack.enter_async_context(turns.turn(deadline))
            raw = await json_body(request)
            # In a thread: ten thousand documents would delay all running answers.
            if index is None:
                name, documents, places = await asyncio.to_thread(ragengine.indexing, raw)
            else:
                name, documents = index, await asyncio.to_thread(ragengine.updates, raw)
                places = list(range(len(documents)))
                await retriever.require(principal, [name], deadline)
            del raw
            _check_lengths(documents, most_characters)
            await asyncio.to_thread(ownership.check, principal, [each.metadata_json for each in documents])
            job = await texts.submit(principal, name, documents, deadline, existing_only=index is not None)
            await asyncio.to_thread(_keep, spool, documents)
            return principal, job, places

    async def finish(request: Request, principal: Principal, job: Job) -> Job:
        deadline = Deadline.after(index_timeout)
        finished = while_connected(request, texts.finished(principal, job, deadline))
        return await unless_draining(draining, finished, job)

    @routes.post(
        "/index",
        summary="Add documents to an index, which is created if it does not exist",
        responses=answers(DOCUMENTS, _OTHERS),
        openapi_extra=body(INDEXING),
    )
    async def index_documents(request: Request) -> Response:
        """Add documents that are sent as text, each under its `doc_id`, or under its text's SHA-256 in hex.

        An existing document with the same text gets the new metadata; one with another text is replaced.
        """
        with Spool() as spool:
            principal, job, places = await accept(request, spool, None)
            job = await finish(request, principal, job)
            if not job.outcomes:
                return _under_way(spool, job)
            return _sent(spool, listed(places))

    @routes.post(
        "/indexes/{index}/documents",
        summary="Update documents of an index",
        responses=answers({"type": "object", "additionalProperties": DOCUMENTS}, _OTHERS | {404: "No such index"}),
        openapi_extra=body(UPDATES),
    )
    async def update_documents(request: Request, index: str) -> Response:
        """Change text or metadata of existing documents; the answer lists unknown ids."""
        with Spool() as spool:
            principal, job, _ = await accept(request, spool, ragengine.index_name(index, "index"))
            job = await finish(request, principal, job)
            if not job.outcomes:
                return _under_way(spool, job)
            return _sent(spool, _grouped(job.outcomes))

    return routes


def _check_lengths(documents: Sequence[TextDocument], most: int) -> None:
    """Refuse texts that a worker would refuse, before any is accepted."""
    for document in documents:
        if len(document.text) > most:
            message = f"Document {document.document_id!r} has more than {most} characters."
            raise PayloadTooLarge(message, field="documents", resource=document.document_id)


def _keep(spool: Spool, documents: list[TextDocument]) -> None:
    # From the end, so that each goes as soon as it is kept.
    documents.reverse()
    while documents:
        spool.add(ragengine.document_json(documents.pop()))


def _grouped(outcomes: Sequence[TextOutcome]) -> list[Part]:
    parts: list[Part] = []
    for name, members in _GROUPS.items():
        numbers = [number for number, outcome in enumerate(outcomes) if outcome in members]
        parts += [b"," if parts else b"{", msgspec.json.encode(name), b":", *listed(numbers)]
    return [*parts, b"}"]


def _sent(spool: Spool, parts: list[Part]) -> Response:
    headers = {"content-length": str(spool.length(parts))}
    return StreamingResponse(spool.send(parts), headers=headers, media_type="application/json")


def _under_way(spool: Spool, job: Job) -> Response:
    spool.close()
    return json_answer({"job": job_json(job)}, 202, {"location": f"/jobs/{job.id}"})
