"""No index is lost if the response to a change of an alias is lost, or if the cluster applies the change late."""

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
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Repeat changes of aliases almost without a pause."""
    monkeypatch.setattr("retriever.stores.qdrant.location._RETRY_SECONDS", 0.01)


@asynccontextmanager
async def process(server: Server, *, shared: bool) -> AsyncIterator[QdrantStore]:
    """Open the store of a process."""
    connection = Connection.from_url(server.url, None, 5.0)
    store = await QdrantStore.open(connection, Layout(shared=shared), LEASE)
    try:
        yield store
    finally:
        await store.aclose()


@asynccontextmanager
async def served(*, shared: bool) -> AsyncIterator[tuple[Server, Bench]]:
    """Open a retriever with an index of one document."""
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
    """Controls how the cluster applies changes of aliases.

    `lose` loses the responses, and `delay` delays the changes.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._decide = server.change
        self.late: list[Apply[Any]] = []

    def lose(self) -> None:
        """From now on, apply changes, but return an error."""

        async def change(apply: Apply[Any]) -> Any:
            await self._decide(apply)
            raise Internal("Waiting for consensus operation commit failed. Timeout set at: 10 seconds")

        self._server.change = change  # type: ignore[method-assign]  # for the test

    def delay(self) -> None:
        """From now on, keep changes for `decide`, and return an error."""

        async def change(apply: Apply[Any]) -> Any:
            self.late.append(apply)
            raise Internal("Waiting for consensus operation commit failed. Timeout set at: 10 seconds")

        self._server.change = change  # type: ignore[method-assign]  # for the test

    def recover(self) -> None:
        """From now on, apply changes and return the result."""
        self._server.change = self._decide  # type: ignore[method-assign]  # for the test

    async def decide(self) -> None:
        """Apply the kept changes. Ignore changes that are not possible any more."""
        for apply in self.late:
            try:
                await self._decide(apply)
            except ValueError:
                continue


async def texts(bench: Bench) -> list[str]:
    """Return the texts that a retriever finds."""
    return [passage.text for passage in await bench.ask("ferry")]


async def found(server: Server, *, shared: bool) -> list[str]:
    """Return the texts that a new process finds."""
    async with process(server, shared=shared) as store:
        bench = await Bench.open(store)
        try:
            return await texts(bench)
        finally:
            await bench.indexes.aclose()


async def replacement_of(bench: Bench) -> QdrantCollection:
    """Create a collection that will replace the index, with one other document."""
    index = await bench.indexes.get("local", INDEX)
    replacement = await bench.indexes.create_replacement(index.spec)
    assert isinstance(replacement, QdrantCollection)
    await replacement.put_record(Document("e", generation=1))
    return replacement


async def published_collection(bench: Bench) -> QdrantCollection:
    """Return the published collection."""
    old = (await bench.indexes.get("local", INDEX)).collection
    assert isinstance(old, QdrantCollection)
    return old


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_a_lost_response(shared: bool) -> None:
    """If the change was applied, the index is published, although every response was an error."""
    async with served(shared=shared) as (server, bench):
        old, replacement = await published_collection(bench), await replacement_of(bench)
        consensus = Consensus(server)
        consensus.lose()
        await replacement.publish(old)
        consensus.recover()
        assert await replacement.is_current()
        assert await replacement.versions() == {"e": 1}


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_a_late_change_finds_its_collection(shared: bool) -> None:
    """A collection whose publication is undecided is kept until its lease expires. A late change finds it whole."""
    async with served(shared=shared) as (server, bench):
        old, replacement = await published_collection(bench), await replacement_of(bench)
        consensus = Consensus(server)
        consensus.delay()
        with pytest.raises(Unavailable):
            await replacement.publish(old)
        await replacement.drop()
        consensus.recover()
        assert await found(server, shared=shared) == ["the ferry"]
        await consensus.decide()
        async with process(server, shared=shared) as other:
            published = await other.find("local", INDEX)
            assert published is not None
            assert await published.versions() == {"e": 1}


async def test_a_change_after_the_removal_has_no_effect() -> None:
    """When the new collection is removed, the change is not possible any more, and the index stays unchanged."""
    async with served(shared=False) as (server, bench):
        old, replacement = await published_collection(bench), await replacement_of(bench)
        consensus = Consensus(server)
        consensus.delay()
        with pytest.raises(Unavailable):
            await replacement.publish(old)
        await replacement.drop()
        consensus.recover()
        async with asyncio.timeout(60), process(server, shared=False) as other:
            while await server.client.collection_exists(replacement.location.name):
                await asyncio.sleep(0.1)
                await other.tidy()
        await consensus.decide()
        assert await found(server, shared=False) == ["the ferry"]


@asynccontextmanager
async def changed_after_removal(points: int) -> AsyncIterator[tuple[Server, QdrantStore, QdrantCollection]]:
    """Apply the change of an alias while the new incarnation is being removed.

    Args:
        points: The number of points that the new incarnation still has when the cluster applies the change.
    """
    async with served(shared=True) as (server, bench), process(server, shared=True) as other:
        old, replacement = await published_collection(bench), await replacement_of(bench)
        consensus = Consensus(server)
        consensus.delay()
        with pytest.raises(Unavailable):
            await replacement.publish(old)
        await replacement.drop()
        consensus.recover()
        _, _, incarnation = replacement.location.alias.rpartition(".")
        condition = models.FieldCondition(key="incarnation", match=models.MatchValue(value=incarnation))
        async with asyncio.timeout(60):
            while (
                await server.client.count(replacement.location.name, models.Filter(must=[condition]))
            ).count > points:
                await asyncio.sleep(0.1)
                await other.tidy()
        await consensus.decide()
        with pytest.raises(Unavailable):
            await other.find("local", INDEX)
        yield server, other, old


@pytest.mark.parametrize("points", [0, 1], ids=["removed", "removing"])
async def test_a_change_after_the_removal_in_a_shared_collection(
    points: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The alias leads to an incarnation whose points are removed. Searches are refused until `tidy` has found this
    twice. Then the alias leads to the replaced incarnation again.
    """
    monkeypatch.setattr("retriever.stores.qdrant.tidying._MAX_REMOVED_POINTS", points or 20_000)
    async with changed_after_removal(points) as (server, other, _):
        await other.tidy()
        with pytest.raises(Unavailable):
            await other.find("local", INDEX)
        await other.tidy()
        assert await found(server, shared=True) == ["the ferry"]


async def test_an_index_with_two_replaced_incarnations_is_left_to_an_operator() -> None:
    """If two incarnations may be the replaced one, the alias stays unchanged, and the log names both."""
    async with changed_after_removal(0) as (_, other, old):
        left = await other.create(old.spec, is_replacement=True)
        left.leases.forget(left.location.index_point)  # as if its process were killed
        space = other._locations.space(left.location.name)
        async with asyncio.timeout(60):
            while any(stored.until > time.time() for stored in await space.incarnations()):  # noqa: ASYNC110  # no event signals it
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
    async with changed_after_removal(0) as (server, other, _):
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


async def test_a_change_is_not_repeated_after_the_lease() -> None:
    """The lease that blocks commits expires while the change of the alias is repeated. Other processes may then
    commit to the old collection again, so the alias is not changed.
    """
    async with served(shared=False) as (server, bench):
        old, replacement = await published_collection(bench), await replacement_of(bench)
        await old.freeze(5.0)
        lease = old.leases.held(old._marks.point_id("\0frozen"))
        assert lease is not None

        async def failing(name: str) -> None:
            if name == "UpdateAliases":
                lease.until = 0.0
                raise Internal("Waiting for consensus operation commit failed. Timeout set at: 10 seconds")

        before = server.calls.count("UpdateAliases")
        server.before = failing
        with pytest.raises(Unavailable, match="taken over"):
            await replacement.publish(old)
        server.before = None
        assert server.calls.count("UpdateAliases") == before + 2  # one change, sent twice
        assert await found(server, shared=False) == ["the ferry"]


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
async def test_a_move_whose_response_is_lost(shared: bool) -> None:
    """If the responses to the changes of aliases are lost, the move succeeds, and the index has all documents."""
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
        assert await mover.indexes_to_move() == []


async def test_a_replaced_collection_is_removed_later() -> None:
    """If the old collection cannot be removed, the new one is published, and `tidy` removes the old one later."""
    async with served(shared=False) as (server, bench):
        old, replacement = await published_collection(bench), await replacement_of(bench)

        async def failing(name: str) -> None:
            if name == "Delete":
                raise Internal("Waiting for consensus operation commit failed. Timeout set at: 10 seconds")

        server.before = failing
        await replacement.publish(old)
        server.before = None
        assert await server.client.collection_exists(old.location.name)
        async with asyncio.timeout(60), process(server, shared=False) as other:
            while await server.client.collection_exists(old.location.name):
                await asyncio.sleep(0.1)
                await other.tidy()
            published = await other.find("local", INDEX)
            assert published is not None
            assert await published.versions() == {"e": 1}
