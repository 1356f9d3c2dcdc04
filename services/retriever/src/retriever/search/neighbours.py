"""Extends passages by their neighbours: the chunks before and after them on the same page and in the same section.

Neighbours belong to the same version of the document. So a caller that may see a passage may also see its
neighbours.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from retriever.concurrency.gathering import gather_all
from retriever.domain.query import Passage
from retriever.indexes.open_index import Index
from retriever.ports.store import StoredChunk

_MAX_READ_AHEAD = 64
"""Maximum number of passages whose neighbours are read concurrently."""


async def extended(
    passages: Sequence[Passage], count: int, top: int, indexes: Mapping[str, Index]
) -> list[Passage]:
    """Return the ``top`` best passages, each extended by up to ``count`` chunks on either side.

    Each chunk is part of one returned passage only: the best one that includes it. If a better passage already
    includes the chunk of a passage, this passage is left out, and the next one replaces it.

    Args:
        passages: Best first.
        count: Number of chunks on each side.
        top: Number of passages to return.
        indexes: The indexes of the passages, by name.
    """
    used_by_document: dict[tuple[str, str], set[int]] = {}
    result: list[Passage] = []
    chunks_by_passage = await _read_ahead(passages, count, indexes)
    for passage in passages:
        if len(result) == top:
            break
        key = passage.index, passage.document.document_id
        used = used_by_document.setdefault(key, set())
        if passage.number in used:
            continue
        chunks = chunks_by_passage.get(passage.id)
        if chunks is None:
            chunks = await _read(passage, count, indexes)
        extent = _around(passage, {chunk.number: chunk for chunk in chunks if chunk.number not in used})
        used.update(chunk.number for chunk in extent)
        result.append(_joined(passage, extent))
    return result


async def _read(passage: Passage, count: int, indexes: Mapping[str, Index]) -> list[StoredChunk]:
    first = max(0, passage.number - count)
    return await indexes[passage.index].collection.chunks_of(
        passage.document.version, first, passage.number + count + 1 - first
    )


async def _read_ahead(
    passages: Sequence[Passage], count: int, indexes: Mapping[str, Index]
) -> dict[str, list[StoredChunk]]:
    """Return the chunks around the first passages in remote stores, by the id of the passage.

    The reads run concurrently. Some of these chunks may not be needed, because a passage may be part of a better
    passage.
    """
    ahead = [passage for passage in passages if indexes[passage.index].collection.remote is not None][
        :_MAX_READ_AHEAD
    ]
    return dict(
        zip(
            (passage.id for passage in ahead),
            await gather_all(*(_read(passage, count, indexes) for passage in ahead)),
            strict=True,
        )
    )


def _around(passage: Passage, chunks: Mapping[int, StoredChunk]) -> list[StoredChunk]:
    """Return the passage's chunk and the adjacent chunks on the same page and in the same section.

    Return an empty list if the chunk was removed.
    """
    if passage.number not in chunks:
        return []
    first = last = passage.number
    while _belongs(passage, chunks.get(first - 1)):
        first -= 1
    while _belongs(passage, chunks.get(last + 1)):
        last += 1
    return [chunks[number] for number in range(first, last + 1)]


def _belongs(passage: Passage, chunk: StoredChunk | None) -> bool:
    return chunk is not None and (chunk.page, chunk.headings) == (passage.page, passage.headings)


def _joined(passage: Passage, chunks: Sequence[StoredChunk]) -> Passage:
    if len(chunks) < 2:
        return passage
    text = chunks[0].text + "".join(chunk.continuation for chunk in chunks[1:])
    return replace(passage, text=text, first=chunks[0].number, last=chunks[-1].number)
