"""The store on a Qdrant server: calls, failures and leases."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import trustme
from causeway_testing.retriever.qdrant import Server, serving
from causeway_testing.servers import free_ports
from pydantic import SecretStr
from qdrant_client import grpc as q
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Chunk, Document, Version
from retriever.domain.index import IndexSpec
from retriever.domain.scope import EVERYTHING
from retriever.ports.store import ChunkPoint, Terms
from retriever.stores.qdrant.collection import QdrantCollection
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.kind import QDRANT, QdrantSettings
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from retriever.stores.vector_storage import VectorStorage
from servicekit import keys
from servicekit.errors import DeadlineExceeded, InvalidRequest, NotFound, Unavailable

SPEC = IndexSpec("local", "notes", "hashed-words-64", 64)
LEASE = 1.0


@asynccontextmanager
async def opened(server: Server, layout: Layout | None = None, lease: float = LEASE) -> AsyncIterator[QdrantStore]:
    """A process's store on a server."""
    store = await QdrantStore.open(Connection.to(server.url, None, 5.0), layout or Layout(), lease)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def two(lease: float = LEASE) -> AsyncIterator[tuple[QdrantCollection, QdrantCollection]]:
    """One collection as two processes have it."""
    async with serving() as server, opened(server, lease=lease) as one, opened(server, lease=lease) as other:
        mine = await one.create(SPEC)
        await mine.publish()
        theirs = await other.find(SPEC.tenant, SPEC.name)
        assert theirs is not None
        yield mine, theirs


def version(generation: int, count: int) -> tuple[Document, list[ChunkPoint]]:
    """A version of a document with its chunks."""
    document = Document("d", generation=generation, chunk_count=count)
    points = [
        ChunkPoint(
            str(keys.point_id("c", "d", generation, number, "ferry")),
            Chunk(number, "ferry", "ferry", 1, (), [1.0, *[0.0] * 63]),
            Terms((1,), (1.0,)),
        )
        for number in range(count)
    ]
    return document, points


async def gone(store: QdrantStore) -> None:
    """What a process that is killed does: nothing any more."""
    task = store._renewing
    assert task is not None
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_collections_are_made_as_configured() -> None:
    """Shards, copies, quantization and IDF are asked for, and an index for each field that conditions ask for."""
    vectors = VectorStorage("scalar", on_disk=True)
    layout = Layout("mine", shards=3, replicas=2, write_consistency=2, vectors=vectors)
    async with serving() as server, opened(server, layout) as store:
        await (await store.create(SPEC)).publish()
        (asked,) = server.created
        assert asked.collection_name.startswith("mine.")
        assert (asked.shard_number, asked.replication_factor, asked.write_consistency_factor) == (3, 2, 2)
        dense = asked.vectors_config.params_map.map["dense"]
        assert (dense.size, dense.distance, dense.on_disk) == (64, q.Distance.Cosine, True)
        assert dense.quantization_config.WhichOneof("quantization") == "scalar"
        assert asked.sparse_vectors_config.map["bm25"].modifier == q.Modifier.Idf
        assert server.calls.count("CreateFieldIndex") == 4
        assert [each.spec for each in await store.collections()] == [SPEC]
    async with serving() as server, opened(server, Layout(vectors=VectorStorage("binary"))) as store:
        await store.create(SPEC)
        dense = server.created[0].vectors_config.params_map.map["dense"]
        assert dense.quantization_config.WhichOneof("quantization") == "binary"


async def test_prefixes_keep_installations_apart() -> None:
    """Two installations on one server have indexes of the same name without meeting."""
    async with serving() as server, opened(server, Layout("a")) as one, opened(server, Layout("b")) as other:
        await (await one.create(SPEC)).publish()
        assert await other.find(SPEC.tenant, SPEC.name) is None
        assert await other.collections() == []
        await other.tidy()
        assert len(await one.collections()) == 1


async def test_an_index_is_looked_for_alone() -> None:
    """One small call for a name that nobody has, and of the others nothing is read, however many there are."""
    async with serving() as server, opened(server) as one, opened(server) as other:
        for number in range(5):
            await (await one.create(replace(SPEC, name=f"notes {number}"))).publish()
        server.calls.clear()
        assert await other.find(SPEC.tenant, "nobody's") is None
        assert server.calls == ["ListAliases"]
        server.calls.clear()
        found = await other.find(SPEC.tenant, "notes 3")
        assert found is not None
        assert found.spec.name == "notes 3"
        assert server.calls == ["ListAliases", "Get", "Get"]
        assert await other.find(SPEC.tenant, "notes 3") is found


async def test_the_key_is_sent() -> None:
    """Every call carries the API key."""
    async with serving() as server:
        store = await QdrantStore.open(Connection.to(server.url, SecretStr("sesame"), 5.0), Layout())
        assert server.metadata["api-key"] == "sesame"
        await store.aclose()


async def test_a_key_that_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of a file is read again when the file changes; a server that wants another one is an error."""
    monkeypatch.setattr("servicekit.secret_file.LOOK_SECONDS", 0.0)
    (tmp_path / "key").write_text("sesame\n")
    async with serving() as server:
        server.api_key = "sesame"
        settings = QdrantSettings(qdrant_url=server.url, qdrant_api_key_file=tmp_path / "key")
        store = await QDRANT.open(settings, Scheduler())
        server.api_key = "barley"
        with pytest.raises(Unavailable, match="refuses"):
            await store.collections()
        (tmp_path / "key").write_text("barley\n")
        assert await store.collections() == []
        await store.aclose()


async def test_a_server_with_a_certificate(tmp_path: Path) -> None:
    """It is believed where the named authority vouches for it, and nowhere else."""
    authority, another = trustme.CA(), trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    credentials = grpc.ssl_server_credentials(
        [(issued.private_key_pem.bytes(), b"".join(each.bytes() for each in issued.cert_chain_pems))]
    )
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    another.cert_pem.write_to_path(str(tmp_path / "another.crt"))
    async with serving(credentials=credentials) as server:
        for name in ("ca.crt", "another.crt"):
            settings = QdrantSettings(
                qdrant_url=server.url,
                qdrant_ca_file=tmp_path / name,
                qdrant_api_key=SecretStr("sesame"),
                qdrant_timeout=2,
            )
            if name == "ca.crt":
                store = await QDRANT.open(settings, Scheduler())
                assert server.metadata["api-key"] == "sesame"
                await store.aclose()
            else:
                with pytest.raises((Unavailable, DeadlineExceeded)):
                    await QDRANT.open(settings, Scheduler())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"qdrant_ca_file": "ca.crt"}, "needs a CAUSEWAY_QDRANT_URL that begins with https"),
        ({"qdrant_url": "https://127.0.0.1:1", "qdrant_ca_file": "away.crt"}, "cannot be read: No such file"),
        ({"qdrant_url": "https://127.0.0.1:1", "qdrant_ca_file": "ca.crt"}, "holds no certificate"),
        ({"qdrant_api_key_file": "away"}, "CAUSEWAY_QDRANT_API_KEY_FILE cannot be used"),
        ({"qdrant_api_key_file": "ca.crt"}, "it is empty"),
        ({"qdrant_api_key_file": "ca.crt", "qdrant_api_key": "sesame"}, "keep one"),
    ],
)
async def test_a_wrong_setting_is_told(tmp_path: Path, settings: dict[str, str], message: str) -> None:
    """The message names the variable and the error."""
    (tmp_path / "ca.crt").touch()
    files = {key: str(tmp_path / value) if key.endswith("_file") else value for key, value in settings.items()}
    made = QdrantSettings.model_validate({"qdrant_url": "http://127.0.0.1:1", **files})
    with pytest.raises(InvalidRequest, match=message):
        await QDRANT.open(made, Scheduler())


async def test_a_server_that_is_too_old_is_refused() -> None:
    """A server that would count words in documents that are hidden from the asker is not used."""
    async with serving() as server:
        for version in ("1.18.4", "1.9.0-dev", "0.11"):
            server.version = version
            connection = Connection.to(server.url, None, 5.0)
            with pytest.raises(Unavailable, match=r"1\.19"):
                await QdrantStore.open(connection, Layout())
            await connection.aclose()
        server.version = "2.0.1-rc1"
        async with opened(server):
            pass


async def test_a_server_that_is_away() -> None:
    """A server that is not there, breaks off, or hangs is an error of the one tree; wrong addresses are told."""
    (port,) = free_ports(1)
    connection = Connection.to(f"http://127.0.0.1:{port}", None, 1.0)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await QdrantStore.open(connection, Layout())
    await connection.aclose()
    with pytest.raises(InvalidRequest, match="CAUSEWAY_QDRANT_URL"):
        Connection.to("qdrant:6334", None, 1.0)
    async with serving() as server:
        store = await QdrantStore.open(Connection.to(server.url, None, 1.0), Layout())
        collection = await store.create(SPEC)

        async def broken(_: str) -> None:
            raise ConnectionError

        async def hanging(_: str) -> None:
            await asyncio.sleep(2)

        server.before = broken
        with pytest.raises(Unavailable):
            await collection.count_chunks(EVERYTHING)
        server.before = hanging
        with pytest.raises((DeadlineExceeded, Unavailable)):
            await collection.count_documents(EVERYTHING)
        server.before = None
        assert await collection.count_documents(EVERYTHING) == 0
        await store.aclose()


async def test_only_one_process_writes_a_document() -> None:
    """A document that one process has marked is refused to others until it is unmarked, however long that takes."""
    async with two() as (mine, theirs):
        await mine.mark("d")
        for _ in range(4):
            with pytest.raises(Unavailable, match="another process"):
                await theirs.mark("d")
            await asyncio.sleep(LEASE / 2)
        assert await theirs.abandoned() == []
        await theirs.mark("e")
        await theirs.unmark("d")
        assert sorted(await mine.marked()) == ["d", "e"]
        await mine.unmark("d")
        await theirs.mark("d")


async def test_who_is_gone_is_followed_by_another() -> None:
    """When a process is gone, another takes its documents over; should it come back, it writes nothing any more."""
    async with serving() as server, AsyncExitStack() as stack:
        one = await stack.enter_async_context(opened(server))
        other = await stack.enter_async_context(opened(server))
        mine = await one.create(SPEC)
        await mine.publish()
        theirs = await other.find(SPEC.tenant, SPEC.name)
        assert theirs is not None
        await mine.mark("d")
        await gone(one)
        async with asyncio.timeout(60):
            while await theirs.abandoned() != ["d"]:  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.1)
        await theirs.mark("d")
        await theirs.put_record(Document("d", generation=2))
        for call in (
            mine.put_record(Document("d", generation=1)),
            mine.remove_record("d"),
            mine.remove_chunks("d", None),
            mine.unmark("d"),
        ):
            with pytest.raises(Unavailable):
                await call
        assert await theirs.versions() == {"d": 2}
        assert await theirs.marked() == ["d"]


async def test_a_record_is_written_where_it_is_the_one_that_was_there() -> None:
    """Whatever has happened to a lease: a record that another process has written is not written over."""
    async with two(lease=30.0) as (mine, theirs):
        await mine.mark("d")
        await mine.put_record(Document("d", generation=1))
        await theirs.put_record(Document("d", generation=5))  # without a mark, as nobody does
        with pytest.raises(Unavailable, match="another process"):
            await mine.put_record(Document("d", generation=2))
        assert await theirs.versions() == {"d": 5}


async def test_a_late_removal_spares_a_newer_version() -> None:
    """A process that stops for longer than its lease, just before its removal reaches the server, removes nothing
    that another process has stored since.
    """
    async with serving() as server, AsyncExitStack() as stack:
        one = await stack.enter_async_context(opened(server, lease=LEASE))
        other = await stack.enter_async_context(opened(server, lease=LEASE))
        mine = await one.create(SPEC)
        await mine.publish()
        theirs = await other.find(SPEC.tenant, SPEC.name)
        assert theirs is not None
        await mine.mark("d")
        await mine.add_chunks(*version(1, 3))
        await mine.add_chunks(*version(2, 3))
        await mine.put_record(version(2, 3)[0])
        arrived, may_go_on = asyncio.Event(), asyncio.Event()

        async def held(name: str) -> None:
            if name == "Delete" and not arrived.is_set():
                arrived.set()
                await may_go_on.wait()

        server.before = held
        removal = asyncio.create_task(mine.remove_chunks("d", keep=2))
        await arrived.wait()
        await gone(one)
        async with asyncio.timeout(60):
            while await theirs.abandoned() != ["d"]:  # noqa: ASYNC110  # nobody tells
                await asyncio.sleep(0.1)
        await theirs.mark("d")
        await theirs.add_chunks(*version(3, 3))
        await theirs.put_record(version(3, 3)[0])
        await theirs.remove_chunks("d", keep=3)
        await theirs.unmark("d")
        may_go_on.set()
        await removal
        assert len(await theirs.chunks_of(Version("d", 3), 0, 10)) == 3
        assert await theirs.count_chunks(EVERYTHING) == 3


async def test_what_was_begun_and_left_is_removed() -> None:
    """A collection that was not published goes when its process is gone, not before; what is published stays."""
    async with serving() as server, opened(server) as one, opened(server) as other:
        await (await one.create(IndexSpec("local", "kept", "m", 8))).publish()
        await one.create(SPEC)
        await one.create(SPEC, beside=True)
        await asyncio.sleep(LEASE * 1.5)
        await other.tidy()
        assert len((await server.client.get_collections()).collections) == 3
        await gone(one)
        await asyncio.sleep(LEASE * 1.5)
        await other.tidy()
        assert [each.spec.name for each in await other.collections()] == ["kept"]
        assert len((await server.client.get_collections()).collections) == 1


async def test_closing_leaves_nothing_begun() -> None:
    """When a store is closed, what it has begun is removed at once, and what it has marked is abandoned."""
    async with serving() as server, opened(server, lease=30.0) as other:
        async with opened(server, lease=30.0) as store:
            await store.create(SPEC, beside=True)
            collection = await store.create(SPEC)
            await collection.publish()
            await collection.mark("d")
        (collection,) = await other.collections()
        assert await collection.abandoned() == ["d"]
        assert len((await server.client.get_collections()).collections) == 1


async def test_an_index_that_another_process_removed() -> None:
    """What is asked of it says that it is gone; its name is free again."""
    async with two() as (mine, theirs):
        await theirs.drop()
        with pytest.raises(Unavailable, match="replaced"):
            await mine.count_chunks(EVERYTHING)
        assert not await mine.is_current()
        with pytest.raises(NotFound):
            await theirs.count_chunks(EVERYTHING)
