"""The real process, with the real model."""

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from causeway.ingest.v1 import ingest_pb2
from causeway_testing.servers import eventually, free_ports
from grpc_health.v1 import health_pb2, health_pb2_grpc
from nats.js.api import AckPolicy, ConsumerConfig
from servicekit import keys, nats
from servicekit.nats import IngestTransport

pytestmark = pytest.mark.slow  # each test starts processes

SUCCEEDED = ingest_pb2.JOB_STATE_SUCCEEDED
MARKDOWN = b"# Fares\n\nAn adult pays 18 pounds.\n"


class Workers:
    """Starts worker processes."""

    def __init__(self, nats_url: str, target: str, log: Path) -> None:
        self._environment = {
            **os.environ,
            "CAUSEWAY_NATS_URL": nats_url,
            "CAUSEWAY_RETRIEVER_TARGET": target,
            "CAUSEWAY_SHUTDOWN_GRACE": "10",
            "CAUSEWAY_INGEST_JOBS": "1",
            "CAUSEWAY_LOG_FORMAT": "json",
        }
        self._log = log
        self.processes: list[subprocess.Popen[bytes]] = []

    async def start(self) -> subprocess.Popen[bytes]:
        """Return a healthy worker."""
        [port] = free_ports(1)
        with self._log.open("ab") as log:
            process = subprocess.Popen(  # noqa: ASYNC220  # returns at once
                [Path(sys.executable).with_name("causeway-ingest")],
                env={**self._environment, "CAUSEWAY_INGEST_PORT": str(port)},
                stderr=log,
            )
        self.processes.append(process)
        async with asyncio.timeout(90), grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            check: Any = health_pb2_grpc.HealthStub(channel).Check  # type: ignore[attr-defined]  # set at run time
            while True:
                assert process.poll() is None, self._log.read_text()
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=1)
                    return process


def children_of(parent: int) -> list[int]:
    """Return the processes that a process has started (proc(5): the fourth field of stat is the parent)."""
    stats = [path.read_text() for path in Path("/proc").glob("[0-9]*/stat")]
    return [int(stat.split()[0]) for stat in stats if int(stat.rpartition(")")[2].split()[1]) == parent]


@pytest.fixture
async def workers(nats_url: str, retriever_target: str, tmp_path: Path) -> AsyncIterator[Workers]:
    workers = Workers(nats_url, retriever_target, tmp_path / "log")
    yield workers
    for process in workers.processes:
        process.kill()
        await asyncio.to_thread(process.wait)


async def test_a_process_ingests_with_the_real_model(
    workers: Workers, gateway: Any, retriever: Any, make_pdf: Callable[..., bytes]
) -> None:
    """The vectors have MiniLM's dimension and length 1. SIGTERM ends the process with exit code 0."""
    process = await workers.start()
    text = "The ferry leaves at eight in the morning. " * 60
    jobs = [await gateway.submit("fares.md", MARKDOWN), await gateway.submit("long.pdf", make_pdf(text, text))]
    for job_id in jobs:
        assert (await gateway.finished(job_id, within=60)).state == SUCCEEDED
    document, chunks = retriever.documents["acme", "library", keys.document_id("long.pdf")]
    assert document.page_count == 2
    assert {chunk.page for chunk in chunks} == {1, 2}
    assert len(chunks) > 4
    for chunk in chunks:
        assert len(chunk.vector) == 384
        assert abs(sum(value * value for value in chunk.vector) - 1) < 1e-3
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait, 20) == 0


async def test_another_worker_repeats_the_job_of_a_killed_worker(
    workers: Workers, gateway: Any, retriever: Any, transport: IngestTransport
) -> None:
    """If SIGKILL ends a worker during a job, another worker repeats the job, with one complete result."""
    retriever.reading.clear()
    first = await workers.start()
    job_id = await gateway.submit("fares.md", MARKDOWN)
    await gateway.until(job_id, lambda job: job.state == ingest_pb2.JOB_STATE_INDEXING, within=60)
    children = children_of(first.pid)
    assert children
    first.kill()
    await asyncio.to_thread(first.wait)
    await eventually(
        lambda: not any(Path(f"/proc/{child}").exists() for child in children), what="their end", within=60
    )
    retriever.reading.set()
    # The dead worker's silence is noticed after 30 s; here after two.
    short_ack_wait = ConsumerConfig(
        durable_name=keys.ingest_consumer(0),
        filter_subject=keys.ingest_lane(0),
        ack_policy=AckPolicy.EXPLICIT,
        ack_wait=2,
        max_deliver=-1,
        max_ack_pending=1024,
    )
    await transport.jetstream.add_consumer(keys.INGEST_STREAM, short_ack_wait)
    await asyncio.sleep(2.5)
    await workers.start()
    job = await gateway.finished(job_id, within=2 * nats.ACK_WAIT)
    assert (job.state, job.attempt) == (SUCCEEDED, 2)
    assert retriever.commits == 1
    assert retriever.texts("fares.md") == ["Fares\n\nAn adult pays 18 pounds."]
    await gateway.emptied()


def test_an_invalid_setting_is_named() -> None:
    """With an invalid setting, the process exits with EX_CONFIG and names the variable."""
    environment = {**os.environ, "CAUSEWAY_INGEST_JOBS": "none"}
    command = [Path(sys.executable).with_name("causeway-ingest")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert result.returncode == 78
    assert "CAUSEWAY_INGEST_JOBS" in result.stderr


def test_a_missing_model_is_explained(tmp_path: Path) -> None:
    """Without the model, the process exits and says how to build it."""
    environment = {**os.environ, "CAUSEWAY_MODEL_CACHE": str(tmp_path)}
    command = [Path(sys.executable).with_name("causeway-ingest")]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert result.returncode == 1
    assert "python -m embedding.build" in result.stderr
