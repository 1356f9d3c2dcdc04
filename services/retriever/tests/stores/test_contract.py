"""The contract of the store port, which the fake, the embedded engine, Qdrant and the store of docs/extending.md
fulfil. The embedded engine has payload indexes in large indexes only (``edge-indexed``). The Qdrant server is the
client's local mode, called over gRPC. Each index has its own collection (``qdrant``), or indexes share a collection
(``qdrant-shared``).
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.retriever.qdrant_server import kinds
from causeway_testing.retriever.store import MemoryStore
from hypothesis import given, settings
from hypothesis import strategies as st
from retriever.concurrency.scheduler import Scheduler
from retriever.domain.document import AccessControl, Chunk, Document, Version
from retriever.domain.filter import Condition, Filter, MatchAny, Range
from retriever.domain.index import Contents, Fusion, IndexSettings, IndexSpec
from retriever.domain.scope import EVERYTHING, Scope
from retriever.ports.store import ChunkPoint, Collection, Store, Terms
from retriever.stores.bm25 import Bm25Encoder
from retriever.stores.edge.store import EdgeStore
from servicekit import keys
from servicekit.errors import InvalidRequest, NotFound, Unavailable

SPEC = IndexSpec("local", "notes", "hashed-words-64", 64)
NAME = keys.collection(SPEC.tenant, SPEC.name)
HARBOUR = ["the ferry leaves the harbour", "tickets for the ferry", "bridge tolls rise", "the of"]


@pytest.fixture(params=kinds("memory", "edge", "edge-indexed", "qdrant", "qdrant-shared", "example"))
def kind(request: pytest.FixtureRequest) -> str:
    """Parametrize the tests with all stores."""
    name: str = request.param
    return name


async def vector(text: str) -> list[float]:
    """Return a text's vector."""
    result: list[float] = (await HashingEmbedder(64).embed([text]))[0].tolist()
    return result


def words(text: str) -> Terms:
    """Return a query's terms."""
    return Bm25Encoder(Scheduler()).encode_query(text, "en")


async def points(document: Document, texts: Sequence[str]) -> list[ChunkPoint]:
    """Return the chunks of a document, one for each text."""
    terms = await Bm25Encoder(Scheduler()).encode_documents(texts, "en")
    return [
        ChunkPoint(
            str(keys.point_id("c", document.document_id, document.generation, number, text)),
            Chunk(number, text, text, number + 1, ("Part", "Section"), await vector(text)),
            terms[number],
        )
        for number, text in enumerate(texts)
    ]


async def add(collection: Collection, document: Document, texts: Sequence[str]) -> list[str]:
    """Store a document's chunks and return their ids."""
    chunk_points = await points(document, texts)
    await collection.add_chunks(document, chunk_points)
    return [point.id for point in chunk_points]


@pytest.fixture
async def collection(store: Store) -> Collection:
    """Create an empty collection."""
    return await store.create(SPEC)


async def test_dense_finds_by_cosine(collection: Collection) -> None:
    """Each hit has the cosine between its vector and the query's vector. The number of hits is limited."""
    document = Document("d", generation=1)
    ids = await add(collection, document, HARBOUR)
    query = await vector(HARBOUR[1])
    hits = await collection.dense(query, 10, EVERYTHING)
    for id_, text in zip(ids, HARBOUR, strict=True):
        cosine = sum(a * b for a, b in zip(query, await vector(text), strict=True))
        assert hits[id_] == pytest.approx(cosine, abs=1e-5)
    (best,) = await collection.dense(query, 1, EVERYTHING)
    assert best == ids[1]


async def test_sparse_finds_by_bm25(collection: Collection) -> None:
    """Only chunks that share a word are hits. A score is the sum of IDF times weight over these words."""
    document = Document("d", generation=1)
    ids = await add(collection, document, HARBOUR)
    hits = await collection.sparse(words("ferry bridge"), 10, EVERYTHING)
    assert set(hits) == set(ids[:3])
    (terms,) = await Bm25Encoder(Scheduler()).encode_documents([HARBOUR[2]], "en")
    weight = terms.weights[terms.indices.index(words("bridge").indices[0])]
    # Three chunks have words that are not stop words, one of them has this word.
    assert hits[ids[2]] == pytest.approx(weight * math.log(1 + 2.5 / 1.5), rel=1e-4)
    assert await collection.sparse(words("the"), 10, EVERYTHING) == {}
    assert await collection.sparse(words("submarine"), 10, EVERYTHING) == {}


async def test_words_are_counted_in_visible_documents(collection: Collection) -> None:
    """A BM25 score counts the words of all documents that the readers may see, even if a filter or ids limit the
    search. Without readers it counts the words of the whole collection.
    """
    ids = await add(collection, Document("d", generation=1), HARBOUR)
    hidden = Document("hidden", generation=1, access=AccessControl(groups=("crew",)))
    await add(collection, hidden, [f"bridge number {number}" for number in range(20)])
    await collection.mark("begun")
    await add(collection, Document("begun", generation=1), ["another bridge"])
    (terms,) = await Bm25Encoder(Scheduler()).encode_documents([HARBOUR[2]], "en")
    weight = terms.weights[terms.indices.index(words("bridge").indices[0])]
    guest = frozenset({"*"})
    expected = pytest.approx(weight * math.log(1 + 2.5 / 1.5), rel=1e-4)
    for scope, among in (
        (Scope(readers=guest), None),
        (Scope(readers=guest), ids[2:3]),
        (Scope(Filter(must=(MatchAny("page", (3,)),)), guest), None),
    ):
        assert list((await collection.sparse(words("bridge"), 10, scope, among)).values()) == [expected]
    hits = await collection.sparse(words("bridge"), 100, EVERYTHING)
    assert hits[ids[2]] < weight * math.log(1 + 2.5 / 1.5) / 2


async def test_search_among_given_ids(collection: Collection) -> None:
    """A search with ids finds only chunks with these ids."""
    ids = await add(collection, Document("d", generation=1), HARBOUR)
    query = await vector(HARBOUR[0])
    assert set(await collection.dense(query, 10, EVERYTHING, ids[2:])) == set(ids[2:])
    assert await collection.dense(query, 10, EVERYTHING, []) == {}
    assert list(await collection.sparse(words("ferry"), 10, EVERYTHING, ids[1:])) == [ids[1]]


async def seen(collection: Collection) -> set[str]:
    """Return the ids of all visible chunks. Assert that searches and counts agree."""
    dense = set(await collection.dense(await vector("ferry"), 100, EVERYTHING))
    words_in = set(await collection.sparse(words("ferry ferries bridge toll"), 100, EVERYTHING))
    assert words_in <= dense
    assert await collection.count_chunks(EVERYTHING) == len(dense)
    return dense


async def test_a_marked_document_shows_its_committed_generation(reopen: Callable[[], Store]) -> None:
    """Of a marked document, only the chunks of its record's generation are visible, and none without a record. This
    holds after a restart and for each document separately.
    """
    store = reopen()
    collection = await store.create(SPEC)
    await collection.publish()
    other = set(await add(collection, Document("e", generation=7), HARBOUR[:1]))
    await collection.mark("d")
    first = set(await add(collection, Document("d", generation=1), HARBOUR[:2]))
    assert await seen(collection) == other
    before = collection.revision
    await collection.put_record(Document("d", generation=1))
    assert collection.revision != before
    assert await seen(collection) == other | first
    await collection.unmark("d")
    await collection.mark("d")
    second = set(await add(collection, Document("d", generation=2), HARBOUR[:3]))
    assert await seen(collection) == other | first
    await collection.put_record(Document("d", generation=2))
    assert await seen(collection) == other | second
    await collection.sync()
    await store.aclose()

    store = reopen()
    (collection,) = await store.collections()
    assert await collection.abandoned() == ["d"]
    assert await seen(collection) == other | second
    await collection.mark("d")
    assert await collection.abandoned() == []
    await collection.remove_record("d")
    assert await seen(collection) == other
    await collection.remove_chunks("d", keep=None)
    await collection.unmark("d")
    assert (await collection.marked(), await seen(collection)) == ([], other)
    await store.aclose()


async def test_versions_are_those_of_the_records(collection: Collection) -> None:
    """`versions` returns each record's generation, independent of the chunks."""
    await add(collection, Document("d", generation=9), HARBOUR)
    for name, generation in (("d", 2), ("e", 2**64 - 1), ("d", 3)):
        await collection.put_record(Document(name, generation=generation))
    assert await collection.versions() == {"d": 3, "e": 2**64 - 1}


async def test_a_note_is_kept(reopen: Callable[[], Store]) -> None:
    """A note is stored byte for byte, replaces the earlier one, and survives a restart. It is empty at first."""
    store = reopen()
    collection = await store.create(SPEC)
    assert await collection.note() == b""
    await collection.put_note(b"before")
    await collection.publish()
    assert await collection.note() == b"before"
    await collection.put_note(b'{"\xc3\xa4": "\x00"}')
    await store.aclose()
    store = reopen()
    (collection,) = await store.collections()
    assert await collection.note() == b'{"\xc3\xa4": "\x00"}'
    assert collection.spec == SPEC
    await store.aclose()


async def test_settings_can_be_changed(reopen: Callable[[], Store]) -> None:
    """New settings replace the old ones at once and survive a restart. The note and the documents stay."""
    store = reopen()
    collection = await store.create(SPEC)
    await collection.put_settings(IndexSettings(chunk_tokens=64))
    await collection.publish()
    await collection.put_note(b"note")
    await add(collection, Document("d", generation=1), HARBOUR)
    await collection.put_record(Document("d", generation=1))
    assert collection.spec == replace(SPEC, settings=IndexSettings(chunk_tokens=64))
    settings = IndexSettings(fusion=Fusion.RANKS, dense_weight=0.25, expand=False, ocr=False)
    await collection.put_settings(settings)
    assert collection.spec == replace(SPEC, settings=settings)
    await collection.compact()
    await store.aclose()
    store = reopen()
    (collection,) = await store.collections()
    assert collection.spec == replace(SPEC, settings=settings)
    assert await collection.is_current()
    assert collection.spec == replace(SPEC, settings=settings)
    assert (await collection.note(), await collection.versions()) == (b"note", {"d": 1})
    await store.aclose()


async def test_collections_are_found_by_name(store: Store) -> None:
    """A collection is found from its publication until it is dropped, only under its own tenant and name."""
    spec = replace(SPEC, settings=IndexSettings(chunk_tokens=100, chunk_overlap=7))
    collection = await store.create(spec)
    assert await store.find(SPEC.tenant, SPEC.name) is None
    await collection.publish()
    assert await collection.is_current()
    found = await store.find(SPEC.tenant, SPEC.name)
    assert found is not None
    assert found.spec == spec
    assert await store.find("other", SPEC.name) is None
    assert await store.find(SPEC.tenant, "other") is None
    await collection.drop()
    assert await store.find(SPEC.tenant, SPEC.name) is None
    assert not await collection.is_current()


async def test_a_scope_is_limited_to_readers(collection: Collection) -> None:
    """A caller with one of a document's tokens sees it in searches, counts and listings. Others see public ones."""
    public = Document("public", generation=1)
    secret = Document("secret", generation=1, access=AccessControl(oids=("ann",), groups=("crew",)))
    for document in (public, secret):
        await add(collection, document, ["the ferry"])
        await collection.put_record(document)
    for tokens, expected in (({"*"}, 1), ({"*", "oid:bob", "group:ann"}, 1), ({"*", "group:crew"}, 2)):
        scope = Scope(readers=frozenset(tokens))
        assert len(await collection.dense(await vector("ferry"), 10, scope)) == expected
        assert len(await collection.sparse(words("ferry"), 10, scope)) == expected
        assert await collection.count_chunks(scope) == expected
        assert await collection.count_documents(scope) == expected
        assert len(await collection.document_ids(scope)) == expected


async def test_chunks_are_read_back(collection: Collection) -> None:
    """A chunk is read with its text, page and headings. An unknown id is left out."""
    ids = await add(collection, Document("d", generation=1), HARBOUR)
    unknown = str(keys.point_id("c", "x", 1, 0, ""))
    found = await collection.chunks([ids[1], unknown])
    assert list(found) == [ids[1]]
    chunk = found[ids[1]]
    assert (chunk.id, chunk.document_id, chunk.number, chunk.page) == (ids[1], "d", 1, 2)
    assert (chunk.headings, chunk.text) == (("Part", "Section"), HARBOUR[1])


async def test_storing_a_chunk_again_changes_nothing(collection: Collection) -> None:
    """Points that are stored twice exist once."""
    document = Document("d", generation=1)
    assert await add(collection, document, HARBOUR) == await add(collection, document, HARBOUR)
    assert await collection.count_chunks(EVERYTHING) == len(HARBOUR)


async def test_removing_chunks_keeps_one_generation(collection: Collection) -> None:
    """A removal deletes all chunks of a document except those of the generation to keep. Chunks of other documents
    stay.
    """
    many = [f"page {number}" for number in range(150)]
    for generation in (1, 2):
        await add(collection, Document("d", generation=generation), many)
    await add(collection, Document("e", generation=1), HARBOUR)
    await collection.remove_chunks("d", keep=2)
    assert await collection.count_chunks(EVERYTHING) == len(many) + len(HARBOUR)
    assert len(await collection.chunks_of(Version("d", 2), 0, 200)) == len(many)
    await collection.remove_chunks("d", keep=None)
    assert await collection.count_chunks(EVERYTHING) == len(HARBOUR)


async def test_records(collection: Collection) -> None:
    """A record is read exactly as it was written. A second write replaces it. A second removal succeeds."""
    document = Document(
        "d é/1",
        sourcefile="häfen.pdf",
        content_type="application/pdf",
        sha256="ab" * 32,
        size_bytes=2**40,
        metadata_json=b'{ "a":1.0,  "a":2, "big": 123456789012345678901234567890 }',
        access=AccessControl(("o",), ("g", "h")),
        category="c",
        language="de",
        generation=2**64 - 1,
        page_count=3,
        has_pictures=True,
        chunk_count=4,
    )
    await collection.put_record(document)
    await collection.put_record(Document("e"))
    assert await collection.records(["d é/1", "nothing"]) == {"d é/1": document}
    await collection.put_record(Document("e", generation=7))
    assert (await collection.records(["e"]))["e"].generation == 7
    assert await collection.count_documents(EVERYTHING) == 2
    for _ in range(2):
        await collection.remove_record("e")
    assert await collection.document_ids(EVERYTHING) == ["d é/1"]


async def test_records_and_marks_are_in_no_search(collection: Collection) -> None:
    """Records and marks do not count as chunks, and marks do not count as records."""
    await collection.put_record(Document("d"))
    await collection.mark("d")
    await collection.mark("e")
    assert sorted(await collection.marked()) == ["d", "e"]
    assert await collection.dense(await vector("d"), 10, EVERYTHING) == {}
    assert await collection.count_chunks(EVERYTHING) == 0
    assert await collection.count_documents(EVERYTHING) == 1
    for _ in range(2):
        await collection.unmark("d")
    assert await collection.marked() == ["e"]


METADATA = b"""{"year": 2024, "half": 0.5, "whole": 3.0, "draft": true, "text": "2024", "none": null,
  "tags": ["a", "b"], "deep": {"er": {"key": "v"}, "numbers": [1, 20]}, "a b\\"c[0]": "odd",
  "huge": 1e300, "long": "%s", "people": [{"name": "Ann"}, {"name": "Bob"}]}""" % (b"x" * 500)


def is_(field: str, *values: str | float | bool) -> MatchAny:
    return MatchAny(field, values)


CASES: list[tuple[Condition, bool]] = [
    (is_("document_id", "d"), True),
    (is_("document_id", "e"), False),
    (is_("sourcefile", "x", "f.pdf"), True),
    (is_("category", "c"), True),
    (is_("language", ""), True),
    (is_("page", 1), True),
    (is_("page", "1"), False),
    (is_("metadata.year", 2024), True),
    (is_("metadata.year", 2024.0), True),
    (is_("metadata.year", "2024"), False),
    (is_("metadata.text", 2024), False),
    (is_("metadata.draft", True), True),
    (is_("metadata.draft", 1), False),
    (is_("metadata.draft", "true"), False),
    (is_("metadata.half", 0.5), True),
    (is_("metadata.whole", 3), True),
    (is_("metadata.tags", "b"), True),
    (is_("metadata.tags", "c"), False),
    (is_("metadata.deep.er.key", "v"), True),
    (is_("metadata.people.name", "Bob"), True),
    (is_('metadata.a b"c[0]', "odd"), True),
    (is_("metadata.long", "x" * 500), True),
    (is_("metadata.long", "x" * 499), False),
    (is_("metadata.none", "null"), False),
    (is_("metadata.year"), False),
    (Range("page", gte=1, lt=2), True),
    (Range("page", gt=1), False),
    (Range("metadata.year", gt=2023, lte=2024), True),
    (Range("metadata.year", lt=2024), False),
    (Range("metadata.half", gt=0.49, lt=0.51), True),
    (Range("metadata.huge", gt=1e299), True),
    (Range("metadata.text", gt=0), False),
    (Range("metadata.draft", gte=0), False),
    (Range("metadata.deep.numbers", gt=10, lt=30), True),
    (Range("metadata.deep.numbers", gt=2, lt=10), False),
    (Filter(), True),
    (Filter(must=(is_("page", 1), is_("category", "x"))), False),
    (Filter(should=(is_("page", 1), is_("category", "x"))), True),
    (Filter(should=(is_("page", 2), is_("category", "x"))), False),
    (Filter(must=(is_("page", 1),), should=(is_("category", "x"),)), False),
    (Filter(must_not=(is_("page", 2),)), True),
    (Filter(must_not=(is_("page", 1),)), False),
    (Filter(must_not=(Filter(),)), False),
    (Filter(must=(Filter(must_not=(Range("metadata.year", gt=3000),)),)), True),
]


async def test_filters(collection: Collection) -> None:
    """Conditions compare values as JSON does: values of different types differ, and numbers are compared by value.
    A list matches if one of its items matches.
    """
    document = Document("d", "f.pdf", metadata_json=METADATA, category="c", generation=1)
    await add(collection, document, ["the ferry"])
    for condition, holds in CASES:
        scope = Scope(Filter(must=(condition,)))
        assert len(await collection.dense(await vector("ferry"), 10, scope)) == holds, condition
        assert len(await collection.sparse(words("ferry"), 10, scope)) == holds, condition
        assert await collection.count_chunks(scope) == holds, condition


async def test_filters_on_records(collection: Collection) -> None:
    """Conditions also apply to records, except conditions on the page, which only chunks have."""
    document = Document("d", "f.pdf", metadata_json=METADATA, category="c")
    await collection.put_record(document)
    for condition, holds in (
        (is_("metadata.tags", "a"), True),
        (Range("metadata.year", gt=2000), True),
        (is_("page", 1), False),
        (Range("page", gte=0), False),
    ):
        assert await collection.count_documents(Scope(Filter(must=(condition,)))) == holds


async def test_published_collections_survive_a_restart(reopen: Callable[[], Store]) -> None:
    """A reopened store has the published collections with all their content, and no unpublished or dropped ones."""
    store = reopen()
    published, unpublished, dropped = [
        await store.create(IndexSpec("local", name, "m", 64)) for name in ("published", "unpublished", "dropped")
    ]
    await published.publish()
    await dropped.publish()
    await dropped.drop()
    document = Document("d", generation=1)
    await add(published, document, HARBOUR)
    await add(unpublished, document, HARBOUR)
    await published.put_record(document)
    await published.mark("d")
    await published.sync()
    await store.aclose()

    store = reopen()
    (again,) = await store.collections()
    assert again.spec == published.spec
    assert await again.count_chunks(EVERYTHING) == len(HARBOUR)
    assert await again.records(["d"]) == {"d": document}
    assert await again.marked() == ["d"]
    assert len(await again.dense(await vector("ferry"), 10, EVERYTHING)) == len(HARBOUR)
    assert await (await store.create(unpublished.spec)).count_chunks(EVERYTHING) == 0
    await store.aclose()


async def test_dropped_collection_is_not_found(store: Store, collection: Collection) -> None:
    """Reads and writes of a dropped collection raise NotFound, and its name can be used again."""
    await collection.publish()
    await collection.drop()
    for call in (
        collection.dense(await vector("x"), 1, EVERYTHING),
        collection.add_chunks(Document("d"), await points(Document("d"), ["x"])),
        collection.put_record(Document("d")),
        collection.document_ids(EVERYTHING),
        collection.publish(),
    ):
        with pytest.raises(NotFound):
            await call
    assert await (await store.create(SPEC)).count_documents(EVERYTHING) == 0


async def test_chunks_of_a_version_in_order(collection: Collection) -> None:
    """A range of a version's chunks is read in order, with overlaps and separators, and without other versions."""
    document = Document("d", generation=2)
    chunk_points = await points(document, [f"part {number}" for number in range(80)])
    second = replace(chunk_points[1], chunk=replace(chunk_points[1].chunk, overlap=3, separator=""))
    await collection.add_chunks(document, [chunk_points[0], second, *chunk_points[2:]])
    await add(collection, Document("d", generation=1), HARBOUR)
    await add(collection, Document("e", generation=2), HARBOUR)
    found = await collection.chunks_of(document.version, 0, 3)
    assert [chunk.text for chunk in found] == ["part 0", "part 1", "part 2"]
    assert [(chunk.overlap, chunk.separator) for chunk in found] == [(0, None), (3, ""), (0, None)]
    assert [chunk.number for chunk in await collection.chunks_of(document.version, 78, 10)] == [78, 79]
    assert await collection.chunks_of(document.version, 80, 5) == []
    assert await collection.chunks_of(Version("x", 1), 0, 5) == []


async def test_points_of_a_version(collection: Collection) -> None:
    """All chunks of a version are read as they were stored, with both vectors, and without other versions."""
    document = Document("d", generation=2)
    chunk_points = await points(document, [f"part {number}" for number in range(150)])
    chunk_points[7] = replace(chunk_points[7], chunk=replace(chunk_points[7].chunk, overlap=3, separator=" "))
    await collection.add_chunks(document, chunk_points)
    await add(collection, Document("d", generation=1), HARBOUR)
    found = {point.id: point async for slice_ in collection.points_of(document.version) for point in slice_}
    assert set(found) == {point.id for point in chunk_points}
    for point in chunk_points:
        again = found[point.id]
        assert replace(again.chunk, vector=()) == replace(point.chunk, vector=())
        assert list(again.chunk.vector) == pytest.approx(list(point.chunk.vector), abs=1e-6)
        assert list(again.terms.indices) == list(point.terms.indices)
        assert list(again.terms.weights) == pytest.approx(list(point.terms.weights))


async def fill(collection: Collection) -> None:
    """Store two documents, one with uncommitted chunks and a mark."""
    for name, generation, texts in (("d", 3, HARBOUR), ("e", 2**64 - 1, [f"dock {n}" for n in range(90)])):
        document = Document(name, metadata_json=b'{"year": 2024}', generation=generation, chunk_count=len(texts))
        chunks = [
            replace(point, id=str(keys.point_id(NAME, name, generation, point.chunk.number, point.chunk.text)))
            for point in await points(document, texts)
        ]
        await collection.add_chunks(document, chunks)
        await collection.put_record(document)
    await add(collection, Document("d", generation=4), ["not committed"])
    await collection.mark("d")


async def everything(collection: Collection) -> object:
    """Return what all reads return, except BM25 scores, for which the embedded engine counts removed chunks."""
    near = await collection.dense(await vector("the ferry"), 1000, EVERYTHING)
    having = await collection.sparse(words("ferry dock"), 1000, Scope(Filter(must=(Range("page", lt=50),))))
    return (
        {id_: round(cosine, 4) for id_, cosine in near.items()},
        set(having),
        await collection.chunks(sorted(near)),
        await collection.records(sorted(await collection.document_ids(EVERYTHING))),
        await collection.marked(),
        await collection.count_chunks(Scope(Filter(must=(is_("metadata.year", 2024),)))),
    )


async def test_compacting_changes_nothing(reopen: Callable[[], Store]) -> None:
    """After a compaction and a restart, all reads return the same, and uncommitted documents stay marked."""
    store = reopen()
    collection = await store.create(SPEC)
    await collection.publish()
    await fill(collection)
    await add(collection, Document("gone", generation=1), HARBOUR)
    await collection.remove_chunks("gone", keep=None)
    before = await everything(collection)
    for _ in range(2):
        await collection.compact()
        assert await everything(collection) == before
    await store.aclose()

    store = reopen()
    (collection,) = await store.collections()
    assert await everything(collection) == before
    await store.aclose()


async def test_a_snapshot_has_the_committed_documents(store: Store, collection: Collection, tmp_path: Path) -> None:
    """A restored snapshot has everything that is committed, and neither marks nor uncommitted chunks."""
    await collection.publish()
    await fill(collection)
    assert await collection.persist(tmp_path / "deep" / "snapshot") == Contents(2, len(HARBOUR) + 90)
    await collection.remove_chunks("d", keep=3)
    await collection.unmark("d")
    restored = await store.restore(SPEC, tmp_path / "deep" / "snapshot")
    assert await everything(restored) == await everything(collection)
    assert [each.spec for each in await store.collections()] == [SPEC]


async def test_snapshot_as_another_index(store: Store, collection: Collection, tmp_path: Path) -> None:
    """A snapshot can be restored under another tenant and name. The ids are then those of that index."""
    await collection.publish()
    await fill(collection)
    await collection.persist(tmp_path)
    spec = replace(SPEC, tenant="other", name="copy")
    restored = await store.restore(spec, tmp_path)
    await restored.publish()
    assert restored.spec == spec
    (nearest,) = await restored.dense(await vector(HARBOUR[0]), 1, EVERYTHING)
    (chunk,) = (await restored.chunks([nearest])).values()
    expected = keys.point_id(keys.collection("other", "copy"), "d", 3, chunk.number, chunk.text)
    assert (nearest, chunk.text) == (str(expected), HARBOUR[0])
    await restored.put_record(Document("d", generation=9))
    assert await restored.count_documents(EVERYTHING) == 2


async def test_a_snapshot_replaces_another(store: Store, collection: Collection, tmp_path: Path) -> None:
    """A snapshot at the same path replaces the earlier one."""
    await collection.publish()
    await fill(collection)
    for documents in (3, 4):
        await collection.put_record(Document(f"more {documents}", generation=1))
        assert (await collection.persist(tmp_path)).documents == documents
    assert len(list(tmp_path.glob("*.points"))) == 1
    assert await (await store.restore(SPEC, tmp_path)).count_documents(EVERYTHING) == 4


async def test_a_collection_replaces_another(reopen: Callable[[], Store], tmp_path: Path) -> None:
    """After a replacement the old collection's methods raise Unavailable, and a restart finds the new one."""
    store = reopen()
    old = await store.create(SPEC)
    await old.publish()
    await fill(old)
    await old.persist(tmp_path)
    await old.put_record(Document("later", generation=1))
    new = await store.restore(SPEC, tmp_path)
    await new.publish(replaced=old)
    for call in (old.put_record(Document("x")), old.count_chunks(EVERYTHING), old.publish()):
        with pytest.raises(Unavailable):
            await call
    assert sorted(await new.document_ids(EVERYTHING)) == ["d", "e"]
    await store.aclose()
    store = reopen()
    (again,) = await store.collections()
    assert sorted(await again.document_ids(EVERYTHING)) == ["d", "e"]
    await store.aclose()


async def test_an_unpublished_restore_changes_nothing(reopen: Callable[[], Store], tmp_path: Path) -> None:
    """An unpublished or dropped restore does not change the collection of that name."""
    store = reopen()
    old = await store.create(SPEC)
    await old.publish()
    await old.persist(tmp_path)
    await old.put_record(Document("later", generation=1))
    await (await store.restore(SPEC, tmp_path)).drop()
    await store.restore(SPEC, tmp_path)
    assert await old.document_ids(EVERYTHING) == ["later"]
    await store.aclose()
    store = reopen()
    (again,) = await store.collections()
    assert await again.document_ids(EVERYTHING) == ["later"]
    await store.aclose()


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def longer(data: bytes) -> bytes:
    return data + b"\0\0\0\1\0"


def flipped(data: bytes) -> bytes:
    return data[:-10] + bytes([data[-10] ^ 1]) + data[-9:]


@pytest.mark.parametrize("kind", kinds("memory", "edge", "qdrant", "example"))  # one for each reader of snapshots
async def test_damaged_snapshots_are_refused(store: Store, collection: Collection, tmp_path: Path) -> None:
    """A snapshot with a missing, truncated or changed file, or with a link in place of a file, is refused as an
    invalid path.
    """
    await collection.publish()
    await fill(collection)
    await collection.persist(tmp_path)
    (data,) = tmp_path.glob("*.points")
    manifest = tmp_path / "manifest.json"
    link_target = tmp_path / "elsewhere"
    for file, spoil in (
        (data, cut),
        (data, longer),
        (data, flipped),
        (data, lambda _: b""),
        (data, None),
        (manifest, cut),
        (manifest, lambda _: b"[]"),
        (manifest, lambda raw: raw.replace(b'"version": 1', b'"version": 2')),
        (manifest, lambda raw: raw.replace(b"causeway-index", b"something-else")),
        (manifest, lambda raw: raw.replace(data.name.encode(), b"../" + data.name.encode())),
        (manifest, lambda raw: raw.replace(b'"documents": 2', b'"documents": 3')),
        (manifest, lambda raw: raw.replace(b'"dimension": 64', b'"dimension": 0')),
        (manifest, None),
    ):
        content = file.read_bytes()
        if spoil is None:
            file.rename(link_target)
            file.symlink_to(link_target)  # a link is not followed, because its target may be outside
        else:
            assert spoil(content) != content
            file.write_bytes(spoil(content))
        with pytest.raises(InvalidRequest) as caught:
            await store.restore(SPEC, tmp_path)
        assert caught.value.field == "path"
        file.unlink()
        file.write_bytes(content)
    assert await (await store.restore(SPEC, tmp_path)).count_documents(EVERYTHING) == 2


fields = st.sampled_from(["document_id", "category", "page", "metadata.n", "metadata.list", "metadata.o.k"])
values = st.sampled_from(["d0", "d1", "red", "blue", "1", 0, 1, 2, 1.0, 1.5, True, False])
bounds = st.none() | st.sampled_from([0.0, 1.0, 1.5, 2.0])
conditions: st.SearchStrategy[Condition] = st.recursive(
    st.builds(MatchAny, fields, st.lists(values, max_size=3).map(tuple))
    | st.builds(Range, fields, bounds, bounds, bounds, st.sampled_from([0.5, 1.0, 3.0])),
    lambda inner: st.builds(Filter, *[st.lists(inner, max_size=2).map(tuple)] * 3),
    max_leaves=6,
)


def test_the_fake_and_the_embedded_engine_find_the_same(tmp_path: Path) -> None:
    """For any filter and readers, the fake and the embedded engine find the same chunks and records."""
    documents = [
        Document(
            f"d{number}",
            category=("red", "blue")[number % 2],
            generation=number,
            access=AccessControl(groups=("crew",) if number % 3 == 0 else ()),
            metadata_json=metadata,
        )
        for number, metadata in enumerate(
            [
                b"",
                b'{"n": 1}',
                b'{"n": 1.5}',
                b'{"n": true}',
                b'{"n": "1"}',
                b'{"list": [0, 2, "red", false]}',
                b'{"o": {"k": 2}}',
                b'{"o": [{"k": 1}, {"k": "blue"}]}',
                b'{"n": null}',
                b'{"n": [1, "d1"]}',
            ]
        )
    ]

    async def fill(store: Store) -> Collection:
        collection = await store.create(SPEC)
        for document in documents:
            await add(collection, document, ["the ferry", "the bridge"])
            await collection.put_record(document)
        return collection

    with asyncio.Runner() as runner:
        edge = EdgeStore(tmp_path, Scheduler())
        both = [runner.run(fill(store)) for store in (edge, MemoryStore())]
        query = runner.run(vector("ferry"))

        @settings(max_examples=200)
        @given(
            conditions,
            st.none() | st.sampled_from([frozenset({"*"}), frozenset({"*", "group:crew"})]),
        )
        def agree(condition: Condition, readers: frozenset[str] | None) -> None:
            scope = Scope(Filter(must=(condition,)), readers)

            async def read(collection: Collection) -> tuple[set[str], set[str], set[str]]:
                return (
                    set(await collection.dense(query, 100, scope)),
                    set(await collection.sparse(words("ferry"), 100, scope)),
                    set(await collection.document_ids(scope)),
                )

            one, other = [runner.run(read(collection)) for collection in both]
            assert one == other

        agree()
        runner.run(edge.aclose())


async def test_edge_has_one_owner(tmp_path: Path) -> None:
    """A second store on an open directory is refused. After closing, the directory can be opened again."""
    first = EdgeStore(tmp_path, Scheduler())
    with pytest.raises(Unavailable):
        EdgeStore(tmp_path, Scheduler())
    await first.aclose()
    await EdgeStore(tmp_path, Scheduler()).aclose()


async def test_edge_writes_nothing_onto_a_full_disk(tmp_path: Path) -> None:
    """With too little free disk space, the store refuses chunks. Searches and removals still work."""
    store = EdgeStore(tmp_path, Scheduler())
    collection = await store.create(SPEC)
    document = Document("d", generation=1)
    await add(collection, document, HARBOUR)
    await collection.publish()
    await store.aclose()

    store = EdgeStore(tmp_path, Scheduler(), min_free_bytes=2**60)
    (full,) = await store.collections()
    with pytest.raises(Unavailable):
        await add(full, document, ["more"])
    assert len(await full.dense(await vector("ferry"), 10, EVERYTHING)) == len(HARBOUR)
    await full.remove_chunks("d", keep=None)
    assert await full.count_chunks(EVERYTHING) == 0
    await store.aclose()
