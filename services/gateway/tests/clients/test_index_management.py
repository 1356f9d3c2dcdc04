"""The contract of the port, on the fake and on the adapter with a real server over that fake."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import pytest
from causeway.retriever.v1 import document_pb2, retriever_pb2, retriever_pb2_grpc
from causeway_testing.gateway.indexes import FakeIndexes
from causeway_testing.servers import grpc_service
from gateway.clients.index_management import GrpcIndexes
from gateway.clients.retriever import DESCRIPTOR
from gateway.domain.indexes import IndexRebuild, IndexSettings, IndexSummary
from gateway.domain.text_documents import DocumentPage, Equals, ListedDocument
from gateway.ports.index_management import Indexes
from servicekit.deadline import Deadline
from servicekit.errors import Conflict, InvalidRequest, NotFound
from servicekit.principal import LOCAL, Principal


class Servicer(retriever_pb2_grpc.RetrieverServiceServicer):
    """The retriever's service over the fake; stores the last principal."""

    def __init__(self, fake: FakeIndexes) -> None:
        self._fake = fake
        self.principal: Principal | None = None

    def _principal(self, request: Any) -> Principal:
        self.principal = Principal.from_proto(request.principal)
        return self.principal

    async def ListIndexes(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        found = await self._fake.summaries(self._principal(request), Deadline.of(context))
        return retriever_pb2.ListIndexesResponse(
            indexes=[
                retriever_pb2.Index(
                    name=index.name,
                    settings=_settings_message(index.settings),
                    document_count=index.documents,
                    chunk_count=index.chunks,
                )
                for index in found
            ]
        )

    async def ListDocuments(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        page = await self._fake.documents(
            self._principal(request),
            request.index,
            offset=request.offset,
            limit=request.page_size,
            text_length=request.text_length,
            conditions=[_equals(condition.match_any) for condition in request.filter.must],
            deadline=Deadline.of(context),
        )
        documents = [
            document_pb2.Document(
                document_id=document.document_id,
                sha256=document.sha256,
                metadata_json=b"" if document.metadata_json == b"{}" else document.metadata_json,
            )
            for document in page.documents
        ]
        texts = [
            document_pb2.DocumentText(text=document.text, is_truncated=document.is_truncated)
            for document in page.documents
        ]
        return retriever_pb2.ListDocumentsResponse(documents=documents, texts=texts, total=page.total)

    async def CreateIndex(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        with field_names_of_the_service():
            made = await self._fake.create(
                self._principal(request), request.index, _settings(request.settings), Deadline.of(context)
            )
        return retriever_pb2.CreateIndexResponse(
            index=retriever_pb2.Index(name=request.index, settings=_settings_message(made))
        )

    async def GetIndex(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        assert request.count
        found = await self._fake.summary(self._principal(request), request.index, Deadline.of(context))
        return retriever_pb2.GetIndexResponse(
            settings=_settings_message(found.settings), document_count=found.documents, chunk_count=found.chunks
        )

    async def UpdateIndex(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        names = ["embedding" if path == "embedding_model" else path for path in request.update_mask.paths]
        with field_names_of_the_service():
            settings = await self._fake.update(
                self._principal(request), request.index, _settings(request.settings), names, Deadline.of(context)
            )
        return retriever_pb2.UpdateIndexResponse(settings=_settings_message(settings))

    async def RebuildIndex(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        with field_names_of_the_service():
            begun = await self._fake.rebuild(
                self._principal(request), request.index, _settings(request.settings), Deadline.of(context)
            )
        return retriever_pb2.RebuildIndexResponse(rebuild=_rebuild(begun))

    async def GetIndexRebuild(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        found = await self._fake.last_rebuild(self._principal(request), request.index, Deadline.of(context))
        return retriever_pb2.GetIndexRebuildResponse(rebuild=_rebuild(found))

    async def DeleteIndex(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        await self._fake.delete(self._principal(request), request.index, Deadline.of(context))
        return retriever_pb2.DeleteIndexResponse()

    async def PersistIndex(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        await self._fake.persist(self._principal(request), request.index, request.path, Deadline.of(context))
        return retriever_pb2.PersistIndexResponse()

    async def LoadIndex(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        await self._fake.load(
            self._principal(request), request.index, request.path, Deadline.of(context), overwrite=request.overwrite
        )
        return retriever_pb2.LoadIndexResponse()

    async def ListSnapshots(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        response = retriever_pb2.ListSnapshotsResponse()
        for each in await self._fake.list_snapshots(self._principal(request), Deadline.of(context)):
            message = response.snapshots.add(
                path=each.path,
                index=each.index,
                document_count=each.documents,
                chunk_count=each.chunks,
                size_bytes=each.size_bytes,
            )
            message.created_at.FromJsonString(each.created_at)
        return response

    async def DeleteSnapshot(self, request: Any, context: Any) -> Any:  # noqa: N802  # the contract's name
        await self._fake.delete_snapshot(self._principal(request), request.path, Deadline.of(context))
        return retriever_pb2.DeleteSnapshotResponse()


@contextlib.contextmanager
def field_names_of_the_service() -> Iterator[None]:
    try:
        yield
    except InvalidRequest as error:
        raise InvalidRequest(error.message, field="settings.embedding_model") from error


def _settings(message: Any) -> IndexSettings:
    return IndexSettings(
        message.embedding_model or None,
        message.chunk_tokens if message.HasField("chunk_tokens") else None,
        message.chunk_overlap if message.HasField("chunk_overlap") else None,
        {
            retriever_pb2.FUSION_UNSPECIFIED: None,
            retriever_pb2.FUSION_SCORES: "scores",
            retriever_pb2.FUSION_RANKS: "ranks",
        }[message.fusion],
        message.dense_weight if message.HasField("dense_weight") else None,
        message.expand if message.HasField("expand") else None,
        message.language or None,
        {True: "auto", False: "off"}[message.ocr] if message.HasField("ocr") else None,
    )


def _settings_message(settings: IndexSettings) -> Any:
    return retriever_pb2.IndexSettings(
        embedding_model=settings.embedding or "",
        chunk_tokens=settings.chunk_tokens,
        chunk_overlap=settings.chunk_overlap,
        fusion=retriever_pb2.Fusion.Value(f"FUSION_{(settings.fusion or 'unspecified').upper()}"),
        dense_weight=settings.dense_weight,
        expand=settings.expand,
        language=settings.language or "",
        ocr={"auto": True, "off": False, None: None}[settings.ocr],
    )


def _rebuild(rebuild: IndexRebuild) -> Any:
    message = retriever_pb2.IndexRebuild(
        state=retriever_pb2.RebuildState.Value(f"REBUILD_STATE_{rebuild.state.upper()}"),
        settings=_settings_message(rebuild.settings),
        documents_done=rebuild.documents_done,
        documents_total=rebuild.documents_total,
        error=rebuild.error,
    )
    message.started_at.FromJsonString(rebuild.started_at)
    if rebuild.finished_at:
        message.finished_at.FromJsonString(rebuild.finished_at)
    return message


def _equals(match: Any) -> Equals:
    [value] = match.json_values
    return Equals(match.field.removeprefix("metadata."), value)


DOCUMENTS = {
    "a": ListedDocument("a", "Ein Text über Fähren", b'{"n":1}', "0" * 64, is_truncated=False),
    "b": ListedDocument("b", "Kurz", b"{}", "1" * 64, is_truncated=False),
    "c": ListedDocument("c", "Another", b'{"n":1,"t":"x"}', "2" * 64, is_truncated=False),
}


@pytest.fixture
def fake() -> FakeIndexes:
    return FakeIndexes({"docs": dict(DOCUMENTS), "empty": {}})


@pytest.fixture
def servicer(fake: FakeIndexes) -> Servicer:
    return Servicer(fake)  # type: ignore[abstract]  # the other methods are not called


@pytest.fixture
async def adapter(servicer: Servicer) -> AsyncIterator[GrpcIndexes]:
    def add(server: Any) -> None:
        retriever_pb2_grpc.add_RetrieverServiceServicer_to_server(servicer, server)

    async with grpc_service(DESCRIPTOR, add) as channel:
        yield GrpcIndexes(channel)


@pytest.fixture(params=["fake", "grpc"])
def indexes(request: pytest.FixtureRequest, fake: FakeIndexes, adapter: GrpcIndexes) -> Indexes:
    return fake if request.param == "fake" else adapter


def soon() -> Deadline:
    return Deadline.after(5)


async def listed(
    indexes: Indexes, index: str = "docs", *, offset: int = 0, limit: int = 10, conditions: Sequence[Equals] = ()
) -> DocumentPage:
    return await indexes.documents(
        LOCAL, index, offset=offset, limit=limit, text_length=9, conditions=conditions, deadline=soon()
    )


async def test_indexes_and_their_documents(indexes: Indexes) -> None:
    """Indexes are listed by name, and documents by id with the start of their text and the total number."""
    assert await indexes.summaries(LOCAL, soon()) == (
        IndexSummary("docs", IndexSettings("fake-embedder"), 3, 3),
        IndexSummary("empty", IndexSettings("fake-embedder"), 0, 0),
    )
    page = await listed(indexes)
    assert page.total == 3
    first = page.documents[0]
    assert (first.document_id, first.text, first.is_truncated) == ("a", "Ein Text ", True)
    assert (first.metadata_json, first.sha256) == (b'{"n":1}', "0" * 64)
    assert page.documents[1:] == (DOCUMENTS["b"], DOCUMENTS["c"])
    assert await listed(indexes, offset=1, limit=1) == DocumentPage((DOCUMENTS["b"],), 3)
    assert await listed(indexes, offset=3) == DocumentPage((), 3)
    assert await listed(indexes, "empty") == DocumentPage((), 0)


async def test_a_document_meets_all_conditions(indexes: Indexes) -> None:
    """A document is listed if it meets all conditions, and the types of the values count."""
    both = (Equals("n", "1"), Equals("t", '"x"'))
    assert [document.document_id for document in (await listed(indexes, conditions=both)).documents] == ["c"]
    assert (await listed(indexes, conditions=(Equals("n", '"1"'),))).total == 0


async def test_an_index_is_deleted(indexes: Indexes) -> None:
    """An index is deleted once. The second deletion is refused."""
    await indexes.delete(LOCAL, "docs", soon())
    assert [index.name for index in await indexes.summaries(LOCAL, soon())] == ["empty"]
    with pytest.raises(NotFound, match="No such index: 'docs' exists"):
        await indexes.delete(LOCAL, "docs", soon())


async def test_snapshots_are_written_and_loaded(indexes: Indexes) -> None:
    """Snapshots are written and loaded.

    A load replaces an existing index only with `overwrite`. The error for a missing snapshot names the path.
    """
    await indexes.persist(LOCAL, "docs", "x/y", soon())
    with pytest.raises(Conflict):
        await indexes.load(LOCAL, "docs", "x/y", soon())
    await indexes.persist(LOCAL, "empty", "x/y", soon())
    await indexes.load(LOCAL, "docs", "x/y", soon(), overwrite=True)
    assert (await listed(indexes, "docs")).total == 3
    await indexes.delete(LOCAL, "docs", soon())
    await indexes.load(LOCAL, "docs", "x/y", soon())
    assert (await listed(indexes, "docs")).total == 3
    with pytest.raises(NotFound, match="Path does not exist: nope/more"):
        await indexes.load(LOCAL, "more", "nope", soon())
    with pytest.raises(NotFound, match="No such index"):
        await indexes.persist(LOCAL, "nope", "x", soon())
    for path in ("../x", "/x"):
        with pytest.raises(InvalidRequest):
            await indexes.persist(LOCAL, "docs", path, soon())
        with pytest.raises(InvalidRequest):
            await indexes.load(LOCAL, "more", path, soon())


async def test_snapshots_are_listed_and_deleted(indexes: Indexes) -> None:
    """Snapshots are listed and deleted by their paths. A missing snapshot and a path outside are refused."""
    await indexes.persist(LOCAL, "docs", "x/y", soon())
    await indexes.persist(LOCAL, "empty", "", soon())
    first, second = await indexes.list_snapshots(LOCAL, soon())
    assert (first.path, first.index, first.documents) == ("empty", "empty", 0)
    assert (second.path, second.index, second.documents) == ("x/y/docs", "docs", 3)
    assert second.created_at.startswith("2026-01-01T00:00:00")
    await indexes.delete_snapshot(LOCAL, "x/y/docs", soon())
    assert await indexes.list_snapshots(LOCAL, soon()) == (first,)
    with pytest.raises(NotFound, match="There is no snapshot at 'x/y/docs'"):
        await indexes.delete_snapshot(LOCAL, "x/y/docs", soon())
    with pytest.raises(InvalidRequest):
        await indexes.delete_snapshot(LOCAL, "../x", soon())


async def test_an_index_is_created_with_settings(indexes: Indexes) -> None:
    """A new index has its settings and the default model. A second creation and an unknown model are refused."""
    settings = IndexSettings("other-embedder", 128, 0, "ranks", 0.0, expand=False, language="de")
    assert await indexes.create(LOCAL, "new", settings, soon()) == settings
    assert await indexes.summary(LOCAL, "new", soon()) == IndexSummary("new", settings, 0, 0)
    assert await indexes.create(LOCAL, "plain", IndexSettings(), soon()) == IndexSettings("fake-embedder")
    with pytest.raises(Conflict):
        await indexes.create(LOCAL, "new", settings, soon())
    with pytest.raises(InvalidRequest) as caught:
        await indexes.create(LOCAL, "more", IndexSettings("gpt"), soon())
    assert caught.value.field == "embedding"


async def test_settings_are_changed_in_place(indexes: Indexes) -> None:
    """An update changes or clears the named settings. It cannot change the model."""
    changes = IndexSettings(None, 128, 16, "scores", 0.25, expand=True)
    assert await indexes.update(
        LOCAL, "docs", changes, ("fusion", "chunk_tokens", "expand"), soon()
    ) == IndexSettings("fake-embedder", 128, None, "scores", None, expand=True)
    names = ("chunk_tokens", "fusion", "dense_weight")
    updated = await indexes.update(LOCAL, "docs", IndexSettings(dense_weight=0.0), names, soon())
    assert updated == IndexSettings("fake-embedder", None, None, None, 0.0, expand=True)
    assert (await indexes.summary(LOCAL, "docs", soon())).settings == updated
    with pytest.raises(InvalidRequest) as caught:
        await indexes.update(LOCAL, "docs", IndexSettings("other-embedder"), ("embedding",), soon())
    assert caught.value.field == "embedding"


async def test_an_index_is_rebuilt(indexes: Indexes) -> None:
    """A rebuild can be read from its start to its end."""
    with pytest.raises(NotFound, match="not been rebuilt"):
        await indexes.last_rebuild(LOCAL, "docs", soon())
    settings = IndexSettings("other-embedder", 128, language="fr")
    begun = await indexes.rebuild(LOCAL, "docs", settings, soon())
    assert (begun.state, begun.settings, begun.documents_total, begun.finished_at) == ("running", settings, 3, "")
    done = await indexes.last_rebuild(LOCAL, "docs", soon())
    assert (done.state, done.documents_done, done.started_at) == ("succeeded", 3, begun.started_at)
    assert done.finished_at
    with pytest.raises(InvalidRequest) as caught:
        await indexes.rebuild(LOCAL, "docs", IndexSettings("gpt"), soon())
    assert caught.value.field == "embedding"


async def test_an_unknown_index_is_not_found(indexes: Indexes) -> None:
    """An unknown index causes NotFound."""
    with pytest.raises(NotFound):
        await listed(indexes, "nope")


async def test_calls_contain_the_principal(adapter: GrpcIndexes, servicer: Servicer) -> None:
    """Calls contain the caller's principal."""
    principal = Principal("tenant", "ann", ("o",), ("g",), ("ask",))
    await adapter.summaries(principal, soon())
    assert servicer.principal == principal
