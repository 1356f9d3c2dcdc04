"""Reads a file into its pages and the files within it."""

import asyncio
import contextlib
import hashlib
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from servicekit import errors
from servicekit.errors import PayloadTooLarge

from ingest.documents.file_report import FileReport
from ingest.documents.originals import full_disk_is_unavailable, verified
from ingest.domain import MAIL_ENTRY, OCR_ENTRY, Document, FileJob, JobWarning, with_facts
from ingest.parsing.content import NO_MEMBERS, Head, Member, MemberLimits, Omission, Page, Part
from ingest.parsing.process import refusal
from ingest.ports import Parser, Pictures

_MAX_RECOGNISED_PAGES = 1000
"""Maximum number of pages with recognised text in a document's metadata."""
_MAX_DEPTH = 3
"""Maximum depth of files within files. Deeper files are not unpacked."""


@dataclass(frozen=True, slots=True)
class MemberFile:
    """An unpacked file within a file.

    Attributes:
        name: The path within the outer file.
        path: The path on the disk.
        sha256: SHA-256 of the content, lower-case hex.
        size_bytes: Length of the content.
    """

    name: str
    path: Path
    sha256: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class FileContent:
    """The content of a file: the document with the properties of the file, the pages, and the files within it."""

    document: Document
    pages: Sequence[Page]
    members: Sequence[MemberFile]


class Scratch:
    """A temporary directory for the files within a file, created on first use: most files have none."""

    def __init__(self) -> None:
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            self._directory.cleanup()

    def path(self, name: str) -> Path:
        """Return the path of a file in the directory."""
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="causeway-ingest-", ignore_cleanup_errors=True)
        return Path(self._directory.name) / name


class FileReader:
    """Parses files.

    Args:
        parser: Extracts text from files.
        pictures: The store of the pictures of pages.
        max_bytes: Maximum size of a file in bytes.
    """

    def __init__(self, parser: Parser, pictures: Pictures, *, max_bytes: int) -> None:
        self._parser = parser
        self._pictures = pictures
        self._max_bytes = max_bytes

    async def read(
        self,
        job: FileJob,
        report: FileReport,
        source: AbstractAsyncContextManager[Path],
        scratch: Scratch,
        *,
        outer: Sequence[str],
        ocr: bool = True,
    ) -> FileContent:
        """Read the job's document.

        Args:
            job: The job with the document.
            report: Receives the progress in pages, and the warnings.
            source: Opens the file.
            scratch: The directory for the files within it.
            outer: The path of the file within the outermost file, as names; empty for the outermost file itself.
            ocr: Whether text in images is recognised.

        Raises:
            UnreadableDocument, UnsupportedMedia, PayloadTooLarge: The document cannot be read.
            Unavailable: A store or a child process does not answer, or the disk is full.
            ParserDefect: The parser has a defect.
            OwnershipLost: Another worker runs the job, or the job has ended.
        """
        document = job.document
        if document.size_bytes > self._max_bytes:
            raise PayloadTooLarge(
                f"The document has {document.size_bytes} bytes. The limit is {self._max_bytes} bytes."
            )
        pages: list[Page] = []
        members: list[MemberFile] = []
        wants_pictures, document = document.has_pictures, replace(document, has_pictures=False)
        member_limits = report.remaining if len(outer) < _MAX_DEPTH else NO_MEMBERS
        async with contextlib.aclosing(
            self._parts(job, source, member_limits, pictures=wants_pictures, ocr=ocr)
        ) as parts:
            async for part in parts:
                match part:
                    case Head():
                        document = _with_head(document, part)
                    case Member():
                        members.append(await _saved(part, scratch.path(str(len(members)))))
                        report.count_member(len(part.content))
                    case Omission():
                        report.warn([_warning(part, outer)])
                    case Page():
                        if part.picture:
                            await self._pictures.put(job, document, part.number, part.picture)
                            document = replace(document, has_pictures=True)
                        pages.append(Page(part.number, part.sections, confidence=part.confidence))
                if not outer:
                    total = document.page_count
                    await report.report_pages(min(max((page.number for page in pages), default=0), total), total)
        return FileContent(_recognised(document, pages), pages, members)

    async def _parts(
        self,
        job: FileJob,
        source: AbstractAsyncContextManager[Path],
        members: MemberLimits,
        *,
        pictures: bool,
        ocr: bool,
    ) -> AsyncGenerator[Part, None]:
        """Yield the parts of the job's document. A short plain text is read from the message of the job."""
        name = f"{job.document.sourcefile}{job.suffix}"
        if job.content:
            short = self._parser.read_short(verified(job.content, job.document.sha256), name)
            if short is not None:
                for part in short:
                    yield part
                return
        async with source as path:
            parsed = self._parser.parse(path, name, pictures=pictures, members=members, ocr=ocr)
            async with contextlib.aclosing(parsed) as parts:
                async for part in parts:
                    yield part


def _recognised(document: Document, pages: Sequence[Page]) -> Document:
    """Return the document with the pages that have recognised text, and the confidence of each, in its metadata."""
    found = [{"page": page.number, "confidence": page.confidence} for page in pages if page.confidence is not None]
    if not found:
        return document
    return replace(
        document, metadata_json=with_facts(document.metadata_json, {OCR_ENTRY: found[:_MAX_RECOGNISED_PAGES]})
    )


def _with_head(document: Document, head: Head) -> Document:
    return replace(
        document,
        content_type=head.content_type,
        page_count=head.page_count,
        language=head.language,
        metadata_json=with_facts(document.metadata_json, {MAIL_ENTRY: head.mail})
        if head.mail
        else document.metadata_json,
    )


async def _saved(member: Member, path: Path) -> MemberFile:
    def write() -> str:
        path.write_bytes(member.content)
        return hashlib.sha256(member.content).hexdigest()

    with full_disk_is_unavailable():
        return MemberFile(member.name, path, await asyncio.to_thread(write), len(member.content))


def _warning(omission: Omission, outer: Sequence[str]) -> JobWarning:
    reason = errors.row_of(refusal(omission.kind, omission.message)).reason
    part = "/".join((*outer, omission.part) if omission.part else outer)
    return JobWarning(reason, omission.message, omission.page, part)
