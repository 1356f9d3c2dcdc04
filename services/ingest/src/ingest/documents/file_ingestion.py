"""Runs jobs with a file: turns the original into a document of the index."""

import asyncio
import contextlib
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

import msgspec
import structlog
from servicekit import errors, keys
from servicekit.errors import (
    Internal,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    StaleGeneration,
    Unavailable,
    UnreadableDocument,
    UnsupportedMedia,
)

from ingest.documents.downloads import Downloads
from ingest.documents.embedding_models import IndexingModels
from ingest.documents.file_reading import FileReader, MemberFile, Scratch
from ingest.documents.file_report import FileReport
from ingest.documents.index_writer import EarlierJobsEnded, IndexWriter
from ingest.documents.originals import temporary_copy
from ingest.documents.report import OwnershipLost, Report
from ingest.domain import (
    MAIL_ENTRY,
    OCR_ENTRY,
    Document,
    DownloadInfo,
    FileJob,
    IndexProperties,
    JobWarning,
    State,
    with_facts,
)
from ingest.parsing.content import MemberLimits
from ingest.parsing.process import ParserDefect
from ingest.parsing.registry import READABLE
from ingest.ports import Index, Originals, Parser, Pictures

_log = structlog.get_logger(__name__)
_SHORT_TEXT = 1000
"""Maximum code points of a document that is chunked in the event loop, which takes about a millisecond."""


class FileIngestion:
    """Makes files searchable.

    Args:
        originals: The store of the originals.
        downloads: Fetches originals that were not uploaded.
        parser: Extracts text from files.
        models: Split text into chunks and embed them, as the index requires.
        writer: Writes chunks to the index.
        index: The index.
        pictures: The store of the pictures of pages.
        max_bytes: Maximum size of an original, and maximum total size of the files within it.
        max_members: Maximum number of files within a file, at any depth.
    """

    def __init__(
        self,
        originals: Originals,
        downloads: Downloads,
        parser: Parser,
        models: IndexingModels,
        writer: IndexWriter,
        index: Index,
        pictures: Pictures,
        *,
        max_bytes: int,
        max_members: int = 1000,
    ) -> None:
        self._originals = originals
        self._downloads = downloads
        self._reader = FileReader(parser, pictures, max_bytes=max_bytes)
        self._models = models
        self._writer = writer
        self._index = index
        self._pictures = pictures
        self._member_limits = MemberLimits(max_members, max_bytes)

    async def run(self, job: FileJob, report: Report, earlier_jobs_ended: EarlierJobsEnded) -> State:
        """Ingest the job's document; return SUCCEEDED, or UNCHANGED if the index already has it.

        A repeated run changes nothing, because chunks and generation depend only on the job. For
        ``earlier_jobs_ended`` see `Ingestion.run`.

        Raises:
            UnreadableDocument, UnsupportedMedia, PayloadTooLarge: The document cannot be read.
            StaleGeneration: The index has a newer version.
            NotFound: The original is missing.
            PermissionDenied, UpstreamRejected: The document cannot be fetched from its URL.
            Conflict: The index has vectors of an embedding model that is not configured.
            Unavailable, DeadlineExceeded: A dependency does not answer.
            ParserDefect: The parser has a defect.
            OwnershipLost: Another worker runs the job, or the job has ended.
        """
        properties, existing = await self._index.look_up(job, job.document.document_id)
        if existing is not None:
            if existing.generation == job.document.generation:
                # A previous attempt has stored the document.
                await self._remove_unused(job, job.object_name, existing.original)
                return State.SUCCEEDED
            if existing.generation > job.document.generation:
                raise StaleGeneration("The index already has a newer version of the document.")
        if job.url:
            job = await self._downloads.fetch(job, existing, report)
        if existing is not None and existing.original:  # old records do not have the original
            if await self._writer.has(job, job.document, existing, earlier_jobs_ended):
                return State.UNCHANGED
            if existing.has_same_content_as(job.document) and not existing.may_have_members:
                await report.commit()
                with contextlib.suppress(NotFound):  # the document was just removed
                    updated = await self._index.update(job, _with_facts_of(existing, job.document))
                    await self._remove_unused(job, job.object_name, existing.original)
                    return State.SUCCEEDED if updated else State.UNCHANGED
        if job.url and await self._originals.download_info(job.object_name) is None:
            # The server reported no change, so nothing was downloaded, but the document must be read again.
            job = await self._downloads.fetch(job, None, report)
        source = temporary_copy(
            self._originals, job.object_name, job.document.size_bytes, job.document.sha256, content=job.content
        )
        await self._replace(job, FileReport(report, self._member_limits), properties, existing, source, ())
        return State.SUCCEEDED

    async def has_stored(self, job: FileJob) -> bool:
        """Return whether the index has the version of the document that this job has stored.

        Raises:
            Unavailable, DeadlineExceeded: The retriever does not answer.
        """
        existing = await self._index.find(job, job.document.document_id)
        return existing is not None and existing.original == job.object_name

    async def _replace(
        self,
        job: FileJob,
        report: FileReport,
        properties: IndexProperties | None,
        existing: Document | None,
        source: AbstractAsyncContextManager[Path],
        outer: Sequence[str],
    ) -> None:
        """Store the document in place of the existing version; see `_read_and_store`."""
        try:
            await self._read_and_store(job, report, properties, existing, source, outer)
        except (InvalidRequest, OwnershipLost) as error:
            # The document cannot be read, or the job was cancelled, so its pictures are not needed.
            has_ended = error.state is not None if isinstance(error, OwnershipLost) else True
            are_in_use = existing is not None and existing.has_pictures and existing.sha256 == job.document.sha256
            if has_ended and job.document.has_pictures and not are_in_use:
                await self._pictures.remove(job, job.document)
            raise
        if existing is not None:
            await self._remove_unused(job, existing.original, job.object_name)

    async def _read_and_store(
        self,
        job: FileJob,
        report: FileReport,
        properties: IndexProperties | None,
        existing: Document | None,
        source: AbstractAsyncContextManager[Path],
        outer: Sequence[str],
    ) -> None:
        """Read the document and store it in place of an existing version.

        The files within the document are stored before the document itself. If the document is stored, all files
        within it are stored.

        Args:
            job: The job with the document.
            report: The report of the job.
            properties: The properties of the index; None for a new index.
            existing: The existing version.
            source: Opens the file.
            outer: The path of the file within the outermost file, as names; empty for the outermost file itself.
        """
        model = self._models.select(job, properties)
        with Scratch() as scratch:
            content = await self._reader.read(job, report, source, scratch, outer=outer, ocr=model.ocr)
            document = content.document
            all_chunks = model.chunker.chunks(content.pages, job.document.sourcefile)
            is_short = sum(len(section.text) for page in content.pages for section in page.sections) <= _SHORT_TEXT
            chunks = (
                self._writer.limited(all_chunks)
                if is_short
                else await asyncio.to_thread(self._writer.limited, all_chunks)
            )
            members = content.members
            del all_chunks, content
            await report.report_chunks(len(chunks), outermost=not outer)
            member_ids = set()
            for number, member in enumerate(members):
                member_job = _member_job(job, member, number)
                if await self._ingest_member(member_job, report, member, (*outer, member.name)):
                    member_ids.add(member_job.document.document_id)
                await report.report_member()
        if existing is not None and existing.may_have_members:
            await self._remove_members(job, report, member_ids)
        await self._writer.store(job, document, model, chunks, report.commit, report.report_stored)
        pictured_sha256 = document.sha256 if document.has_pictures else ""
        if existing is not None and existing.has_pictures and existing.sha256 != pictured_sha256:
            await self._pictures.remove(job, existing)

    async def _ingest_member(
        self, job: FileJob, report: FileReport, member: MemberFile, outer: Sequence[str]
    ) -> bool:
        """Ingest a file within a file. Return whether it is in the index; if it is unreadable, add a warning."""
        properties, existing = await self._index.look_up(job, job.document.document_id)
        if existing is not None and existing.generation >= job.document.generation:
            return True  # a previous attempt, or a newer version of the outer file, stored the file
        if existing is not None and existing.has_same_content_as(job.document) and not existing.may_have_members:
            await report.commit()
            with contextlib.suppress(NotFound):  # the document was just removed
                await self._index.update(job, _with_facts_of(existing, job.document))
                return True
        await self._originals.put(job.object_name, member.path, DownloadInfo())
        try:
            await self._replace(job, report, properties, existing, contextlib.nullcontext(member.path), outer)
        except (UnreadableDocument, UnsupportedMedia, PayloadTooLarge) as error:
            # Drop the list of readable formats, which would be repeated for each file.
            message = error.message.removesuffix(READABLE).rstrip()
            warning = JobWarning(errors.row_of(error).reason, message, part="/".join(outer))
        except StaleGeneration:  # a newer version of the outer file has stored it
            await self._remove_unused(job, job.object_name, "")
            return True
        except ParserDefect:
            _log.exception("cannot read a file within a file", job=job.job_id)
            warning = JobWarning("INTERNAL", Internal.MESSAGE, part="/".join(outer))
        else:
            return True
        report.warn([warning])
        await self._remove_unused(job, job.object_name, "")
        return False

    async def _remove_members(self, job: FileJob, report: FileReport, member_ids: Collection[str]) -> None:
        """Remove the files within the existing version, except ``member_ids``, the files of the new version."""
        existing = await self._index.members(job, job.document.document_id)
        removed_ids = [
            member.document_id
            for member in existing
            if member.document_id not in member_ids and member.generation < job.document.generation
        ]
        if not removed_ids:
            return
        await report.commit()
        for document in await self._index.remove(job, removed_ids):
            await self._remove_unused(job, document.original, "")
            if document.has_pictures:
                await self._pictures.remove(job, document)

    async def _remove_unused(self, job: FileJob, unused: str, in_use: str) -> None:
        """Remove an original that no version uses any more, unless ``in_use`` is the same original."""
        # The index of a restored snapshot refers to originals of the index from which the snapshot was created.
        if unused == in_use or not keys.is_original_in(job.principal.tenant, job.index, unused):
            return
        try:
            await self._originals.remove(unused)
        except Unavailable as error:  # an unused original is harmless
            _log.warning("cannot remove an unused original", job=job.job_id, name=unused, error=error.message)


def _with_facts_of(existing: Document, document: Document) -> Document:
    """Return the document with the language and the recognised pages of a version with the same content."""
    entries = msgspec.json.decode(existing.metadata_json or b"{}", type=dict[str, msgspec.Raw])
    metadata = document.metadata_json
    if OCR_ENTRY in entries:
        metadata = with_facts(metadata, {OCR_ENTRY: entries[OCR_ENTRY]})
    return replace(document, language=existing.language, metadata_json=metadata)


def _member_job(job: FileJob, member: MemberFile, number: int) -> FileJob:
    """Return the job of a file within the job's file, with the same properties."""
    outer = job.document
    object_name = keys.member_object(job.object_name, number)
    document = replace(
        outer,
        document_id=keys.member_id(outer.document_id, member.name),
        sourcefile=f"{outer.sourcefile}/{member.name}",
        sha256=member.sha256,
        size_bytes=member.size_bytes,
        metadata_json=with_facts(
            outer.metadata_json,
            {keys.PART_OF: outer.sourcefile, keys.PART_OF_ID: outer.document_id},
            without=(MAIL_ENTRY, OCR_ENTRY),
        ),
        original=object_name,
    )
    return replace(job, document=document, object_name=object_name, url="", suffix="", content=b"")
