"""Files within files, with fakes. An archive for `TextParser` is JSON with a text for each name."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path

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
from embedding.models import EmbeddingModel, EmbeddingModels
from ingest.documents.downloads import Downloads
from ingest.documents.embedding_models import IndexingModels
from ingest.documents.file_ingestion import FileIngestion
from ingest.documents.index_writer import IndexWriter
from ingest.documents.report import Report
from ingest.domain import Document, DownloadInfo, FileJob, State
from servicekit import keys
from servicekit.errors import Unavailable


@dataclass
class Originals(MemoryOriginals):
    """Originals whose store is unavailable for names with a given ending."""

    full_at: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    async def put(self, object_name: str, source: Path, info: DownloadInfo) -> None:
        """See `ingest.ports.Originals.put`."""
        if self.full_at and object_name.endswith(self.full_at):
            raise Unavailable("The original of the document cannot be stored.")
        await super().put(object_name, source, info)


@dataclass
class Rig:
    """Runs an ingestion on fakes, with at most five files within a file."""

    originals: Originals = field(default_factory=Originals)
    index: MemoryIndex = field(default_factory=MemoryIndex)
    jobs: MemoryJobs = field(default_factory=MemoryJobs)

    def __post_init__(self) -> None:
        models = IndexingModels(
            EmbeddingModels([EmbeddingModel.of(HashingEmbedder())]), self.index, tokens=16, overlap=0
        )
        self.ingestion = FileIngestion(
            self.originals,
            Downloads(MemoryWeb(), self.originals, max_bytes=10_000),
            TextParser(),
            models,
            IndexWriter(self.index, max_chunks=100),
            self.index,
            MemoryPictures(),
            max_bytes=10_000,
            max_members=5,
        )

    def upload(self, files: dict[str, str], generation: int = 1, **changes: object) -> FileJob:
        content = json.dumps(files).encode()
        job = make_job(content, "files.zip", generation=generation)
        self.originals.objects[job.object_name] = content
        return replace(job, document=replace(job.document, **changes))  # type: ignore[arg-type]  # of a test

    async def run(self, job: FileJob, attempt: int = 1, *, earlier_jobs_ended: bool = False) -> State:
        report = await Report.begin(self.jobs, job, attempt)
        state = await self.ingestion.run(job, report, no_earlier_jobs if earlier_jobs_ended else earlier_jobs_run)
        await report.record_end(state)
        return state

    def stored_documents(self) -> dict[str, Document]:
        return {document.sourcefile: document for document, _ in self.index.documents.values()}

    def warnings(self) -> list[tuple[str, str]]:
        return [(warning.part, warning.reason) for warning in self.jobs.history[-1][1].warnings]


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_each_file_is_a_document(rig: Rig) -> None:
    """A file's name begins with the archive's name. The file has the archive's metadata and readers, and names the
    archive.
    """
    job = rig.upload({"a.txt": "Tides.", "b/c.txt": "Ferries."}, metadata_json=b'{"team":"deck"}', groups=("crew",))
    assert await rig.run(job) is State.SUCCEEDED
    stored_documents = rig.stored_documents()
    assert sorted(stored_documents) == ["files.zip", "files.zip/a.txt", "files.zip/b/c.txt"]
    member = stored_documents["files.zip/b/c.txt"]
    assert json.loads(member.metadata_json) == {
        "team": "deck",
        "part_of": "files.zip",
        "part_of_id": job.document.document_id,
    }
    assert (member.groups, member.generation, member.page_count) == (("crew",), 1, 1)
    assert member.document_id == keys.member_id(job.document.document_id, "b/c.txt")
    assert rig.originals.objects[member.original] == b"Ferries."
    progress = rig.jobs.history[-1][1].progress
    assert (progress.documents_done, progress.documents_total, progress.chunks_total) == (2, 3, 3)


async def test_a_file_that_cannot_be_read_is_a_warning(rig: Rig) -> None:
    """The other files are stored, but nothing of the unreadable file. The warnings name the file and its pages."""
    assert (
        await rig.run(rig.upload({"a.txt": "One.\f", "unreadable.txt": "x", "blank.txt": " "})) is State.SUCCEEDED
    )
    assert sorted(rig.stored_documents()) == ["files.zip", "files.zip/a.txt"]
    assert rig.warnings() == [
        ("a.txt", "UNREADABLE_DOCUMENT"),
        ("unreadable.txt", "UNREADABLE_DOCUMENT"),
        ("blank.txt", "UNREADABLE_DOCUMENT"),
    ]
    assert rig.jobs.history[-1][1].warnings[0].page == 2
    assert len(rig.originals.objects) == 2


async def test_a_new_version_removes_missing_files(rig: Rig) -> None:
    """Unchanged files keep their passages and get the new metadata. Removed files lose their originals."""
    await rig.run(rig.upload({"a.txt": "One.", "b.txt": "Two.", "c.txt": "Three."}))
    stored = rig.index.stored
    new = rig.upload({"a.txt": "One.", "b.txt": "Other."}, generation=2, category="x")
    assert await rig.run(new) is State.SUCCEEDED
    stored_documents = rig.stored_documents()
    assert sorted(stored_documents) == ["files.zip", "files.zip/a.txt", "files.zip/b.txt"]
    assert {document.category for document in stored_documents.values()} == {"x"}
    assert {document.generation for document in stored_documents.values()} == {2}
    assert rig.index.stored == stored + 2  # the archive and b.txt
    assert sorted(rig.originals.objects) == sorted(document.original for document in stored_documents.values())


async def test_new_readers_apply_to_all_files(rig: Rig) -> None:
    """If the archive's readers change, the readers of each file change. Otherwise nothing changes."""
    files = {"a.txt": "One."}
    await rig.run(rig.upload(files))
    assert await rig.run(rig.upload(files, generation=2, groups=("staff",))) is State.SUCCEEDED
    assert {document.groups for document in rig.stored_documents().values()} == {("staff",)}
    assert (
        await rig.run(rig.upload(files, generation=3, groups=("staff",)), earlier_jobs_ended=True)
        is State.UNCHANGED
    )


async def test_archives_in_archives(rig: Rig) -> None:
    """Three levels are unpacked. A deeper file becomes a warning with its name."""
    files: dict[str, str] = {"deep.txt": "Deep."}
    for name in ("4.zip", "3.zip", "2.zip"):
        files = {name: json.dumps(files)}
    assert await rig.run(rig.upload(files)) is State.SUCCEEDED
    deepest = "files.zip/2.zip/3.zip/4.zip"
    assert sorted(rig.stored_documents()) == ["files.zip", "files.zip/2.zip", "files.zip/2.zip/3.zip", deepest]
    assert rig.warnings() == [("2.zip/3.zip/4.zip", "PAYLOAD_TOO_LARGE")]


async def test_the_limit_applies_to_all_levels(rig: Rig) -> None:
    """The limit applies to the files of all levels together."""
    inner = json.dumps({f"{number}.txt": "Text." for number in range(4)})
    await rig.run(rig.upload({"a.zip": inner, "b.zip": inner}))
    assert len(rig.stored_documents()) == 1 + 5
    assert rig.warnings() == [("a.zip", "PAYLOAD_TOO_LARGE"), ("b.zip", "PAYLOAD_TOO_LARGE")]


async def test_an_attempt_continues_the_previous_one(rig: Rig) -> None:
    """The next attempt does not store the stored files again. The archive is stored last, so that a stored archive
    is complete.
    """
    job = rig.upload({"a.txt": "One.", "b.txt": "Two."})
    rig.originals.full_at = "-1"
    with pytest.raises(Unavailable):
        await rig.run(job)
    assert sorted(rig.stored_documents()) == ["files.zip/a.txt"]
    rig.originals.full_at = ""
    assert await rig.run(job, 2) is State.SUCCEEDED
    assert sorted(rig.stored_documents()) == ["files.zip", "files.zip/a.txt", "files.zip/b.txt"]
    assert rig.index.stored == 3
