"""The current shard of a collection: writes, durability, and replacement by a new shard.

::

    <collection>/index.json      the manifest: the index, and the current generation of its shard
    <collection>/<generation>/   the shard

``index.json`` is replaced by one rename, so a collection is created, removed or switched to a rebuilt shard
atomically.

A new shard is built from a copy while the old shard remains in use. The ids of documents that are written meanwhile
are recorded. Before the new shard takes over, the points of these documents are copied again, in rounds. Writers
wait for the first copy and for the last of these rounds. Readers do not wait.
"""

import asyncio
import contextlib
import shutil
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import qdrant_edge as edge
import structlog
from servicekit.errors import CausewayError

from retriever.concurrency.scheduler import Scheduler
from retriever.concurrency.shielding import Shield
from retriever.domain.index import IndexSettings, IndexSpec, Replaced, no_such_index
from retriever.storage import files
from retriever.stores.edge import payload_indexes
from retriever.stores.edge.loading import load
from retriever.stores.edge.manifest import MANIFEST, Manifest, Tally, replace_manifest
from retriever.stores.edge.replay import replay
from retriever.stores.edge.shared_sync import SharedSync

_log = structlog.get_logger(__name__)

_FLUSH_POINTS = 20_000
"""Number of points after which the log is flushed into the segments. A flush syncs every file of the shard and
blocks for 50 ms on an idle disk and 500 ms on a busy one, so it is rare. Opening after a crash replays at most this
many points, in about five seconds. `LiveShard.sync` makes acknowledged writes durable before the flush."""
_MAX_PAUSED_DOCUMENTS = 4  # documents to replay while writers wait
_MAX_ROUNDS = 5
_POINT_BYTES = 4800
"""Memory of a point without its vector, measured with chunks of 100 words."""
_INDEXED_BYTES = 64 * 1024 * 1024  # additional memory of a shard that has payload indexes; see `payload_indexes`


class LiveShard:
    """One collection's shard.

    Args:
        opened: Called after the shard was opened again.

    Attributes:
        directory: The directory of the collection.
        tally: Numbers of added and removed points.
        is_published: Whether the manifest exists.
        used_at: Time of the last use, on the monotonic clock.
    """

    def __init__(
        self,
        directory: Path,
        manifest: Manifest,
        shard: edge.EdgeShard,
        scheduler: Scheduler,
        *,
        is_published: bool,
        opened: Callable[[], None],
    ) -> None:
        self.directory = directory
        self.is_published = is_published
        self._manifest = manifest
        self._open: edge.EdgeShard | None = shard
        self._scheduler = scheduler
        self._opened, self._indexed = opened, bool(shard.info().payload_schema)
        self._parked = self._replaced = False
        self.used_at = time.monotonic()
        self._previous: Path | None = None
        self._unflushed = 0
        added = shard.info().points_count - manifest.built + manifest.removed
        self.tally = Tally(max(added, 0), manifest.removed)
        self._writing, self._syncing = asyncio.Lock(), asyncio.Lock()
        self._shared_sync = SharedSync(self._syncing, self._sync_log)
        # Documents that were written since the shard was copied; None if no rebuild runs.
        self._written: set[str] | None = None

    @property
    def spec(self) -> IndexSpec:
        """The specification of the index."""
        return self._manifest.spec

    @property
    def name(self) -> str:
        """The name of the collection."""
        return self._manifest.name

    @property
    def note(self) -> bytes:
        """The note of the collection."""
        return self._manifest.note

    async def put_note(self, note: bytes) -> None:
        """Store a note in the manifest. If the collection is published, also write the manifest to the disk."""
        async with self._syncing:
            await self._save(msgspec.structs.replace(self.current(), note=note))

    async def put_settings(self, settings: IndexSettings) -> None:
        """Store settings in the manifest. If the collection is published, also write the manifest to the disk."""
        async with self._syncing:
            await self._save(msgspec.structs.replace(self.current(), spec=replace(self.spec, settings=settings)))

    async def _save(self, manifest: Manifest) -> None:
        if self.is_published:
            await replace_manifest(self.directory, manifest)
        self._manifest = manifest

    @property
    def is_closed(self) -> bool:
        """Whether the shard was dropped, replaced or closed."""
        return self._open is None and not self._parked

    @property
    def is_open(self) -> bool:
        """Whether the engine has the shard open."""
        return self._open is not None

    @property
    def shard(self) -> edge.EdgeShard:
        """The shard of the engine. It is opened if it was parked.

        Raises:
            NotFound: The collection was dropped.
            Unavailable: The collection was replaced, or the shard is damaged.
        """
        self.used_at = time.monotonic()
        if self._open is None:
            if not self._parked:
                raise self._removed()
            self._open, self._parked = load(self._path(self._manifest), self._manifest), False
            self._opened()
        return self._open

    @property
    def memory(self) -> int:
        """The estimated maximum memory of the open shard in bytes, including the pages of its mapped files."""
        points = self._manifest.built + self.tally.added - self.tally.removed
        return (_INDEXED_BYTES if self._indexed else 0) + points * (_POINT_BYTES + 4 * self.spec.dimension)

    def park(self) -> bool:
        """Close the shard until its next use if it is not in use. Return whether it was closed."""
        busy = self._written is not None or self._writing.locked() or self._syncing.locked()
        if self._open is None or not self.is_published or busy:
            return False
        # During a close in a thread, another task could open the shard a second time.
        shard, self._open, self._parked, self._unflushed = self._open, None, True, 0
        shard.close()
        return True

    async def index_fields(self) -> None:
        """Create the missing payload indexes, one after the other."""
        while operations := payload_indexes.missing(self.shard):
            async with self.writing(), self._scheduler.slice():
                self.shard.update(operations[0])
                self._indexed = True

    async def _note_removed(self) -> None:
        if self._manifest.removed != self.tally.removed:
            await self._save(msgspec.structs.replace(self._manifest, removed=self.tally.removed))

    @contextlib.asynccontextmanager
    async def writing(self, *document_ids: str) -> AsyncIterator[None]:
        """Hold the write lock to change these documents. Do not yield to the event loop if the lock is free."""
        async with self._writing:
            if self._written is not None:
                self._written.update(document_ids)
            yield

    def upsert(self, points: list[edge.Point]) -> None:
        """Write points."""
        self._update(edge.UpdateOperation.upsert_points(points), len(points))
        self.tally.added += len(points)

    def delete(self, ids: "list[edge.PointId]") -> None:
        """Remove existing points."""
        self._update(edge.UpdateOperation.delete_points(ids), len(ids))
        self.tally.removed += len(ids)

    def _update(self, operation: edge.UpdateOperation, points: int) -> None:
        self.shard.update(operation)
        self._unflushed += points
        if self._unflushed >= _FLUSH_POINTS:
            self.shard.flush()
            self._unflushed = 0

    async def publish(self, replaced: "LiveShard | None") -> None:
        """Write the manifest after the shard's new files are synced to the disk."""
        async with contextlib.AsyncExitStack() as locks:
            if replaced is not None:
                # Writers wait from now on, so that no acknowledged write is lost.
                await locks.enter_async_context(replaced._writing)
                await locks.enter_async_context(replaced._syncing)
            async with self._syncing:
                await asyncio.to_thread(files.sync_tree, self._path(self.current()))
                _log.debug("publishing", stage="publishing", index=self.spec.name)
                await replace_manifest(self.directory, self._manifest)
                _log.debug("publishing", stage="published", index=self.spec.name)
            self.is_published = True
            if replaced is not None:
                old, replaced._open, replaced._replaced = replaced.shard, None, True
                await replaced._remove(old)

    async def drop(self) -> None:
        """Remove the manifest, then the other files."""
        shard, self._open = self.shard, None
        async with self._writing, self._syncing:
            if self.is_published:
                await asyncio.to_thread(files.unlink, self.directory / MANIFEST)
            await self._remove(shard)

    async def aclose(self) -> None:
        """Close the shard if it is open, and store its number of removed points."""
        async with self._writing, self._syncing:
            if not self.is_closed:
                await self._note_removed()
            self._parked = False
            if self._open is not None:
                # In a thread, because closing writes to the disk.
                shard, self._open = self._open, None
                await asyncio.to_thread(shard.close)

    async def sync(self, expected_callers: int = 0) -> None:
        """Sync the log to the disk. See `SharedSync.wait`."""
        await self._shared_sync.wait(expected_callers)

    async def _sync_log(self) -> None:
        if not self.is_closed:
            await asyncio.to_thread(files.sync_tree, self._path(self._manifest) / "wal")

    async def copy(self, target: Path, *, to_rebuild: bool) -> None:
        """Copy the shard's files while writers wait.

        The copy is opened like a shard after a crash: the log has the points that the segments lack. If the
        shard is parked, it is opened first: a reader that opens it during the copy would change and remove files.

        Args:
            target: The directory to create.
            to_rebuild: Whether to record the ids of documents that are written until `stop_recording`. `take_over`
                copies these documents again.
        """
        async with self._writing:
            _ = self.shard
            # A thread cannot be cancelled. Without the shield it would write after the caller has cleaned up.
            await Shield().run(asyncio.to_thread(files.copy_tree, self._path(self._manifest), target))
            if to_rebuild:
                self._written = set()

    def size(self) -> int:
        """Return the disk space of the shard in bytes."""
        return files.disk_usage(self._path(self.current()))

    def stop_recording(self) -> None:
        """Stop the recording of written documents that `copy` started."""
        self._written = None

    async def take_over(self, built: Path, points: int) -> None:
        """Replace the shard by a new shard that was built from a copy. Include writes since the copy.

        Args:
            built: The directory of the new shard, which is moved.
            points: Number of its points.

        Raises:
            NotFound, Unavailable: The collection was dropped or replaced meanwhile.
            OSError: A file operation failed. The old shard remains in use.
        """
        manifest = await asyncio.to_thread(self._move_in, built, points)
        directory = self._path(manifest)
        new: edge.EdgeShard | None = None
        try:
            async with self._scheduler.slice():
                new = load(directory, manifest)
            for _ in range(_MAX_ROUNDS):
                if len(self._written or ()) <= _MAX_PAUSED_DOCUMENTS:
                    break
                await self._replay(new)
            async with self._writing:
                await self._replay(new)
                async with self._syncing:
                    await asyncio.to_thread(files.sync_tree, directory / "wal")
                    _log.debug("rebuilding", stage="swapping", index=self.spec.name)
                    self.current()
                    manifest = msgspec.structs.replace(manifest, spec=self.spec, note=self.note)
                    await replace_manifest(self.directory, manifest)
                    _log.debug("rebuilding", stage="swapped", index=self.spec.name)
                    # The manifest names the new shard: no statement below may raise.
                    old, old_directory = self._open, self._path(self._manifest)
                    self._manifest, self.tally, self._unflushed = manifest, Tally(), 0
                    if old is not None:
                        self._open, self._indexed = new, bool(new.info().payload_schema)
        except BaseException:
            if new is not None:
                new.close()
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=True)
            raise
        if old is None:
            # `drop` waits for the locks. Then it removes the manifest, its shard and the previous shard.
            self._previous = old_directory
            new.close()
            raise self._removed()
        old.close()
        await asyncio.to_thread(shutil.rmtree, old_directory)

    def _move_in(self, built: Path, points: int) -> Manifest:
        directory = files.create_numbered(self.directory)
        built.replace(directory)
        generation, previous = int(directory.name), self._manifest
        return msgspec.structs.replace(previous, generation=generation, built=points, removed=0)

    async def _replay(self, new: edge.EdgeShard) -> None:
        written, self._written = self._written or set(), set()
        for document_id in written:
            await replay(document_id, self.name, lambda: self.shard, new, self._scheduler)

    async def _remove(self, shard: edge.EdgeShard) -> None:
        shard.close()
        await asyncio.to_thread(self._remove_files)

    def _remove_files(self) -> None:
        shutil.rmtree(self._path(self._manifest))
        if self._previous is not None:
            shutil.rmtree(self._previous)
        with contextlib.suppress(OSError):  # another shard of the same name exists
            self.directory.rmdir()

    def current(self) -> Manifest:
        """Return the manifest. Raise the errors of `shard`, but do not open the shard."""
        if self.is_closed:
            raise self._removed()
        return self._manifest

    def _removed(self) -> CausewayError:
        return Replaced(self.spec.name) if self._replaced else no_such_index(self.spec.name)

    def _path(self, manifest: Manifest) -> Path:
        return self.directory / str(manifest.generation)
