"""The embedded store: Qdrant Edge in this process, with one shard on disk for each index. One process owns it.

::

    <directory>/LOCK
    <directory>/.building/       running builds; cleared at the start
    <directory>/<collection>/    an index: `stores.edge.shard`

Opening the store removes directories without a manifest. Their collections were not published, or are partly
removed. Opening an index removes generations that its manifest does not name.

At the start, the store reads only the manifests. It opens each index at its first use. So no request waits for an
index that it does not use. The number of open indexes is bounded (`stores.edge.parking`).
"""

import asyncio
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import qdrant_edge as edge
from servicekit import keys
from servicekit.errors import Unavailable

from retriever.concurrency.scheduler import Scheduler
from retriever.concurrency.shielding import Shield
from retriever.domain.index import IndexSpec
from retriever.storage import files
from retriever.stores.edge import schema
from retriever.stores.edge.builder import Builder, Limits
from retriever.stores.edge.collection import EdgeCollection
from retriever.stores.edge.compaction import Compactor, Policy
from retriever.stores.edge.loading import damaged, load
from retriever.stores.edge.manifest import MANIFEST, Manifest
from retriever.stores.edge.parking import OpenLimits, Parking
from retriever.stores.edge.read_cache import ReadCache
from retriever.stores.edge.shard import LiveShard
from retriever.stores.vector_storage import VectorStorage

EXACT_UP_TO = 20_000
"""Maximum number of chunks that a search compares one by one. This takes 2 ms. A graph is faster but not exact."""
_BUILDING = ".building"
_MAX_CONCURRENT_CLOSES = 8
"""Maximum number of indexes that are closed concurrently. Some of them first sync their manifests to the disk."""
_MAX_SIZE_RATIO = 3
"""Maximum ratio of a shard's disk space to the size of its snapshot."""


class EdgeStore:
    """All indexes under one directory; see `ports.store.Store`.

    Args:
        directory: The directory. It is created if it does not exist.
        scheduler: Runs blocking work in slices.
        min_free_bytes: Minimum free disk space for writes. The engine maps its files into memory, and a full disk
            would end the process.
        exact_up_to: Maximum number of chunks without a graph (HNSW).
        policy: The conditions for an automatic compaction.
        limits: The limits of the child processes that compact indexes, and write and read snapshots.
        vectors: The storage of dense vectors of new indexes.
        reads: The cache of searches.
        open_limits: The limits of the open indexes.

    Raises:
        Unavailable: Another process has the directory open, or a manifest is damaged.
    """

    is_shared = False

    def __init__(
        self,
        directory: Path,
        scheduler: Scheduler,
        min_free_bytes: int = 0,
        *,
        exact_up_to: int = EXACT_UP_TO,
        policy: Policy | None = None,
        limits: Limits | None = None,
        vectors: VectorStorage | None = None,
        reads: ReadCache | None = None,
        open_limits: OpenLimits | None = None,
    ) -> None:
        self._directory = directory
        self._scheduler = scheduler
        self._min_free_bytes = min_free_bytes
        self._vectors = vectors or VectorStorage()
        self._reads = reads or ReadCache()
        self._lock = files.lock(directory)
        try:
            self._builder = Builder(directory / _BUILDING, self._check_free_space, exact_up_to, limits or Limits())
            self._compactor = Compactor(self._builder, policy or Policy())
            self._unopened = self._published()
        except BaseException:
            files.unlock(self._lock)
            raise
        self._collections: list[EdgeCollection] = []
        # One index is opened at a time. The engine holds the GIL meanwhile. So opening several at once is not
        # faster, and the event loop would wait for all.
        self._opening = asyncio.Lock()
        self._shield = Shield()
        self.parking = Parking(
            lambda: [collection.live for collection in self._collections], open_limits or OpenLimits(), scheduler
        )

    async def collections(self) -> Sequence[EdgeCollection]:
        """Return the published collections. Open them one after the other."""
        for tenant, name in list(self._unopened):
            await self.find(tenant, name)
        return tuple(collection for collection in self._collections if collection.is_published)

    async def notes(self) -> Mapping[tuple[str, str], bytes]:
        """Return the notes of the published collections, from the manifests of those that are not open."""
        found = {key: manifest.note for key, manifest in self._unopened.items()}
        for collection in self._collections:
            if collection.is_published:
                found[collection.spec.tenant, collection.spec.name] = collection.live.note
        return found

    async def find(self, tenant: str, name: str) -> EdgeCollection | None:
        """Return the published collection of this name. Open it if necessary.

        Raises:
            Unavailable: The collection is damaged.
        """
        if (tenant, name) in self._unopened:
            await self._shield.run(self._open(tenant, name))
        for collection in self._collections:
            if collection.is_published and (collection.spec.tenant, collection.spec.name) == (tenant, name):
                return collection
        return None

    async def tidy(self) -> Sequence[EdgeCollection]:
        """Return no collection, because opening an index settles it, and no other process uses the store."""
        return ()

    async def create(self, spec: IndexSpec, *, is_replacement: bool = False) -> EdgeCollection:
        """Create an unpublished collection."""
        del is_replacement  # no other process creates collections
        shard_directory = self._new_directory(spec)
        async with self._scheduler.slice():
            shard = edge.EdgeShard.create(str(shard_directory), schema.config_without_graph(spec.dimension))
        return self._add(Manifest(spec, int(shard_directory.name), vectors=self._vectors), shard)

    async def restore(self, spec: IndexSpec, directory: Path) -> EdgeCollection:
        """Create an unpublished collection from a snapshot, in a child process."""
        needed_bytes = _MAX_SIZE_RATIO * await asyncio.to_thread(files.disk_usage, directory)
        async with self._builder.working_directory(needed_bytes) as working_directory:
            built = working_directory / "built"
            done = await self._builder.build("restore", directory, built, spec, self._vectors)
            shard_directory = self._new_directory(spec)
            built.replace(shard_directory)
        manifest = Manifest(spec, int(shard_directory.name), built=done.points, vectors=self._vectors)
        async with self._scheduler.slice():
            shard = load(shard_directory, manifest)
        return self._add(manifest, shard)

    async def aclose(self) -> None:
        """Close all shards and unlock the directory."""
        await self.parking.aclose()
        await self._shield.aclose()
        await self._compactor.aclose()
        slots = asyncio.Semaphore(_MAX_CONCURRENT_CLOSES)

        async def close(collection: EdgeCollection) -> None:
            async with slots:
                await collection.aclose()

        await asyncio.gather(*map(close, self._collections))
        self._collections.clear()
        files.unlock(self._lock)

    def _new_directory(self, spec: IndexSpec) -> Path:
        directory = self._directory / keys.collection(spec.tenant, spec.name)
        directory.mkdir(exist_ok=True)
        return files.create_numbered(directory)

    def _add(self, manifest: Manifest, shard: edge.EdgeShard) -> EdgeCollection:
        collection = self._collection(manifest, shard)
        self._collections = [known for known in self._collections if not known.is_closed]
        self._collections.append(collection)
        self.parking.park_soon()
        return collection

    def _collection(
        self, manifest: Manifest, shard: edge.EdgeShard, *, is_published: bool = False
    ) -> EdgeCollection:
        live = LiveShard(
            self._directory / manifest.name,
            manifest,
            shard,
            self._scheduler,
            is_published=is_published,
            opened=self.parking.park_soon,
        )
        reads = self._reads.for_shard()
        self.parking.start()
        return EdgeCollection(live, self._scheduler, self._builder, self._compactor, self._check_free_space, reads)

    def _published(self) -> dict[tuple[str, str], Manifest]:
        """Return the manifests of published collections by tenant and name. Remove other directories."""
        found = {}
        for directory in sorted(self._directory.iterdir()):
            if not directory.is_dir() or directory.name == _BUILDING:
                continue
            if not (directory / MANIFEST).exists():
                shutil.rmtree(directory)
                continue
            try:
                manifest = msgspec.json.decode((directory / MANIFEST).read_bytes(), type=Manifest)
            except msgspec.DecodeError as error:
                raise damaged(directory) from error
            found[manifest.spec.tenant, manifest.spec.name] = manifest
        return found

    async def _open(self, tenant: str, name: str) -> None:
        async with self._opening:
            manifest = self._unopened.get((tenant, name))
            if manifest is not None:
                shard = await asyncio.to_thread(_loaded, self._directory / manifest.name, manifest)
                self._collections.append(self._collection(manifest, shard, is_published=True))
                del self._unopened[tenant, name]
                self.parking.park_soon()

    def _check_free_space(self, needed: int = 0) -> None:
        if shutil.disk_usage(self._directory).free < self._min_free_bytes + needed:
            raise Unavailable("The store's disk is full.", retry_after=60)


def _loaded(directory: Path, manifest: Manifest) -> edge.EdgeShard:
    try:
        _clear_others(directory, manifest)
    except OSError as error:
        raise damaged(directory) from error
    return load(directory / str(manifest.generation), manifest)


def _clear_others(directory: Path, manifest: Manifest) -> None:
    for path in directory.iterdir():
        if path.is_dir() and path.name != str(manifest.generation):
            shutil.rmtree(path)
