"""A document's text, put together from its chunks."""

from retriever.domain import Document, DocumentText
from retriever.index import Index
from retriever.store.port import StoredChunk

_BLANK_LINE = "\n\n"
_AT_A_TIME = 64
_LIKELY_LENGTH = 500  # code points that a chunk adds, or more: how many to read first


async def text_of(index: Index, document: Document, length: int) -> DocumentText:
    """The first ``length`` code points of a document's text."""
    text = ""
    number = 0
    while number < document.chunk_count and len(text) <= length:
        wanted = min((length - len(text)) // _LIKELY_LENGTH + 1, _AT_A_TIME)
        chunks = await index.collection.chunks_of(document.version, number, wanted)
        if not chunks:
            break  # removed meanwhile
        text += "".join(added(chunk) for chunk in chunks)
        number += wanted
    return DocumentText(text[:length], is_truncated=len(text) > length or number < document.chunk_count)


def added(chunk: StoredChunk) -> str:
    """What a chunk adds to the text before it."""
    if chunk.overlap:
        return chunk.text[chunk.overlap :]
    separator = chunk.separator
    if separator is None:
        separator = _BLANK_LINE if chunk.number else ""
    return separator + chunk.text
