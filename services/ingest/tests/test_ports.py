"""Contract tests of the ports, for the fakes and for the adapters of NATS and gRPC."""

import asyncio
import io
import json
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from causeway.ingest.v1 import ingest_pb2
from causeway.retriever.v1 import retriever_pb2
from causeway_testing.ingest.memory import MemoryIndex, MemoryJobs, MemoryOriginals, MemoryQueue, make_job
from causeway_testing.servers import eventually, nats_server
from google.protobuf import proto  # type: ignore[attr-defined]  # missing in the type stubs
from ingest.adapters.messages import ProtoTextReader, document_to_message
from ingest.adapters.queue import NatsQueue
from ingest.adapters.retriever import RetrieverIndex
from ingest.adapters.stores import NatsJobs, StoredOriginals
from ingest.domain import (
    Chunk,
    DownloadInfo,
    Failure,
    FileJob,
    IndexProperties,
    Outcome,
    Progress,
    State,
    Status,
    Text,
    TextsJob,
    Validators,
    VectorSpace,
)
from ingest.ports import Batch, Index, Jobs, Originals, Queue
from nats.aio.client import Client
from servicekit import keys, nats
from servicekit.channel import open_channel
from servicekit.errors import Conflict, NotFound, StaleGeneration, Unavailable, UnreadableDocument
from servicekit.nats import IngestTransport
from servicekit.original_store import NatsOriginalStore, OriginalStore
from servicekit.s3_originals import S3OriginalStore

CONTENT = b"An original.\n" * 20_000
JOB = make_job(b"x")
SPACE = VectorSpace("model", 4)


def in_nats(transport: IngestTransport) -> NatsOriginalStore:
    async def ready() -> IngestTransport:
        return transport

    return NatsOriginalStore(ready)


@pytest.fixture(params=["memory", "nats", "s3"])
def store(request: pytest.FixtureRequest) -> OriginalStore | None:
    """Return an empty store; None if the fake has none."""
    if request.param == "memory":
        return None
    if request.param == "nats":
        return in_nats(request.getfixturevalue("transport"))
    return S3OriginalStore(request.getfixturevalue("s3_settings"))


@pytest.fixture
async def originals(store: OriginalStore | None) -> Originals:
    """Return originals that contain `CONTENT` under the name ``here``."""
    if store is None:
        memory = MemoryOriginals()
        memory.objects["here"] = CONTENT
        return memory
    await store.put("here", io.BytesIO(CONTENT))
    return StoredOriginals(store)


async def test_an_original_is_written_to_a_file(originals: Originals, tmp_path: Path) -> None:
    """`fetch` writes an original unchanged to a file. A missing original raises NotFound."""
    await originals.fetch("here", tmp_path / "a", len(CONTENT))
    assert (tmp_path / "a").read_bytes() == CONTENT
    with pytest.raises(NotFound):
        await originals.fetch("elsewhere", tmp_path / "b", 1)


async def test_a_small_original_is_written_to_a_file(transport: IngestTransport, tmp_path: Path) -> None:
    """An original of a single message and an empty original are read unchanged."""
    for name, content in (("small", b"# Small"), ("empty", b"")):
        await transport.originals.put(name, content)
        await StoredOriginals(in_nats(transport)).fetch(name, tmp_path / name, len(content))
        assert (tmp_path / name).read_bytes() == content


async def test_a_worker_stores_an_original(originals: Originals, tmp_path: Path) -> None:
    """`put` stores an original with its facts, and does not replace an existing original."""
    assert await originals.download_info("new") is None
    (tmp_path / "a").write_bytes(CONTENT)
    (tmp_path / "b").write_bytes(b"other")
    known = DownloadInfo(".html", Validators('"1"', "Sat, 21 Nov 2026 10:00:00 GMT"))
    await originals.put("new", tmp_path / "a", known)
    await originals.put("new", tmp_path / "b", DownloadInfo())
    assert await originals.download_info("new") == known
    await originals.fetch("new", tmp_path / "c", 0)
    assert (tmp_path / "c").read_bytes() == CONTENT
    assert await originals.download_info("here") == DownloadInfo()


async def test_an_original_is_removed(originals: Originals, tmp_path: Path) -> None:
    """`remove` deletes an original. A repeated removal is not an error."""
    await originals.remove("here")
    await originals.remove("here")
    with pytest.raises(NotFound):
        await originals.fetch("here", tmp_path / "a", len(CONTENT))


async def test_an_incomplete_original_times_out(transport: IngestTransport, tmp_path: Path) -> None:
    """If the pieces of an original disappear during the read, as after another upload, the read times out."""
    info = await transport.originals.put("torn", CONTENT)
    stream = f"OBJ_{keys.ORIGINALS_BUCKET}"
    await transport.jetstream.purge_stream(stream, subject=f"$O.{keys.ORIGINALS_BUCKET}.C.{info.nuid}")
    with pytest.raises(Unavailable):
        await StoredOriginals(in_nats(transport), seconds=0.3).fetch("torn", tmp_path / "a", 10)


@pytest.fixture(params=["memory", "nats"])
def jobs(request: pytest.FixtureRequest, transport: IngestTransport, client: Client) -> Jobs:
    """Return the store of jobs' states."""
    if request.param == "memory":
        return MemoryJobs()
    return NatsJobs(client, transport.jobs)


async def test_states_are_replaced_by_revision(jobs: Jobs) -> None:
    """`read` returns the written state. A write with an outdated revision raises Conflict."""
    job = make_job(b"x")
    assert await jobs.read(job) is None
    created = datetime(2025, 3, 1, 12, tzinfo=UTC)
    status = Status(
        State.FAILED,
        2,
        Progress(1, 2, 3, 4, 5, 6),
        Failure("UNAVAILABLE", "Später vielleicht."),
        created,
        "ab" * 16,
        tuple(Outcome),
        committing=True,
        counted_attempts=3,
        waiting_since=created,
    )
    first = await jobs.write(job, status, 0)
    assert await jobs.read(job) == (status, first)
    with pytest.raises(Conflict):
        await jobs.write(job, status, 0)
    done = replace(status, state=State.SUCCEEDED, failure=None)
    second = await jobs.write(job, done, first)
    with pytest.raises(Conflict):
        await jobs.write(job, status, first)
    assert await jobs.read(job) == (done, second)


async def test_a_record_that_cannot_be_read_is_replaced(client: Client, transport: IngestTransport) -> None:
    """An invalid record of a job does not stop the job."""
    job = make_job(b"x")
    await transport.jobs.put(keys.job_key("acme", job.job_id), b"\xff\xff garbage")
    jobs = NatsJobs(client, transport.jobs)
    found = await jobs.read(job)
    assert found is not None
    assert found[0] == Status(State.QUEUED)
    await jobs.write(job, Status(State.SUCCEEDED, 1), found[1])


@pytest.fixture(params=["memory", "nats"])
async def queue(request: pytest.FixtureRequest, client: Client, transport: IngestTransport) -> tuple[Queue, Any]:
    """Return a queue and a function that puts a job on it."""
    if request.param == "memory":
        memory = MemoryQueue()

        async def put_memory(job: FileJob) -> None:
            memory.put(job, {"traceparent": "x"})

        return memory, put_memory

    async def put_nats(job: FileJob) -> None:
        message = ingest_pb2.IngestJob(
            job_id=job.job_id,
            principal=job.principal.to_proto(),
            index=job.index,
            document=document_to_message(job.document),
            object_name=job.object_name,
            content=job.content,
        )
        await transport.jetstream.publish(
            keys.ingest_subject(0, job.principal.tenant, job.index),
            message.SerializeToString(),
            headers={"Nats-Msg-Id": job.job_id, "traceparent": "x"},
        )

    return NatsQueue(client, transport), put_nats


async def test_a_job_is_redelivered_until_it_is_acknowledged(queue: tuple[Queue, Any]) -> None:
    """A returned job is redelivered with a higher attempt and the same generation. An acknowledged job is not."""
    jobs_queue, put = queue
    assert await jobs_queue.take() is None
    job = replace(make_job(b"x", generation=7), content=b"x")
    await put(job)
    first = await jobs_queue.take()
    assert first is not None
    assert isinstance(first.job, FileJob)
    assert (first.job.job_id, first.attempt, first.headers["traceparent"]) == (job.job_id, 1, "x")
    assert first.job.content == b"x"
    assert replace(first.job.document, generation=7) == job.document
    await first.extend()
    await first.redeliver(0)
    second = await jobs_queue.take()
    assert second is not None
    assert isinstance(second.job, FileJob)
    assert second.attempt == 2
    assert second.job.document.generation == first.job.document.generation > 0
    await second.acknowledge()
    assert await jobs_queue.take() is None


async def test_later_jobs_have_higher_generations(client: Client, transport: IngestTransport) -> None:
    """A later job has a higher generation, which orders the versions of a document."""
    queue = NatsQueue(client, transport)
    generations = []
    for number in range(3):
        job = make_job(b"x")
        message = ingest_pb2.IngestJob(
            job_id=f"{number}",
            principal=job.principal.to_proto(),
            index=job.index,
            document=document_to_message(job.document),
            object_name=job.object_name,
        )
        await transport.jetstream.publish(keys.ingest_subject(0, "acme", "library"), message.SerializeToString())
        delivery = await queue.take()
        assert delivery is not None
        assert isinstance(delivery.job, FileJob)
        await delivery.acknowledge()
        generations.append(delivery.job.document.generation)
    assert generations == sorted(set(generations))


async def test_whether_earlier_jobs_have_ended(client: Client, transport: IngestTransport) -> None:
    """`earlier_jobs_ended` returns True when all earlier jobs have left the queue, including returned jobs."""
    queue = NatsQueue(client, transport)
    for number in range(4):
        message = ingest_pb2.IngestJob(
            job_id=f"{number}",
            principal=JOB.principal.to_proto(),
            index="library",
            document=document_to_message(JOB.document),
            object_name="o",
        )
        await transport.jetstream.publish(keys.ingest_subject(0, "acme", "library"), message.SerializeToString())
    first, second, third = [await queue.take() for _ in range(3)]
    assert first is not None
    assert second is not None
    assert third is not None
    assert [await delivery.earlier_jobs_ended() for delivery in (first, second, third)] == [True, False, False]
    await second.acknowledge()
    assert not await third.earlier_jobs_ended()
    await first.redeliver(0)
    assert not await third.earlier_jobs_ended()
    again = await queue.take()
    while again is not None and again.job.job_id != "0":
        again = await queue.take()
    assert again is not None
    await again.acknowledge()
    assert await third.earlier_jobs_ended()


async def test_a_job_with_texts(client: Client, transport: IngestTransport, tmp_path: Path) -> None:
    """A job with texts arrives unchanged, and its object is read text by text."""
    queue = NatsQueue(client, transport)
    batch = ingest_pb2.TextBatch(count=2, size_bytes=17, sha256="ab" * 32, existing_only=True)
    message = ingest_pb2.IngestJob(
        job_id="j", principal=JOB.principal.to_proto(), index="library", object_name="o", texts=batch
    )
    await transport.jetstream.publish(keys.ingest_subject(0, "acme", "library"), message.SerializeToString())
    delivery = await queue.take()
    assert delivery is not None
    job = delivery.job
    assert isinstance(job, TextsJob)
    assert (job.count, job.size_bytes, job.sha256, job.existing_only, job.object_name) == (
        2,
        17,
        "ab" * 32,
        True,
        "o",
    )
    assert job.generation > 0
    documents = [
        ingest_pb2.TextDocument(document_id="ä", text="Ein Text.", metadata_json=b"{}"),
        ingest_pb2.TextDocument(document_id="b", text="x" * 300),
    ]
    with (tmp_path / "texts").open("wb") as file:
        for document in documents:
            proto.serialize_length_prefixed(document, file)
    read = list(ProtoTextReader().read(tmp_path / "texts"))
    assert read == [Text("ä", "Ein Text.", b"{}"), Text("b", "x" * 300)]
    (tmp_path / "texts").write_bytes(b"\xff\xff garbage")
    with pytest.raises(UnreadableDocument):
        list(ProtoTextReader().read(tmp_path / "texts"))


async def test_a_message_that_is_not_a_job_becomes_a_dead_letter(
    client: Client, transport: IngestTransport, gateway: Any
) -> None:
    """An invalid message becomes a dead letter with a reason at once, and the queue delivers the next job."""
    queue = NatsQueue(client, transport)
    subject = keys.ingest_subject(0, "acme", "library")
    for garbage in (b"\xff\xff garbage", b"", ingest_pb2.IngestJob(job_id="x").SerializeToString()):
        await transport.jetstream.publish(subject, garbage)
        assert await queue.take() is None
    await gateway.emptied()
    dead = list(await gateway.dead())
    assert [letter.subject for letter in dead] == [keys.ingest_dead_subject("acme", "library")] * 3
    assert dead[0].data == b"\xff\xff garbage"
    assert dead[0].headers["Causeway-Reason"] == "INVALID_REQUEST"


@pytest.fixture(params=["memory", "grpc"])
async def index(request: pytest.FixtureRequest, retriever_target: str) -> AsyncIterator[Index]:
    """Return an empty index."""
    if request.param == "memory":
        yield MemoryIndex()
        return
    descriptor = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
    async with open_channel(retriever_target, [descriptor]) as channel:
        yield RetrieverIndex(channel)


async def batches(count: int, failure: Exception | None = None) -> AsyncGenerator[Batch, None]:
    for number in range(count):
        chunk = Chunk(number, f"Text {number}", f"Name\nText {number}", 1, ("Heading",))
        yield Batch([chunk], np.eye(1, 4, dtype=np.float32))
    if failure is not None:
        raise failure


@pytest.mark.parametrize("count", [3, 20], ids=["small", "large"])
async def test_a_document_is_stored_and_found(index: Index, count: int) -> None:
    """A document is stored unchanged. A repeated store changes nothing, and an older version is refused."""
    assert await index.is_ready()
    job = make_job(b"x", generation=5)
    document = replace(job.document, oids=("o",), groups=("g",), metadata_json=b'{"a":1}', language="de")
    job = replace(job, document=document)
    assert await index.find(job, job.document.document_id) is None
    await index.store(job, job.document, SPACE, batches(count), 5)
    await index.store(job, job.document, SPACE, batches(count), 5)
    assert await index.find(job, job.document.document_id) == job.document
    older = replace(job, document=replace(job.document, generation=4))
    with pytest.raises(StaleGeneration):
        await index.store(older, older.document, SPACE, batches(count), 5)


async def test_an_index_and_a_document_are_looked_up(index: Index) -> None:
    """`look_up` returns what `properties` and `find` return: without index, without document, and with both."""
    job = make_job(b"x")
    assert await index.look_up(job, job.document.document_id) == (None, None)
    await index.store(job, job.document, SPACE, batches(1), 5)
    assert await index.look_up(job, "other") == (IndexProperties(SPACE), None)
    assert await index.look_up(job, job.document.document_id) == (IndexProperties(SPACE), job.document)


@pytest.mark.parametrize("is_old", [False, True], ids=["new", "old"])
async def test_a_lookup_in_an_older_retriever(retriever: Any, retriever_target: str, is_old: bool) -> None:
    """With an older retriever, which has no look-up, a second call finds the document. During an upgrade, the
    retriever can be older than the worker.
    """
    descriptor = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
    async with open_channel(retriever_target, [descriptor]) as channel:
        index, job = RetrieverIndex(channel), make_job(b"x")
        await index.store(job, job.document, SPACE, batches(1), 5)
        retriever.is_old = is_old
        assert await index.look_up(job, job.document.document_id) == (IndexProperties(SPACE), job.document)
        assert await index.look_up(job, "other") == (IndexProperties(SPACE), None)
        assert retriever.lookups == (0 if is_old else 2)


@pytest.mark.parametrize(
    ("count", "is_old", "at_once"),
    [(1, False, 1), (16, False, 1), (17, False, 0), (16, True, 0), (17, True, 0)],
)
async def test_a_small_document_is_one_message(
    retriever: Any, retriever_target: str, count: int, is_old: bool, at_once: int
) -> None:
    """A small document is one message. Larger documents, and all documents for an older retriever, are streamed."""
    descriptor = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
    retriever.is_old = is_old
    async with open_channel(retriever_target, [descriptor]) as channel:
        job = make_job(b"x")
        await RetrieverIndex(channel).store(job, job.document, SPACE, batches(count), 5)
    assert (retriever.at_once, retriever.commits) == (at_once, 1)
    _, chunks = retriever.documents["acme", "library", job.document.document_id]
    assert [chunk.text for chunk in chunks] == [f"Text {number}" for number in range(count)]


async def test_files_within_a_document(index: Index) -> None:
    """All files within a document are listed, and removed with the files inside them. Other documents stay."""
    job = make_job(b"x", "mail.eml")
    outer = job.document.document_id
    assert await index.members(job, outer) == []
    await index.store(job, job.document, SPACE, batches(3), 5)
    for name, part_of in (("a", outer), ("b", outer), ("c", "b"), ("other", "")):
        facts = json.dumps({keys.PART_OF_ID: part_of} if part_of else {}).encode()
        document = replace(job.document, document_id=name, sourcefile=name, metadata_json=facts)
        await index.store(job, document, SPACE, batches(3), 5)
    assert [document.document_id for document in await index.members(job, outer)] == ["a", "b"]
    assert await index.remove(job, []) == []
    assert [document.document_id for document in await index.remove(job, ["b"])] == ["b", "c"]
    assert [document.document_id for document in await index.members(job, outer)] == ["a"]
    assert await index.find(job, "other") is not None


async def test_chunk_settings_of_an_index(retriever: Any, retriever_target: str) -> None:
    """`properties` has the chunk settings of the index, including zeros. Missing settings are None."""
    descriptor = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
    async with open_channel(retriever_target, [descriptor]) as channel:
        index = RetrieverIndex(channel)
        job = make_job(b"x")
        await index.store(job, job.document, SPACE, batches(1), 5)
        retriever.settings.chunk_overlap = 0
        assert await index.properties(job) == IndexProperties(SPACE, None, 0)
        retriever.settings.chunk_tokens = 64
        assert await index.properties(job) == IndexProperties(SPACE, 64, 0)
        retriever.settings.ocr = False
        assert await index.properties(job) == IndexProperties(SPACE, 64, 0, ocr=False)


async def test_an_index_refuses_vectors_of_another_model(index: Index) -> None:
    """An index has the model and the dimension of its first document, and refuses other vectors."""
    job = make_job(b"x")
    assert await index.properties(job) is None
    await index.store(job, job.document, SPACE, batches(1), 5)
    assert await index.properties(job) == IndexProperties(SPACE)
    assert await index.properties(replace(job, index="another")) is None
    other = replace(job, document=replace(job.document, document_id="other"))
    for space in (VectorSpace("another", 4), VectorSpace("model", 5)):
        with pytest.raises(Unavailable, match="another"):
            await index.store(other, other.document, space, batches(1), 5)
    assert await index.find(other, "other") is None


async def test_metadata_of_a_document_is_updated(index: Index) -> None:
    """`update` keeps the chunks and returns whether anything changed. It does not change a newer version."""
    job = make_job(b"x", generation=5)
    with pytest.raises(NotFound):
        await index.update(job, job.document)
    await index.store(job, job.document, SPACE, batches(3), 5)
    newer = replace(job.document, generation=6)
    assert not await index.update(job, newer)
    assert await index.find(job, newer.document_id) == newer
    newest = replace(newer, generation=7, metadata_json=b'{"a":1}', groups=("g",), category="c", language="de")
    assert await index.update(job, newest)
    assert not await index.update(job, newest)
    assert await index.find(job, newest.document_id) == newest
    with pytest.raises(StaleGeneration):
        await index.update(job, newer)
    with pytest.raises(NotFound):
        await index.update(job, replace(newest, generation=8, sha256="0" * 64))


async def test_an_error_of_the_batches_stores_nothing(index: Index) -> None:
    """An error of the batches reaches the caller unchanged, and the document is not stored."""
    job = make_job(b"x")
    with pytest.raises(ZeroDivisionError, match="bug"):
        await index.store(job, job.document, SPACE, batches(2, ZeroDivisionError("a bug")), 5)
    assert await index.find(job, job.document.document_id) is None


async def test_an_unreachable_retriever_is_unavailable() -> None:
    """Without a retriever, each call raises Unavailable in time, and `is_ready` returns False."""
    descriptor = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
    async with open_channel("127.0.0.1:1", [descriptor]) as channel:
        index = RetrieverIndex(channel)
        assert not await index.is_ready()
        with pytest.raises(Unavailable):
            await index.find(JOB, "a")
        with pytest.raises(Unavailable):
            await index.properties(JOB)
        with pytest.raises(Unavailable):
            await index.look_up(JOB, "a")
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable):
                await index.store(JOB, JOB.document, SPACE, batches(3), 30)


async def test_a_cancelled_store_leaves_nothing(retriever_target: str, retriever: Any) -> None:
    """If `store` is cancelled in the middle of a document, the stream to the retriever is cancelled."""
    retriever.reading.clear()
    descriptor = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]
    async with open_channel(retriever_target, [descriptor]) as channel:
        index = RetrieverIndex(channel)
        task = asyncio.create_task(index.store(JOB, JOB.document, SPACE, batches(3), 30))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    retriever.reading.set()
    assert not retriever.documents


async def test_an_unreachable_broker_is_unavailable(tmp_path: Path) -> None:
    """Without a broker, writing a state and taking a job fail immediately, without a time-out."""
    async with nats_server(tmp_path / "nats") as url:
        client: Client = await nats.connect(url, "test")
        transport = await nats.ingest_transport(client)
        jobs, queue = NatsJobs(client, transport.jobs), NatsQueue(client, transport)
    try:
        await eventually(lambda: not client.is_connected)
        async with asyncio.timeout(1):
            with pytest.raises(Unavailable):
                await jobs.write(make_job(b"x"), Status(State.QUEUED), 0)
            with pytest.raises(Unavailable):
                await queue.take()
    finally:
        await client.close()
