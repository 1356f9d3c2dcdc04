"""Embeds chunks and writes them to the index, for jobs with files and with texts."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

from servicekit.errors import PayloadTooLarge, UnreadableDocument

from ingest.documents.embedding_models import IndexingModel
from ingest.domain import Chunk, Document, Job
from ingest.ports import Batch, Index

_BATCH = 32
"""Number of chunks in a batch. A batch is embedded and sent together. The contract allows 64."""
_STORE_SECONDS = 60.0
_STORE_SECONDS_PER_CHUNK = 0.5

Commit = Callable[[], Awaitable[None]]
"""Records that the stored document will become visible; see `Report.commit`."""
EarlierJobsEnded = Callable[[], Awaitable[bool]]
"""Returns whether all earlier jobs for the index have ended; see `Delivery.earlier_jobs_ended`."""
Done = Callable[[int], Awaitable[None]]
"""Receives the number of chunks that were just embedded and sent."""


class IndexWriter:
    """Writes documents to the index.

    Args:
        index: The index.
        max_chunks: Maximum number of chunks of a document.
    """

    def __init__(self, index: Index, max_chunks: int) -> None:
        self._index = index
        self._max_chunks = max_chunks

    def limited(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        """Return the chunks as a list.

        Raises:
            PayloadTooLarge: There are too many chunks.
            UnreadableDocument: There are no chunks.
        """
        result: list[Chunk] = []
        for chunk in chunks:
            if len(result) == self._max_chunks:
                raise PayloadTooLarge(f"The document has more than the limit of {self._max_chunks} passages.")
            result.append(chunk)
        if not result:
            raise UnreadableDocument("The document has no text.")
        return result

    async def has(
        self, job: Job, document: Document, existing: Document, earlier_jobs_ended: EarlierJobsEnded
    ) -> bool:
        """Return whether the index already has the job's document, and no older job can change it.

        Args:
            job: The job with the index and the principal.
            document: The job's document.
            existing: The version that was found in the index.
            earlier_jobs_ended: Called only if that version equals the document. Then the method reads the index
                again, because an older job may have ended in the meantime.

        Raises:
            Unavailable, DeadlineExceeded: The index cannot be reached.
        """
        if not existing.is_unchanged_from(document) or not await earlier_jobs_ended():
            return False
        now = await self._index.find(job, document.document_id)
        return now is not None and now.is_unchanged_from(document)

    async def store(
        self,
        job: Job,
        document: Document,
        model: IndexingModel,
        chunks: Sequence[Chunk],
        commit: Commit,
        done: Done,
    ) -> None:
        """Embed the chunks and send them to the index in batches; see `ports.Index.store`.

        If the job is cancelled before the last chunk is sent, the method stores nothing and raises `OwnershipLost`.
        """
        seconds = _STORE_SECONDS + _STORE_SECONDS_PER_CHUNK * len(chunks)
        async with contextlib.aclosing(_embedded(model, chunks, commit, done)) as batches:
            await self._index.store(job, document, model.space, batches, seconds)


async def _embedded(
    model: IndexingModel, chunks: Sequence[Chunk], commit: Commit, done: Done
) -> AsyncGenerator[Batch, None]:
    """Yield batches of chunks with their vectors. Each batch is embedded when the consumer requests it."""
    for start in range(0, len(chunks), _BATCH):
        batch = chunks[start : start + _BATCH]
        vectors = await model.embedder.embed([chunk.indexed_text for chunk in batch])
        yield Batch(batch, vectors)
        await done(len(batch))
    await commit()
