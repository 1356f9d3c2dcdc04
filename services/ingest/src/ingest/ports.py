"""What the job logic asks of the world. Implementations: `adapters`, `parsing.process`.

The fakes are in `causeway_testing.ingest`.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

from ingest.domain import Chunk, Document, Failure, Fetched, Job, Status, Text, Traits, Validators, VectorSpace
from ingest.parsing.content import NO_ROOM, Part, Room


@dataclass(frozen=True, slots=True)
class Batch:
    """Some chunks of a document, in order, with their vectors: shape ``(len(chunks), dimension)``."""

    chunks: Sequence[Chunk]
    vectors: npt.NDArray[np.float32]


class Originals(Protocol):
    """The documents as they were uploaded."""

    async def fetch(self, object_name: str, target: Path, size_bytes: int) -> None:
        """Writes an original to a file; ``size_bytes``, its expected length, sets the time-out.

        Raises:
            NotFound: It is not there.
            Unavailable: The store does not answer.
        """
        ...

    async def put(self, object_name: str, source: Path, fetched: Fetched) -> None:
        """Stores an original that the worker has fetched, with what is known of it. What is there already stays.

        Raises:
            Unavailable: The store does not answer, or is full.
        """
        ...

    async def fetched(self, object_name: str) -> Fetched | None:
        """What is known of an original that a worker has put; None where it is not there.

        Raises:
            Unavailable: The store does not answer.
        """
        ...

    async def remove(self, object_name: str) -> None:
        """Removes an object that belongs to one job alone; nothing happens where it is not there.

        Raises:
            Unavailable: The store does not answer.
        """
        ...


class Web(Protocol):
    """What is behind URLs."""

    async def fetch(self, url: str, target: Path, known: Validators | None) -> Fetched | None:
        """Writes what is behind a URL to a file; None where it is what it was when it had these validators.

        Raises:
            PermissionDenied: Nothing is fetched from there; or who asks for it has to say who he is.
            NotFound, PayloadTooLarge, UnsupportedMedia, UnreadableDocument: There is nothing that is read.
            UpstreamRejected, DeadlineExceeded: Its server is away, or too slow.
        """
        ...


class Pictures(Protocol):
    """Pictures of documents' pages."""

    async def put(self, job: Job, document: Document, page: int, picture: bytes) -> None:
        """Keeps the picture of a page of this version, in the place of one that is there.

        Raises:
            Unavailable: The store does not answer.
        """
        ...

    async def remove(self, job: Job, document: Document) -> None:
        """Removes the pictures of this version, in the job's index; nothing happens where there are none.

        Raises:
            Unavailable: The store does not answer.
        """
        ...


class TextReader(Protocol):
    """Reads the object of a job with texts."""

    def read(self, path: Path) -> Iterator[Text]:
        """The texts, in order, one at a time in memory.

        Raises:
            UnreadableDocument: It holds something else.
        """
        ...


class Parser(Protocol):
    """Reads documents of all formats."""

    def parse(
        self, path: Path, sourcefile: str, *, pictures: bool = False, members: Room = NO_ROOM, ocr: bool = True
    ) -> AsyncGenerator[Part, None]:
        """Yield the document's head, its pages, the files within it, and what of it was not read; to be closed.

        Without ``ocr`` no text is recognised in images.

        Raises:
            UnreadableDocument, UnsupportedMedia, PayloadTooLarge: The document's own fault.
        """
        ...


class Index(Protocol):
    """The retriever, owner of the document catalogue."""

    async def traits(self, job: Job) -> Traits | None:
        """What the job's index is; None where there is no such index yet.

        Raises:
            Unavailable, DeadlineExceeded: It cannot be asked.
        """
        ...

    async def find(self, job: Job, document_id: str) -> Document | None:
        """The version of a document that is there now, in the job's index.

        Raises:
            Unavailable, DeadlineExceeded: It cannot be asked.
        """
        ...

    async def update(self, job: Job, document: Document) -> bool:
        """Gives a document that is there, with the same content, this metadata, access, category, language and
        generation. Whether anything but the generation was other before.

        Raises:
            NotFound: It is not there, or has other content.
            StaleGeneration: A newer version is there.
            Unavailable, DeadlineExceeded: It cannot be asked.
        """
        ...

    async def store(
        self, job: Job, document: Document, space: VectorSpace, batches: AsyncIterator[Batch], seconds: float
    ) -> None:
        """Replaces a document in the job's index, once all batches have arrived; a failure changes nothing.

        Args:
            job: Its index, on behalf of its principal.
            document: With its generation.
            space: Of the vectors; an index that is not there yet is made for them.
            batches: Taken as fast as the retriever stores; at most 64 chunks each.
            seconds: Longest time it may take.

        Raises:
            StaleGeneration: A newer version is there.
            Unavailable, DeadlineExceeded: It cannot be reached, or has vectors of another space, which it had not
                when it was asked.
            CausewayError: What else it raises; and whatever ``batches`` raises.
        """
        ...

    async def members(self, job: Job, document_id: str) -> list[Document]:
        """Return the documents that were files within a document, in the job's index.

        Raises:
            Unavailable, DeadlineExceeded: It cannot be asked.
        """
        ...

    async def remove(self, job: Job, document_ids: Sequence[str]) -> list[Document]:
        """Remove documents, and those that were files within them; return what was removed.

        Raises:
            Unavailable, DeadlineExceeded: It cannot be reached.
        """
        ...

    async def answers(self) -> bool:
        """Whether it would take a job now."""
        ...


class Jobs(Protocol):
    """The states of jobs, as people read them."""

    async def read(self, job: Job) -> tuple[Status, int] | None:
        """A job's state and its revision; None where nothing is recorded.

        Raises:
            Unavailable: The store does not answer.
        """
        ...

    async def write(self, job: Job, status: Status, revision: int) -> int:
        """Records a state and returns the new revision.

        Args:
            job: The job.
            status: Its state.
            revision: The revision that is replaced; 0 where there is none.

        Raises:
            Conflict: Another revision is there.
            Unavailable: The store does not answer; the state may have been recorded nevertheless.
        """
        ...


class Delivery(Protocol):
    """A job that the queue has given to this worker; it comes again unless it is settled."""

    @property
    def job(self) -> Job:
        """The job."""
        ...

    @property
    def attempt(self) -> int:
        """How many times it has been delivered, this one included."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of its message, the upload's trace among them."""
        ...

    async def alone(self) -> bool:
        """Whether every job that was accepted before this one is over; false where that is not known."""
        ...

    async def keep(self) -> None:
        """Says that the job is being worked on; to be repeated.

        Raises:
            Unavailable: The queue does not answer.
        """
        ...

    async def done(self) -> None:
        """Takes the job off the queue.

        Raises:
            Unavailable: The queue does not answer; the job may come again.
        """
        ...

    async def again(self, delay: float) -> None:
        """Gives the job back, to be delivered after so many seconds.

        Raises:
            Unavailable: The queue does not answer; the job comes again by itself.
        """
        ...

    async def bury(self, failure: Failure) -> None:
        """Copies the job to the dead letters; it stays on the queue until `done`.

        Raises:
            Unavailable: The queue does not answer.
        """
        ...


class Queue(Protocol):
    """The jobs that wait."""

    async def take(self) -> Delivery | None:
        """The next job; None where none came within about a second. Not to be cancelled.

        Raises:
            Unavailable: The queue does not answer.
        """
        ...

    async def close(self) -> None:
        """Asks for no more jobs, once `take` has returned. What is given back after that goes to other workers."""
        ...
