"""Changes of an alias whose answer is lost, or which the cluster decides late: no index is lost."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import structlog
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.qdrant import Apply, Internal, Server, serving
from qdrant_client import models
from retriever.domain.document import Document
from retriever.move_indexes import move_all
from retriever.stores.qdrant.aliases import AliasReply
from retriever.stores.qdrant.collection import QdrantCollection
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import Unavailable

LEASE = 1.0


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat without a pause."""
    monkeypatch.setattr("retriever.stores.qdrant.location._AGAIN_SECONDS", 0.01)


@asynccontextmanager
async def process(server: Server, *, shared: bool) -> AsyncIterator[QdrantStore]:
    """A process's store."""
    connection = Connection.to(server.url, None, 5.0)
    store = await QdrantStore.open(connection, Layout(shared=shared), LEASE)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def served(*, shared: bool) -> AsyncIterator[tuple[Server, Bench]]:
    """A retriever with an index of one document."""
    async with serving() as server, process(server, shared=shared) as store:
        bench = await Bench.open(store)
        for _ in range(20):
            # On a busy machine the short lease may expire during the write.
            with contextlib.suppress(Unavailable):
                await bench.put(Document("d", generation=1), ["the ferry"])
                break
        yield server, bench
        await bench.indexes.aclose()


class Consensus:
    """The cluster's decisions on aliases: `lose` loses the answers, `delay` keeps the changes."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._decide = server.change
        self.late: list[Apply[Any]] = []

    def lose(self) -> None:
        """Apply changes and answer with an error."""

        async def change(apply: Apply[Any]) -> Any:
            await self._decide(apply)
            raise Internal("Waiting for consensus operation commit failed. Timeout set at: 10 seconds")

        self._server.change = change  # type: ignore[method-assign]  # for the test

    def delay(self) -> None:
        """Keep changes and answer with an error."""

        async def change(apply: Apply[Any]) -> Any:
            self.late.append(apply)
            raise Internal("Waiting for consensus operation commit failed. Timeout set at: 10 seconds")

        self._server.change = change  # type: ignore[method-assign]  # for the test

    def recover(self) -> None:
        """Apply changes and answer."""
        self._server.change = self._decide  # type: ignore[method-assign]  # for the test

    async def decide(self) -> None:
        """Apply the changes that were kept. Those that are not possible any more fail."""
        for apply in self.late:
            try:
                await self._decide(apply)
            except ValueError:
                continue


async def texts(bench: Bench) -> list[str]:
    """The texts that another process finds."""
    return [passage.text for passage in await bench.ask("ferry")]


async def found(server: Server, *, shared: bool) -> list[str]:
    """The texts that a new process finds."""
    async with process(server, shared=shared) as store:
        bench = await Bench.open(store)
        try:
            return await texts(bench)
        finally:
            await bench.indexes.aclose()


async def beside(bench: Bench) -> QdrantCollection:
    """A collection that may replace the index, with one other document."""
    index = await bench.indexes.get("local", INDEX)
    made = await bench.indexes.begin_beside(index.spec)
    assert isinstance(made, QdrantCollection)
    await made.put_record(Document("e", generation=1))
    return made


async def old_of(bench: Bench) -> QdrantCollection:
    """The published collection."""
    old = (await bench.indexes.get("local", INDEX)).collection
    assert isinstance(old, QdrantCollection)
    return old


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_an_answer_that_is_lost(shared: bool) -> None:
    """The change was applied, so the index is published, although every answer was an error."""
    async with served(shared=shared) as (server, bench):
        old, made = await old_of(bench), await beside(bench)
        consensus = Consensus(server)
        consensus.lose()
        await made.publish(old)
        consensus.recover()
        assert await made.is_current()
        assert await made.versions() == {"e": 1}


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_a_change_that_comes_late_finds_its_collection(shared: bool) -> None:
    """A collection whose publication is not decided is kept for its lease: a late decision finds it complete."""
    async with served(shared=shared) as (server, bench):
        old, made = await old_of(bench), await beside(bench)
        consensus = Consensus(server)
        consensus.delay()
        with pytest.raises(Unavailable):
            await made.publish(old)
        await made.drop()
        consensus.recover()
        assert await found(server, shared=shared) == ["the ferry"]
        await consensus.decide()
        async with process(server, shared=shared) as other:
            published = await other.find("local", INDEX)
            assert published is not None
            assert await published.versions() == {"e": 1}


async def test_a_change_that_comes_too_late_changes_nothing() -> None:
    """When its collection is gone, the change is not possible any more, and the index stays what it was."""
    async with served(shared=False) as (server, bench):
        old, made = await old_of(bench), await beside(bench)
        consensus = Consensus(server)
        consensus.delay()
        with pytest.raises(Unavailable):
            await made.publish(old)
        await made.drop()
        consensus.recover()
        async with asyncio.timeout(60), process(server, shared=False) as other:
            while await server.client.collection_exists(made.location.name):
                await asyncio.sleep(0.1)
                await other.tidy()
        await consensus.decide()
        assert await found(server, shared=False) == ["the ferry"]


@asynccontextmanager
async def switched_too_late(points: int) -> AsyncIterator[tuple[Server, QdrantStore, QdrantCollection]]:
    """The cluster decides the switch of an alias while the new incarnation is removed.

    Args:
        points: The number of points that the new incarnation still has when the cluster decides.
    """
    async with served(shared=True) as (server, bench), process(server, shared=True) as other:
        old, made = await old_of(bench), await beside(bench)
        consensus = Consensus(server)
        consensus.delay()
        with pytest.raises(Unavailable):
            await made.publish(old)
        await made.drop()
        consensus.recover()
        _, _, incarnation = made.location.alias.rpartition(".")
        condition = models.FieldCondition(key="incarnation", match=models.MatchValue(value=incarnation))
        async with asyncio.timeout(60):
            while (await server.client.count(made.location.name, models.Filter(must=[condition]))).count > points:
                await asyncio.sleep(0.1)
                await other.tidy()
        await consensus.decide()
        with pytest.raises(Unavailable):
            await other.find("local", INDEX)
        yield server, other, old


@pytest.mark.parametrize("points", [0, 1], ids=["removed", "removing"])
async def test_a_change_that_comes_too_late_in_a_space(points: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The alias leads to an incarnation whose points are removed. Searches are refused until `tidy` has found this
    twice. Then the alias leads to the replaced incarnation again.
    """
    monkeypatch.setattr("retriever.stores.qdrant.tidying._REMOVED", points or 20_000)
    async with switched_too_late(points) as (server, other, _):
        await other.tidy()
        with pytest.raises(Unavailable):
            await other.find("local", INDEX)
        await other.tidy()
        assert await found(server, shared=True) == ["the ferry"]


async def test_an_index_with_two_replaced_incarnations_is_left_to_an_operator() -> None:
    """If two incarnations may be the replaced one, the alias stays, and the log names both."""
    async with switched_too_late(0) as (_, other, old):
        left = await other.create(old.spec, beside=True)
        left.leases.forget(left.location.index_point)  # its process is killed
        space = other._locations.space(left.location.name)
        async with asyncio.timeout(60):
            while any(each.until > time.time() for each in await space.held()):  # noqa: ASYNC110  # no event tells
                await asyncio.sleep(0.1)
        with structlog.testing.capture_logs() as logs:
            await other.tidy()
            await other.tidy()
        [line] = [line for line in logs if line["log_level"] == "error"]
        assert sorted(line["candidates"]) == sorted([old.location.alias, left.location.alias])
        with pytest.raises(Unavailable):
            await other.find("local", INDEX)


async def test_a_deleted_index_does_not_come_back() -> None:
    """An alias is pointed back only if the cluster still has the wrong alias."""
    async with switched_too_late(0) as (server, other, _):
        await other.tidy()
        [wrong] = (await server.client.get_aliases()).aliases
        gone = models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=wrong.alias_name))
        read = other._locations.aliases.read_each
        answers = await read()
        await server.client.update_collection_aliases([gone])

        async def old_answers() -> AliasReply:
            return answers

        other._locations.aliases.read_each = old_answers  # type: ignore[method-assign]  # a run that began earlier
        await other.tidy()
        assert (await server.client.get_aliases()).aliases == []


async def test_a_switch_is_not_repeated_after_the_lease() -> None:
    """The lease that blocks commits expires while the switch is repeated. Other processes may commit to the old
    collection again, so the alias stays there.
    """
    async with served(shared=False) as (server, bench):
        old, made = await old_of(bench), await beside(bench)
        await old.freeze(5.0)
        lease = old.leases.held(old._marks.id("\0frozen"))
        assert lease is not None

        async def failing(name: str) -> None:
            if name == "UpdateAliases":
                lease.until = 0.0
                raise Internal("Waiting for consensus operation commit failed. Timeout set at: 10 seconds")

        before = server.calls.count("UpdateAliases")
        server.before = failing
        with pytest.raises(Unavailable, match="taken over"):
            await made.publish(old)
        server.before = None
        assert server.calls.count("UpdateAliases") == before + 2  # one switch, sent twice
        assert await found(server, shared=False) == ["the ferry"]


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_a_move_whose_switch_is_not_answered(shared: bool) -> None:
    """The index has all documents, whether or not the command reports success."""
    async with served(shared=shared) as (server, _), process(server, shared=not shared) as mover:
        consensus = Consensus(server)

        async def soon(name: str) -> None:
            if name == "UpdateAliases":
                consensus.lose()

        server.before = soon
        await move_all(mover)
        server.before = None
        consensus.recover()
        assert await found(server, shared=shared) == ["the ferry"]
        assert await mover.elsewhere() == []


async def test_what_was_replaced_is_removed_later() -> None:
    """If the old collection cannot be removed, the new one is published, and `tidy` removes the old one later."""
    async with served(shared=False) as (server, bench):
        old, made = await old_of(bench), await beside(bench)

        async def failing(name: str) -> None:
            if name == "Delete":
                raise Internal("Waiting for consensus operation commit failed. Timeout set at: 10 seconds")

        server.before = failing
        await made.publish(old)
        server.before = None
        assert await server.client.collection_exists(old.location.name)
        async with asyncio.timeout(60), process(server, shared=False) as other:
            while await server.client.collection_exists(old.location.name):
                await asyncio.sleep(0.1)
                await other.tidy()
            published = await other.find("local", INDEX)
            assert published is not None
            assert await published.versions() == {"e": 1}
