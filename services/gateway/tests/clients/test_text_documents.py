"""The contract of the port, on the fake and on the adapter with a real nats-server."""

import asyncio
import hashlib
import io
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from causeway.ingest.v1 import ingest_pb2
from causeway_testing.gateway.indexes import FakeIndexes, FakeTexts
from causeway_testing.servers import free_ports, nats_server
from gateway.clients.nats_connection import NatsLink
from gateway.clients.text_documents import NatsTexts
from gateway.domain.documents import Job
from gateway.domain.text_documents import TextDocument, TextOutcome
from gateway.ports.index_management import Texts
from google.protobuf import proto  # type: ignore[attr-defined]  # in no stub yet
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, PayloadTooLarge, Unavailable
from servicekit.original_store import NatsOriginalStore
from servicekit.principal import LOCAL

Ready = Callable[[NatsLink], Awaitable[None]]
Work = Callable[..., Any]


def document(name: str, text: str = "A text.", metadata: bytes = b"{}") -> TextDocument:
    return TextDocument(name, text, metadata, hashlib.sha256(text.encode()).hexdigest())


def soon() -> Deadline:
    return Deadline.after(120)


async def work(link: NatsLink, **end: Any) -> ingest_pb2.IngestJob:
    """Take the next job and record its end, as a worker does."""
    transport = await link.ingest()
    subscription = await transport.jetstream.pull_subscribe_bind(keys.ingest_consumer(0), keys.INGEST_STREAM)
    [message] = await subscription.fetch(1, timeout=5)
    await message.ack()
    job = ingest_pb2.IngestJob.FromString(message.data)
    key = keys.job_key(LOCAL.tenant, job.job_id)
    state = ingest_pb2.Job.FromString((await transport.jobs.get(key)).value or b"")
    for name, value in end.items():
        if isinstance(value, list):
            getattr(state, name).extend(value)
        elif name == "error":
            state.error.CopyFrom(value)
        else:
            setattr(state, name, value)
    await transport.jobs.put(key, state.SerializeToString())
    return job


def nats_texts(link: NatsLink) -> NatsTexts:
    return NatsTexts(link.ingest, NatsOriginalStore(link.ingest))


@pytest.fixture(params=["fake", "nats"])
def texts(request: pytest.FixtureRequest) -> Texts:
    if request.param == "fake":
        return FakeTexts(FakeIndexes({"docs": {}}))
    link: NatsLink = request.getfixturevalue("link")
    return nats_texts(link)


async def test_texts_become_one_job(texts: Texts) -> None:
    """Texts become one queued job of the index. The job has no document id."""
    job = await texts.submit(LOCAL, "docs", [document("a"), document("b")], soon())
    assert (job.state, job.index, job.document_id, job.sourcefile) == ("queued", "docs", "", "")
    assert job.id
    with pytest.raises(InvalidRequest):
        await texts.submit(LOCAL, "a/b", [document("a")], soon())


async def test_the_call_waits_until_the_job_ends(link: NatsLink) -> None:
    """The call returns the ended job, with the outcomes in the order of the texts."""
    texts = nats_texts(link)
    job = await texts.submit(LOCAL, "docs", [document("a"), document("b")], soon())
    waiting = asyncio.create_task(texts.finished(LOCAL, job, soon()))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    outcomes = [ingest_pb2.TEXT_OUTCOME_NOT_FOUND, ingest_pb2.TEXT_OUTCOME_STORED]
    await work(link, state=ingest_pb2.JOB_STATE_SUCCEEDED, outcomes=outcomes)
    done = await waiting
    assert (done.state, done.outcomes) == ("succeeded", (TextOutcome.NOT_FOUND, TextOutcome.STORED))


async def test_a_failed_job_raises_its_error(link: NatsLink) -> None:
    """A failed job raises the error that the worker recorded."""
    texts = nats_texts(link)
    job = await texts.submit(LOCAL, "docs", [document("a")], soon())
    error = ingest_pb2.JobError(reason="PAYLOAD_TOO_LARGE", message="Too long.")
    await work(link, state=ingest_pb2.JOB_STATE_FAILED, error=error)
    with pytest.raises(PayloadTooLarge, match="Too long"):
        await texts.finished(LOCAL, job, soon())


async def test_a_job_that_exceeds_the_deadline_is_returned(link: NatsLink) -> None:
    """A job that exceeds the deadline is returned in its current state."""
    texts = nats_texts(link)
    job = await texts.submit(LOCAL, "docs", [document("a")], soon())
    await work(link, state=ingest_pb2.JOB_STATE_INDEXING)
    late: Job = await texts.finished(LOCAL, job, Deadline.after(0.2))
    assert (late.state, late.outcomes) == ("indexing", ())
    assert late.progress["documents_total"] == 1


async def test_the_worker_receives_the_texts_unchanged(link: NatsLink) -> None:
    """The object of the job contains every text unchanged, including large texts."""
    documents = [document("ä", "Ein Text.\n", b'{"a" : 1.0}'), document("b", "word " * 500_000)]
    await nats_texts(link).submit(LOCAL, "docs", documents, soon(), existing_only=True)
    job = await work(link)
    assert job.object_name == keys.texts_object(LOCAL.tenant, job.job_id)
    assert (job.texts.count, job.texts.existing_only, job.HasField("document")) == (2, True, False)
    target = io.BytesIO()
    await (await link.ingest()).originals.get(job.object_name, target)
    raw = target.getvalue()
    assert (len(raw), hashlib.sha256(raw).hexdigest()) == (job.texts.size_bytes, job.texts.sha256)
    target.seek(0)
    read = [proto.parse_length_prefixed(ingest_pb2.TextDocument, target) for _ in range(2)]
    assert [(document.document_id, document.text, document.metadata_json) for document in read] == [
        (document.document_id, document.text, document.metadata_json) for document in documents
    ]


async def test_texts_during_an_outage_of_nats(tmp_path: Path, ready: Ready) -> None:
    """Texts are refused while NATS cannot be reached. The call for an accepted job waits until NATS is back."""
    directory, [port] = tmp_path / "nats", free_ports(1)
    async with NatsLink(f"nats://127.0.0.1:{port}", retry=0.05) as link:
        texts = nats_texts(link)
        with pytest.raises(Unavailable):
            await texts.submit(LOCAL, "docs", [document("a")], Deadline.after(1))
        async with nats_server(directory, port):
            await ready(link)
            job = await texts.submit(LOCAL, "docs", [document("a")], soon())
            waiting = asyncio.create_task(texts.finished(LOCAL, job, Deadline.after(120)))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        async with nats_server(directory, port):
            await ready(link)
            await work(link, state=ingest_pb2.JOB_STATE_UNCHANGED, outcomes=[ingest_pb2.TEXT_OUTCOME_UNCHANGED])
            assert (await waiting).state == "unchanged"
