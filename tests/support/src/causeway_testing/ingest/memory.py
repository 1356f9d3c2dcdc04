"""The ports of ingest in memory for tests, with the contracts of the real adapters."""

import asyncio
import hashlib
import json
import math
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ingest.domain import (
    Chunk,
    Document,
    DownloadInfo,
    Failure,
    FileJob,
    IndexProperties,
    Job,
    Status,
    Text,
    TextsJob,
    VectorSpace,
)
from ingest.parsing.content import NO_MEMBERS, Head, Member, MemberLimits, Omission, Page, Part, Section
from ingest.ports import Batch
from servicekit import keys
from servicekit.errors import Conflict, NotFound, StaleGeneration, Unavailable, UnreadableDocument
from servicekit.principal import Principal

Key = tuple[str, str, str]
"""Tenant, index and document id."""


class MemoryOriginals:
    """Originals in a dictionary by object name."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.download_infos: dict[str, DownloadInfo] = {}
        self.failures = 0
        """How many of the next fetches fail."""
        self.defect: Exception | None = None
        """Raised by the next fetch."""
        self.expected_sizes: list[int] = []
        """The ``size_bytes`` of each fetch."""

    async def fetch(self, object_name: str, target: Path, size_bytes: int) -> None:
        """See `ingest.ports.Originals.fetch`."""
        self.expected_sizes.append(size_bytes)
        if self.defect is not None:
            defect, self.defect = self.defect, None
            raise defect
        if self.failures:
            self.failures -= 1
            raise Unavailable("The original of the document cannot be fetched.")
        if object_name not in self.objects:
            raise NotFound("The original of the document is gone.", resource=object_name)
        await asyncio.to_thread(target.write_bytes, self.objects[object_name])

    async def put(self, object_name: str, source: Path, info: DownloadInfo) -> None:
        """See `ingest.ports.Originals.put`."""
        if object_name not in self.objects:
            self.objects[object_name] = await asyncio.to_thread(source.read_bytes)
            self.download_infos[object_name] = info

    async def download_info(self, object_name: str) -> DownloadInfo | None:
        """See `ingest.ports.Originals.download_info`."""
        return self.download_infos.get(object_name, DownloadInfo()) if object_name in self.objects else None

    async def remove(self, object_name: str) -> None:
        """See `ingest.ports.Originals.remove`."""
        self.objects.pop(object_name, None)


class MemoryPictures:
    """Pictures in a dictionary, by tenant, index, document, content and page."""

    def __init__(self) -> None:
        self.pictures: dict[tuple[str, str, str, str, int], bytes] = {}

    async def put(self, job: Job, document: Document, page: int, picture: bytes) -> None:
        """See `ingest.ports.Pictures.put`."""
        self.pictures[(*_version(job, document), page)] = picture

    async def remove(self, job: Job, document: Document) -> None:
        """See `ingest.ports.Pictures.remove`."""
        version = _version(job, document)
        self.pictures = {key: picture for key, picture in self.pictures.items() if key[:4] != version}


def _version(job: Job, document: Document) -> tuple[str, str, str, str]:
    return job.principal.tenant, job.index, document.document_id, document.sha256


class LineReader:
    """Reads JSON lines with id, text and metadata. If the metadata has a ``suffix``, the text is source code."""

    def read(self, path: Path) -> Iterator[Text]:
        """See `ingest.ports.TextReader.read`."""
        with path.open() as file:
            for line in file:
                document_id, text, metadata = json.loads(line)
                yield Text(document_id, text, metadata.encode(), json.loads(metadata).get("suffix", ""))


class TextParser:
    """Parses UTF-8 text, in which form feeds separate pages.

    With ``ocr``, a page with the text ``scan`` is an image in which the text ``recognised`` is found. An empty page
    is an image without text. After a page that contains ``damaged``, no page can be read. A file whose name
    contains ``unreadable`` cannot be read at all. The picture of a page is its number. A file whose name ends with
    ``.zip`` is an archive: a JSON object with the text of each file by its name.
    """

    async def parse(
        self,
        path: Path,
        sourcefile: str,
        *,
        pictures: bool = False,
        members: MemberLimits = NO_MEMBERS,
        ocr: bool = True,
    ) -> AsyncGenerator[Part, None]:
        """See `ingest.ports.Parser.parse`."""
        if "unreadable" in sourcefile:
            raise UnreadableDocument("The document is unreadable.")
        text = await asyncio.to_thread(path.read_text)
        if sourcefile.endswith(".zip"):
            inner: dict[str, str] = json.loads(text)
            yield Head("application/zip")
            for name, content in list(inner.items())[: members.count]:
                yield Member(name, content.encode())
            if len(inner) > members.count:
                yield Omission("TooLarge", f"left out: {len(inner) - members.count}")
            yield Page(0, (Section((), ", ".join(inner)),))
            return
        texts = text.split("\f")
        yield Head("application/pdf", len(texts), "en")
        for number, text in enumerate(texts, 1):
            picture = str(number).encode() if pictures else b""
            if text == "scan" and ocr:
                yield Page(number, (Section((), "recognised"),), picture, confidence=0.9)
                continue
            yield Page(number, (Section((), text),) if text.strip() else (), picture)
            if not text:
                yield Omission("Unreadable", "The page is an image.", number)
            if "damaged" in text:
                raise UnreadableDocument(f"The document is damaged: page {number + 1} cannot be read.")

    def read_short(self, content: bytes, sourcefile: str) -> Sequence[Part] | None:
        """See `ingest.ports.Parser.read_short`. A text is short if its name begins with ``short``."""
        if not sourcefile.startswith("short"):
            return None
        return Head("text/plain"), Page(0, (Section((), content.decode()),))


class MemoryIndex:
    """A retriever in memory, with the rules that `ingest.ports.Index` describes."""

    def __init__(self) -> None:
        self.documents: dict[Key, tuple[Document, list[Chunk]]] = {}
        self.spaces: dict[tuple[str, str], VectorSpace] = {}
        self.chunking: tuple[int | None, int | None] = (None, None)
        """The maximum tokens and the maximum overlap of a chunk, for all indexes."""
        self.ocr = True
        self.down = False
        self.stored = 0
        self.reading = asyncio.Event()
        self.reading.set()
        """While this event is cleared, the index reads no batches (back-pressure)."""

    async def properties(self, job: Job) -> IndexProperties | None:
        """See `ingest.ports.Index.properties`."""
        self._check()
        space = self.spaces.get((job.principal.tenant, job.index))
        return IndexProperties(space, *self.chunking, ocr=self.ocr) if space else None

    async def find(self, job: Job, document_id: str) -> Document | None:
        """See `ingest.ports.Index.find`."""
        self._check()
        found = self.documents.get((job.principal.tenant, job.index, document_id))
        return found[0] if found else None

    async def look_up(self, job: Job, document_id: str) -> tuple[IndexProperties | None, Document | None]:
        """See `ingest.ports.Index.look_up`."""
        return await self.properties(job), await self.find(job, document_id)

    async def update(self, job: Job, document: Document) -> bool:
        """See `ingest.ports.Index.update`."""
        stored = await self.find(job, document.document_id)
        if stored is None or not stored.has_same_content_as(document):
            raise NotFound("No such document.")
        _check_age(stored, document)
        key = (job.principal.tenant, job.index, document.document_id)
        updated = replace(
            stored,
            metadata_json=document.metadata_json,
            oids=document.oids,
            groups=document.groups,
            category=document.category,
            language=document.language,
            generation=document.generation,
        )
        self.documents[key] = (updated, self.documents[key][1])
        return replace(stored, generation=document.generation) != updated

    async def store(
        self, job: Job, document: Document, space: VectorSpace, batches: AsyncIterator[Batch], seconds: float
    ) -> None:
        """See `ingest.ports.Index.store`."""
        properties = await self.properties(job)
        if properties is not None and properties.space != space:
            raise Unavailable("The index has vectors of another embedding model.")
        _check_age(await self.find(job, document.document_id), document)
        chunks: list[Chunk] = []
        async for batch in batches:
            await self.reading.wait()
            self._check()
            assert batch.vectors.shape == (len(batch.chunks), space.dimension)
            assert len(batch.chunks) <= 64
            chunks.extend(batch.chunks)
        _check_age(await self.find(job, document.document_id), document)
        self.documents[job.principal.tenant, job.index, document.document_id] = (document, chunks)
        self.spaces[job.principal.tenant, job.index] = space
        self.stored += 1

    async def members(self, job: Job, document_id: str) -> list[Document]:
        """See `ingest.ports.Index.members`."""
        self._check()
        return [document for document, _ in self.documents.values() if _archive_id(document) == document_id]

    async def remove(self, job: Job, document_ids: Sequence[str]) -> list[Document]:
        """See `ingest.ports.Index.remove`."""
        self._check()
        removed: list[Document] = []
        for id_ in document_ids:
            found = self.documents.pop((job.principal.tenant, job.index, id_), None)
            if found is not None:
                removed.append(found[0])
                inner = [member.document_id for member in await self.members(job, id_)]
                removed += await self.remove(job, inner)
        return removed

    async def is_ready(self) -> bool:
        """See `ingest.ports.Index.is_ready`."""
        return not self.down

    def _check(self) -> None:
        if self.down:
            raise Unavailable("The retriever cannot be reached.")


class MemoryJobs:
    """The states of jobs in a dictionary, and the history of all states."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str], tuple[Status, int]] = {}
        self.history: list[tuple[str, Status]] = []
        self.down = False
        self.defect: Exception | None = None
        """Raised by the next call."""

    async def read(self, job: Job) -> tuple[Status, int] | None:
        """See `ingest.ports.Jobs.read`."""
        self._check()
        return self.records.get(_job_key(job))

    async def write(self, job: Job, status: Status, revision: int) -> int:
        """See `ingest.ports.Jobs.write`."""
        self._check()
        _, current = self.records.get(_job_key(job), (None, 0))
        if current != revision:
            raise Conflict("Another state has been recorded.")
        self.records[_job_key(job)] = (status, current + 1)
        self.history.append((job.job_id, status))
        return current + 1

    def _check(self) -> None:
        if self.defect is not None:
            defect, self.defect = self.defect, None
            raise defect
        if self.down:
            raise Unavailable("The message broker does not answer.")


class MemoryQueue:
    """A queue that redelivers returned jobs.

    Attributes:
        earlier_jobs: Number of times that a delivery still reports that earlier jobs have not ended.
    """

    earlier_jobs: float = math.inf

    def __init__(self) -> None:
        self._waiting: asyncio.Queue[tuple[Job, int, Mapping[str, str]]] = asyncio.Queue()
        self.unsettled = 0
        self.dead: list[tuple[Job, Failure]] = []
        self.delays: list[float] = []
        self.heartbeats = 0
        self.closed = False
        self.down = False

    def put(self, job: Job, headers: Mapping[str, str] | None = None, attempt: int = 1) -> None:
        """Add a job."""
        self.unsettled += 1
        self._waiting.put_nowait((job, attempt, headers or {}))

    async def take(self) -> "MemoryDelivery | None":
        """See `ingest.ports.Queue.take`."""
        if self.down:
            raise Unavailable("The message broker does not answer.")
        if self.closed:
            return None
        try:
            job, attempt, headers = await asyncio.wait_for(self._waiting.get(), 0.05)
        except TimeoutError:
            return None
        return MemoryDelivery(self, job, attempt, headers)

    async def close(self) -> None:
        """See `ingest.ports.Queue.close`."""
        self.closed = True


class MemoryDelivery:
    """See `ingest.ports.Delivery`."""

    def __init__(self, queue: MemoryQueue, job: Job, attempt: int, headers: Mapping[str, str]) -> None:
        self._queue = queue
        self.job = job
        self.attempt = attempt
        self.headers = headers

    async def earlier_jobs_ended(self) -> bool:
        """Return False for the first `MemoryQueue.earlier_jobs` calls, then True."""
        self._queue.earlier_jobs -= 1
        return self._queue.earlier_jobs < 0

    async def extend(self) -> None:
        """Count a heartbeat."""
        self._queue.heartbeats += 1

    async def acknowledge(self) -> None:
        """Remove the job from the queue."""
        self._queue.unsettled -= 1

    async def redeliver(self, delay: float) -> None:
        """Return the job to the queue without the delay, and record the delay."""
        self._queue.delays.append(delay)
        self._queue.unsettled -= 1
        self._queue.put(self.job, self.headers, self.attempt + 1)

    async def copy_to_dead_letters(self, failure: Failure) -> None:
        """Add the job to the dead letters."""
        self._queue.dead.append((self.job, failure))


def make_job(content: bytes, sourcefile: str = "notes.txt", *, generation: int = 1) -> FileJob:
    """Return a job for a file with this content."""
    job_id = uuid.uuid4().hex
    original = keys.original_object("acme", "library", job_id)
    document = Document(
        document_id=f"id of {sourcefile}",
        sourcefile=sourcefile,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        generation=generation,
        original=original,
    )
    return FileJob(
        job_id=job_id,
        principal=Principal("acme"),
        index="library",
        document=document,
        object_name=original,
    )


def make_texts(
    texts: Sequence[tuple[str, str, str]], *, generation: int = 1, existing_only: bool = False
) -> tuple[TextsJob, bytes]:
    """Return a job for texts (id, text, metadata), and its object as `LineReader` reads it."""
    content = "".join(json.dumps(text) + "\n" for text in texts).encode()
    job_id = uuid.uuid4().hex
    job = TextsJob(
        job_id=job_id,
        principal=Principal("acme"),
        index="library",
        object_name=f"acme.texts.{job_id}",
        generation=generation,
        count=len(texts),
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        existing_only=existing_only,
    )
    return job, content


def _archive_id(document: Document) -> object:
    return json.loads(document.metadata_json or b"{}").get(keys.PART_OF_ID)


def _check_age(stored: Document | None, document: Document) -> None:
    if stored is not None and stored.generation > document.generation:
        raise StaleGeneration("The index already has a newer version of the document.")


def _job_key(job: Job) -> tuple[str, str]:
    return (job.principal.tenant, job.job_id)


async def no_earlier_jobs() -> bool:
    """Return True: all earlier jobs have ended."""
    return True


async def earlier_jobs_run() -> bool:
    """Return False: another job may change the same document."""
    return False
