"""Indexes that share a collection of a Qdrant server neither see nor change each other's points."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace

import pytest
from causeway_testing.retriever.checks import points_left
from causeway_testing.retriever.qdrant import Server, serving
from causeway_testing.retriever.store import MemoryStore
from hypothesis import given, settings
from hypothesis import strategies as st
from qdrant_client import AsyncQdrantClient, models
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Chunk, Document, Version
from retriever.domain.index import IndexSpec
from retriever.domain.scope import EVERYTHING
from retriever.ports.store import ChunkPoint, Collection, Terms
from retriever.stores.qdrant.collection import QdrantCollection
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.incarnation import Incarnation
from retriever.stores.qdrant.kind import QDRANT, QdrantSettings
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.space import Space
from retriever.stores.qdrant.store import QdrantStore
from servicekit import keys
from servicekit.errors import InvalidRequest, NotFound, Unavailable

SPEC = IndexSpec("one", "notes", "m", 2)
OTHER = replace(SPEC, tenant="other")
SHARED = Layout(shared=True)
LEASE = 1.0


@asynccontextmanager
async def opened(server: Server, layout: Layout = SHARED, lease: float = 30.0) -> AsyncIterator[QdrantStore]:
    """Open a process's store on a server."""
    store = await QdrantStore.open(Connection.from_url(server.url, None, 5.0), layout, lease)
    try:
        yield store
    finally:
        await store.aclose()


def points(document: str, generation: int, count: int) -> list[ChunkPoint]:
    """Return passages whose ids are the same in every index."""
    return [
        ChunkPoint(
            str(keys.point_id("c", document, generation, number, "")),
            Chunk(number, f"{document} {number}", "", 1, (), [1.0, 0.0] if number % 2 else [0.6, 0.8]),
            Terms((1, 2 + number), (1.0, 0.5)),
        )
        for number in range(count)
    ]


async def put(collection: Collection, document: str, generation: int, count: int) -> None:
    """Replace a document by a new version."""
    record = Document(document, generation=generation, chunk_count=count)
    await collection.mark(document)
    await collection.add_chunks(record, points(document, generation, count))
    await collection.put_record(record)
    await collection.remove_chunks(document, keep=generation)
    await collection.unmark(document)


def _rounded(scores: Mapping[str, float]) -> dict[str, float]:
    return {id_: round(score, 4) for id_, score in scores.items()}


async def seen(collection: Collection) -> object:
    """Return everything that a collection's reads return."""
    every = [point.id for document in "abc" for point in points(document, 1, 3) + points(document, 2, 3)]
    near = await collection.dense([1.0, 0.0], 100, EVERYTHING)
    best = await collection.sparse(Terms((1, 2), (1.0, 1.0)), 100, EVERYTHING)
    records = await collection.records(["a", "b", "c"])
    whole = [
        point.id
        for record in records.values()
        async for some in collection.points_of(record.version)
        for point in some
    ]
    return (
        _rounded(near),
        _rounded(best),
        _rounded(await collection.dense([1.0, 0.0], 100, EVERYTHING, every)),
        {id_: chunk.text for id_, chunk in (await collection.chunks(every)).items()},
        [chunk.text for chunk in await collection.chunks_of(Version("a", 1), 0, 9)],
        sorted(whole),
        {id_: record.chunk_count for id_, record in records.items()},
        sorted(await collection.document_ids(EVERYTHING)),
        (await collection.count_chunks(EVERYTHING), await collection.count_documents(EVERYTHING)),
        (await collection.versions(), sorted(await collection.marked()), await collection.abandoned()),
        await collection.note(),
    )


@dataclass(frozen=True)
class Step:
    """A step on one of two indexes."""

    index: int
    what: str
    document: str
    generation: int
    count: int


steps = st.builds(
    Step,
    st.integers(0, 1),
    st.sampled_from(["put", "remove", "add", "mark", "note"]),
    st.sampled_from("abc"),
    st.integers(1, 2),
    st.integers(1, 3),
)


async def do(step: Step, collection: Collection) -> None:
    """Carry out a step."""
    match step.what:
        case "put":
            await put(collection, step.document, step.generation, step.count)
        case "remove":
            await collection.remove_record(step.document)
            await collection.remove_chunks(step.document, keep=None)
        case "add":
            document = Document(step.document, generation=step.generation)
            await collection.add_chunks(document, points(step.document, step.generation, step.count))
        case "mark":
            await collection.mark(step.document)
        case "note":
            await collection.put_note(step.document.encode())


@pytest.mark.parametrize("examples", [8, pytest.param(30, marks=pytest.mark.slow)])
def test_indexes_in_a_shared_collection_are_independent(examples: int) -> None:
    """After any steps with equal ids on two indexes in one collection, reads of each index return the same as in a
    separate store.
    """
    with asyncio.Runner() as runner:
        stack = AsyncExitStack()
        server = runner.run(stack.enter_async_context(serving()))
        store = runner.run(stack.enter_async_context(opened(server)))

        @settings(max_examples=examples, deadline=None)
        @given(st.lists(steps, max_size=8))
        def alone(done: Sequence[Step]) -> None:
            async def check() -> None:
                name = uuid.uuid4().hex
                specs = [replace(spec, name=name) for spec in (SPEC, OTHER)]
                shared = [await store.create(spec) for spec in specs]
                apart = [await MemoryStore().create(spec) for spec in specs]
                for collection in shared:
                    await collection.publish()
                for step in done:
                    await do(step, shared[step.index])
                    await do(step, apart[step.index])
                for in_shared, in_own in zip(shared, apart, strict=True):
                    assert await seen(in_shared) == await seen(in_own)
                await shared[0].drop()
                assert await seen(shared[1]) == await seen(apart[1])
                await shared[1].drop()

            runner.run(check())

        alone()
        assert len(server.created) == 1
        runner.run(stack.aclose())


async def test_shared_collections_are_created_for_many_indexes() -> None:
    """Indexes with vectors of the same length share a collection, which builds one graph for each incarnation."""
    async with serving() as server, opened(server) as store:
        for spec in (SPEC, OTHER, replace(SPEC, name="more"), replace(SPEC, name="long", dimension=3)):
            await (await store.create(spec)).publish()
        assert [request.vectors_config.params_map.map["dense"].size for request in server.created] == [2, 3]
        created = server.created[0]
        assert created.collection_name.startswith("causeway-space.")
        assert (created.hnsw_config.m, created.hnsw_config.payload_m) == (0, 16)
        tenant, *others = [
            request for request in server.indexed if request.collection_name == created.collection_name
        ]
        assert tenant.field_name == "incarnation"
        assert tenant.field_index_params.keyword_index_params.is_tenant
        assert [request.field_name for request in others] == ["facts", "numbers[].key", "numbers[].value", "number"]
        for request in others:
            params = request.field_index_params
            assert getattr(params, params.WhichOneof("index_params")).enable_hnsw is False
        assert sorted(collection.spec.name for collection in await store.collections()) == [
            "long",
            "more",
            "notes",
            "notes",
        ]


async def test_calls_without_the_filter_of_an_index_are_refused() -> None:
    """The stand-in refuses calls without the filter of an index, so that tests detect a missing filter."""
    async with serving() as server, opened(server) as store:
        collection = await store.create(SPEC)
        await put(collection, "a", 1, 1)
        connection, name = Connection.from_url(server.url, None, 5.0), collection.location.name
        everything = models.Filter(must=[models.FieldCondition(key="number", range=models.Range(gte=0))])
        selector = models.FilterSelector(filter=everything)
        vector = models.SparseVector(indices=[1], values=[1.0])
        for call in (
            connection.read(AsyncQdrantClient.scroll, name, scroll_filter=everything),
            connection.read(AsyncQdrantClient.count, name, count_filter=everything),
            connection.read(AsyncQdrantClient.retrieve, name, [str(uuid.uuid4())], with_payload=False),
            connection.read(AsyncQdrantClient.query_points, name, query=[1.0, 0.0], using="dense"),
            connection.read(AsyncQdrantClient.query_points, name, query=vector, using="bm25"),
            connection.write(AsyncQdrantClient.delete, name, selector),
            connection.write(AsyncQdrantClient.set_payload, name, payload={"a": 1}, points=everything),
            connection.write(
                AsyncQdrantClient.upsert, name, [models.PointStruct(id=1, vector={}, payload={"incarnation": "a"})]
            ),
        ):
            with pytest.raises(Unavailable, match="refuses"):
                await call
        with pytest.raises(TypeError, match="delete_vectors"):
            await collection.location.calls.write(AsyncQdrantClient.delete_vectors, name, ["dense"], [1])
        await connection.aclose()


async def test_a_point_of_another_index_is_not_overwritten() -> None:
    """A forged id, which another index's point has on the server, is neither written, changed, read nor removed."""
    async with serving() as server, opened(server) as store:
        mine, theirs = await store.create(SPEC), await store.create(OTHER)
        await put(theirs, "a", 1, 1)
        inner: dict[QdrantCollection, Incarnation] = {}
        for collection in (mine, theirs):
            assert isinstance(collection.location.calls, Incarnation)
            inner[collection] = collection.location.calls
        (point,) = points("a", 1, 1)
        forged = inner[mine]._converted_id(inner[theirs]._converted_id(point.id))
        await mine.add_chunks(Document("b", generation=1), [replace(point, id=forged)])
        name = mine.location.name
        await inner[mine].write(AsyncQdrantClient.set_payload, name, payload={"text": "forged"}, points=[forged])
        await inner[mine].write(AsyncQdrantClient.delete, name, models.PointIdsList(points=[forged]))
        assert await mine.chunks([forged]) == {}
        assert await mine.count_chunks(EVERYTHING) == 0
        assert {id_: chunk.text for id_, chunk in (await theirs.chunks([point.id])).items()} == {point.id: "a 0"}


async def test_the_points_of_a_dropped_index_are_removed() -> None:
    """A dropped index disappears at once. Any process may remove its points in a run of `tidy`."""
    async with serving() as server, opened(server) as store, opened(server) as another:
        remaining, dropped = await store.create(OTHER), await store.create(SPEC)
        for collection in (remaining, dropped):
            await put(collection, "a", 1, 3)
            await collection.publish()
        alone = await seen(remaining)
        await dropped.drop()
        assert await another.find(SPEC.tenant, SPEC.name) is None
        assert await points_left(server) == 10  # three passages, a record and the entry of each index
        assert not await dropped.location.clear(1)  # type: ignore[attr-defined]  # it is a SharedLocation
        assert await points_left(server) < 10
        await another.tidy()
        assert await points_left(server) == 5
        assert await seen(remaining) == alone
        again = await another.create(SPEC)
        assert await again.count_documents(EVERYTHING) == 0
        with pytest.raises(NotFound):
            await dropped.count_documents(EVERYTHING)


async def test_an_abandoned_incarnation_is_removed() -> None:
    """The points of an unpublished incarnation are removed after its process ends, and not before."""
    async with serving() as server, opened(server, lease=LEASE) as store:
        async with opened(server, lease=LEASE) as one:
            left, replacement = await one.create(SPEC), await one.create(SPEC, is_replacement=True)
            for collection in (left, replacement):
                await collection.add_chunks(Document("a", generation=1), points("a", 1, 2))
            await asyncio.sleep(LEASE * 1.5)
            await store.tidy()
            assert await points_left(server) == 6
        await store.tidy()
        assert await points_left(server) == 0


async def test_two_processes_create_the_same_index() -> None:
    """Processes that create the same index share one incarnation, also at the same time. A replacement is another
    incarnation.
    """
    async with serving() as server, opened(server) as one, opened(server) as other:
        for name in map(str, range(5)):
            spec = replace(SPEC, name=name)
            replacement = await one.create(spec, is_replacement=True)
            first, second = await asyncio.gather(one.create(spec), other.create(spec))
            assert first.location.key == second.location.key != replacement.location.key
            await first.publish()
            await second.publish()
            found = await other.find(spec.tenant, name)
            assert found is second
            with pytest.raises(Unavailable, match="meanwhile"):
                await replacement.publish()


async def test_the_setting_applies_to_new_indexes() -> None:
    """A store of either layout serves the indexes of both. A replaced index has the layout of the store that
    replaces it.
    """
    async with serving() as server, opened(server) as shared, opened(server, Layout()) as own:
        await (await shared.create(SPEC)).publish()
        await (await own.create(OTHER)).publish()
        for store in (shared, own):
            assert sorted(collection.spec.tenant for collection in await store.collections()) == ["one", "other"]
            await store.tidy()
        for store, spec, is_shared in ((own, SPEC, False), (shared, OTHER, True)):
            old = await store.find(spec.tenant, spec.name)
            assert old is not None
            new = await store.create(spec, is_replacement=True)
            await put(new, "a", 1, 2)
            await new.publish(old)
            for reader in (own, shared):
                found = await reader.find(spec.tenant, spec.name)
                assert found is not None
                assert isinstance(found.location.calls, Incarnation) is is_shared
                assert await found.count_chunks(EVERYTHING) == 2
            with pytest.raises(Unavailable, match="replaced"):
                await old.count_chunks(EVERYTHING)


async def test_a_prefix_of_shared_collections_is_refused() -> None:
    """A prefix that ends like the prefix of shared collections is refused, because the names of two installations
    could be the same.
    """
    refused = QdrantSettings(qdrant_url="http://127.0.0.1:1", qdrant_prefix="causeway-space")
    with pytest.raises(InvalidRequest, match="CAUSEWAY_QDRANT_PREFIX"):
        await QDRANT.open(refused, Scheduler())


async def test_a_slow_process_creates_no_second_incarnation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that pauses before it creates the index does not create another incarnation."""
    async with serving() as server, opened(server) as slow, opened(server) as other:
        look_up = slow._unfinished_incarnation  # the only place to pause

        async def pause(space: Space, spec: IndexSpec) -> uuid.UUID | None:
            found = await look_up(space, spec)
            await asyncio.sleep(0.2)
            return found

        monkeypatch.setattr(slow, "_unfinished_incarnation", pause)
        for number in range(6):
            spec = replace(SPEC, name=str(number))
            first, second = await asyncio.gather(slow.create(spec), other.create(spec))
            assert first.location.key == second.location.key
