"""The store on a Qdrant server: how collections are created, found and removed."""

import asyncio
from dataclasses import replace

import pytest
from causeway_testing.retriever.qdrant import serving
from causeway_testing.retriever.qdrant_stores import LEASE, SPEC, kill, opened, two
from qdrant_client import grpc as q
from retriever.domain.index import IndexSpec
from retriever.domain.scope import EVERYTHING
from retriever.stores.qdrant.layout import Layout
from retriever.stores.vector_storage import VectorStorage
from servicekit.errors import NotFound, Unavailable


async def test_collections_are_created_as_configured() -> None:
    """A collection gets the configured shards, copies and quantization, IDF, and indexes for filtered fields."""
    vectors = VectorStorage("scalar", on_disk=True)
    layout = Layout("mine", shards=3, replicas=2, write_consistency=2, vectors=vectors)
    async with serving() as server, opened(server, layout) as store:
        await (await store.create(SPEC)).publish()
        (created,) = server.created
        assert created.collection_name.startswith("mine.")
        assert (created.shard_number, created.replication_factor, created.write_consistency_factor) == (3, 2, 2)
        dense = created.vectors_config.params_map.map["dense"]
        assert (dense.size, dense.distance, dense.on_disk) == (64, q.Distance.Cosine, True)
        assert dense.quantization_config.WhichOneof("quantization") == "scalar"
        assert created.sparse_vectors_config.map["bm25"].modifier == q.Modifier.Idf
        assert server.calls.count("CreateFieldIndex") == 4
        assert [collection.spec for collection in await store.collections()] == [SPEC]
    async with serving() as server, opened(server, Layout(vectors=VectorStorage("binary"))) as store:
        await store.create(SPEC)
        dense = server.created[0].vectors_config.params_map.map["dense"]
        assert dense.quantization_config.WhichOneof("quantization") == "binary"


def test_searches_rescore_more_candidates_of_coarser_vectors() -> None:
    """Searches rescore the candidates of quantized vectors, twice as many of binary ones as of scalar ones."""
    params = [Layout(vectors=VectorStorage(quantization)).search for quantization in ("none", "scalar", "binary")]
    found = [
        search_params and search_params.quantization and search_params.quantization.model_dump(exclude_unset=True)
        for search_params in params
    ]
    assert found == [None, {"rescore": True, "oversampling": 2.0}, {"rescore": True, "oversampling": 4.0}]


async def test_prefixes_separate_installations() -> None:
    """Two installations with different prefixes have indexes of the same name on one server."""
    async with serving() as server, opened(server, Layout("a")) as one, opened(server, Layout("b")) as other:
        await (await one.create(SPEC)).publish()
        assert await other.find(SPEC.tenant, SPEC.name) is None
        assert await other.collections() == []
        await other.tidy()
        assert len(await one.collections()) == 1


async def test_a_lookup_reads_only_one_index() -> None:
    """A lookup of a missing name makes one small call. No lookup reads other indexes."""
    async with serving() as server, opened(server) as one, opened(server) as other:
        for number in range(5):
            await (await one.create(replace(SPEC, name=f"notes {number}"))).publish()
        server.calls.clear()
        assert await other.find(SPEC.tenant, "missing") is None
        assert server.calls == ["ListAliases"]
        server.calls.clear()
        found = await other.find(SPEC.tenant, "notes 3")
        assert found is not None
        assert found.spec.name == "notes 3"
        assert server.calls == ["ListAliases", "Get", "Get"]
        assert await other.find(SPEC.tenant, "notes 3") is found


async def test_abandoned_collections_are_removed() -> None:
    """An unpublished collection is removed after its process was killed, and not before. Published ones stay."""
    async with serving() as server, opened(server) as one, opened(server) as other:
        await (await one.create(IndexSpec("local", "published", "m", 8))).publish()
        await one.create(SPEC)
        await one.create(SPEC, is_replacement=True)
        await asyncio.sleep(LEASE * 1.5)
        await other.tidy()
        assert len((await server.client.get_collections()).collections) == 3
        await kill(one)
        await asyncio.sleep(LEASE * 1.5)
        await other.tidy()
        assert [collection.spec.name for collection in await other.collections()] == ["published"]
        assert len((await server.client.get_collections()).collections) == 1


async def test_a_collection_without_a_specification_is_removed_after_a_while() -> None:
    """A collection without a specification is removed after two leases. The time that an earlier collection of the
    same name had no specification does not count.
    """
    lease = 0.1
    async with serving() as server, opened(server) as one, opened(server, lease=lease) as other:
        index = await one.create(SPEC)
        name, location = index.location.name, index.location
        await index.drop()
        await location.create(SPEC)
        await other.tidy()
        index = await one.create(SPEC)
        assert index.location.name == name
        await index.publish()
        await other.tidy()
        await index.drop()
        await asyncio.sleep(lease * 3)
        await location.create(SPEC)
        await other.tidy()
        assert await server.client.collection_exists(name)
        await asyncio.sleep(lease * 3)
        await other.tidy()
        assert not await server.client.collection_exists(name)


async def test_closing_removes_unpublished_collections() -> None:
    """A closing store removes its unpublished collections at once, and abandons its marks."""
    async with serving() as server, opened(server, lease=30.0) as other:
        async with opened(server, lease=30.0) as store:
            await store.create(SPEC, is_replacement=True)
            collection = await store.create(SPEC)
            await collection.publish()
            await collection.mark("d")
        (collection,) = await other.collections()
        assert await collection.abandoned() == ["d"]
        assert len((await server.client.get_collections()).collections) == 1


async def test_an_index_that_another_process_removed() -> None:
    """Calls of an index that another process removed report that it is gone."""
    async with two() as (mine, theirs):
        await theirs.drop()
        with pytest.raises(Unavailable, match="replaced"):
            await mine.count_chunks(EVERYTHING)
        assert not await mine.is_current()
        with pytest.raises(NotFound):
            await theirs.count_chunks(EVERYTHING)
