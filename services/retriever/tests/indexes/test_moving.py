"""Moves of indexes between unshared and shared collections on the stand-in for a Qdrant server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.checks import points_left
from causeway_testing.retriever.qdrant import Server, serving
from retriever.concurrency.retry import retry_when_replaced
from retriever.domain.document import Document
from retriever.domain.index import IndexSettings
from retriever.domain.scope import EVERYTHING
from retriever.move_indexes import move_all
from retriever.ports.store import REBUILD
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.incarnation import Incarnation
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import Unavailable
from servicekit.tasks import cancel_and_wait

LEASE = 1.0
"""The lease of a killed process, short so that the others soon take over."""
TAKEOVER_LEASE = 5.0
"""The lease of the process that takes over. It waits for 0.4 of this time before it treats a lease as abandoned."""
DOCUMENTS = 6


class Dying(Connection):
    """A process's connection that blocks after a number of writes, like that of a killed process."""

    left = 10**9

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.over = asyncio.Event()

    async def _call(self, *args: Any, **options: Any) -> Any:
        await self._passed()
        return await super()._call(*args, **options)

    async def write(self, *args: Any, **options: Any) -> Any:
        """Count a write."""
        self.left -= 1
        return await super().write(*args, **options)

    async def write_once(self, *args: Any, **options: Any) -> Any:
        """Count a write."""
        self.left -= 1
        await self._passed()
        return await super().write_once(*args, **options)

    async def _passed(self) -> None:
        if self.left < 0:
            await self.over.wait()
            raise Unavailable("The process was killed.")


@asynccontextmanager
async def process(
    server: Server, layout: Layout, dies_after: int | None = None, *, lease_seconds: float = 30.0
) -> AsyncIterator[QdrantStore]:
    """Open a process's store."""
    connection = Dying.from_url(server.url, None, 10.0)
    store = await QdrantStore.open(connection, layout, lease_seconds)
    assert isinstance(connection, Dying)
    connection.left = 10**9 if dies_after is None else dies_after
    try:
        yield store
    finally:
        connection.over.set()
        await store.aclose()


@asynccontextmanager
async def served() -> AsyncIterator[tuple[Server, Bench]]:
    """Open a retriever with an index in an unshared collection."""
    async with serving() as server, process(server, Layout()) as store:
        bench = await Bench.open(store)
        for number in range(DOCUMENTS):
            await bench.put(Document(f"d{number}", generation=1), [f"ferry {number}", f"harbour {number}"])
        yield server, bench
        await bench.indexes.aclose()


@retry_when_replaced
async def content(bench: Bench) -> tuple[object, ...]:
    """Return the ids, counts, records, specification and note of an index, as a retriever reads them."""
    collection = (await bench.indexes.get("local", INDEX)).collection
    vector = (await bench.embedder.embed(["ferry"]))[0].tolist()
    found = await collection.dense(vector, 100, EVERYTHING)
    return (
        {id_: round(cosine, 4) for id_, cosine in found.items()},
        await collection.count_chunks(EVERYTHING),
        await collection.records(sorted(await collection.document_ids(EVERYTHING))),
        collection.spec,
        await collection.note(),
    )


async def move_until_done(store: QdrantStore) -> None:
    """Repeat the command until each index has the layout of the store."""
    async with asyncio.timeout(60):
        while True:
            try:
                await move_all(store)
                return
            except Unavailable:  # the marks of the killed process are still valid
                await asyncio.sleep(0.1)


async def cleared(server: Server, store: QdrantStore, points: int) -> None:
    """Wait until the server has exactly this number of points."""
    async with asyncio.timeout(60):
        while await points_left(server) != points:
            await asyncio.sleep(0.1)
            await store.tidy()


async def test_an_index_moves_while_it_is_read_and_written() -> None:
    """A move to a shared collection and a move back keep the documents, settings and note, also those that were
    written in between. Each search during the first move finds every document once.
    """
    async with served() as (server, bench), process(server, Layout(shared=True)) as mover:
        index = await bench.indexes.get("local", INDEX)
        await index.collection.put_note(b'{"embedding_model": "m"}')
        before, points = await content(bench), await points_left(server)
        over = asyncio.Event()
        searches = 0

        async def read() -> None:
            nonlocal searches
            while not over.is_set():
                passages = [passage.text for passage in await bench.ask("ferry", top=24, expand=False)]
                ferries = sorted(text for text in passages if "ferry" in text)
                assert ferries == [f"ferry {number}" for number in range(DOCUMENTS)]
                searches += 1

        reading = asyncio.create_task(read())
        await move_all(mover)
        over.set()
        await reading
        assert searches
        assert await content(bench) == before
        found = await mover.find("local", INDEX)
        assert found is not None
        assert isinstance(found.location.calls, Incarnation)
        assert await mover.indexes_to_move() == []
        await cleared(server, mover, points)
        async with process(server, Layout()) as back:
            await bench.put(Document("d0", generation=2), ["another ferry"])
            await (await bench.indexes.get("local", INDEX)).collection.put_settings(IndexSettings(expand=False))
            changed = await content(bench)
            await move_all(back)
            assert await content(bench) == changed
            await cleared(server, back, points - 1)


@pytest.mark.parametrize("writes", [0, 8, 13, 22])
async def test_a_killed_move_is_repeated(writes: int) -> None:
    """After a killed move the index is unchanged, another process completes the move, and no point is left over."""
    async with served() as (server, bench):
        before, points = await content(bench), await points_left(server)
        async with process(server, Layout(shared=True), writes, lease_seconds=LEASE) as killed:
            dying = asyncio.create_task(move_all(killed))
            async with asyncio.timeout(60):
                connection = killed._connection
                assert isinstance(connection, Dying)
                while connection.left >= 0 and not dying.done():  # noqa: ASYNC110  # no event signals it
                    await asyncio.sleep(0.01)
            assert await content(bench) == before
            async with process(server, Layout(shared=True), lease_seconds=TAKEOVER_LEASE) as mover:
                await move_until_done(mover)
                assert await content(bench) == before
                assert await mover.indexes_to_move() == []
                collection = (await bench.indexes.get("local", INDEX)).collection
                await cleared(server, mover, points)
                assert REBUILD not in await collection.marked()
            connection.over.set()
            await cancel_and_wait(dying)
