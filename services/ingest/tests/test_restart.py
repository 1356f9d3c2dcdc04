"""Restart of a nats-server in the middle of a job."""

import asyncio
from pathlib import Path
from typing import Any

from causeway.ingest.v1 import ingest_pb2
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.servers import eventually, free_ports, nats_server
from embedding.models import EmbeddingModel, EmbeddingModels
from ingest.main import work
from ingest.settings import Settings
from servicekit import nats


async def test_a_restarted_broker_loses_nothing(
    tmp_path: Path, make_gateway: Any, retriever: Any, retriever_target: str
) -> None:
    """The job ends once, with a recorded final state. A queued job also runs."""
    [port] = free_ports(1)
    stop = asyncio.Event()
    async with nats_server(tmp_path / "nats", port) as url:
        client, worker_client = await nats.connect(url, "test"), await nats.connect(url, "worker")
        gateway = make_gateway(await nats.ingest_transport(client))
        settings = Settings(nats_url=url, retriever_target=retriever_target, ingest_port=0, ingest_jobs=1)
        models = EmbeddingModels([EmbeddingModel.of(HashingEmbedder(dimension=64))])
        worker = asyncio.create_task(work(settings, stop, worker_client, models))
        retriever.reading.clear()
        running = await gateway.submit("running.md", b"# A\n\nText.\n")
        await gateway.until(running, lambda job: job.state == ingest_pb2.JOB_STATE_INDEXING)
        waiting = await gateway.submit("waiting.md", b"# B\n\nText.\n")
    retriever.reading.set()
    await eventually(lambda: retriever.commits == 1, within=60)
    await asyncio.sleep(0.5)
    async with nats_server(tmp_path / "nats", port):
        for job_id in (running, waiting):
            assert (await gateway.finished(job_id, within=60)).state == ingest_pb2.JOB_STATE_SUCCEEDED
        await gateway.emptied()
        assert retriever.commits == 2
        assert not list(await gateway.dead())
        stop.set()
        await worker
        await client.close()
        await worker_client.close()
