"""Chunks → the index: limits, vectors, hand-over. What files and texts have in common."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence

from servicekit.errors import PayloadTooLarge, UnreadableDocument

from ingest.documents.embedding_models import IndexingModel
from ingest.domain import Chunk, Document, Job
from ingest.ports import Batch, Index

_BATCH = 32
"""Chunks that are embedded and handed over together; the contract allows 64."""
_STORE_SECONDS = 60.0
_STORE_SECONDS_A_CHUNK = 0.5

Commit = Callable[[], Awaitable[None]]
"""Says that what is stored is about to be seen; see `Report.commit`."""
Alone = Callable[[], Awaitable[bool]]
"""Tells whether every job that was accepted before is over; see `Delivery.alone`."""
Done = Callable[[int], Awaitable[None]]
"""Told how many more chunks of a document have been embedded and taken."""


class Storing:
    """Puts documents into the index.

    Args:
        index: Takes chunks and vectors.
        max_chunks: Documents of more chunks are refused.
    """

    def __init__(self, index: Index, max_chunks: int) -> None:
        self._index = index
        self._max_chunks = max_chunks

    def limited(self, chunks: Iterable[Chunk]) -> list[Chunk]:
        """The chunks, once it is known that they are neither none nor too many.

        Raises:
            PayloadTooLarge, UnreadableDocument: They are.
        """
        kept: list[Chunk] = []
        for chunk in chunks:
            if len(kept) == self._max_chunks:
                raise PayloadTooLarge(f"The document has more than the {self._max_chunks} passages that are kept.")
            kept.append(chunk)
        if not kept:
            raise UnreadableDocument("The document has no text.")
        return kept

    async def has(self, job: Job, document: Document, there: Document, alone: Alone) -> bool:
        """Return whether the index has the document as the job has it, and no older job may still change it.

        Args:
            job: Its index, on behalf of its principal.
            document: As the job has it.
            there: The version that was found.
            alone: Asked only where that version says the same. An older job may have ended since it was found, so
                it is looked for once more.

        Raises:
            Unavailable, DeadlineExceeded: The index cannot be asked.
        """
        if not there.says_the_same_as(document) or not await alone():
            return False
        now = await self._index.find(job, document.document_id)
        return now is not None and now.says_the_same_as(document)

    async def store(
        self,
        job: Job,
        document: Document,
        model: IndexingModel,
        chunks: Sequence[Chunk],
        commit: Commit,
        done: Done,
    ) -> None:
        """Embeds the chunks while the index takes them; see `ports.Index.store`. Whoever cancels the job before the
        last of them is there wins: nothing is stored then, and `Settled` is raised.
        """
        seconds = _STORE_SECONDS + _STORE_SECONDS_A_CHUNK * len(chunks)
        async with contextlib.aclosing(_embedded(model, chunks, commit, done)) as batches:
            await self._index.store(job, document, model.space, batches, seconds)


async def _embedded(
    model: IndexingModel, chunks: Sequence[Chunk], commit: Commit, done: Done
) -> AsyncGenerator[Batch, None]:
    """Chunks with their vectors, made when they are asked for."""
    for start in range(0, len(chunks), _BATCH):
        some = chunks[start : start + _BATCH]
        vectors = await model.embedder.embed([chunk.indexed_text for chunk in some])
        yield Batch(some, vectors)
        await done(len(some))
    await commit()
