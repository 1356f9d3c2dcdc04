"""A cached read of a shard equals a fresh one."""

import asyncio
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from retriever.byte_cache import ByteCache
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Chunk, Document
from retriever.domain.index import IndexSpec
from retriever.ports.store import ChunkPoint, StoredChunk, Terms
from retriever.stores import payload
from retriever.stores.edge.collection import EdgeCollection
from retriever.stores.edge.read_cache import ReadCache
from retriever.stores.edge.store import EdgeStore
from servicekit import keys

SPEC = IndexSpec("local", "notes", "m", 2)
DOCUMENTS = ("a", "b", "c")
CHUNKS = 40  # a write needs several slices
KINDS = ("add", "record", "remove chunks", "remove record", "mark", "unmark")
STEPS = st.lists(st.tuples(st.sampled_from(KINDS), st.sampled_from(DOCUMENTS), st.integers(1, 3)), max_size=6)


def point(document: Document, number: int) -> ChunkPoint:
    """Return a chunk. Its page is the generation, which the id does not contain, as in real ids."""
    id_ = str(keys.point_id("notes", document.document_id, 1, number, "text"))
    chunk = Chunk(number, f"text {number}", "text", page=document.generation, vector=[1.0, 0.0])
    return ChunkPoint(id_, chunk, Terms([number], [1.0]))


CHUNK_IDS = [point(Document(name), number).id for name in DOCUMENTS for number in range(CHUNKS)]


async def write(collection: EdgeCollection, kind: str, name: str, generation: int) -> None:
    """Carry out one step of a writer."""
    document = Document(name, generation=generation)
    if kind == "add":
        await collection.add_chunks(document, [point(document, number) for number in range(CHUNKS)])
    elif kind == "record":
        await collection.put_record(document)
    elif kind == "remove chunks":
        await collection.remove_chunks(name, keep=generation)
    elif kind == "remove record":
        await collection.remove_record(name)
    elif kind == "mark":
        await collection.mark(name)
    else:
        await collection.unmark(name)


def fresh(collection: EdgeCollection) -> dict[str, StoredChunk]:
    """Return the chunks that the shard has, without the cache."""
    found = collection._shard.retrieve([*CHUNK_IDS], with_payload=payload.STORED_CHUNK_FIELDS, with_vector=False)
    return {str(point.id): payload.stored_chunk(str(point.id), point.payload or {}) for point in found}


@settings(max_examples=12, deadline=None)
@given(writers=st.lists(STEPS, min_size=1, max_size=3), max_bytes=st.sampled_from([0, 5_000, 1_000_000]))
def test_a_cached_read_equals_a_fresh_one(writers: list[list[tuple[str, str, int]]], max_bytes: int) -> None:
    """A read between the slices of concurrent writers returns what the shard has, for any size of the cache."""

    async def check() -> None:
        with tempfile.TemporaryDirectory() as directory:
            store = EdgeStore(Path(directory), Scheduler(), reads=ReadCache(max_bytes))
            collection = await store.create(SPEC)
            await write(collection, "add", "a", 1)
            await write(collection, "record", "a", 1)

            async def run(steps: list[tuple[str, str, int]]) -> None:
                for step in steps:
                    await write(collection, *step)

            tasks = [asyncio.create_task(run(steps)) for steps in writers]
            while True:
                ended = all(task.done() for task in tasks)
                assert dict(await collection.chunks(CHUNK_IDS)) == fresh(collection)
                ids = [keys.document_point_id(keys.collection("local", "notes"), name) for name in DOCUMENTS]
                points = collection._shard.retrieve([*ids], with_payload=["record"], with_vector=False)
                records = [payload.decode_record(point.payload or {}) for point in points]
                assert dict(await collection.records(DOCUMENTS)) == {
                    record.document_id: record for record in records
                }
                if ended:
                    break
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)
            await store.aclose()

    asyncio.run(check())


async def test_a_new_index_of_the_same_name_has_no_cached_reads(tmp_path: Path) -> None:
    """A new index does not return cached reads of a dropped index of the same name."""
    store = EdgeStore(tmp_path, Scheduler())
    first = await store.create(SPEC)
    await write(first, "add", "a", 1)
    await write(first, "record", "a", 1)
    assert len(await first.chunks(CHUNK_IDS)) == CHUNKS
    assert len(await first.records(DOCUMENTS)) == 1
    await first.drop()
    second = await store.create(SPEC)
    assert await second.chunks(CHUNK_IDS) == {}
    assert await second.records(DOCUMENTS) == {}
    await store.aclose()


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 900), st.booleans()), max_size=40), st.integers(0, 3000)
)
def test_a_cache_keeps_its_bound(steps: list[tuple[int, int, bool]], max_bytes: int) -> None:
    """A cache never exceeds its bytes, and holds the latest value of a key or none."""
    cache: ByteCache[int, int] = ByteCache(max_bytes)
    latest: dict[int, int] = {}
    for key, size, removes in steps:
        if removes:
            cache.remove(key)
            latest.pop(key, None)
        else:
            cache.put(key, size, size)
            latest[key] = size
        assert 0 <= cache.size_bytes <= max_bytes
        assert all(cache.get(key) in (None, latest.get(key)) for key in range(10))


def test_the_least_recently_used_entry_is_dropped() -> None:
    """A full cache drops the least recently used entry."""
    cache: ByteCache[str, int] = ByteCache(1000)
    cache.put("a", 1, 200)
    cache.put("b", 2, 200)
    assert cache.get("a") == 1
    cache.put("c", 3, 200)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
