"""One job with a file, from the original to the index: the walk of a document. Knows no broker and no RPC."""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import replace

from servicekit.errors import NotFound, PayloadTooLarge, StaleGeneration

from ingest.chunking import Chunker
from ingest.domain import Chunk, Document, FileJob, Progress, State
from ingest.fetching import fetched
from ingest.parsing.content import Head, Page
from ingest.ports import Index, Originals, Parser
from ingest.report import Report
from ingest.storing import Storing


class FileIngestion:
    """Makes files findable.

    Args:
        originals: Where the uploaded bytes are.
        parser: Bytes → text.
        chunker: Text → chunks.
        storing: Chunks → the index.
        index: Says what is there.
        max_bytes: Larger originals are refused.
    """

    def __init__(
        self,
        originals: Originals,
        parser: Parser,
        chunker: Chunker,
        storing: Storing,
        index: Index,
        *,
        max_bytes: int,
    ) -> None:
        self._originals = originals
        self._parser = parser
        self._chunker = chunker
        self._storing = storing
        self._index = index
        self._max_bytes = max_bytes

    async def run(self, job: FileJob, report: Report, *, alone: bool = False) -> State:
        """Ingests the job's document; SUCCEEDED, or UNCHANGED where it is there already.

        Running it again changes nothing: chunks and generation follow from the job only. For ``alone`` see
        `Ingestion.run`.

        Raises:
            UnreadableDocument, UnsupportedMedia, PayloadTooLarge: The document's own fault.
            StaleGeneration: A newer version of it is there.
            NotFound: The original is gone.
            Unavailable, DeadlineExceeded: Something that is needed does not answer.
            Settled: Somebody else has taken or ended the job.
        """
        there = await self._index.find(job, job.document.document_id)
        if there is not None:
            if there.generation == job.document.generation:
                return State.SUCCEEDED  # an attempt before this one got as far as that
            if there.generation > job.document.generation:
                raise StaleGeneration("A newer version of the document is there already.")
            if alone and there.says_the_same_as(job.document):
                return State.UNCHANGED
            if there.reads_as(job.document):
                with contextlib.suppress(NotFound):  # it has just been removed
                    updated = await self._index.update(job, replace(job.document, language=there.language))
                    return State.SUCCEEDED if updated else State.UNCHANGED
        document, pages = await self._read(job, report)
        chunks = await asyncio.to_thread(self._chunk, pages, job.document.sourcefile)
        del pages
        total = Progress(document.page_count, document.page_count, 0, len(chunks))
        await report.progress(total, State.INDEXING)

        chunks_done = 0

        async def done(count: int) -> None:
            nonlocal chunks_done
            chunks_done += count
            await report.progress(replace(total, chunks_done=chunks_done))

        await self._storing.store(job, document, chunks, done)
        return State.SUCCEEDED

    async def _read(self, job: FileJob, report: Report) -> tuple[Document, Sequence[Page]]:
        """The document's text, and what is known of it now."""
        document = job.document
        if document.size_bytes > self._max_bytes:
            raise PayloadTooLarge(
                f"The document has {document.size_bytes} bytes; at most {self._max_bytes} are read."
            )
        async with fetched(self._originals, job.object_name, document.size_bytes, document.sha256) as path:
            pages: list[Page] = []
            async with contextlib.aclosing(self._parser.parse(path, document.sourcefile)) as parts:
                async for part in parts:
                    if isinstance(part, Head):
                        document = replace(
                            document,
                            content_type=part.content_type,
                            page_count=part.page_count,
                            language=part.language,
                        )
                    else:
                        pages.append(part)
                    total = document.page_count
                    await report.progress(Progress(pages_done=min(len(pages), total), pages_total=total))
        return document, pages

    def _chunk(self, pages: Sequence[Page], sourcefile: str) -> list[Chunk]:
        return self._storing.limited(self._chunker.chunks(pages, sourcefile))
