"""The text of a document from its chunks."""

from dataclasses import replace

import pytest
from causeway_testing.retriever.bench import INDEX, Bench, steps
from causeway_testing.retriever.store import MemoryStore
from hypothesis import given
from hypothesis import strategies as st
from retriever.documents.catalogue import text_of
from retriever.domain.changes import Commit
from retriever.domain.document import AccessControl, Document
from retriever.domain.listing import DocumentText, TextRange
from servicekit.errors import InvalidRequest, NotFound
from servicekit.principal import LOCAL, Principal

spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), min_size=1, max_size=150)


@given(spans, st.integers(0, 3000), st.integers(0, 3000))
async def test_any_part_of_a_text_can_be_read(spans: list[tuple[int, int]], length: int, offset: int) -> None:
    """Each part of a text is read unchanged, with every overlap or gap between the chunks."""
    text = "".join(chr(0x61 + number % 26) + ("é" if number % 7 == 0 else "") for number in range(3000))
    bench = await Bench.open(MemoryStore())
    cut: list[tuple[int, int]] = []
    for step, size in spans:
        begin = 0 if not cut else max(cut[-1][1] - 15 + step, cut[-1][0] + 1)
        end = max(begin + size, cut[-1][1] + 1 if cut else 0)
        cut.append((begin, end))
    chunks = await bench.chunks([text[begin:end] for begin, end in cut])
    for number in range(1, len(cut)):
        gap = cut[number][0] - cut[number - 1][1]
        chunks[number] = replace(
            chunks[number],
            overlap=max(-gap, 0),
            separator=text[cut[number - 1][1] : cut[number][0]] if gap >= 0 else None,
        )
    parts = [chunks[start : start + 64] for start in range(0, len(chunks), 64)]
    await bench.upserts.upsert(steps(bench.begin(Document("d", generation=1)), *parts, Commit(len(chunks))))
    whole = text[: cut[-1][1]]
    _, found = await bench.catalogue.document_with_text(LOCAL, INDEX, "d", TextRange(length, offset))
    assert found == DocumentText(whole[offset : offset + length], is_truncated=len(whole) > offset + length)


async def test_a_blank_line_is_the_default_separator(bench: Bench) -> None:
    """A blank line separates chunks without overlap and separator. Nothing precedes the first chunk."""
    await bench.put(Document("d", generation=1), ["one", "two", "three"])
    index = await bench.indexes.get(LOCAL.tenant, INDEX)
    document = await bench.catalogue.document(LOCAL, INDEX, "d")
    assert await text_of(index, document, TextRange(1000)) == DocumentText(
        "one\n\ntwo\n\nthree", is_truncated=False
    )
    assert await text_of(index, document, TextRange(15)) == DocumentText("one\n\ntwo\n\nthree", is_truncated=False)
    assert await text_of(index, document, TextRange(14)) == DocumentText("one\n\ntwo\n\nthre", is_truncated=True)
    assert await text_of(index, document, TextRange(0)) == DocumentText("", is_truncated=True)


async def test_a_document_without_chunks_has_no_text(bench: Bench) -> None:
    """A document without chunks has an empty text."""
    await bench.put(Document("d", generation=1), [])
    _, found = await bench.catalogue.document_with_text(LOCAL, INDEX, "d", TextRange(10))
    assert found == DocumentText("", is_truncated=False)


async def test_the_length_of_a_text_is_limited(bench: Bench) -> None:
    """At most a million characters are read at once."""
    await bench.put(Document("d", generation=1), ["one"])
    _, found = await bench.catalogue.document_with_text(LOCAL, INDEX, "d", TextRange(1_000_000))
    assert found.text == "one"
    with pytest.raises(InvalidRequest):
        await bench.catalogue.document_with_text(LOCAL, INDEX, "d", TextRange(1_000_001))


async def test_the_text_of_a_range_of_pages(bench: Bench) -> None:
    """The text of a range of pages has only these pages, and the offset counts within this text.

    Chunks without a page belong to no range.
    """
    chunks = await bench.chunks(["one", "two a", "two b", "three", "rest"])
    chunks = [replace(chunk, page=page) for chunk, page in zip(chunks, (1, 2, 2, 3, 0), strict=True)]
    await bench.upserts.upsert(steps(bench.begin(Document("d", generation=1)), chunks, Commit(5)))

    async def read(first: int, last: int, length: int = 100, offset: int = 0) -> DocumentText:
        part = TextRange(length, offset, first, last)
        return (await bench.catalogue.document_with_text(LOCAL, INDEX, "d", part))[1]

    assert await read(2, 2) == DocumentText("two a\n\ntwo b", is_truncated=False)
    assert await read(2, 2, 5) == DocumentText("two a", is_truncated=True)
    assert await read(2, 2, 100, 7) == DocumentText("two b", is_truncated=False)
    assert await read(2, 0) == DocumentText("two a\n\ntwo b\n\nthree", is_truncated=False)
    assert await read(0, 1) == DocumentText("one", is_truncated=False)
    assert await read(7, 9) == DocumentText("", is_truncated=False)


async def test_chunks_are_listed_in_order(bench: Bench) -> None:
    """Chunks are listed from a number on, at most 100 at once, and only to callers that may see the document."""
    chunks = await bench.chunks(["one", "two", "three"])
    chunks[1] = replace(chunks[1], page=2, headings=("Ferries",))
    hidden = Document("d", "a#.pdf", access=AccessControl(oids=("ann",)), generation=1, original="o")
    await bench.upserts.upsert(steps(bench.begin(hidden), chunks, Commit(3)))
    document, found = await bench.catalogue.chunks(LOCAL, INDEX, "d", 0, 0)
    assert (document.document_id, document.chunk_count) == ("d", 3)
    assert [(chunk.number, chunk.text) for chunk in found] == [(0, "one"), (1, "two"), (2, "three")]
    assert (found[1].headings, found[1].page, found[1].sourcepage) == (("Ferries",), 2, "a%23.pdf#page=2")
    assert len({chunk.id for chunk in found}) == 3
    _, found = await bench.catalogue.chunks(LOCAL, INDEX, "d", 1, 1)
    assert [chunk.text for chunk in found] == ["two"]
    assert (await bench.catalogue.chunks(LOCAL, INDEX, "d", 3, 1))[1] == ()
    with pytest.raises(InvalidRequest):
        await bench.catalogue.chunks(LOCAL, INDEX, "d", 0, 101)
    with pytest.raises(NotFound):
        await bench.catalogue.chunks(Principal("local", "bob", oids=("bob",)), INDEX, "d", 0, 1)
