import asyncio
import errno
import hashlib
import json
from dataclasses import dataclass, field, replace

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.ingest.memory import (
    MemoryIndex,
    MemoryJobs,
    MemoryOriginals,
    MemoryPictures,
    TextParser,
    earlier_jobs_run,
    make_job,
    no_earlier_jobs,
)
from causeway_testing.ingest.web import MemoryWeb
from causeway_testing.servers import eventually
from embedding.models import EmbeddingModel, EmbeddingModels
from ingest.documents.downloads import Downloads
from ingest.documents.embedding_models import IndexingModels
from ingest.documents.file_ingestion import FileIngestion
from ingest.documents.index_writer import IndexWriter
from ingest.documents.report import Report
from ingest.domain import DownloadInfo, FileJob, JobWarning, State, Validators
from servicekit.errors import (
    NotFound,
    PayloadTooLarge,
    StaleGeneration,
    Unavailable,
    UnreadableDocument,
)

TWO_PAGES = b"The first page says one thing.\fThe second page says another."


@dataclass
class Rig:
    """Runs an ingestion on fakes."""

    ingestion: FileIngestion
    originals: MemoryOriginals
    index: MemoryIndex
    jobs: MemoryJobs
    pictures: MemoryPictures = field(default_factory=MemoryPictures)
    web: MemoryWeb = field(default_factory=MemoryWeb)

    def upload(
        self, content: bytes, name: str = "notes.txt", generation: int = 1, *, pictures: bool = False
    ) -> FileJob:
        job = make_job(content, name, generation=generation)
        self.originals.objects[job.object_name] = content
        return replace(job, document=replace(job.document, has_pictures=pictures))

    def pictured(self) -> list[tuple[str, int]]:
        """Return the contents and pages that have pictures."""
        return sorted((sha256, page) for _, _, _, sha256, page in self.pictures.pictures)

    async def run(self, job: FileJob, attempt: int = 1) -> State:
        return await self.ingestion.run(job, await Report.begin(self.jobs, job, attempt), earlier_jobs_run)


@pytest.fixture
def rig() -> Rig:
    originals, index = MemoryOriginals(), MemoryIndex()
    models = IndexingModels(EmbeddingModels([EmbeddingModel.of(HashingEmbedder())]), index, tokens=16, overlap=0)
    writer = IndexWriter(index, max_chunks=100)
    pictures = MemoryPictures()
    web = MemoryWeb()
    downloads = Downloads(web, originals, max_bytes=10_000)
    ingestion = FileIngestion(originals, downloads, TextParser(), models, writer, index, pictures, max_bytes=10_000)
    return Rig(ingestion, originals, index, MemoryJobs(), pictures, web)


async def test_a_document_is_stored(rig: Rig) -> None:
    """The chunks have page numbers, the document has the parser's properties, and the progress has totals."""
    job = rig.upload(TWO_PAGES)
    assert await rig.run(job) is State.SUCCEEDED
    document, chunks = rig.index.documents["acme", "library", "id of notes.txt"]
    assert [(chunk.page, chunk.number) for chunk in chunks] == [(1, 0), (2, 1)]
    assert (document.content_type, document.page_count, document.language) == ("application/pdf", 2, "en")
    assert document.generation == 1
    assert rig.jobs.history[-1][1].state is State.INDEXING
    assert rig.jobs.history[-1][1].progress.chunks_total == 2


@pytest.mark.parametrize("name", ["short.txt", "notes.txt"])
async def test_the_content_of_the_job_is_the_original(rig: Rig, name: str) -> None:
    """If the job contains the original, the store is not read, whether the parser needs a file or not."""
    job = rig.upload(b"One sentence.", name)
    rig.originals.failures = 1
    assert await rig.run(replace(job, content=b"One sentence.")) is State.SUCCEEDED
    assert rig.originals.failures == 1
    document, chunks = rig.index.documents["acme", "library", f"id of {name}"]
    assert ([chunk.text for chunk in chunks], document.original) == (["One sentence."], job.object_name)


@pytest.mark.parametrize("name", ["short.txt", "notes.txt"])
async def test_damaged_content_of_the_job_is_refused(rig: Rig, name: str) -> None:
    """A job fails if its content does not have the SHA-256 of the upload."""
    job = replace(rig.upload(b"One sentence.", name), content=b"Another sentence.")
    with pytest.raises(UnreadableDocument, match="SHA-256"):
        await rig.run(job)
    assert not rig.index.documents


async def test_unread_pages_are_recorded(rig: Rig) -> None:
    """An unreadable page becomes a warning of the job. It is recorded before the commit."""
    job = rig.upload(b"One.\f\fThree.")
    report = await Report.begin(rig.jobs, job, 1)
    assert await rig.ingestion.run(job, report, earlier_jobs_run) is State.SUCCEEDED
    warned = JobWarning("UNREADABLE_DOCUMENT", "The page is an image.", 2)
    committed = rig.jobs.history[-1][1]
    assert (committed.committing, committed.warnings, committed.warning_count) == (True, (warned,), 1)
    # The worker dies here: the next attempt finds the document stored, and the warning recorded.
    report = await Report.begin(rig.jobs, job, 2)
    assert await rig.ingestion.run(job, report, earlier_jobs_run) is State.SUCCEEDED
    await report.record_end(State.SUCCEEDED)
    assert rig.jobs.history[-1][1].warnings == (warned,)


async def test_pages_that_were_recognised_are_recorded(rig: Rig) -> None:
    """The metadata lists recognised pages with their confidence, even after a change of the readers. No page is
    recognised if OCR is off.
    """
    assert await rig.run(rig.upload(b"One.\fscan")) is State.SUCCEEDED
    document, chunks = rig.index.documents["acme", "library", "id of notes.txt"]
    assert json.loads(document.metadata_json)["ocr"] == [{"page": 2, "confidence": 0.9}]
    assert [chunk.text for chunk in chunks] == ["One.", "recognised"]
    again = rig.upload(b"One.\fscan", generation=2)
    assert (
        await rig.ingestion.run(again, await Report.begin(rig.jobs, again, 1), no_earlier_jobs) is State.UNCHANGED
    )
    readers = replace(again, document=replace(again.document, generation=3, groups=("staff",)))
    assert await rig.run(readers) is State.SUCCEEDED
    document, _ = rig.index.documents["acme", "library", "id of notes.txt"]
    assert (document.groups, b'"page":2' in document.metadata_json) == (("staff",), True)
    rig.index.ocr = False
    await rig.run(rig.upload(b"Two.\fscan", generation=4))
    document, chunks = rig.index.documents["acme", "library", "id of notes.txt"]
    assert b"ocr" not in document.metadata_json
    assert [chunk.text for chunk in chunks] == ["Two.", "scan"]


async def test_an_unchanged_document(rig: Rig) -> None:
    """With the same content, name, metadata and readers, the job only writes the newer generation, so that an older
    job that still runs cannot overwrite it. With other readers, only the metadata of the document changes.
    """
    await rig.run(rig.upload(TWO_PAGES))
    again = rig.upload(TWO_PAGES, generation=2)
    assert await rig.run(again) is State.UNCHANGED
    other = replace(again, job_id="other", document=replace(again.document, groups=("staff",)))
    assert rig.index.documents["acme", "library", "id of notes.txt"][0].generation == 2
    report = await Report.begin(rig.jobs, again, 2)
    newer = replace(again, document=replace(again.document, generation=3))
    assert await rig.ingestion.run(newer, report, no_earlier_jobs) is State.UNCHANGED
    assert rig.index.documents["acme", "library", "id of notes.txt"][0].generation == 2
    other = replace(other, document=replace(other.document, generation=3))
    assert await rig.run(other) is State.SUCCEEDED
    document, _ = rig.index.documents["acme", "library", "id of notes.txt"]
    assert (document.groups, document.language, document.page_count) == (("staff",), "en", 2)
    assert rig.index.stored == 1


async def test_a_document_without_an_original_gets_one(rig: Rig) -> None:
    """If the existing version has no recorded original, the same content is stored again with its original."""
    await rig.run(rig.upload(TWO_PAGES))
    key = ("acme", "library", "id of notes.txt")
    document, chunks = rig.index.documents[key]
    rig.index.documents[key] = replace(document, original=""), chunks
    again = rig.upload(TWO_PAGES, generation=2)
    report = await Report.begin(rig.jobs, again, 1)
    assert await rig.ingestion.run(again, report, no_earlier_jobs) is State.SUCCEEDED
    assert rig.index.documents[key][0].original == again.object_name
    assert again.object_name in rig.originals.objects


async def test_an_attempt_after_the_commit_is_a_success(rig: Rig) -> None:
    """If a worker dies between the commit and the record, the next attempt ends as succeeded, not as unchanged."""
    job = rig.upload(TWO_PAGES)
    await rig.run(job)
    assert await rig.run(job, attempt=2) is State.SUCCEEDED
    assert rig.index.stored == 1


async def test_a_newer_version_is_not_overwritten(rig: Rig) -> None:
    """A job fails if the index already has a newer version."""
    await rig.run(rig.upload(b"Newer text.", generation=5))
    with pytest.raises(StaleGeneration):
        await rig.run(rig.upload(b"Older text.", generation=4))
    assert rig.index.documents["acme", "library", "id of notes.txt"][0].generation == 5


async def test_errors_of_the_document(rig: Rig) -> None:
    """An unreadable, blank, too large, damaged or missing document fails with its reason, and nothing is stored."""
    swapped = rig.upload(TWO_PAGES)
    rig.originals.objects[swapped.object_name] = b"something else"
    gone = make_job(b"never uploaded")
    cases: list[tuple[FileJob, type[Exception]]] = [
        (rig.upload(b"x", "unreadable.pdf"), UnreadableDocument),
        (rig.upload(b" \n \f "), UnreadableDocument),
        (rig.upload(b"x" * 10_001), PayloadTooLarge),
        (rig.upload(b"A short sentence of five. " * 380), PayloadTooLarge),
        (swapped, UnreadableDocument),
        (gone, NotFound),
    ]
    for job, error in cases:
        with pytest.raises(error):
            await rig.run(job)
    assert not rig.index.documents


async def test_errors_of_dependencies_are_unavailable(rig: Rig) -> None:
    """If a store or the retriever is unavailable, the attempt raises Unavailable, and a later attempt succeeds."""
    job = rig.upload(TWO_PAGES)
    rig.index.down = True
    with pytest.raises(Unavailable):
        await rig.run(job)
    rig.index.down, rig.originals.failures = False, 1
    with pytest.raises(Unavailable):
        await rig.run(job, 2)
    assert await rig.run(job, 3) is State.SUCCEEDED


async def test_requested_pictures_are_stored(rig: Rig) -> None:
    """Each page has one picture, and the document is marked accordingly."""
    await rig.run(rig.upload(TWO_PAGES))
    assert rig.pictured() == []
    assert not rig.index.documents["acme", "library", "id of notes.txt"][0].has_pictures
    job = rig.upload(TWO_PAGES, generation=2, pictures=True)
    assert await rig.run(job) is State.SUCCEEDED
    assert rig.pictured() == [(job.document.sha256, 1), (job.document.sha256, 2)]
    assert rig.index.documents["acme", "library", "id of notes.txt"][0].has_pictures


async def test_existing_pictures_are_reused(rig: Rig) -> None:
    """If only the metadata changes, the document keeps its pictures and the parser does not run."""
    await rig.run(rig.upload(TWO_PAGES, pictures=True))
    again = rig.upload(TWO_PAGES, generation=2, pictures=True)
    assert await rig.run(replace(again, document=replace(again.document, category="x"))) is State.SUCCEEDED
    assert rig.index.stored == 1
    assert len(rig.pictured()) == 2


@pytest.mark.parametrize("pictures", [True, False])
async def test_another_version_has_its_own_pictures(rig: Rig, pictures: bool) -> None:
    """The pictures of the earlier version are removed after its replacement."""
    await rig.run(rig.upload(TWO_PAGES, pictures=True))
    job = rig.upload(b"Something else.", generation=2, pictures=pictures)
    await rig.run(job)
    assert rig.pictured() == ([(job.document.sha256, 1)] if pictures else [])


async def test_an_upload_without_pictures_removes_them(rig: Rig) -> None:
    """If the same content is uploaded again without pictures, its pictures are removed."""
    await rig.run(rig.upload(TWO_PAGES, pictures=True))
    await rig.run(rig.upload(TWO_PAGES, generation=2))
    assert rig.pictured() == []
    assert not rig.index.documents["acme", "library", "id of notes.txt"][0].has_pictures


async def test_a_document_that_cannot_be_read_leaves_no_pictures(rig: Rig) -> None:
    """If a document cannot be read, no picture is stored, not even of its readable pages."""
    with pytest.raises(UnreadableDocument):
        await rig.run(rig.upload(b"one\fdamaged\fthree", pictures=True))
    assert rig.pictured() == []


async def test_a_full_disk_of_the_worker_is_an_outage(rig: Rig) -> None:
    """A full disk is an outage, because another worker may have free space. Other disk errors are defects."""
    for number, raised in ((errno.ENOSPC, Unavailable), (errno.EIO, OSError)):
        rig.originals.defect = OSError(number, "of the disk")
        with pytest.raises(raised):
            await rig.run(rig.upload(TWO_PAGES))
    assert not rig.index.documents


URL = "https://docs.example.org/guide"


def linked(rig: Rig, generation: int = 1) -> FileJob:
    """Return a job with a URL."""
    job = make_job(b"", "docs.example.org/guide", generation=generation)
    document = replace(job.document, sha256="", size_bytes=0, metadata_json=b'{"year": 2024.0, "etag": "mine"}')
    rig.originals.objects.pop(job.object_name, None)
    return replace(job, document=document, url=URL)


async def test_a_url_becomes_a_document(rig: Rig) -> None:
    """The original is the fetched content, the metadata has the URL, and the job's stage was `fetching`."""
    rig.web.pages[URL] = (TWO_PAGES, DownloadInfo(".txt", Validators('"1"', "then")))
    job = linked(rig)
    rig.web.sending.clear()
    running = asyncio.create_task(rig.run(job))
    await eventually(lambda: any(status.progress.fetching for _, status in rig.jobs.history))
    rig.web.sending.set()
    assert await running is State.SUCCEEDED
    document, chunks = rig.index.documents["acme", "library", "id of docs.example.org/guide"]
    assert len(chunks) == 2
    assert rig.originals.objects[job.object_name] == TWO_PAGES
    assert (document.sha256, document.size_bytes) == (hashlib.sha256(TWO_PAGES).hexdigest(), len(TWO_PAGES))
    assert json.loads(document.metadata_json) == {
        "year": 2024.0,
        "url": URL,
        "etag": '"1"',
        "last_modified": "then",
    }
    assert not rig.jobs.history[-1][1].progress.fetching


async def test_a_url_that_has_not_changed(rig: Rig) -> None:
    """If the server reports no change, the page is not downloaded. Otherwise, unchanged content is not parsed
    again.
    """
    rig.web.pages[URL] = (TWO_PAGES, DownloadInfo(".txt", Validators('"1"')))
    await rig.run(linked(rig))
    assert await rig.run(replace(linked(rig, 2), job_id="second")) is State.UNCHANGED
    assert (rig.web.bodies, rig.index.stored) == (1, 1)
    rig.web.pages[URL] = (TWO_PAGES, DownloadInfo(".txt"))
    assert await rig.run(replace(linked(rig, 3), job_id="third")) is State.SUCCEEDED  # it has no ETag any more
    assert await rig.run(replace(linked(rig, 4), job_id="fourth")) is State.UNCHANGED
    assert (rig.web.bodies, rig.index.stored) == (3, 1)
    rig.web.pages[URL] = (b"Something else.", DownloadInfo(".txt"))
    assert await rig.run(replace(linked(rig, 5), job_id="fifth")) is State.SUCCEEDED
    assert rig.index.stored == 2


async def test_an_archive_at_a_url_that_has_not_changed(rig: Rig) -> None:
    """If the server reports no change, but the metadata changed, the archive is downloaded and unpacked again,
    because the documents of its files also have the metadata.
    """
    rig.web.pages[URL] = (json.dumps({"a.txt": "Tides."}).encode(), DownloadInfo(".zip", Validators('"1"')))
    await rig.run(linked(rig))
    job = replace(linked(rig, 2), job_id="second", object_name="second")
    job = replace(job, document=replace(job.document, metadata_json=b'{"year":2025}', original="second"))
    assert await rig.run(job) is State.SUCCEEDED
    years = {json.loads(document.metadata_json)["year"] for document, _ in rig.index.documents.values()}
    assert (rig.web.bodies, years) == (2, {2025})


async def test_attempts_share_the_fetched_content(rig: Rig) -> None:
    """All attempts of a job use the content that the first attempt fetched, because the page may change."""
    rig.web.pages[URL] = (TWO_PAGES, DownloadInfo(".txt", Validators('"1"')))
    job = linked(rig)
    rig.originals.failures = 1
    with pytest.raises(Unavailable):
        await rig.run(job)
    rig.web.pages[URL] = (b"Something else.", DownloadInfo(".txt", Validators('"2"')))
    rig.originals.expected_sizes.clear()
    assert await rig.run(job, attempt=2) is State.SUCCEEDED
    assert rig.originals.expected_sizes[0] == 10_000  # the limit, because the time-out must suffice for any size
    document, chunks = rig.index.documents["acme", "library", "id of docs.example.org/guide"]
    assert (len(chunks), json.loads(document.metadata_json)["etag"], rig.web.bodies) == (2, '"1"', 1)


async def test_a_url_without_a_document(rig: Rig) -> None:
    """If the URL has no document, the job fails with the reason, and an existing document remains."""
    with pytest.raises(NotFound):
        await rig.run(linked(rig))
    assert not rig.index.documents
