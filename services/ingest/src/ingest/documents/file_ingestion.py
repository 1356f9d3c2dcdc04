"""One job with a file, from the original to the index: the walk of a document. Knows no broker and no RPC."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

import structlog
from servicekit import errors, keys
from servicekit.errors import InvalidRequest, NotFound, PayloadTooLarge, StaleGeneration, Unavailable

from ingest.documents.downloads import Downloads
from ingest.documents.embedding_models import IndexingModels
from ingest.documents.index_writer import Storing
from ingest.documents.originals import fetched
from ingest.documents.report import Report, Settled
from ingest.domain import Document, FileJob, JobWarning, Progress, State
from ingest.parsing.content import Head, Omission, Page
from ingest.parsing.process import refusal
from ingest.ports import Index, Originals, Parser, Pictures

_log = structlog.get_logger(__name__)


class FileIngestion:
    """Makes files findable.

    Args:
        originals: Where the uploaded bytes are.
        downloads: Brings them there that have not been uploaded.
        parser: Bytes → text.
        models: Text → chunks → vectors, as the index has them.
        storing: Chunks → the index.
        index: Says what is there.
        pictures: Keeps pictures of pages, where they are wanted.
        max_bytes: Larger originals are refused.
    """

    def __init__(
        self,
        originals: Originals,
        downloads: Downloads,
        parser: Parser,
        models: IndexingModels,
        storing: Storing,
        index: Index,
        pictures: Pictures,
        *,
        max_bytes: int,
    ) -> None:
        self._originals = originals
        self._downloads = downloads
        self._parser = parser
        self._models = models
        self._storing = storing
        self._index = index
        self._pictures = pictures
        self._max_bytes = max_bytes

    async def run(self, job: FileJob, report: Report, *, alone: bool = False) -> State:
        """Ingests the job's document; SUCCEEDED, or UNCHANGED where it is there already.

        Running it again changes nothing: chunks and generation follow from the job only. For ``alone`` see
        `Ingestion.run`.

        Raises:
            UnreadableDocument, UnsupportedMedia, PayloadTooLarge: The document's own fault.
            StaleGeneration: A newer version of it is there.
            NotFound: The original is gone.
            PermissionDenied, UpstreamRejected: It cannot be fetched from its URL.
            Conflict: The index has vectors of an embedding model that is not configured.
            Unavailable, DeadlineExceeded: Something that is needed does not answer.
            Settled: Somebody else has taken or ended the job.
        """
        there = await self._index.find(job, job.document.document_id)
        if there is not None:
            if there.generation == job.document.generation:
                # An attempt before this one got as far as that.
                await self._remove_spare(job, job.object_name, there.original)
                return State.SUCCEEDED
            if there.generation > job.document.generation:
                raise StaleGeneration("A newer version of the document is there already.")
        if job.url:
            job = await self._downloads.brought(job, there, report)
        if there is not None:
            if alone and there.says_the_same_as(job.document):
                return State.UNCHANGED
            if there.reads_as(job.document):
                await report.commit()
                with contextlib.suppress(NotFound):  # it has just been removed
                    updated = await self._index.update(job, replace(job.document, language=there.language))
                    await self._remove_spare(job, job.object_name, there.original)
                    return State.SUCCEEDED if updated else State.UNCHANGED
                if job.url:  # its original may be the one that has gone
                    job = await self._downloads.brought(job, None, report)
        try:
            await self._make(job, report, there)
        except (InvalidRequest, Settled) as error:
            # The document's own fault, or somebody cancelled it: nobody will ask for its pages.
            over = error.state is not None if isinstance(error, Settled) else True
            shown = there is not None and there.has_pictures and there.sha256 == job.document.sha256
            if over and job.document.has_pictures and not shown:
                await self._pictures.remove(job, job.document)
            raise
        if there is not None:
            await self._remove_spare(job, there.original, job.object_name)
        return State.SUCCEEDED

    async def _make(self, job: FileJob, report: Report, there: Document | None) -> None:
        """Reads the document and stores it, in the place of a version that is there."""
        model = await self._models.of(job)
        document, pages = await self._read(job, report)
        cut = model.chunker.chunks(pages, job.document.sourcefile)
        chunks = await asyncio.to_thread(self._storing.limited, cut)
        del cut, pages
        total = Progress(document.page_count, document.page_count, 0, len(chunks))
        await report.progress(total, State.INDEXING)

        chunks_done = 0

        async def done(count: int) -> None:
            nonlocal chunks_done
            chunks_done += count
            await report.progress(replace(total, chunks_done=chunks_done))

        await self._storing.store(job, document, model, chunks, report, done)
        shown = document.sha256 if document.has_pictures else ""
        if there is not None and there.has_pictures and there.sha256 != shown:
            await self._pictures.remove(job, there)

    async def _remove_spare(self, job: FileJob, spare: str, kept: str) -> None:
        """Removes an original that no version has any more."""
        # A snapshot that was loaded under another name has originals of the index that it was made of.
        if spare == kept or not keys.is_original_in(job.principal.tenant, job.index, spare):
            return
        try:
            await self._originals.remove(spare)
        except Unavailable as error:  # it is in nobody's way
            _log.warning("an original is left behind", job=job.job_id, name=spare, error=error.message)

    async def _read(self, job: FileJob, report: Report) -> tuple[Document, Sequence[Page]]:
        """The document's text, and what is known of it now."""
        document = job.document
        if document.size_bytes > self._max_bytes:
            raise PayloadTooLarge(
                f"The document has {document.size_bytes} bytes; at most {self._max_bytes} are read."
            )
        async with fetched(self._originals, job.object_name, document.size_bytes, document.sha256) as path:
            pages: list[Page] = []
            warnings: list[JobWarning] = []
            name = f"{document.sourcefile}{job.suffix}"
            parsed = self._parser.parse(path, name, pictures=document.has_pictures)
            document = replace(document, has_pictures=False)
            async with contextlib.aclosing(parsed) as parts:
                async for part in parts:
                    if isinstance(part, Omission):
                        warnings.append(_warning(part))
                    elif isinstance(part, Head):
                        document = replace(
                            document,
                            content_type=part.content_type,
                            page_count=part.page_count,
                            language=part.language,
                        )
                    else:
                        if part.picture:
                            await self._pictures.put(job, document, part.number, part.picture)
                            document = replace(document, has_pictures=True)
                        pages.append(Page(part.number, part.sections))
                    total = document.page_count
                    await report.progress(Progress(pages_done=min(len(pages), total), pages_total=total))
        report.warn(warnings)
        return document, pages


def _warning(omission: Omission) -> JobWarning:
    reason = errors.row_of(refusal(omission.kind, omission.message)).reason
    return JobWarning(reason, omission.message, omission.page, omission.part)
