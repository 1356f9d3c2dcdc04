"""Quantized vectors, and vectors on disk, in the embedded engine."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import Chunk, Document
from retriever.domain.index import IndexSpec
from retriever.domain.scope import EVERYTHING
from retriever.ports.store import ChunkPoint, Terms
from retriever.stores.edge.collection import EdgeCollection
from retriever.stores.edge.manifest import MANIFEST, Manifest
from retriever.stores.edge.store import EdgeStore
from retriever.stores.vector_storage import VectorStorage
from servicekit import keys

DIMENSION = 64
SPEC = IndexSpec("local", "notes", "m", DIMENSION)
COUNT = 300
PLAIN = VectorStorage()
_numbers = np.random.default_rng(0)
VECTORS = _numbers.standard_normal((COUNT, DIMENSION), dtype=np.float32)
QUERY = VECTORS[7] + _numbers.standard_normal(DIMENSION, dtype=np.float32)

Open = Callable[[VectorStorage], EdgeStore]


@pytest.fixture
def opened(tmp_path: Path) -> Open:
    """Open the test's store, which builds a graph for more than 16 chunks."""
    return lambda vectors: EdgeStore(tmp_path / "store", Scheduler(), exact_up_to=16, vectors=vectors)


def chunk_id(number: int) -> str:
    """Return the id of a chunk."""
    return str(keys.point_id("c", "d", 1, number, ""))


async def filled(store: EdgeStore) -> EdgeCollection:
    """Return a published, compacted collection with one document."""
    collection = await store.create(SPEC)
    document = Document("d", generation=1, chunk_count=COUNT)
    chunks = [Chunk(n, f"t{n}", f"t{n}", vector=vector.tolist()) for n, vector in enumerate(VECTORS)]
    points = [ChunkPoint(chunk_id(chunk.number), chunk, Terms((), ())) for chunk in chunks]
    await collection.add_chunks(document, points)
    await collection.put_record(document)
    await collection.publish()
    await collection.compact()
    return collection


def built(collection: EdgeCollection) -> dict[str, Any]:
    """Read how the segment with the graph stores its vectors from the engine's own files."""
    found: list[dict[str, Any]] = []
    shard = collection.live.directory / str(collection.live.current().generation)
    for path in shard.glob("segments/*/segment.json"):
        dense = json.loads(path.read_text())["config"]["vector_data"]["dense"]
        if dense["index"]["type"] == "hnsw":
            found.append(dense | {"files": sorted(file.name for file in path.parent.rglob("quantized.data"))})
    assert len(found) == 1
    return found[0]


async def nearest(collection: EdgeCollection) -> list[tuple[str, float]]:
    """Return the hits of a search."""
    hits = await collection.dense(QUERY.tolist(), 10, EVERYTHING)
    return [(id_, round(cosine, 4)) for id_, cosine in hits.items()]


def exactly() -> list[tuple[str, float]]:
    """Return the hits of an exhaustive comparison."""
    cosines = VECTORS @ QUERY / np.linalg.norm(VECTORS, axis=1) / np.linalg.norm(QUERY)
    best = np.argsort(-cosines)[:10].tolist()
    return [(chunk_id(n), round(float(cosines[n]), 4)) for n in best]


@pytest.mark.parametrize(
    ("storage", "key"),
    [(VectorStorage("scalar"), "scalar"), (VectorStorage("binary", on_disk=True), "binary")],
    ids=["scalar", "binary-on-disk"],
)
async def test_an_index_keeps_its_vector_storage(opened: Open, storage: VectorStorage, key: str) -> None:
    """A compacted index has quantized vectors and the scores of full vectors. It keeps this storage after a restart
    with other settings and another compaction.
    """
    store = opened(storage)
    collection = await filled(store)
    dense = built(collection)
    assert list(dense["quantization_config"]) == [key]
    assert dense["files"] == ["quantized.data"]
    assert (dense["storage_type"] == "Mmap") is storage.on_disk
    found = dict(await nearest(collection))
    exact = dict(exactly())
    assert all(score == pytest.approx(exact[id_], abs=2e-4) for id_, score in found.items() if id_ in exact)
    assert len(found.keys() & exact.keys()) >= 8
    await store.aclose()

    again = opened(PLAIN)
    reopened = await again.find(SPEC.tenant, SPEC.name)
    assert reopened is not None
    assert dict(await nearest(reopened)) == found
    await reopened.compact()
    assert list(built(reopened)["quantization_config"]) == [key]
    await again.aclose()


async def test_a_new_collection_gets_the_settings(opened: Open, tmp_path: Path) -> None:
    """A loaded snapshot and a new collection use the settings of the store. An index of an earlier version keeps
    plain vectors.
    """
    store = opened(PLAIN)
    collection = await filled(store)
    assert built(collection)["quantization_config"] is None
    assert await nearest(collection) == exactly()
    await collection.persist(tmp_path / "snapshot")
    await store.aclose()
    manifest = tmp_path / "store" / keys.collection(SPEC.tenant, SPEC.name) / MANIFEST
    fields = json.loads(manifest.read_text())
    del fields["vectors"]
    manifest.write_text(json.dumps(fields))
    assert msgspec.json.decode(manifest.read_bytes(), type=Manifest).vectors == PLAIN

    store = opened(VectorStorage("scalar", on_disk=True))
    old = await store.find(SPEC.tenant, SPEC.name)
    assert old is not None
    assert await nearest(old) == exactly()
    restored = await store.restore(SPEC, tmp_path / "snapshot")
    assert list(built(restored)["quantization_config"]) == ["scalar"]
    replacement = await store.create(SPEC, is_replacement=True)
    assert replacement.live.current().vectors == VectorStorage("scalar", on_disk=True)
    await store.aclose()
