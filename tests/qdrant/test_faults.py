"""Faults of a real Qdrant cluster: its nodes are killed, frozen or restarted, one after the other."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from causeway_testing.retriever.qdrant_server import ServerNode, recovered, started
from retriever.domain.document import Document
from retriever.domain.filter import NO_FILTER
from retriever.domain.listing import PageRequest
from retriever.stores.qdrant.connection import Connection
from retriever.stores.qdrant.layout import Layout
from retriever.stores.qdrant.store import QdrantStore
from servicekit.errors import CausewayError, StaleGeneration
from servicekit.principal import LOCAL

T = TypeVar("T")

SEARCH_SECONDS = 2.0
WRITE_SECONDS = 5.0
AWAY_SECONDS = 8.0
DOCUMENTS = 12
PAUSE_SECONDS = 0.2
"""Pause between two uploads. Each stored upload makes running searches start again."""


@asynccontextmanager
async def opened(nodes: list[ServerNode], *, shared: bool = False) -> AsyncIterator[Bench]:
    """Open a retriever on nodes."""
    layout = Layout(replicas=len(nodes), write_consistency=len(nodes) // 2 + 1, shared=shared)
    hosts = [node.address for node in nodes]
    store = await QdrantStore.open(Connection.from_url("http://qdrant", None, 20.0, hosts=hosts), layout)
    bench = await Bench.open(store)
    try:
        yield bench
    finally:
        await bench.aclose()


class RefusalMeter:
    """Measures the longest period without a successful call, from the first failed call to the next success."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._since: float | None = None

    async def call(self, call_to_measure: Awaitable[T]) -> T | None:
        """Return the result of a call, or None if it was refused."""
        began = time.monotonic()
        try:
            result = await call_to_measure
        except StaleGeneration:
            result = None  # the earlier attempt was applied, but its response was lost
        except CausewayError:
            self._since = self._since or began
            return None
        if self._since is not None:
            self.longest, self._since = max(self.longest, time.monotonic() - self._since), None
        return result

    @property
    def is_refused(self) -> bool:
        """Whether the last call was refused."""
        return self._since is not None


@dataclass
class Load:
    """Uploads and searches during faults of nodes.

    Attributes:
        bench: The retriever.
        stored: The latest stored generation of each document.
        searches: The refusals of searches.
        writes: The refusals of writes.
        duplicates: The documents that a search found in two versions.
    """

    bench: Bench
    stored: dict[str, int] = field(default_factory=dict)
    searches: RefusalMeter = field(default_factory=RefusalMeter)
    writes: RefusalMeter = field(default_factory=RefusalMeter)
    duplicates: list[str] = field(default_factory=list)

    async def write(self, end: asyncio.Event) -> None:
        """Store one generation after the other. Repeat refused upserts, as ingest does."""
        generation = 0
        while not end.is_set():
            generation += 1
            name = f"d{generation % DOCUMENTS}"
            document = Document(name, generation=generation)
            await self.writes.call(self.bench.put(document, [f"the ferry {name} generation{generation}"]))
            while self.writes.is_refused:
                await asyncio.sleep(0.05)
                await self.writes.call(self.bench.put(document, [f"the ferry {name} generation{generation}"]))
            self.stored[name] = generation
            await asyncio.sleep(PAUSE_SECONDS)

    async def search(self, end: asyncio.Event) -> None:
        """Search, and look for documents in two versions."""
        while not end.is_set():
            passages = await self.searches.call(self.bench.ask("ferry", top=100)) or []
            names = [passage.document.document_id for passage in passages]
            self.duplicates += [name for name in set(names) if names.count(name) > 1]
            await asyncio.sleep(0.02)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("fault", ["killed", "frozen", "restarted"])
async def test_faults_of_one_node_after_the_other(program: Path, tmp_path: Path, fault: str, shared: bool) -> None:
    """No document is lost or found in two versions. Searches and writes resume within the time limits."""
    async with started(program, tmp_path, 3) as nodes, opened(nodes, shared=shared) as bench:
        load, end = Load(bench), asyncio.Event()
        await bench.put(Document("d0", generation=0), ["the ferry d0"])
        load.stored["d0"] = 0
        running = [asyncio.create_task(load.write(end)), asyncio.create_task(load.search(end))]
        for node in nodes:
            await asyncio.sleep(1)
            if fault == "frozen":
                node.freeze()
            else:
                await asyncio.to_thread(node.kill if fault == "killed" else node.stop)
            await asyncio.sleep(AWAY_SECONDS if fault != "restarted" else 0)
            node.thaw() if fault == "frozen" else await node.start()
            await recovered(nodes)
        end.set()
        await asyncio.gather(*running)
        page = await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest())
        assert {each.document_id: each.generation for each in page.documents} == load.stored
        passages = await bench.ask("ferry", top=100)
        assert {each.document.document_id: each.document.generation for each in passages} == load.stored
        assert len(passages) == len(load.stored)
        assert load.duplicates == []
        assert load.searches.longest <= SEARCH_SECONDS
        assert load.writes.longest <= WRITE_SECONDS


@pytest.mark.timeout(600)
async def test_one_node_killed_twice(program: Path, tmp_path: Path) -> None:
    """A server of one node has all acknowledged documents after a restart."""
    async with started(program, tmp_path, 1) as [node], opened([node]) as bench:
        for generation in (1, 2):
            await bench.put(Document("d", generation=generation), [f"the ferry {generation}"])
            node.kill()
            await node.start()
            async with asyncio.timeout(30):
                while True:
                    try:
                        [passage] = await bench.ask("ferry")
                        break
                    except CausewayError:
                        await asyncio.sleep(0.1)
            assert passage.text == f"the ferry {generation}"


@pytest.mark.timeout(600)
async def test_all_nodes_are_frozen_and_thawed(program: Path, tmp_path: Path) -> None:
    """While all nodes are frozen, searches fail and do not hang. Afterwards all documents are found."""
    async with started(program, tmp_path, 3) as nodes, opened(nodes) as bench:
        await bench.put(Document("d", generation=1), ["the ferry"])
        for node in nodes:
            node.freeze()
        with pytest.raises(CausewayError):
            await bench.ask("ferry")
        for node in nodes:
            node.thaw()
        async with asyncio.timeout(60):
            while True:
                try:
                    assert len(await bench.ask("ferry")) == 1
                    break
                except CausewayError:
                    await asyncio.sleep(0.1)
