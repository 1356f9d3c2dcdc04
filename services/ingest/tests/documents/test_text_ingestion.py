import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.ingest.memory import (
    LineReader,
    MemoryIndex,
    MemoryJobs,
    MemoryOriginals,
    TextParser,
    earlier_jobs_run,
    make_texts,
    no_earlier_jobs,
)
from embedding.models import EmbeddingModel, EmbeddingModels
from ingest.documents.embedding_models import IndexingModels
from ingest.documents.index_writer import IndexWriter
from ingest.documents.report import Report
from ingest.documents.text_ingestion import TextIngestion
from ingest.domain import Outcome, TextsJob
from servicekit.errors import CausewayError, NotFound, PayloadTooLarge, Unavailable, UnreadableDocument

STORED, UNCHANGED = Outcome.STORED, Outcome.UNCHANGED


@dataclass
class Rig:
    """Runs jobs with texts on fakes."""

    ingestion: TextIngestion
    originals: MemoryOriginals
    index: MemoryIndex
    jobs: MemoryJobs

    def send(self, *texts: tuple[str, str, str], generation: int = 1, existing_only: bool = False) -> TextsJob:
        job, content = make_texts(texts, generation=generation, existing_only=existing_only)
        self.originals.objects[job.object_name] = content
        return job

    async def run(
        self, job: TextsJob, attempt: int = 1, *, earlier_jobs_ended: bool = False
    ) -> tuple[Outcome, ...]:
        return await self.ingestion.run(
            job,
            await Report.begin(self.jobs, job, attempt),
            no_earlier_jobs if earlier_jobs_ended else earlier_jobs_run,
        )

    def text(self, document_id: str) -> str:
        _, chunks = self.index.documents["acme", "library", document_id]
        return "".join((chunk.separator or "") + chunk.text[chunk.overlap :] for chunk in chunks)

    def facts(self, document_id: str) -> tuple[bytes, int]:
        document, _ = self.index.documents["acme", "library", document_id]
        return document.metadata_json, document.generation


@pytest.fixture
def rig() -> Rig:
    originals, index = MemoryOriginals(), MemoryIndex()
    models = IndexingModels(EmbeddingModels([EmbeddingModel.of(HashingEmbedder())]), index, tokens=16, overlap=5)
    ingestion = TextIngestion(
        originals,
        LineReader(),
        models,
        IndexWriter(index, max_chunks=50),
        index,
        TextParser(),
        max_characters=10_000,
        max_chunks=50,
    )
    return Rig(ingestion, originals, index, MemoryJobs())


async def test_texts_become_documents(rig: Rig) -> None:
    """Each text is stored unchanged, with its id as its name. The job returns the outcomes in order."""
    long = "  One sentence of six words here. \n\n\n" * 20
    job = rig.send(("a", "Short.", '{"n":1}'), ("ä/b", long, "{}"), ("c", "\tTab\r\n", "{}"))
    assert await rig.run(job) == (STORED, STORED, STORED)
    assert [rig.text(name) for name in ("a", "ä/b", "c")] == ["Short.", long, "\tTab\r\n"]
    document, chunks = rig.index.documents["acme", "library", "ä/b"]
    assert (document.sourcefile, document.content_type, document.size_bytes) == ("ä/b", "text/plain", len(long))
    assert len(chunks) > 5
    assert all(chunk.indexed_text == chunk.text.strip() for chunk in chunks)
    progress = rig.jobs.history[-1][1].progress
    assert progress.documents_total == 3


async def test_an_unchanged_text(rig: Rig) -> None:
    """An unchanged text only gets the newer generation. If only the metadata differs, only the metadata is updated.
    Another text is stored.
    """
    await rig.run(rig.send(("a", "Text.", '{"n":1}'), ("b", "Text.", "{}"), ("c", "Text.", "{}")))
    again = rig.send(("a", "Text.", '{"n":1}'), ("b", "Text.", '{"n":2}'), ("c", "Other.", "{}"), generation=2)
    assert await rig.run(again) == (UNCHANGED, STORED, STORED)
    assert [rig.facts(name) for name in "abc"] == [(b'{"n":1}', 2), (b'{"n":2}', 2), (b"{}", 2)]
    assert rig.text("c") == "Other."
    assert rig.index.stored == 4


async def test_no_write_without_earlier_jobs(rig: Rig) -> None:
    """If no older job is running, an unchanged document causes no write."""
    await rig.run(rig.send(("a", "Text.", '{"n":1}'), ("b", "Text.", "{}")))
    again = rig.send(("a", "Text.", '{"n":1}'), ("b", "Text.", '{"n":2}'), generation=2)
    assert await rig.run(again, earlier_jobs_ended=True) == (UNCHANGED, STORED)
    assert [rig.facts(name) for name in "ab"] == [(b'{"n":1}', 1), (b'{"n":2}', 2)]


async def test_an_update_creates_no_document(rig: Rig) -> None:
    """With ``existing_only``, a text without a document has the outcome NOT_FOUND and is not stored."""
    await rig.run(rig.send(("a", "Text.", "{}"), ("b", "Text.", "{}")))
    job = rig.send(
        ("b", "Other.", "{}"), ("x", "Text.", "{}"), ("a", "Text.", "{}"), generation=2, existing_only=True
    )
    assert await rig.run(job) == (STORED, Outcome.NOT_FOUND, UNCHANGED)
    assert {key[2] for key in rig.index.documents} == {"a", "b"}


async def test_a_redelivery_changes_nothing(rig: Rig) -> None:
    """After a partial or complete attempt, another attempt has the same result as a single attempt."""
    texts = [(f"d{number}", f"Text {number}.", "{}") for number in range(20)]
    await rig.run(rig.send(texts[19]))
    job = rig.send(*texts, generation=2)
    reading, rig.index.reading = rig.index.reading, asyncio.Event()
    half = asyncio.create_task(rig.run(job))
    await asyncio.sleep(0.05)
    rig.index.reading = reading
    half.cancel()
    with pytest.raises(asyncio.CancelledError):
        await half
    expected = (*[STORED] * 19, UNCHANGED)
    assert await rig.run(job, attempt=2) == expected
    stored, before = rig.index.stored, dict(rig.index.documents)
    assert (await rig.run(job, attempt=3))[:19] == expected[:19]
    assert (rig.index.stored, rig.index.documents) == (stored, before)


async def test_the_later_of_two_jobs_wins(rig: Rig) -> None:
    """The later job wins in both orders of execution, even if its text is already stored."""
    await rig.run(rig.send(("a", "Zero.", "{}"), ("b", "Zero.", "{}"), generation=1))
    older = rig.send(("a", "One.", "{}"), ("b", "One.", '{"n":1}'), generation=2)
    newer = rig.send(("a", "Zero.", "{}"), ("b", "Two.", '{"n":2}'), generation=3)
    assert await rig.run(newer) == (UNCHANGED, STORED)
    assert await rig.run(older) == (Outcome.SUPERSEDED, Outcome.SUPERSEDED)
    assert (rig.text("a"), rig.text("b"), rig.facts("b")) == ("Zero.", "Two.", (b'{"n":2}', 3))


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        ("x" * 10_001, PayloadTooLarge),
        ("Five words in a sentence. " * 380, PayloadTooLarge),
    ],
)
async def test_one_text_that_cannot_be_stored_stops_all(rig: Rig, bad: str, error: type[Exception]) -> None:
    """If one text cannot be stored, even the last of many, nothing is stored."""
    texts: Sequence[tuple[str, str, str]] = [(f"d{number}", "Fine.", "{}") for number in range(9)]
    with pytest.raises(error):
        await rig.run(rig.send(*texts, ("bad", bad, "{}")))
    assert not rig.index.documents


async def test_a_damaged_batch(rig: Rig) -> None:
    """If the object is missing, or its bytes or its number of texts differ, the job fails and nothing is stored."""
    cases: list[tuple[TextsJob, type[CausewayError]]] = []
    swapped = rig.send(("a", "Text.", "{}"))
    rig.originals.objects[swapped.object_name] = b"x"
    cases.append((swapped, UnreadableDocument))
    short = rig.send(("a", "Text.", "{}"))
    object.__setattr__(short, "count", 2)
    cases.append((short, UnreadableDocument))
    cases.append((make_texts([("a", "Text.", "{}")])[0], NotFound))
    for job, error in cases:
        with pytest.raises(error):
            await rig.run(job)
    assert not rig.index.documents


async def test_an_unavailable_retriever(rig: Rig) -> None:
    """If the retriever is unavailable, the attempt raises Unavailable, and a later attempt stores all texts."""
    job = rig.send(*[(f"d{number}", "Text.", "{}") for number in range(9)])
    rig.index.down = True
    with pytest.raises(Unavailable):
        await rig.run(job)
    rig.index.down = False
    assert await rig.run(job, attempt=2) == (STORED,) * 9


async def test_a_change_of_the_language_splits_source_code_again(rig: Rig) -> None:
    """If the language of the code changes, the text is stored again. If only the metadata changes, it is only
    updated.
    """
    kinds = ["{}", '{"suffix":".py"}', '{"suffix":".rb"}', '{"suffix":".rb","n":1}']
    types = []
    for generation, metadata in enumerate(kinds, 1):
        rig.index.stored = 0
        assert await rig.run(rig.send(("a", "x = 1", metadata), generation=generation)) == (STORED,)
        document, _ = rig.index.documents["acme", "library", "a"]
        types.append((document.content_type, rig.index.stored))
    source = "text/x-source; suffix="
    assert types == [("text/plain", 1), (f"{source}.py", 1), (f"{source}.rb", 1), (f"{source}.rb", 0)]
