"""Manage the retriever's indexes over gRPC."""

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence

import grpc
from causeway.retriever.v1 import filter_pb2, retriever_pb2, retriever_pb2_grpc
from google.protobuf import field_mask_pb2
from servicekit import rpc
from servicekit.deadline import Deadline
from servicekit.errors import InvalidRequest
from servicekit.principal import Principal

from gateway.domain.indexes import IndexRebuild, IndexSettings, IndexSummary, StoredSnapshot
from gateway.domain.text_documents import DocumentPage, Equals, ListedDocument

_FIELDS = {"embedding": "embedding_model"}
"""The retriever's name of a setting, if the name differs from the name in the gateway's API."""
_NAMES = {field: name for name, field in _FIELDS.items()}
FUSIONS: "Mapping[str | None, retriever_pb2.Fusion.ValueType]" = {
    None: retriever_pb2.FUSION_UNSPECIFIED,
    "scores": retriever_pb2.FUSION_SCORES,
    "ranks": retriever_pb2.FUSION_RANKS,
}
_FUSION_NAMES = {code: name for name, code in FUSIONS.items()}
_STATES = {
    retriever_pb2.REBUILD_STATE_RUNNING: "running",
    retriever_pb2.REBUILD_STATE_SUCCEEDED: "succeeded",
    retriever_pb2.REBUILD_STATE_FAILED: "failed",
}


class GrpcIndexes:
    """`ports.index_management.Indexes` over a channel to the retriever."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = retriever_pb2_grpc.RetrieverServiceStub(channel)

    async def summaries(self, principal: Principal, deadline: Deadline) -> tuple[IndexSummary, ...]:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.ListIndexesRequest(principal=principal.to_proto())
        response: retriever_pb2.ListIndexesResponse = await rpc.unary(self._stub.ListIndexes, request, deadline)
        return tuple(
            IndexSummary(index.name, _settings(index.settings), index.document_count, index.chunk_count)
            for index in response.indexes
        )

    async def summary(self, principal: Principal, index: str, deadline: Deadline) -> IndexSummary:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.GetIndexRequest(principal=principal.to_proto(), index=index, count=True)
        response: retriever_pb2.GetIndexResponse = await rpc.unary(self._stub.GetIndex, request, deadline)
        return IndexSummary(index, _settings(response.settings), response.document_count, response.chunk_count)

    async def documents(
        self,
        principal: Principal,
        index: str,
        *,
        offset: int,
        limit: int,
        text_length: int,
        conditions: Sequence[Equals],
        deadline: Deadline,
    ) -> DocumentPage:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.ListDocumentsRequest(
            principal=principal.to_proto(),
            index=index,
            page_size=limit,
            offset=offset,
            text_length=text_length,
            filter=filter_pb2.Filter(must=[metadata_condition(condition) for condition in conditions]),
        )
        response: retriever_pb2.ListDocumentsResponse = await rpc.unary(self._stub.ListDocuments, request, deadline)
        listed = tuple(
            ListedDocument(
                document.document_id,
                text.text,
                document.metadata_json or b"{}",
                document.sha256,
                text.is_truncated,
            )
            for document, text in zip(response.documents, response.texts, strict=True)
        )
        return DocumentPage(listed, response.total)

    async def create(
        self, principal: Principal, index: str, settings: IndexSettings, deadline: Deadline
    ) -> IndexSettings:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.CreateIndexRequest(
            principal=principal.to_proto(), index=index, settings=_settings_message(settings)
        )
        with _fields_of_route():
            response: retriever_pb2.CreateIndexResponse = await rpc.unary(self._stub.CreateIndex, request, deadline)
        return _settings(response.index.settings)

    async def update(
        self,
        principal: Principal,
        index: str,
        settings: IndexSettings,
        names: Collection[str],
        deadline: Deadline,
    ) -> IndexSettings:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.UpdateIndexRequest(
            principal=principal.to_proto(),
            index=index,
            settings=_settings_message(settings),
            update_mask=field_mask_pb2.FieldMask(paths=[_FIELDS.get(name, name) for name in names]),
        )
        with _fields_of_route():
            response: retriever_pb2.UpdateIndexResponse = await rpc.unary(self._stub.UpdateIndex, request, deadline)
        return _settings(response.settings)

    async def rebuild(
        self, principal: Principal, index: str, settings: IndexSettings, deadline: Deadline
    ) -> IndexRebuild:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.RebuildIndexRequest(
            principal=principal.to_proto(), index=index, settings=_settings_message(settings)
        )
        with _fields_of_route():
            response: retriever_pb2.RebuildIndexResponse = await rpc.unary(
                self._stub.RebuildIndex, request, deadline
            )
        return _rebuild(response.rebuild)

    async def last_rebuild(self, principal: Principal, index: str, deadline: Deadline) -> IndexRebuild:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.GetIndexRebuildRequest(principal=principal.to_proto(), index=index)
        response: retriever_pb2.GetIndexRebuildResponse = await rpc.unary(
            self._stub.GetIndexRebuild, request, deadline
        )
        return _rebuild(response.rebuild)

    async def delete(self, principal: Principal, index: str, deadline: Deadline) -> None:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.DeleteIndexRequest(principal=principal.to_proto(), index=index)
        await rpc.unary(self._stub.DeleteIndex, request, deadline)

    async def persist(self, principal: Principal, index: str, path: str, deadline: Deadline) -> None:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.PersistIndexRequest(principal=principal.to_proto(), index=index, path=path)
        await rpc.unary(self._stub.PersistIndex, request, deadline)

    async def list_snapshots(self, principal: Principal, deadline: Deadline) -> tuple[StoredSnapshot, ...]:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.ListSnapshotsRequest(principal=principal.to_proto())
        response: retriever_pb2.ListSnapshotsResponse = await rpc.unary(self._stub.ListSnapshots, request, deadline)
        return tuple(
            StoredSnapshot(
                snapshot.path,
                snapshot.index,
                snapshot.document_count,
                snapshot.chunk_count,
                snapshot.size_bytes,
                snapshot.created_at.ToJsonString(),
            )
            for snapshot in response.snapshots
        )

    async def delete_snapshot(self, principal: Principal, path: str, deadline: Deadline) -> None:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.DeleteSnapshotRequest(principal=principal.to_proto(), path=path)
        await rpc.unary(self._stub.DeleteSnapshot, request, deadline)

    async def load(
        self, principal: Principal, index: str, path: str, deadline: Deadline, *, overwrite: bool = False
    ) -> None:
        """See `ports.index_management.Indexes`."""
        request = retriever_pb2.LoadIndexRequest(
            principal=principal.to_proto(), index=index, path=path, overwrite=overwrite
        )
        await rpc.unary(self._stub.LoadIndex, request, deadline)


@contextlib.contextmanager
def _fields_of_route() -> Iterator[None]:
    """Change the field of an `InvalidRequest` to the name that the setting has in the client's request."""
    try:
        yield
    except InvalidRequest as error:
        name = (error.field or "").removeprefix("settings.")
        raise InvalidRequest(error.message, field=_NAMES.get(name, name) or None) from error


def _settings_message(settings: IndexSettings) -> retriever_pb2.IndexSettings:
    return retriever_pb2.IndexSettings(
        embedding_model=settings.embedding or "",
        chunk_tokens=settings.chunk_tokens,
        chunk_overlap=settings.chunk_overlap,
        fusion=FUSIONS[settings.fusion],
        dense_weight=settings.dense_weight,
        expand=settings.expand,
        language=settings.language or "",
        ocr=None if settings.ocr is None else settings.ocr == "auto",
    )


def _settings(message: retriever_pb2.IndexSettings) -> IndexSettings:
    return IndexSettings(
        message.embedding_model,
        message.chunk_tokens if message.HasField("chunk_tokens") else None,
        message.chunk_overlap if message.HasField("chunk_overlap") else None,
        _FUSION_NAMES.get(message.fusion),
        message.dense_weight if message.HasField("dense_weight") else None,
        message.expand if message.HasField("expand") else None,
        message.language or None,
        ("auto" if message.ocr else "off") if message.HasField("ocr") else None,
    )


def _rebuild(message: retriever_pb2.IndexRebuild) -> IndexRebuild:
    return IndexRebuild(
        state=_STATES.get(message.state, "running"),
        settings=_settings(message.settings),
        documents_done=message.documents_done,
        documents_total=message.documents_total,
        error=message.error,
        started_at=message.started_at.ToJsonString(),
        finished_at=message.finished_at.ToJsonString() if message.HasField("finished_at") else "",
    )


def metadata_condition(equals: Equals) -> filter_pb2.Condition:
    """Return the retriever's filter condition for a value in the metadata."""
    field = f"metadata.{equals.key}"
    return filter_pb2.Condition(match_any=filter_pb2.MatchAny(field=field, json_values=[equals.json_value]))
