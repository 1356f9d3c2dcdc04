"""Jobs that change the readers of a document."""

from dataclasses import dataclass, field, replace

import pytest
from causeway_testing.ingest.memory import MemoryIndex, MemoryJobs, earlier_jobs_run, no_earlier_jobs
from ingest.documents.access_changes import AccessChanges, EarlierJobsPending
from ingest.documents.report import Report
from ingest.domain import AccessJob, Document, State
from servicekit import keys
from servicekit.errors import NotFound, StaleGeneration
from servicekit.principal import Principal

ARCHIVE = Document("zip", "files.zip", "a" * 64, 7, generation=3, content_type="application/zip")
MEMBER = Document(
    keys.member_id("zip", "a.txt"), "files.zip/a.txt", "b" * 64, 2, b'{"part_of_id":"zip"}', generation=3
)
NOTE = Document("note", "note.txt", "c" * 64, 5, b'{"n":1}', ("ann",), generation=2, category="notes", original="o")


@dataclass
class Rig:
    """Runs changes on fakes."""

    index: MemoryIndex = field(default_factory=MemoryIndex)
    jobs: MemoryJobs = field(default_factory=MemoryJobs)

    def __post_init__(self) -> None:
        self.changes = AccessChanges(self.index)
        for document in (ARCHIVE, MEMBER, NOTE):
            self.index.documents["acme", "library", document.document_id] = (document, [])

    def document(self, document_id: str) -> Document:
        return self.index.documents["acme", "library", document_id][0]

    def job(self, document_id: str, *oids: str, groups: tuple[str, ...] = (), generation: int = 9) -> AccessJob:
        requested = Document(document_id, "name", "", 0, oids=oids, groups=groups, generation=generation)
        return AccessJob(
            job_id=f"j{generation}",
            principal=Principal("acme"),
            index="library",
            object_name="",
            document=requested,
        )

    async def run(self, job: AccessJob, attempt: int = 1, *, earlier_jobs_ended: bool = True) -> State:
        report = await Report.begin(self.jobs, job, attempt)
        return await self.changes.run(job, report, no_earlier_jobs if earlier_jobs_ended else earlier_jobs_run)


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_only_the_readers_change(rig: Rig) -> None:
    """Only the readers and the generation change. If the readers are the same, the job is UNCHANGED."""
    assert await rig.run(rig.job("note", "bob", groups=("crew",))) is State.SUCCEEDED
    assert rig.document("note") == replace(NOTE, oids=("bob",), groups=("crew",), generation=9)
    assert await rig.run(rig.job("note", "bob", groups=("crew",), generation=10)) is State.UNCHANGED
    assert rig.document("note").generation == 10
    assert await rig.run(rig.job("note", generation=11)) is State.SUCCEEDED
    assert rig.document("note") == replace(NOTE, oids=(), generation=11)


async def test_files_within_a_file_change_with_it(rig: Rig) -> None:
    """The files within a file get the new readers too."""
    assert await rig.run(rig.job("zip", "bob")) is State.SUCCEEDED
    for document in (ARCHIVE, MEMBER):
        assert rig.document(document.document_id) == replace(document, oids=("bob",), generation=9)
    assert rig.document("note") == NOTE


async def test_a_change_waits_for_older_jobs(rig: Rig) -> None:
    """The change waits for older jobs, because one of them may store a version of the document."""
    with pytest.raises(EarlierJobsPending):
        await rig.run(rig.job("note", "bob"), earlier_jobs_ended=False)
    assert rig.document("note") == NOTE


async def test_a_newer_version_keeps_its_readers(rig: Rig) -> None:
    """A version that was accepted after the change keeps its own readers."""
    with pytest.raises(StaleGeneration):
        await rig.run(rig.job("note", "bob", generation=1))
    assert rig.document("note") == NOTE


async def test_a_missing_document(rig: Rig) -> None:
    """The job fails if the document does not exist. It succeeds if an earlier attempt changed the document and the
    document was removed since.
    """
    with pytest.raises(NotFound):
        await rig.run(rig.job("none", "bob"))
    await rig.run(rig.job("note", "bob", generation=12))
    del rig.index.documents["acme", "library", "note"]
    assert await rig.run(rig.job("note", "bob", generation=12), attempt=2) is State.SUCCEEDED


async def test_a_repeated_change_changes_nothing(rig: Rig) -> None:
    """A second attempt has the same result, whether the first attempt ended or changed only the files within."""
    await rig.run(rig.job("zip", "bob"))
    changed = dict(rig.index.documents)
    rig.index.documents["acme", "library", "zip"] = (ARCHIVE, [])
    assert await rig.run(rig.job("zip", "bob"), attempt=2) is State.SUCCEEDED
    assert rig.index.documents == changed
    assert await rig.run(rig.job("zip", "bob"), attempt=3) is State.SUCCEEDED
    assert rig.index.documents == changed
