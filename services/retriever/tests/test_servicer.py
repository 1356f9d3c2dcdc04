"""The service over a real gRPC server."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from causeway.identity.v1 import principal_pb2
from causeway.retriever.v1 import document_pb2, filter_pb2, retriever_pb2, retriever_pb2_grpc
from causeway_testing.embedding import HashingEmbedder
from causeway_testing.retriever.bench import DIMENSION, INDEX, Bench
from causeway_testing.servers import eventually, grpc_service
from google.protobuf.message import Message
from retriever.domain.document import Document
from retriever.servicer import RetrieverServicer
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.errors import (
    CausewayError,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StaleGeneration,
    Unauthenticated,
    Unavailable,
)
from servicekit.principal import LOCAL

ME = LOCAL.to_proto()
METADATA = b'{ "year" : 2024 }'


@pytest.fixture
async def channel(edge_bench: Bench, tmp_path: Path) -> AsyncIterator[grpc.aio.Channel]:
    """Open a channel to the service over an empty store on disk."""
    servicer = RetrieverServicer(
        edge_bench.retrieval,
        edge_bench.upserts,
        edge_bench.catalogue,
        edge_bench.snapshots(tmp_path / "snapshots"),
        edge_bench.rebuilds(HashingEmbedder(32)),
        edge_bench.embeddings,
    )
    async with grpc_service(
        retriever_pb2.DESCRIPTOR.services_by_name["RetrieverService"],
        lambda server: retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(servicer, server),
    ) as opened:
        yield opened


@pytest.fixture
def stub(channel: grpc.aio.Channel) -> Any:
    """Return the service's stub."""
    return retriever_pb2_grpc.RetrieverServiceStub(channel)


def soon() -> Deadline:
    return Deadline.after(120)


def begin(bench: Bench, generation: int = 1, **document: Any) -> retriever_pb2.UpsertRequest:
    """Return the first message of an upsert."""
    return retriever_pb2.UpsertRequest(
        begin=retriever_pb2.UpsertBegin(
            principal=ME,
            index=INDEX,
            document=document_pb2.Document(
                **{
                    "document_id": "d",
                    "sourcefile": "harbour.pdf",
                    "metadata_json": METADATA,
                    "category": "guides",
                    "generation": generation,
                    "chunk_count": 77,
                    **document,
                }
            ),
            embedding_model=bench.embedder.model,
            dimension=DIMENSION,
        )
    )


async def chunks(bench: Bench, *texts: str) -> retriever_pb2.UpsertRequest:
    """Return a message of chunks."""
    messages = [
        document_pb2.Chunk(
            number=chunk.number,
            text=chunk.text,
            indexed_text=chunk.indexed_text,
            page=chunk.page,
            headings=chunk.headings,
            vector=chunk.vector,
        )
        for chunk in await bench.chunks(texts)
    ]
    return retriever_pb2.UpsertRequest(chunks=retriever_pb2.UpsertChunks(chunks=messages))


def commit(count: int) -> retriever_pb2.UpsertRequest:
    return retriever_pb2.UpsertRequest(commit=retriever_pb2.UpsertCommit(chunk_count=count))


async def upsert(stub: Any, *messages: Message) -> retriever_pb2.UpsertResponse:
    async def stream() -> AsyncIterator[Message]:
        for message in messages:
            yield message

    response: retriever_pb2.UpsertResponse = await rpc.client_stream(stub.Upsert, stream(), "Upsert", soon())
    return response


async def test_a_document_is_stored_read_and_deleted(stub: Any, edge_bench: Bench) -> None:
    """An upserted document can be retrieved, read, listed, counted and deleted with all its fields."""
    texts = ["the ferry leaves", "bridge tolls"]
    upserted = await upsert(stub, begin(edge_bench), await chunks(edge_bench, *texts), commit(2))
    assert upserted.outcome == retriever_pb2.UPSERT_OUTCOME_CREATED
    document = upserted.document
    assert (document.chunk_count, document.metadata_json, document.category) == (2, METADATA, "guides")
    assert document.updated_at.seconds > 1_700_000_000

    retrieve = retriever_pb2.RetrieveRequest(
        principal=ME,
        indexes=[INDEX],
        query="bridge tolls",
        filter=filter_pb2.Filter(
            must=[
                filter_pb2.Condition(
                    match_any=filter_pb2.MatchAny(field="metadata.year", json_values=['"x"', "2024"])
                ),
                filter_pb2.Condition(range=filter_pb2.Range(field="page", gte=2)),
            ],
            must_not=[
                filter_pb2.Condition(
                    filter=filter_pb2.Filter(
                        should=[
                            filter_pb2.Condition(
                                match_any=filter_pb2.MatchAny(field="category", json_values=['"x"'])
                            )
                        ]
                    )
                )
            ],
        ),
    )
    found = await rpc.unary(stub.Retrieve, retrieve, soon())
    (passage,) = found.passages
    assert passage.document == document
    assert (passage.text, passage.sourcepage, passage.index) == (texts[1], "harbour.pdf#page=2", INDEX)
    assert (passage.chunk_number, passage.page, list(passage.headings)) == (1, 2, ["Part"])
    assert passage.dense_score == pytest.approx(1.0)
    assert passage.sparse_score > 0
    assert not passage.HasField("reranker_score")
    assert passage.source == retriever_pb2.PASSAGE_SOURCE_BOTH
    assert [step.name for step in found.steps] == ["embed", "dense", "sparse", "fuse"]

    read = retriever_pb2.GetDocumentRequest(principal=ME, index=INDEX, document_id="d")
    assert (await rpc.unary(stub.GetDocument, read, soon())).document == document
    listed = await rpc.unary(
        stub.ListDocuments, retriever_pb2.ListDocumentsRequest(principal=ME, index=INDEX), soon()
    )
    assert (list(listed.documents), listed.next_page_token, listed.total) == ([document], "", 1)
    index = await rpc.unary(stub.GetIndex, retriever_pb2.GetIndexRequest(principal=ME, index=INDEX), soon())
    assert (index.embedding_model, index.dimension) == (edge_bench.embedder.model, DIMENSION)
    assert not index.HasField("lookup")
    for document_id, expected in (("d", document), ("another", None)):
        request = retriever_pb2.GetIndexRequest(principal=ME, index=INDEX, document_id=document_id)
        assert (await rpc.unary(stub.GetIndex, request, soon())).lookup == retriever_pb2.DocumentLookup(
            document=expected
        )
    with pytest.raises(NotFound):
        await rpc.unary(stub.GetIndex, retriever_pb2.GetIndexRequest(principal=ME, index="another"), soon())
    indexes = await rpc.unary(stub.ListIndexes, retriever_pb2.ListIndexesRequest(principal=ME), soon())
    assert list(indexes.indexes) == [
        retriever_pb2.Index(
            name=INDEX,
            embedding_model=edge_bench.embedder.model,
            dimension=DIMENSION,
            document_count=1,
            chunk_count=2,
            settings=retriever_pb2.IndexSettings(embedding_model=edge_bench.embedder.model, language="auto"),
        )
    ]
    again = await upsert(stub, begin(edge_bench))
    assert again.outcome == retriever_pb2.UPSERT_OUTCOME_UNCHANGED
    replaced = await upsert(stub, begin(edge_bench, 2), commit(0))
    assert replaced.outcome == retriever_pb2.UPSERT_OUTCOME_REPLACED
    delete = retriever_pb2.DeleteDocumentsRequest(principal=ME, index=INDEX, document_ids=["d", "x"])
    deleted = await rpc.unary(stub.DeleteDocuments, delete, soon())
    assert [document.document_id for document in deleted.deleted] == ["d"]
    assert list(deleted.not_found_ids) == ["x"]
    await rpc.unary(stub.DeleteIndex, retriever_pb2.DeleteIndexRequest(principal=ME, index=INDEX), soon())
    assert not (await rpc.unary(stub.ListIndexes, retriever_pb2.ListIndexesRequest(principal=ME), soon())).indexes


def filtered(**condition: Any) -> retriever_pb2.RetrieveRequest:
    return retriever_pb2.RetrieveRequest(
        principal=ME,
        indexes=[INDEX],
        query="x",
        filter=filter_pb2.Filter(must=[filter_pb2.Condition(**condition)]),
    )


def wrong_requests() -> Iterator[tuple[retriever_pb2.RetrieveRequest, type[CausewayError], str | None]]:
    """Yield wrong requests with their error and field."""
    yield retriever_pb2.RetrieveRequest(indexes=[INDEX], query="x"), Unauthenticated, "principal.tenant"
    yield (
        retriever_pb2.RetrieveRequest(principal=ME, indexes=[INDEX], query="x", mode=9),  # type: ignore[arg-type]  # what a newer client may send
        InvalidRequest,
        "mode",
    )
    yield retriever_pb2.RetrieveRequest(principal=ME, query="x"), InvalidRequest, "indexes"
    yield retriever_pb2.RetrieveRequest(principal=ME, indexes=[INDEX]), InvalidRequest, "query"
    yield retriever_pb2.RetrieveRequest(principal=ME, indexes=["no"], query="x"), NotFound, "index"
    yield filtered(), InvalidRequest, "filter.must[0]"
    for name in ("colour", "metadata", "metadata.", ""):
        any_, range_ = filter_pb2.MatchAny(field=name), filter_pb2.Range(field=name, gt=0)
        yield filtered(match_any=any_), InvalidRequest, "filter.must[0].match_any.field"
        yield filtered(range=range_), InvalidRequest, "filter.must[0].range.field"
    for value in ("", "null", "[]", "{}", "red", "NaN"):
        any_ = filter_pb2.MatchAny(field="page", json_values=["1", value])
        yield filtered(match_any=any_), InvalidRequest, "filter.must[0].match_any.json_values[1]"
    for range_ in (filter_pb2.Range(field="page"), filter_pb2.Range(field="page", gt=float("nan"))):
        yield filtered(range=range_), InvalidRequest, "filter.must[0].range"
    nested = filter_pb2.Filter(should=[filter_pb2.Condition()])
    yield filtered(filter=nested), InvalidRequest, "filter.must[0].filter.should[0]"
    many = filter_pb2.MatchAny(field="page", json_values=["1"] * 10_000)
    yield filtered(match_any=many), InvalidRequest, "filter"


async def test_wrong_requests(stub: Any) -> None:
    """Each wrong request is refused with its error and the name of its field."""
    for request, error, field in wrong_requests():
        with pytest.raises(error) as caught:
            await rpc.unary(stub.Retrieve, request, soon())
        assert caught.value.field == field


async def test_statuses_and_messages(stub: Any, edge_bench: Bench) -> None:
    """Each error has its status code and its message for clients."""
    await upsert(stub, begin(edge_bench, 5), commit(0))
    for call, code, text in (
        (
            stub.Retrieve(retriever_pb2.RetrieveRequest(principal=ME, indexes=["X"], query="x")),
            grpc.StatusCode.NOT_FOUND,
            "No such index: 'X' exists.",
        ),
        (
            stub.Retrieve(retriever_pb2.RetrieveRequest(principal=ME, indexes=[INDEX], query=" ")),
            grpc.StatusCode.INVALID_ARGUMENT,
            "Query string cannot be empty.",
        ),
        (
            stub.Upsert(iter([begin(edge_bench, 4)])),
            grpc.StatusCode.FAILED_PRECONDITION,
            "Generation 5 of document 'd' is stored; 4 is older.",
        ),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        assert (caught.value.code(), caught.value.details()) == (code, text)
    with pytest.raises(StaleGeneration):
        await upsert(stub, begin(edge_bench, 4), commit(0))


async def test_wrong_upserts(stub: Any, edge_bench: Bench) -> None:
    """A wrong stream is refused, even while the client is still sending. The error names the field. No index
    remains.
    """
    body = await chunks(edge_bench, "one", "two")
    too_many = await chunks(edge_bench, *["text"] * 65)
    no_tenant = begin(edge_bench)
    no_tenant.begin.principal.CopyFrom(principal_pb2.Principal())
    for messages, error, field in (
        ([], InvalidRequest, "begin"),
        ([body], InvalidRequest, "begin"),
        ([retriever_pb2.UpsertRequest()], InvalidRequest, "step"),
        ([no_tenant], Unauthenticated, "principal.tenant"),
        ([begin(edge_bench), body], InvalidRequest, "commit"),
        ([begin(edge_bench), body, commit(3)], InvalidRequest, "commit.chunk_count"),
        ([begin(edge_bench), body, *[body] * 50, commit(2)], InvalidRequest, "chunks[0].number"),
        ([begin(edge_bench), too_many, commit(65)], InvalidRequest, "chunks"),
    ):
        with pytest.raises(error) as caught:
            await upsert(stub, *messages)
        assert caught.value.field == field
    assert await edge_bench.catalogue.indexes(LOCAL) == []


async def test_a_document_in_one_message(stub: Any, edge_bench: Bench) -> None:
    """A document that arrives in one message is stored like one that arrives in a stream."""
    chunk = (await chunks(edge_bench, "one", "two")).chunks.chunks
    request = retriever_pb2.StoreDocumentRequest(begin=begin(edge_bench, 2).begin, chunks=chunk)
    for outcome in (retriever_pb2.UPSERT_OUTCOME_CREATED, retriever_pb2.UPSERT_OUTCOME_UNCHANGED):
        assert (await rpc.unary(stub.StoreDocument, request, soon())).outcome == outcome
    listing = retriever_pb2.ListChunksRequest(principal=ME, index=INDEX, document_id="d")
    assert [chunk.text for chunk in (await rpc.unary(stub.ListChunks, listing, soon())).chunks] == ["one", "two"]
    response = await upsert(stub, begin(edge_bench, 2), commit(0))
    assert response.outcome == retriever_pb2.UPSERT_OUTCOME_UNCHANGED


async def test_wrong_documents_in_one_message(stub: Any, edge_bench: Bench) -> None:
    """A wrong message is refused, and the error names the field. No index remains."""
    head, body = begin(edge_bench).begin, (await chunks(edge_bench, "one")).chunks.chunks
    too_many = (await chunks(edge_bench, *["text"] * 65)).chunks.chunks
    for request, error, field in (
        (retriever_pb2.StoreDocumentRequest(chunks=body), Unauthenticated, "principal.tenant"),
        (retriever_pb2.StoreDocumentRequest(begin=head, chunks=too_many), InvalidRequest, "chunks"),
        (retriever_pb2.StoreDocumentRequest(begin=head, chunks=[*body, *body]), InvalidRequest, "chunks[1].number"),
    ):
        with pytest.raises(error) as caught:
            await rpc.unary(stub.StoreDocument, request, soon())
        assert caught.value.field == field
    assert await edge_bench.catalogue.indexes(LOCAL) == []


async def test_a_cancelled_upsert_leaves_nothing(stub: Any, edge_bench: Bench) -> None:
    """An upsert that the client cancels, or whose deadline passes, leaves no data."""
    body = await chunks(edge_bench, "one")
    reached = asyncio.Event()

    async def unfinished() -> AsyncIterator[Message]:
        yield begin(edge_bench)
        yield body
        reached.set()
        await asyncio.Event().wait()

    call = stub.Upsert(unfinished())
    await reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Upsert(unfinished(), timeout=0.3)
    assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    await eventually(lambda: not edge_bench.indexes._indexes, what="the unused index to be dropped")
    await upsert(stub, begin(edge_bench), body, commit(1))
    assert len(await edge_bench.ask("one")) == 1


async def test_updating_over_the_wire(stub: Any, edge_bench: Bench) -> None:
    """An update changes the given fields. Its outcome says whether a field other than the generation has changed.
    Other content causes NotFound.
    """
    await upsert(stub, begin(edge_bench, sha256="ab" * 32), await chunks(edge_bench, "the ferry"), commit(1))
    document = document_pb2.Document(
        document_id="d",
        sha256="ab" * 32,
        metadata_json=b'{"year": 2025}',
        access=document_pb2.AccessControl(oids=["ann"], groups=["crew"]),
        category="maps",
        language="de",
        generation=2,
    )
    request = retriever_pb2.UpdateDocumentRequest(principal=ME, index=INDEX, document=document)
    response = await rpc.unary(stub.UpdateDocument, request, soon())
    assert response.outcome == retriever_pb2.UPDATE_OUTCOME_UPDATED
    updated = response.document
    assert (updated.generation, updated.chunk_count, updated.sourcefile) == (2, 1, "harbour.pdf")
    assert (updated.metadata_json, updated.access, updated.category) == (
        document.metadata_json,
        document.access,
        "maps",
    )
    request.document.generation = 3
    response = await rpc.unary(stub.UpdateDocument, request, soon())
    assert response.outcome == retriever_pb2.UPDATE_OUTCOME_UNCHANGED
    assert response.document.generation == 3
    request.document.generation = 1
    with pytest.raises(StaleGeneration):
        await rpc.unary(stub.UpdateDocument, request, soon())
    request.document.sha256 = "cd" * 32
    with pytest.raises(NotFound):
        await rpc.unary(stub.UpdateDocument, request, soon())


async def test_text_and_offset_over_the_wire(stub: Any, edge_bench: Bench) -> None:
    """The response has the text if the request has a length, even 0. Overlaps, separators, offsets and pages are
    respected.
    """
    body = await chunks(edge_bench, "one two", "two three", "four")
    body.chunks.chunks[1].overlap = 3
    body.chunks.chunks[2].separator = "\n"
    await upsert(stub, begin(edge_bench), body, commit(3))
    await upsert(stub, begin(edge_bench, document_id="e"), commit(0))
    get = retriever_pb2.GetDocumentRequest(principal=ME, index=INDEX, document_id="d")
    assert not (await rpc.unary(stub.GetDocument, get, soon())).HasField("text")
    get.text_length = 100
    found = await rpc.unary(stub.GetDocument, get, soon())
    assert (found.text.text, found.text.is_truncated) == ("one two three\nfour", False)
    get.text_length = 0
    found = await rpc.unary(stub.GetDocument, get, soon())
    assert (found.HasField("text"), found.text.text, found.text.is_truncated) == (True, "", True)
    get.text_length, get.text_offset = 3, 8
    found = await rpc.unary(stub.GetDocument, get, soon())
    assert (found.text.text, found.text.is_truncated) == ("thr", True)
    get.first_page = 2
    found = await rpc.unary(stub.GetDocument, get, soon())
    assert (found.text.text, found.text.is_truncated) == ("e\nf", True)
    get.text_length = 2**32 - 1
    with pytest.raises(InvalidRequest) as caught:
        await rpc.unary(stub.GetDocument, get, soon())
    assert caught.value.field == "text_length"

    listing = retriever_pb2.ListDocumentsRequest(principal=ME, index=INDEX, page_size=1, offset=0, text_length=5)
    page = await rpc.unary(stub.ListDocuments, listing, soon())
    assert [document.document_id for document in page.documents] == ["d"]
    assert [(text.text, text.is_truncated) for text in page.texts] == [("one t", True)]
    listing.page_token = page.next_page_token
    with pytest.raises(InvalidRequest) as caught:
        await rpc.unary(stub.ListDocuments, listing, soon())
    assert caught.value.field == "offset"
    listing = retriever_pb2.ListDocumentsRequest(principal=ME, index=INDEX, offset=1)
    page = await rpc.unary(stub.ListDocuments, listing, soon())
    assert ([document.document_id for document in page.documents], len(page.texts), page.total) == (["e"], 0, 2)


async def test_snapshots_over_the_wire(stub: Any, edge_bench: Bench) -> None:
    """An index is saved, loaded and listed as a snapshot. Each refusal has its status."""
    await upsert(stub, begin(edge_bench), await chunks(edge_bench, "the ferry", "the bridge"), commit(2))
    persist = retriever_pb2.PersistIndexRequest(principal=ME, index=INDEX, path="a/b")
    written = await rpc.unary(stub.PersistIndex, persist, soon())
    assert (written.document_count, written.chunk_count) == (1, 2)
    await rpc.unary(stub.DeleteIndex, retriever_pb2.DeleteIndexRequest(principal=ME, index=INDEX), soon())
    load = retriever_pb2.LoadIndexRequest(principal=ME, path="a/b", index=INDEX)
    loaded = (await rpc.unary(stub.LoadIndex, load, soon())).index
    assert (loaded.name, loaded.document_count, loaded.chunk_count) == (INDEX, 1, 2)
    assert (loaded.dimension, loaded.embedding_model) == (DIMENSION, edge_bench.embedder.model)
    request = retriever_pb2.RetrieveRequest(principal=ME, indexes=[INDEX], query="ferry")
    assert (await rpc.unary(stub.Retrieve, request, soon())).passages[0].text == "the ferry"
    [listed] = (
        await rpc.unary(stub.ListSnapshots, retriever_pb2.ListSnapshotsRequest(principal=ME), soon())
    ).snapshots
    assert (listed.path, listed.index, listed.document_count, listed.chunk_count) == (f"a/b/{INDEX}", INDEX, 1, 2)
    assert listed.size_bytes > 0
    assert listed.created_at.seconds > 0
    wrong_loads: list[tuple[dict[str, Any], grpc.StatusCode, str | None]] = [
        ({}, grpc.StatusCode.FAILED_PRECONDITION, f"Index '{INDEX}' exists already."),
        ({"path": "no"}, grpc.StatusCode.NOT_FOUND, f"Path does not exist: no/{INDEX}"),
        ({"path": ".."}, grpc.StatusCode.INVALID_ARGUMENT, "The path lies outside the snapshot directory."),
        ({"index": "a b"}, grpc.StatusCode.INVALID_ARGUMENT, None),
        ({"principal": principal_pb2.Principal()}, grpc.StatusCode.UNAUTHENTICATED, None),
    ]
    for changes, code, text in wrong_loads:
        wrong = retriever_pb2.LoadIndexRequest(**{"principal": ME, "path": "a/b", "index": INDEX, **changes})
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.LoadIndex(wrong)
        assert caught.value.code() == code
        assert text is None or caught.value.details() == text
    load.overwrite = True
    await rpc.unary(stub.LoadIndex, load, soon())


async def test_compacting_over_the_wire(stub: Any, edge_bench: Bench) -> None:
    """Only administrators can compact an index. The answer has the duration."""
    await upsert(stub, begin(edge_bench), await chunks(edge_bench, "the ferry"), commit(1))
    request = retriever_pb2.CompactIndexRequest(principal=ME, index=INDEX)
    assert (await rpc.unary(stub.CompactIndex, request, soon())).duration_ms > 0
    assert len(await edge_bench.ask("ferry")) == 1
    request.principal.CopyFrom(principal_pb2.Principal(tenant=LOCAL.tenant, roles=["ingest"]))
    with pytest.raises(PermissionDenied):
        await rpc.unary(stub.CompactIndex, request, soon())


async def test_embedding_over_the_wire(stub: Any, edge_bench: Bench) -> None:
    """Vectors have the order of the texts and their numbers of tokens. Errors name the wrong field."""
    models = (
        await rpc.unary(stub.ListEmbeddingModels, retriever_pb2.ListEmbeddingModelsRequest(principal=ME), soon())
    ).models
    assert [(model.name, model.dimension, model.max_tokens) for model in models] == [
        (edge_bench.embedder.model, DIMENSION, edge_bench.embedder.max_tokens)
    ]
    texts = ["the ferry", "word " * 300]
    request = retriever_pb2.EmbedRequest(principal=ME, model=models[0].name, texts=texts)
    response = await rpc.unary(stub.Embed, request, soon())
    assert response.model == models[0].name
    expected = await edge_bench.embedder.embed(texts)
    for embedding, vector in zip(response.embeddings, expected, strict=True):
        assert list(embedding.vector) == pytest.approx(vector.tolist())
    assert [(embedding.token_count, embedding.embedded_token_count) for embedding in response.embeddings] == [
        (2, 2),
        (300, 256),
    ]
    for request, error, field in (
        (retriever_pb2.EmbedRequest(principal=ME), InvalidRequest, "texts"),
        (retriever_pb2.EmbedRequest(principal=ME, texts=["x", " "]), InvalidRequest, "texts[1]"),
        (retriever_pb2.EmbedRequest(principal=ME, model="m", texts=["x"]), NotFound, None),
        (retriever_pb2.EmbedRequest(texts=["x"]), Unauthenticated, "principal.tenant"),
    ):
        with pytest.raises(error) as caught:
            await rpc.unary(stub.Embed, request, soon())
        assert caught.value.field == field


async def test_ranking_options_over_the_wire(stub: Any, edge_bench: Bench) -> None:
    """A search accepts a fusion, weights, a reranker and captions. It returns scores, captions and the failure of a
    reranker.
    """
    await edge_bench.put(Document("d", "d.pdf", generation=1), ["ferry tickets", "the ferry", "bridge tolls"])
    request = retriever_pb2.RetrieveRequest(
        principal=ME,
        indexes=[INDEX],
        query="ferry tickets",
        fusion=retriever_pb2.FUSION_RANKS,
        dense_weight=0.0,
        captions=True,
        rerank=retriever_pb2.Rerank(reranker="words", minimum_score=0.5),
    )
    found = await rpc.unary(stub.Retrieve, request, soon())
    assert [passage.text for passage in found.passages] == ["ferry tickets", "the ferry"]
    assert [passage.reranker_score for passage in found.passages] == [1.0, 0.5]
    assert found.passages[0].score == pytest.approx(2 / 61)
    assert (found.reranker, found.not_reranked) == ("words", "")
    assert [list(passage.captions) for passage in found.passages] == [["ferry tickets"], []]
    assert "rerank" in [step.name for step in found.steps]
    edge_bench.reranker.failure = Unavailable("It is unavailable.")
    found = await rpc.unary(stub.Retrieve, request, soon())
    assert (len(found.passages), found.reranker, found.not_reranked) == (2, "", "It is unavailable.")
    request.fusion = 9  # type: ignore[assignment]  # what a newer client may send
    with pytest.raises(InvalidRequest, match="no fusion 9"):
        await rpc.unary(stub.Retrieve, request, soon())
    edge_bench.reranker.failure = None
    plain = retriever_pb2.RetrieveRequest(principal=ME, indexes=[INDEX], query="ferry tickets", top=1)
    [passage] = (await rpc.unary(stub.Retrieve, plain, soon())).passages
    assert not passage.HasField("reranker_score")
    assert (passage.first_chunk_number, passage.last_chunk_number) == (0, 0)


STRANGER = principal_pb2.Principal(tenant=LOCAL.tenant, user="eve", oids=["eve"], groups=["cooks"], roles=["ask"])
BY_OID = principal_pb2.Principal(tenant=LOCAL.tenant, user="ann", oids=["ann"], roles=["ask"])
BY_GROUP = principal_pb2.Principal(tenant=LOCAL.tenant, user="bob", oids=["bob"], groups=["crew"], roles=["ask"])
ADMIN = principal_pb2.Principal(tenant=LOCAL.tenant, user="root", roles=["admin"])


@pytest.mark.parametrize(
    ("caller", "sees"),
    [(STRANGER, False), (BY_OID, True), (BY_GROUP, True), (ADMIN, True)],
    ids=lambda value: str(value)[:9],
)
async def test_access_lists_hold_for_every_call(
    stub: Any, edge_bench: Bench, caller: principal_pb2.Principal, sees: bool
) -> None:
    """A document with access lists is visible to their members and to administrators, in each call."""
    texts = ["the ferry sails", "the secret ferry sails at midnight", "the ferry returns"]
    await upsert(stub, begin(edge_bench, document_id="public"), await chunks(edge_bench, *texts[::2]), commit(2))
    message = begin(edge_bench, document_id="secret", sha256="0" * 64)
    message.begin.document.access.oids.append("ann")
    message.begin.document.access.groups.append("crew")
    await upsert(stub, message, await chunks(edge_bench, *texts), commit(3))
    visible = {"public", "secret"} if sees else {"public"}

    for mode in (1, 2, 3):
        for more in ({}, {"neighbours": 2}, {"top": 1}, {"skip_missing_scores": True}, {"diversity": 0.5}):
            options: dict[str, Any] = {"mode": mode, **more}
            request = retriever_pb2.RetrieveRequest(
                principal=caller, indexes=[INDEX], query="the secret ferry at midnight", **options
            )
            passages = (await rpc.unary(stub.Retrieve, request, soon())).passages
            assert {passage.document.document_id for passage in passages} <= visible
            assert any("midnight" in passage.text for passage in passages) == sees
    listing = retriever_pb2.ListDocumentsRequest(principal=caller, index=INDEX, text_length=1000)
    listed = await rpc.unary(stub.ListDocuments, listing, soon())
    assert ({document.document_id for document in listed.documents}, listed.total) == (visible, len(visible))
    assert any("midnight" in text.text for text in listed.texts) == sees
    (index,) = (
        await rpc.unary(stub.ListIndexes, retriever_pb2.ListIndexesRequest(principal=caller), soon())
    ).indexes
    assert (index.document_count, index.chunk_count) == ((2, 5) if sees else (1, 2))

    looking = retriever_pb2.GetIndexRequest(principal=caller, index=INDEX, document_id="secret")
    assert (await rpc.unary(stub.GetIndex, looking, soon())).lookup.HasField("document") == sees
    reading = retriever_pb2.GetDocumentRequest(
        principal=caller, index=INDEX, document_id="secret", text_length=1000
    )
    update = retriever_pb2.UpdateDocumentRequest(
        principal=caller,
        index=INDEX,
        document=document_pb2.Document(document_id="secret", sha256="0" * 64, generation=2, category="new"),
    )
    update.document.access.oids.append("ann")
    update.document.access.groups.append("crew")
    again = begin(edge_bench, document_id="secret", generation=3)
    again.begin.principal.CopyFrom(caller)
    again.begin.document.access.oids.append("ann")
    again.begin.document.access.groups.append("crew")
    body = await chunks(edge_bench, "mine")
    if sees:
        assert "midnight" in (await rpc.unary(stub.GetDocument, reading, soon())).text.text
        await rpc.unary(stub.UpdateDocument, update, soon())
        await upsert(stub, again, body, commit(1))
    else:
        with pytest.raises(NotFound):
            await rpc.unary(stub.GetDocument, reading, soon())
        with pytest.raises(PermissionDenied):
            await rpc.unary(stub.UpdateDocument, update, soon())
        with pytest.raises(PermissionDenied):
            await upsert(stub, again, body, commit(1))
        for call, refused in (
            (stub.PersistIndex, retriever_pb2.PersistIndexRequest(principal=caller, index=INDEX, path="x")),
            (stub.DeleteIndex, retriever_pb2.DeleteIndexRequest(principal=caller, index=INDEX)),
        ):
            with pytest.raises(PermissionDenied):
                await rpc.unary(call, refused, soon())
    removal = retriever_pb2.DeleteDocumentsRequest(principal=caller, index=INDEX, document_ids=["secret"])
    removed = await rpc.unary(stub.DeleteDocuments, removal, soon())
    assert ([document.document_id for document in removed.deleted], list(removed.not_found_ids)) == (
        (["secret"], []) if sees else ([], ["secret"])
    )


async def test_settings_and_rebuilding_over_the_wire(stub: Any, edge_bench: Bench) -> None:
    """An index is created, described, updated and rebuilt with settings. Only administrators can rebuild it, and
    errors name the wrong setting.
    """
    settings = retriever_pb2.IndexSettings(chunk_tokens=100, chunk_overlap=10)
    create = retriever_pb2.CreateIndexRequest(principal=ME, index=INDEX, settings=settings)
    made = (await rpc.unary(stub.CreateIndex, create, soon())).index
    assert (made.name, made.embedding_model, made.dimension, made.document_count) == (
        INDEX,
        edge_bench.embedder.model,
        DIMENSION,
        0,
    )
    await upsert(stub, begin(edge_bench), await chunks(edge_bench, "the ferry"), commit(1))
    get = retriever_pb2.GetIndexRequest(principal=ME, index=INDEX)
    stored = (await rpc.unary(stub.GetIndex, get, soon())).settings
    assert (stored.embedding_model, stored.chunk_tokens, stored.chunk_overlap) == (
        edge_bench.embedder.model,
        100,
        10,
    )
    get.count = True
    counted = await rpc.unary(stub.GetIndex, get, soon())
    assert (counted.document_count, counted.chunk_count) == (1, 1)

    update = retriever_pb2.UpdateIndexRequest(principal=ADMIN, index=INDEX)
    update.settings.fusion = retriever_pb2.FUSION_RANKS
    update.settings.dense_weight = 0.0
    update.settings.expand = False
    update.settings.ocr = False
    update.update_mask.paths.extend(["fusion", "dense_weight", "expand", "chunk_overlap", "ocr"])
    updated = (await rpc.unary(stub.UpdateIndex, update, soon())).settings
    assert (updated.fusion, updated.dense_weight, updated.expand) == (retriever_pb2.FUSION_RANKS, 0.0, False)
    assert (updated.HasField("ocr"), updated.ocr) == (True, False)
    assert (updated.HasField("dense_weight"), updated.HasField("expand"), updated.HasField("chunk_overlap")) == (
        True,
        True,
        False,
    )
    assert (await rpc.unary(stub.GetIndex, get, soon())).settings == updated
    update.settings.fusion = 9  # type: ignore[assignment]  # what a newer client may send
    with pytest.raises(InvalidRequest, match="no fusion 9") as caught:
        await rpc.unary(stub.UpdateIndex, update, soon())
    assert caught.value.field == "settings.fusion"

    rebuild = retriever_pb2.RebuildIndexRequest(principal=BY_OID, index=INDEX)
    with pytest.raises(PermissionDenied):
        await rpc.unary(stub.RebuildIndex, rebuild, soon())
    rebuild.principal.CopyFrom(ADMIN)
    rebuild.settings.embedding_model = "gpt"
    with pytest.raises(InvalidRequest) as caught:
        await rpc.unary(stub.RebuildIndex, rebuild, soon())
    assert caught.value.field == "settings.embedding_model"
    looking = retriever_pb2.GetIndexRebuildRequest(principal=ME, index=INDEX)
    with pytest.raises(NotFound):
        await rpc.unary(stub.GetIndexRebuild, looking, soon())
    rebuild.settings.embedding_model = "hashed-words-32"
    rebuild.settings.language = "tlh"
    with pytest.raises(InvalidRequest, match="'tlh' is not a language of text search") as caught:
        await rpc.unary(stub.RebuildIndex, rebuild, soon())
    assert caught.value.field == "settings.language"
    rebuild.settings.language = "de"
    begun = (await rpc.unary(stub.RebuildIndex, rebuild, soon())).rebuild
    assert (begun.state, begun.documents_total) == (retriever_pb2.REBUILD_STATE_RUNNING, 1)
    async with asyncio.timeout(60):
        while True:
            found = (await rpc.unary(stub.GetIndexRebuild, looking, soon())).rebuild
            if found.state != retriever_pb2.REBUILD_STATE_RUNNING:
                break
            await asyncio.sleep(0.02)
    assert (found.state, found.error) == (retriever_pb2.REBUILD_STATE_SUCCEEDED, "")
    assert found.HasField("finished_at")
    assert (found.settings.embedding_model, found.settings.chunk_tokens) == ("hashed-words-32", 100)
    assert found.settings.language == "de"
    described = await rpc.unary(stub.GetIndex, get, soon())
    assert (described.embedding_model, described.dimension) == ("hashed-words-32", 32)
