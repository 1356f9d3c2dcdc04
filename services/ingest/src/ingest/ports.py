"""The ports of the job logic. `adapters`, `ocr`, `parsing` and `web` implement them.

`causeway_testing.ingest` has their fakes.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ingest.domain import (
    Chunk,
    Document,
    DownloadInfo,
    Failure,
    IndexProperties,
    Job,
    Status,
    Text,
    Validators,
    VectorSpace,
)
from ingest.parsing.content import NO_MEMBERS, MemberLimits, Part


@dataclass(frozen=True, slots=True)
class Batch:
    """Consecutive chunks of a document with their vectors, of the shape ``(len(chunks), dimension)``."""

    chunks: Sequence[Chunk]
    vectors: npt.NDArray[np.float32]


class Originals(Protocol):
    """The store of the originals."""

    async def fetch(self, object_name: str, target: Path, size_bytes: int) -> None:
        """Write an original to a file. Its size ``size_bytes``, or an upper bound of it, determines the time-out.

        Raises:
            NotFound: The object does not exist.
            Unavailable: The store does not answer, or the bytes in it are damaged.
        """
        ...

    async def put(self, object_name: str, source: Path, info: DownloadInfo) -> None:
        """Store an original that the worker has fetched or unpacked; do not replace an existing object.

        ``info`` is stored with the original, for `download_info`. It is empty for an unpacked file.

        Raises:
            Unavailable: The store does not answer, or is full.
        """
        ...

    async def download_info(self, object_name: str) -> DownloadInfo | None:
        """Return the info that `put` stored with an original, or None if the original does not exist.

        Raises:
            Unavailable: The store does not answer.
        """
        ...

    async def remove(self, object_name: str) -> None:
        """Remove an object that belongs to one job only; a missing object is not an error.

        Raises:
            Unavailable: The store does not answer.
        """
        ...


class Web(Protocol):
    """Fetches documents from URLs."""

    async def fetch(self, url: str, target: Path, known: Validators | None) -> DownloadInfo | None:
        """Write the content of a URL to a file; return None if the server reports that the content has not changed.

        Args:
            url: The URL.
            target: The file.
            known: The validators of the version in the index; None to fetch the content in any case.

        Raises:
            InvalidRequest: The URL is invalid.
            PermissionDenied: The URL is not allowed, or its server refuses access.
            NotFound, PayloadTooLarge, UnsupportedMedia, UnreadableDocument: The URL has no readable content.
            UpstreamRejected, DeadlineExceeded: The server is unavailable or too slow.
        """
        ...


class Pictures(Protocol):
    """The store of the pictures of pages."""

    async def put(self, job: Job, document: Document, page: int, picture: bytes) -> None:
        """Store the picture of a page of this version of the document; replace an existing one.

        Raises:
            Unavailable: The store does not answer.
        """
        ...

    async def remove(self, job: Job, document: Document) -> None:
        """Remove the pictures of this version of the document from the job's index. Missing pictures are no error.

        Raises:
            Unavailable: The store does not answer.
        """
        ...


class TextReader(Protocol):
    """Reads the object of a job with texts."""

    def read(self, path: Path) -> Iterator[Text]:
        """Yield the texts in order. Only one text at a time is in memory.

        Raises:
            UnreadableDocument: The object does not contain the job's texts.
        """
        ...


class Parser(Protocol):
    """Parses documents of all formats."""

    def parse(
        self,
        path: Path,
        sourcefile: str,
        *,
        pictures: bool = False,
        members: MemberLimits = NO_MEMBERS,
        ocr: bool = True,
    ) -> AsyncGenerator[Part, None]:
        """Yield the document's head, its pages, the files within it, and the omissions.

        The caller closes the generator after use.

        Args:
            path: The file.
            sourcefile: The name of the document. Its suffix can determine the format.
            pictures: Whether the parser draws pictures of the pages.
            members: The limits of the files within the file.
            ocr: Whether text in images is recognised.

        Raises:
            UnreadableDocument, UnsupportedMedia, PayloadTooLarge: The document cannot be read.
            Unavailable: A child process does not start.
            ParserDefect: The parser has a defect.
        """
        ...

    def read_short(self, content: bytes, sourcefile: str) -> Sequence[Part] | None:
        """Return the parts that `parse` yields for a short plain text; None for all other documents."""
        ...


class Index(Protocol):
    """The retriever, which owns the document catalogue."""

    async def properties(self, job: Job) -> IndexProperties | None:
        """Return the properties of the job's index; None if the index does not exist yet.

        Raises:
            Unavailable, DeadlineExceeded: The retriever does not answer.
        """
        ...

    async def find(self, job: Job, document_id: str) -> Document | None:
        """Return the current version of a document in the job's index.

        Return None if the document does not exist, or the job's principal may not see it.

        Raises:
            Unavailable, DeadlineExceeded: The retriever does not answer.
        """
        ...

    async def look_up(self, job: Job, document_id: str) -> tuple[IndexProperties | None, Document | None]:
        """Return what `properties` and `find` return, in one call.

        Raises:
            Unavailable, DeadlineExceeded: The retriever does not answer.
        """
        ...

    async def update(self, job: Job, document: Document) -> bool:
        """Update the metadata, access, category, language and generation of a document with unchanged content.

        Returns:
            Whether more than the generation has changed.

        Raises:
            NotFound: The document does not exist, or has other content.
            StaleGeneration: The index has a newer version.
            Unavailable, DeadlineExceeded: The retriever does not answer.
        """
        ...

    async def store(
        self, job: Job, document: Document, space: VectorSpace, batches: AsyncIterator[Batch], seconds: float
    ) -> None:
        """Replace a document in the job's index after all batches have arrived.

        A failure before the end of the batches changes nothing. If the retriever's response is lost, the document
        may have been stored although the method raises an error.

        Args:
            job: The job with the index and the principal.
            document: The document with its generation.
            space: The vector space of the batches. If the index does not exist, it is created with this space.
            batches: The chunks, at most 64 in a batch. They are read at the speed of the retriever.
            seconds: Time limit.

        Raises:
            StaleGeneration: The index has a newer version.
            Unavailable, DeadlineExceeded: The retriever does not answer, or the index was just created with another
                vector space.
            CausewayError: Other errors of the retriever, and the errors of ``batches``.
        """
        ...

    async def members(self, job: Job, document_id: str) -> list[Document]:
        """Return the documents that were files directly within a document, in the job's index.

        Raises:
            Unavailable, DeadlineExceeded: The retriever does not answer.
        """
        ...

    async def remove(self, job: Job, document_ids: Sequence[str]) -> list[Document]:
        """Remove documents and the files within them; return the removed documents.

        Raises:
            Unavailable, DeadlineExceeded: The retriever does not answer.
        """
        ...

    async def is_ready(self) -> bool:
        """Return whether the retriever responds and is ready for requests."""
        ...


class Jobs(Protocol):
    """The store of the public states of jobs."""

    async def read(self, job: Job) -> tuple[Status, int] | None:
        """Return a job's state and its revision, or None if the job has no record.

        Raises:
            Unavailable: The store does not answer.
        """
        ...

    async def write(self, job: Job, status: Status, revision: int) -> int:
        """Record a state and return the new revision.

        Args:
            job: The job.
            status: Its state.
            revision: The revision to replace; 0 for a new record.

        Raises:
            Conflict: The record has another revision.
            Unavailable: The store does not answer; the state may have been recorded.
        """
        ...


class Delivery(Protocol):
    """A job that the queue delivered to this worker. The queue redelivers it if the worker does not settle it."""

    @property
    def job(self) -> Job:
        """The job."""
        ...

    @property
    def attempt(self) -> int:
        """The number of deliveries, including this one."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of its message, with the trace context of the upload."""
        ...

    async def earlier_jobs_ended(self) -> bool:
        """Return whether all jobs for the same index that were accepted before this job have ended.

        Returns False if the queue does not respond.
        """
        ...

    async def extend(self) -> None:
        """Extend the time after which the queue redelivers the job. Call this repeatedly while the job runs.

        Raises:
            Unavailable: The queue does not answer.
        """
        ...

    async def acknowledge(self) -> None:
        """Remove the job from the queue.

        Raises:
            Unavailable: The queue does not answer. The queue may deliver the job again.
        """
        ...

    async def redeliver(self, delay: float) -> None:
        """Return the job to the queue, which delivers it again after a delay in seconds.

        Raises:
            Unavailable: The queue does not answer. The queue redelivers the job later.
        """
        ...

    async def copy_to_dead_letters(self, failure: Failure) -> None:
        """Copy the job to the dead letters. The job remains in the queue until `acknowledge`.

        Raises:
            Unavailable: The queue does not answer.
        """
        ...


class Queue(Protocol):
    """The queue of waiting jobs."""

    async def take(self) -> Delivery | None:
        """Return the next job, or None if none arrives within about a second. Must not be cancelled.

        Raises:
            Unavailable: The queue does not answer.
        """
        ...

    async def close(self) -> None:
        """Stop taking jobs, and wait for a running `take`. Jobs that are redelivered later go to other workers."""
        ...
