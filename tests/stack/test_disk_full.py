"""Full disks of the retriever, a worker and the gateway, and a full NATS server."""

import asyncio
import os
import resource
import shutil
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from nats.js import JetStreamContext
from servicekit import keys, nats

pytestmark = pytest.mark.timeout(600)

FILES = [("file", (f"{n}.md", f"# Berth {n}\n\nBerth {n} is {n + 5} metres deep.\n".encode())) for n in range(20)]
MEBI = 2**20
FILLING = 512 * MEBI
FULL_SECONDS = 5.0


async def upload(stack: Any, name: str, content: bytes = b"# Low\n\nLow water is at noon.\n") -> Any:
    """Upload a document, and return the response."""
    return await stack.http.post("/documents", data={"index": "tides"}, files={"file": (name, content)}, timeout=90)


async def test_the_retrievers_disk_is_full(
    start_stack: Any, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """While the disk is full, the jobs of documents wait and show the reason, and questions are answered. When
    there is space again, all documents are stored.
    """
    free = shutil.disk_usage(tmp_path).free
    # This limit is lower than the current free space, and higher than the free space once the large file exists.
    environment = {"CAUSEWAY_RETRIEVER_MIN_FREE_MB": str((free - FILLING) // MEBI)}
    async with start_stack(tmp_path / "data", CAUSEWAY_INGEST_RETRY_SECONDS="0.5", **environment) as stack:
        assert (await stack.ingest())["state"] == "succeeded"
        filling = tmp_path / "filling"
        with filling.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 2 * FILLING)
        response = await stack.http.post("/documents", data={"index": "tides"}, files=FILES)
        jobs = [job["id"] for job in response.raise_for_status().json()["jobs"]]
        end = time.monotonic() + 60
        while (job := (await stack.http.get(f"/jobs/{jobs[0]}")).json())["stage"] != "waiting":
            assert time.monotonic() < end, job
            await asyncio.sleep(0.05)
        assert "disk is full" in job["error"]["message"]
        answer = await stack.http.post("/chat", json=stack.question())
        assert "six in the morning" in answer.raise_for_status().text
        filling.unlink()
        begin = time.monotonic()
        for each in jobs:
            assert (await stack.wait_for_job(each))["state"] == "succeeded"
        record_property("seconds until all documents are stored", round(time.monotonic() - begin, 1))


def limit_file_size(stack: Any, service: str, size: int = resource.RLIM_INFINITY) -> None:
    """Limit the size of the files that a process writes. A write beyond the limit fails as on a full disk. This
    needs no permission to mount a file system.
    """
    _, hard = resource.prlimit(stack.pid(service), resource.RLIMIT_FSIZE)
    resource.prlimit(stack.pid(service), resource.RLIMIT_FSIZE, (size, hard))


async def test_a_workers_disk_is_full(start_stack: Any, tmp_path: Path) -> None:
    """The job of a document that is too large for the disk waits and shows the reason, and other documents are
    stored. When there is space again, this document is stored as well.
    """
    async with start_stack(tmp_path / "data", CAUSEWAY_INGEST_RETRY_SECONDS="0.5") as stack:
        limit_file_size(stack, "ingest", MEBI // 16)
        response = await upload(stack, "large.md", b"# Large\n\n" + b"Low water is at noon.\n" * 4000)
        [job] = response.raise_for_status().json()["jobs"]
        end = time.monotonic() + 60
        while job["stage"] != "waiting":
            assert time.monotonic() < end, job
            await asyncio.sleep(0.05)
            job = (await stack.http.get(f"/jobs/{job['id']}")).json()
        assert "worker's disk is full" in job["error"]["message"]
        assert (await stack.ingest())["state"] == "succeeded"
        limit_file_size(stack, "ingest")
        assert (await stack.wait_for_job(job["id"]))["state"] == "succeeded"


async def test_the_gateways_disk_is_full(stack: Any) -> None:
    """The gateway refuses uploads and texts that are too large for the disk, and stores no part of them. All other
    requests succeed.
    """
    large = {"index_name": "tides", "documents": [{"text": "Low water is at noon. " * 100_000}]}
    limit_file_size(stack, "gateway", MEBI)
    for refused in (
        await upload(stack, "large.md", b"x" * (3 * MEBI)),
        await stack.http.post("/index", json=large),
    ):
        assert (refused.status_code, "retry-after" in refused.headers) == (503, True), refused.text
        assert "disk is full" in refused.text
    assert (await stack.http.post("/chat", json=stack.question())).status_code == 200
    assert (await stack.ingest("tides", "small.md", b"# Low\n\nLow water is at noon.\n"))["state"] == "succeeded"
    limit_file_size(stack, "gateway")
    documents = (await stack.http.get("/documents", params={"index": "tides"})).json()["documents"]
    assert sorted(each["sourcefile"] for each in documents) == ["small.md", "tides.md"]
    assert (await upload(stack, "large.md", b"Low water is at noon.\n" * 100_000)).status_code == 202


@pytest.fixture
async def jetstream(stack: Any) -> AsyncIterator[JetStreamContext]:
    """Connect to NATS as its operator."""
    client = await nats.connect(stack.description()["nats_url"], "operator")
    yield client.jetstream(timeout=30)
    await client.close()


@pytest.mark.parametrize("full", [keys.INGEST_STREAM, f"OBJ_{keys.ORIGINALS_BUCKET}", f"KV_{keys.JOBS_BUCKET}"])
async def test_nats_is_full(stack: Any, jetstream: JetStreamContext, full: str) -> None:
    """If the stream of the queue, of the originals or of the job states is full, the gateway refuses an upload and
    stores no part of it. Questions are answered. Accepted documents are stored when there is space again.
    """
    stack.kill("ingest", signal.SIGSTOP)
    response = await stack.http.post("/documents", data={"index": "tides"}, files=FILES)
    accepted = [job["id"] for job in response.raise_for_status().json()["jobs"]]
    stream = await jetstream.stream_info(full)
    original_limit = stream.config.max_bytes
    await jetstream.update_stream(stream.config.evolve(max_bytes=stream.state.bytes + 16))
    refused = await upload(stack, "refused.md", b"# Refused\n\n" + os.urandom(4000).hex().encode())
    assert (refused.status_code, "retry-after" in refused.headers) == (503, True), refused.text
    assert (await stack.http.post("/chat", json=stack.question())).status_code == 200
    stack.kill("ingest", signal.SIGCONT)
    await asyncio.sleep(FULL_SECONDS)
    stream = await jetstream.stream_info(full)
    await jetstream.update_stream(stream.config.evolve(max_bytes=original_limit))
    for job in accepted:
        assert (await stack.wait_for_job(job))["state"] == "succeeded"
    later = await stack.ingest("tides", "later.md", b"# Later\n\nLow water is at noon.\n")
    assert later["state"] == "succeeded"
    documents = (await stack.http.get("/documents", params={"index": "tides", "limit": 1000})).json()["documents"]
    names = sorted(each["sourcefile"] for each in documents)
    assert names == sorted([*(name for _, (name, _) in FILES), "tides.md", "later.md"])
