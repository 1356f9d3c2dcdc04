"""The contract of the port, on the fake and on the adapter with a real server over that fake."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from causeway.retriever.v1 import document_pb2, retriever_pb2, retriever_pb2_grpc
from causeway_testing.gateway.retrieval import FakeDocument, FakeRetriever
from causeway_testing.servers import free_ports, grpc_service
from gateway.clients.retriever import DESCRIPTOR, GrpcRetriever
from gateway.domain import Passage, Retrieval, RetrievalMode, SearchResults, Tuning
from gateway.domain.documents import Removal, StoredDocument, StoredPassage, TextRange
from gateway.ports.answering import Retriever
from gateway.ports.documents import Catalogue
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, InvalidRequest, NotFound, Unavailable
from servicekit.principal import LOCAL, Principal

FULL = Passage(
    id="p1",
    index="docs",
    document_id="d1",
    sourcefile="guide.pdf",
    sourcepage="guide.pdf#page=3",
    text="the ferry leaves at nine",
    score=0.75,
    page=3,
    chunk_number=2,
    headings=("Ferries", "Times"),
    category="guides",
    oids=("ann",),
    groups=("crew",),
    metadata_json=b'{"year":2024.0}',
    dense_score=0.0,
    sparse_score=2.5,
    reranker_score=-1.0,
    found_by="sparse_only",
    captions=("the ferry leaves",),
)
BARE = Passage("p2", "docs", "d2", "a.md", "a.md", "the bridge", 0.5, found_by="dense_only")
STRANGER = Principal("local", "bob", oids=("bob",))
STORED = [
    FakeDocument(
        StoredDocument(str(number), f'b"{number}.md', "text/markdown", "a" * 64, number, 1_700_000_000.5, "o"),
        ("ann",) if number < 4 else (),
        {"owner": "ann"} if number < 4 else {},
    )
    for number in range(5)
]
PAGE = 2
"""The number of documents in each page of the server below, for any requested page size."""

_SOURCES = {
    "both": retriever_pb2.PASSAGE_SOURCE_BOTH,
    "dense_only": retriever_pb2.PASSAGE_SOURCE_DENSE_ONLY,
    "sparse_only": retriever_pb2.PASSAGE_SOURCE_SPARSE_ONLY,
}
_MODES = {
    retriever_pb2.RETRIEVAL_MODE_HYBRID: RetrievalMode.HYBRID,
    retriever_pb2.RETRIEVAL_MODE_VECTORS: RetrievalMode.VECTORS,
    retriever_pb2.RETRIEVAL_MODE_TEXT: RetrievalMode.TEXT,
}


class Servicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """The retriever's service over the fake. It records the last request of each kind."""

    def __init__(self, fake: FakeRetriever) -> None:
        self._fake = fake
        self.request = retriever_pb2.RetrieveRequest()
        self.listed: list[retriever_pb2.ListDocumentsRequest] = []
        self.described: list[retriever_pb2.GetIndexRequest] = []

    async def GetIndex(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.GetIndexRequest, context: Any
    ) -> retriever_pb2.GetIndexResponse:
        self.described.append(request)
        principal = Principal.from_proto(request.principal)
        await self._fake.check_indexes(principal, [request.index], Deadline.of(context))
        return retriever_pb2.GetIndexResponse(embedding_model="m", dimension=2)

    async def Retrieve(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.RetrieveRequest, context: Any
    ) -> retriever_pb2.RetrieveResponse:
        self.request = request
        retrieval = Retrieval(
            tuple(request.indexes), _MODES[request.mode], semantic_ranker=request.HasField("rerank")
        )
        found = await self._fake.retrieve(
            Principal.from_proto(request.principal), retrieval, request.query, request.top, Deadline.of(context)
        )
        return retriever_pb2.RetrieveResponse(
            passages=[_message(passage) for passage in found.passages], not_reranked=found.not_reranked
        )

    async def ListDocuments(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.ListDocumentsRequest, context: Any
    ) -> retriever_pb2.ListDocumentsResponse:
        self.listed.append(request)
        values = {
            condition.match_any.field: [msgspec.json.decode(value) for value in condition.match_any.json_values]
            for condition in request.filter.must
        }
        principal = Principal.from_proto(request.principal)
        found = await self._fake.find(principal, request.index, values, Deadline.of(context))
        begin = int(request.page_token or 0)
        page = found[begin : begin + PAGE]
        return retriever_pb2.ListDocumentsResponse(
            documents=[_document(document) for document in page],
            next_page_token=str(begin + PAGE) if begin + PAGE < len(found) else "",
        )

    async def GetDocument(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.GetDocumentRequest, context: Any
    ) -> retriever_pb2.GetDocumentResponse:
        part = TextRange(request.text_length, request.text_offset, request.first_page, request.last_page)
        read = await self._fake.read(
            Principal.from_proto(request.principal), request.index, request.document_id, part, Deadline.of(context)
        )
        document = _document(read.stored)
        document.page_count, document.category, document.metadata_json = (
            read.pages,
            read.category,
            read.metadata_json,
        )
        text = document_pb2.DocumentText(text=read.text, is_truncated=read.is_truncated)
        return retriever_pb2.GetDocumentResponse(document=document, text=text)

    async def ListChunks(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.ListChunksRequest, context: Any
    ) -> retriever_pb2.ListChunksResponse:
        page = await self._fake.passages(
            Principal.from_proto(request.principal),
            request.index,
            request.document_id,
            request.first_number,
            request.page_size,
            Deadline.of(context),
        )
        document = _document(page.stored)
        document.chunk_count = page.total
        chunks = [
            retriever_pb2.ListedChunk(
                id=chunk.id,
                number=chunk.number,
                page=chunk.page,
                headings=chunk.headings,
                text=chunk.text,
                sourcepage=chunk.sourcepage,
            )
            for chunk in page.passages
        ]
        return retriever_pb2.ListChunksResponse(document=document, chunks=chunks)

    async def DeleteDocuments(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.DeleteDocumentsRequest, context: Any
    ) -> retriever_pb2.DeleteDocumentsResponse:
        removal = await self._fake.remove(
            Principal.from_proto(request.principal), request.index, request.document_ids, Deadline.of(context)
        )
        return retriever_pb2.DeleteDocumentsResponse(
            deleted=[document_pb2.Document(document_id=document_id) for document_id in removal.removed],
            not_found_ids=removal.not_found,
        )


def _document(stored: StoredDocument) -> document_pb2.Document:
    document = document_pb2.Document(
        document_id=stored.document_id,
        sourcefile=stored.sourcefile,
        content_type=stored.content_type,
        sha256=stored.sha256,
        size_bytes=stored.size_bytes,
        original=stored.original,
    )
    document.updated_at.FromMilliseconds(round(stored.updated_at * 1000))
    return document


def _message(passage: Passage) -> retriever_pb2.Passage:
    return retriever_pb2.Passage(
        id=passage.id,
        index=passage.index,
        document=document_pb2.Document(
            document_id=passage.document_id,
            sourcefile=passage.sourcefile,
            category=passage.category,
            metadata_json=b"" if passage.metadata_json == b"{}" else passage.metadata_json,
            access=document_pb2.AccessControl(oids=passage.oids, groups=passage.groups),
        ),
        chunk_number=passage.chunk_number,
        page=passage.page,
        headings=passage.headings,
        text=passage.text,
        sourcepage=passage.sourcepage,
        score=passage.score,
        dense_score=passage.dense_score,
        sparse_score=passage.sparse_score,
        reranker_score=passage.reranker_score,
        source=_SOURCES[passage.found_by],
        captions=passage.captions,
    )


@pytest.fixture
def fake() -> FakeRetriever:
    return FakeRetriever({"docs": [FULL, BARE], "empty": []}, documents={"docs": list(STORED)})


@pytest.fixture
async def servicer(fake: FakeRetriever) -> Servicer:
    return Servicer(fake)  # type: ignore[abstract]  # the other methods are not called


@pytest.fixture
async def adapter(servicer: Servicer) -> AsyncIterator[GrpcRetriever]:
    def add(server: Any) -> None:
        retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(servicer, server)

    async with grpc_service(DESCRIPTOR, add) as channel:
        yield GrpcRetriever(channel)


@pytest.fixture(params=["fake", "grpc"])
def retriever(request: pytest.FixtureRequest, fake: FakeRetriever, adapter: GrpcRetriever) -> Retriever:
    return fake if request.param == "fake" else adapter


@pytest.fixture(params=["fake", "grpc"])
def catalogue(request: pytest.FixtureRequest, fake: FakeRetriever, adapter: GrpcRetriever) -> Catalogue:
    return fake if request.param == "fake" else adapter


def soon() -> Deadline:
    return Deadline.after(5)


async def test_documents_are_removed(catalogue: Catalogue) -> None:
    """The removed and the unknown ids are returned. An unknown index is refused."""
    removal = await catalogue.remove(LOCAL, "docs", ["d1", "nope", "d1"], soon())
    assert removal == Removal(("d1",), ("nope",))
    assert (await catalogue.remove(LOCAL, "docs", ["d1"], soon())).not_found == ("d1",)
    with pytest.raises(NotFound, match="nowhere"):
        await catalogue.remove(LOCAL, "nowhere", ["d1"], soon())


async def test_a_document_is_read_in_parts(catalogue: Catalogue) -> None:
    """A part of a document is read by code points and pages, together with the fields of the document."""
    read = await catalogue.read(LOCAL, "docs", "d1", TextRange(9, 4), soon())
    assert (read.text, read.is_truncated, read.pages) == ("ferry lea", True, 3)
    assert (read.category, read.metadata_json) == ("guides", b'{"year":2024.0}')
    assert (read.stored.document_id, read.stored.sourcefile) == ("d1", "guide.pdf")
    read = await catalogue.read(LOCAL, "docs", "d1", TextRange(100, 0, 3, 3), soon())
    assert (read.text, read.is_truncated) == ("the ferry leaves at nine", False)
    assert (await catalogue.read(LOCAL, "docs", "d1", TextRange(100, 0, 1, 2), soon())).text == ""
    assert (await catalogue.read(STRANGER, "docs", "4", TextRange(1), soon())).stored == STORED[4].stored
    for principal, index, document in ((LOCAL, "docs", "no"), (LOCAL, "nowhere", "d1"), (STRANGER, "docs", "0")):
        with pytest.raises(NotFound):
            await catalogue.read(principal, index, document, TextRange(1), soon())


async def test_passages_of_a_document_are_listed(catalogue: Catalogue, fake: FakeRetriever) -> None:
    """Passages are listed from a number on, with the total number. A document of other users is not found."""
    fake.indexes["docs"] += [replace(FULL, id="p3", text="and comes back at ten", headings=(), page=0)]
    page = await catalogue.passages(LOCAL, "docs", "d1", 0, 10, soon())
    assert (page.stored.document_id, page.total) == ("d1", 2)
    first, second = page.passages
    assert first == StoredPassage("p1", 0, 3, ("Ferries", "Times"), FULL.text, "guide.pdf#page=3")
    assert (second.number, second.page, second.headings) == (1, 0, ())
    assert (await catalogue.passages(LOCAL, "docs", "d1", 1, 1, soon())).passages == (second,)
    assert (await catalogue.passages(LOCAL, "docs", "d1", 2, 1, soon())).passages == ()
    for principal, index, document in ((LOCAL, "docs", "no"), (LOCAL, "nowhere", "d1"), (STRANGER, "docs", "0")):
        with pytest.raises(NotFound):
            await catalogue.passages(principal, index, document, 0, 10, soon())


async def test_documents_are_listed_in_pages(catalogue: Catalogue) -> None:
    """Each document that the principal may see is listed once, and the last page has no token."""
    found: list[StoredDocument] = []
    token = ""
    for _ in range(3):
        page = await catalogue.page(LOCAL, "docs", 2, token, soon())
        found += page.documents
        token = page.next_token
    assert (found, token) == ([listed.stored for listed in STORED], "")
    assert len((await catalogue.page(STRANGER, "docs", 2, "", soon())).documents) == 1
    with pytest.raises(NotFound):
        await catalogue.page(LOCAL, "nowhere", 2, "", soon())


async def test_documents_are_found_by_their_fields(catalogue: Catalogue) -> None:
    """Documents that the caller may see are found by values of their fields, over all pages."""
    found = await catalogue.find(LOCAL, "docs", {"metadata.owner": ["ann"]}, soon())
    assert found == tuple(listed.stored for listed in STORED[:4])
    [one] = await catalogue.find(
        LOCAL, "docs", {"metadata.owner": ["bob", "ann"], "sourcefile": ['b"2.md']}, soon()
    )
    assert one == STORED[2].stored
    assert await catalogue.find(STRANGER, "docs", {"metadata.owner": ["ann"]}, soon()) == ()
    assert await catalogue.find(LOCAL, "docs", {"sourcefile": ["none", "neither"]}, soon()) == ()
    assert len(await catalogue.find(LOCAL, "docs", {}, soon())) == 5
    with pytest.raises(NotFound, match="nowhere"):
        await catalogue.find(LOCAL, "nowhere", {"sourcefile": ["a"]}, soon())


async def test_documents_are_requested_in_large_pages(adapter: GrpcRetriever, servicer: Servicer) -> None:
    """The adapter requests documents in pages of 1000, and each page once."""
    await adapter.find(LOCAL, "docs", {}, soon())
    assert [request.page_token for request in servicer.listed] == ["", "2", "4"]
    assert {request.page_size for request in servicer.listed} == {1000}


async def test_passages_arrive_with_all_fields(retriever: Retriever) -> None:
    """Passages arrive with all fields, including scores that are zero or missing."""
    assert await retriever.retrieve(LOCAL, Retrieval(("docs",)), "ferry", 10, soon()) == SearchResults((FULL, BARE))


async def test_the_number_of_passages_is_limited(retriever: Retriever) -> None:
    """At most the requested number of passages is returned, the best first."""
    assert await retriever.retrieve(LOCAL, Retrieval(("docs",)), "the bridge", 1, soon()) == SearchResults((BARE,))


async def test_an_empty_index_gives_no_passages(retriever: Retriever) -> None:
    """An empty index gives no passages."""
    assert await retriever.retrieve(LOCAL, Retrieval(("empty",)), "x", 3, soon()) == SearchResults()


async def test_refusals_keep_their_type(retriever: Retriever) -> None:
    """A refusal keeps its message and its resource or field."""
    with pytest.raises(NotFound, match="No such index: 'nowhere' exists") as missing:
        await retriever.retrieve(LOCAL, Retrieval(("nowhere",)), "x", 3, soon())
    assert missing.value.resource == "nowhere"
    with pytest.raises(InvalidRequest) as blank:
        await retriever.retrieve(LOCAL, Retrieval(("docs",)), " ", 3, soon())
    assert blank.value.field == "query"


async def test_all_named_indexes_must_exist(retriever: Retriever) -> None:
    """All named indexes must exist. The error names the first missing index."""
    await retriever.check_indexes(LOCAL, ["docs", "empty"], soon())
    with pytest.raises(NotFound, match="No such index: 'nowhere' exists") as missing:
        await retriever.check_indexes(LOCAL, ["docs", "nowhere"], soon())
    assert (missing.value.resource, missing.value.field) == ("nowhere", "index")


async def test_the_check_of_an_index_does_not_search(adapter: GrpcRetriever, servicer: Servicer) -> None:
    """The existence of each index is checked once on behalf of the caller, without a search."""
    principal = Principal("tenant", "ann", ("o",), ("g",), ("ask",))
    await adapter.check_indexes(principal, ["docs", "empty", "docs"], soon())
    assert [request.index for request in servicer.described] == ["docs", "empty"]
    assert Principal.from_proto(servicer.described[0].principal) == principal
    assert servicer.request == retriever_pb2.RetrieveRequest()


@pytest.mark.parametrize("mode", RetrievalMode)
async def test_a_threshold_requests_the_dense_scores_of_all_candidates(
    adapter: GrpcRetriever, servicer: Servicer, mode: RetrievalMode
) -> None:
    """A text search with a similarity threshold requests the dense scores of all candidates."""
    await adapter.retrieve(LOCAL, Retrieval(("docs",), mode, similarity_threshold=0.3), "x", 7, soon())
    request = servicer.request
    assert request.HasField("minimum_dense_score") == (mode is RetrievalMode.TEXT)
    assert request.minimum_dense_score in (0.0, -1.0)
    assert not request.skip_missing_scores
    await adapter.retrieve(LOCAL, Retrieval(("docs",), mode), "x", 7, soon())
    assert not servicer.request.HasField("minimum_dense_score")


async def test_every_condition_of_a_search_is_sent(adapter: GrpcRetriever, servicer: Servicer) -> None:
    """The caller, mode, categories and minimum score are sent. A minimum score of zero is sent, too."""
    principal = Principal("tenant", "ann", ("o",), ("g",), ("ask",))
    retrieval = Retrieval(
        ("docs", "empty"),
        RetrievalMode.TEXT,
        include_category='a"b',
        exclude_category="c",
        minimum_score=0.0,
    )
    await adapter.retrieve(principal, retrieval, "x", 7, soon())
    request = servicer.request
    assert Principal.from_proto(request.principal) == principal
    assert (list(request.indexes), request.query, request.top) == (["docs", "empty"], "x", 7)
    assert request.mode == retriever_pb2.RETRIEVAL_MODE_TEXT
    [include], [exclude] = request.filter.must, request.filter.must_not
    assert (include.match_any.field, list(include.match_any.json_values)) == ("category", ['"a\\"b"'])
    assert list(exclude.match_any.json_values) == ['"c"']
    assert request.HasField("minimum_score")
    await adapter.retrieve(principal, Retrieval(("docs",)), "x", 7, soon())
    assert not servicer.request.HasField("minimum_score")
    assert not servicer.request.HasField("filter")


async def test_an_unreachable_service_is_unavailable() -> None:
    """A call to an unreachable service fails with Unavailable."""
    async with open_channel(f"127.0.0.1:{free_ports(1)[0]}", [DESCRIPTOR]) as channel:
        with pytest.raises(Unavailable):
            await GrpcRetriever(channel).retrieve(LOCAL, Retrieval(("docs",)), "x", 3, Deadline.after(3))


async def test_a_call_after_its_deadline_fails(adapter: GrpcRetriever) -> None:
    """A call with an expired deadline fails with DeadlineExceeded."""
    with pytest.raises(DeadlineExceeded):
        await adapter.retrieve(LOCAL, Retrieval(("docs",)), "x", 3, Deadline.after(0))


async def test_the_tuning_is_sent(adapter: GrpcRetriever, servicer: Servicer) -> None:
    """The whole tuning is sent. The minimum reranker score is sent only with a request for reranking."""
    await adapter.retrieve(LOCAL, Retrieval(("docs",), minimum_reranker_score=0.5), "x", 7, soon())
    plain = servicer.request
    assert not any(plain.HasField(name) for name in ("rerank", "dense_weight", "expand"))
    assert (plain.fusion, plain.captions) == (retriever_pb2.FUSION_UNSPECIFIED, False)
    tuning = Tuning("ranks", 0.25, expand=False, diversity=0.5, neighbours=2, reranker="r")
    retrieval = Retrieval(
        ("docs",), minimum_reranker_score=0.5, semantic_ranker=True, semantic_captions=True, tuning=tuning
    )
    await adapter.retrieve(LOCAL, retrieval, "x", 7, soon())
    sent = servicer.request
    assert (sent.fusion, sent.dense_weight, sent.expand) == (retriever_pb2.FUSION_RANKS, 0.25, False)
    assert (sent.diversity, sent.neighbours, sent.captions) == (0.5, 2, True)
    assert (sent.rerank.reranker, sent.rerank.minimum_score) == ("r", 0.5)


async def test_the_reason_for_a_missing_reranking_is_returned(adapter: GrpcRetriever, fake: FakeRetriever) -> None:
    """The reason for a missing reranking is returned."""
    fake.not_reranked = "The reranker 'r' failed."
    found = await adapter.retrieve(LOCAL, Retrieval(("docs",), semantic_ranker=True), "x", 7, soon())
    assert found.not_reranked == "The reranker 'r' failed."
