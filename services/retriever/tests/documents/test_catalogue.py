"""Reading, listing and deleting documents and indexes."""

import json
from collections.abc import Callable, Mapping, Sequence

import pytest
from causeway_testing.retriever.bench import INDEX, Bench
from retriever.domain.document import Document
from retriever.domain.filter import NO_FILTER, Filter, MatchAny
from retriever.domain.index import Replaced
from retriever.domain.listing import DocumentPage, DocumentText, PageRequest, TextRange
from retriever.domain.query import Mode
from retriever.domain.scope import EVERYTHING
from retriever.ports.store import Store
from servicekit import keys
from servicekit.errors import InvalidRequest, NotFound, PermissionDenied
from servicekit.principal import LOCAL, Principal


async def pages(bench: Bench, size: int, filter_: Filter = NO_FILTER) -> list[DocumentPage]:
    """Return all pages of a listing."""
    found = [await bench.catalogue.documents(LOCAL, INDEX, filter_, PageRequest(size))]
    while found[-1].next_token:
        request = PageRequest(size, found[-1].next_token)
        found.append(await bench.catalogue.documents(LOCAL, INDEX, filter_, request))
    return found


async def test_listing_is_paged_and_ordered(bench: Bench) -> None:
    """Pages list the documents by id without gaps or repeats, each with the total number."""
    ids = ["b", "a", "é", "Z", "a/1", "a b", "10", "9"]
    for number, document_id in enumerate(ids):
        await bench.put(Document(document_id, category=("x", "y")[number % 2], generation=1), ["text"])
    for size in (1, 3, len(ids), 1000):
        listed = await pages(bench, size)
        assert [document.document_id for page in listed for document in page.documents] == sorted(ids)
        assert {page.total for page in listed} == {len(ids)}
        assert all(len(page.documents) <= size for page in listed)
    only_x = Filter(must=(MatchAny("category", ("x",)),))
    listed = await pages(bench, 3, only_x)
    assert [document.document_id for page in listed for document in page.documents] == sorted(ids[::2])
    assert {page.total for page in listed} == {4}


async def test_wrong_pages_are_refused(bench: Bench) -> None:
    """A wrong page is refused, and the error names the field."""
    await bench.put(Document("d", generation=1), ["text"])
    for request, field in (
        (PageRequest(1001), "page_size"),
        (PageRequest(10, "?"), "page_token"),
        (PageRequest(10, "_w=="), "page_token"),
        (PageRequest(10, "ZA==", offset=0), "offset"),
        (PageRequest(10, text_length=100_001), "text_length"),
        (PageRequest(text_length=10_001), "text_length"),
    ):
        with pytest.raises(InvalidRequest) as caught:
            await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, request)
        assert caught.value.field == field


async def test_deleting_documents(bench: Bench) -> None:
    """A deleted document is in no search, cannot be read, and no point of it remains. Unknown ids are returned. A
    call without ids is refused.
    """
    for name in ("a", "b"):
        await bench.put(Document(name, generation=3), [f"the ferry {name}"] * 70)
    deleted = await bench.catalogue.delete_documents(LOCAL, INDEX, ["a", "x", "a"])
    assert [document.document_id for document in deleted.documents] == ["a"]
    assert deleted.not_found == ("x",)
    for mode in Mode:
        found = await bench.ask("ferry a", mode=mode, top=1000)
        assert {passage.document.document_id for passage in found} == {"b"}
    with pytest.raises(NotFound, match=r"Index 'notes' has no document 'a'"):
        await bench.catalogue.document(LOCAL, INDEX, "a")
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    assert await collection.count_chunks(EVERYTHING) == 70
    assert await collection.marked() == []
    with pytest.raises(InvalidRequest):
        await bench.catalogue.delete_documents(LOCAL, INDEX, [])


async def test_a_deleted_document_can_be_stored_again(bench: Bench) -> None:
    """A deleted document can be stored again with any generation, also a lower one."""
    await bench.put(Document("d", generation=9), ["the ferry"])
    await bench.catalogue.delete_documents(LOCAL, INDEX, ["d"])
    await bench.put(Document("d", generation=1), ["the bridge"])
    assert [passage.text for passage in await bench.ask("ferry bridge")] == ["the bridge"]


async def test_an_index_without_documents_is_listed(bench: Bench) -> None:
    """An index without documents is listed until it is deleted."""
    await bench.put(Document("d", generation=1), ["the ferry"], index="z")
    await bench.put(Document("d", generation=1), ["the ferry"], index="a")
    await bench.catalogue.delete_documents(LOCAL, "z", ["d"])
    listed = await bench.catalogue.indexes(LOCAL)
    assert [(summary.spec.name, summary.documents, summary.chunks) for summary in listed] == [
        ("a", 1, 1),
        ("z", 0, 0),
    ]
    assert listed[0].spec.embedding_model == bench.embedder.model
    assert await bench.ask("ferry", indexes=("z",)) == []
    await bench.catalogue.delete_index(LOCAL, "z")
    assert [summary.spec.name for summary in await bench.catalogue.indexes(LOCAL)] == ["a"]


async def test_unknown_indexes(bench: Bench) -> None:
    """An unknown index causes NotFound on every call, and an invalid name InvalidRequest."""
    catalogue = bench.catalogue
    for name, error in (("nothing", NotFound), ("../etc", InvalidRequest)):
        for call in (
            catalogue.find(LOCAL, name, "d"),
            catalogue.document(LOCAL, name, "d"),
            catalogue.document_with_text(LOCAL, name, "d", TextRange(10)),
            catalogue.documents(LOCAL, name, NO_FILTER, PageRequest()),
            catalogue.chunks(LOCAL, name, "d", 0, 10),
            catalogue.delete_documents(LOCAL, name, ["d"]),
            catalogue.index(LOCAL, name),
            catalogue.summary(LOCAL, name),
            catalogue.compact(LOCAL, name),
            catalogue.delete_index(LOCAL, name),
        ):
            with pytest.raises(error):
                await call


async def test_documents_and_deletions_survive_a_restart(reopen: Callable[[], Store]) -> None:
    """Documents, passages with their order and deletions are the same after a restart."""
    bench = await Bench.open(reopen())
    for name in ("a", "b", "c"):
        await bench.put(Document(name, f"{name}.pdf", generation=1), [f"the ferry {name}", "the bridge"])
    await bench.put(Document("b", "b2.pdf", generation=2), ["another ferry"])
    await bench.put(Document("d", generation=1), ["x"], index="gone")
    await bench.catalogue.delete_documents(LOCAL, INDEX, ["c"])
    await bench.catalogue.delete_index(LOCAL, "gone")
    before = [(passage.id, passage.text, passage.document) for passage in await bench.ask("ferry bridge")]
    listed = await pages(bench, 10)
    await bench.aclose()

    bench = await Bench.open(reopen())
    assert [(passage.id, passage.text, passage.document) for passage in await bench.ask("ferry bridge")] == before
    assert await pages(bench, 10) == listed
    assert [summary.spec.name for summary in await bench.catalogue.indexes(LOCAL)] == [INDEX]
    await bench.aclose()


async def test_pages_by_offset(bench: Bench) -> None:
    """An offset skips documents. An offset past the end gives an empty page with the total number."""
    ids = [f"d{number}" for number in range(7)]
    for document_id in ids:
        await bench.put(Document(document_id, generation=1), ["text"])
    for offset, size, expected in ((0, 3, ids[:3]), (2, 3, ids[2:5]), (5, 3, ids[5:]), (7, 3, []), (2**63, 3, [])):
        page = await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest(size, offset=offset))
        assert [document.document_id for document in page.documents] == expected
        assert page.total == len(ids)
        assert bool(page.next_token) == (offset + size < len(ids))


async def test_listings_with_text(bench: Bench) -> None:
    """Each document has the beginning of its text up to the requested length, and no text by default."""
    await bench.put(Document("a", generation=1), ["one", "two"])
    await bench.put(Document("b", generation=1), ["three"])
    page = await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest(10, text_length=6))
    assert page.texts == (DocumentText("one\n\nt", is_truncated=True), DocumentText("three", is_truncated=False))
    page = await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest(10, text_length=0))
    assert page.texts == (DocumentText("", is_truncated=True),) * 2
    assert (await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest(10))).texts == ()


async def test_a_page_of_large_metadata_is_shorter(bench: Bench) -> None:
    """A page ends early if its metadata are too large for one answer, and the next page continues."""
    metadata = b'{"x": "%s"}' % (b"x" * 60_000)
    ids = [f"d{number:03}" for number in range(80)]
    for document_id in ids:
        await bench.put(Document(document_id, metadata_json=metadata, generation=1), [])
    listed = await pages(bench, 1000)
    assert [document.document_id for page in listed for document in page.documents] == ids
    assert len(listed) == 2


async def test_only_administrators_may_compact(bench: Bench) -> None:
    """Only administrators can compact an index, and only one of their tenant."""
    await bench.put(Document("a", generation=1), ["one"])
    await bench.catalogue.compact(LOCAL, INDEX)
    with pytest.raises(PermissionDenied):
        await bench.catalogue.compact(Principal(LOCAL.tenant, roles=("ask", "ingest")), INDEX)
    with pytest.raises(NotFound):
        await bench.catalogue.compact(Principal("other", roles=("admin",)), INDEX)
    assert len(await bench.ask("one")) == 1


async def test_embedded_files_are_deleted_with_their_document(bench: Bench) -> None:
    """Embedded files of a deleted document are deleted at any depth. A document with forged metadata stays."""

    async def put(name: str, outer: str = "", id_: str = "") -> str:
        document_id = id_ or (keys.member_id(outer, name.rpartition("/")[2]) if outer else name)
        facts = {keys.PART_OF: name.rpartition("/")[0], keys.PART_OF_ID: outer} if outer else {}
        document = Document(document_id, sourcefile=name, generation=1, metadata_json=json.dumps(facts).encode())
        await bench.put(document, ["text"])
        return document_id

    mail = await put("m.eml")
    archive = await put("m.eml/a.zip", mail)
    inner = await put("m.eml/a.zip/b.txt", archive)
    forged = await put("m.eml/c.txt", mail, "forged")
    other = await put("other.txt")
    deleted = await bench.catalogue.delete_documents(LOCAL, INDEX, [mail, "none"])
    assert [document.document_id for document in deleted.documents] == [inner, archive, mail]
    assert deleted.not_found == ("none",)
    page = await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, PageRequest())
    assert [document.document_id for document in page.documents] == [forged, other]


async def test_a_deletion_reports_what_it_deleted_before_the_index_was_replaced(bench: Bench) -> None:
    """A document is not reported as missing because an earlier attempt of the same call deleted it."""
    for name in ("a", "b"):
        await bench.put(Document(name, generation=1), ["one"])
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    read = collection.records
    reads_of_b = 0

    async def records(ids: Sequence[str]) -> Mapping[str, Document]:
        nonlocal reads_of_b
        reads_of_b += list(ids) == ["b"]
        if reads_of_b == 2:  # the first read looks for embedded files
            reads_of_b += 1
            raise Replaced(INDEX)
        return await read(ids)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collection, "records", records)
        deleted = await bench.catalogue.delete_documents(LOCAL, INDEX, ["a", "b"])
    assert [document.document_id for document in deleted.documents] == ["a", "b"]
    assert deleted.not_found == ()


async def test_a_read_of_an_index_that_is_always_replaced_ends_after_four_calls(bench: Bench) -> None:
    """Each read of a document is repeated at most three times while its index is replaced."""
    await bench.put(Document("a", generation=1), ["one"])
    collection = (await bench.indexes.get(LOCAL.tenant, INDEX)).collection
    calls = 0

    async def records(_: object) -> None:
        nonlocal calls
        calls += 1
        raise Replaced(INDEX)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collection, "records", records)
        for read in (
            bench.catalogue.find(LOCAL, INDEX, "a"),
            bench.catalogue.document(LOCAL, INDEX, "a"),
            bench.catalogue.document_with_text(LOCAL, INDEX, "a", TextRange(10)),
            bench.catalogue.chunks(LOCAL, INDEX, "a", 0, 10),
        ):
            calls = 0
            with pytest.raises(Replaced):
                await read
            assert calls == 4
