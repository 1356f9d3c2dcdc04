"""Reading, listing and deleting documents and indexes."""

from collections.abc import Callable

import pytest
from retriever.domain import NO_FILTER, Document, DocumentPage, Filter, MatchAny, Mode
from retriever.store.port import EVERYTHING, Store
from retriever.testing import INDEX, Bench
from servicekit.errors import InvalidRequest, NotFound
from servicekit.principal import LOCAL


async def pages(bench: Bench, size: int, filter_: Filter = NO_FILTER) -> list[DocumentPage]:
    """All pages of a listing."""
    found = [await bench.catalogue.documents(LOCAL, INDEX, filter_, size, "")]
    while found[-1].next_token:
        found.append(await bench.catalogue.documents(LOCAL, INDEX, filter_, size, found[-1].next_token))
    return found


async def test_listing_is_paged_and_ordered(bench: Bench) -> None:
    """Pages follow each other by document id without gaps or repeats, each with the number of all."""
    ids = ["b", "a", "é", "Z", "a/1", "a b", "10", "9"]
    for number, document_id in enumerate(ids):
        await bench.put(Document(document_id, category=("x", "y")[number % 2], generation=1), ["text"])
    for size in (1, 3, len(ids), 1000):
        listed = await pages(bench, size)
        assert [each.document_id for page in listed for each in page.documents] == sorted(ids)
        assert {page.total for page in listed} == {len(ids)}
        assert all(len(page.documents) <= size for page in listed)
    only_x = Filter(must=(MatchAny("category", ("x",)),))
    listed = await pages(bench, 3, only_x)
    assert [each.document_id for page in listed for each in page.documents] == sorted(ids[::2])
    assert {page.total for page in listed} == {4}


async def test_wrong_pages_are_refused(bench: Bench) -> None:
    """A page too large, or a token that no listing gave, is named."""
    await bench.put(Document("d", generation=1), ["text"])
    for size, token, field in ((1001, "", "page_size"), (10, "?", "page_token"), (10, "_w==", "page_token")):
        with pytest.raises(InvalidRequest) as caught:
            await bench.catalogue.documents(LOCAL, INDEX, NO_FILTER, size, token)
        assert caught.value.field == field


async def test_deleting_documents(bench: Bench) -> None:
    """What is deleted is in no search and no listing, and nothing of it is left; unknown ids are said."""
    for name in ("a", "b"):
        await bench.put(Document(name, generation=3), [f"the ferry {name}"] * 70)
    deleted = await bench.catalogue.delete_documents(LOCAL, INDEX, ["a", "x", "a"])
    assert [each.document_id for each in deleted.documents] == ["a"]
    assert deleted.not_found == ("x",)
    for mode in Mode:
        found = await bench.ask("ferry a", mode=mode, top=1000)
        assert {passage.document.document_id for passage in found} == {"b"}
    with pytest.raises(NotFound, match=r"No such document: 'a'"):
        await bench.catalogue.document(LOCAL, INDEX, "a")
    collection = bench.indexes.get(LOCAL.tenant, INDEX).collection
    assert await collection.count_chunks(EVERYTHING) == 70
    assert await collection.marked() == []
    with pytest.raises(InvalidRequest):
        await bench.catalogue.delete_documents(LOCAL, INDEX, [])


async def test_a_deleted_document_can_come_again(bench: Bench) -> None:
    """After a deletion any generation is new, a lower one too."""
    await bench.put(Document("d", generation=9), ["the ferry"])
    await bench.catalogue.delete_documents(LOCAL, INDEX, ["d"])
    await bench.put(Document("d", generation=1), ["the bridge"])
    assert [passage.text for passage in await bench.ask("ferry bridge")] == ["the bridge"]


async def test_an_index_without_documents_is_listed(bench: Bench) -> None:
    """Deleting the last document leaves the index, empty; deleting the index does not leave it."""
    await bench.put(Document("d", generation=1), ["the ferry"], index="z")
    await bench.put(Document("d", generation=1), ["the ferry"], index="a")
    await bench.catalogue.delete_documents(LOCAL, "z", ["d"])
    listed = await bench.catalogue.indexes(LOCAL)
    assert [(each.spec.name, each.documents, each.chunks) for each in listed] == [("a", 1, 1), ("z", 0, 0)]
    assert listed[0].spec.embedding_model == bench.embedder.model
    assert await bench.ask("ferry", indexes=("z",)) == []
    await bench.catalogue.delete_index(LOCAL, "z")
    assert [each.spec.name for each in await bench.catalogue.indexes(LOCAL)] == ["a"]


async def test_unknown_indexes(bench: Bench) -> None:
    """Every route says of an unknown index that it does not exist, and of an impossible name that it is wrong."""
    catalogue = bench.catalogue
    for name, error in (("nothing", NotFound), ("../etc", InvalidRequest)):
        for call in (
            catalogue.document(LOCAL, name, "d"),
            catalogue.documents(LOCAL, name, NO_FILTER, 0, ""),
            catalogue.delete_documents(LOCAL, name, ["d"]),
            catalogue.delete_index(LOCAL, name),
        ):
            with pytest.raises(error):
                await call


async def test_everything_is_there_after_a_restart(reopen: Callable[[], Store]) -> None:
    """Documents, passages and deletions are the same after closing and opening; so is the order of passages."""
    bench = await Bench.open(reopen())
    for name in ("a", "b", "c"):
        await bench.put(Document(name, f"{name}.pdf", generation=1), [f"the ferry {name}", "the bridge"])
    await bench.put(Document("b", "b2.pdf", generation=2), ["another ferry"])
    await bench.put(Document("d", generation=1), ["x"], index="gone")
    await bench.catalogue.delete_documents(LOCAL, INDEX, ["c"])
    await bench.catalogue.delete_index(LOCAL, "gone")
    before = [(each.id, each.text, each.document) for each in await bench.ask("ferry bridge")]
    listed = await pages(bench, 10)
    await bench.aclose()

    bench = await Bench.open(reopen())
    assert [(each.id, each.text, each.document) for each in await bench.ask("ferry bridge")] == before
    assert await pages(bench, 10) == listed
    assert [each.spec.name for each in await bench.catalogue.indexes(LOCAL)] == [INDEX]
    await bench.aclose()
