"""The number of calls that a search makes to a Qdrant server, and the number of sequential rounds of calls."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, ParamSpec, TypeVar

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.qdrant import Server, serving
from retriever.domain.document import Document
from retriever.domain.index import Fusion, IndexSettings
from retriever.domain.query import Mode, Query
from retriever.domain.scope import EVERYTHING
from retriever.stores.qdrant import collection as collections
from retriever.stores.qdrant import unsettled
from retriever.stores.qdrant.collection import QdrantCollection
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.node import Method, Node
from retriever.stores.qdrant.store import QdrantStore
from servicekit.principal import LOCAL

TEXTS = [
    f"the ferry {place} {word}"
    for place in ("harbour", "island", "skerry", "lighthouse")
    for word in ("fare", "ticket", "timetable", "crew", "dog", "bicycle")
]


P = ParamSpec("P")
T = TypeVar("T")

_SECONDS = 10.0
_QUIET_TURNS = 200
"""More turns of the event loop than a search needs from a response to its next call."""


class CountedNode(Node):
    """A node that counts the running calls of all nodes."""

    running: ClassVar[int] = 0

    async def call(self, seconds: float, method: Method[P, T], *args: P.args, **options: P.kwargs) -> T:
        CountedNode.running += 1
        try:
            return await super().call(seconds, method, *args, **options)
        finally:
            CountedNode.running -= 1


async def opened(server: Server) -> QdrantStore:
    """Open a store on the server. It repeats no call, because a round may take long on a busy machine."""
    node = CountedNode.from_url(server.url, None, _SECONDS)
    return await QdrantStore.open(Connection([node], _SECONDS, try_seconds=_SECONDS), Layout())


class Rounds:
    """Counts the rounds of calls to a server. A round has the calls that arrive before the server answers any of
    them.

    The server answers all calls of a round together, when the client can make no further call without a response.
    This is so if all running calls have arrived, and the event loop has nothing else to do. (A search uses no
    threads.) The time does not matter, so a busy machine does not change the rounds.
    """

    def __init__(self, server: Server) -> None:
        self.calls: list[tuple[str, int]] = []
        self.count = 0
        self._held: list[asyncio.Future[None]] = []
        self._ending: asyncio.Task[None] | None = None
        server.before = self._before

    def of(self, name: str) -> list[int]:
        """Return the rounds of the calls with a name."""
        return [number for called, number in self.calls if called == name]

    async def _before(self, name: str) -> None:
        if name == "Count":  # counts of languages, which only the next search needs
            return
        if not self._held:
            self.count += 1
            self._ending = asyncio.create_task(self._end_round())
        self.calls.append((name, self.count))
        held: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._held.append(held)
        await held

    async def _end_round(self) -> None:
        quiet_turns = 0
        while quiet_turns < _QUIET_TURNS:
            await asyncio.sleep(0)
            quiet_turns = quiet_turns + 1 if CountedNode.running == len(self._held) else 0
        held, self._held = self._held, []
        for call in held:
            if not call.done():
                call.set_result(None)


@pytest.fixture(autouse=True)
def _states_stay_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the cached states until `expire`. Otherwise a slow search would read them again."""
    monkeypatch.setattr(collections, "_CURRENT_SECONDS", 3600.0)
    monkeypatch.setattr(unsettled, "_FRESH_SECONDS", 3600.0)


@asynccontextmanager
async def filled() -> AsyncIterator[tuple[Server, Bench, QdrantStore]]:
    """Yield a server with an index of two documents, and the retriever that stored them."""
    async with serving() as server:
        store = await opened(server)
        bench = await Bench.open(store)
        await bench.put(Document("a", generation=1), TEXTS[:12])
        await bench.put(Document("b", generation=1), TEXTS[12:])
        await bench.ask("harbour")
        yield server, bench, store
        await bench.aclose()


async def expire(bench: Bench) -> None:
    """Make the cached state of the index too old, as after a pause."""
    collection = (await bench.indexes.get("local", INDEX)).collection
    assert isinstance(collection, QdrantCollection)
    collection._current_until = 0.0
    collection._unsettled.invalidate()


@pytest.mark.parametrize(
    ("query", "most", "batches"),
    [
        ({"expand": False}, 2, 1),
        ({}, 3, 2),
        ({"expand": False, "neighbours": 2}, 3, 1),
        ({"neighbours": 2}, 4, 2),
    ],
    ids=["plain", "expanded", "neighbours", "both"],
)
@pytest.mark.parametrize("paused", [False, True], ids=["again", "after-a-pause"])
async def test_a_hybrid_search_takes_two_rounds(
    query: dict[str, Any], most: int, batches: int, paused: bool
) -> None:
    """One batch returns the candidates with all scores, and the next round the records. Expansion and neighbours
    add a round each.
    """
    async with filled() as (server, bench, _):
        if paused:
            await expire(bench)
        rounds = Rounds(server)
        passages = await bench.ask("harbour fare", top=4, **query)
        assert passages
        assert rounds.count <= most
        assert len(rounds.of("QueryBatch")) == batches
        assert rounds.of("Query") == []
        # The read of the records asks several copies and is not part of the batch.
        assert rounds.of("Get")[-1] == 1 + batches


async def test_a_batch_equals_single_searches() -> None:
    """A batch returns the same hits and scores as single searches."""
    async with filled() as (_, bench, _):
        collection = (await bench.indexes.get("local", INDEX)).collection
        assert collection.remote is not None
        vector = (await bench.embedder.embed(["harbour fare"]))[0].tolist()
        terms = bench.encoder.encode_query("harbour fare", "en")
        scored = await collection.remote.hybrid(vector, terms, 5, EVERYTHING)
        assert scored.dense == await collection.dense(vector, 5, EVERYTHING)
        assert scored.sparse == await collection.sparse(terms, 5, EVERYTHING)
        best, near = list(scored.sparse), list(scored.dense)
        assert await collection.dense(vector, 5, EVERYTHING, best) == scored.cosines
        words = dict.fromkeys(near, 0.0) | await collection.sparse(terms, 5, EVERYTHING, near)
        assert words == scored.bm25
        assert scored.chunks == await collection.chunks([*best, *near])
        further = await collection.remote.sparse_with_cosines(vector, terms, 5, EVERYTHING, near)
        assert (further.sparse, further.cosines) == (scored.sparse, scored.cosines)
        assert further.bm25 == {**words, **scored.sparse}


async def test_a_search_notices_writes_of_another_retriever() -> None:
    """A search with an outdated state is repeated and leaves out a document that another retriever is writing."""
    async with filled() as (server, bench, _), _another(server) as (other, theirs):
        await other.ask("harbour")
        await theirs.mark("a")
        await theirs.remove_record("a")
        await expire(bench)
        rounds = Rounds(server)
        assert {passage.document.document_id for passage in await bench.ask("ferry", expand=False, top=24)} == {"b"}
        assert len(rounds.of("QueryBatch")) == 2
        server.before = None
        await theirs.unmark("a")


async def test_a_search_notices_a_replaced_index() -> None:
    """A search uses the new collection as soon as the alias points to it."""
    async with filled() as (server, bench, store), _another(server) as (other, _):
        spec = (await bench.indexes.get("local", INDEX)).spec
        replacement = await store.create(spec, is_replacement=True)
        old = await store.find("local", INDEX)
        await replacement.location.take_alias(old.location if old else None)
        theirs = (await other.indexes.get("local", INDEX)).collection
        await expire(other)
        assert theirs.remote is not None
        assert await other.ask("ferry") == []


async def test_settings_of_another_retriever_apply_to_the_next_search() -> None:
    """A search reads the settings of the index in parallel and starts again if they have changed."""
    async with filled() as (server, bench, _), _another(server) as (other, _):
        await other.ask("harbour")
        index = await bench.indexes.get("local", INDEX)
        await index.collection.put_settings(IndexSettings(fusion=Fusion.RANKS, expand=False))
        await expire(other)
        rounds = Rounds(server)
        await other.ask("harbour fare", mode=Mode.HYBRID)
        # A fusion of ranks makes a separate call for each search.
        assert rounds.of("Query")
        server.before = None


@asynccontextmanager
async def _another(server: Server) -> AsyncIterator[tuple[Bench, QdrantCollection]]:
    """Open a second retriever on the server, and give its view of the collection."""
    store = await opened(server)
    bench = await Bench.open(store)
    found = await store.find(LOCAL.tenant, INDEX)
    assert found is not None
    yield bench, found
    await bench.aclose()


async def test_a_batch_has_the_usual_steps() -> None:
    """A search with one batch has the usual steps, in their usual order."""
    async with filled() as (_, bench, _):
        query = Query((INDEX,), "harbour fare", expand=False)
        steps = (await bench.retrieval.retrieve(LOCAL, query)).steps
        assert [step.name for step in steps] == ["embed", "dense", "sparse", "fuse"]
