"""The process starts, serves, and drains on SIGTERM. All data survive a restart."""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import numpy as np
import pytest
from causeway.retriever.v1 import document_pb2, retriever_pb2, retriever_pb2_grpc
from causeway_testing.servers import free_ports
from embedding.cache import default_cache_dir
from embedding.minilm import MiniLmEmbedder
from retriever.main import serve
from retriever.settings import Settings
from servicekit import rpc
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest, Unavailable
from servicekit.principal import LOCAL

TEXTS = [
    "Ferries to Kelsay leave every hour from the north pier.",
    "Dogs travel free of charge if they are kept on a lead.",
    "The bridge is closed when the wind is stronger than nine.",
]
ME = LOCAL.to_proto()
SERVICE = retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"]


async def start(data: Path, port: int, **settings: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "retriever",
        env={
            **os.environ,
            "CAUSEWAY_DATA_DIR": str(data),
            "CAUSEWAY_RETRIEVER_PORT": str(port),
            "CAUSEWAY_RETRIEVER_LOCK_SECONDS": "300",
            "CAUSEWAY_LOG_FORMAT": "json",
            **settings,
        },
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )


async def wait_for_metric(name: str, port: int) -> None:
    async with aiohttp.ClientSession() as http, asyncio.timeout(60):
        while True:
            with contextlib.suppress(aiohttp.ClientConnectionError):
                async with http.get(f"http://127.0.0.1:{port}/metrics") as response:
                    if name in await response.text():
                        return
            await asyncio.sleep(0.05)


async def messages(texts: Sequence[str]) -> list[retriever_pb2.UpsertRequest]:
    embedder = MiniLmEmbedder.load(default_cache_dir(os.environ))
    vectors = await embedder.embed(texts)
    await embedder.aclose()
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    return [
        retriever_pb2.UpsertRequest(
            begin=retriever_pb2.UpsertBegin(
                principal=ME,
                index="travel",
                document=document_pb2.Document(document_id="d", sourcefile="travel.md", generation=1),
                embedding_model=embedder.model,
                dimension=embedder.dimension,
            )
        ),
        retriever_pb2.UpsertRequest(
            chunks=retriever_pb2.UpsertChunks(
                chunks=[
                    document_pb2.Chunk(number=number, text=text, indexed_text=text, vector=vector.tolist())
                    for number, (text, vector) in enumerate(zip(texts, vectors, strict=True))
                ]
            )
        ),
        retriever_pb2.UpsertRequest(commit=retriever_pb2.UpsertCommit(chunk_count=len(texts))),
    ]


@pytest.mark.slow  # starts processes
async def test_the_process_serves_and_restarts(tmp_path: Path) -> None:
    """With the real model, questions find their passages. After SIGTERM the process exits with status 0. In a
    second process, the same questions find the same passages.
    """
    (port,) = free_ports(1)
    questions = {"Can I bring my pet?": TEXTS[1], "crossing during a storm": TEXTS[2]}
    for run in range(2):
        process = await start(tmp_path, port)
        async with open_channel(f"127.0.0.1:{port}", [SERVICE]) as channel:
            await asyncio.wait_for(channel.channel_ready(), 60)
            stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
            if run == 0:
                await rpc.client_stream(stub.Upsert, await messages(TEXTS), "Upsert", Deadline.after(120))
            for question, expected in questions.items():
                request = retriever_pb2.RetrieveRequest(
                    principal=ME, indexes=["travel"], query=question, mode=retriever_pb2.RETRIEVAL_MODE_VECTORS
                )
                response = await rpc.unary(stub.Retrieve, request, Deadline.after(120))
                assert response.passages[0].text == expected
                assert response.passages[0].sourcepage == "travel.md"
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 60) == 0


@pytest.mark.slow  # starts processes
async def test_a_successor_takes_over(tmp_path: Path) -> None:
    """A second process waits for the store and serves it after the first has ended. SIGTERM ends a third process
    that waits.
    """
    first, second, third, *metrics_ports = free_ports(5)
    rerankers = tmp_path / "rerankers.yaml"
    rerankers.write_text("rerankers:\n- {name: r, kind: http, url: http://127.0.0.1:1, model: m}\n")
    old = await start(tmp_path, first)
    async with open_channel(f"127.0.0.1:{first}", [SERVICE]) as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        await rpc.client_stream(stub.Upsert, await messages(TEXTS), "Upsert", Deadline.after(120))
    new, stopped = [
        await start(tmp_path, port, CAUSEWAY_METRICS_PORT=str(metrics_port), CAUSEWAY_RERANKERS_FILE=str(rerankers))
        for port, metrics_port in zip((second, third), metrics_ports, strict=True)
    ]
    for metrics_port in metrics_ports:
        await wait_for_metric("causeway_reranker_resting", metrics_port)  # created just before the store opens
    stopped.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(stopped.wait(), 60) == 0
    assert new.returncode is None
    old.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(old.wait(), 60) == 0
    async with open_channel(f"127.0.0.1:{second}", [SERVICE]) as channel:
        await asyncio.wait_for(channel.channel_ready(), 60)
        stub = retriever_pb2_grpc.RetrieverServiceStub(channel)
        request = retriever_pb2.RetrieveRequest(principal=ME, indexes=["travel"], query="dogs", top=1)
        response = await rpc.unary(stub.Retrieve, request, Deadline.after(120))
        assert response.passages[0].text == TEXTS[1]
    new.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(new.wait(), 60) == 0


async def test_a_missing_model_causes_an_error_with_the_build_command(tmp_path: Path) -> None:
    """A missing embedding model causes an error that names the command to build it."""
    settings = Settings(data_dir=tmp_path, model_cache=tmp_path / "empty", retriever_port=0)
    with pytest.raises(Unavailable, match=r"embedding\.build"):
        await serve(settings, asyncio.Event())


async def test_a_data_directory_that_cannot_be_created_is_reported(tmp_path: Path) -> None:
    """The error names the setting and the directory, for example if the path is a file."""
    (tmp_path / "data").touch()
    with pytest.raises(InvalidRequest, match=r"^CAUSEWAY_DATA_DIR: cannot create the directory .*data/retriever"):
        await serve(Settings(data_dir=tmp_path / "data", retriever_port=0), asyncio.Event())


async def test_an_invalid_embeddings_file_is_reported(tmp_path: Path) -> None:
    """The error of an invalid file of embedding models names the variable, the line and the key."""
    file = tmp_path / "embeddings.yaml"
    file.write_text("models:\n- {kind: minilm, size: 3}\n")
    settings = Settings(data_dir=tmp_path, embeddings_file=file, retriever_port=0)
    with pytest.raises(InvalidRequest, match=r"^CAUSEWAY_EMBEDDINGS_FILE: .*line 2, models\[0\]\.size") as caught:
        await serve(settings, asyncio.Event())
    assert caught.value.field == "embeddings_file"
