"""What holds for the port, on the fake and on the adapter that speaks to a real server backed by that fake."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from causeway.retriever.v1 import document_pb2, retriever_pb2, retriever_pb2_grpc
from gateway.clients.retriever import DESCRIPTOR, GrpcRetriever
from gateway.documents import Removal
from gateway.domain import Passage, Retrieval, RetrievalMode
from gateway.fakes import FakeRetriever
from gateway.ports import Catalogue, Retriever
from servicekit.channel import open_channel
from servicekit.deadline import Deadline
from servicekit.errors import DeadlineExceeded, InvalidRequest, NotFound, Unavailable
from servicekit.principal import LOCAL, Principal
from servicekit.testing import free_ports, grpc_service

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
)
BARE = Passage("p2", "docs", "d2", "a.md", "a.md", "the bridge", 0.5, found_by="dense_only")

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
    """The retriever's contract over the fake; keeps the last request."""

    def __init__(self, fake: FakeRetriever) -> None:
        self._fake = fake
        self.request = retriever_pb2.RetrieveRequest()

    async def Retrieve(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.RetrieveRequest, context: Any
    ) -> retriever_pb2.RetrieveResponse:
        self.request = request
        retrieval = Retrieval(tuple(request.indexes), _MODES[request.mode])
        found = await self._fake.retrieve(
            Principal.from_proto(request.principal), retrieval, request.query, request.top, Deadline.of(context)
        )
        return retriever_pb2.RetrieveResponse(passages=[_message(each) for each in found])

    async def DeleteDocuments(  # noqa: N802  # the contract's name
        self, request: retriever_pb2.DeleteDocumentsRequest, context: Any
    ) -> retriever_pb2.DeleteDocumentsResponse:
        removal = await self._fake.remove(
            Principal.from_proto(request.principal), request.index, request.document_ids, Deadline.of(context)
        )
        return retriever_pb2.DeleteDocumentsResponse(
            deleted=[document_pb2.Document(document_id=each) for each in removal.removed],
            not_found_ids=removal.not_found,
        )


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
    )


@pytest.fixture
def fake() -> FakeRetriever:
    return FakeRetriever({"docs": [FULL, BARE], "empty": []})


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
    """Those that were there are named, and those that were not; an unknown index is an error."""
    removal = await catalogue.remove(LOCAL, "docs", ["d1", "nope", "d1"], soon())
    assert removal == Removal(("d1",), ("nope",))
    assert (await catalogue.remove(LOCAL, "docs", ["d1"], soon())).not_found == ("d1",)
    with pytest.raises(NotFound, match="nowhere"):
        await catalogue.remove(LOCAL, "nowhere", ["d1"], soon())


async def test_passages_arrive_whole(retriever: Retriever) -> None:
    """Every member, scores that are zero or missing included."""
    assert await retriever.retrieve(LOCAL, Retrieval(("docs",)), "ferry", 10, soon()) == (FULL, BARE)


async def test_no_more_than_asked_for(retriever: Retriever) -> None:
    """The best come first."""
    assert await retriever.retrieve(LOCAL, Retrieval(("docs",)), "the bridge", 1, soon()) == (BARE,)


async def test_nothing_found_is_no_error(retriever: Retriever) -> None:
    """An empty index has no passages."""
    assert await retriever.retrieve(LOCAL, Retrieval(("empty",)), "x", 3, soon()) == ()


async def test_refusals_arrive_as_what_they_are(retriever: Retriever) -> None:
    """With the words and the resource or the field."""
    with pytest.raises(NotFound, match="No such index: 'nowhere' exists") as missing:
        await retriever.retrieve(LOCAL, Retrieval(("nowhere",)), "x", 3, soon())
    assert missing.value.resource == "nowhere"
    with pytest.raises(InvalidRequest) as blank:
        await retriever.retrieve(LOCAL, Retrieval(("docs",)), " ", 3, soon())
    assert blank.value.field == "query"


async def test_everything_that_narrows_a_search_is_sent(adapter: GrpcRetriever, servicer: Servicer) -> None:
    """Caller, mode, categories, least score; a score of zero is a bound, none is none."""
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


async def test_a_service_that_is_away() -> None:
    """Unavailable within the deadline, not a hang."""
    async with open_channel(f"127.0.0.1:{free_ports(1)[0]}", [DESCRIPTOR]) as channel:
        with pytest.raises(Unavailable):
            await GrpcRetriever(channel).retrieve(LOCAL, Retrieval(("docs",)), "x", 3, Deadline.after(3))


async def test_a_deadline_that_has_passed(adapter: GrpcRetriever) -> None:
    """Nobody is asked."""
    with pytest.raises(DeadlineExceeded):
        await adapter.retrieve(LOCAL, Retrieval(("docs",)), "x", 3, Deadline.after(0))
