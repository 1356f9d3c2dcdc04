"""The contract of the port, on the fake and on the adapter with a real nats-server."""

import asyncio
import contextlib
import gc
import hashlib
import io
import os
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from causeway.ingest.v1 import ingest_pb2
from causeway_testing.gateway.answering import FakeIngest
from causeway_testing.servers import eventually, free_ports, nats_server
from gateway.clients.backlog import Backlog
from gateway.clients.health_probes import NatsProbe
from gateway.clients.ingest import NatsIngest, job_of
from gateway.clients.nats_connection import NatsLink
from gateway.clients.text_documents import NatsTexts
from gateway.domain.documents import AccessChange, Upload
from gateway.domain.text_documents import TextDocument
from gateway.ports.documents import Ingest
from opentelemetry import trace
from servicekit import keys
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, InvalidRequest, NotFound, RateLimited, Unavailable
from servicekit.original_store import NatsOriginalStore
from servicekit.principal import LOCAL, Principal

Ready = Callable[[NatsLink], Awaitable[None]]
STRANGER = Principal("another tenant")
UPLOAD = Upload("docs", "Fährplan/Ä.md", b"# Times", "guides", b'{"year":2024.0}', ("ann",), ("crew",))


def nats_ingest(link: NatsLink, backlog: Backlog | None = None) -> NatsIngest:
    return NatsIngest(link.ingest, NatsOriginalStore(link.ingest), backlog)


@pytest.fixture(params=["fake", "nats"])
def ingest(request: pytest.FixtureRequest) -> Ingest:
    if request.param == "fake":
        return FakeIngest()
    link: NatsLink = request.getfixturevalue("link")
    return nats_ingest(link)


def soon() -> Deadline:
    return Deadline.after(120)


async def test_an_upload_becomes_a_job(ingest: Ingest) -> None:
    """An upload becomes a queued job that can be read."""
    job = await ingest.submit(LOCAL, UPLOAD, soon())
    assert (job.state, job.index, job.sourcefile) == ("queued", "docs", "Fährplan/Ä.md")
    assert job.document_id == keys.document_id("Fährplan/Ä.md")
    assert job.created_at.endswith("Z")
    assert (job.error_reason, job.attempt) == ("", 0)
    assert await ingest.job(LOCAL, job.id, soon()) == job


async def test_a_change_of_access_becomes_a_job(ingest: Ingest) -> None:
    """A change of access becomes a queued job that can be read."""
    job = await ingest.change_access(LOCAL, AccessChange("docs", "d1", "a.md", ("ann",), ("crew",)), soon())
    assert (job.state, job.index, job.document_id, job.sourcefile) == ("queued", "docs", "d1", "a.md")
    assert await ingest.job(LOCAL, job.id, soon()) == job


async def test_another_tenants_job_does_not_exist(ingest: Ingest) -> None:
    """A job of another tenant and an unknown job cause NotFound."""
    job = await ingest.submit(LOCAL, UPLOAD, soon())
    with pytest.raises(NotFound):
        await ingest.job(STRANGER, job.id, soon())
    for job_id in ("none", "a.b", "*", ">", "", "\x00", "ä b", "x" * 5000):
        with pytest.raises(NotFound) as caught:
            await ingest.job(LOCAL, job_id, soon())
        assert caught.value.resource == job_id


async def test_an_invalid_index_name_is_refused(ingest: Ingest) -> None:
    """An upload to an index with an invalid name is refused."""
    with pytest.raises(InvalidRequest):
        await ingest.submit(LOCAL, Upload("a/b", "a.md", b"x"), soon())


async def test_the_worker_receives_the_whole_upload(link: NatsLink) -> None:
    """The worker receives the original byte for byte, all fields of the upload, and the trace."""
    content = bytes(range(256)) * 2000
    upload = Upload("docs", "a.bin", content, "guides", b'{"year":2024.0}', ("ann",), ("crew",))
    with trace.get_tracer("test").start_as_current_span("upload") as span:
        job = await nats_ingest(link).submit(LOCAL, upload, soon())
        trace_id = format(span.get_span_context().trace_id, "032x")
    assert job.trace_id == trace_id
    transport = await link.ingest()
    subscription = await transport.jetstream.pull_subscribe_bind(keys.ingest_consumer(0), keys.INGEST_STREAM)
    [message] = await subscription.fetch(1, timeout=5)
    await message.ack()
    assert message.headers is not None
    assert trace_id in message.headers["traceparent"]
    queued = ingest_pb2.IngestJob.FromString(message.data)
    assert (queued.job_id, queued.index) == (job.id, "docs")
    assert Principal.from_proto(queued.principal) == LOCAL
    document = queued.document
    assert document.sha256 == hashlib.sha256(content).hexdigest()
    assert (document.size_bytes, document.category, document.metadata_json) == (
        512_000,
        "guides",
        b'{"year":2024.0}',
    )
    assert (list(document.access.oids), list(document.access.groups)) == (["ann"], ["crew"])
    original = io.BytesIO()
    await asyncio.wait_for(transport.originals.get(queued.object_name, original), 60)
    assert original.getvalue() == content


async def test_a_short_original_is_also_in_its_job(link: NatsLink) -> None:
    """The message of the job has the bytes of a short original, and the store has every original."""
    ingest = nats_ingest(link)
    contents = [b"a" * 4096, b"a" * 4097]
    for content in contents:
        await ingest.submit(LOCAL, Upload("docs", "a.txt", content), soon())
    transport = await link.ingest()
    messages = [await transport.jetstream.get_msg(keys.INGEST_STREAM, number) for number in (1, 2)]
    queued = [ingest_pb2.IngestJob.FromString(message.data or b"") for message in messages]
    assert [job.content for job in queued] == [contents[0], b""]
    for job, content in zip(queued, contents, strict=True):
        original = await asyncio.wait_for(transport.originals.get(job.object_name), 60)
        assert original.data == content


async def test_the_worker_fetches_a_url(link: NatsLink) -> None:
    """A job with a URL contains the URL and the name for its original. The gateway stores no original."""
    url = "https://docs.example.org/a"
    job = await nats_ingest(link).submit(LOCAL, Upload("docs", "docs.example.org/a", b"", url=url), soon())
    transport = await link.ingest()
    queued = ingest_pb2.IngestJob.FromString((await transport.jetstream.get_msg(keys.INGEST_STREAM, 1)).data or b"")
    assert (queued.url, queued.document.sha256, queued.document.sourcefile) == (url, "", job.sourcefile)
    assert queued.object_name == keys.original_object(LOCAL.tenant, "docs", job.id)
    assert (await transport.jetstream.stream_info(f"OBJ_{keys.ORIGINALS_BUCKET}")).state.messages == 0
    state = ingest_pb2.Job(state=ingest_pb2.JOB_STATE_PARSING, progress=ingest_pb2.Progress(fetching=True))
    assert job_of(state).stage == "fetching"


async def test_a_full_disk_is_reported(tmp_path: Path, ready: Ready) -> None:
    """A full disk is reported, and an upload that does not fit leaves nothing behind. Accepted jobs remain."""
    extra = f'jetstream {{ store_dir: "{tmp_path / "js"}", max_file_store: 16MB, max_memory_store: 128MB }}\n'
    async with nats_server(tmp_path / "nats", extra=extra) as url:
        async with NatsLink(url, retry=0.05) as link:
            await eventually_async(lambda: link.problem(soon()), "CAUSEWAY_NATS_STREAM_BYTES")
        async with NatsLink(url, stream_bytes=1024 * 1024) as link:
            await ready(link)
            ingest = nats_ingest(link)
            accepted = await ingest.submit(LOCAL, UPLOAD, soon())
            with pytest.raises(Unavailable, match="full") as caught:
                await ingest.submit(LOCAL, Upload("docs", "large.bin", bytes(20_000_000)), soon())
            assert caught.value.retry_after == 30
            transport = await link.ingest()
            info = await transport.jetstream.stream_info(keys.INGEST_STREAM)
            assert (info.state.messages, (await ingest.job(LOCAL, accepted.id, soon())).state) == (1, "queued")
            await ingest.submit(LOCAL, UPLOAD, soon())


async def eventually_async(read: Callable[[], Awaitable[str | None]], expected: str) -> None:
    end = time.monotonic() + 60
    while expected not in (await read() or ""):
        assert time.monotonic() < end
        await asyncio.sleep(0.02)


async def test_each_upload_has_its_own_original(link: NatsLink) -> None:
    """Each upload has its own original, even if the contents are equal."""
    ingest = nats_ingest(link)
    jobs = [await ingest.submit(LOCAL, Upload("docs", name, b"same"), soon()) for name in ("a.md", "b.md")]
    stored = await (await link.ingest()).originals.list()
    assert {original.name for original in stored} == {
        keys.original_object(LOCAL.tenant, "docs", job.id) for job in jobs
    }


async def test_lanes_leave_space_for_other_tenants(link: NatsLink) -> None:
    """The first lanes hold a few jobs of each tenant, and the last lane the rest."""
    ingest = nats_ingest(link)
    for number in range(80):
        await ingest.submit(LOCAL, Upload("docs", f"{number}.md", b"x"), soon())
    await ingest.submit(STRANGER, Upload("docs", "one.md", b"x"), soon())
    jetstream = (await link.ingest()).jetstream
    waiting = [
        (await jetstream.consumer_info(keys.INGEST_STREAM, keys.ingest_consumer(lane))).num_pending
        for lane in range(keys.INGEST_LANES)
    ]
    assert waiting == [8 + 1, 64, 8, 0]


async def test_a_full_queue_refuses_uploads(link: NatsLink) -> None:
    """A tenant above its share gets RateLimited, and a full queue gives Unavailable. Nothing is stored."""
    ingest = nats_ingest(link, Backlog(limit=3, tenant_limit=2))
    for name in ("a", "b"):
        await ingest.submit(LOCAL, Upload("docs", name, b"x"), soon())
    with pytest.raises(RateLimited) as limited:
        await ingest.submit(LOCAL, Upload("docs", "c", b"x"), soon())
    await ingest.submit(STRANGER, Upload("docs", "d", b"x"), soon())
    with pytest.raises(Unavailable) as full:
        await ingest.submit(Principal("third"), Upload("docs", "e", b"x"), soon())
    with pytest.raises(RateLimited):
        await NatsTexts(link.ingest, NatsOriginalStore(link.ingest), Backlog(9, 2)).submit(
            LOCAL, "docs", [TextDocument("a", "x", b"{}", "")], soon()
        )
    assert limited.value.retry_after
    assert full.value.retry_after
    transport = await link.ingest()
    assert len(await transport.originals.list()) == 3
    assert (await transport.jetstream.stream_info(keys.INGEST_STREAM)).state.messages == 3


async def test_the_state_that_a_worker_wrote_is_read(link: NatsLink) -> None:
    """Progress, errors and warnings of a worker are read as they were written."""
    ingest = nats_ingest(link)
    job = await ingest.submit(LOCAL, UPLOAD, soon())
    transport = await link.ingest()
    key = keys.job_key(LOCAL.tenant, job.id)
    entry = await transport.jobs.get(key)
    state = ingest_pb2.Job.FromString(entry.value or b"")
    state.state = ingest_pb2.JOB_STATE_FAILED
    state.attempt = 3
    state.progress.pages_done, state.progress.pages_total = 2, 5
    state.error.reason, state.error.message = "UNREADABLE_DOCUMENT", "It is encrypted."
    state.warnings.add(reason="UNREADABLE_DOCUMENT", message="No text.", page=2)
    state.warnings.add(reason="UNSUPPORTED_MEDIA", message="A film.", part="film.mp4")
    state.warning_count = 3
    await transport.jobs.put(key, state.SerializeToString())
    read = await ingest.job(LOCAL, job.id, soon())
    assert (read.state, read.attempt, read.progress["pages_done"], read.progress["pages_total"]) == (
        "failed",
        3,
        2,
        5,
    )
    assert (read.error_reason, read.error_message) == ("UNREADABLE_DOCUMENT", "It is encrypted.")
    assert [(warning.reason, warning.message, warning.page, warning.part) for warning in read.warnings] == [
        ("UNREADABLE_DOCUMENT", "No text.", 2, ""),
        ("UNSUPPORTED_MEDIA", "A film.", 0, "film.mp4"),
    ]
    assert read.warning_count == 3


async def test_concurrent_uploads_get_one_job_each(link: NatsLink) -> None:
    """Concurrent uploads get one job each, and none is lost."""
    ingest = nats_ingest(link)
    uploads = [Upload("docs", f"{number}.md", b"content %d" % (number % 5)) for number in range(40)]
    jobs = await asyncio.gather(*(ingest.submit(LOCAL, upload, soon()) for upload in uploads))
    assert len({job.id for job in jobs}) == 40
    transport = await link.ingest()
    info = await transport.jetstream.stream_info(keys.INGEST_STREAM)
    assert info.state.messages == 40


async def test_a_call_after_its_deadline_starts_nothing(link: NatsLink) -> None:
    """A call with an expired deadline starts nothing and leaves nothing behind."""
    adapter = nats_ingest(link)
    job = await adapter.submit(LOCAL, UPLOAD, soon())
    for call in (adapter.submit(LOCAL, UPLOAD, Deadline.after(0)), adapter.job(LOCAL, job.id, Deadline.after(0))):
        with pytest.raises(DeadlineExceeded):
            await call
    gc.collect()
    assert (await (await link.ingest()).jetstream.stream_info(keys.INGEST_STREAM)).state.messages == 1


async def test_calls_succeed_after_an_outage_of_nats(tmp_path: Path, ready: Ready) -> None:
    """Calls fail with Unavailable while NATS cannot be reached. Afterwards, accepted jobs can be read again."""
    directory, [port] = tmp_path / "nats", free_ports(1)
    async with NatsLink(f"nats://127.0.0.1:{port}", retry=0.05) as link:
        ingest, probe = nats_ingest(link), NatsProbe(link)
        async with nats_server(directory, port):
            await ready(link)
            job = await ingest.submit(LOCAL, UPLOAD, soon())
        for _ in range(3):
            with pytest.raises(Unavailable) as caught:
                await ingest.submit(LOCAL, UPLOAD, Deadline.after(0.5))
            assert caught.value.retry_after is not None
            with pytest.raises(Unavailable):
                await ingest.job(LOCAL, job.id, Deadline.after(0.5))
            assert await probe.check(Deadline.after(0.5)) is not None
        async with nats_server(directory, port):
            await ready(link)
            assert await ingest.job(LOCAL, job.id, soon()) == job
            await ingest.submit(LOCAL, UPLOAD, soon())
            transport = await link.ingest()
            assert (await transport.jetstream.stream_info(keys.INGEST_STREAM)).state.messages == 2


async def test_a_frozen_nats_is_unavailable(tmp_path: Path, ready: Ready) -> None:
    """Calls to a frozen NATS server fail at their deadline, and later calls succeed."""
    async with nats_server(tmp_path / "nats") as url, NatsLink(url) as link:
        await ready(link)
        ingest = nats_ingest(link)
        with _frozen(tmp_path / "nats"):
            with pytest.raises(Unavailable):
                await ingest.submit(LOCAL, UPLOAD, Deadline.after(0.3))
            assert await link.problem(Deadline.after(0.3)) is not None
        await ingest.submit(LOCAL, UPLOAD, Deadline.after(120))
        assert await link.problem(Deadline.after(120)) is None


@contextlib.contextmanager
def _frozen(directory: Path) -> Iterator[None]:
    """Freeze the nats-server of a directory, whose process id is in the name of its ports file."""
    [ports] = directory.glob("*.ports")
    pid = int(ports.stem.rpartition("_")[2])
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


async def test_the_link_waits_for_nats(tmp_path: Path, ready: Ready) -> None:
    """The link reports a missing NATS server and is ready once the server starts. It can be closed before that."""
    [port] = free_ports(1)
    async with NatsLink(f"nats://127.0.0.1:{port}", retry=0.05) as link:
        assert await link.problem(Deadline.after(120)) == "not connected"
        with pytest.raises(Unavailable):
            await link.ingest()
        await asyncio.sleep(0.2)
        async with nats_server(tmp_path / "nats", port):
            await ready(link)
            assert (await link.ingest()).epoch > 0
    async with asyncio.timeout(60), NatsLink(f"nats://127.0.0.1:{port}"):
        await asyncio.sleep(0.05)


async def test_a_link_without_nats_can_be_closed(tmp_path: Path, ready: Ready) -> None:
    """The link can be closed while NATS cannot be reached."""
    async with nats_server(tmp_path / "nats") as url:
        link = NatsLink(url)
        await link.__aenter__()
        await ready(link)
    await asyncio.wait_for(link.__aexit__(None, None, None), 60)
    await eventually(lambda: len(asyncio.all_tasks()) == 1)
