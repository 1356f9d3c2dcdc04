"""Runs jobs with texts: each text becomes a document of the index. Only source code is parsed."""

import asyncio
import hashlib
from collections.abc import Iterator
from pathlib import Path

from servicekit.errors import NotFound, PayloadTooLarge, StaleGeneration, UnreadableDocument

from ingest.documents.embedding_models import IndexingModel, IndexingModels
from ingest.documents.index_writer import Done, EarlierJobsEnded, IndexWriter
from ingest.documents.originals import temporary_copy
from ingest.documents.report import Report
from ingest.documents.source_code import text_sections
from ingest.domain import Chunk, Document, Outcome, Progress, State, Text, TextsJob
from ingest.ports import Index, Originals, Parser, TextReader

_CONCURRENT = 4
"""Number of documents that are stored concurrently, so that some are embedded while the index writes others."""
_CONTENT_TYPE = "text/plain"
_SOURCE_TYPE = "text/x-source; suffix="


class TextIngestion:
    """Makes texts searchable.

    Args:
        originals: The store of the jobs' objects.
        reader: Reads the texts of an object.
        models: Split text into chunks and embed them, as the index requires.
        writer: Writes chunks to the index.
        index: The index.
        parser: Parses source code.
        max_characters: Maximum number of characters of a text.
        max_chunks: Maximum number of chunks of a text.
    """

    def __init__(
        self,
        originals: Originals,
        reader: TextReader,
        models: IndexingModels,
        writer: IndexWriter,
        index: Index,
        parser: Parser,
        *,
        max_characters: int,
        max_chunks: int,
    ) -> None:
        self._originals = originals
        self._reader = reader
        self._models = models
        self._writer = writer
        self._index = index
        self._parser = parser
        self._max_characters = max_characters
        self._max_chunks = max_chunks

    async def run(self, job: TextsJob, report: Report, earlier_jobs_ended: EarlierJobsEnded) -> tuple[Outcome, ...]:
        """Ingest the job's texts and return the outcome of each text, in order.

        A repeated run changes nothing. If one text exceeds a limit, no text is stored. For ``earlier_jobs_ended``
        see `Ingestion.run`.

        Raises:
            UnreadableDocument, PayloadTooLarge: A text cannot be stored.
            NotFound: The texts are missing.
            Conflict: The index has vectors of an embedding model that is not configured.
            Unavailable, DeadlineExceeded: A dependency does not answer.
            ParserDefect: The parser has a defect.
            OwnershipLost: Another worker runs the job, or the job has ended.
        """
        async with temporary_copy(self._originals, job.object_name, job.size_bytes, job.sha256) as path:
            model = await self._models.for_job(job)
            await asyncio.to_thread(self._check, job, model, path)
            await report.record_progress(Progress(documents_total=job.count), State.INDEXING)
            return await self._store_all(job, model, self._reader.read(path), report, earlier_jobs_ended)

    def _check(self, job: TextsJob, model: IndexingModel, path: Path) -> None:
        """Check the number and the limits of the texts, before a text is stored.

        Raises:
            UnreadableDocument: The object does not contain the job's texts, or a long text is blank.
            PayloadTooLarge: A text has too many characters or chunks.
        """
        count = 0
        for text in self._reader.read(path):
            count += 1
            if len(text.text) > self._max_characters:
                raise PayloadTooLarge(
                    f"Document {text.document_id!r} has more than {self._max_characters} characters."
                )
            if len(text.text) > self._max_chunks:  # a shorter text cannot have too many chunks
                self._writer.limited(model.chunker.text_chunks(text.text))
        if count != job.count:
            raise UnreadableDocument(f"The job should have {job.count} documents, but has {count}.")

    async def _store_all(
        self,
        job: TextsJob,
        model: IndexingModel,
        texts: Iterator[Text],
        report: Report,
        earlier_jobs_ended: EarlierJobsEnded,
    ) -> tuple[Outcome, ...]:
        outcomes = [Outcome.UNCHANGED] * job.count
        numbered = enumerate(texts)
        documents = chunks = 0

        async def done(count: int) -> None:
            nonlocal chunks
            chunks += count
            await report.record_progress(
                Progress(chunks_done=chunks, documents_done=documents, documents_total=job.count)
            )

        async def work() -> None:
            nonlocal documents
            for number, text in numbered:
                outcomes[number] = await self._store(job, model, text, report, done, earlier_jobs_ended)
                documents += 1
                await done(0)

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(_CONCURRENT, job.count)):
                    tasks.create_task(work())
        except ExceptionGroup as group:
            raise group.exceptions[0] from group
        await done(0)
        return tuple(outcomes)

    async def _store(
        self,
        job: TextsJob,
        model: IndexingModel,
        text: Text,
        report: Report,
        done: Done,
        earlier_jobs_ended: EarlierJobsEnded,
    ) -> Outcome:
        document = _document(job, text)
        existing = await self._index.find(job, text.document_id)
        if existing is not None and existing.generation == job.generation:
            return Outcome.STORED  # by a previous attempt
        if existing is not None and await self._writer.has(job, document, existing, earlier_jobs_ended):
            return Outcome.UNCHANGED
        try:
            if existing is not None and _has_same_chunks(existing, document):
                try:
                    await report.commit()
                    return Outcome.STORED if await self._index.update(job, document) else Outcome.UNCHANGED
                except NotFound:
                    existing = None  # the document was just removed
            if existing is None and job.existing_only:
                return Outcome.NOT_FOUND
            chunks = await self._chunks(model, text)
            await self._writer.store(job, document, model, chunks, report.commit, done)
        except StaleGeneration:
            return Outcome.SUPERSEDED
        return Outcome.STORED

    async def _chunks(self, model: IndexingModel, text: Text) -> list[Chunk]:
        chunker = model.chunker
        if text.suffix:
            sections = await text_sections(text.text, text.suffix, self._parser)
            chunks = await asyncio.to_thread(list, chunker.text_chunks(text.text, sections))
            if len(chunks) <= self._max_chunks:
                return chunks
        return await asyncio.to_thread(list, chunker.text_chunks(text.text))  # `_check` has limited their number


def _has_same_chunks(existing: Document, document: Document) -> bool:
    return existing.has_same_content_as(document) and existing.content_type == document.content_type


def _document(job: TextsJob, text: Text) -> Document:
    raw = text.text.encode()
    return Document(
        document_id=text.document_id,
        sourcefile=text.document_id,
        sha256=hashlib.sha256(raw).hexdigest(),
        size_bytes=len(raw),
        metadata_json=text.metadata_json,
        generation=job.generation,
        content_type=f"{_SOURCE_TYPE}{text.suffix}" if text.suffix else _CONTENT_TYPE,
    )
