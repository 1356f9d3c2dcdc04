"""The upsert protocol: an upsert is complete or changes nothing, and the highest generation of a document wins."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from causeway_testing.retriever.bench import DIMENSION, INDEX, Bench, steps
from causeway_testing.retriever.checks import assert_nothing_left
from causeway_testing.retriever.store import MemoryCollection, MemoryStore
from causeway_testing.servers import eventually
from retriever.domain.changes import Commit, Outcome, UpsertStep
from retriever.domain.document import Chunk, Document
from servicekit.errors import (
    DeadlineExceeded,
    InvalidRequest,
    NotFound,
    PayloadTooLarge,
    RateLimited,
    StaleGeneration,
)
from servicekit.principal import LOCAL

OLD = ["the old ferry", "the old bridge"]
NEW = ["the new ferry", "the new bridge", "the new tolls"]


async def texts(bench: Bench, document_id: str = "d") -> list[str]:
    """Return the texts of the document's chunks that searches find."""
    found = await bench.ask("the ferry bridge tolls", top=100)
    return sorted(passage.text for passage in found if passage.document.document_id == document_id)


async def test_outcomes(bench: Bench) -> None:
    """A first generation is created, a later one replaces it, and the same generation changes nothing."""
    created = await bench.put(Document("d", "a.pdf", generation=1), OLD)
    assert (created.outcome, created.document.chunk_count) == (Outcome.CREATED, 2)
    replaced = await bench.put(Document("d", "b.pdf", generation=5), NEW)
    assert (replaced.outcome, replaced.document.chunk_count) == (Outcome.REPLACED, 3)
    assert replaced.document.updated_at > created.document.updated_at
    again = await bench.put(Document("d", "c.pdf", generation=5), OLD)
    assert (again.outcome, again.document) == (Outcome.UNCHANGED, replaced.document)
    assert await bench.catalogue.document(LOCAL, INDEX, "d") == replaced.document
    assert await texts(bench) == sorted(NEW)
    await assert_nothing_left(bench)


async def test_older_generation_is_refused(bench: Bench) -> None:
    """A generation below the stored one is refused and changes nothing."""
    await bench.put(Document("d", generation=5), NEW)
    with pytest.raises(StaleGeneration):
        await bench.put(Document("d", generation=4), OLD)
    assert await texts(bench) == sorted(NEW)
    await assert_nothing_left(bench)


async def test_a_document_may_have_no_chunks(bench: Bench) -> None:
    """A new version without chunks replaces the previous chunks."""
    await bench.put(Document("d", generation=1), OLD)
    await bench.put(Document("d", generation=2), [])
    assert await texts(bench) == []
    assert (await bench.catalogue.document(LOCAL, INDEX, "d")).chunk_count == 0


async def test_chunks_are_not_seen_before_the_commit(bench: Bench) -> None:
    """The previous version is found, listed and counted until the new version is committed."""
    await bench.put(Document("d", generation=1), OLD)
    seen = []

    async def coming() -> AsyncIterator[UpsertStep]:
        chunks = await bench.chunks(NEW)
        yield bench.begin(Document("d", generation=2))
        for chunk in chunks:
            yield [chunk]
            seen.append(await texts(bench))
            (summary,) = await bench.catalogue.indexes(LOCAL)
            assert (summary.documents, summary.chunks) == (1, 2)
        yield Commit(len(chunks))

    await bench.upserts.upsert(coming())
    assert seen == [sorted(OLD)] * len(NEW)
    assert await texts(bench) == sorted(NEW)


def chunk(**changes: Any) -> Chunk:
    """Return a valid chunk with the given changes."""
    return replace(Chunk(0, "text", "text", vector=[1.0] + [0.0] * (DIMENSION - 1)), **changes)


WRONG_CHUNKS: list[tuple[list[Sequence[Chunk]], str]] = [
    ([[chunk(number=1)]], "chunks[0].number"),
    ([[chunk(), chunk()]], "chunks[1].number"),
    ([[chunk()], [chunk(number=2)]], "chunks[0].number"),
    ([[chunk(number=number) for number in range(65)]], "chunks"),
    ([[chunk(text=" ")]], "chunks[0].text"),
    ([[chunk(indexed_text="\n")]], "chunks[0].indexed_text"),
    ([[chunk(overlap=5)]], "chunks[0].overlap"),
    ([[chunk(separator=" " * 10_001)]], "chunks[0].separator"),
    ([[chunk(vector=[1.0])]], "chunks[0].vector"),
    ([[chunk(), chunk(number=1, vector=[math.nan] * DIMENSION)]], "chunks[1].vector"),
    ([[chunk(vector=[math.inf] + [0.0] * (DIMENSION - 1))]], "chunks[0].vector"),
    ([[chunk(vector=[0.0] * DIMENSION)]], "chunks[0].vector"),
    ([[chunk(vector=[0.5] * DIMENSION)]], "chunks[0].vector"),
]


async def test_wrong_chunks_are_refused(bench: Bench) -> None:
    """A wrong chunk is refused, and the error names the field. The previous version stays, and can be replaced."""
    await bench.put(Document("d", generation=1), OLD)
    for messages, field in WRONG_CHUNKS:
        count = sum(map(len, messages))
        stream = steps(bench.begin(Document("d", generation=2)), *messages, Commit(count))
        with pytest.raises(InvalidRequest) as caught:
            await bench.upserts.upsert(stream)
        assert caught.value.field == field
        assert await texts(bench) == sorted(OLD)
    await assert_nothing_left(bench)
    await bench.put(Document("d", generation=2), NEW)
    assert await texts(bench) == sorted(NEW)


async def test_wrong_order_is_refused(bench: Bench) -> None:
    """A stream must begin with one ``begin`` and end with one ``commit`` that has the right count."""
    begin = bench.begin(Document("d", generation=1))
    for stream, field in (
        ([], "begin"),
        ([Commit(0)], "begin"),
        ([[chunk()]], "begin"),
        ([begin, begin], "begin"),
        ([begin], "commit"),
        ([begin, [chunk()]], "commit"),
        ([begin, [chunk()], Commit(2)], "commit.chunk_count"),
        ([begin, Commit(1)], "commit.chunk_count"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            await bench.upserts.upsert(steps(*stream))
        assert caught.value.field == field
    assert await bench.catalogue.indexes(LOCAL) == []


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"index": "a/b"}, InvalidRequest, "index"),
        ({"index": ""}, InvalidRequest, "index"),
        ({"document": Document(" ")}, InvalidRequest, "document.document_id"),
        ({"document": Document("x" * 513)}, InvalidRequest, "document.document_id"),
        ({"document": Document("d", sha256="AB")}, InvalidRequest, "document.sha256"),
        ({"document": Document("d", metadata_json=b"[]")}, InvalidRequest, "document.metadata_json"),
        ({"document": Document("d", metadata_json=b"{")}, InvalidRequest, "document.metadata_json"),
        ({"document": Document("d", metadata_json=b'{"a":"\xff"}')}, InvalidRequest, "document.metadata_json"),
        (
            {"document": Document("d", metadata_json=b'{"a":' + b"[" * 30_000)},
            InvalidRequest,
            "document.metadata_json",
        ),
        ({"document": Document("d", metadata_json=b" " * 65_537)}, PayloadTooLarge, "document.metadata_json"),
        ({"embedding_model": ""}, InvalidRequest, "embedding_model"),
        ({"embedding_model": "other"}, InvalidRequest, "embedding_model"),
        ({"dimension": 0}, InvalidRequest, "dimension"),
        ({"dimension": 65_537}, InvalidRequest, "dimension"),
        ({"dimension": 32}, InvalidRequest, "dimension"),
    ],
)
async def test_wrong_begin_is_refused(changes: dict[str, Any], error: type[InvalidRequest], field: str) -> None:
    """The error names the wrong field of an upsert's first message, and nothing changes."""
    bench = await Bench.open(MemoryStore())
    await bench.put(Document("d", generation=1), OLD)
    begin = replace(bench.begin(Document("e", generation=1)), **changes)
    with pytest.raises(error) as caught:
        await bench.upserts.upsert(steps(begin, Commit(0)))
    assert caught.value.field == field
    (summary,) = await bench.catalogue.indexes(LOCAL)
    assert summary.documents == 1


async def test_a_failed_first_upsert_leaves_no_index(bench: Bench) -> None:
    """A new index is removed if its first upsert fails, and it is not visible before a commit."""

    async def failing() -> AsyncIterator[UpsertStep]:
        yield bench.begin(Document("d", generation=1))
        yield (await bench.chunks(OLD))[:1]
        assert await bench.catalogue.indexes(LOCAL) == []
        with pytest.raises(NotFound):
            await bench.ask("ferry")
        with pytest.raises(NotFound):
            await bench.catalogue.delete_index(LOCAL, INDEX)

    with pytest.raises(InvalidRequest):
        await bench.upserts.upsert(failing())
    assert await bench.catalogue.indexes(LOCAL) == []
    await bench.put(Document("d", generation=1), NEW)
    assert await texts(bench) == sorted(NEW)


async def test_a_new_index_outlives_one_of_two_first_upserts(bench: Bench) -> None:
    """A new index stays if one of its two first upserts fails."""
    begun, failed = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[UpsertStep]:
        yield bench.begin(Document("good", generation=1))
        yield await bench.chunks(OLD)
        begun.set()
        await failed.wait()
        yield Commit(len(OLD))

    good = asyncio.create_task(bench.upserts.upsert(slow()))
    await begun.wait()
    with pytest.raises(InvalidRequest):
        await bench.upserts.upsert(steps(bench.begin(Document("bad", generation=1)), Commit(7)))
    failed.set()
    assert (await good).outcome is Outcome.CREATED
    assert await texts(bench, "good") == sorted(OLD)
    assert await texts(bench, "bad") == []


async def test_a_cancelled_upsert_leaves_nothing(bench: Bench) -> None:
    """A cancelled upsert removes its staged chunks, and the previous version stays complete."""
    await bench.put(Document("d", generation=1), OLD)
    waiting = asyncio.Event()

    async def endless() -> AsyncIterator[UpsertStep]:
        yield bench.begin(Document("d", generation=2))
        yield await bench.chunks(NEW)
        waiting.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(bench.upserts.upsert(endless()))
    await waiting.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await texts(bench) == sorted(OLD)
    await assert_nothing_left(bench)
    await bench.put(Document("d", generation=2), NEW)
    assert await texts(bench) == sorted(NEW)


async def test_a_silent_stream_ends(reopen: Any) -> None:
    """An upsert without a message for a while fails with DeadlineExceeded and leaves nothing."""
    bench = await Bench.open(reopen(), idle_seconds=0.05)

    async def silent() -> AsyncIterator[UpsertStep]:
        yield bench.begin(Document("d", generation=1))
        await asyncio.Event().wait()

    with pytest.raises(DeadlineExceeded):
        await bench.upserts.upsert(silent())
    assert await bench.catalogue.indexes(LOCAL) == []
    await bench.aclose()


async def test_two_upserts_of_a_document_follow_each_other(bench: Bench) -> None:
    """The highest of several concurrent generations is stored completely, in any order of arrival."""
    for order in ([1, 2, 3], [3, 2, 1], [2, 3, 1]):
        name = f"d{order}"

        async def put(generation: int, name: str = name) -> Outcome | None:
            try:
                upserted = await bench.put(
                    Document(name, generation=generation),
                    [f"ferry {generation} part {part}" for part in range(70 + generation)],
                )
            except StaleGeneration:
                return None
            return upserted.outcome

        await asyncio.gather(*(put(generation) for generation in order))
        found = await bench.ask(f"ferry {order}", top=1000)
        mine = [passage for passage in found if passage.document.document_id == name]
        assert {passage.document.generation for passage in mine} == {3}
        assert {passage.text.split()[1] for passage in mine} == {"3"}
        assert len(mine) == 73
    await assert_nothing_left(bench)


async def test_upserts_at_a_time_are_bounded() -> None:
    """Upserts above the limit wait, and above the queue they are refused. All waiting ones are stored."""
    bench = await Bench.open(MemoryStore(), max_concurrent=2, max_waiting=3)
    go = asyncio.Event()
    running = 0

    async def slow(number: int) -> AsyncIterator[UpsertStep]:
        nonlocal running
        yield bench.begin(Document(f"d{number}", generation=1))
        running += 1
        await go.wait()
        yield Commit(0)

    tasks = [asyncio.create_task(bench.upserts.upsert(slow(number))) for number in range(5)]
    await eventually(lambda: running == 2)
    with pytest.raises(RateLimited) as caught:
        await bench.upserts.upsert(slow(9))
    assert caught.value.retry_after
    assert running == 2
    go.set()
    await asyncio.gather(*tasks)
    (summary,) = await bench.catalogue.indexes(LOCAL)
    assert summary.documents == 5


async def test_deleting_the_index_ends_its_upserts(bench: Bench) -> None:
    """An upsert into an index that is deleted meanwhile fails with NotFound, and the index stays deleted."""
    await bench.put(Document("d", generation=1), OLD)

    async def coming() -> AsyncIterator[UpsertStep]:
        yield bench.begin(Document("e", generation=1))
        yield await bench.chunks(NEW)
        await bench.catalogue.delete_index(LOCAL, INDEX)
        yield Commit(len(NEW))

    with pytest.raises(NotFound):
        await bench.upserts.upsert(coming())
    assert await bench.catalogue.indexes(LOCAL) == []
    await bench.put(Document("f", generation=1), OLD)
    assert await texts(bench, "e") == []


class FailingCollection(MemoryCollection):
    """A collection whose method with the name ``failing`` fails."""

    failing = ""

    async def put_record(self, document: Document) -> None:
        self._fail("put_record")
        await super().put_record(document)

    async def sync(self) -> None:
        self._fail("sync")

    async def remove_chunks(self, document_id: str, keep: int | None) -> None:
        self._fail("remove_chunks")
        await super().remove_chunks(document_id, keep)

    def _fail(self, name: str) -> None:
        if type(self).failing == name:
            raise OSError(name)


class FailingStore(MemoryStore):
    """A store with collections that can fail."""

    async def create(self, spec: Any, *, is_replacement: bool = False) -> MemoryCollection:
        assert not is_replacement
        collection = FailingCollection(spec)
        self._collections.append(collection)
        return collection


@pytest.mark.parametrize(("failing", "left"), [("put_record", OLD), ("sync", NEW), ("remove_chunks", NEW)])
async def test_a_failing_store_never_mixes_versions(failing: str, left: list[str]) -> None:
    """Exactly one version is found after each failing step of a commit, even after a restart."""
    store = FailingStore()
    bench = await Bench.open(store)
    await bench.put(Document("d", generation=1), OLD)
    FailingCollection.failing = failing
    with pytest.raises(OSError, match=failing):
        await bench.put(Document("d", generation=2), NEW)
    assert await texts(bench) == sorted(left)
    FailingCollection.failing = ""
    await store.aclose()
    again = await Bench.open(store)
    assert await texts(again) == sorted(left)
    await assert_nothing_left(again)
