"""A cache of chunks and records, which searches read repeatedly.

Only one process writes to a shard. Before it writes or removes a chunk or a record, it removes the cached entry,
and it does not await anything in between. So cached reads are never stale.
"""

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence

from retriever.byte_cache import ByteCache
from retriever.domain.document import Document
from retriever.ports.store import StoredChunk

MAX_BYTES = 32 * 1024 * 1024
_Key = tuple[int, str, str]
_CHUNK, _RECORD = "chunk", "record"


class ReadCache:
    """Chunks and records of all shards of a store.

    Args:
        max_bytes: Maximum size of the cache.
    """

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self._entries: ByteCache[_Key, StoredChunk | Document] = ByteCache(max_bytes)
        self._numbers = itertools.count()

    def for_shard(self) -> "ShardReads":
        """Return an empty part of the cache for a new collection. Collections of the same name share no entries."""
        return ShardReads(self._entries, next(self._numbers))


class ShardReads:
    """The cache entries of one collection. `ReadCache.for_shard` creates it."""

    def __init__(self, entries: "ByteCache[_Key, StoredChunk | Document]", number: int) -> None:
        self._entries = entries
        self._number = number

    def chunks(
        self, ids: Sequence[str], read: Callable[[Sequence[str]], Iterable[StoredChunk]]
    ) -> Mapping[str, StoredChunk]:
        """Return chunks by id. ``read`` reads chunks that are not cached, and leaves out missing chunks."""
        found: dict[str, StoredChunk] = {}
        missing = []
        for id_ in ids:
            known = self._entries.get((self._number, _CHUNK, id_))
            if isinstance(known, StoredChunk):
                found[id_] = known
            else:
                missing.append(id_)
        for chunk in read(missing) if missing else ():
            found[chunk.id] = chunk
            size = 4 * len(chunk.text) + sum(map(len, chunk.headings))
            self._entries.put((self._number, _CHUNK, chunk.id), chunk, size)
        return found

    def records(
        self, document_ids: Sequence[str], read: Callable[[Sequence[str]], Iterable[Document]]
    ) -> Mapping[str, Document]:
        """Return records by document id, like `chunks`."""
        found: dict[str, Document] = {}
        missing = []
        for id_ in document_ids:
            known = self._entries.get((self._number, _RECORD, id_))
            if isinstance(known, Document):
                found[id_] = known
            else:
                missing.append(id_)
        for document in read(missing) if missing else ():
            found[document.document_id] = document
            listed = sum(map(len, (*document.access.oids, *document.access.groups)))
            size = 1000 + len(document.metadata_json) + 4 * len(document.sourcefile) + 4 * listed
            self._entries.put((self._number, _RECORD, document.document_id), document, size)
        return found

    def forget_chunks(self, ids: Iterable[str]) -> None:
        """Remove chunks that are about to be written or removed."""
        for id_ in ids:
            self._entries.remove((self._number, _CHUNK, id_))

    def forget_record(self, document_id: str) -> None:
        """Remove a record that is about to be written or removed."""
        self._entries.remove((self._number, _RECORD, document_id))
