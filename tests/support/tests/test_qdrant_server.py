"""Tests of the code that starts a Qdrant server for tests, with the stand-in as the program."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest
from causeway_testing.retriever.qdrant_server import NoServer, recovered, server_program, started
from qdrant_client import AsyncQdrantClient
from retriever.domain.document import Document
from retriever.domain.index import IndexSpec
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import Unavailable

SPEC = IndexSpec("local", "notes", "hashed-words-64", 64)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The stand-in as a program."""
    path = tmp_path / "qdrant"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m causeway_testing.retriever.qdrant_program "$@"\n')
    path.chmod(0o755)
    return path


def test_a_missing_program_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a program, the message names the variable and the sources of the program."""
    monkeypatch.delenv("CAUSEWAY_QDRANT_SERVER", raising=False)
    with pytest.raises(NoServer, match=r"CAUSEWAY_QDRANT_SERVER is not set.*1\.19 or newer"):
        server_program()
    (tmp_path / "text").touch()
    for name in ("text", "missing", "."):
        monkeypatch.setenv("CAUSEWAY_QDRANT_SERVER", str(tmp_path / name))
        with pytest.raises(NoServer, match="not a program"):
            server_program()


async def test_one_node_keeps_its_data(program: Path, tmp_path: Path) -> None:
    """A server of one node has its data after it was killed and started again."""
    async with started(program, tmp_path / "data", 1) as [node]:
        store = await QdrantStore.open(Connection.from_url(f"http://{node.address}", None, 10.0), Layout())
        collection = await store.create(SPEC)
        await collection.put_record(Document("d", generation=1))
        node.kill()
        await node.start()
        versions = None
        async with asyncio.timeout(60):
            # The renewal of leases may have met the killed server. Then gRPC waits before it connects again.
            while versions is None:
                with contextlib.suppress(Unavailable):
                    versions = await collection.versions()
                await asyncio.sleep(0.05)
        assert versions == {"d": 1}
        await store.aclose()


@pytest.mark.slow
async def test_three_nodes_fail_one_by_one(program: Path, tmp_path: Path) -> None:
    """The nodes of a cluster know each other. A node that was killed or frozen gets the missed writes."""
    async with started(program, tmp_path / "data", 3) as nodes:
        hosts = [node.address for node in nodes]
        assert [node.host for node in nodes] == ["127.0.0.2", "127.0.0.3", "127.0.0.4"]
        connection = Connection.from_url("http://qdrant", None, 20.0, hosts=hosts)
        store = await QdrantStore.open(connection, Layout(replicas=3, write_consistency=2))
        collection = await store.create(SPEC)
        nodes[0].kill()
        await collection.put_record(Document("a", generation=1))
        await nodes[0].start()
        nodes[2].freeze()
        await collection.put_record(Document("b", generation=1))
        assert await collection.versions() == {"a": 1, "b": 1}
        nodes[2].thaw()
        await recovered(nodes)
        for node in nodes:
            client = AsyncQdrantClient(
                host=node.host, grpc_port=node.grpc, prefer_grpc=True, check_compatibility=False
            )
            assert (await client.count(collection.location.name)).count >= 2
            await client.close()
        await store.aclose()
