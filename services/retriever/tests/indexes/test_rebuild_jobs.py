"""A rebuild with another model loses no document, even after writes and failures."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.checks import wait_until_ended
from causeway_testing.retriever.store import MemoryStore
from embedding.port import Embedder
from retriever.domain.document import Document
from retriever.domain.index import Fusion, IndexSettings
from retriever.domain.query import Mode, Query
from retriever.indexes.rebuild_jobs import RebuildState
from retriever.ports.store import Store
from servicekit.errors import Conflict, InvalidRequest, NotFound, PermissionDenied, Unavailable
from servicekit.principal import LOCAL, Principal

OLD, NEW = "hashed-words-64", "hashed-words-32"
NOTHING = IndexSettings()


@pytest.fixture(params=["edge", "qdrant"])
def kind(request: pytest.FixtureRequest) -> str:
    """Parametrize the tests with the stores that survive a restart."""
    name: str = request.param
    return name


class Watched:
    """A model that counts its texts and calls a hook, which can fail or wait."""

    def __init__(self, before: Callable[[], Awaitable[None]] | None = None) -> None:
        self._inner = HashingEmbedder(32)
        self.before = before
        self.texts = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.texts += len(texts)
        if self.before is not None:
            await self.before()
        return await self._inner.embed(texts)


def model(embedder: Watched) -> Embedder:
    """Return the model with the type of the port."""
    untyped: Any = embedder
    return cast("Embedder", untyped)


@asynccontextmanager
async def opened(store: Store, embedder: Watched | None = None) -> Any:
    """Open the services over a store, with rebuilds to a second model."""
    bench = await Bench.open(store)
    rebuilds = bench.rebuilds(model(embedder or Watched()))
    rebuilds.resume()
    try:
        yield bench, rebuilds
    finally:
        await rebuilds.aclose()
        await bench.aclose()


async def texts(bench: Bench, mode: Mode = Mode.TEXT) -> list[str]:
    """Return the search results for the ferry."""
    retrieval = bench.retrieval_with(bench.embedder, model(Watched()))
    found = await retrieval.retrieve(LOCAL, Query(indexes=(INDEX,), text="the ferry", mode=mode, top=100))
    return sorted(passage.text for passage in found.passages)


async def fill(bench: Bench, count: int = 6) -> list[str]:
    """Store some documents, and return their texts."""
    all_texts = []
    for number in range(count):
        each = [f"the ferry {number} {part}" for part in range(7)]
        await bench.put(Document(f"d{number}", generation=number + 1), each)
        all_texts += each
    return sorted(all_texts)


async def test_a_rebuild_replaces_the_vectors(reopen: Callable[[], Store]) -> None:
    """A rebuilt index has the new model and settings and all documents, even after a restart."""
    embedder = Watched()
    async with opened(reopen(), embedder) as (bench, rebuilds):
        expected = await fill(bench)
        begun = await rebuilds.begin(LOCAL, INDEX, NEW, IndexSettings(chunk_tokens=100))
        assert (begun.state, begun.total, begun.embedding_model) == (RebuildState.RUNNING, 6, NEW)
        done = await wait_until_ended(rebuilds)
        assert (done.state, done.done, done.total, done.error) == (RebuildState.SUCCEEDED, 6, 6, "")
        assert done.finished_at is not None
        assert embedder.texts == len(expected)
    async with opened(reopen()) as (bench, rebuilds):
        spec = await bench.catalogue.index(LOCAL, INDEX)
        assert (spec.embedding_model, spec.dimension, spec.settings) == (NEW, 32, IndexSettings(chunk_tokens=100))
        for mode in Mode:
            assert await texts(bench, mode) == expected
        assert (await rebuilds.last(LOCAL, INDEX)).state is RebuildState.SUCCEEDED
        collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
        assert await collection.marked() == []
        with pytest.raises(InvalidRequest):  # vectors of the old model are refused
            await bench.put(Document("x", generation=1), ["the ferry"])


async def test_searches_and_writes_continue_during_a_rebuild(reopen: Callable[[], Store]) -> None:
    """During a rebuild, every search finds all documents, and documents can be added, replaced and deleted. The
    rebuilt index has these changes.
    """
    going_on, go = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        going_on.set()
        await go.wait()

    async with opened(reopen(), Watched(wait)) as (bench, rebuilds):
        before = await fill(bench)
        await rebuilds.begin(LOCAL, INDEX, NEW, NOTHING)
        await going_on.wait()
        for mode in Mode:
            assert await texts(bench, mode) == before
        await bench.put(Document("new", generation=1), ["the ferry, new"])
        await bench.put(Document("d0", generation=9), ["the ferry, replaced"])
        await bench.catalogue.delete_documents(LOCAL, INDEX, ["d1"])
        expected = [text for text in before if text.split()[2] not in ("0", "1")]
        expected = sorted([*expected, "the ferry, new", "the ferry, replaced"])
        assert await texts(bench) == expected
        go.set()
        searches = 0
        while (await rebuilds.last(LOCAL, INDEX)).state is RebuildState.RUNNING:
            assert await texts(bench, Mode.HYBRID) == expected
            searches += 1
        assert searches
        assert (await wait_until_ended(rebuilds)).state is RebuildState.SUCCEEDED
        for mode in Mode:
            assert await texts(bench, mode) == expected


async def test_a_rebuild_begins_again_after_a_restart(reopen: Callable[[], Store]) -> None:
    """A rebuild that a stop interrupts begins again at the next start and succeeds."""
    going_on = asyncio.Event()

    async def hang() -> None:
        going_on.set()
        await asyncio.sleep(600)

    async with opened(reopen(), Watched(hang)) as (bench, rebuilds):
        expected = await fill(bench)
        await rebuilds.begin(LOCAL, INDEX, NEW, NOTHING)
        await going_on.wait()
    async with opened(reopen()) as (bench, rebuilds):
        assert (await wait_until_ended(rebuilds)).state is RebuildState.SUCCEEDED
        assert await texts(bench, Mode.VECTORS) == expected
        assert (await bench.catalogue.index(LOCAL, INDEX)).embedding_model == NEW


async def test_a_rebuild_waits_for_an_unavailable_model() -> None:
    """A rebuild repeats failed calls of the model. If the model stays unavailable, the index does not change."""
    failures = 2

    async def fail() -> None:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise Unavailable("The model is unavailable.")

    async with opened(MemoryStore(), Watched(fail)) as (bench, rebuilds):
        expected = await fill(bench)
        await rebuilds.begin(LOCAL, INDEX, NEW, NOTHING)
        assert (await wait_until_ended(rebuilds)).state is RebuildState.SUCCEEDED
        failures = 100
        await rebuilds.begin(LOCAL, INDEX, OLD, NOTHING)
        assert (await wait_until_ended(rebuilds)).state is RebuildState.SUCCEEDED
        failures = 100
        await rebuilds.begin(LOCAL, INDEX, NEW, NOTHING)
        failed = await wait_until_ended(rebuilds)
        assert (failed.state, failed.error) == (RebuildState.FAILED, "The model is unavailable.")
        assert (await bench.catalogue.index(LOCAL, INDEX)).embedding_model == OLD
        assert await texts(bench, Mode.HYBRID) == expected
        collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
        assert await collection.marked() == []


async def test_an_index_has_one_rebuild_at_a_time(bench: Bench) -> None:
    """A repeated request returns the running rebuild, and a different one is a conflict. Deleting the index ends
    the rebuild.
    """
    hanging = asyncio.Event()

    async def hang() -> None:
        hanging.set()
        await asyncio.sleep(600)

    rebuilds = bench.rebuilds(model(Watched(hang)))
    await fill(bench, 1)
    first = await rebuilds.begin(LOCAL, INDEX, NEW, NOTHING)
    await hanging.wait()
    again = await rebuilds.begin(LOCAL, INDEX, NEW, NOTHING)
    assert again.started_at == first.started_at
    with pytest.raises(Conflict):
        await rebuilds.begin(LOCAL, INDEX, OLD, NOTHING)
    await bench.catalogue.delete_index(LOCAL, INDEX)
    with pytest.raises(NotFound):
        await rebuilds.last(LOCAL, INDEX)
    await rebuilds.aclose()
    assert await bench.catalogue.indexes(LOCAL) == []


async def test_invalid_rebuilds_are_refused(bench: Bench) -> None:
    """Requests of other callers, of unknown models and indexes, and with wrong settings start no rebuild."""
    rebuilds = bench.rebuilds(HashingEmbedder(32))
    await fill(bench, 1)
    with pytest.raises(PermissionDenied):
        await rebuilds.begin(Principal("local", oids=("ann",)), INDEX, NEW, NOTHING)
    with pytest.raises(NotFound):
        await rebuilds.begin(LOCAL, "other", NEW, NOTHING)
    with pytest.raises(NotFound, match="has not been rebuilt"):
        await rebuilds.last(LOCAL, INDEX)
    for name, settings, field in (
        ("gpt", NOTHING, "settings.embedding_model"),
        (NEW, IndexSettings(chunk_tokens=15), "settings.chunk_tokens"),
        (NEW, IndexSettings(chunk_tokens=9000), "settings.chunk_tokens"),
        (NEW, IndexSettings(100, 100), "settings.chunk_overlap"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            await rebuilds.begin(LOCAL, INDEX, name, settings)
        assert caught.value.field == field
        with pytest.raises(InvalidRequest):
            await rebuilds.create(LOCAL, "another", name, settings)
    with pytest.raises(NotFound):
        await rebuilds.last(LOCAL, INDEX)


async def test_settings_are_changed_in_place(reopen: Callable[[], Store]) -> None:
    """An update changes exactly the named settings, only for administrators and only to valid values. A later
    rebuild keeps them.
    """
    async with opened(reopen()) as (bench, rebuilds):
        await fill(bench, 1)
        new_settings = IndexSettings(100, 10, Fusion.RANKS, 0.25, expand=True)
        spec = await rebuilds.update(LOCAL, INDEX, new_settings, ("chunk_tokens", "chunk_overlap", "fusion"))
        assert spec.settings == IndexSettings(100, 10, Fusion.RANKS)
        for settings, names, field in (
            (IndexSettings(chunk_tokens=15), ["chunk_tokens"], "settings.chunk_tokens"),
            (IndexSettings(chunk_overlap=100), ["chunk_overlap"], "settings.chunk_overlap"),
            (IndexSettings(dense_weight=1.5), ["dense_weight"], "settings.dense_weight"),
            (NOTHING, ["fusion", "embedding_model"], "settings.embedding_model"),
        ):
            with pytest.raises(InvalidRequest) as caught:
                await rebuilds.update(LOCAL, INDEX, settings, names)
            assert caught.value.field == field
        with pytest.raises(PermissionDenied):
            await rebuilds.update(Principal("local", oids=("ann",)), INDEX, NOTHING, ["fusion"])
        with pytest.raises(NotFound):
            await rebuilds.update(LOCAL, "other", NOTHING, ["fusion"])
        updated = await rebuilds.update(
            LOCAL, INDEX, IndexSettings(dense_weight=0.0), ("chunk_overlap", "dense_weight")
        )
        assert updated.settings == IndexSettings(100, None, Fusion.RANKS, 0.0)
        await rebuilds.begin(LOCAL, INDEX, NEW, IndexSettings(expand=False))
        with pytest.raises(Conflict):
            await rebuilds.update(LOCAL, INDEX, NOTHING, ["fusion"])
        assert (await wait_until_ended(rebuilds)).state is RebuildState.SUCCEEDED
        spec = await bench.catalogue.index(LOCAL, INDEX)
        assert (spec.embedding_model, spec.settings) == (NEW, replace(updated.settings, expand=False))


async def test_indexes_are_created_with_settings(reopen: Callable[[], Store]) -> None:
    """A created index is empty and has its model and settings, even after a restart. A second index of the same
    name is refused.
    """
    async with opened(reopen()) as (bench, rebuilds):
        settings = IndexSettings(chunk_tokens=200, chunk_overlap=20)
        await rebuilds.create(LOCAL, "mine", NEW, settings)
        await rebuilds.create(LOCAL, INDEX, "", NOTHING)
        for model in (NEW, ""):  # the same model and another one
            with pytest.raises(Conflict):
                await rebuilds.create(LOCAL, "mine", model, settings)
        with pytest.raises(InvalidRequest):
            await rebuilds.create(LOCAL, "no/name", NEW, settings)
        await bench.put(Document("d", generation=1), ["the ferry"])
    async with opened(reopen()) as (bench, _):
        spec = await bench.catalogue.index(LOCAL, "mine")
        assert (spec.embedding_model, spec.settings) == (NEW, settings)
        assert [(summary.spec.name, summary.documents) for summary in await bench.catalogue.indexes(LOCAL)] == [
            ("mine", 0),
            (INDEX, 1),
        ]


async def test_concurrent_requests_get_one_rebuild(reopen: Callable[[], Store]) -> None:
    """Concurrent equal requests get the same rebuild, and a different request is refused."""
    embedder = Watched()
    async with opened(reopen(), embedder) as (bench, rebuilds):
        expected = await fill(bench)
        begun = asyncio.gather(*(rebuilds.begin(LOCAL, INDEX, NEW, NOTHING) for _ in range(3)))
        await asyncio.sleep(0)
        with pytest.raises(Conflict):
            await rebuilds.begin(LOCAL, INDEX, NEW, IndexSettings(chunk_tokens=100))
        assert len({rebuild.started_at for rebuild in await begun}) == 1
        assert (await wait_until_ended(rebuilds)).state is RebuildState.SUCCEEDED
        assert embedder.texts == len(expected)
