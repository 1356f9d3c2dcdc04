"""Small documents that are ready at the same time share one operation and one write to the disk."""

import asyncio
import functools
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.servers import eventually
from retriever.concurrency.scheduler import Scheduler
from retriever.documents.group_commit import MAX_GROUP_CHUNKS
from retriever.domain.changes import Outcome
from retriever.domain.document import Document
from retriever.domain.scope import EVERYTHING
from retriever.indexes.open_index import Index
from retriever.ports.whole_documents import WholeDocument
from retriever.stores.edge.collection import EdgeCollection
from retriever.stores.edge.shard import LiveShard
from retriever.stores.edge.store import EdgeStore
from servicekit.errors import Unavailable
from servicekit.principal import LOCAL


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    """Open the services over a store on disk, with an index."""
    opened = await Bench.open(EdgeStore(tmp_path / "store", Scheduler()))
    await opened.put(Document("first", generation=1), ["a ferry"])
    yield opened
    await opened.aclose()


class Watched:
    """Records the groups and the writes to the disk. The first group waits until `go` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[list[str]] = []
        self.operations: list[int] = []
        self.syncs = 0
        self.go = asyncio.Event()
        self.bad: set[str] = set()
        put, sync, upsert = EdgeCollection.put_documents, LiveShard.sync, LiveShard.upsert

        async def put_documents(collection: EdgeCollection, documents: Sequence[WholeDocument]) -> list[str]:
            self.groups.append([whole.document.document_id for whole in documents])
            await self.go.wait()
            if self.bad.intersection(self.groups[-1]):
                await put(collection, documents)  # a failed operation may have been applied partly
                raise RuntimeError("the engine failed")
            return await put(collection, documents)

        async def counted_sync(live: LiveShard, expected_callers: int = 0) -> None:
            self.syncs += 1
            await sync(live, expected_callers)

        def counted_upsert(live: LiveShard, points: list[Any]) -> None:
            self.operations.append(len(points))
            upsert(live, points)

        monkeypatch.setattr(EdgeCollection, "put_documents", put_documents)
        monkeypatch.setattr(LiveShard, "sync", counted_sync)
        monkeypatch.setattr(LiveShard, "upsert", counted_upsert)


@pytest.fixture
def watched(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Record the groups and the writes from now on."""
    del bench
    return Watched(monkeypatch)


async def put_all(bench: Bench, watched: Watched, *texts: tuple[str, list[str]]) -> list[Any]:
    """Return the results of documents that arrive in order while the first one is being written."""
    tasks: list[asyncio.Task[Any]] = []
    index = await bench.indexes.get(LOCAL.tenant, INDEX)
    for number, (name, content) in enumerate(texts):
        tasks.append(asyncio.create_task(bench.put(Document(name, generation=2), content)))
        await eventually(functools.partial(_has_arrived, bench, index, watched, number))
    watched.go.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


def _has_arrived(bench: Bench, index: Index, watched: Watched, number: int) -> bool:
    return bool(watched.groups) and bench.groups.waiting(index) == number


async def marked(bench: Bench) -> list[str]:
    return await (await bench.indexes.get(LOCAL.tenant, INDEX)).collection.marked()


async def test_waiting_documents_share_one_operation(bench: Bench, watched: Watched) -> None:
    """Four documents that arrive during another write share one operation and one write to the disk."""
    results = await put_all(bench, watched, *((name, [f"ferry {name}"]) for name in "abcde"))
    assert [result.outcome for result in results] == [Outcome.CREATED] * 5
    assert watched.groups == [["a"], ["b", "c", "d", "e"]]
    assert watched.operations == [2, 8]  # a chunk and a record each
    assert watched.syncs == 2
    found = {passage.document.document_id for passage in await bench.ask("ferry", top=100)}
    assert found == {"first", *"abcde"}


async def test_a_group_has_few_chunks(bench: Bench, watched: Watched) -> None:
    """A document that would make a group too large belongs to the next group."""
    long = [f"ferry {number}" for number in range(MAX_GROUP_CHUNKS - 1)]
    await put_all(bench, watched, ("a", ["x"]), ("b", ["x"]), ("c", long), ("d", ["x"]), ("e", ["x"]))
    assert watched.groups == [["a"], ["b", "c"], ["d", "e"]]


async def test_a_large_document_is_written_in_slices(bench: Bench, watched: Watched) -> None:
    """A document with more chunks than a group is written in slices."""
    watched.go.set()
    await bench.put(Document("large", generation=1), [f"ferry {number}" for number in range(MAX_GROUP_CHUNKS + 1)])
    assert watched.groups == []
    assert watched.operations == [1, 16, 1, 1]  # the mark, the chunks, the record


async def test_a_failing_document_does_not_affect_its_group(
    bench: Bench, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing document leaves no data, and the other documents of its group are stored."""
    watched.bad.add("c")
    add = EdgeCollection.add_chunks

    async def add_chunks(collection: EdgeCollection, document: Document, points: Any) -> None:
        if document.document_id == "c":
            raise Unavailable("There is no room.")
        await add(collection, document, points)

    monkeypatch.setattr(EdgeCollection, "add_chunks", add_chunks)
    a, b, c, d = await put_all(bench, watched, *((name, [f"ferry {name}"]) for name in "abcd"))
    assert [result.outcome for result in (a, b, d)] == [Outcome.CREATED] * 3
    assert isinstance(c, Unavailable)
    found = {passage.document.document_id for passage in await bench.ask("ferry", top=100)}
    assert found == {"first", "a", "b", "d"}
    assert await marked(bench) == []


async def test_the_previous_version_stays_if_the_new_one_fails(
    bench: Bench, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Searches find the previous version if the new version cannot be stored."""

    async def add_chunks(*_: Any) -> None:
        raise Unavailable("There is no room.")

    watched.bad.add("first")
    watched.go.set()
    monkeypatch.setattr(EdgeCollection, "add_chunks", add_chunks)
    with pytest.raises(Unavailable):
        await bench.put(Document("first", generation=2), ["another ferry"])
    (passage,) = await bench.ask("ferry", top=100)
    assert (passage.text, passage.document.generation) == ("a ferry", 1)
    assert await marked(bench) == []


@pytest.mark.parametrize("step", ["sync", "settle"])
async def test_a_new_version_stays_visible_if_a_later_step_fails(
    bench: Bench, watched: Watched, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """If a step after the write of the group fails once, its documents are stored, and stay visible meanwhile."""
    watched.go.set()
    owner: Any = EdgeCollection if step == "sync" else Index
    original, put, remove = getattr(owner, step), EdgeCollection.put_record, EdgeCollection.remove_record
    failed = False
    written: list[int] = []
    removed: list[str] = []

    async def fail_once(self: Any, *args: Any) -> None:
        nonlocal failed
        if not failed:
            failed = True
            raise OSError("the disk failed")
        await original(self, *args)

    async def put_record(collection: EdgeCollection, document: Document) -> None:
        written.append(document.generation)
        await put(collection, document)

    async def remove_record(collection: EdgeCollection, document_id: str) -> None:
        removed.append(document_id)
        await remove(collection, document_id)

    monkeypatch.setattr(owner, step, fail_once)
    monkeypatch.setattr(EdgeCollection, "put_record", put_record)
    monkeypatch.setattr(EdgeCollection, "remove_record", remove_record)
    replaced = await bench.put(Document("first", generation=2), ["another ferry"])
    created = await bench.put(Document("second", generation=2), ["a bridge"])
    assert failed
    assert (replaced.outcome, created.outcome) == (Outcome.REPLACED, Outcome.CREATED)
    assert set(written) == {2}
    assert removed == []
    found = {passage.text for passage in await bench.ask("ferry", top=100)}
    assert found == {"another ferry", "a bridge"}
    assert await marked(bench) == []


async def test_a_new_document_stays_visible_if_the_sync_fails(
    bench: Bench, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If the sync of a new document fails, the document is reported as failed, but it does not disappear."""

    async def sync(*_: Any) -> None:
        raise Unavailable("The disk failed.")

    watched.go.set()
    monkeypatch.setattr(EdgeCollection, "sync", sync)
    removed: list[str] = []

    async def remove_record(_: EdgeCollection, document_id: str) -> None:
        removed.append(document_id)

    monkeypatch.setattr(EdgeCollection, "remove_record", remove_record)
    with pytest.raises(Unavailable):
        await bench.put(Document("second", generation=1), ["a bridge"])
    assert removed == []
    assert {passage.text for passage in await bench.ask("ferry", top=100)} == {"a ferry", "a bridge"}
    assert await marked(bench) == []


async def test_a_new_version_replaces_the_previous_one(bench: Bench, watched: Watched) -> None:
    """A new version removes the chunks of the previous version and leaves no mark."""
    watched.go.set()
    replaced = await bench.put(Document("first", generation=2), ["another ferry"])
    assert replaced.outcome is Outcome.REPLACED
    assert [passage.text for passage in await bench.ask("ferry", top=100)] == ["another ferry"]
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    assert await collection.count_chunks(EVERYTHING) == 1
    assert await marked(bench) == []


async def test_a_cancelled_caller_does_not_stop_the_write(bench: Bench, watched: Watched) -> None:
    """A document is stored although its caller is cancelled while its group is written."""
    tasks = [asyncio.create_task(bench.put(Document(name, generation=2), [f"ferry {name}"])) for name in "ab"]
    await eventually(lambda: bool(watched.groups))
    for task in tasks:
        task.cancel()
    watched.go.set()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results)
    found = {passage.document.document_id for passage in await bench.ask("ferry", top=100)}
    assert found >= {"first", watched.groups[0][0]}
