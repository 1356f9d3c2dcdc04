"""Payload indexes of the embedded engine: a small shard has none."""

import json
from pathlib import Path

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Document
from retriever.stores.edge import payload_indexes
from retriever.stores.edge.collection import EdgeCollection
from retriever.stores.edge.store import EdgeStore

FIELDS = ["facts", "numbers[].key", "numbers[].value"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a shard of up to 4 points be small."""
    monkeypatch.setattr(payload_indexes, "MAX_POINTS_WITHOUT_INDEXES", 4)


async def collection(bench: Bench) -> EdgeCollection:
    """Return the collection of the bench's index."""
    found = (await bench.indexes.get("local", INDEX)).collection
    assert isinstance(found, EdgeCollection)
    return found


async def indexed(bench: Bench) -> list[str]:
    """Return the fields with a payload index."""
    return sorted((await collection(bench)).live.shard.info().payload_schema)


async def test_a_shard_gets_its_payload_indexes_when_it_grows(tmp_path: Path) -> None:
    """The write that makes a shard large creates all payload indexes. They persist."""
    bench = await Bench.open(EdgeStore(tmp_path, Scheduler()))
    await bench.put(Document("a", generation=1), ["one", "two", "three"])  # and one record
    assert await indexed(bench) == []
    await bench.put(Document("b", generation=1), ["four"])
    assert await indexed(bench) == FIELDS
    await bench.aclose()
    bench = await Bench.open(EdgeStore(tmp_path, Scheduler()))
    assert await indexed(bench) == FIELDS
    await bench.aclose()


@pytest.mark.parametrize(("texts", "fields"), [(8, []), (260, FIELDS)])
async def test_a_compacted_shard_has_the_payload_indexes_that_it_needs(
    tmp_path: Path, texts: int, fields: list[str]
) -> None:
    """The size after the compaction decides. The child process uses the real threshold, not that of the tests."""
    bench = await Bench.open(EdgeStore(tmp_path, Scheduler()))
    await bench.put(Document("a", generation=1), [f"text {number}" for number in range(texts)])
    assert await indexed(bench) == FIELDS
    await (await collection(bench)).compact()
    assert await indexed(bench) == fields
    await bench.aclose()


async def test_a_shard_counts_the_memory_of_its_payload_indexes(tmp_path: Path) -> None:
    """A shard with payload indexes counts as much memory as many small shards."""
    bench = await Bench.open(EdgeStore(tmp_path, Scheduler()))
    await bench.put(Document("a", generation=1), ["one"])
    small = (await collection(bench)).live.memory
    await bench.put(Document("b", generation=1), ["one", "two", "three"])
    assert (await collection(bench)).live.memory > 1000 * small
    await bench.aclose()


async def test_the_vectors_of_a_new_shard_are_read_when_a_search_needs_them(tmp_path: Path) -> None:
    """The engine does not read the file of the vectors when it opens the shard, because it is mostly a hole."""
    store = EdgeStore(tmp_path, Scheduler())
    bench = await Bench.open(store)
    await bench.put(Document("a", generation=1), ["one"])
    [segment] = tmp_path.glob("*/*/segments/*/segment.json")
    assert json.loads(segment.read_text())["config"]["vector_data"]["dense"]["storage_type"] == "ChunkedMmap"
    await bench.aclose()
