"""One job, from the original to the index. Reads as the walk of a document; knows no broker and no RPC."""

import asyncio
import contextlib
import hashlib
import tempfile
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path

from embedding.port import Embedder
from servicekit.errors import PayloadTooLarge, StaleGeneration, UnreadableDocument

from ingest.chunking import Chunker
from ingest.domain import Chunk, Document, Job, Progress, State
from ingest.parsing.content import Head, Page
from ingest.ports import Batch, Index, Originals, Parser
from ingest.report import Report

_BATCH = 32
"""Chunks that are embedded and handed over together; the contract allows 64."""
_STORE_SECONDS = 60.0
_STORE_SECONDS_A_CHUNK = 0.5


class Ingestion:
    """Makes documents findable.

    Args:
        originals: Where the uploaded bytes are.
        parser: Bytes → text.
        chunker: Text → chunks.
        embedder: Chunks → vectors.
        index: Takes both.
        max_bytes: Larger originals are refused.
        max_chunks: Documents of more chunks are refused.
    """

    def __init__(
        self,
        originals: Originals,
        parser: Parser,
        chunker: Chunker,
        embedder: Embedder,
        index: Index,
        *,
        max_bytes: int,
        max_chunks: int,
    ) -> None:
        self._originals = originals
        self._parser = parser
        self._chunker = chunker
        self._embedder = embedder
        self._index = index
        self._max_bytes = max_bytes
        self._max_chunks = max_chunks

    async def run(self, job: Job, report: Report) -> State:
        """Ingests the job's document; SUCCEEDED, or UNCHANGED where it is there already.

        Running it again changes nothing: chunks and generation follow from the job alone.

        Raises:
            UnreadableDocument, UnsupportedMedia, PayloadTooLarge: The document's own fault.
            StaleGeneration: A newer version of it is there.
            NotFound: The original is gone.
            Unavailable, DeadlineExceeded: Something that is needed does not answer.
            Settled: Somebody else has taken or ended the job.
        """
        there = await self._index.find(job)
        if there is not None:
            if there.generation == job.document.generation:
                return State.SUCCEEDED  # an attempt before this one got as far as that
            if there.says_the_same_as(job.document):
                return State.UNCHANGED
            if there.generation > job.document.generation:
                raise StaleGeneration("A newer version of the document is there already.")
        document, pages = await self._read(job, report)
        chunks = await asyncio.to_thread(self._chunk, pages, job.document.sourcefile)
        del pages
        seconds = _STORE_SECONDS + _STORE_SECONDS_A_CHUNK * len(chunks)
        async with contextlib.aclosing(self._embed(chunks, document, report)) as batches:
            await self._index.store(replace(job, document=document), batches, seconds)
        return State.SUCCEEDED

    async def _read(self, job: Job, report: Report) -> tuple[Document, Sequence[Page]]:
        """The document's text, and what is known of it now."""
        document = job.document
        if document.size_bytes > self._max_bytes:
            raise PayloadTooLarge(
                f"The document has {document.size_bytes} bytes; at most {self._max_bytes} are read."
            )
        with tempfile.TemporaryDirectory(prefix="causeway-ingest-") as scratch:
            path = Path(scratch) / "original"
            await self._originals.fetch(job.object_name, path, document.size_bytes)
            if await asyncio.to_thread(_sha256, path) != document.sha256:
                raise UnreadableDocument("The original is not what was uploaded: its SHA-256 differs.")
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
        chunks: list[Chunk] = []
        for chunk in self._chunker.chunks(pages, sourcefile):
            if len(chunks) == self._max_chunks:
                raise PayloadTooLarge(f"The document has more than the {self._max_chunks} passages that are kept.")
            chunks.append(chunk)
        if not chunks:
            raise UnreadableDocument("The document has no text.")
        return chunks

    async def _embed(
        self, chunks: Sequence[Chunk], document: Document, report: Report
    ) -> AsyncGenerator[Batch, None]:
        """Chunks with their vectors, made when they are asked for."""
        total = Progress(document.page_count, document.page_count, 0, len(chunks))
        await report.progress(total, State.INDEXING)
        for start in range(0, len(chunks), _BATCH):
            some = chunks[start : start + _BATCH]
            vectors = await self._embedder.embed([chunk.indexed_text for chunk in some])
            yield Batch(some, vectors)
            await report.progress(replace(total, chunks_done=start + len(some)))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
