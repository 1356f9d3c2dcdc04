"""The worker with a real nats-server and a retriever behind real gRPC."""

import asyncio
import json
import socket
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web
from causeway.ingest.v1 import ingest_pb2
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.servers import eventually, free_ports
from embedding.models import EmbeddingModel, EmbeddingModels
from servicekit import keys
from structlog.testing import capture_logs

SUCCEEDED, UNCHANGED, FAILED = (
    ingest_pb2.JOB_STATE_SUCCEEDED,
    ingest_pb2.JOB_STATE_UNCHANGED,
    ingest_pb2.JOB_STATE_FAILED,
)
PAGE = {"content-type": "text/html", "etag": '"1"'}
MARKDOWN = b"# Fares\n\nAn adult pays 18 pounds.\n\n## Children\n\nChildren pay nothing.\n"


async def test_a_pdf_is_ingested_by_page(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str, make_pdf: Callable[..., bytes]
) -> None:
    """Pages, headings and metadata are stored, progress is recorded, and the original remains."""
    await run_worker(retriever_target)
    retriever.reading.clear()
    content = make_pdf(*[f"This is what page {number} says." for number in range(1, 91)], title="Chapter")
    job_id = await gateway.submit(
        "guide.pdf", content, metadata_json=b'{"a": 1}', category="travel", access={"groups": ["staff"]}
    )
    seen = await gateway.until(job_id, lambda job: job.state == ingest_pb2.JOB_STATE_INDEXING)
    assert (seen.progress.pages_done, seen.progress.pages_total) == (90, 90)
    assert seen.progress.chunks_total == 90
    retriever.reading.set()
    job = await gateway.finished(job_id)
    assert (job.state, job.attempt, job.HasField("error")) == (SUCCEEDED, 1, False)
    assert job.progress.chunks_done == job.progress.chunks_total == 90
    assert (job.created_at.seconds, job.trace_id) == (1_700_000_000, "ab" * 16)
    assert job.updated_at.seconds > job.created_at.seconds
    document, chunks = retriever.documents["acme", "library", keys.document_id("guide.pdf")]
    assert (document.content_type, document.page_count, document.category) == ("application/pdf", 90, "travel")
    assert document.metadata_json == b'{"a": 1}'
    assert list(document.access.groups) == ["staff"]
    assert [chunk.page for chunk in chunks] == list(range(1, 91))
    assert chunks[41].text == "Chapter\n\nThis is what page 42 says."
    assert chunks[41].indexed_text == "guide\n" + chunks[41].text
    assert list(chunks[41].headings) == ["Chapter"]
    await gateway.emptied()
    assert (await gateway.transport.originals.get(document.original)).data == content


async def test_markdown_is_ingested_by_section(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str
) -> None:
    """A document without pages has page 0 and the heading path of each chunk."""
    await run_worker(retriever_target)
    job = await gateway.finished(await gateway.submit("fares.md", MARKDOWN))
    assert job.state == SUCCEEDED
    document, chunks = retriever.documents["acme", "library", keys.document_id("fares.md")]
    assert (document.content_type, document.page_count) == ("text/markdown", 0)
    assert [(chunk.page, list(chunk.headings)) for chunk in chunks] == [(0, ["Fares"]), (0, ["Fares", "Children"])]


async def test_unchanged_and_new_content(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str
) -> None:
    """The same content is unchanged. New content with the same name replaces it."""
    await run_worker(retriever_target)
    first = await gateway.finished(await gateway.submit("fares.md", MARKDOWN))
    again = await gateway.finished(await gateway.submit("fares.md", MARKDOWN))
    newer = await gateway.finished(await gateway.submit("fares.md", b"# Fares\n\nFree for all.\n"))
    assert [first.state, again.state, newer.state] == [SUCCEEDED, UNCHANGED, SUCCEEDED]
    assert retriever.texts("fares.md") == ["Fares\n\nFree for all."]
    assert retriever.commits == 2


async def test_every_bad_file_fails_with_its_reason(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str, bad_files: list[Any]
) -> None:
    """A bad file fails without a retry, and nothing of it is stored. The good files are stored."""
    await run_worker(retriever_target)
    submitted = [(bad, await gateway.submit(bad.name, bad.content)) for bad in bad_files]
    good = await gateway.submit("good.md", MARKDOWN)
    for bad, job_id in submitted:
        job = await gateway.finished(job_id)
        assert (bad.name, job.state, job.error.reason) == (bad.name, FAILED, bad.reason)
        assert bad.message in job.error.message, bad.name
        assert job.attempt == 1
    assert (await gateway.finished(good)).state == SUCCEEDED
    assert len(retriever.documents) == 1
    assert list(await gateway.dead()) == []
    await gateway.emptied()


NAMES = (
    "über die Fähre.md",
    "a/b\\c: d?.md",
    "with\nline and\ttab.md",
    "émoji 🚢.md",
    "../../etc/passwd.md",
    "'\";--",
)


async def test_names_may_contain_any_characters(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str
) -> None:
    """A name is text: slashes, line breaks and letters of all scripts are allowed."""
    await run_worker(retriever_target)
    jobs = {name: await gateway.submit(name, MARKDOWN) for name in NAMES}
    for name, job_id in jobs.items():
        assert (await gateway.finished(job_id)).state == SUCCEEDED
        document, _ = retriever.documents["acme", "library", keys.document_id(name)]
        assert document.sourcefile == name


async def test_jobs_wait_for_a_retriever_that_is_down(
    gateway: Any, run_worker: Any, retriever: Any, serve_retriever: Any
) -> None:
    """While the retriever is down, jobs stay queued, and no attempt counts towards the limit, not even a running
    one. Later they succeed.
    """
    [port] = free_ports(1)
    first = await gateway.submit("a.md", MARKDOWN)
    with capture_logs() as logs:
        await run_worker(f"127.0.0.1:{port}", ingest_max_attempts=1)
        await eventually(lambda: "the retriever does not answer; jobs wait" in [line["event"] for line in logs])
    queued = await gateway.job(first)
    assert (queued.state, queued.attempt) == (ingest_pb2.JOB_STATE_QUEUED, 0)
    retriever.reading.clear()
    async with serve_retriever(retriever, port):
        await eventually(lambda: retriever.upserts == 1, within=60)
    retriever.reading.set()
    waiting = await gateway.until(first, lambda job: job.error.reason == "UNAVAILABLE")
    assert waiting.state == ingest_pb2.JOB_STATE_QUEUED
    assert not retriever.documents
    async with serve_retriever(retriever, port):
        job = await gateway.finished(first)
        assert (job.state, job.attempt, job.HasField("error")) == (SUCCEEDED, 2, False)
    assert retriever.commits == 1


async def test_a_poison_message_goes_to_the_dead_letters(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str
) -> None:
    """A job that fails in all attempts becomes a dead letter with its message and reason."""
    retriever.defect = ZeroDivisionError("a bug")
    await run_worker(retriever_target, ingest_max_attempts=2)
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    job_id = await gateway.submit("a.md", MARKDOWN, headers={"traceparent": parent})
    job = await gateway.finished(job_id)
    assert (job.state, job.attempt, job.error.reason) == (FAILED, 2, "INTERNAL")
    [letter] = await gateway.dead()
    assert letter.subject == keys.ingest_dead_subject("acme", "library")
    assert ingest_pb2.IngestJob.FromString(letter.data).job_id == job_id
    assert letter.headers["Causeway-Reason"] == "INTERNAL"
    assert letter.headers["Causeway-Job-Id"] == job_id
    assert letter.headers["Causeway-Attempts"] == "2"
    assert letter.headers["traceparent"] == parent
    await gateway.emptied()


async def test_a_document_that_hangs_the_parser_fails_alone(
    gateway: Any, run_worker: Any, retriever_target: str
) -> None:
    """The job fails with the reason, and other jobs run in the meantime."""
    await run_worker(retriever_target, ingest_parse_seconds=2, ingest_parse_memory=400 * 1024**2)
    heavy = await gateway.submit("heavy.md", b"- *item* with `marks` and [links](x)\n" * 150_000)
    light = [await gateway.submit(f"{number}.md", MARKDOWN) for number in range(3)]
    for job_id in light:
        assert (await gateway.finished(job_id)).state == SUCCEEDED
    job = await gateway.finished(heavy)
    assert job.state == FAILED
    assert job.error.reason in ("UNREADABLE_DOCUMENT", "PAYLOAD_TOO_LARGE")


async def test_limits(gateway: Any, run_worker: Any, retriever_target: str, make_pdf: Callable[..., bytes]) -> None:
    """Documents over a limit of pages, characters, chunks or bytes are refused, and the message names the limit."""
    await run_worker(
        retriever_target,
        ingest_max_pages=2,
        ingest_max_characters=5000,
        ingest_max_chunks=3,
        ingest_max_bytes=50_000,
    )
    files = {
        "pages.pdf": (make_pdf("1", "2", "3"), "2"),
        "characters.txt": (b"word " * 2000, "5000"),
        "chunks.txt": (b"Four words in sentence. " * 200, "3"),
        "bytes.txt": (b"x" * 50_001, "50000"),
    }
    for name, (content, limit) in files.items():
        job = await gateway.finished(await gateway.submit(name, content))
        assert (name, job.state, job.error.reason) == (name, FAILED, "PAYLOAD_TOO_LARGE")
        assert limit in job.error.message


@pytest.mark.parametrize("is_older_first", [True, False], ids=["older first", "newer first"])
async def test_the_later_of_two_uploads_wins(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str, is_older_first: bool
) -> None:
    """Of two concurrent versions, the later upload wins, in both orders of completion."""
    await run_worker(retriever_target, ingest_jobs=2)
    held = retriever.reading
    held.clear()
    older = await gateway.submit("a.md", b"# A\n\nOlder.\n")
    await eventually(lambda: retriever.upserts == 1)
    if not is_older_first:
        retriever.reading = asyncio.Event()  # `held` still holds the older version
        retriever.reading.set()
    newer = await gateway.submit("a.md", b"# A\n\nNewer.\n")
    await eventually(lambda: retriever.upserts == 2)
    if not is_older_first:
        assert (await gateway.finished(newer)).state == SUCCEEDED
    held.set()
    late = await gateway.finished(older)
    assert (late.state, late.error.reason) == ((SUCCEEDED, "") if is_older_first else (FAILED, "STALE_GENERATION"))
    assert (await gateway.finished(newer)).state == SUCCEEDED
    assert retriever.texts("a.md") == ["A\n\nNewer."]


async def test_stopping_gives_the_job_to_another_worker(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str
) -> None:
    """Another worker takes over a job that does not end within the grace period at once, not after the time-out."""
    retriever.reading.clear()
    end = await run_worker(retriever_target, shutdown_grace=0.1)
    job_id = await gateway.submit("a.md", MARKDOWN)
    await gateway.until(job_id, lambda job: job.state == ingest_pb2.JOB_STATE_INDEXING)
    await end()
    assert not retriever.documents
    retriever.reading.set()
    await run_worker(retriever_target)
    job = await gateway.finished(job_id, within=25)
    assert (job.state, job.attempt) == (SUCCEEDED, 2)


async def test_a_change_of_the_default_model(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str
) -> None:
    """After a change of the default model, an existing index keeps its model, and a new index has the new default.
    If the old model is not configured, jobs for the old index fail with this reason.
    """
    old, new = (EmbeddingModel.of(HashingEmbedder(dimension)) for dimension in (32, 64))
    for number, configured in enumerate(([old], [new, old], [new])):
        stop = await run_worker(retriever_target, EmbeddingModels(configured))
        for index in ("first", f"made-{number}"):
            job = await gateway.finished(await gateway.submit(f"{number}.md", b"# A\n\nText.\n", index=index))
            if (index, number) == ("first", 2):
                assert (job.state, job.error.reason) == (FAILED, "CONFLICT")
                assert old.name in job.error.message
            else:
                assert job.state == SUCCEEDED
        await stop()
    assert retriever.spaces == {
        ("acme", "first"): (old.name, 32),
        ("acme", "made-0"): (old.name, 32),
        ("acme", "made-1"): (new.name, 64),
        ("acme", "made-2"): (new.name, 64),
    }
    for (_, index, _), (_, chunks) in retriever.documents.items():
        assert {len(chunk.vector) for chunk in chunks} == {retriever.spaces["acme", index][1]}


async def test_documents_come_from_urls(
    gateway: Any, run_worker: Any, retriever: Any, retriever_target: str
) -> None:
    """A fetched document has an original and is not downloaded again. A forbidden address is not fetched."""
    statuses: list[int] = []

    async def serve(request: web.BaseRequest) -> web.Response:
        statuses.append(304 if request.headers.get("if-none-match") == '"1"' else 200)
        if statuses[-1] == 304:
            return web.Response(status=304)
        return web.Response(body=b"<h1>Fares</h1><p>An adult pays 18 pounds.</p>", headers=PAGE)

    runner = web.ServerRunner(web.Server(serve))
    await runner.setup()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        await web.SockSite(runner, listener).start()
        name, url = f"localhost:{port}/fares", f"http://localhost:{port}/fares"
        allowed = [f"localhost:{port}"]
        stop = await run_worker(retriever_target, ingest_urls=allowed)
        refused = await gateway.finished(await gateway.submit(name, b"", url=url))
        assert (refused.state, refused.error.reason) == (FAILED, "PERMISSION_DENIED")
        assert statuses == []
        await stop()
        await run_worker(retriever_target, is_allowed_address=lambda _: True, ingest_urls=allowed)
        job_id = await gateway.submit(name, b"", url=url, metadata_json=b'{"team": "deck"}')
        assert (await gateway.finished(job_id)).state == SUCCEEDED
        again = await gateway.submit(name, b"", url=url, metadata_json=b'{"team": "deck"}')
        assert (await gateway.finished(again)).state == UNCHANGED
        assert statuses == [200, 304]
        await runner.cleanup()
    document, chunks = retriever.documents["acme", "library", keys.document_id(name)]
    assert json.loads(document.metadata_json) == {"team": "deck", "url": url, "etag": '"1"'}
    assert (document.content_type, [chunk.text for chunk in chunks]) == (
        "text/html",
        ["Fares\n\nAn adult pays 18 pounds."],
    )
    original = await gateway.transport.originals.get(document.original)
    assert original.data == b"<h1>Fares</h1><p>An adult pays 18 pounds.</p>"
    assert len(await gateway.transport.originals.list()) == 1
