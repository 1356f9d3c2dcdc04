import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.ingest.memory import (
    LineReader,
    MemoryDelivery,
    MemoryIndex,
    MemoryJobs,
    MemoryOriginals,
    MemoryPictures,
    MemoryQueue,
    TextParser,
    make_job,
    make_texts,
)
from causeway_testing.ingest.web import MemoryWeb
from causeway_testing.servers import eventually, measured
from embedding.models import EmbeddingModel, EmbeddingModels
from ingest.documents.access_changes import AccessChanges
from ingest.documents.downloads import Downloads
from ingest.documents.embedding_models import IndexingModels
from ingest.documents.file_ingestion import FileIngestion
from ingest.documents.index_writer import IndexWriter
from ingest.documents.ingestion import Ingestion
from ingest.documents.report import EARLIER_JOBS_PENDING, Report
from ingest.documents.text_ingestion import TextIngestion
from ingest.domain import AccessJob, Document, Job, Outcome, State, Status
from ingest.jobs import worker
from ingest.jobs.worker import Worker
from ingest.parsing.content import NO_MEMBERS, MemberLimits, Part
from ingest.ports import Batch
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from servicekit.errors import InvalidRequest, Unavailable
from servicekit.principal import Principal
from structlog.testing import capture_logs


class OddParser(TextParser):
    """A `TextParser` with a defect for certain file names."""

    async def parse(
        self,
        path: Path,
        sourcefile: str,
        *,
        pictures: bool = False,
        members: MemberLimits = NO_MEMBERS,
        ocr: bool = True,
    ) -> AsyncGenerator[Part, None]:
        if "defect" in sourcefile:
            raise ZeroDivisionError("a bug")
        if sourcefile == "deaf.txt":
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
            await asyncio.sleep(3600)
        async for part in super().parse(path, sourcefile, pictures=pictures, members=members, ocr=ocr):
            yield part


class Rig:
    """Runs a worker with fakes of its dependencies."""

    def __init__(self) -> None:
        self.queue, self.jobs, self.index, self.originals = (
            MemoryQueue(),
            MemoryJobs(),
            MemoryIndex(),
            MemoryOriginals(),
        )
        embedding = EmbeddingModels([EmbeddingModel.of(HashingEmbedder())])
        models = IndexingModels(embedding, self.index, tokens=200, overlap=30)
        writer = IndexWriter(self.index, max_chunks=100)
        self.ingestion = Ingestion(
            FileIngestion(
                self.originals,
                Downloads(MemoryWeb(), self.originals, max_bytes=10_000),
                OddParser(),
                models,
                writer,
                self.index,
                MemoryPictures(),
                max_bytes=10_000,
            ),
            TextIngestion(
                self.originals,
                LineReader(),
                models,
                writer,
                self.index,
                OddParser(),
                max_characters=10_000,
                max_chunks=100,
            ),
            AccessChanges(self.index),
            self.originals,
        )
        self.worker = Worker(
            self.queue,
            self.jobs,
            self.index,
            self.ingestion,
            slots=2,
            max_attempts=3,
            outage_seconds=60,
            backoff_seconds=0.5,
            heartbeat_seconds=0.05,
        )
        self.stop = asyncio.Event()
        self.grace = 5.0
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.worker.run(self.stop, self.grace))

    def upload(
        self,
        name: str,
        content: bytes = b"Some text.",
        headers: dict[str, str] | None = None,
        *,
        generation: int = 1,
    ) -> Job:
        job = make_job(content, name, generation=generation)
        self.originals.objects[job.object_name] = content
        self.queue.put(job, headers)
        return job

    def state(self, job: Job) -> State:
        record = self.jobs.records.get((job.principal.tenant, job.job_id))
        return record[0].state if record else State.QUEUED

    async def wait_until_queue_is_empty(self) -> None:
        await eventually(lambda: self.queue.unsettled == 0, what="an empty queue")


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    rig.stop.set()
    rig.index.reading.set()
    if rig.task is not None:
        await rig.task


async def test_jobs_are_run_and_removed_from_the_queue(rig: Rig) -> None:
    """Each job has its final state before it leaves the queue."""
    good, bad = rig.upload("good.txt"), rig.upload("unreadable.pdf")
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert rig.state(good) is State.SUCCEEDED
    assert rig.state(bad) is State.FAILED
    [reason] = [status.failure.reason for _, status in rig.jobs.history if status.failure]
    assert reason == "UNREADABLE_DOCUMENT"
    assert not rig.queue.dead
    assert not rig.queue.delays


async def test_a_failed_dependency_causes_a_retry(rig: Rig) -> None:
    """If a dependency fails, the job is requeued with its reason and a growing delay. Later it succeeds."""
    rig.originals.failures = 2
    job = rig.upload("a.txt")
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert rig.queue.delays == [0.5, 1.0]
    assert rig.state(job) is State.SUCCEEDED
    waiting = [status for _, status in rig.jobs.history if status.state is State.QUEUED]
    assert [status.failure and status.failure.reason for status in waiting] == ["UNAVAILABLE"] * 2
    assert rig.jobs.history[-1][1].failure is None


async def test_a_defect_is_given_up_after_the_last_attempt(rig: Rig) -> None:
    """After the last attempt, the job fails without internal details and becomes a dead letter. Others run. The log
    line of the job has the number of the attempt.
    """
    job, next_job = rig.upload("defect.txt"), rig.upload("good.txt")
    with capture_logs() as logs:
        rig.start()
        await rig.wait_until_queue_is_empty()
    [given_up] = [line for line in logs if line["event"] == "job given up"]
    assert (given_up["job"], given_up["attempt"], given_up["state"]) == (job.job_id, 3, "dead")
    assert rig.state(job) is State.FAILED
    [(dead, failure)] = rig.queue.dead
    assert dead.job_id == job.job_id
    assert failure.reason == "INTERNAL"
    assert [status.given_up for job_id, status in rig.jobs.history if job_id == job.job_id][-1]
    assert "bug" not in failure.message
    attempts = [status.attempt for job_id, status in rig.jobs.history if job_id == job.job_id]
    assert max(attempts) == 3
    assert rig.state(next_job) is State.SUCCEEDED


@pytest.mark.parametrize(
    ("name", "owner", "method", "state"),
    [
        ("defect.txt", MemoryDelivery, "copy_to_dead_letters", "dead"),
        ("unreadable.pdf", Report, "record_end", "failed"),
        ("a.txt", Report, "record_end", "succeeded"),
    ],
)
async def test_only_a_recorded_end_is_counted(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, name: str, owner: type, method: str, state: str
) -> None:
    """If the end of a job cannot be recorded, the job is delivered again, and its end is counted once."""
    original, failures = getattr(owner, method), [Unavailable("The message broker does not answer.")]

    async def fail_once(*args: Any, **kwargs: Any) -> None:
        if failures:
            raise failures.pop()
        await original(*args, **kwargs)

    def count() -> float:
        return sum(value for labels, value in measured("causeway_ingest_jobs_total") if labels["state"] == state)

    monkeypatch.setattr(owner, method, fail_once)
    monkeypatch.setattr(worker, "_SETTLE_SECONDS", -1)
    before = count()
    job = rig.upload(name)
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert not failures
    assert rig.state(job).is_final
    assert count() == before + 1


async def test_an_outage_counts_no_attempt(rig: Rig) -> None:
    """A job waits during any number of outages, with their reason and start recorded, and finally succeeds."""
    rig.originals.failures = 7  # of three attempts
    job = rig.upload("a.txt")
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert rig.state(job) is State.SUCCEEDED
    waiting = [status for _, status in rig.jobs.history if status.state is State.QUEUED]
    assert len(waiting) == 7
    assert {status.counted_attempts for status in waiting} == {0}
    assert len({status.waiting_since for status in waiting}) == 1
    last = rig.jobs.history[-1][1]
    assert (last.attempt, last.counted_attempts, last.waiting_since) == (8, 1, None)
    assert not rig.queue.dead


async def test_a_job_fails_after_the_longest_outage(rig: Rig) -> None:
    """After the maximum wait, the job becomes a dead letter with the reason for its wait."""
    rig.originals.failures = 1
    job = rig.upload("a.txt")
    long_ago = datetime.now(UTC) - timedelta(seconds=61)
    rig.jobs.records["acme", job.job_id] = (Status(State.QUEUED, waiting_since=long_ago), 1)
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert rig.state(job) is State.FAILED
    [(_, failure)] = rig.queue.dead
    assert failure.reason == "UNAVAILABLE"
    assert "waited" in failure.message


async def test_a_wait_for_earlier_jobs_has_no_limit(rig: Rig) -> None:
    """A change of readers waits for earlier jobs, however long they take, and keeps the start of its wait."""
    stored = Document("id of a.txt", "a.txt", "a" * 64, 1, generation=1)
    rig.index.documents["acme", "library", stored.document_id] = (stored, [])
    job = AccessJob(
        job_id="change",
        principal=Principal("acme"),
        index="library",
        object_name="",
        document=replace(stored, oids=("ann",), generation=2),
    )
    long_ago = datetime.now(UTC) - timedelta(seconds=61)
    rig.jobs.records["acme", "change"] = (
        Status(State.QUEUED, failure=EARLIER_JOBS_PENDING, waiting_since=long_ago),
        1,
    )
    rig.queue.earlier_jobs = 5  # more than the attempts
    rig.queue.put(job, attempt=2)
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert rig.state(job) is State.SUCCEEDED
    assert not rig.queue.dead
    waiting = [status for _, status in rig.jobs.history if status.state is State.QUEUED]
    assert len(waiting) == 5
    assert {(status.failure, status.waiting_since) for status in waiting} == {(EARLIER_JOBS_PENDING, long_ago)}


async def test_a_clock_set_back_fails_no_job(rig: Rig) -> None:
    """A job whose wait starts in the future continues to wait, and succeeds after the outage."""
    rig.originals.failures = 4
    job = rig.upload("a.txt")
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    rig.jobs.records["acme", job.job_id] = (Status(State.QUEUED, waiting_since=tomorrow), 1)
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert rig.state(job) is State.SUCCEEDED
    assert not rig.queue.dead


async def test_a_cancelled_job_leaves_nothing(rig: Rig) -> None:
    """A job that is cancelled while it is queued or runs stores nothing, and its original is removed."""
    rig.index.reading.clear()
    running = rig.upload("a.txt")
    waiting = rig.upload("b.txt")
    rig.jobs.records["acme", waiting.job_id] = (Status(State.CANCELLED), 1)
    rig.start()
    await eventually(lambda: rig.state(running) is State.INDEXING)
    status, revision = rig.jobs.records["acme", running.job_id]
    await rig.jobs.write(running, replace(status, state=State.CANCELLED), revision)
    rig.index.reading.set()
    await rig.wait_until_queue_is_empty()
    assert [rig.state(job) for job in (running, waiting)] == [State.CANCELLED] * 2
    assert rig.index.stored == 0
    assert not rig.originals.objects


async def test_originals_stay_with_their_documents(rig: Rig) -> None:
    """Each document keeps one original: that of the version in the index."""
    first = rig.upload("a.txt", b"One.")
    rig.start()
    await rig.wait_until_queue_is_empty()
    rig.upload("a.txt", b"One.", generation=2)
    await rig.wait_until_queue_is_empty()
    assert list(rig.originals.objects) == [first.object_name]
    newer = rig.upload("a.txt", b"Two.", generation=3)
    rig.upload("unreadable.pdf")
    await rig.wait_until_queue_is_empty()
    assert list(rig.originals.objects) == [newer.object_name]


async def test_a_refused_document_leaves_no_original(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the retriever refuses a document after the commit, its original is removed."""

    async def store(job: Job, document: Document, space: object, batches: AsyncIterator[Batch], _: float) -> None:
        async for _batch in batches:
            pass
        raise InvalidRequest("The metadata are invalid.", field="metadata")

    monkeypatch.setattr(rig.index, "store", store)
    job = rig.upload("a.txt")
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert rig.jobs.history[-1][1].committing
    assert rig.state(job) is State.FAILED
    assert not rig.originals.objects


async def test_a_failed_job_keeps_the_original_of_its_stored_document(rig: Rig) -> None:
    """If an earlier attempt has stored the document, its original remains although the job fails."""
    job = rig.upload("a.txt")
    rig.start()
    await rig.wait_until_queue_is_empty()
    [(document, _)] = rig.index.documents.values()
    assert document.original == job.object_name
    await rig.ingestion.remove_unused_object(job, State.FAILED)
    assert list(rig.originals.objects) == [job.object_name]


async def test_the_object_of_a_job_is_removed(rig: Rig) -> None:
    """The object of a job with texts is removed at the job's end or redelivery. It remains for a dead letter."""
    good, content = make_texts([("a", "Text.", "{}")])
    late, _ = make_texts([("b", "Text.", "{}")])
    dead, _ = make_texts([("c", "Text.", "{}")])
    failed, _ = make_texts([("d", "Text.", "{}")])
    for job in (good, late, dead, failed):
        rig.originals.objects[job.object_name] = content
        rig.queue.put(job)
    rig.jobs.records["acme", late.job_id] = (Status(State.SUCCEEDED, 1), 1)
    rig.jobs.records["acme", failed.job_id] = (Status(State.FAILED, 1), 1)
    rig.jobs.records["acme", dead.job_id] = (Status(State.INDEXING, 0, counted_attempts=3), 1)
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert list(rig.originals.objects) == [dead.object_name]
    assert [job.job_id for job, _ in rig.queue.dead] == [dead.job_id]
    outcomes = {job_id: status.outcomes for job_id, status in rig.jobs.history}
    assert outcomes[good.job_id] == (Outcome.STORED,)


async def test_a_job_that_kills_its_workers_becomes_a_dead_letter(rig: Rig) -> None:
    """A delivery beyond the last attempt does not run, because all earlier attempts crashed their workers."""
    job = make_job(b"x")
    rig.jobs.records["acme", job.job_id] = (Status(State.INDEXING, 3, counted_attempts=3), 1)
    rig.queue.put(job, attempt=4)
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert rig.state(job) is State.FAILED
    assert len(rig.queue.dead) == 1
    assert rig.index.stored == 0


async def test_jobs_wait_for_an_unavailable_retriever(rig: Rig) -> None:
    """A long outage of the retriever does not count as an attempt."""
    rig.index.down = True
    job = rig.upload("a.txt")
    rig.start()
    await asyncio.sleep(0.3)
    assert rig.jobs.history == []
    rig.index.down = False
    await rig.wait_until_queue_is_empty()
    assert rig.state(job) is State.SUCCEEDED
    assert rig.jobs.history[-1][1].attempt == 1


async def test_the_end_is_recorded_when_the_broker_is_back(rig: Rig) -> None:
    """If states cannot be recorded, the job stays queued and nothing becomes visible. Later, both happen once."""
    rig.index.reading.clear()
    job = rig.upload("a.txt")
    rig.start()
    await eventually(lambda: rig.state(job) is State.INDEXING)
    rig.jobs.down = True
    rig.index.reading.set()
    await asyncio.sleep(0.1)
    assert (rig.index.stored, rig.queue.unsettled) == (0, 1)
    rig.jobs.down = False
    await rig.wait_until_queue_is_empty()
    assert rig.state(job) is State.SUCCEEDED
    assert (rig.index.stored, rig.queue.delays) == (1, [])


async def test_a_defect_around_an_attempt_does_not_end_the_worker(rig: Rig) -> None:
    """If the store of states raises an unknown error, the worker returns the job and continues."""
    rig.jobs.defect = ZeroDivisionError("a bug")
    job = rig.upload("a.txt")
    rig.start()
    await rig.wait_until_queue_is_empty()
    assert rig.state(job) is State.SUCCEEDED
    assert len(rig.queue.delays) == 1


async def test_heartbeats_are_sent(rig: Rig) -> None:
    """The worker sends heartbeats during a long job."""
    rig.index.reading.clear()
    rig.upload("a.txt")
    rig.start()
    await eventually(lambda: rig.queue.heartbeats >= 3)
    rig.index.reading.set()
    await rig.wait_until_queue_is_empty()


async def test_a_redelivered_job_that_has_ended(rig: Rig) -> None:
    """The worker removes a redelivered job that has ended from the queue, without running it again."""
    job = rig.upload("a.txt")
    rig.start()
    await rig.wait_until_queue_is_empty()
    rig.queue.put(job, attempt=2)
    await rig.wait_until_queue_is_empty()
    assert rig.index.stored == 1
    assert rig.state(job) is State.SUCCEEDED


async def test_stopping_lets_running_jobs_finish(rig: Rig) -> None:
    """When the worker stops, running jobs end within the grace period, and waiting jobs do not start."""
    rig.index.reading.clear()
    running = [rig.upload("a.txt"), rig.upload("b.txt")]
    rig.start()
    await eventually(lambda: all(rig.state(job) is State.INDEXING for job in running))
    waiting = rig.upload("c.txt")
    rig.stop.set()
    await asyncio.sleep(0.05)
    rig.index.reading.set()
    assert rig.task is not None
    await rig.task
    assert [rig.state(job) for job in running] == [State.SUCCEEDED] * 2
    assert rig.state(waiting) is State.QUEUED
    assert rig.queue.unsettled == 1


async def test_a_job_is_returned_after_the_grace_period(rig: Rig) -> None:
    """After the grace period, a running job returns to the queue at once, and nothing of it is stored."""
    rig.grace = 0.1
    rig.index.reading.clear()
    job = rig.upload("a.txt")
    rig.start()
    await eventually(lambda: rig.state(job) is State.INDEXING)
    rig.stop.set()
    assert rig.task is not None
    await rig.task
    assert rig.queue.delays == [0]
    assert rig.queue.unsettled == 1
    assert rig.index.stored == 0


async def test_a_job_that_swallows_its_cancellation(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """If a job suppresses its cancellation, the worker still ends and returns the job."""
    monkeypatch.setattr(worker, "_CANCEL_SECONDS", 0.1)
    rig.grace = 0.1
    job = rig.upload("deaf.txt")
    rig.start()
    await eventually(lambda: rig.state(job) is State.PARSING)
    rig.stop.set()
    assert rig.task is not None
    await asyncio.wait_for(rig.task, 60)
    assert rig.queue.unsettled == 1
    assert rig.queue.delays == [0]


async def test_a_job_links_to_its_upload(rig: Rig) -> None:
    """The span of a job starts a new trace and links to the span of the upload."""
    exporter = InMemorySpanExporter()
    if not isinstance(trace.get_tracer_provider(), TracerProvider):  # one for all tests of a process
        trace.set_tracer_provider(TracerProvider())
    provider = trace.get_tracer_provider()
    assert isinstance(provider, TracerProvider)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    upload = "0af7651916cd43dd8448eb211c80319c"
    job = rig.upload("a.txt", headers={"traceparent": f"00-{upload}-b7ad6b7169203331-01"})
    rig.start()
    await rig.wait_until_queue_is_empty()
    await eventually(lambda: any(span.name == "process CAUSEWAY_INGEST" for span in exporter.get_finished_spans()))
    [span] = [span for span in exporter.get_finished_spans() if span.name == "process CAUSEWAY_INGEST"]
    assert span.parent is None
    assert format(span.context.trace_id, "032x") != upload
    assert [format(link.context.trace_id, "032x") for link in span.links] == [upload]
    assert span.attributes is not None
    assert span.attributes["causeway.job_id"] == job.job_id
